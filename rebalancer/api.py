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
from rebalancer.cost.inspection import Gauge, Level, Standing
from rebalancer.cost.pod_term import PodTerm
from rebalancer.cost.price_group import PriceGroup, least_with_room
from rebalancer.cost.rules import SpreadRule, spread_rules
from rebalancer.cost.separable_groups import CapGroup, ConflictGroup
from rebalancer.cost.signals import Signals
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.cost.term import Bound, Candidates, Direction, Entry, Term, View
from rebalancer.durations import format_duration
from rebalancer.errors import PolicyError
from rebalancer.plan.plan import Cause
from rebalancer.policy.params import Params, Percent
from rebalancer.policy.select import LabelSelect, LabelsField
from rebalancer.policy.values import Duration, LabelKey, Labels
from rebalancer.scheduler.placement import tolerates
from rebalancer.snapshot.affinity import affinity_classes
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.labels import matches_labels
from rebalancer.snapshot.leaving import LEAVING_CONDITIONS, LEAVING_TAINTS
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.selected import nodes_matching
from rebalancer.snapshot.selector_text import parse_selector
from rebalancer.snapshot.usage import MEASURED
from rebalancer.wire.pod_state import PodCondition, PodState

__all__ = [
    "LEAVING_CONDITIONS",
    "LEAVING_TAINTS",
    "MEASURED",
    "Bools",
    "Bound",
    "Candidates",
    "CapGroup",
    "Cause",
    "ConflictGroup",
    "Direction",
    "DomainTerm",
    "Domains",
    "Duration",
    "Entry",
    "Floats",
    "Gauge",
    "Group",
    "Int32s",
    "Ints",
    "LabelKey",
    "LabelSelect",
    "Labels",
    "LabelsField",
    "Level",
    "Params",
    "Percent",
    "PodClass",
    "PodCondition",
    "PodState",
    "PodTerm",
    "PolicyError",
    "PriceGroup",
    "Signals",
    "Snapshot",
    "SpreadGroup",
    "SpreadRule",
    "Standing",
    "Term",
    "View",
    "affinity_classes",
    "format_duration",
    "least_with_room",
    "matches_labels",
    "nodes_matching",
    "parse_selector",
    "spread_rules",
    "tolerates",
]
