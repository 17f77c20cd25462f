"""Who holds the Lease, and for how long."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.lease import AcquiredLease, Lease, LeaseTaken
from tests.unit.kube.scripted import Asked, Say, ScriptedServer, Sleeps, client_of, status_body

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/run"
TEN = 1795168800.0
"""The scripted server's clock."""


class Hasty(threading.Event):
    """Waits a hundredth of what it is asked for: the renewing thread's pauses."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else timeout / 100)


@pytest.fixture(autouse=True)
def hasty_thread(monkeypatch):
    fake = SimpleNamespace(Event=Hasty, Thread=threading.Thread)
    monkeypatch.setattr("rebalancer.kube.lease.threading", fake)


class LeaseOnServer:
    """A Lease with the API server's compare-and-swap."""

    def __init__(self, server: ScriptedServer, **spec: Any) -> None:
        self.object: dict[str, Any] = {
            "metadata": {"name": "run", "resourceVersion": "1", "labels": {"by": "chart"}},
            "spec": spec,
        }
        self.writes: list[dict[str, Any]] = []
        self._lock = threading.RLock()
        server.handle("GET", PATH, lambda _: Say(self.object))
        server.handle("PUT", PATH, self.put)

    def put(self, asked: Asked) -> Say:
        with self._lock:
            if asked.body["metadata"]["resourceVersion"] != self.version:
                return Say(status_body(409, "the object has been modified"), 409)
            self.writes.append(asked.body["spec"])
            self.change(**asked.body["spec"])
            return Say(self.object)

    @property
    def version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])

    def change(self, **spec: Any) -> None:
        with self._lock:
            metadata = {**self.object["metadata"], "resourceVersion": str(int(self.version) + 1)}
            self.object = {"metadata": metadata, "spec": spec}


def lease(
    server: ScriptedServer,
    folder: Path,
    duration: int = 60,
    sleeps: Stop | None = None,
    **limits: Any,
) -> Lease:
    client = client_of(server.url, folder, sleeps, **limits)
    return Lease(client, "ops", "run", identity="me", duration=duration, clock=lambda: 0.0)


def test_a_free_lease_is_taken_and_given_back(server, tmp_path):
    kept = LeaseOnServer(server, leaseTransitions=4)
    acquired = lease(server, tmp_path).acquire()
    assert isinstance(acquired, AcquiredLease)
    assert kept.writes[0] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 60,
        "acquireTime": "2026-11-20T10:00:00.000000Z",
        "renewTime": "2026-11-20T10:00:00.000000Z",
        "leaseTransitions": 5,
    }
    assert acquired.release() is None
    assert "holderIdentity" not in kept.object["spec"]
    assert kept.object["metadata"]["labels"] == {"by": "chart"}


@pytest.mark.parametrize(
    ("renewed", "left"), [("2026-11-20T09:59:30Z", 30.0), ("2026-11-20T09:59:00.500000Z", 0.5)]
)
def test_a_lease_of_another_is_respected_until_it_expires(server, tmp_path, renewed, left):
    kept = LeaseOnServer(server, holderIdentity="other", renewTime=renewed, leaseDurationSeconds=60)
    answer = lease(server, tmp_path).acquire()
    assert answer == LeaseTaken("other", TEN + left)
    assert kept.writes == []


DEAD = ["2026-11-20T09:59:00Z", "2020-01-01T00:00:00Z", "2036-01-01T00:00:00Z", None]


@pytest.mark.parametrize("renewed", DEAD)
def test_a_dead_holder_is_watched_for_its_duration_before_its_lease_is_taken(
    server, tmp_path, sleeps, renewed
):
    spec = {"holderIdentity": "dead", "renewTime": renewed, "leaseDurationSeconds": 60}
    kept = LeaseOnServer(server, **spec)
    acquired = lease(server, tmp_path, sleeps=sleeps).acquire()
    assert isinstance(acquired, AcquiredLease)
    acquired.release()
    assert kept.writes[0]["holderIdentity"] == "me"
    assert sum(sleeps.waits) == 60.0


@pytest.mark.parametrize("renewed", DEAD)
def test_a_living_holder_whose_clock_is_wrong_keeps_its_lease(server, tmp_path, sleeps, renewed):
    spec = {"holderIdentity": "alive", "renewTime": renewed, "leaseDurationSeconds": 60}
    kept = LeaseOnServer(server, **spec)

    def get(_: Asked) -> Say:
        if sum(sleeps.waits) >= 40.0:
            kept.change(**spec)
        return Say(kept.object)

    server.handle("GET", PATH, get)
    answer = lease(server, tmp_path, sleeps=sleeps).acquire()
    assert answer == LeaseTaken("alive", TEN + 60.0)
    assert kept.writes == []


@pytest.mark.parametrize(
    "answer", [Say(b"<html>", 502), Say(b"<html>"), Say(status_body(503, "no"), 503)]
)
def test_a_lease_that_was_taken_with_a_reply_that_does_not_say_so_is_held(
    server, tmp_path, sleeps, answer
):
    kept = LeaseOnServer(server)

    def put(asked: Asked) -> Say:
        done = kept.put(asked)
        return answer if len(kept.writes) == 1 else done

    server.handle("PUT", PATH, put)
    acquired = lease(server, tmp_path, sleeps=sleeps).acquire()
    assert isinstance(acquired, AcquiredLease)
    assert kept.object["spec"]["holderIdentity"] == "me"
    assert acquired.release() is None


def test_a_lease_that_cannot_be_taken_says_why(server, tmp_path, sleeps):
    kept = LeaseOnServer(server)
    server.handle("PUT", PATH, lambda _: Say(status_body(503, "no leader"), 503))
    with pytest.raises(ClusterReadError, match="no leader"):
        lease(server, tmp_path, sleeps=sleeps).acquire()
    assert kept.writes == []


def test_what_its_holder_gives_back_while_it_is_watched_is_taken(server, tmp_path, sleeps):
    kept = LeaseOnServer(server, holderIdentity="slow", renewTime=DEAD[0], leaseDurationSeconds=60)

    def get(_: Asked) -> Say:
        if sum(sleeps.waits) >= 4.0:
            kept.change(leaseDurationSeconds=60)
        return Say(kept.object)

    server.handle("GET", PATH, get)
    acquired = lease(server, tmp_path, sleeps=sleeps).acquire()
    assert isinstance(acquired, AcquiredLease)
    acquired.release()
    assert sum(sleeps.waits) == 4.0


def test_a_run_that_must_end_meanwhile_takes_nothing(server, tmp_path):
    kept = LeaseOnServer(server, holderIdentity="dead", leaseDurationSeconds=60)
    answer = lease(server, tmp_path, sleeps=Sleeps(deadline=1020.0)).acquire()
    assert isinstance(answer, LeaseTaken)
    assert kept.writes == []


def test_of_two_that_take_it_at_once_one_gets_it(server, tmp_path):
    kept = LeaseOnServer(server)
    put = kept.put

    def other_first(asked: Asked) -> Say:
        if not kept.writes:
            kept.writes.append({})
            kept.change(
                holderIdentity="other", renewTime="2026-11-20T10:00:00Z", leaseDurationSeconds=60
            )
        return put(asked)

    server.handle("PUT", PATH, other_first)
    answer = lease(server, tmp_path).acquire()
    assert isinstance(answer, LeaseTaken)
    assert answer.holder == "other"


def test_a_lease_that_does_not_exist_is_an_error(server, tmp_path):
    with pytest.raises(
        ClusterReadError, match=r"there is no Lease ops/run: create it .* or run without --lease"
    ):
        lease(server, tmp_path).acquire()


NONSENSE = [b"<html>", {}, {"metadata": {}}, {"metadata": {"resourceVersion": "1"}, "spec": [1]}]


@pytest.mark.parametrize("body", [*NONSENSE, b'{"metadata": {"resourceVersion": "\xff"}}'])
def test_what_is_no_lease_is_an_error(server, tmp_path, body):
    server.on("GET", PATH, Say(body))
    with pytest.raises(ClusterReadError, match="is not a Lease"):
        lease(server, tmp_path).acquire()


def test_a_forbidden_lease_names_the_rule(server, tmp_path):
    server.on("GET", PATH, Say(status_body(403, "no"), 403))
    with pytest.raises(
        ClusterReadError, match=r'resources: \["leases"\], resourceNames: \["run"\]'
    ):
        lease(server, tmp_path).acquire()


def eventually(condition: Callable[[], bool], seconds: float = 600.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


class Slow(Sleeps):
    """A clock on which a busy machine's delays are short."""

    def now(self) -> float:
        return time.monotonic() / 100


def acquired_lease(
    server: ScriptedServer, folder: Path, clock: Sleeps | None = None, **limits: Any
) -> AcquiredLease:
    """Take a Lease of two seconds: renewed after 7 ms, lost when 1.33 s of the clock pass without that."""
    acquired = lease(server, folder, duration=2, sleeps=clock or Slow(), **limits).acquire()
    assert isinstance(acquired, AcquiredLease)
    return acquired


def test_it_is_renewed_while_it_is_held(server, tmp_path):
    kept = LeaseOnServer(server)
    acquired = acquired_lease(server, tmp_path)
    assert eventually(lambda: len(kept.writes) >= 3)  # taken, twice renewed
    assert acquired.explain_loss() is None
    assert acquired.release() is None
    renewals = [write["renewTime"] for write in kept.writes]
    assert renewals == sorted(set(renewals))


def test_it_is_lost_when_another_has_taken_it(server, tmp_path):
    kept = LeaseOnServer(server)
    acquired = acquired_lease(server, tmp_path)
    kept.change(holderIdentity="other", leaseDurationSeconds=60)
    assert eventually(lambda: acquired.explain_loss() == "the Lease was lost to another run")
    assert acquired.release() == "the Lease was lost to another run: nothing was done after that"
    assert kept.object["spec"]["holderIdentity"] == "other"


@pytest.mark.parametrize(
    "trouble",
    [
        *(Say(status_body(status, "trouble"), status) for status in (429, 500, 502, 503, 504)),
        Say(b"<html>it works</html>"),
        Say(b"<html>404 Not Found</html>", 404),
        Say({"kind": "Status"}),
        Say(hang_up=True),
        Say({"metadata": {}}, cut=5),
    ],
)
def test_a_renewal_that_fails_in_passing_is_tried_again(server, tmp_path, trouble):
    kept = LeaseOnServer(server)
    acquired = acquired_lease(server, tmp_path, attempts=1)
    answers = [trouble, trouble]
    server.handle("PUT", PATH, lambda asked: answers.pop() if answers else kept.put(asked))
    assert eventually(lambda: not answers)
    before = len(kept.writes)
    assert eventually(lambda: len(kept.writes) > before)
    assert acquired.explain_loss() is None
    assert acquired.release() is None


def test_a_renewal_that_was_done_before_its_answer_failed_is_no_loss(server, tmp_path):
    kept = LeaseOnServer(server)
    acquired = acquired_lease(server, tmp_path, attempts=1)
    failures = [500, 502]

    def put(asked: Asked) -> Say:
        done = kept.put(asked)
        return Say(status=failures.pop()) if failures else done

    server.handle("PUT", PATH, put)
    assert eventually(lambda: not failures)
    before = len(kept.writes)
    assert eventually(lambda: len(kept.writes) > before)
    assert acquired.explain_loss() is None
    assert acquired.release() is None
    assert "holderIdentity" not in kept.object["spec"]


@pytest.mark.parametrize("status", [403, 404])
def test_a_renewal_that_is_refused_for_good_is_a_loss(server, tmp_path, status):
    LeaseOnServer(server)
    acquired = acquired_lease(server, tmp_path)
    server.on("PUT", PATH, Say(status_body(status, "no"), status))
    assert eventually(lambda: acquired.explain_loss() is not None)
    acquired.release()


def test_whatever_ends_the_renewing_thread_is_a_loss(server, tmp_path, monkeypatch):
    LeaseOnServer(server)

    def breaks(*_: object, **__: object) -> None:
        raise AttributeError

    acquired = acquired_lease(server, tmp_path)
    monkeypatch.setattr(Lease, "write", breaks)
    assert eventually(lambda: acquired.explain_loss() is not None)
    assert acquired.explain_loss() == "the Lease was lost: AttributeError while it was renewed"


def test_it_is_lost_by_the_clock_whatever_the_thread_is_doing(
    server, tmp_path, sleeps, monkeypatch
):
    """The thread may hang in a plugin, a name server, or anything else."""
    LeaseOnServer(server)
    over = threading.Event()
    acquired = lease(server, tmp_path, duration=3, sleeps=sleeps).acquire()
    assert isinstance(acquired, AcquiredLease)
    monkeypatch.setattr(AcquiredLease, "_renew", lambda _: over.wait(600.0))
    sleeps.sleep(1.9)
    assert acquired.explain_loss() is None
    sleeps.sleep(0.2)
    assert acquired.explain_loss() == "the Lease was lost: it could not be renewed in time"
    over.set()
    assert "could not be renewed in time" in str(acquired.release())


def test_a_busy_run_does_not_hold_up_the_renewal(server, tmp_path):
    kept = LeaseOnServer(server)
    server.on("GET", "/slow", Say(after=600.0))
    asked = lease(server, tmp_path, duration=2, sleeps=Slow(), in_flight=1)
    acquired = asked.acquire()
    assert isinstance(acquired, AcquiredLease)

    def ask() -> None:
        with contextlib.suppress(ClusterReadError):
            asked.client.get("/slow", seconds=600.0)

    threading.Thread(target=ask, daemon=True).start()
    assert eventually(lambda: len(kept.writes) >= 3)
    assert acquired.release() is None


def test_it_is_given_back_after_the_run_had_to_end(server, tmp_path):
    kept = LeaseOnServer(server)
    signalled = threading.Event()
    stop = Stop(SystemClock(), signalled=signalled)
    acquired = lease(server, tmp_path, sleeps=stop).acquire()
    assert isinstance(acquired, AcquiredLease)
    signalled.set()
    assert stop.reason() is not None
    assert acquired.release() is None
    assert "holderIdentity" not in kept.object["spec"]


def test_giving_it_back_takes_seconds_at_most(server, tmp_path, monkeypatch):
    monkeypatch.setattr("rebalancer.kube.lease._JOIN_TIMEOUT", 0.3)
    LeaseOnServer(server)
    acquired = lease(server, tmp_path, sleeps=Stop(SystemClock())).acquire()
    assert isinstance(acquired, AcquiredLease)
    server.on("PUT", PATH, Say(after=600.0))
    started = time.monotonic()
    assert "could not be given back" in str(acquired.release())
    assert time.monotonic() - started < 300.0


def test_it_is_not_lost_when_another_client_changed_its_labels(server, tmp_path):
    kept = LeaseOnServer(server)
    acquired = acquired_lease(server, tmp_path)
    kept.change(**kept.object["spec"])
    before = len(kept.writes)
    assert eventually(lambda: len(kept.writes) > before)
    assert acquired.explain_loss() is None
    assert acquired.release() is None


def test_it_is_lost_before_it_expires_when_the_server_falls_silent(server, tmp_path):
    LeaseOnServer(server)
    clock = Sleeps()
    acquired = acquired_lease(server, tmp_path, clock, read=0.1)
    server.on("PUT", PATH, Say(after=600.0))

    def tried_again() -> bool:
        before = len(server.to(PATH, "PUT"))
        return eventually(lambda: len(server.to(PATH, "PUT")) > before + 1)

    clock.sleep(1.3)
    assert tried_again()
    assert acquired.explain_loss() is None
    clock.sleep(0.1)
    assert acquired.explain_loss() is not None
    acquired.release()


@pytest.mark.parametrize("renewed", DEAD)
def test_one_that_waits_knows_at_its_first_look_how_long_to_watch(
    server, tmp_path, sleeps, renewed
):
    """Also a Lease that does not look expired: its holder may be dead anyway."""
    LeaseOnServer(server, holderIdentity="other", renewTime=renewed, leaseDurationSeconds=15)
    looks: list[None] = []
    acquired = lease(server, tmp_path, 15, sleeps).acquire(lambda: looks.append(None))
    assert isinstance(acquired, AcquiredLease)
    assert sum(sleeps.waits) == pytest.approx(15.0)
    assert len(looks) == len(sleeps.waits) + 1
    assert acquired.release() is None


def test_one_that_waits_takes_nothing_from_a_living_holder(server, tmp_path, sleeps):
    kept = LeaseOnServer(
        server, holderIdentity="other", renewTime="2026-11-20T10:00:00Z", leaseDurationSeconds=15
    )
    looks = 0

    def looked() -> None:
        nonlocal looks
        looks += 1
        if looks == 50:
            kept.change()  # given back
        elif looks % 5 == 0:
            kept.change(**{**kept.object["spec"], "renewTime": f"2026-11-20T10:00:{looks}Z"})

    acquired = lease(server, tmp_path, 15, sleeps).acquire(looked)
    assert isinstance(acquired, AcquiredLease)
    assert looks == 50
    assert acquired.release() is None
