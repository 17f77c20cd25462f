"""The explanation of one pod's landing, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalancer.base.plain_text import printable
from rebalancer.base.text_lines import wrapped
from rebalancer.scheduler.explain import ExplainedNode, LandingExplanation

_SHOWN_NAMES = 4
_SHOWN_LANDINGS = 10


def explained_as_table(explanation: LandingExplanation, node: str | None = None) -> str:
    """Return the explanation in 80 columns: nodes grouped where they are alike; or of one ``node``."""
    lines = [f"The replacement of {printable(explanation.pod)}, were the pod evicted now", ""]
    lines += [
        line for note in explanation.unmodelled for line in wrapped(f"Not predictable: {note}")
    ]
    lines += wrapped(explanation.note) if explanation.note else []
    lines += [line for text in explanation.assumptions for line in wrapped(f"Assumed: {text}")]
    chosen = [one for one in explanation.nodes if node is None or one.name == node]
    lines += _refused([one for one in chosen if not one.feasible])
    lines += _scored([one for one in chosen if one.feasible])
    if node is None:
        lines += _landings(explanation)
        lines += _pending(explanation)
    return "\n".join(lines).rstrip() + "\n"


def _refused(nodes: Sequence[ExplainedNode]) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in nodes:
        groups.setdefault(one.filtered_by or ("", ""), []).append(one.name)
    lines: list[str] = []
    for (plugin, message), names in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        text = f"{len(names)} refused by {plugin}: {message} ({_names(names)})"
        lines += wrapped(text, "  ", "      ")
    return ["Nodes that will not take it", *lines, ""] if lines else []


def _scored(nodes: Sequence[ExplainedNode]) -> list[str]:
    groups: dict[tuple[tuple[str, int], ...], list[ExplainedNode]] = {}
    for one in nodes:
        groups.setdefault(tuple(sorted(one.scores.items())), []).append(one)
    ordered = sorted(groups.values(), key=lambda group: (-(group[0].total or 0), group[0].name))
    lines: list[str] = []
    for group in ordered:
        names = _names([one.name for one in group])
        lines += wrapped(f"{group[0].total or 0:>5}  {names}", "  ", "         ")
        lines += wrapped(_scores(group[0].scores), "         ")
    return ["Scores of the nodes that will", *lines, ""] if lines else []


def _scores(scores: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(scores.items())) or "not scored"


def _landings(explanation: LandingExplanation) -> list[str]:
    if not explanation.landings:
        return ["It would stay Pending: no node takes it."]
    lines = ["Where it would land"]
    for landing in explanation.landings[:_SHOWN_LANDINGS]:
        where = ", ".join(dict.fromkeys(landing.domains.values()))
        zone = f" ({where})" if where else ""
        lines.append(f"  {landing.probability:>6.1%}  {printable(landing.node + zone)}")
    if (more := len(explanation.landings) - _SHOWN_LANDINGS) > 0:
        lines.append(f"          ... and {more} more (-o json shows all)")
    return lines


def _pending(explanation: LandingExplanation) -> list[str]:
    lines = [
        f"  {printable(one.pod)} on {printable(one.node)}"
        for one in explanation.pending[:_SHOWN_LANDINGS]
    ]
    if (more := len(explanation.pending) - _SHOWN_LANDINGS) > 0:
        lines.append(f"  ... and {more} more (-o json shows all)")
    return ["", "Pending pods that would take the room that it leaves", *lines] if lines else []


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    more = len(names) - _SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
