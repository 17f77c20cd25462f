"""The policy as models: keys, defaults, units and bounds; with the budgets of evictions.

Keys are camelCase in the file. ``load`` reads files into these models; this module does no I/O.
"""

from __future__ import annotations

import enum
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from rebalancer import API_VERSION
from rebalancer.plan.plan import Method
from rebalancer.policy.cluster import (
    CapacitySettings,
    Expander,
    Landings,
    Safety,
    Scheduler,
    UsageSettings,
)
from rebalancer.policy.interruption import InterruptionPolicy
from rebalancer.policy.protect import Protect
from rebalancer.policy.select import NamespacePattern, Select
from rebalancer.policy.values import (
    GracePeriod,
    LabelKey,
    Limit,
    LimitField,
    Params,
    PositiveDuration,
    Section,
)
from rebalancer.policy.windows import Window, is_open, next_allowed

Price = Annotated[float, Field(ge=0, le=1e6)]
"""Of a machine, for an hour, in any currency."""

SPOT = "/spot"
"""At the end of a machine's type: its price as a Spot machine."""


class Prices(Section):
    """Where the price of a node comes from: its own label, then the table. No prices are built in: they would grow stale."""

    label: LabelKey | None = Field(
        default=None, description="A label of nodes whose value is the node's price for an hour."
    )
    table: dict[str, Price] = Field(
        default={},
        description="Price for an hour by the label node.kubernetes.io/instance-type; TYPE/spot is that of a Spot machine.",
    )
    as_of: date | None = Field(
        default=None, description="The day of the table, as 2026-11-01; needed with it."
    )
    max_age: PositiveDuration = Field(
        default=timedelta(days=90), description="A table that is older is warned of."
    )
    least_saving: Price = Field(
        default=0.0,
        description="Least price for an hour that a node must save for each pod that is evicted from it.",
    )

    @property
    def given(self) -> bool:
        """Whether any price may be known."""
        return self.label is not None or bool(self.table)

    @model_validator(mode="after")
    def _goes_together(self) -> Prices:
        if bool(self.table) != (self.as_of is not None):
            raise ValueError(
                "table and asOf go together: prices change, and a table must say of which day it is"
            )
        if self.least_saving and not self.given:
            raise ValueError("leastSaving needs prices: give label or table")
        return self


class Mode(enum.StrEnum):
    """Whether moves are planned, and whether they are executed."""

    OFF = "off"
    """The strategy is not used."""
    OBSERVE = "observe"
    """Moves are planned and reported."""
    ENFORCE = "enforce"
    """Moves are planned and carried out."""

    def stricter(self, other: Mode) -> Mode:
        """Return the stricter of two modes: off, then observe, then enforce."""
        return min(self, other, key=list(Mode).index)


def _mode(value: Any) -> Any:
    # Helm parses YAML 1.1, in which an unquoted off is false.
    return "off" if value is False else value


ModeField = Annotated[Mode, BeforeValidator(_mode)]


class Eagerness(enum.StrEnum):
    """The minimum gain that is worth an eviction, in five levels."""

    TIMID = "timid"
    CAREFUL = "careful"
    STEADY = "steady"
    EAGER = "eager"
    RELENTLESS = "relentless"


class Steer(enum.StrEnum):
    """Whether a run may influence where replacements land."""

    OFF = "off"
    """The scheduler chooses."""
    MARKS = "marks"
    """Soft taints of a run keep replacements off nodes where they would fix nothing."""


class SelectedGrace(Section):
    """A grace period for selected pods."""

    select: Select = Field(description="Pods that it is for.")
    grace_period: GracePeriod = Field(description="As method.gracePeriod; the least of all holds.")

    @model_validator(mode="after")
    def _names_some(self) -> SelectedGrace:
        if not self.select:
            raise ValueError("select names no pods; method.gracePeriod is for all")
        return self


_EvictOrRestart = Literal[Method.EVICT, Method.RESTART]


class Methods(Section):
    """How pods are moved: their grace period, and what to do with pods that should not, or cannot, be evicted."""

    single_replicas: _EvictOrRestart = Field(
        default=Method.EVICT,
        description="restart: single replicas of Deployments that surge are moved by a restart of the rollout, the new"
        " pod Ready before the old one goes, also where protect.singleReplicas holds; by drain and replace, too. Needs get"
        " and patch on deployments.",
    )
    unevictable: _EvictOrRestart = Field(
        default=Method.EVICT,
        description="restart: Deployments whose pods no eviction can ever take, because a PodDisruptionBudget never allows one"
        " or two select them, are moved by a restart of the rollout, all of their pods, never fewer of them Ready; for hard"
        " rules and to empty nodes, by drain and replace, too. evict: they stay. Needs the same.",
    )
    grace_period: GracePeriod | None = Field(
        default=None,
        description="gracePeriodSeconds of the evictions, from 1s; absent: each pod's own.",
    )
    grace_periods: tuple[SelectedGrace, ...] = Field(
        default=(), description="The same for pods that are selected, in the place of gracePeriod."
    )
    eviction_requests: PositiveDuration | None = Field(
        default=None,
        description="How long the responders that a pod names in evictionResponders may take to end it. Runs ask them by an"
        " EvictionRequest (lifecycle.k8s.io) instead of an eviction, count it in flight, and withdraw it then; absent, or where the"
        " API is not served: all pods are evicted. Needs list, create and patch on evictionrequests.",
    )

    @property
    def restarts(self) -> bool:
        """Whether some pods are moved by restarts of their rollouts."""
        return Method.RESTART in (self.single_replicas, self.unevictable)


__all__ = [
    "ENVELOPE",
    "Budgets",
    "Eagerness",
    "Methods",
    "Mode",
    "Policy",
    "Protect",
    "Safety",
    "Scheduler",
    "Select",
    "Steer",
    "StrategyBudgets",
    "StrategyPolicy",
    "Window",
]


# Lower limit of a share, so that moves are possible in small clusters, too.
_FLOORS = {"in_flight": 5, "per_node": 1, "per_owner": 1, "per_run": 10, "per_hour": 20}

_FEWEST_MARKS = 10


class Budgets(Section):
    """Limits on evictions: counts, or shares. A share is rounded down, but not to 0.

    They hold in addition to PodDisruptionBudgets. A pod is in flight until its replacement is Ready.
    """

    in_flight: LimitField = Field(
        default=Limit.parse("2%"),
        description="Replacements not yet Ready at once, of all movable pods; a share is at least 5. Pods that end, or"
        " are not Ready, before a run count too, for ten minutes from the end of their grace period or from their creation;"
        " those of one namespace count for at most half of it in other namespaces; for the moves of make-room, not those that no node takes.",
    )
    per_node: LimitField = Field(
        default=Limit.parse(5),
        description="Pods in flight that left one node, of the node's pods; a share is at least 1.",
    )
    per_owner: LimitField = Field(
        default=Limit.parse("10%"),
        description="Pods in flight of one owner, of its replicas; a share is at least 1.",
    )
    per_run: LimitField = Field(
        default=Limit.parse("10%"),
        description="Evictions in one run, of all movable pods; a share is at least 10.",
    )
    per_hour: LimitField = Field(
        default=Limit.parse("30%"),
        description="Evictions in any hour over all runs, of all movable pods; a share is at least 20.",
    )
    per_namespace: LimitField | None = Field(
        default=None,
        description="Evictions in one run in one namespace, of its movable pods; a share is at least 1; absent: any.",
    )
    per_node_in_run: LimitField | None = Field(
        default=None,
        description="Evictions in one run from one node, of its pods; a share is at least 1; absent: any.",
    )
    per_zone: LimitField | None = Field(
        default=None,
        description="Pods in flight that left one zone, of its pods; a share is at least 1; absent: any.",
    )

    marks: LimitField = Field(
        default=Limit.parse("25%"),
        description="Nodes that carry a mark at once, of all nodes, where the policy steers; a share is at least 10.",
    )

    def in_flight_of(self, movable: int) -> int:
        """Return the maximum number of pods in flight, given the number of movable pods."""
        return self.in_flight.of(movable, _FLOORS["in_flight"])

    def per_node_of(self, pods: int) -> int:
        """Return the maximum number of pods in flight from one node, given the number of its pods."""
        return self.per_node.of(pods, _FLOORS["per_node"])

    def per_owner_of(self, replicas: int) -> int:
        """Return the maximum number of pods in flight of one owner, given the number of its replicas."""
        return self.per_owner.of(replicas, _FLOORS["per_owner"])

    def per_run_of(self, movable: int) -> int:
        """Return the maximum number of evictions per run, given the number of movable pods."""
        return self.per_run.of(movable, _FLOORS["per_run"])

    def per_hour_of(self, movable: int) -> int:
        """Return the maximum number of evictions per hour, given the number of movable pods."""
        return self.per_hour.of(movable, _FLOORS["per_hour"])

    def per_namespace_of(self, movable: int) -> int | None:
        """Return the maximum number of evictions per run in one namespace; None: no limit.

        ``movable``: the number of movable pods in the namespace.
        """
        return None if self.per_namespace is None else self.per_namespace.of(movable)

    def marks_of(self, nodes: int) -> int:
        """Return the maximum number of nodes with a mark at the same time, given the number of nodes."""
        return self.marks.of(nodes, _FEWEST_MARKS)


class StrategyBudgets(Section):
    """Budgets for the moves of one strategy, in addition to the policy's. An absent key sets no limit."""

    in_flight: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_node: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_owner: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_run: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_hour: LimitField | None = Field(default=None, description="As in the policy's budgets.")
    per_namespace: LimitField | None = Field(
        default=None, description="As in the policy's budgets."
    )
    per_node_in_run: LimitField | None = Field(
        default=None, description="As in the policy's budgets."
    )
    per_zone: LimitField | None = Field(default=None, description="As in the policy's budgets.")

    def within(self, outer: Budgets) -> Budgets:
        """Return the budgets for this strategy's moves; an absent one is taken from ``outer``."""
        own = {
            name: value
            for name in StrategyBudgets.model_fields
            if (value := getattr(self, name)) is not None
        }
        return outer.model_copy(update=own)


class StrategyPolicy(Section):
    """One strategy: the keys that all strategies have (the envelope), and its own options beside them."""

    strategy: str | None = Field(
        default=None,
        description="The strategy, where it stands under a name of its own; absent: the name says it.",
    )
    mode: ModeField | None = Field(
        default=None,
        description="off, observe or enforce; absent: the policy's. Never laxer than the policy's.",
    )
    weight: float = Field(
        default=1.0, gt=0, le=1000, description="Factor on the strategy's terms of the cost."
    )
    budgets: StrategyBudgets = Field(
        default=StrategyBudgets(),
        description="Budgets of this strategy's moves, in addition to the policy's.",
    )
    windows: tuple[Window, ...] = Field(
        default=(),
        description="When this strategy's moves are allowed, in addition to the policy's windows; none: always.",
    )
    select: Select = Field(
        default=Select(),
        description="Which pods the strategy moves; all pods count. Absent: all that the policy lets move.",
    )
    params: SerializeAsAny[Params] = Field(
        default=Params(), description="The strategy's own options."
    )


ENVELOPE = tuple(
    field.alias or name for name, field in StrategyPolicy.model_fields.items() if name != "params"
)
"""The keys that all strategies have."""


class Policy(Section):
    """The root of a policy file."""

    api_version: Literal["rebalancer/v1"] = Field(
        default=API_VERSION, description="Version of this format."
    )
    kind: Literal["Policy"] = Field(default="Policy", description="Always Policy.")
    mode: ModeField = Field(
        default=Mode.ENFORCE,
        description="off, observe (plan and report) or enforce (move pods). Strategies may be stricter.",
    )
    eagerness: Eagerness = Field(
        default=Eagerness.CAREFUL,
        description="Least gain that is worth an eviction, in five levels.",
    )
    budgets: Budgets = Field(default=Budgets(), description="Limits of evictions.")
    windows: tuple[Window, ...] = Field(
        default=(), description="When moves are allowed; none: always. A dry run is always allowed."
    )
    select: Select = Field(
        default=Select(), description="Which pods may be moved at all; all pods count. Absent: all."
    )
    steer: Annotated[Steer, BeforeValidator(_mode)] = Field(
        default=Steer.OFF,
        description="off, or marks: where a replacement would fix nothing, soft taints on other nodes choose its landing."
        " Needs get and patch on nodes.",
    )
    method: Methods = Field(default=Methods(), description="How pods are moved.")
    landings: Landings = Field(
        default=Landings(), description="Nodes on which no replacement should land."
    )
    protect: Protect = Field(default=Protect(), description="Which pods are not moved.")
    scheduler: Scheduler = Field(
        default=Scheduler(), description="Differences of the cluster's scheduler from the default."
    )
    usage: UsageSettings = Field(
        default=UsageSettings(), description="Who measures what nodes and pods really use."
    )
    safety: Safety = Field(default=Safety(), description="Limits beyond which a run moves nothing.")
    zones: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="Zones that the cluster has, by the label topology.kubernetes.io/zone: one of them without a node is"
        " named as empty. Absent: those of which storage or an earlier run knows.",
    )
    namespace_policies: tuple[NamespacePattern, ...] = Field(
        default=(),
        max_length=100,
        description="Namespaces, names or patterns, whose ConfigMap rebalancer-policy narrows this policy for their own pods;"
        " absent: none. Needs list on the ConfigMaps of this name.",
    )
    provider: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict,
        max_length=1,
        description="Who adds and removes machines, by name, with its own options below; absent: no provider is asked.",
    )
    capacity: CapacitySettings = Field(
        default=CapacitySettings(), description="What rebalancer capacity goes by."
    )
    prices: Prices = Field(
        default=Prices(), description="What machines cost: consolidation and scale-in go by it."
    )
    signals: dict[str, SerializeAsAny[Params]] = Field(
        default_factory=dict,
        description="Who says that a machine will go, with the options of each: only rebalancer serve listens.",
    )
    interruption: InterruptionPolicy = Field(
        default=InterruptionPolicy(), description="What is done when a machine will go."
    )
    node_conditions: bool = Field(
        default=False,
        description="Whether nodes that are emptied say so by the conditions DrainInProgress, Drained, MaintenancePlanned"
        " and MaintenanceInProgress. Needs get on nodes and patch on nodes/status.",
    )
    strategies: dict[str, StrategyPolicy] = Field(
        default_factory=dict,
        description="Mode, weight, budgets, windows, select and options of each strategy, by its name.",
    )

    @model_validator(mode="after")
    def _knows_prices(self) -> Policy:
        if Expander.PRICE in self.capacity.expander and not self.prices.given:
            raise ValueError(
                "capacity.expander: price needs prices: give prices.label or prices.table"
            )
        return self

    def mode_of(self, strategy: str) -> Mode:
        """Return the mode of ``strategy``: the stricter of its own and the policy's; off if it is absent."""
        own = self.strategies.get(strategy)
        if own is None:
            return Mode.OFF
        return self.mode if own.mode is None else self.mode.stricter(own.mode)

    def budgets_of(self, strategy: str) -> Budgets:
        """Return the budgets for the moves of ``strategy``."""
        own = self.strategies.get(strategy)
        return self.budgets if own is None else own.budgets.within(self.budgets)

    def strategy_of(self, name: str) -> str:
        """Return the strategy that the policy configures under ``name``."""
        return self.strategies[name].strategy or name

    def windows_of(self, name: str) -> tuple[tuple[Window, ...], tuple[Window, ...]]:
        """Return the windows of the policy and of the strategy. Moves must be allowed by both."""
        named = self.strategies.get(name)
        return self.windows, named.windows if named is not None else ()

    def allows(self, strategy: str, now: float) -> bool:
        """Return whether the windows of the policy and of ``strategy`` allow moves at ``now`` (Unix seconds)."""
        return all(is_open(windows, now) for windows in self.windows_of(strategy))

    def next_allowed(self, strategy: str, now: float) -> float | None:
        """Return the first time, from ``now`` on, at which the windows allow moves of ``strategy``.

        In Unix seconds; None if there is no such time.
        """
        return next_allowed(self.windows_of(strategy), now)
