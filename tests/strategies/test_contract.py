"""Every installed strategy keeps the public contract; broken ones are caught."""

import numpy as np
import pytest

from rebalancer.api import DomainTerm, Entry
from rebalancer.registry import Registry
from rebalancer.testing.contract import ContractError, check_strategy

REGISTRY = Registry.installed()


@pytest.mark.parametrize("name", [listed.name for listed in REGISTRY.listed()])
def test_an_installed_strategy_keeps_the_contract(name):
    check_strategy(REGISTRY.strategy(name))


class Liar:
    """Says that every move gains one."""

    Params = REGISTRY.strategy("duplicates").Params

    def terms(self, view, params):
        term = REGISTRY.strategy("duplicates").terms(view, params)[0]

        class Lying(DomainTerm):
            def delta(self, cls, node, replacement, destinations):
                return np.full(len(destinations), -1.0)

        return [Lying(view, Entry.SOFT, term._groups)]


def test_a_strategy_whose_deltas_lie_is_caught():
    with pytest.raises(ContractError, match="delta says"):
        check_strategy(Liar())


class Nameless:
    Params = REGISTRY.strategy("duplicates").Params

    def terms(self, view, params):
        return []


def test_a_strategy_without_a_docstring_is_caught():
    with pytest.raises(ContractError, match="docstring"):
        check_strategy(Nameless())
