"""Pods as squares on their nodes, now and after: for clusters small enough to show each pod.

Squares of workloads with moves have a colour and a number; a pod that leaves is dashed, its replacement has a frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.base.plain_text import and_more, count
from rebalancer.plan.outcome import Outcome
from rebalancer.report.changes import Changes, left_of_plan, likely
from rebalancer.report.model import RunReport
from rebalancer.snapshot.model import PodFlag

_MOST_NODES, _MOST_PODS, _MOST_WORKLOADS = 24, 300, 24
_TONES = 8
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
    """One pod."""

    x: int
    y: int
    tone: int
    """Number of the colour from 1; 0 where nothing of the workload moves."""
    number: str
    """Of the workload in the keys; empty where nothing of it moves."""
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


@dataclass(frozen=True, slots=True)
class Panel:
    """All nodes at one time."""

    caption: str
    label: str
    zones: Sequence[tuple[int, str]]
    """(x, name)."""
    nodes: Sequence[NodeBox]
    squares: Sequence[Square]


@dataclass(frozen=True, slots=True)
class LegendLine:
    """One line that says what a square means."""

    y: int
    square: Square
    text: str


@dataclass(frozen=True, slots=True)
class PodMap:
    """Panels of one size, and the keys to them."""

    width: int
    height: int
    panels: Sequence[Panel]
    keys: Sequence[LegendLine]
    keys_height: int
    side: int = _SIDE
    node_width: int = _NODE_WIDTH
    keys_width: int = _KEY_WIDTH


def pod_map(report: RunReport, changes: Changes) -> PodMap | None:
    """Return the pods on their nodes before and after; None if nothing moves or there is too much to show."""
    nodes, pods = len(report.snapshot.nodes), len(report.snapshot.pods)
    if nodes > _MOST_NODES or pods > _MOST_PODS:
        return None
    moves = Counter(outcome.move.owner for outcome in left_of_plan(report))
    if not 0 < len(moves) <= _MOST_WORKLOADS:
        return None
    return _Drawing(report, changes, moves).drawn()


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod at one time, before it has a place in the picture."""

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
        self._by_uid = {outcome.move.uid: outcome for outcome in left_of_plan(report)}

    def drawn(self) -> PodMap:
        names = ("Now", "As planned") if self._report.dry_run else ("Before", "After the run")
        phases = [self._by_node(after=after) for after in (False, True)]
        columns = self._columns()
        heights = {
            name: max(_node_height(len(phase.get(name, ()))) for phase in phases)
            for column in columns.values()
            for name in column
        }
        panels = [self._panel(*pair, columns, heights) for pair in zip(names, phases, strict=True)]
        tallest = max(sum(heights[name] + _GAP for name in of) for of in columns.values())
        others = any(not pod.number for of in phases[0].values() for pod in of)
        keys = list(self._keys(others=others))
        return PodMap(
            width=len(columns) * (_NODE_WIDTH + _GAP) - _GAP,
            height=2 * _HEAD + tallest,
            panels=panels,
            keys=keys,
            keys_height=_KEY_STEP * len(keys),
        )

    def _by_node(self, *, after: bool) -> Mapping[str, list[_Pod]]:
        snapshot = self._report.snapshot
        pods, names = snapshot.pods, snapshot.nodes.names
        by_node: dict[str, list[_Pod]] = {}
        for pod in range(len(pods)):
            node = int(pods.node[pod])
            if node < 0 or pods.flags[pod] & PodFlag.TERMINATING:
                continue
            place: str | None = names[node]
            of = snapshot.classes[int(pods.cls[pod])].owner
            owner = snapshot.owners[of].ref if of >= 0 else ""
            title, state = snapshot.pod_ref(pod), ""
            if (outcome := self._by_uid.get(pods.uid[pod])) is not None:
                goes = self._goes(outcome)
                if goes and after:
                    place = outcome.landed or (
                        likely(outcome.move) if self._report.dry_run else None
                    )
                    title, state = f"replaces {title}", "new"
                elif goes:
                    state = "leaves"
            if place is not None:
                number = self._numbers.get(owner, 0)
                order = (number == 0, number, title)
                by_node.setdefault(place, []).append(_Pod(order, number, state, title))
        for where, ended in self._ended(after=after):
            by_node.setdefault(where, []).append(ended)
        return by_node

    def _goes(self, outcome: Outcome) -> bool:
        return self._report.dry_run or outcome.status.may_have_evicted

    def _ended(self, *, after: bool) -> Iterator[tuple[str, _Pod]]:
        """Yield the pods that have ended and that are removed, which are not among those of the snapshot, by node."""
        for outcome in self._by_uid.values():
            move, goes = outcome.move, self._goes(outcome)
            known = move.node in self._report.snapshot.nodes.index
            if not move.has_replacement and known and not (goes and after):
                number = self._numbers[move.owner]
                title = f"{move.ref}, ended"
                state = "leaves" if goes else ""
                yield move.node, _Pod((False, number, title), number, state, title)

    def _columns(self) -> Mapping[str, Sequence[str]]:
        """Return the nodes of each column, by its name."""
        nodes = self._changes.nodes
        if self._changes.has_zones:
            return {
                zone: [node.name for node in nodes if node.zone == zone]
                for zone in self._changes.zones
            }
        number = min(_COLUMNS, len(nodes))
        return {" " * i: [node.name for node in nodes[i::number]] for i in range(number)}

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
                boxes.append(self._box(name, x, y, heights[name]))
                squares += _squares(by_node.get(name, ()), x + _PAD, y + _NAME + _PAD // 2)
                y += heights[name] + _GAP
        pods = [f"{name} {len(of)}" for name, of in sorted(by_node.items())]
        label = f"{caption}, pods on nodes: {and_more(pods, _MOST_NODES)}"
        return Panel(caption, label, zones, boxes, squares)

    def _box(self, name: str, x: int, y: int, height: int) -> NodeBox:
        nodes = self._report.snapshot.nodes
        row = nodes.index[name]
        note = ""
        if nodes.unschedulable[row]:
            note = "cordoned"
        elif nodes.taint_sets[int(nodes.taint_set[row])]:
            note = "tainted"
        most = _NOTED_LETTERS if note else _NAME_LETTERS
        title = f"{name}, {note}" if note else name
        return NodeBox(x, y, height, _shortened(name, most), note, title)

    def _keys(self, *, others: bool) -> Iterator[LegendLine]:
        lines = [
            (number, "", f"{owner}: {count(self._moves[owner], 'move')}")
            for owner, number in self._numbers.items()
        ]
        lines += [(0, "leaves", "leaves"), (0, "new", "its replacement")]
        if others:
            lines.append((0, "", "other pods"))
        for index, (number, state, text) in enumerate(lines):
            y = index * _KEY_STEP
            yield LegendLine(
                y, _square(number, state, text, 2, y + 2), _shortened(text, _KEY_LETTERS)
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


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
