"""Every installed strategy keeps the public contract; broken ones are caught."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from rebalancer.api import (
    Candidates,
    CapGroup,
    Domains,
    DomainTerm,
    Entry,
    Gauge,
    Params,
    Strategy,
    Streaks,
    Term,
    View,
)
from rebalancer.registry import Registry
from rebalancer.testing.contract import ContractError, check_strategy
from rebalancer.testing.snapshots import ZONE
from strategies.lifetime import LifetimeParams
from strategies.placement import PlacementParams
from strategies.slots import SlotsParams
from strategies.utilisation import LowUtilisationParams

REGISTRY = Registry.installed()
PARAMS = {
    "placement": PlacementParams.model_validate({"avoid": {ZONE: "zone-a"}}),
    "slots": SlotsParams.model_validate({"free": {"cpu": "2"}}),
    "lifetime": LifetimeParams.model_validate({"maxPodLifeTime": "1h"}),
}


@pytest.mark.parametrize("name", [listed.name for listed in REGISTRY.list_metadata()])
def test_an_installed_strategy_keeps_the_contract(name):
    check_strategy(REGISTRY.strategy(name), PARAMS.get(name))


@pytest.mark.parametrize("signal", ["usage", "larger"])
@pytest.mark.parametrize("runs", [1, 3])
def test_low_utilisation_keeps_it_by_measured_use(signal, runs):
    strategy = REGISTRY.strategy("low-utilisation")
    check_strategy(strategy, LowUtilisationParams(signal=signal, runs=runs))


class Lying(DomainTerm):
    """A term of duplicates that says that every move gains one."""

    def delta(self, cls, node, replacement, destinations):
        return np.full(len(destinations), -1.0)


class Idle(DomainTerm):
    """A term of duplicates that says that no move concerns it."""

    def concerns(self, cls, replacement):
        return False


class Forgetful(DomainTerm):
    """A term of duplicates that says of whom it names that they wait."""

    def streaks(self):
        return Streaks(1.0, dict.fromkeys(self._view.snapshot.nodes.names, 1))

    def waiting(self):
        return self.candidates()


class Stranger(Forgetful):
    """Has a signal of a node that does not exist."""

    def streaks(self):
        return Streaks(1.0, {"nowhere": 1})

    def waiting(self):
        return Candidates.none()


class Silent(DomainTerm):
    """Has an empty note."""

    def notes(self):
        return [""]


class Confused(DomainTerm):
    """Returns all groups for any classes."""

    def groups_of(self, classes):
        return self._groups


class Boasting(DomainTerm):
    """Judges every node over-used."""

    def gauge(self, node):
        return Gauge(
            Gauge.Standing.OVER, True, "gives", (Gauge.Level("cpu", 0.1, 0.2, 0.5, "requested"),)
        )


class Crowd(Strategy):
    """Hands over a term of duplicates of the given kind."""

    Params: ClassVar[type[Params]] = Params

    def __init__(self, made: type[DomainTerm] = DomainTerm, needs: object = False) -> None:
        self._made, self._needs = made, needs

    def terms(self, view: View, params: object) -> Sequence[Term]:
        owners = range(len(view.snapshot.owners))
        groups = [
            CapGroup(
                view,
                label="crowd",
                domains=Domains.nodes(view),
                counted=view.classes_of_owner(owner),
                cap=1,
            )
            for owner in owners
        ]
        return [self._made(view, Entry.SOFT, groups)]

    def needs_usage(self, params: object) -> Any:
        return self._needs


def test_a_strategy_that_keeps_the_contract_passes():
    check_strategy(Crowd(needs=True))


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (Crowd(Lying), "delta says"),
        (Crowd(Idle), "although concerns says no"),
        (Crowd(Forgetful), "both a candidate and waiting"),
        (Crowd(Stranger), "a signal of an unknown node"),
        (Crowd(Silent), "a note is not one line"),
        (Crowd(Confused), "without the class as a member"),
        (Crowd(Boasting), "over no threshold"),
        (Crowd(needs="perhaps"), "needs_usage returns no bool"),
    ],
)
def test_a_strategy_that_does_not_is_caught(strategy, says):
    with pytest.raises(ContractError, match=says):
        check_strategy(strategy)


class Nameless(Strategy):
    Params: ClassVar[type[Params]] = Params

    def terms(self, view: View, params: object) -> Sequence[Term]:
        return []


def test_a_strategy_without_a_docstring_is_caught():
    with pytest.raises(ContractError, match="docstring"):
        check_strategy(Nameless())


class MethodsOnly:
    """Hands over a term, and derives from nothing of ours."""

    Params: ClassVar[type[Params]] = Params

    def __init__(self, term: type) -> None:
        self._term = term

    def terms(self, view: View, params: object) -> Sequence[object]:
        return [self._term(view)]


class OwnTerm:
    """A term of duplicates by its methods."""

    def __init__(self, view: View) -> None:
        term = Crowd().terms(view, None)[0]
        self.entry = Entry.SOFT
        for name in ("potential", "violated", "candidates", "delta", "related", "describe"):
            setattr(self, name, getattr(term, name))


class Mute(OwnTerm):
    """One that cannot say what is wrong."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        delattr(self, "describe")


def test_classes_that_only_have_the_methods_are_completed():
    check_strategy(MethodsOnly(OwnTerm))  # type: ignore[arg-type]


def test_a_method_without_a_neutral_answer_is_missed():
    with pytest.raises(ContractError, match="describe"):
        check_strategy(MethodsOnly(Mute))  # type: ignore[arg-type]
