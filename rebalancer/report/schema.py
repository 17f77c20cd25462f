"""The schema of the report as JSON: its keys and types. ``as_json`` writes the report; a test compares the two."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rebalancer import API_VERSION
from rebalancer.plan.machines import ActStatus, StepStatus
from rebalancer.plan.plan import Code, Method, NodeCode, Status
from rebalancer.snapshot.zones import ZoneState

_ID = "https://kube-rebalancer.invalid/schemas/report-v1.json"
"""A name, and no address: nothing is served there."""

Number = float | None
"""Null for what is no finite number."""
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]


class _Object(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base class of the objects in the report."""


class CostEntries(_Object):
    """Compared left to right: pods that still have to move (hard, soft), squared deviation."""

    hard: Number
    soft: Number
    imbalance: Number


class NodesWithPods(_Object):
    """The number of nodes with pods, not counting pods that are bound to their node; ``needed``: lower bound."""

    holding: Count
    needed: Count


class ScoreOfStrategy(CostEntries):
    """The score that one strategy computes."""

    violated: Count
    unsatisfiable: list[str]
    not_judged: list[str]
    nodes: NodesWithPods | None


class ZoneOfCluster(_Object):
    """A zone, its state, and the workloads of several pods that its loss takes as a whole, or below a PodDisruptionBudget."""

    zone: str
    state: ZoneState
    why: str
    nodes: Count
    pods: Count
    lost: Annotated[list[str], Meta(description="Kind/namespace/name")]
    below_budget: Annotated[list[str], Meta(description="the others, Kind/namespace/name")]


class ZonesOfWorkload(_Object):
    """The serving pods of a workload in each zone: Ready, not ending, and not in a closed zone."""

    workload: Annotated[str, Meta(description="Kind/namespace/name")]
    serving: dict[str, Count]
    without_zone: Annotated[int, Meta(ge=0, description="serving pods on nodes without a zone")]
    lost_with: Annotated[str | None, Meta(description="the zone with all of its serving pods")]
    below_budget_without: Annotated[
        dict[str, list[str]], Meta(description="zone, and PodDisruptionBudgets, namespace/name")
    ]


class RuleUnmet(_Object):
    """A rule that stays unmet: as planned, or in the cluster after a real run; ``rules``: how many rules it sums up."""

    strategy: str
    rule: str
    workload: Annotated[str | None, Meta(description="Kind/namespace/name")]
    codes: Annotated[
        dict[str, Count], Meta(description="reason code, or outcome of a move, and its pods")
    ]
    why: str
    rules: Count


class LandingOfMove(_Object):
    """One place where the replacement may land."""

    node: str
    probability: Share
    domains: dict[str, str]


class MoveOfReport(_Object):
    """One planned eviction with its outcome; the most probable landing is first."""

    namespace: str
    pod: str
    uid: str
    owner: Annotated[str, Meta(description="Kind/namespace/name")]
    source: str = msgspec.field(name="from")
    landings: list[LandingOfMove]
    strategy: str
    reason: str
    gain: CostEntries
    cost: Number
    wave: Annotated[int, Meta(ge=1)]
    budgets: Annotated[list[str], Meta(description="PodDisruptionBudgets, namespace/name")]
    observed: bool
    makes_way_for: Annotated[
        str | None, Meta(description="uid of a pod that moves later, or that waits for the room")
    ]
    marks: Annotated[list[str], Meta(description="nodes marked while its replacement is placed")]
    unit: Annotated[str | None, Meta(description="name of the moves that are made all or none")]
    room: Annotated[
        list[str] | None,
        Meta(
            description="nodes that stay marked until what waits has its room; null for other moves"
        ),
    ]
    gang: Annotated[str | None, Meta(description="name of the gang whose pods leave with it")]
    method: Method
    outcome: Status
    message: str
    landed: str | None
    predicted: bool | None
    seconds: Number


class SkippedPod(_Object):
    """A pod that stays although a rule asks for a move."""

    namespace: str
    pod: str
    node: str
    strategy: str
    code: Code
    message: str


class NodeToEmpty(_Object):
    """The decision on a node."""

    node: str
    code: NodeCode
    message: str


class EmptyingOfNodes(_Object):
    """The result of a strategy that empties nodes; ``marked``: the nodes to empty, or to keep empty; ``pinned``: those that pods hold."""

    marked: list[str] | None
    nodes: list[NodeToEmpty]
    pinned: Annotated[
        list[str] | None,
        Meta(
            description="nodes that pods hold, marked so that these pods land elsewhere when they restart"
        ),
    ] = None


class RestOfWork(_Object):
    """The moves that are left for later runs; ``more``: the number is a lower bound."""

    moves: Count
    runs: Count
    more: bool


class LeaseHolder(_Object):
    """The run that holds the Lease."""

    holder: str
    until: str


class ReviewedFile(_Object):
    """The plan that was applied."""

    file: str
    captured_at: str
    source: str


class StepOfInterruption(_Object):
    """A step and its outcome."""

    step: str
    status: StepStatus
    why: str


class InterruptionOfMachine(_Object):
    """An interrupted machine that ``serve`` handles."""

    node: str
    instance: str
    kind: str
    source: str
    deadline: str | None
    result: Literal[
        "waiting", "under-way", "done", "incomplete", "cancelled", "expired", "gone", "withdrawn"
    ]
    steps: list[StepOfInterruption]


class ActOnMachine(_Object):
    """An act on a machine or a machine group, executed or only planned."""

    strategy: str
    code: str
    status: ActStatus
    group: str
    message: str
    node: str


class ChangeOfCost(_Object):
    """The deletion cost of one pod that is written, or with ``value`` null taken back; ``outcome``: empty while planned."""

    namespace: str
    pod: str
    uid: str
    workload: str
    node: str
    value: int | None
    why: str
    outcome: str


class RepairOfScaleIn(_Object):
    """A workload whose rules hold once the next scale-in has taken so many pods."""

    workload: str
    moves: Count
    pods: Count


class CostsOfDeletion(_Object):
    """What a strategy that orders scale-ins writes on pods; ``held``: why nothing is written now."""

    strategy: str
    changes: list[ChangeOfCost]
    waiting: Count
    repaired: list[RepairOfScaleIn]
    within_seconds: Number | None
    held: str


class Report(_Object):
    """One run of rebalancer; values are null if another run holds the Lease, because nothing was read."""

    api_version: Literal["rebalancer/v1"]
    kind: Literal["Report"]
    dry_run: bool
    mode: Literal["off", "observe", "enforce"]
    source: str
    captured_at: str | None
    server_version: str | None
    policy_source: str
    policy_hash: str
    policy_flags: Annotated[
        str,
        Meta(description="flags that changed the policy, as --set KEY=VALUE; empty if none did"),
    ]
    nodes: Count | None
    pods: Count | None
    zones: list[ZoneOfCluster]
    workload_zones: list[ZonesOfWorkload]
    before: dict[str, ScoreOfStrategy]
    after: Annotated[dict[str, ScoreOfStrategy], Meta(description="as planned")]
    now: Annotated[
        dict[str, ScoreOfStrategy] | None,
        Meta(description="of the cluster that is there: after a run, scored again"),
    ]
    unmet: list[RuleUnmet]
    lower_bound: Count | None
    moves: list[MoveOfReport]
    skipped: list[SkippedPod]
    funnel: dict[str, Count]
    emptying: EmptyingOfNodes | None
    rest: RestOfWork | None
    stopped: str
    elsewhere: Annotated[
        str | None,
        Meta(description="unmet rules that -n, -l or --select leave out, strategies that flags do"),
    ]
    standstill: list[str]
    cut: str | None
    interruptions: list[InterruptionOfMachine]
    machines: list[ActOnMachine]
    deletion_costs: CostsOfDeletion | None
    held_by: LeaseHolder | None
    reviewed_plan: ReviewedFile | None
    warnings: list[str]
    exit_code: Count
    timings: dict[str, Number]


def report_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12). Later versions of v1 may add keys."""
    (reference,), components = msgspec.json.schema_components(
        [Report], ref_template="#/$defs/{name}"
    )
    for of in components.values():
        # The tests are strict; readers of a report pass over keys that are newer.
        of.pop("additionalProperties", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": _ID,
        "title": f"Report of {API_VERSION}",
        **reference,
        "$defs": components,
    }
