"""A chart of moves between zones: bands from left to right, with positions and widths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.report.changes import Flow
from rebalancer.report.words import number

_MAX_ZONES = 12
_MAX_ROWS = 12
_OTHERS = "other zones"
_LEFT, _RIGHT = 150, 485
_POST = 5
_GAP = 12.0
_LINE = 14.0
"""Height of a zone's name, which needs the room where bands are thin."""
_THICK = 190.0
"""Of all bands together, in units of the chart, which is 640 wide."""
_LEAST = 2.0


@dataclass(frozen=True, slots=True)
class Band:
    """The band of one flow."""

    path: str
    title: str
    within: bool
    """From a zone to itself."""


@dataclass(frozen=True, slots=True)
class Post:
    """One zone at the left side (source of moves) or at the right side (destination)."""

    name: str
    moves: str
    x: int
    y: str
    height: str
    text_x: int
    text_y: str
    anchor: str


@dataclass(frozen=True, slots=True)
class FlowChart:
    """The chart; ``rows`` are its thickest bands."""

    height: int
    label: str
    bands: Sequence[Band]
    posts: Sequence[Post]
    rows: Sequence[Flow]


def flow_chart(flows: Sequence[Flow]) -> FlowChart | None:
    """Return the chart; None if there are no flows. After the first twelve zones, all others are merged."""
    flows = _merge(flows)
    if not flows:
        return None
    total = sum(flow.moves for flow in flows)
    thickness = {flow: max(_LEAST, _THICK * flow.moves / total) for flow in flows}
    left = _Side(flows, thickness, lambda flow: flow.source)
    right = _Side(flows, thickness, lambda flow: flow.target)
    bands = [
        Band(
            _path(left.places[flow], right.places[flow], thickness[flow]),
            f"{flow.source} to {flow.target}: {_amount(flow.moves)}",
            flow.source == flow.target,
        )
        for flow in flows
    ]
    label = "; ".join(band.title for band in bands)
    posts = [
        *left.posts(_LEFT - _POST, _LEFT - 12, "end"),
        *right.posts(_RIGHT, _RIGHT + 12, "start"),
    ]
    height = int(max(left.height, right.height)) + 8
    rows = sorted(flows, key=lambda flow: -flow.moves)[:_MAX_ROWS]
    return FlowChart(height, f"Moves between zones. {label}", bands, posts, rows)


def _merge(flows: Sequence[Flow]) -> list[Flow]:
    moves: defaultdict[str, float] = defaultdict(float)
    for flow in flows:
        moves[flow.source] += flow.moves
        moves[flow.target] += flow.moves
    kept = set(sorted(moves, key=lambda name: -moves[name])[:_MAX_ZONES])
    merged: defaultdict[tuple[str, str], float] = defaultdict(float)
    for flow in flows:
        source = flow.source if flow.source in kept else _OTHERS
        target = flow.target if flow.target in kept else _OTHERS
        merged[source, target] += flow.moves
    return [Flow(*zones, share) for zones, share in sorted(merged.items())]


def _amount(moves: float) -> str:
    """Return ``3 moves``; if the destination zone is uncertain, the expected number: ``2.5 moves``."""
    return f"{number(moves)} move{'' if moves == 1 else 's'}"


class _Side:
    """The zones of one side by name, from top to bottom."""

    def __init__(
        self, flows: Sequence[Flow], thickness: Mapping[Flow, float], end: Callable[[Flow], str]
    ) -> None:
        """Lay out the zones of one side. ``end`` returns the zone of a flow on this side."""
        self._flows = {
            name: [flow for flow in flows if end(flow) == name]
            for name in sorted(set(map(end, flows)))
        }
        self._tops: dict[str, tuple[float, float]] = {}
        """Zone -> (top, height)."""
        self.places: dict[Flow, float] = {}
        """The upper end of each flow."""
        top = 4.0
        for name, of_zone in self._flows.items():
            place = top
            for flow in of_zone:
                self.places[flow] = place
                place += thickness[flow]
            size = sum(thickness[flow] for flow in of_zone)
            self._tops[name] = (top, size)
            self.height = top + max(size, _LINE)
            top = self.height + _GAP

    def posts(self, x: int, text_x: int, anchor: str) -> list[Post]:
        """Return the zones as posts with their names."""
        return [
            Post(
                name,
                number(sum(flow.moves for flow in self._flows[name])),
                x,
                f"{top:.1f}",
                f"{size:.1f}",
                text_x,
                f"{top + size / 2 + 4.5:.1f}",
                anchor,
            )
            for name, (top, size) in self._tops.items()
        ]


def _path(start: float, end: float, thick: float) -> str:
    middle = (_LEFT + _RIGHT) // 2
    return (
        f"M{_LEFT} {start:.1f}C{middle} {start:.1f} {middle} {end:.1f} {_RIGHT} {end:.1f}"
        f"V{end + thick:.1f}C{middle} {end + thick:.1f} {middle} {start + thick:.1f} "
        f"{_LEFT} {start + thick:.1f}Z"
    )
