"""The command ``rebalancer history``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from rebalancer import API_VERSION
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode
from rebalancer.base.output import say
from rebalancer.base.plain_text import (
    WIDTH,
    and_more,
    count,
)
from rebalancer.commands.flags import CLUSTER, examples, output_flag, takes
from rebalancer.commands.panels import PanelCommand
from rebalancer.kube.config_map import ConfigMapStore, find_memory
from rebalancer.report.document import FORMS, Block, Passage, ReportDocument, Table
from rebalancer.run.memory.document import (
    ActingRun,
    Document,
    MoveRecord,
    TermMemory,
    count_last_hour,
    decode,
)
from rebalancer.run.memory.remember import (
    describe_result,
    group_failures,
    is_resting,
    state_words,
)
from rebalancer.run.options import ClusterFlags, StateFlags
from rebalancer.wire.times import rfc3339


def show_history(
    access: ClusterFlags,
    where: tuple[str, str] | None,
    output: str,
    environment: Environment,
) -> ExitCode:
    """Print the memory in the ConfigMap ``where``, (namespace, name), in the form ``output``; None: find it.

    Raises:
        PolicyError: there are several.
        ClusterReadError: it could not be read, or there is none.
    """
    client = access.client(environment, environment.until_signal())
    where = where or find_memory(client)
    known = ConfigMapStore(client, *where).read()
    if known is None:
        raise ClusterReadError(f"there is no ConfigMap {'/'.join(where)}: nothing is remembered")
    document, flaw = decode(known.data)
    unknown = None
    if flaw is not None:
        said = flaw.describe("/".join(where))
        say(environment.err, f"rebalancer: {said}")
        unknown = said if flaw.hour_unknown else None
    document_of(document, environment.clock.unix(), unknown).print_to(environment, output)
    return ExitCode.DONE


@click.command(
    "history",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer history",
        "rebalancer history -o json",
    ),
)
@CLUSTER
@takes(
    StateFlags,
    "memory",
    memory={
        "help": "ConfigMap of run --memory. Default: that of the chart's release in this cluster."
    },
)
@output_flag(*FORMS, of="history")
def command(memory: tuple[str, str] | None, output: str, **cluster: Any) -> int:
    """Print what earlier runs did, and what is remembered of them.

    First the runs that tried moves, newest first: each pod, from where to where, and why. Then what happened to all
    workloads in the last 24 hours, which of them cool down until when, and which nodes were over-used.
    """
    access = ClusterFlags(**cluster)
    return int(show_history(access, memory, output, system_environment()))


def document_of(document: Document, now: float, unknown: str | None = None) -> ReportDocument:
    """Return the memory in all its forms; ``unknown``: why the evictions of the last hour are not known."""
    data = as_data(document, now) | ({"evictionsLastHour": None} if unknown else {})
    return ReportDocument(_blocks(document, now, unknown), data)


def as_data(document: Document, now: float) -> dict[str, Any]:
    """Return ``apiVersion: rebalancer/v1, kind: History``; owners and nodes sorted by name, times in RFC 3339."""
    return {
        "apiVersion": API_VERSION,
        "kind": "History",
        "at": rfc3339(now),
        "evictionsLastHour": count_last_hour(document, now),
        "runs": [_run(one) for one in reversed(document.history)],
        "owners": [
            {"owner": ref, "term": name, **_term(term, now)}
            for ref, owner in sorted(document.owners.items())
            for name, term in sorted(owner.terms.items())
        ],
        "streaks": [
            {
                "strategy": name,
                "node": node,
                "runs": seen.runs.get(node, 0),
                "recent": f"{seen.recent[node]:b}" if node in seen.recent else None,
                "at": rfc3339(seen.at),
            }
            for name, seen in sorted(document.streaks.items())
            for node in sorted({*seen.runs, *seen.recent})
        ],
    }


def _run(run: ActingRun) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(run, order="deterministic")
    full: dict[str, Any] = {field.encode_name: None for field in msgspec.structs.fields(MoveRecord)}
    moves = [{**full, "message": "", "landed": "", **move} for move in plain.get("moves", ())]
    return {"more": 0, "by": "", **plain, "at": rfc3339(run.at), "moves": moves}


def _term(term: TermMemory, now: float) -> dict[str, Any]:
    trail = [{"from": source, "to": target} for source, target in term.trail]
    plain: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(term, trail=()), order="deterministic"
    )
    full = {field.encode_name: 0 for field in msgspec.structs.fields(TermMemory)}
    times = {key: rfc3339(plain[key]) if plain.get(key) else None for key in ("until", "last")}
    hopes = list(term.hopes)
    texts = {"why": term.why, "givenUp": term.given_up, "trail": trail, "hopes": hopes}
    return {**full, **plain, **times, **texts, "resting": is_resting(term, now)}


def _blocks(document: Document, now: float, unknown: str | None) -> list[Block]:
    lines: list[Block] = [f"{count(count_last_hour(document, now), 'eviction')} in the last hour."]
    if not document.owners and not document.history:
        lines = [f"{lines[0]} Nothing is remembered of any workload."]
    if unknown is not None:
        text = f"How many evictions the last hour had is not known: {unknown}."
        lines = [Passage(text, width=WIDTH)]
    lines += _unwritten(document)
    lines += _runs(document)
    lines += _times(document, now)
    for ref, owner in sorted(document.owners.items()):
        lines += ["", ref]
        for name, term in sorted(owner.terms.items()):
            last = f", last {rfc3339(term.last)}" if term.last else ""
            lines.append(f"  {name}: {_counts(term)}{last}")
            lines += [f"    {source} -> {target}" for source, target in term.trail]
            lines.append(f"    {state_words(term, now)}")
    for name, seen in sorted(document.streaks.items()):
        if seen.runs or seen.recent:
            lines += [
                "",
                f"{name}: nodes, and in how many runs in a row it applied; last {rfc3339(seen.at)}",
            ]
            lines += [f"  {node}: {runs}" for node, runs in sorted(seen.runs.items())]
            lines += [
                f"  {node}: the last runs, newest last, 1 where it applied: {of:b}"
                for node, of in sorted(seen.recent.items())
            ]
    return lines


_MAX_MOVES = 20
"""Of one run in the table."""


def _unwritten(document: Document) -> Iterator[Block]:
    """Yield the runs whose evictions count though they have not written what came of them."""
    for part in document.parts:
        if part.reserved and not part.ended:
            evictions = count(part.reserved, "eviction")
            yield Passage(
                f"Of run {part.run} {evictions} {'counts' if part.reserved == 1 else 'count'} since {rfc3339(part.at)[:19]}Z"
                " without a result: it is under way, or was cut off before it could write it.",
                width=WIDTH,
            )


def _runs(document: Document) -> Iterator[Block]:
    """Yield the runs that tried moves, newest first."""
    if document.history:
        yield from ("", "Runs that tried moves, newest first (UTC)")
    for run in reversed(document.history):
        by = f" by {run.by}" if run.by else ""
        at = rfc3339(run.at)[:19].replace("T", " ")
        yield Passage(f"{at}  {_count_tries(run)}{by}, run {run.run}", "  ", "    ", WIDTH)
        yield from _moves(run)


def _count_tries(run: ActingRun) -> str:
    """Return how many moves a run has tried, and how they ended: ``24 tried: 23 failed, 1 dropped``."""
    ended = Counter(move.outcome for move in run.moves)
    words = [f"{number:,} {outcome}" for outcome, number in ended.most_common()]
    words += [f"{run.more:,} more"] if run.more else []
    return f"{len(run.moves) + run.more:,} tried: {', '.join(words)}"


def _moves(run: ActingRun) -> Iterator[Block]:
    """Yield the moves of a run; those that failed with one outcome and message in one line."""
    together = {how: of for how, of in group_failures(run.moves).items() if len(of) > 1}
    failed = {move for of in together.values() for move in of}
    for (outcome, message), of in together.items():
        pods = and_more([move.pod for move in of], 3)
        yield Passage(f"{pods}: {outcome}: {message}", "    ", "      ", WIDTH)
    alone = [move for move in run.moves if move not in failed]
    for move in alone[:_MAX_MOVES]:
        text = f"{move.pod}: {move.node} -> {describe_result(move)}"
        yield Passage(text, "    ", "      ", WIDTH)
        yield Passage(f"{move.strategy}: {move.reason}", "      ", "      ", WIDTH)
    if left := len(alone[_MAX_MOVES:]) + run.more:
        yield f"    ... and {left:,} more (-o json shows up to 100)"


_DAY = 86_400


def _times(document: Document, now: float) -> list[Block]:
    """Return the last event of each workload within the last day, newest first."""
    recent = sorted(
        (
            (term.last, ref, name, term)
            for ref, owner in document.owners.items()
            for name, term in owner.terms.items()
            if now - term.last <= _DAY
        ),
        key=lambda one: (-one[0], one[1], one[2]),
    )
    if not recent:
        return []
    rows = [("LAST", "WORKLOAD", "FOR", "MOVES", "LAST MOVE", "COOL-DOWN")]
    for last, ref, name, term in recent:
        move = " -> ".join(term.trail[-1]) if term.trail else "-"
        rests = "none"
        if is_resting(term, now):
            rests = "given up" if term.given_up else f"until {rfc3339(term.until)[11:16]}"
        rows.append((rfc3339(last)[:16].replace("T", " "), ref, name, str(term.moves), move, rests))
    return ["", "The last 24 hours, newest first (UTC)", Table(rows, "  ", range(len(rows[0])))]


def _counts(term: TermMemory) -> str:
    counts = (
        (term.as_predicted, "as predicted"),
        (term.came_back, "came back"),
        (term.elsewhere, "elsewhere"),
        (term.blocked, "blocked"),
        (term.vain, "without effect"),
    )
    parts = [f"{number:,} {what}" for number, what in counts if number]
    head = count(term.moves, "move")
    return f"{head} ({', '.join(parts)})" if parts else head
