"""The document of the memory: records per owner and term, limited in size, versioned, as JSON.

Times are Unix seconds. Documents are immutable: every function returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from rebalancer.plan.plan import REPLACED_BY, Count, Status, Totals
from rebalancer.wire.times import LAST_SECOND

VERSION = 1
KEY = "memory.json"
"""Key of the ConfigMap's data."""
MAX_BYTES = 600_000
"""Bytes of JSON; a ConfigMap may have 1 MiB, and half of it is enough for thousands of owners."""
MAX_OWNERS = 2000
MAX_PARTS = 8
"""The number of runs with a part in the document: more runs do not write at the same time."""
_T = TypeVar("_T")
_Seconds = Annotated[int, msgspec.Meta(ge=0, le=LAST_SECOND)]
_Moment = Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
# Beyond these bounds nothing was written by this program, and sums and calendars would break.

FORGOTTEN_AFTER = 7 * 86_400
"""Seconds after which an owner that was not moved again is forgotten, given up or not."""


class TermMemory(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcomes of the moves of one owner for one term (``strategy/entry``)."""

    moves: Count = 0
    """Number of evictions."""
    as_predicted: Count = 0
    came_back: Count = 0
    """To the node it was taken from, or to one that an earlier move had taken a replica from."""
    elsewhere: Count = 0
    """Number of replacements on nodes where no landing was predicted."""
    blocked: Count = 0
    """Blocked by a PodDisruptionBudget that allowed it in the snapshot, or by two of them."""
    strikes: Count = 0
    """Runs in a row that did not do what was predicted."""
    until: _Seconds = 0
    """End of the cool-down."""
    why: str = ""
    """The reason of the last strike."""
    given_up: str = ""
    """Why it is not tried any more; empty while it is."""
    feasible: Count = 0
    """Nodes that its pods could use when the last strike was that replacements stayed where their victims had been; else 0.

    Then only the strategy rests, and only until there are more such nodes.
    """
    last: _Seconds = 0
    """Time of the last change."""
    trail: tuple[tuple[str, str], ...] = ()
    """(from, to) of the last moves, newest last."""
    hopes: tuple[str, ...] = ()
    """Nodes that took pods because others were over-used, and must not be so themselves now."""
    vain: Count = 0
    """Moves in a row after which such a node was over-used."""


class OwnerMemory(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The record of one owner, valid while its spec and the zones do not change."""

    fingerprint: str
    zones: str
    """Digest of the cluster's set of zones."""
    seen: _Seconds
    """Time of the last change."""
    terms: dict[str, TermMemory] = {}


class StreakMemory(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """The streaks of one strategy, see :class:`rebalancer.cost.streaks.Streaks`."""

    at: _Moment = 0.0
    """Time of the last measurement: only a later one counts as another run."""
    runs: dict[str, Count] = {}
    """Node -> runs in a row."""
    recent: dict[str, Count] = {}
    """Node -> its last runs as bits, the newest lowest, where they are not ``runs`` in a row. Programs before it ignore it."""


class PaceMemory(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """The time that the evictions of the last run took."""

    evictions: Count = 0
    waves: Count = 0
    """0: the run was cut off among the evictions of its first one."""
    seconds: _Moment = 0.0
    """Seconds from its first eviction to the end of its last wave."""


class NodeCountMemory(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The number of nodes and their zones, see :mod:`rebalancer.run.memory.remember`."""

    in_use: Count = 0
    """Nodes with pods that would be created elsewhere, when a run last looked."""
    fell_from: Count = 0
    """The number of such nodes before a sudden fall."""
    fell_at: _Seconds = 0
    """Time at which the fall was seen; 0: there was none, or it is over."""
    zones: dict[str, _Seconds] = {}
    """Zone -> when it was last seen with nodes, to a day. Programs before it ignore it."""


class RunPart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which part of one run's journal the document contains, so that nothing is added twice."""

    run: str
    """Id of the run."""
    outcomes: Count = 0
    """The number of outcomes of its journal that are counted, from the first."""
    reserved: Count = 0
    """Evictions that are counted for the hour before they are made."""
    at: _Moment = 0.0
    """Time at which these were counted."""
    ended: bool = False
    """Whether the run itself is counted."""


class MoveRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of one move that was tried."""

    pod: str
    """The pod as ``namespace/name``."""
    owner: str
    node: str
    """The node from which the pod was evicted."""
    strategy: str
    reason: str
    outcome: str
    """A value of :class:`rebalancer.plan.plan.Status`."""
    message: str = ""
    landed: str = ""
    """Node of the replacement; empty while it has none, or it is not known."""
    predicted: bool | None = None
    """Whether it landed where the move expected it; None while it has not landed."""

    @property
    def replacement(self) -> str:
        """Name of the pod that took its place, which the message of a move that was carried out has; else empty."""
        before, _, name = self.message.partition(REPLACED_BY)
        return name if self.landed and not before else ""

    @property
    def moved(self) -> bool:
        """Whether the pod was moved, or may have been."""
        return self.outcome in _MOVED


_MOVED = frozenset(one for one in Status if one.may_have_evicted)


class ActingRun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A run that has tried moves."""

    run: str
    """Id of the run."""
    at: _Seconds
    """Unix seconds of the last outcome of its moves."""
    by: str = ""
    """Name of its pod; empty outside of a cluster."""
    moves: tuple[MoveRecord, ...] = ()
    """The moves in the plan's order."""
    more: Count = 0
    """The number of further moves that it has tried."""


class Document(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """The whole memory."""

    version: int = VERSION
    owners: dict[str, OwnerMemory] = {}
    """``Kind/namespace/name`` -> memory."""
    evictions: tuple[tuple[_Seconds, Count], ...] = ()
    """(minute since 1970, evictions) of the last hour, for budgets.perHour."""
    streaks: dict[str, StreakMemory] = {}
    """Strategy -> its streaks."""
    pace: PaceMemory | None = None
    """The pace of the last run; None until a run has evicted."""
    nodes: NodeCountMemory | None = None
    """The node counts; None until a run that may act has looked."""
    totals: Totals = Totals()
    parts: tuple[RunPart, ...] = ()
    """The parts of the runs that wrote last, the newest at the end."""
    history: tuple[ActingRun, ...] = ()
    """The last runs that tried moves, the newest at the end. Programs before it ignore it, and write without it."""

    def part_of(self, run: str) -> RunPart:
        """Return the part of the run with this id; an empty part if there is none."""
        return next((part for part in self.parts if part.run == run), RunPart(run))


@dataclass(frozen=True, slots=True)
class Flaw:
    """An error in a document."""

    message: str
    hour_unknown: bool
    """The evictions of the last hour could not be read: such a document must not be replaced either."""

    def describe(self, config_map: str) -> str:
        """Return the error with what ends it; ``config_map``: ``namespace/name`` of where the document is."""
        cure = f"; to start afresh remove {KEY} from ConfigMap {config_map}"
        return f"{self.message}{cure if self.hour_unknown else '; they are forgotten'}"


class _Parts(msgspec.Struct):
    version: int = 0
    owners: msgspec.Raw = msgspec.Raw(b"{}")
    evictions: msgspec.Raw = msgspec.Raw(b"[]")
    streaks: msgspec.Raw = msgspec.Raw(b"{}")
    pace: msgspec.Raw = msgspec.Raw(b"null")
    nodes: msgspec.Raw = msgspec.Raw(b"null")
    totals: msgspec.Raw = msgspec.Raw(b"{}")
    parts: msgspec.Raw = msgspec.Raw(b"[]")
    history: msgspec.Raw = msgspec.Raw(b"[]")


def decode(data: Mapping[str, str]) -> tuple[Document, Flaw | None]:
    """Parse the document in a ConfigMap's data; return the readable part, and the error if there is one.

    Never raises, whatever the data are: people edit them, and newer programs write them.
    """
    text = data.get(KEY)
    if not text:
        return Document(), None
    try:
        parts = msgspec.json.decode(text, type=_Parts)
    except (ValueError, TypeError, RecursionError) as error:
        return Document(), Flaw(f"the memory could not be understood ({error})", hour_unknown=True)
    if parts.version != VERSION:
        return Document(), Flaw(
            f"the memory is of version {parts.version}, this program knows {VERSION}",
            hour_unknown=True,
        )
    lost: list[str] = []
    evictions = _part(parts.evictions, tuple[tuple[_Seconds, Count], ...], "evictions", lost)
    document = Document(
        owners=_each(parts.owners, OwnerMemory, "owners", lost),
        evictions=evictions or (),
        streaks=_each(parts.streaks, StreakMemory, "streaks", lost),
        pace=_part(parts.pace, PaceMemory | None, "pace", lost),
        nodes=_part(parts.nodes, NodeCountMemory | None, "nodes", lost),
        totals=_part(parts.totals, Totals, "totals", lost) or Totals(),
        parts=_part(parts.parts, tuple[RunPart, ...], "parts", lost) or (),
        history=_part(parts.history, tuple[ActingRun, ...], "history", lost) or (),
    )
    if not lost:
        return document, None
    message = f"parts of the memory could not be understood: {', '.join(lost)}"
    return document, Flaw(message, hour_unknown=evictions is None)


def _part(raw: msgspec.Raw, of: Any, name: str, lost: list[str]) -> Any:
    """Parse one part as ``of`` (a type, or a union of types); None if it does not match."""
    try:
        return msgspec.json.decode(raw, type=of)
    except (ValueError, TypeError, RecursionError):
        lost.append(name)
        return None


def _each(raw: msgspec.Raw, of: type[_T], name: str, lost: list[str]) -> dict[str, _T]:
    """Parse the entries of one part separately, so that a malformed entry does not affect others."""
    entries: dict[str, msgspec.Raw] = _part(raw, dict[str, msgspec.Raw], name, lost) or {}
    read: dict[str, _T | None] = {
        key: _part(entry, of, f"{name}[{key}]", lost) for key, entry in entries.items()
    }
    return {key: value for key, value in read.items() if value is not None}


def encode(document: Document) -> dict[str, str]:
    """Return the data of the ConfigMap. Equal documents give equal bytes."""
    return {KEY: msgspec.json.encode(document, order="sorted").decode()}


def shorten(document: Document, now: float) -> Document:
    """Return the document without entries that are too old or too many; the most recent owners are kept."""
    kept: dict[str, OwnerMemory] = {}
    room = MAX_BYTES - len(msgspec.json.encode(msgspec.structs.replace(document, owners={})))
    newest = sorted(document.owners.items(), key=lambda item: (-item[1].seen, item[0]))
    for ref, owner in newest[:MAX_OWNERS]:
        room -= len(msgspec.json.encode(owner)) + len(msgspec.json.encode(ref)) + 2
        if room < 0 or now - owner.seen > FORGOTTEN_AFTER:
            break
        kept[ref] = owner
    return msgspec.structs.replace(document, owners=dict(sorted(kept.items())))


MAX_HISTORY = 100_000
"""Bytes of JSON of the runs in the history; a run of one move needs about 500."""


def with_acting_run(document: Document, run: ActingRun) -> Document:
    """Return the document with ``run``, which replaces an earlier state of it; if there are too many, the oldest are dropped."""
    kept: list[ActingRun] = []
    room = MAX_HISTORY
    others = (one for one in document.history if one.run != run.run)
    for one in sorted((*others, run), key=lambda one: (one.at, one.run), reverse=True):
        room -= len(msgspec.json.encode(one)) + 1
        if room < 0:
            break
        kept.append(one)
    return msgspec.structs.replace(document, history=tuple(reversed(kept)))


# -- the tally of the last hour ----------------------------------------------------------------------


_MINUTES = 60
# A clock that was set back must not keep a budget used up for ever.
_AHEAD = 5


def count_evictions(document: Document, evictions: int, now: float) -> Document:
    """Return the document with ``evictions`` added at ``now``, and without evictions over an hour old."""
    minute = int(now // 60)
    tally = dict(_recent(document, minute))
    if evictions:
        tally[minute] = tally.get(minute, 0) + evictions
    return msgspec.structs.replace(document, evictions=tuple(sorted(tally.items())))


def count_last_hour(document: Document, now: float) -> int:
    """Return the number of evictions in the hour before ``now``, rounded up to whole minutes."""
    return sum(count for _, count in _recent(document, int(now // 60)))


def _recent(document: Document, minute: int) -> tuple[tuple[int, int], ...]:
    return tuple(
        (at, count)
        for at, count in document.evictions
        if minute - _MINUTES <= at <= minute + _AHEAD and count > 0
    )
