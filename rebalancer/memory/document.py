"""The document: what is remembered of each owner and term, bounded, versioned, as JSON.

Times are Unix seconds. Documents are never changed: every function returns another.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

VERSION = 1
KEY = "memory.json"
"""Key of the ConfigMap's data."""
LARGEST = 600_000
"""Bytes of JSON; a ConfigMap holds 1 MiB, and half of it is enough for thousands of owners."""
MOST_OWNERS = 2000
FORGOTTEN_AFTER = 7 * 86_400
"""Seconds after which an owner that was not moved again is forgotten, given up or not."""


class TermMemory(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What came of the moves of one owner for one term (``strategy/entry``)."""

    moves: int = 0
    """Evictions."""
    as_predicted: int = 0
    came_back: int = 0
    """To the node it was taken from, or to one that an earlier move had taken a replica from."""
    elsewhere: int = 0
    """Where no landing was predicted."""
    blocked: int = 0
    """By a PodDisruptionBudget that the snapshot said would allow it, or by two of them."""
    strikes: int = 0
    """Runs in a row that did not do what was predicted."""
    until: int = 0
    """End of the cool-down."""
    why: str = ""
    """What the last strike was for."""
    given_up: str = ""
    """Why it is not tried any more; empty while it is."""
    last: int = 0
    """When something last happened."""
    trail: tuple[tuple[str, str], ...] = ()
    """(from, to) of the last moves, newest last."""
    hopes: tuple[str, ...] = ()
    """Nodes that took pods because others were over-used, and must not be so themselves now."""
    vain: int = 0
    """Moves in a row after which such a node was over-used."""


class OwnerMemory(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What is remembered of one owner while its spec and the zones stay as they are."""

    fingerprint: str
    zones: str
    """Digest of the cluster's set of zones."""
    seen: int
    """When something was last remembered."""
    terms: dict[str, TermMemory] = {}


class SignalMemory(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=False, forbid_unknown_fields=True
):
    """What one strategy has seen that must last, see :class:`rebalancer.cost.signals.Signals`."""

    at: float = 0.0
    """Only what is measured later counts as another run."""
    runs: dict[str, int] = {}
    """Node -> runs in a row."""


class PaceMemory(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=False, forbid_unknown_fields=True
):
    """How long the last run that evicted took for it."""

    evictions: int = 0
    waves: int = 0
    seconds: float = 0.0
    """From its first eviction to the end of its last wave."""


class Document(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=False, forbid_unknown_fields=True
):
    """All that is remembered."""

    version: int = VERSION
    owners: dict[str, OwnerMemory] = {}
    """``Kind/namespace/name`` -> memory."""
    evictions: tuple[tuple[int, int], ...] = ()
    """(minute since 1970, evictions) of the last hour, for budgets.perHour."""
    signals: dict[str, SignalMemory] = {}
    """Strategy -> what it has seen."""
    pace: PaceMemory | None = None
    """None until a run has evicted."""


class _Versioned(msgspec.Struct):
    version: int = 0


def decode(data: Mapping[str, str]) -> tuple[Document, str | None]:
    """Return the document in a ConfigMap's data, and a warning if it had to be started afresh."""
    text = data.get(KEY)
    if not text:
        return Document(), None
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            return Document(), (
                f"the memory is of version {version}, this program knows {VERSION}: started afresh"
            )
        return msgspec.json.decode(text, type=Document), None
    except (msgspec.DecodeError, UnicodeError) as error:
        return Document(), f"the memory could not be understood ({error}): started afresh"


def encode(document: Document) -> dict[str, str]:
    """Return the data of the ConfigMap. The same document gives the same bytes."""
    return {KEY: msgspec.json.encode(document, order="sorted").decode()}


def bounded(document: Document, now: float) -> Document:
    """Return the document without what is too old or too much; the owners seen last stay."""
    kept: dict[str, OwnerMemory] = {}
    room = LARGEST - len(msgspec.json.encode(msgspec.structs.replace(document, owners={})))
    newest = sorted(document.owners.items(), key=lambda item: (-item[1].seen, item[0]))
    for ref, owner in newest[:MOST_OWNERS]:
        room -= len(msgspec.json.encode(owner)) + len(msgspec.json.encode(ref)) + 2
        if room < 0 or now - owner.seen > FORGOTTEN_AFTER:
            break
        kept[ref] = owner
    return msgspec.structs.replace(document, owners=dict(sorted(kept.items())))
