"""The public plug-in surface: all that a strategy has to name, and nothing else is public.

What a term may say beside its cost are protocols, which a class keeps without naming them: those of
``rebalancer.cost.term`` and ``rebalancer.cost.inspection``.

A strategy is a class with a ``Params`` model and a ``terms`` method, registered under the entry point
group ``rebalancer.strategies``. It hands over terms; most are a :class:`DomainTerm` of a few groups. Test
it with ``rebalancer.testing.contract.check_strategy``.
"""

from __future__ import annotations

from rebalancer.cost.domain_term import DomainTerm
from rebalancer.cost.groups import Domains, Group
from rebalancer.cost.inspection import Gauge
from rebalancer.cost.pod_term import PodTerm
from rebalancer.cost.price_group import PriceGroup
from rebalancer.cost.rules import SpreadRule
from rebalancer.cost.separable_groups import CapGroup, ConflictGroup
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.cost.streaks import Streaks
from rebalancer.cost.term import Bound, Candidates, Emptiable, Ended, Entry, Term, View
from rebalancer.policy.select import LabelsField, SelectorText
from rebalancer.policy.values import Direction, Duration, LabelKey, Params, Percent
from rebalancer.snapshot.leaving import LEAVING
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.usage import MEASURED
from rebalancer.wire.pod_state import PodState

__all__ = [
    "LEAVING",
    "MEASURED",
    "Bound",
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
    "Params",
    "Percent",
    "PodClass",
    "PodState",
    "PodTerm",
    "PriceGroup",
    "SelectorText",
    "Snapshot",
    "SpreadGroup",
    "SpreadRule",
    "Streaks",
    "Term",
    "View",
]
