"""A chart of growth as SVG text: CPU seconds over pods, both logarithmic, one line per phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 420, 70, 110, 30, 50
_LINE_HEIGHT = 13.0
_COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222",
)  # fmt: skip


def chart(pods: Sequence[int], series: Mapping[str, Sequence[float]]) -> str:
    """Return the chart; a dashed line shows what linear growth looks like."""
    values = [v for of_phase in series.values() for v in of_phase if math.isfinite(v) and v > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    x_low, x_high = math.log10(pods[0]), math.log10(pods[-1])

    def x(number: float) -> float:
        share = (math.log10(number) - x_low) / max(1e-9, x_high - x_low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = (math.log10(value) - low) / max(1, high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 18, "CPU seconds of each phase over pods"),
    ]
    for power in range(low, high + 1):
        parts.append(_line([(_LEFT, y(10**power)), (_WIDTH - _RIGHT, y(10**power))], "#dddddd"))
        parts.append(_text(10, y(10**power) + 4, f"{10**power:g} s"))
    parts += [_text(x(number) - 20, _HEIGHT - 25, f"{number:,}") for number in pods]
    start = 10 ** (low + 0.3)
    linear = [(x(number), y(start * number / pods[0])) for number in pods]
    parts.append(_line(linear, "#999999", dashed=True))
    parts.append(_text(linear[-1][0] + 6, linear[-1][1] + 4, "linear"))
    ends: list[tuple[float, float, str, str]] = []
    for colour, (phase, of_phase) in zip(_COLOURS, series.items(), strict=False):
        points = [
            (x(number), y(value))
            for number, value in zip(pods, of_phase, strict=True)
            if math.isfinite(value) and value > 0
        ]
        parts.append(_line(points, colour))
        ends.append((points[-1][1] + 4, points[-1][0] + 6, phase, colour))
    lowest = -math.inf
    for height, right, phase, colour in sorted(ends):
        # Names of lines that end together stand below each other.
        lowest = max(height, lowest + _LINE_HEIGHT)
        parts.append(_text(right, lowest, phase, colour))
    return "\n".join([*parts, "</svg>\n"])


def _line(points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> str:
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    dash = ' stroke-dasharray="4 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _text(a: float, b: float, text: str, colour: str = "#222222") -> str:
    return f'<text x="{a:.1f}" y="{b:.1f}" font-family="sans-serif" font-size="12" fill="{colour}">{escape(text)}</text>'
