"""The public plug-in surface: all that a strategy may import, and nothing else is public.

A strategy is a class with a ``Params`` model and a ``terms`` method, registered under the entry point
group ``rebalancer.strategies``. It hands over terms; most are a :class:`DomainTerm` of a few groups. Test
it with ``rebalancer.testing.contract.check_strategy``.
"""

from __future__ import annotations

from rebalancer.cost.domain_term import DomainTerm
from rebalancer.cost.groups import Domains, Group
from rebalancer.cost.price_group import PriceGroup, least_with_room
from rebalancer.cost.rules import SpreadRule, spread_rules
from rebalancer.cost.separable_groups import CapGroup, ConflictGroup
from rebalancer.cost.signals import Signals
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.cost.telling import Gauge, Gauging, Grouped, Level, Standing, Told
from rebalancer.cost.term import (
    Bound,
    Candidates,
    Concerned,
    Contradicting,
    Directed,
    Direction,
    Entry,
    Measuring,
    Noting,
    Signalling,
    Strategy,
    Term,
    Unjudged,
    View,
)
from rebalancer.policy.params import Params, Percent
from rebalancer.policy.select import LabelSelect, LabelsField
from rebalancer.policy.values import LabelKey, Labels
from rebalancer.scheduler.placement import tolerates
from rebalancer.snapshot.affinity import affinity_classes
from rebalancer.snapshot.columns import Bools, Floats, Int32s, Ints
from rebalancer.snapshot.labels import matches, matches_labels
from rebalancer.snapshot.model import Nodes, Owner, PodClass, PodFlag, Pods, Snapshot
from rebalancer.snapshot.selected import nodes_matching
from rebalancer.snapshot.state import ClusterState
from rebalancer.snapshot.usage import MEASURED, Usage

__all__ = [
    "MEASURED",
    "Bools",
    "Bound",
    "Candidates",
    "CapGroup",
    "ClusterState",
    "Concerned",
    "ConflictGroup",
    "Contradicting",
    "Directed",
    "Direction",
    "DomainTerm",
    "Domains",
    "Entry",
    "Floats",
    "Gauge",
    "Gauging",
    "Group",
    "Grouped",
    "Int32s",
    "Ints",
    "LabelKey",
    "LabelSelect",
    "Labels",
    "LabelsField",
    "Level",
    "Measuring",
    "Nodes",
    "Noting",
    "Owner",
    "Params",
    "Percent",
    "PodClass",
    "PodFlag",
    "Pods",
    "PriceGroup",
    "Signalling",
    "Signals",
    "Snapshot",
    "SpreadGroup",
    "SpreadRule",
    "Standing",
    "Strategy",
    "Term",
    "Told",
    "Unjudged",
    "Usage",
    "View",
    "affinity_classes",
    "least_with_room",
    "matches",
    "matches_labels",
    "nodes_matching",
    "spread_rules",
    "tolerates",
]
