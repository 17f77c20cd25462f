"""Which of several processes leads: what it does about a Lease that is taken, refused, or cannot be read."""

import io
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.failures import ForbiddenError, NotServedError, StatusError
from rebalancer.kube.lease import LeaseTaken
from rebalancer.kube.resources import AccessRule
from rebalancer.serve import loop
from rebalancer.serve.health import Health
from rebalancer.serve.loop import Leading
from tests.unit.commands.serving import like

FORBIDDEN = ForbiddenError((AccessRule("update", "coordination.k8s.io", "leases"),))
MISSING = NotServedError(404, "there is no Lease")
DOWN = StatusError(503, "the API server is down")


class Acquired:
    """A Lease that is ours."""

    def __init__(self):
        self.released = 0

    def explain_loss(self):
        return "taken by another"

    def release(self):
        self.released += 1


class Scene:
    """A process that asks for a Lease, which answers as a test says."""

    def __init__(self, monkeypatch, acquire, *, follows=False, lease=("ops", "lease")):
        self.err = io.StringIO()
        clock = SystemClock()
        self.environment = Environment(clock, {}, io.StringIO(), self.err)
        self.health = Health(clock, deadline=120)
        stop: Any = Stop(clock, signalled=self.environment.stop)
        self.waits: list[float] = []
        self.looks = 0
        stop.wait = self.waits.append
        monkeypatch.setattr(loop, "Lease", lambda *_, **__: like(acquire=acquire))
        self.leading = Leading(lease, self.environment, stop, self.health, lambda: follows)

    def term(self):
        return self.leading.term(like(), self._look)

    def _look(self):
        self.looks += 1
        assert self.health.stands_by


def refusing(error):
    def acquire(_):
        raise error

    return acquire


@pytest.mark.parametrize(
    ("error", "follows", "ends"),
    [
        (FORBIDDEN, False, True),
        (MISSING, False, True),
        # One that has led before is not ended by what may be mended: its Deployment would only start it again.
        (FORBIDDEN, True, False),
        (MISSING, True, False),
        (DOWN, False, False),
        (DOWN, True, False),
    ],
    ids=str,
)
def test_a_lease_that_is_refused_ends_what_has_not_led_yet(monkeypatch, error, follows, ends):
    scene = Scene(monkeypatch, refusing(error), follows=follows)
    if ends:
        with pytest.raises(ClusterReadError) as raised, scene.term():
            pass
        assert raised.value is error
        return
    with scene.term() as lost:
        assert lost is None
    assert "it is tried again" in scene.err.getvalue()
    assert scene.waits == [2.0]
    assert not scene.health.stands_by


def test_what_a_signal_ends_while_it_asks_for_the_lease_is_not_said_to_be_tried_again(monkeypatch):
    def acquire(_):
        scene.environment.stop.set()
        raise DOWN

    scene = Scene(monkeypatch, acquire)
    with scene.term() as lost:
        assert lost is None
    assert scene.err.getvalue() == ""


def test_it_stands_by_while_another_leads_and_says_so_once(monkeypatch):
    acquired = Acquired()

    def acquire(looked):
        for _ in range(3):
            looked()
        return acquired

    scene = Scene(monkeypatch, acquire)
    with scene.term() as lost:
        assert lost is not None
        assert lost() == "taken by another"
        assert not scene.health.stands_by
        scene.health.leads = True
    assert scene.looks == 3
    assert scene.err.getvalue().count("standing by") == 1
    assert (scene.health.leads, acquired.released) == (False, 1)


def test_the_lease_is_given_back_though_its_term_ends_by_an_error(monkeypatch):
    acquired = Acquired()
    scene = Scene(monkeypatch, lambda _: acquired)

    def lead():
        with scene.term():
            scene.health.leads = True
            raise DOWN

    with pytest.raises(ClusterReadError):
        lead()
    assert (scene.health.leads, acquired.released) == (False, 1)


def test_what_stopped_while_it_stood_by_leads_nothing(monkeypatch):
    def acquire(looked):
        looked()
        return LeaseTaken("another", 0.0)

    scene = Scene(monkeypatch, acquire)
    with scene.term() as lost:
        assert lost is None
    assert not scene.health.stands_by


def test_without_a_lease_it_leads_alone_and_for_good(monkeypatch):
    scene = Scene(monkeypatch, refusing(MISSING), lease=None)
    with scene.term() as lost:
        assert lost is not None
        assert lost() is None
