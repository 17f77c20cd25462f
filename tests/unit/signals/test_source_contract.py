"""The contract test finds what a source may do wrong."""

import math
from dataclasses import replace

import pytest

from rebalancer.policy.values import Params
from rebalancer.signals.model import Interruption, SignalSource
from rebalancer.testing.contract import ContractError
from tests.support.contracts import check_source


class Receiver:
    def __init__(self, source):
        self.source, self.finished = source, set()

    def receive(self, stop):
        if not self.source.announced:
            stop.wait(self.source.waits)
            return []
        return [one for one in self.source.said if one.id not in self.finished]

    def heartbeat(self, interruption):
        pass

    def done(self, interruption, outcome):
        self.finished.add(interruption.id)

    def close(self):
        pass


class Source:
    """A queue in memory."""

    Params = Params
    announced = False
    waits = 0.01
    receiver = Receiver

    def __init__(self, *said):
        self.said = said

    def open(self, params, surroundings):
        return self.receiver(self)

    def announce(self):
        self.announced = True


def said(instance, **changes):
    return Interruption(
        **{"id": f"event-1/{instance}", "kind": "spot", "source": "source", "instance": instance}
        | changes
    )


def check(source, *machines):
    return check_source(source, Params(), source.announce, machines)


def test_a_source_that_keeps_it_passes():
    source = Source(said("i-1"), said("i-2"))
    assert isinstance(source, SignalSource)
    assert len(check(source, "i-1", "i-2")) == 2


@pytest.mark.parametrize(
    ("one", "wrong"),
    [
        (said("i-1", id=""), "no id"),
        (said("i-1", source="other"), "its source is other"),
        (said("i-1", kind="Spot!"), "is no kind"),
        (said("i-1", reason="two\nlines"), "not one line"),
        (said("i-1", deadline=math.nan), "no Unix seconds"),
        (said("i-1", deadline=-5.0), "no Unix seconds"),
        (said("i-1", cancelled=True), "is cancelled"),
    ],
)
def test_an_interruption_that_is_not_well_formed_fails(one, wrong):
    with pytest.raises(ContractError, match=wrong):
        check(Source(one), "i-1")


def test_one_event_with_several_machines_under_one_id_fails():
    twins = [replace(said("i-1"), id="event-1"), replace(said("i-2"), id="event-1")]
    with pytest.raises(ContractError, match="event-1 is the id of i-1 and of i-2"):
        check(Source(*twins), "i-1", "i-2")


def test_a_machine_of_which_nothing_is_said_fails():
    with pytest.raises(ContractError, match="says nothing of i-2"):
        check(Source(said("i-1")), "i-1", "i-2")


def test_what_is_said_again_though_it_is_done_fails():
    class Forgetful(Receiver):
        def done(self, interruption, outcome):
            pass

    source = Source(said("i-1"))
    source.receiver = Forgetful
    with pytest.raises(ContractError, match="says again what is done"):
        check(source, "i-1")


def test_an_id_from_the_clock_fails():
    class Hasty(Receiver):
        number = 0

        def done(self, interruption, outcome):
            pass

        def receive(self, stop):
            Hasty.number += 1
            return [replace(one, id=f"{one.id}/{Hasty.number}") for one in self.source.said]

    source = Source(said("i-1"), said("i-2"))
    source.receiver = Hasty
    with pytest.raises(ContractError, match="another id"):
        check(source, "i-1", "i-2")
