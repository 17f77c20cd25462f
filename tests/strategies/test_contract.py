"""Every installed strategy keeps the public contract; broken ones are caught."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from rebalancer.api import CapGroup, Domains, DomainTerm, Entry, Params, Term, View
from rebalancer.registry import Registry
from rebalancer.testing.contract import ContractError, check_strategy

REGISTRY = Registry.installed()


@pytest.mark.parametrize("name", [listed.name for listed in REGISTRY.listed()])
def test_an_installed_strategy_keeps_the_contract(name):
    check_strategy(REGISTRY.strategy(name))


class Lying(DomainTerm):
    """A term of duplicates that says that every move gains one."""

    def delta(self, cls, node, replacement, destinations):
        return np.full(len(destinations), -1.0)


class Liar:
    """Hands over terms that lie."""

    Params: ClassVar[type[Params]] = Params

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
        return [Lying(view, Entry.SOFT, groups)]


def test_a_strategy_whose_deltas_lie_is_caught():
    with pytest.raises(ContractError, match="delta says"):
        check_strategy(Liar())


class Nameless:
    Params: ClassVar[type[Params]] = Params

    def terms(self, view: View, params: object) -> Sequence[Term]:
        return []


def test_a_strategy_without_a_docstring_is_caught():
    with pytest.raises(ContractError, match="docstring"):
        check_strategy(Nameless())
