"""The report of a drain at its end, or of its pre-flight check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rebalancer import API_VERSION
from rebalancer.base.plain_text import and_more, count, percent
from rebalancer.machines.drain.preflight import NodeCheck, PodCheck, refuses
from rebalancer.machines.drain.triage import Fate
from rebalancer.machines.reasons import DrainVerdict
from rebalancer.plan.plan import Method, Move, Outcome
from rebalancer.report.document import ReportDocument
from rebalancer.snapshot.model import Snapshot

_SHOWN = 5
"""Maximum number of pods of a node that are shown per reason."""
_LANDINGS = 3
"""Maximum number of landings of a pod that are shown, the most probable first."""


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The report of a drain, or of its pre-flight check."""

    source: str
    """URL of the API server, or path of the file."""
    dry_run: bool
    snapshot: Snapshot
    """The snapshot of the pre-flight."""
    checks: Sequence[NodeCheck]
    exit_code: int
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Uid of the pod -> the outcome of its eviction, in the last round that tried it."""
    ended: str | None = None
    """Why the nodes are not empty, if they are not."""
    warnings: Sequence[str] = ()
    kind: str = "DrainReport"
    """``ReplaceReport`` for a replacement."""

    @property
    def refused(self) -> bool:
        """Whether the pre-flight check forbids the drain."""
        return refuses(self.checks)

    @property
    def document(self) -> ReportDocument:
        """The report in all its forms."""
        return ReportDocument(list(self._lines()), self.data())

    def data(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "dryRun": self.dry_run,
            "source": self.source,
            "capturedAt": self.snapshot.known_time,
            "nodes": [self._node(check) for check in self.checks],
            "outcomes": [_outcome(self.outcomes[uid]) for uid in sorted(self.outcomes)],
            "ended": self.ended,
            "warnings": list(self.warnings),
            "exitCode": self.exit_code,
        }

    def _node(self, check: NodeCheck) -> dict[str, Any]:
        return {
            "node": check.name,
            "verdict": check.verdict.value,
            "pods": [self._pod(one) for one in check.pods],
        }

    def _pod(self, one: PodCheck) -> dict[str, Any]:
        snapshot, move = self.snapshot, one.move
        owner = snapshot.owner_of(int(snapshot.pods.cls[one.pod]))
        return {
            "namespace": snapshot.classes[int(snapshot.pods.cls[one.pod])].namespace,
            "pod": snapshot.pods.name[one.pod],
            "uid": snapshot.pods.uid[one.pod],
            "owner": owner.ref if owner else None,
            "fate": one.fate.value,
            "verdict": one.verdict.value,
            "code": one.code,
            "message": one.message,
            "method": one.method.value,
            "landings": _data_of_landings(move),
            "alsoRestarted": _data_of_fellows(one, Method.RESTART),
            "alsoEvicted": _data_of_fellows(one, Method.EVICT),
        }

    def _lines(self) -> Iterator[str]:
        what = "Replacement" if self.kind == "ReplaceReport" else "Drain"
        yield f"{what} of {count(len(self.checks), 'node')}{' (dry run)' if self.dry_run else ''}"
        time = self.snapshot.known_time or "time unknown"
        yield f"{self.source}, {self.snapshot.version_words}, {time}"
        if self.checks:
            yield ""
        width = max((len(check.name) for check in self.checks), default=0)
        for check in self.checks:
            yield f"  {check.name:<{width}}  {check.verdict.value:<17}  {_count(check)}".rstrip()
            yield from self._reasons(check)
            if self.dry_run and not self.refused:
                yield from self._landings(check)
        yield from self._end()

    def _reasons(self, check: NodeCheck) -> Iterator[str]:
        if check.verdict is DrainVerdict.DRAINABLE:
            return
        said: dict[tuple[str, str], list[str]] = {}
        for one in check.worst:
            said.setdefault((one.code, one.message), []).append(self.snapshot.pod_ref(one.pod))
        for (code, message), pods in said.items():
            yield f"      {code}{f': {message}' if message else ''}"
            yield f"        {and_more(pods, _SHOWN)}"

    def _landings(self, check: NodeCheck) -> Iterator[str]:
        """Yield the landing of each replacement, and how its pod leaves."""
        said: set[str] = set()
        for one in check.pods:
            if one.move is None or not one.move.landings:
                continue
            yield f"      {self.snapshot.pod_ref(one.pod)} -> {_list_landings(one.move)}{_how(one)}"
            for other in one.fellows:
                if other.uid not in said:
                    said.add(other.uid)
                    yield f"        with it {other.ref} on {other.node} -> {_list_landings(other)}"

    def _end(self) -> Iterator[str]:
        statuses = Counter(outcome.status.value for outcome in self.outcomes.values())
        if statuses:
            yield ""
            yield f"Done: {', '.join(f'{number} {status}' for status, number in sorted(statuses.items()))}."
        yield ""
        yield from (self._sentence(), *(f"Note: {warning}" for warning in self.warnings))

    def _sentence(self) -> str:
        if self.ended is not None:
            return f"Not empty: {self.ended}."
        if not self.checks:
            return "No node is to be emptied."
        if self.refused:
            return "Refused: nothing was cordoned, and nothing evicted."
        if self.dry_run:
            return "Nothing was cordoned or evicted: this is a dry run."
        return "Empty: all of them."


def _data_of_fellows(check: PodCheck, method: Method) -> list[dict[str, Any]]:
    """Return the pods on other nodes that are moved with a pod by ``method``."""
    return [
        {
            "namespace": other.namespace,
            "pod": other.pod,
            "uid": other.uid,
            "from": other.node,
            "landings": _data_of_landings(other),
        }
        for other in check.fellows
        if other.method is method
    ]


def _data_of_landings(move: Move | None) -> list[dict[str, Any]]:
    return [
        {"node": landing.node, "probability": round(landing.probability, 6)}
        for landing in (move.landings if move else ())
    ]


def _list_landings(move: Move) -> str:
    """Return the most probable landings of a move as text."""
    landings = move.landings
    shown = ", ".join(f"{each.node} {percent(each.probability)}" for each in landings[:_LANDINGS])
    left = len(landings) - _LANDINGS
    return shown + (f" and {count(left, 'more node')}" if left > 0 else "")


def _how(one: PodCheck) -> str:
    """Return how a pod leaves, where that is not by an eviction of its own alone."""
    if one.move is not None and one.move.of_gang and one.method is Method.RESTART:
        return f"; by a restart of its rollout, which moves all pods of {one.move.owner} in turn, never fewer of them Ready"
    if one.method is Method.RESTART:
        return "; by a restart of its rollout: it goes once the new pod is Ready"
    return f"; {one.message}" if one.message else ""


def _count(check: NodeCheck) -> str:
    fates = Counter(one.fate for one in check.pods)
    words = {
        Fate.EVICT: "to evict",
        Fate.WAIT: "waited for",
        Fate.REFUSE: "refused",
        Fate.STAY: "left alone",
    }
    return ", ".join(f"{fates[fate]} {word}" for fate, word in words.items() if fates[fate])


def _outcome(outcome: Outcome) -> dict[str, Any]:
    move = outcome.move
    return {
        "namespace": move.namespace,
        "pod": move.pod,
        "uid": move.uid,
        "from": move.node,
        "outcome": outcome.status.value,
        "message": outcome.message,
        "landed": outcome.landed,
        "predicted": outcome.predicted,
    }
