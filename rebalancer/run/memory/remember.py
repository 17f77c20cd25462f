"""Update the memory with the outcomes of moves: the rules for strikes, cool-downs, and forgetting."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Cause, Method, Move, Outcome, Remembered, Status
from rebalancer.policy.cluster import Safety
from rebalancer.run.memory.document import (
    FORGOTTEN_AFTER,
    ActingRun,
    Document,
    MoveRecord,
    NodeCountMemory,
    OwnerMemory,
    StreakMemory,
    TermMemory,
    count_evictions,
    shorten,
    with_acting_run,
)
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.marks import to_be_empty
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.zones import zones_with_nodes
from rebalancer.wire.times import rfc3339

SETTLES_AFTER = 600
"""Seconds after a fall: by then pods on nodes that went have others, or wait, which is counted by itself."""

_MAX_ZONES = 100
_ZONES_WRITTEN_AFTER = 86_400
"""Seconds until the time of a zone is written again: an idle cluster is left alone."""


def count_in_use(snapshot: Snapshot) -> int:
    """Return the number of nodes whose loss would recreate pods elsewhere, without nodes that are being removed.

    Cordoned, leaving and marked nodes do not count.
    """
    nodes, pods = snapshot.nodes, snapshot.pods
    in_use = np.zeros(len(nodes), bool)
    in_use[pods.node[pods.living & ~snapshot.per_node]] = True
    in_use &= ~(nodes.unschedulable | nodes.leaving | to_be_empty(snapshot))
    return int(np.count_nonzero(in_use))


def see_nodes(
    known: NodeCountMemory | None, nodes: int, in_use: int, safety: Safety, now: float
) -> NodeCountMemory:
    """Return the record to keep when ``nodes`` exist, ``in_use`` of them in use; ``known``: the record of earlier runs.

    A difference that would not be a fall is not written down: an idle cluster is left alone.
    """
    if known is None:
        return NodeCountMemory(in_use)
    if _is_fall(known.in_use, nodes, safety):
        return NodeCountMemory(in_use, fell_from=known.in_use, fell_at=int(now))
    if describe_fall(known, nodes, safety, now):
        return known
    alike = abs(known.in_use - in_use) <= safety.not_ready_nodes_of(known.in_use)
    return NodeCountMemory(known.in_use if alike else in_use)


def describe_fall(known: NodeCountMemory, nodes: int, safety: Safety, now: float) -> str | None:
    """Return why a run is held after a fall in the number of nodes; None if there was none, or it is over."""
    until = known.fell_at + SETTLES_AFTER
    if not known.fell_at or not now < until <= now + SETTLES_AFTER:
        return None
    if not _is_fall(known.fell_from, nodes, safety):
        return None
    most = safety.not_ready_nodes_of(known.fell_from)
    return (
        f"{nodes} nodes are left of {known.fell_from} that had pods when a run last looked, "
        f"safety.maxNotReadyNodes allows {most} to be missing; until {rfc3339(until)}, or until they are back"
    )


def _is_fall(before: int, nodes: int, safety: Safety) -> bool:
    return before - nodes > safety.not_ready_nodes_of(before)


def with_zones(
    seen: NodeCountMemory, known: NodeCountMemory | None, snapshot: Snapshot, now: float
) -> NodeCountMemory:
    """Return ``seen`` with the zones that have nodes now, and with those of earlier runs in ``known``.

    A zone is forgotten some days after it was last seen with nodes; of too many the newest are kept.
    """
    earlier = {} if known is None else known.zones
    kept = {zone: at for zone, at in earlier.items() if 0 <= now - at <= FORGOTTEN_AFTER}
    for zone in zones_with_nodes(snapshot):
        if now - kept.get(zone, -math.inf) > _ZONES_WRITTEN_AFTER:
            kept[zone] = int(now)
    newest = sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:_MAX_ZONES]
    return msgspec.structs.replace(seen, zones=dict(sorted(newest)))


STREAK_FORGOTTEN_AFTER = 86_400
"""Seconds after which runs are not in a row any more."""

_AHEAD = 300
# What is as it was is written again before it is forgotten, but not by every run.
_WRITTEN_AGAIN_AFTER = STREAK_FORGOTTEN_AFTER / 4
_MAX_BYTES = 150_000
"""Bytes of one strategy's JSON: a few thousand over-used nodes."""


def recall_streaks(document: Document) -> dict[str, Streaks]:
    """Return strategy -> streaks of earlier runs."""
    return {
        name: Streaks(seen.at, seen.runs, seen.recent) for name, seen in document.streaks.items()
    }


def without_old(document: Document, now: float) -> Document:
    """Return the document without streaks that are over a day old, or from the future."""
    kept = {
        name: seen
        for name, seen in document.streaks.items()
        if seen.at - _AHEAD <= now <= seen.at + STREAK_FORGOTTEN_AFTER
    }
    return msgspec.structs.replace(document, streaks=kept)


def with_streaks(
    document: Document, streaks: Mapping[str, Streaks], outcomes: Iterable[Outcome], now: float
) -> Document:
    """Return the document with the streaks of a run (per strategy), given the outcomes of its moves.

    A pod that has moved no longer uses resources where they were measured. So after a move only measurements taken
    after ``now`` count, and never the measurement on which the move was based, whatever clock it has. Of the nodes that
    gave pods only runs in a row count on: what was before was under another load.
    """
    gave = {outcome.move.node for outcome in outcomes if outcome.status.may_have_evicted}
    kept = dict(document.streaks)
    for name, seen in streaks.items():
        known = kept.get(name, StreakMemory())
        at = max(known.at, seen.at + 1.0, now) if gave else max(known.at, seen.at)
        # Another run may have seen something newer meanwhile.
        newer = seen if seen.at >= known.at else known
        runs = _keep_longest(newer.runs)
        left = {node: of for node, of in newer.recent.items() if node not in gave}
        recent = _keep_longest(left, int.bit_count)
        new = StreakMemory(at, runs, recent)
        changed = (runs, recent) != (known.runs, known.recent)
        if changed or gave or ((runs or recent) and at > known.at + _WRITTEN_AGAIN_AFTER):
            kept[name] = new
    return msgspec.structs.replace(document, streaks=dict(sorted(kept.items())))


def _keep_longest(runs: Mapping[str, int], length: Callable[[int], int] = int) -> dict[str, int]:
    """Return the nodes that fit into the limit, ordered by name; those with the most runs, by ``length``, come first."""
    kept: dict[str, int] = {}
    room = _MAX_BYTES
    for name, count in sorted(runs.items(), key=lambda item: (-length(item[1]), item[0])):
        room -= len(name) + len(str(count)) + 4
        if room < 0:
            break
        kept[name] = count
    return dict(sorted(kept.items()))


FIRST_COOL_DOWN = 600
"""Seconds; every further run in a row that did not do what was predicted doubles it."""
STRIKES = 6
"""Runs in a row after which an owner is given up: after 10, 20, 40, 80 and 160 minutes of patience."""

_ENTRIES = ("hard", "soft", "imbalance")
_TRAIL = 4
_MAX_TEXT = 200
# A prediction that names less than this share of its landings does not exclude the others.
_COMPLETE = 0.95
# A replacement fares no better than the pod before it if it, too, has to go for its state within this time.
_FARES_WELL = 86_400


class PredictionResult(enum.Enum):
    """The result of a prediction, by the outcome of its move."""

    AS_PREDICTED = "as predicted"
    CAME_BACK = "came back"
    ELSEWHERE = "landed elsewhere"
    BLOCKED = "blocked"
    AGAIN = "no better than the pod before it"
    OPEN = "evicted, landing not seen"


_STRIKES = (
    PredictionResult.AGAIN,
    PredictionResult.CAME_BACK,
    PredictionResult.ELSEWHERE,
    PredictionResult.BLOCKED,
)


@dataclass(frozen=True, slots=True)
class _Verdict:
    result: PredictionResult
    why: str
    stayed: bool = False
    """Whether the replacement is on the node of its victim: nothing has moved, and only the chance was missed."""


def term_of(move: Move) -> str:
    """Return the term for which a move was made: its strategy and the decisive entry of the cost."""
    gains = move.gain.as_tuple()
    deciding = next((name for name, gain in zip(_ENTRIES, gains, strict=True) if gain), _ENTRIES[0])
    return f"{move.strategy}/{deciding}"


def zones_of(snapshot: Snapshot) -> str:
    """Return a digest of the set of zones of all nodes."""
    labels = snapshot.nodes.labels
    present = {
        labels.values(key)[value]
        for key in ZONE_KEYS
        for value in set(labels.column(key).tolist())
        if value >= 0
    }
    return hashlib.sha256(json.dumps(sorted(present)).encode()).hexdigest()[:12]


def fingerprints_of(snapshot: Snapshot) -> dict[str, str]:
    """Return owner -> a text that changes with its spec; its uid if the spec was not read."""
    return {owner.ref: owner.fingerprint or owner.uid for owner in snapshot.owners}


def forget_stale(document: Document, snapshot: Snapshot) -> Document:
    """Return the document without owners that changed, or whose zones did: their records start again.

    Owners without pods are not in a snapshot; their records are kept until they expire by age.
    """
    zones, fingerprints = zones_of(snapshot), fingerprints_of(snapshot)
    kept = {
        ref: _without_lifted(owner, ref, snapshot)
        for ref, owner in document.owners.items()
        if owner.zones == zones and fingerprints.get(ref, owner.fingerprint) == owner.fingerprint
    }
    now = snapshot.captured_at
    recent = without_old(msgspec.structs.replace(document, owners=kept), now)
    return count_evictions(shorten(recent, now), 0, now)


def _without_lifted(owner: OwnerMemory, ref: str, snapshot: Snapshot) -> OwnerMemory:
    """Return the record without the cool-downs from a time when fewer nodes accepted the owner's pods than now."""
    resting = [name for name, term in owner.terms.items() if term.feasible and term.until]
    if not resting:
        return owner
    now = count_feasible(snapshot, ref)
    lifted = {
        name: msgspec.structs.replace(owner.terms[name], until=0)
        for name in resting
        if now > owner.terms[name].feasible
    }
    return msgspec.structs.replace(owner, terms={**owner.terms, **lifted})


def count_feasible(snapshot: Snapshot, ref: str) -> int:
    """Return the number of nodes that pods of an owner may use, with or without room; 0 if none of its pods is known."""
    classes = {
        cls.replacement
        for cls in snapshot.classes
        if cls.owner >= 0 and snapshot.owners[cls.owner].ref == ref
    }
    model = SchedulerModel(snapshot, SchedulerProfile.for_version(snapshot.version))
    masks = [model.static_mask(cls) for cls in sorted(classes)]
    return int(np.count_nonzero(np.any(masks, axis=0))) if masks else 0


def remember(
    document: Document, snapshot: Snapshot, outcomes: Iterable[Outcome], now: float
) -> Document:
    """Return the document with the outcomes of a run's moves. Outcomes without information change nothing.

    ``snapshot``: the run's input. All moves of one owner for one term count as one attempt. The attempt is a strike if
    any of these moves did not have the predicted result.
    """
    zones, fingerprints = zones_of(snapshot), fingerprints_of(snapshot)
    tries: dict[tuple[str, str], list[Outcome]] = {}
    outcomes, evicted = list(outcomes), 0
    created = _find_created(snapshot, outcomes)
    for outcome in outcomes:
        evicted += outcome.status.may_have_evicted
        if outcome.status.is_carried_out or outcome.status in (
            Status.BLOCKED,
            Status.MISCONFIGURED,
        ):
            tries.setdefault((outcome.move.owner, term_of(outcome.move)), []).append(outcome)
    owners = dict(document.owners)
    for (ref, term), of_term in tries.items():
        known = _find_owner(owners, ref, fingerprints.get(ref, ""), zones, int(now))
        before = known.terms.get(term, TermMemory())
        after = _after(before, of_term, created, now)
        if after.feasible:
            after = msgspec.structs.replace(after, feasible=count_feasible(snapshot, ref))
        terms = {**known.terms, term: after}
        owners[ref] = msgspec.structs.replace(
            known, seen=int(now), terms=dict(sorted(terms.items()))
        )
    for outcome in outcomes:
        if _is_denied(outcome):
            ref = outcome.move.owner
            known = _find_owner(owners, ref, fingerprints.get(ref, ""), zones, int(now))
            owners[ref] = _cool_down(known, outcome, int(now))
    changed = msgspec.structs.replace(document, owners=owners)
    return shorten(count_evictions(changed, evicted, now), now)


def _find_owner(
    owners: Mapping[str, OwnerMemory], ref: str, fingerprint: str, zones: str, now: int
) -> OwnerMemory:
    """Return the record of an owner; a new one if there is none, or if its spec or the zones have changed."""
    known = owners.get(ref)
    if known is None or (known.fingerprint, known.zones) != (fingerprint, zones):
        return OwnerMemory(fingerprint, zones, now)
    return known


def _cool_down(owner: OwnerMemory, outcome: Outcome, now: int) -> OwnerMemory:
    """Return the record of an owner whose pod may not be evicted now, since admission denied it.

    It may be denied for a time only, such as that of a freeze: it is no strike, and says nothing of the prediction.
    """
    name = term_of(outcome.move)
    term = owner.terms.get(name, TermMemory())
    if not term.given_up and term.until < now + FIRST_COOL_DOWN:
        why = f"{outcome.move.pod}: {outcome.message}"[:_MAX_TEXT]
        until = now + FIRST_COOL_DOWN
        term = msgspec.structs.replace(term, until=until, why=why, feasible=0)
    terms = dict(sorted({**owner.terms, name: term}.items()))
    return msgspec.structs.replace(owner, seen=now, terms=terms)


def _find_created(snapshot: Snapshot, outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return uid -> creation time (Unix seconds) of the pods that were moved for their bad state."""
    uids = {outcome.move.uid for outcome in outcomes if outcome.move.cause is Cause.STATE}
    pods = snapshot.pods
    return {pods.uid[pod]: float(pods.created[pod]) for pod in pods.uid.rows_of(uids).tolist()}


def _after(
    known: TermMemory, outcomes: Sequence[Outcome], created: Mapping[str, float], now: float
) -> TermMemory:
    trail = known.trail
    verdicts: list[_Verdict] = []
    for outcome in outcomes:
        replaced = created.get(outcome.move.uid, 0.0) > known.last - FIRST_COOL_DOWN
        if known.moves and replaced and now - created[outcome.move.uid] < _FARES_WELL:
            why = f"{outcome.move.pod}, which replaced another, fared no better: {outcome.move.reason}"
            verdicts.append(_Verdict(PredictionResult.AGAIN, why))
        else:
            lately = known.trail if now - known.last < _FARES_WELL else ()
            verdicts.append(_undone(outcome, lately) or _verdict(outcome, known.trail))
        if outcome.status.is_carried_out and outcome.landed is not None:
            trail = (*trail, (outcome.move.node, outcome.landed))[-_TRAIL:]
    count = {result: sum(one.result is result for one in verdicts) for result in PredictionResult}
    after = msgspec.structs.replace(
        known,
        moves=known.moves + sum(outcome.status.is_carried_out for outcome in outcomes),
        as_predicted=known.as_predicted + count[PredictionResult.AS_PREDICTED],
        came_back=known.came_back + count[PredictionResult.CAME_BACK],
        elsewhere=known.elsewhere + count[PredictionResult.ELSEWHERE],
        blocked=known.blocked + count[PredictionResult.BLOCKED],
        last=int(now),
        trail=trail,
    )
    strikes = [one for one in verdicts if one.result in _STRIKES]
    if strikes:
        struck = add_strike(after, strikes[0].why[:_MAX_TEXT], now)
        return msgspec.structs.replace(struck, feasible=int(all(one.stayed for one in strikes)))
    if count[PredictionResult.AS_PREDICTED] and after.vain:
        # It landed where it should, as it did before, when that did not help.
        return after
    if count[PredictionResult.AS_PREDICTED]:
        return msgspec.structs.replace(after, strikes=0, until=0, why="", given_up="", feasible=0)
    return after


def _undone(outcome: Outcome, trail: Sequence[tuple[str, str]]) -> _Verdict | None:
    """Return a verdict on a restart equal to an earlier one in ``trail``; None if there was none.

    There is only one pod: whatever undid the first restart (a tool that resets the Deployment's template, say) may
    do so again.
    """
    move, landed = outcome.move, outcome.landed
    for_place = move.method is Method.RESTART and move.cause is Cause.PLACE
    if not for_place or landed is None or (move.node, landed) not in trail:
        return None
    why = f"{move.pod} went from {move.node} to {landed} once more: what undid the first restart may do so again"
    return _Verdict(PredictionResult.CAME_BACK, why)


def _verdict(outcome: Outcome, trail: Sequence[tuple[str, str]]) -> _Verdict:
    move, landed = outcome.move, outcome.landed
    if not outcome.status.is_carried_out:
        return _Verdict(
            PredictionResult.BLOCKED, f"{move.pod}: {outcome.message or outcome.status.value}"
        )
    if landed is None:
        return _Verdict(PredictionResult.OPEN, "")
    if move.cause is Cause.PLACE and landed == move.node:
        why = f"{move.pod} came back to {landed}"
        return _Verdict(PredictionResult.CAME_BACK, why, stayed=True)
    if move.cause is Cause.PLACE and (landed, move.node) in trail:
        return _Verdict(
            PredictionResult.CAME_BACK,
            f"{move.pod} went to {landed}, where an earlier move came from",
        )
    complete = sum(landing.probability for landing in move.landings) >= _COMPLETE
    if outcome.predicted is False and complete:
        expected = move.landings[0].node
        return _Verdict(
            PredictionResult.ELSEWHERE, f"{move.pod} landed on {landed} instead of, say, {expected}"
        )
    return _Verdict(PredictionResult.AS_PREDICTED, "")


def add_strike(known: TermMemory, why: str, now: float) -> TermMemory:
    """Return the term with one more strike, and the resulting cool-down."""
    strikes = known.strikes + 1
    if strikes >= STRIKES:
        given_up = f"{strikes} runs in a row did not do what was predicted; the last: {why}"
        return msgspec.structs.replace(known, strikes=strikes, until=0, why=why, given_up=given_up)
    until = int(now) + FIRST_COOL_DOWN * 2 ** (strikes - 1)
    return msgspec.structs.replace(known, strikes=strikes, until=until, why=why, given_up="")


# -- the history of runs ---------------------------------------------------------------------------

_MAX_MOVES = 100
"""Of one run in the history."""
_NOT_TRIED = (Status.NOT_ATTEMPTED, Status.OBSERVED, Status.PLANNED)


def with_history(
    document: Document, run: str, by: str, outcomes: Iterable[Outcome], now: float
) -> Document:
    """Return the document with a run and the ``outcomes`` of all of its moves; unchanged if it has tried none.

    ``run``: its id; ``by``: name of its pod.
    """
    tried = [one for one in outcomes if one.status not in _NOT_TRIED]
    if not tried:
        return document
    moves = tuple(map(_record, tried[:_MAX_MOVES]))
    return with_acting_run(
        document, ActingRun(run, int(now), by, moves, max(0, len(tried) - _MAX_MOVES))
    )


def _record(outcome: Outcome) -> MoveRecord:
    move = outcome.move
    return MoveRecord(
        pod=move.ref,
        owner=move.owner,
        node=move.node,
        strategy=move.strategy,
        reason=move.reason[:_MAX_TEXT],
        outcome=outcome.status.value,
        message=outcome.message[:_MAX_TEXT],
        landed=outcome.landed or "",
        predicted=outcome.predicted,
    )


_CARRIED_OUT = frozenset(one for one in Status if one.is_carried_out)
_REFUSED = (Status.REFUSED, Status.MISCONFIGURED)
# What the API server says of webhooks and of ValidatingAdmissionPolicies (its webhook/errors, plugin/policy/validating).
_DENIES = re.compile(
    r"HTTP (4\d\d: .*\bdenied (the )?request\b|500: .*\bfailed calling webhook )", re.DOTALL
)
_SAYS_NO = re.compile(rf"HTTP 4(?!29)\d\d: |{_DENIES.pattern}", re.DOTALL)


def group_failures(moves: Iterable[MoveRecord]) -> dict[tuple[str, str], list[MoveRecord]]:
    """Return (outcome, message) -> the moves that failed in this way; names of pods in messages are ignored."""
    failed: dict[tuple[str, str], list[MoveRecord]] = {}
    for move in moves:
        if move.outcome in (*_REFUSED, Status.FAILED):
            name = re.escape(move.pod.rpartition("/")[2])
            message = re.sub(rf"(?<![\w.-]){name}(?![\w-])", "POD", move.message)
            failed.setdefault((move.outcome, message), []).append(move)
    return failed


def _is_denied(outcome: Outcome) -> bool:
    """Return whether admission denied this eviction: a webhook that said no or did not answer, or a policy."""
    return outcome.status is Status.FAILED and _DENIES.match(outcome.message) is not None


def is_refusal(outcome: str, message: str) -> bool:
    """Return whether a move failed because the API server refused it, as it will in the next run."""
    return outcome in _REFUSED or (outcome == Status.FAILED and _SAYS_NO.match(message) is not None)


def describe_result(move: MoveRecord) -> str:
    """Return the result of a move in words: ``node-c1, as predicted; its replacement is web-x``."""
    if move.outcome not in _CARRIED_OUT:
        return f"{move.outcome}{f': {move.message}' if move.message else ''}"
    if not move.landed:
        return "not seen yet where"
    how = "as predicted" if move.predicted else "not as predicted"
    how = "where it came from" if move.landed == move.node else how
    named = f"; its replacement is {move.replacement}" if move.replacement else ""
    return f"{move.landed}, {how}{named}"


# -- expectations ------------------------------------------------------------------------------------


FULFILLED_AFTER = 1800
"""Seconds after a move for which its target nodes have to remain healthy."""

_MAX_HOPES = 4


def after_run(
    document: Document,
    snapshot: Snapshot,
    streaks: Mapping[str, Streaks],
    outcomes: Iterable[Outcome],
    now: float,
) -> Document:
    """Return the document after a run, given the ``streaks`` per strategy and the ``outcomes`` of its moves.

    First the expectations of earlier moves are checked, then those of this run are added.
    """
    done = tuple(outcomes)
    judged = _judge_terms(document, {name: _Judge(seen, now) for name, seen in streaks.items()})
    moved = remember(judged, snapshot, done, now)
    return with_streaks(_with_hopes(moved, streaks, done), streaks, done, now)


class _Judge:
    """Checks the expectations of one strategy's moves."""

    def __init__(self, seen: Streaks, now: float) -> None:
        self._seen, self._now = seen, now

    def __call__(self, term: TermMemory) -> TermMemory:
        if not term.hopes:
            return term
        if hot := [node for node in term.hopes if node in self._seen.runs]:
            vain = term.vain + 1
            why = f"{hot[0]}, where it went, is over-used now"
            before = msgspec.structs.replace(term, strikes=vain - 1, feasible=0)
            after = add_strike(before, why, self._now)
            return msgspec.structs.replace(after, hopes=(), vain=vain)
        if self._now - term.last > FULFILLED_AFTER:
            return msgspec.structs.replace(term, hopes=(), vain=0)
        return term


def _judge_terms(document: Document, judges: Mapping[str, _Judge]) -> Document:
    owners: dict[str, OwnerMemory] = {}
    for ref, owner in document.owners.items():
        terms = {
            name: judge(term) if (judge := judges.get(name.partition("/")[0])) else term
            for name, term in owner.terms.items()
        }
        owners[ref] = msgspec.structs.replace(owner, terms=terms)
    return msgspec.structs.replace(document, owners=owners)


def _with_hopes(
    document: Document, streaks: Mapping[str, Streaks], outcomes: Iterable[Outcome]
) -> Document:
    """Return the document with the nodes where replacements landed and that were not over-used then.

    They are ``TermMemory.hopes``: later runs look whether these nodes have become over-used.
    """
    owners = dict(document.owners)
    for outcome in outcomes:
        move, landed = outcome.move, outcome.landed
        seen = streaks.get(move.strategy)
        if seen is None or not outcome.status.is_carried_out or landed is None:
            continue
        name, owner = term_of(move), owners.get(move.owner)
        if landed in seen.runs or owner is None or name not in owner.terms:
            continue
        term = owner.terms[name]
        hopes = (*(node for node in term.hopes if node != landed), landed)[-_MAX_HOPES:]
        terms = {**owner.terms, name: msgspec.structs.replace(term, hopes=hopes)}
        owners[move.owner] = msgspec.structs.replace(owner, terms=terms)
    return msgspec.structs.replace(document, owners=owners)


# An end further away than any cool-down lasts was written under a wrong clock.
_MAX_COOL_DOWN = FIRST_COOL_DOWN * 2 ** (STRIKES - 2)


def is_resting(term: TermMemory, now: float) -> bool:
    """Return whether an owner is in a cool-down for a term, or given up."""
    if term.given_up:
        return now - term.last <= FORGOTTEN_AFTER
    return now < term.until <= now + _MAX_COOL_DOWN


def state_words(term: TermMemory, now: float) -> str:
    """Return a phrase on what happens next with a term."""
    if not is_resting(term, now):
        return "moved again when it pays" if term.strikes else "no cool-down"
    if term.given_up:
        until = rfc3339(term.last + FORGOTTEN_AFTER)
        return f"given up until its spec or the zones change, or {until}: {term.given_up}"
    return f"cools down until {rfc3339(term.until)}: {term.why}"


def describe_cooling(document: Document, now: float) -> dict[str, str]:
    """Return owner -> why it is not moved for now, and until when."""
    reasons: dict[str, str] = {}
    for ref, owner in document.owners.items():
        texts = [
            f"{name} {state_words(term, now)}"
            for name, term in owner.terms.items()
            if is_resting(term, now) and not term.feasible
        ]
        if texts:
            reasons[ref] = "; ".join(texts)
    return reasons


def list_resting(document: Document, now: float) -> list[str]:
    """Return the owners that are not moved again for now, by at least one strategy."""
    return sorted(
        ref
        for ref, owner in document.owners.items()
        if any(is_resting(term, now) for term in owner.terms.values())
    )


def describe_resting(document: Document, now: float) -> dict[str, dict[str, str]]:
    """Return strategy -> owner -> why that strategy alone does not move it for now, and until when."""
    reasons: dict[str, dict[str, str]] = {}
    for ref, owner in document.owners.items():
        for name, term in owner.terms.items():
            if is_resting(term, now) and term.feasible:
                of_strategy = reasons.setdefault(name.partition("/")[0], {})
                of_strategy.setdefault(ref, f"{name} {state_words(term, now)}")
    return reasons


def summarize_memory(document: Document, now: float) -> Remembered:
    """Return the parts of the document that metrics show."""
    targets = {
        ref: frozenset(target for term in owner.terms.values() for _, target in term.trail)
        for ref, owner in document.owners.items()
    }
    return Remembered(Counter(_state(owner, now) for owner in document.owners.values()), targets)


def _state(owner: OwnerMemory, now: float) -> str:
    terms = [term for term in owner.terms.values() if is_resting(term, now)]
    if not terms:
        return "fine"
    return "given-up" if any(term.given_up for term in terms) else "resting"
