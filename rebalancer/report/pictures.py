"""The picture of the HTML report: pods as squares on their nodes.

The pods are drawn before and after, for clusters small enough to show each pod. Pods of workloads with moves have a
colour and a number. A pod that leaves has a dashed border, its replacement a frame. If the scheduler will choose
among several nodes, the replacement is in a dashed box below these nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.base.plain_text import and_more, count, percent
from rebalancer.plan.plan import Outcome
from rebalancer.report import words
from rebalancer.report.changes import Changes, ReportStep, Shares, select_outcomes
from rebalancer.report.model import RunReport
from rebalancer.snapshot.model import PodFlag

_MAX_NODES, _MAX_PODS, _MAX_WORKLOADS = 24, 300, 24
_MAX_LANDINGS = 6
_TONES = 8
_TIED = "\0"
"""Before the name of a zone: several of its nodes, among which the scheduler will choose."""
_COLUMNS = 3
"""Of nodes, where there are no zones to be columns."""
_SIDE, _STEP, _PER_ROW = 18, 22, 5
"""Of squares: size, distance, number beside each other."""
_PAD, _NAME, _GAP, _HEAD = 8, 20, 10, 22
_NODE_WIDTH = 2 * _PAD + _PER_ROW * _STEP - (_STEP - _SIDE)
_NAME_LETTERS, _NOTED_LETTERS = 17, 8
_KEY_WIDTH, _KEY_STEP, _KEY_LETTERS = 270, 24, 38


@dataclass(frozen=True, slots=True)
class Square:
    """One pod, as a square in a picture of nodes."""

    x: int
    y: int
    tone: int
    """Number of the colour from 1; 0 where nothing of the workload moves."""
    number: str
    """The number of the workload in the key; empty if none of its pods moves."""
    state: str
    """``leaves``, ``new`` or empty."""
    title: str


@dataclass(frozen=True, slots=True)
class NodeBox:
    """One node."""

    x: int
    y: int
    height: int
    name: str
    note: str
    title: str
    tied: bool = False
    """Whether the place is one of several nodes among which the scheduler will choose."""


@dataclass(frozen=True, slots=True)
class Panel:
    """All nodes at one step."""

    caption: str
    label: str
    height: int
    zones: Sequence[tuple[int, str]]
    """Position (x) and name of each zone."""
    nodes: Sequence[NodeBox]
    squares: Sequence[Square]


@dataclass(frozen=True, slots=True)
class LegendLine:
    """One line of the legend."""

    y: int
    square: Square
    text: str


@dataclass(frozen=True, slots=True)
class PodMap:
    """Panels of equal width, and the legend."""

    width: int
    panels: Sequence[Panel]
    keys: Sequence[LegendLine]
    keys_height: int
    side: int = _SIDE
    node_width: int = _NODE_WIDTH
    keys_width: int = _KEY_WIDTH


def pod_map(report: RunReport, changes: Changes) -> PodMap | None:
    """Return the pods on their nodes before and after; None if nothing moves or the cluster is too large."""
    nodes, pods = len(report.snapshot.nodes), len(report.snapshot.pods)
    if nodes > _MAX_NODES or pods > _MAX_PODS:
        return None
    moves = Counter(outcome.move.owner for outcome in select_outcomes(report))
    if not 0 < len(moves) <= _MAX_WORKLOADS:
        return None
    return _Drawing(report, changes, moves).draw()


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod at one step, without its position in the picture."""

    order: tuple[bool, int, str]
    """By workload, those with moves first."""
    number: int
    state: str
    title: str


class _Drawing:
    def __init__(self, report: RunReport, changes: Changes, moves: Mapping[str, int]) -> None:
        self._report, self._changes, self._moves = report, changes, moves
        most_first = sorted(moves, key=lambda owner: (-moves[owner], owner))
        self._numbers = {owner: number for number, owner in enumerate(most_first, 1)}
        first = changes.steps[0].snapshot.pods.uid
        self._known = {first[pod] for pod in range(len(first))}
        self._by_uid = {outcome.move.uid: outcome for outcome in select_outcomes(report)}

    def draw(self) -> PodMap:
        steps = self._changes.steps
        shown = [steps[0], *steps[1:][-1:]]
        phases = [self._by_node(step) for step in shown]
        columns = self._columns(phases)
        heights = {
            name: max(_node_height(len(phase.get(name, ()))) for phase in phases)
            for column in columns.values()
            for name in column
        }
        panels = [
            self._panel(step.name, phase, columns, heights)
            for step, phase in zip(shown, phases, strict=True)
        ]
        others = any(not pod.number for of in phases[0].values() for pod in of)
        keys = list(self._keys(others=others))
        return PodMap(
            width=len(columns) * (_NODE_WIDTH + _GAP) - _GAP,
            panels=panels,
            keys=keys,
            keys_height=_KEY_STEP * len(keys),
        )

    def _by_node(self, step: ReportStep) -> Mapping[str, list[_Pod]]:
        snapshot, steps = step.snapshot, self._changes.steps
        is_first = step is steps[0]
        pods, names = snapshot.pods, snapshot.nodes.names
        by_node: dict[str, list[_Pod]] = {}
        for pod in range(len(pods)):
            node, uid = int(pods.node[pod]), pods.uid[pod]
            if node < 0 or pods.flags[pod] & PodFlag.TERMINATING:
                continue
            place: str | None = names[node]
            of = snapshot.classes[int(pods.cls[pod])].owner
            owner = snapshot.owners[of].ref if of >= 0 else ""
            title, state = snapshot.pod_ref(pod), ""
            if (shares := step.moved.get(uid)) is not None:
                place = self._place(shares)
                title, state = f"replaces {title}{self._where(uid, place)}", "new"
            elif is_first and uid in self._by_uid and self._goes(self._by_uid[uid]):
                state = "leaves"
            elif not is_first and uid not in self._known:
                state = "new"
            if place is not None:
                number = self._numbers.get(owner, 0)
                order = (number == 0, number, title)
                by_node.setdefault(place, []).append(_Pod(order, number, state, title))
        for where, ended in self._list_ended(after=not is_first):
            by_node.setdefault(where, []).append(ended)
        return by_node

    def _place(self, shares: Shares) -> str | None:
        """Return the node of a replacement; if several nodes are possible, the key of the box below them."""
        if not shares:
            return None
        node, share = shares[0]
        return node if share >= words.SURE else _TIED + self._changes.zone_of(node)

    def _where(self, uid: str, place: str | None) -> str:
        """Return a text that lists the possible nodes of a replacement in the box below them."""
        if place is None or not place.startswith(_TIED):
            return ""
        landings = self._by_uid[uid].move.landings
        likely = [f"{one.node} {percent(one.probability)}" for one in landings]
        return f", on one of {and_more(likely, _MAX_LANDINGS)}"

    def _goes(self, outcome: Outcome) -> bool:
        if len(self._changes.steps) == 1:
            return False
        return self._report.dry_run or outcome.status.may_have_evicted

    def _list_ended(self, *, after: bool) -> Iterator[tuple[str, _Pod]]:
        """Yield (node, pod) for the finished pods to delete; the snapshot does not include these pods."""
        for outcome in self._by_uid.values():
            move, goes = outcome.move, self._goes(outcome)
            known = move.node in self._report.snapshot.nodes.index
            if not move.has_replacement and known and not (goes and after):
                number = self._numbers[move.owner]
                title = f"{move.ref}, ended"
                state = "leaves" if goes else ""
                yield move.node, _Pod((False, number, title), number, state, title)

    def _columns(self, phases: Sequence[Mapping[str, object]]) -> Mapping[str, Sequence[str]]:
        """Return column name -> its nodes, with the box of uncertain replacements last."""
        nodes = self._changes.nodes
        tied = sorted({name for phase in phases for name in phase if name.startswith(_TIED)})
        if self._changes.has_zones:
            return {
                zone: [
                    *(node.name for node in nodes if node.zone == zone),
                    *(name for name in tied if name == _TIED + zone),
                ]
                for zone in self._changes.zones
            }
        number = min(_COLUMNS, len(nodes))
        columns = {" " * i: [node.name for node in nodes[i::number]] for i in range(number)}
        columns[""] += tied
        return columns

    def _panel(
        self,
        caption: str,
        by_node: Mapping[str, list[_Pod]],
        columns: Mapping[str, Sequence[str]],
        heights: Mapping[str, int],
    ) -> Panel:
        boxes: list[NodeBox] = []
        squares: list[Square] = []
        zones = []
        for index, (zone, names) in enumerate(columns.items()):
            x, y = index * (_NODE_WIDTH + _GAP), 2 * _HEAD
            zones.append((x, zone.strip()))
            for name in names:
                if name.startswith(_TIED) and name not in by_node:
                    continue
                boxes.append(self._box(name, x, y, heights[name]))
                squares += _squares(by_node.get(name, ()), x + _PAD, y + _NAME + _PAD // 2)
                y += heights[name] + _GAP
        pods = [
            f"{name.replace(_TIED, 'one of several in ')} {len(of)}"
            for name, of in sorted(by_node.items())
        ]
        label = f"{caption}, pods on nodes: {and_more(pods, _MAX_NODES)}"
        height = max(box.y + box.height for box in boxes) + _GAP
        return Panel(caption, label, height, zones, boxes, squares)

    def _box(self, name: str, x: int, y: int, height: int) -> NodeBox:
        if name.startswith(_TIED):
            title = "The scheduler will choose among several nodes: which one takes which pod is not known"
            return NodeBox(x, y, height, "one of several", "", title, tied=True)
        note = self._note(name)
        most = _NOTED_LETTERS if note else _NAME_LETTERS
        title = f"{name}, {note}" if note else name
        return NodeBox(x, y, height, _shorten(name, most), note, title)

    def _note(self, name: str) -> str:
        """Return the reason why a node accepts no pods at the last step."""
        nodes = self._changes.steps[-1].snapshot.nodes
        if (row := nodes.index.get(name)) is None:
            return "gone"
        if not nodes.ready[row]:
            return "NotReady"
        if nodes.unschedulable[row]:
            return "cordoned"
        return "tainted" if nodes.taint_sets[int(nodes.taint_set[row])] else ""

    def _count_made(self, owner: str) -> str:
        """Return ``2 moves``; if a real run made fewer than planned, ``1 of 2 moves``."""
        planned = count(self._moves[owner], "move")
        made = sum(one.move.owner == owner and self._goes(one) for one in self._by_uid.values())
        return (
            planned
            if self._report.dry_run or made == self._moves[owner]
            else f"{made} of {planned}"
        )

    def _keys(self, *, others: bool) -> Iterator[LegendLine]:
        lines = [
            (number, "", f"{owner}: {self._count_made(owner)}")
            for owner, number in self._numbers.items()
        ]
        if len(self._changes.steps) > 1:
            lines += [(0, "leaves", "leaves"), (0, "new", "its replacement")]
        if others:
            lines.append((0, "", "other pods"))
        for index, (number, state, text) in enumerate(lines):
            y = index * _KEY_STEP
            yield LegendLine(
                y, _square(number, state, text, 2, y + 2), _shorten(text, _KEY_LETTERS)
            )


def _node_height(pods: int) -> int:
    rows = max(1, -(-pods // _PER_ROW))
    return _NAME + _PAD + rows * _STEP


def _squares(pods: Sequence[_Pod], x: int, y: int) -> Iterator[Square]:
    for index, pod in enumerate(sorted(pods, key=lambda each: each.order)):
        row, column = divmod(index, _PER_ROW)
        yield _square(pod.number, pod.state, pod.title, x + column * _STEP, y + row * _STEP)


def _square(number: int, state: str, title: str, x: int, y: int) -> Square:
    tone = 1 + (number - 1) % _TONES if number else 0
    return Square(x, y, tone, str(number or ""), state, title)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
