"""Text shared by the tables of explanations: the header, pods and amounts, in lines of ``WIDE`` characters."""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.base.plain_text import WIDTH, count, more, percent, printable
from rebalancer.cost.term import Entry
from rebalancer.explain.pods import Breach, PodDecision, PodFacts
from rebalancer.plan.plan import Code, Outcome, Status
from rebalancer.report import words
from rebalancer.report.document import Block, Passage, join_sections
from rebalancer.report.model import RunReport
from rebalancer.report.skips import advice_of, advice_on_protection
from rebalancer.report.summary import LEGEND
from rebalancer.report.words import ending
from rebalancer.scheduler.explain import ExplainedNode, LandingExplanation, Refused
from rebalancer.snapshot.protect import ANNOTATED, TEXTS


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """One code with its meaning."""

    code: str
    about: str
    """What the code describes, as in ``a pod that stays``."""
    meaning: str
    advice: str = ""
    """The advice on the code; empty if nothing has to be changed."""


def member_texts(of: type[enum.StrEnum]) -> dict[str, str]:
    """Return name of an enumeration member -> its docstring, in one line.

    Python keeps no docstrings of attributes, so they are read from the source.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    texts: dict[str, str] = {}
    for member, below in itertools.pairwise(getattr(definition, "body", ())):
        match member, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split()).replace("``", "`")
    return texts


def list_codes(enumerations: Mapping[str, type[enum.StrEnum]]) -> Iterator[CodeMeaning]:
    """Yield every code of ``enumerations``, every protection and the words of a report; the keys say what the codes describe."""
    for about, of in enumerations.items():
        texts = member_texts(of)
        for one in of:
            advice = advice_of(one) if isinstance(one, Code) else ""
            yield CodeMeaning(one.value, about, texts.get(one.name, ""), advice)
    for name, text in {**TEXTS, **ANNOTATED}.items():
        advice = advice_on_protection(name)
        yield CodeMeaning(name, "a protection", f"The pod is not moved: {text}.", advice)
    for word, text in LEGEND.items():
        yield CodeMeaning(word, "a word of reports", f"{text[:1].upper()}{text[1:]}.")


def format_codes(codes: list[CodeMeaning]) -> list[Block]:
    """Return the codes for people."""
    lines: list[Block] = []
    for one in codes:
        lines.append(f"{one.code} ({one.about})")
        lines.append(Passage(one.meaning or "see docs/policy.md", "  "))
        if one.advice:
            lines.append(Passage(f"{one.advice}.", "  -> ", "     "))
    return lines


MAX_ENTRIES = 20
"""Most entries of a list in a table; the JSON has all."""

_INDENT = " " * 6
_MAX_WARNINGS = 4


_SHOWN_NAMES = 4
_SHOWN_LANDINGS = 10


def head(title: str, report: RunReport) -> Iterator[Block]:
    """Yield the title, the kind of run and its policy, the cluster, and warnings."""
    yield Passage(title, hanging="  ")
    yield Passage(words.title(report), hanging="  ")
    yield Passage(words.cluster_line(report), hanging="  ")
    if report.standstill:
        yield Passage(ending(report), hanging="  ")
    for warning in report.warnings[:_MAX_WARNINGS]:
        yield Passage(f"Warning: {warning}", hanging="  ")
    yield from more(len(report.warnings) - _MAX_WARNINGS, "")


def pod_lines(
    report: RunReport, facts: PodFacts, *, of_node: bool, known: Container[str] = ()
) -> Iterator[Block]:
    """Yield a pod with its owner (``of_node``) or its node, the rules it violates, and the plan's decision.

    ``known``: strategies whose rules the explanation describes elsewhere.
    """
    yield Passage(_name_pod(report, facts, of_node=of_node), "  ", _INDENT)
    for text in pod_words(report, facts, known=known):
        yield Passage(text, _INDENT, _INDENT + "  ")


def _name_pod(report: RunReport, facts: PodFacts, *, of_node: bool) -> str:
    where = facts.owner if of_node else facts.node and words.place(report, facts.node)
    named = f"{facts.ref}  {where}" if where else facts.ref
    return f"{named}{'  (terminating)' * facts.terminating}"


def format_unaffected_pod(report: RunReport, facts: PodFacts) -> Passage:
    """Return the text for a pod that no rule wants to move, with the reasons that forbid its eviction."""
    forbidden = "" if facts.may_move else f"; may not move: {forbidden_words(facts)}"
    if facts.decision is PodDecision.NOTHING:
        forbidden = f"; {forbidden_words(facts)}"
    return Passage(_name_pod(report, facts, of_node=True) + forbidden, "  ", _INDENT)


def pod_words(report: RunReport, facts: PodFacts, *, known: Container[str] = ()) -> Iterator[str]:
    """Yield the plan's decision on a pod, the rules that it violates, and what forbids its eviction."""
    yield plan_words(report, facts)
    for move in facts.room:
        yield f"{move.move.ref} moves from {words.place(report, move.move.node)} to {outcome_of(report, move)}"
    for breach in facts.breaches:
        fixed = not breach.lasts and facts.decision is PodDecision.STAYS
        yield breach_words(breach, fixed=fixed, known=breach.strategy in known)
    # The reason of a pod that stays or waits names its protections already.
    if not facts.may_move and facts.decision not in _WITH_PROTECTIONS:
        yield f"may not move: {forbidden_words(facts)}"
    if facts.responders:
        names = ", ".join(f"{one.name} ({one.priority})" for one in facts.responders)
        how = "runs ask them by an EvictionRequest" if facts.asked else _NOT_ASKED
        yield f"responders by priority: {names}; {how}"


_NOT_ASKED = "runs evict it (method.evictionRequests is not set, or the API is not served)"
_WITH_PROTECTIONS = (PodDecision.STAYS, PodDecision.ROOM, PodDecision.NOTHING)


def breach_words(breach: Breach, *, fixed: bool = False, known: bool = False) -> str:
    """Return a violated rule with its strategy and gain.

    ``fixed``: moves of other pods fix it. ``known``: leave out the text of the rule, because the reader knows it.
    """
    verb = "adds to imbalance" if breach.entry is Entry.IMBALANCE else "breaks a rule"
    unit = "" if breach.entry is Entry.IMBALANCE else f" {breach.entry.name.lower()}"
    notes = [f"{breach.strategy}, up to {words.number(breach.gain)}{unit}"]
    notes += ["which only observes"] * breach.observed
    notes += ["not for long enough yet"] * breach.waits
    notes += ["the moves of others fix it"] * fixed
    return f"{verb} ({', '.join(notes)}){'' if known else f': {breach.text}'}"


def forbidden_words(facts: PodFacts) -> str:
    """Return what forbids a pod's eviction: names of protections and PodDisruptionBudgets."""
    reasons = [f"{name}: {text}" for name, text in facts.protections.items()]
    if facts.forbidden is not None:
        reasons.append(f"{facts.forbidden[0].value}: {facts.forbidden[1]}")
    return "; ".join(reasons)


def plan_words(report: RunReport, facts: PodFacts) -> str:
    """Return the plan's decision on a pod."""
    if facts.move is not None:
        return f"the plan moves it to {move_words(report, facts)}"
    if facts.decision is PodDecision.STAYS:
        return f"stays, {facts.code}: {facts.message}" if facts.code else f"stays: {facts.message}"
    if facts.decision is PodDecision.FIXED:
        return f"need not move: {facts.message}"
    if facts.decision is PodDecision.ROOM:
        return f"the plan {facts.message}, by {count(len(facts.room), 'move')}"
    if facts.decision is PodDecision.NOTHING:
        return f"no move is planned {'of' if facts.node else 'for'} it: {facts.message}"
    return f"stays: {facts.message}"


def move_words(report: RunReport, facts: PodFacts) -> str:
    """Return the landing, wave, gain and cost of a pod's move, and why it is not executed."""
    return "" if facts.move is None else outcome_of(report, facts.move)


def outcome_of(report: RunReport, outcome: Outcome) -> str:
    """Return the landing, wave, gain and cost of a move, and why it is not executed."""
    move, status = outcome.move, outcome.status
    kept = "" if status is Status.PLANNED else f"; {status.value}: {outcome.message}"
    for_pod = move.makes_way_for and move.room is None
    what = "changes places with another pod" if move.exchanges else "goes first for another move"
    way = f"; {what}" if for_pod else ""
    way += words.method_words(move.method)
    way += f"; steered, {count(len(move.marks), 'node')} marked" if move.marks else ""
    return (
        f"{words.landing_words(report, move.landings)} in wave {move.wave} ({move.strategy}, "
        f"gain {words.gain_words(move.gain)}, cost {words.number(move.cost)}{way}){kept}"
    )


def format_pod(
    report: RunReport, facts: PodFacts, landing: LandingExplanation, machines: Sequence[Block]
) -> list[Block]:
    """Format the explanation of a pod: the plan's decision, where it would land, and each node's answer.

    ``machines``: lines on what new machines would do for a pod that waits.
    """
    others = any(move.ref != facts.ref for move in report.plan.moves)
    after = ", as its earlier moves leave the cluster" if others else ""
    lines: list[Block] = [
        Passage(f"{_name_pod(report, facts, of_node=False)}{_owner_words(facts)}", hanging="  "),
        "",
        f"In the plan of a dry run{after}",
        *(Passage(text, "  ", "    ", WIDTH) for text in pod_words(report, facts)),
        "",
        *_landings(landing),
        *_pending(landing),
        "",
    ]
    if machines and not landing.landings and not facts.room:
        lines += ["What machines would do", *machines, ""]
    return [*lines, *format_nodes(landing)]


def _owner_words(facts: PodFacts) -> str:
    waits = "" if facts.node or facts.terminating else "  waits for a node"
    return f"{waits}{f', of {facts.owner}' if facts.owner else ''}"


def format_nodes(explanation: LandingExplanation, node: str | None = None) -> list[Block]:
    """Format the answer of each node, or only of ``node``, to a pod; equal answers are grouped."""
    texts = [f"Not predictable: {note}" for note in explanation.unmodelled]
    texts += [explanation.note] if explanation.note else []
    texts += [f"Assumed: {text}" for text in explanation.assumptions]
    chosen = [one for one in explanation.nodes if node is None or one.name == node]
    return [
        *(Passage(text, width=WIDTH) for text in texts),
        *join_sections(
            _list_refused([one for one in chosen if not one.feasible]),
            _list_scored([one for one in chosen if one.feasible]),
        ),
    ]


def _list_refused(nodes: Sequence[ExplainedNode]) -> list[Block]:
    groups: dict[Refused, list[str]] = {}
    for one in nodes:
        groups.setdefault(one.filtered_by or Refused(), []).append(one.name)
    lines: list[Block] = []
    for by, names in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
        text = f"{len(names)} refused by {by.plugin}: {by.message} ({_names(names)})"
        lines.append(Passage(text, "  ", "      ", WIDTH))
    return ["Nodes that will not take it", *lines] if lines else []


def _list_scored(nodes: Sequence[ExplainedNode]) -> list[Block]:
    groups: dict[tuple[tuple[str, int], ...], list[ExplainedNode]] = {}
    for one in nodes:
        groups.setdefault(tuple(sorted(one.scores.items())), []).append(one)
    ordered = sorted(groups.values(), key=lambda group: (-(group[0].total or 0), group[0].name))
    lines: list[Block] = []
    for group in ordered:
        names = _names([one.name for one in group])
        lines.append(Passage(f"{group[0].total or 0:>5}  {names}", "  ", "         ", WIDTH))
        lines.append(Passage(_scores(group[0].scores), "         ", width=WIDTH))
    return ["Scores of the nodes that will", *lines] if lines else []


def _scores(scores: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(scores.items())) or "not scored"


def _landings(explanation: LandingExplanation) -> list[str]:
    if not explanation.landings:
        if explanation.waits:
            return ["It stays Pending: no node takes it now."]
        return ["Its replacement would stay Pending, were it evicted now: no node takes it."]
    if explanation.waits:
        lines = ["Where the scheduler would place it now"]
    else:
        lines = ["Where its replacement would land, were it evicted now"]
    for landing in explanation.landings[:_SHOWN_LANDINGS]:
        where = ", ".join(dict.fromkeys(landing.domains.values()))
        zone = f" ({where})" if where else ""
        lines.append(f"  {percent(landing.probability):>5}  {printable(landing.node + zone)}")
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
    title = (
        "Pending pods that get a node before it"
        if explanation.waits
        else "Pending pods that would take the room that it leaves"
    )
    return ["", title, *lines] if lines else []


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    more = len(names) - _SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
