"""The explanation of a node as data and as text: state, resources, pods, and the moves from and to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import numpy as np

from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import count, more, percent
from rebalancer.cost.term import Gauge
from rebalancer.explain.pods import PodDecision, PodFacts, Recorder, facts_of, pod_data
from rebalancer.explain.text import MAX_ENTRIES, format_unaffected_pod, head, pod_lines
from rebalancer.plan.plan import NodeVerdict, Outcome
from rebalancer.planner.draft import Draft
from rebalancer.planner.rendering import Chosen
from rebalancer.report import words
from rebalancer.report.document import Block, Passage, Table, join_sections
from rebalancer.report.model import RunReport
from rebalancer.snapshot.leaving import OF_KARPENTER
from rebalancer.snapshot.model import MEASURED, Snapshot
from rebalancer.wire.objects import Taint
from rebalancer.wire.quantity import format_resource, is_bytes

_KEEPS_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Amount:
    """The amounts of one resource of a node, in ``unit``: allocatable, requested and similar."""

    resource: str
    unit: str
    """``millicores``, ``bytes``, or ``count``."""
    allocatable: int
    requested: int
    """The amount that all pods on the node request, as the scheduler counts it."""
    terminating: int
    """The part of ``requested`` by terminating pods."""
    used: int | None
    """Measured usage, None if it is not measured."""
    after: float = 0
    """``requested`` after the planned moves, by expectation: a pod that may land on one of four nodes counts a quarter."""


@dataclass(frozen=True, slots=True)
class Schedulability:
    """Which pods the scheduler may place on a node."""

    kind: str
    """``ordinary``, ``tolerating`` (only pods that tolerate its taints or cordon), ``leaving`` or ``none``."""
    message: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A planned move that may land on the node."""

    outcome: Outcome
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The explanation of one node."""

    name: str
    zone: str | None
    taints: tuple[Taint, ...]
    ready: bool
    unschedulable: bool
    leaving: bool
    notices: tuple[str, ...]
    """The announcements about the node, other than taints."""
    landing: Schedulability
    emptying: NodeVerdict | None
    """The decision of a strategy that empties nodes; None without one."""
    amounts: tuple[Amount, ...]
    gauges: tuple[tuple[str, Gauge, Gauge], ...]
    """(strategy, gauge now, gauge after the planned moves)."""
    pods: tuple[PodFacts, ...]
    """Moved pods first, then pods that break a rule, then the others; by name."""
    arrivals: tuple[Arrival, ...]
    """The moves that may land on it, by descending probability, then in the order of the plan."""


class NodeRecorder(Recorder):
    """A recorder that also records the amounts and gauges of a node before and after the moves."""

    def __init__(self, snapshot: Snapshot, node: int) -> None:
        super().__init__(np.unique(snapshot.pods.cls[snapshot.pods.node == node]), node)
        self.node = node
        self._before: dict[str, Gauge] = {}
        self._note(snapshot)
        self.amounts: list[Amount] = []
        self.gauges: list[tuple[str, Gauge, Gauge]] = []

    def before(self, draft: Draft) -> None:
        """Record the node before the moves (PlanObserver)."""
        super().before(draft)
        self._note(draft.snapshot)
        self.amounts = list(_amounts(draft, self.node))
        self._before = _gauges(draft, self.node)

    def _note(self, snapshot: Snapshot) -> None:
        """Record the announcements about the node; the planner knows more of them than its object."""
        self.leaving = bool(snapshot.nodes.leaving[self.node])
        self.notices = snapshot.nodes.notices.get(self.node, ())

    def after(self, draft: Draft, chosen: Sequence[Chosen]) -> None:
        """Record the node after the moves (PlanObserver)."""
        super().after(draft, chosen)
        changes = _sum_expected(draft.snapshot, chosen, self.node)
        self.amounts = [
            replace(
                amount,
                after=_whole(amount.requested - amount.terminating + changes[amount.resource]),
            )
            for amount in self.amounts
        ]
        then = _gauges(draft, self.node)
        self.gauges = [(name, now, then[name]) for name, now in self._before.items()]


def _gauges(draft: Draft, node: int) -> dict[str, Gauge]:
    return {
        weighted.strategy: gauge
        for weighted in draft.terms
        if (gauge := weighted.term.gauge(node)) is not None
    }


def _amounts(draft: Draft, node: int) -> Iterator[Amount]:
    """Yield the amounts of cpu, memory and pods, then of every other resource of the snapshot."""
    snapshot, state = draft.snapshot, draft.state
    usage = snapshot.usage if snapshot.usage is not None and snapshot.usage.known[node] else None
    rows = {name: row for row, name in enumerate(snapshot.resources)}
    for name in ("cpu", "memory", "pods", *sorted(rows.keys() - {"cpu", "memory", "pods"})):
        if name == "pods":
            requested, lasting = int(state.pod_count[node]), int(state.lasting_count[node])
            allocatable = int(snapshot.nodes.max_pods[node])
            yield Amount(name, "count", allocatable, requested, requested - lasting, None)
            continue
        if (row := rows.get(name)) is None:
            continue
        allocatable = int(snapshot.nodes.allocatable[row, node])
        requested, lasting = int(state.used[row, node]), int(state.lasting[row, node])
        used = None
        if usage is not None and name in MEASURED and usage.has(name):
            used = int(usage.nodes[MEASURED.index(name), node])
        unit = "millicores" if name == "cpu" else "bytes" if is_bytes(name) else "count"
        yield Amount(name, unit, allocatable, requested, requested - lasting, used)


def _sum_expected(snapshot: Snapshot, chosen: Sequence[Chosen], node: int) -> Mapping[str, float]:
    """Return resource -> the expected change of the requests on a node by the moves."""
    requests, pods = np.zeros(len(snapshot.resources)), 0.0
    arriving = dict(_arriving(chosen, node))
    for place, move in enumerate(chosen):
        share, replacement = arriving.get(place, 0.0), snapshot.classes[move.cls].replacement
        leaves = float(move.node == node)
        requests += (
            share * snapshot.requests[:, replacement] - leaves * snapshot.requests[:, move.cls]
        )
        pods += share - leaves
    return {**dict(zip(snapshot.resources, requests.tolist(), strict=True)), "pods": pods}


def _whole(amount: float) -> float:
    rounded = round(amount, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _arriving(chosen: Sequence[Chosen], node: int) -> Iterator[tuple[int, float]]:
    """Yield (position in the plan, probability) of each move that may land on ``node``.

    The full prediction is used, because ``Move.landings`` has only the most probable nodes.
    """
    for place, move in enumerate(chosen):
        landings = move.landings
        share = float(landings.probability[landings.nodes == node].sum())
        if share > 0:
            yield place, share


def node_facts(report: RunReport, recorder: NodeRecorder) -> NodeFacts:
    """Return the explanation of the recorder's node, after the plan was made."""
    node, nodes = recorder.node, report.snapshot.nodes
    rows = np.flatnonzero(report.snapshot.pods.node == node).tolist()
    pods = facts_of(report, recorder, rows)
    arriving = dict(_arriving(recorder.chosen, node))
    return NodeFacts(
        name=nodes.names[node],
        zone=report.domain_of(nodes.names[node]),
        taints=nodes.taint_sets[int(nodes.taint_set[node])],
        ready=bool(nodes.ready[node]),
        unschedulable=bool(nodes.unschedulable[node]),
        leaving=recorder.leaving,
        notices=tuple(notice.text for notice in recorder.notices),
        landing=_schedulability(report.snapshot, recorder),
        emptying=report.plan.nodes.get(nodes.names[node]),
        amounts=tuple(
            one
            for one in recorder.amounts
            if one.allocatable or one.requested or one.after or one.resource in MEASURED
        ),
        gauges=tuple(recorder.gauges),
        pods=tuple(sorted(pods, key=_interest)),
        arrivals=tuple(
            Arrival(report.outcomes[place], share)
            for place, share in sorted(arriving.items(), key=lambda item: -item[1])
        ),
    )


def _interest(facts: PodFacts) -> tuple[bool, bool, str, str]:
    return facts.move is None, not facts.breaches, facts.namespace, facts.name


def _schedulability(snapshot: Snapshot, recorder: NodeRecorder) -> Schedulability:
    """Return which pods the scheduler may place on the recorder's node, and a sentence about it."""
    node, nodes = recorder.node, snapshot.nodes
    if (why := nodes.unreadable.get(node)) is not None:
        return Schedulability("none", f"takes nothing: its object is unreadable ({why})")
    if recorder.leaving:
        karpenter = [of.text for of in recorder.notices if of.kind in OF_KARPENTER]
        why = "it is announced to go" if nodes.leaving[node] else "; ".join(karpenter)
        return Schedulability(
            "leaving", f"no move that lands here with more than 5% is made: {why}"
        )
    taints = nodes.taint_sets[int(nodes.taint_set[node])]
    if nodes.unschedulable[node]:
        return Schedulability("tolerating", "takes only pods that tolerate its cordon")
    if any(taint.effect in _KEEPS_OFF for taint in taints):
        return Schedulability("tolerating", "takes only pods that tolerate its taints")
    if not nodes.ready[node]:
        return Schedulability("ordinary", "takes pods: it is not Ready, but no taint says so yet")
    return Schedulability("ordinary", "takes pods, as far as there is room")


def node_data(facts: NodeFacts) -> dict[str, Any]:
    """Return the explanation as plain data."""
    return {
        "node": facts.name,
        "zone": facts.zone,
        "taints": [msgspec.structs.asdict(taint) for taint in facts.taints],
        "ready": facts.ready,
        "unschedulable": facts.unschedulable,
        "leaving": facts.leaving,
        "notices": list(facts.notices),
        "landing": asdict(facts.landing),
        "emptying": None
        if facts.emptying is None
        else {"code": facts.emptying.code.value, "message": facts.emptying.message},
        "resources": [asdict(amount) for amount in facts.amounts],
        "utilisation": [_gauge_data(*gauge) for gauge in facts.gauges],
        "pods": [pod_data(pod) for pod in facts.pods],
        "arrivals": [_arrival_data(one) for one in facts.arrivals],
    }


def _arrival_data(arrival: Arrival) -> dict[str, Any]:
    """Return a move to this node as data; its other landings are in the report under the same uid."""
    move = arrival.outcome.move
    return {
        "probability": plain_number(arrival.probability),
        "namespace": move.namespace,
        "pod": move.pod,
        "uid": move.uid,
        "owner": move.owner,
        "from": move.node,
        "strategy": move.strategy,
        "wave": move.wave,
        "outcome": arrival.outcome.status.value,
    }


def _gauge_data(strategy: str, now: Gauge, after: Gauge) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "standing": now.standing.value,
        "gives": now.gives,
        "message": now.note,
        "after": after.standing.value,
        "levels": [
            {
                "resource": level.resource,
                "share": plain_number(level.share),
                "under": plain_number(level.under),
                "over": plain_number(level.over),
                "by": level.what or None,
                "after": plain_number(then.share),
            }
            for level, then in zip(now.levels, after.levels, strict=True)
        ],
    }


def format_node(report: RunReport, facts: NodeFacts) -> list[Block]:
    """Return the explanation for people."""
    zone = f" ({facts.zone})" if facts.zone else ""
    return join_sections(
        head(f"Node {facts.name}{zone}", report),
        _state(facts),
        _amount_lines(facts),
        *(_gauge(*gauge) for gauge in facts.gauges),
        _pods(report, facts),
        _arrivals(report, facts),
    )


def _state(facts: NodeFacts) -> Iterator[Block]:
    states = ["Ready" if facts.ready else "not Ready"]
    states += ["cordoned"] * facts.unschedulable + ["announced to go"] * facts.leaving
    yield f"  state    {', '.join(states)}"
    taints = [
        f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        for taint in facts.taints
    ]
    yield Passage(f"taints   {', '.join(taints) or 'none'}", "  ", " " * 11)
    if facts.notices:
        yield Passage(f"notices  {', '.join(facts.notices)}", "  ", " " * 11)
    yield Passage(f"landing  {facts.landing.message}", "  ", " " * 11)
    if (of := facts.emptying) is not None:
        yield Passage(f"emptying {of.code.value}: {of.message}", "  ", " " * 11)


def _amount_lines(facts: NodeFacts) -> Iterator[Block]:
    """Yield one line per resource; columns without values are omitted."""
    amounts = facts.amounts
    parts = [
        ([""], [[one.resource] for one in amounts]),
        (["allocatable"], [[format_resource(one.resource, one.allocatable)] for one in amounts]),
        (["requested", ""], [_with_share(one, one.requested) for one in amounts]),
    ]
    if any(one.terminating for one in amounts):
        rows = [
            [format_resource(one.resource, one.terminating) if one.terminating else "-"]
            for one in amounts
        ]
        parts.append((["terminating"], rows))
    if any(one.used is not None for one in amounts):
        parts.append((["used", ""], [_with_share(one, one.used) for one in amounts]))
    if any(one.after != one.requested for one in amounts):
        parts.append((["after the plan", ""], [_with_share(one, one.after) for one in amounts]))
    lines = zip(*([head_of, *cells] for head_of, cells in parts), strict=True)
    yield Table([[cell for cells in line for cell in cells] for line in lines])


def _with_share(of: Amount, value: float | None) -> list[str]:
    if value is None:
        return ["-", ""]
    share = percent(value / of.allocatable) if of.allocatable else "-"
    return [format_resource(of.resource, value), share]


def _gauge(strategy: str, now: Gauge, after: Gauge) -> Iterator[Block]:
    yield Passage(f"{strategy}: {_standing(now)}; {now.note}", hanging="  ")
    yield Table(
        [
            [level.resource, f"{percent(level.share)} {level.what}".rstrip(), _by(level)]
            for level in now.levels
        ],
        left=(0, 2),
        headless=True,
    )
    if after.standing is not now.standing:
        yield f"  after the plan: {_standing(after)}"


def _standing(gauge: Gauge) -> str:
    between = gauge.standing is Gauge.Standing.BETWEEN
    return "between the thresholds" if between else gauge.standing.value


def _by(level: Gauge.Level) -> str:
    over, under = level.share - level.over, level.under - level.share
    if over > 0:
        return f"{_points(over)} above {percent(level.over)}"
    if under >= 0:
        return f"{_points(under)} below {percent(level.under)}"
    return (
        f"{_points(-under)} above {percent(level.under)} and "
        f"{_points(-over)} below {percent(level.over)}"
    )


def _points(share: float) -> str:
    number = words.number(round(share * 100, 1))
    return f"{number} point{'' if number == '1' else 's'}"


def _pods(report: RunReport, facts: NodeFacts) -> Iterator[Block]:
    moving = sum(pod.move is not None for pod in facts.pods)
    counted = count(len(facts.pods), "pod")
    yield f"On it: {counted}, of which the plan moves {moving}" if facts.pods else "On it: no pod"
    shown = {strategy for strategy, _, _ in facts.gauges}
    unaffected = (PodDecision.FINE, PodDecision.NOTHING)
    for pod in facts.pods:
        if pod.decision not in unaffected:
            yield ""
            yield from pod_lines(report, pod, of_node=True, known=shown)
    others = [pod for pod in facts.pods if pod.decision in unaffected]
    if others:
        yield ""
        yield f"  No rule asks for a move of {count(len(others), 'pod')}"
        yield ""
    for pod in others:
        yield format_unaffected_pod(report, pod)


def _arrivals(report: RunReport, facts: NodeFacts) -> Iterator[Block]:
    if not facts.arrivals:
        yield "No planned move would land here."
        return
    expected = sum(one.probability for one in facts.arrivals)
    yield (
        f"Planned moves that may land here: {len(facts.arrivals)}, "
        f"{words.number(expected)} by expectation"
    )
    yield ""
    for one in facts.arrivals[:MAX_ENTRIES]:
        move = one.outcome.move
        place = words.place(report, move.node)
        yield Passage(
            f"{percent(one.probability):>4}  {move.ref} from {place}, wave {move.wave}",
            "  ",
            " " * 9,
        )
    yield from more(len(facts.arrivals) - MAX_ENTRIES)
