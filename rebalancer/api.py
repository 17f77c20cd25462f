"""The public plug-in surface: all names that a strategy needs. Nothing else is public.

A :class:`Strategy` has a ``Params`` model and a ``terms`` method, and is registered under the entry point group
``rebalancer.strategies``. It returns terms; most are a :class:`DomainTerm` of a few groups. The base classes
:class:`Strategy` and :class:`Term` have neutral defaults for all optional methods. Test a strategy with
``rebalancer.testing.contract.check_strategy``.
"""

from __future__ import annotations

from rebalancer.cost.balance import LoadBalance
from rebalancer.cost.domain_term import DomainTerm
from rebalancer.cost.groups import Domains
from rebalancer.cost.pod_term import PodTerm
from rebalancer.cost.price_group import PriceGroup
from rebalancer.cost.room_term import Ask
from rebalancer.cost.separable_groups import CapGroup, ConflictGroup
from rebalancer.cost.spread_group import SpreadGroup, SpreadRule
from rebalancer.cost.strategy import Emptiable, Ended, Strategy
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Candidates, Entry, Gauge, Group, Term
from rebalancer.cost.view import View
from rebalancer.policy.select import LabelsField, SelectorText
from rebalancer.policy.values import Direction, Duration, LabelKey, Params, Percent, Quantity
from rebalancer.snapshot.leaving import LEAVING
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.wire.pods import PodState

__all__ = [
    "LEAVING",
    "Ask",
    "Candidates",
    "CapGroup",
    "ConflictGroup",
    "Direction",
    "DomainTerm",
    "Domains",
    "Duration",
    "Emptiable",
    "Ended",
    "Entry",
    "Gauge",
    "Group",
    "LabelKey",
    "LabelsField",
    "LoadBalance",
    "Params",
    "Percent",
    "PodClass",
    "PodState",
    "PodTerm",
    "PriceGroup",
    "Quantity",
    "SelectorText",
    "Snapshot",
    "SpreadGroup",
    "SpreadRule",
    "Strategy",
    "Streaks",
    "Term",
    "View",
]
