"""Read the report of a dry run as a reviewed plan, the input of ``apply``.

Required keys are checked strictly, other keys are ignored: later versions of reports have more keys, and a reviewer
may delete what no move needs (``jq 'del(.skipped)'``).
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.data_text import unpack
from rebalancer.base.durations import format_duration
from rebalancer.base.errors import PolicyError
from rebalancer.plan.plan import Cost, Landing, Method, Move, NodeCode, Status
from rebalancer.policy.forms import differs_by_defaults
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode
from rebalancer.wire.times import unix_seconds

_MAX_BYTES = 128 << 20
"""15,000 moves, a tenth of the largest cluster that is measured, with 20 landings each take 50 MB."""
_MAX_MOVES = 100_000
_ARCHIVE = b"PK\x03\x04"
_ANEW = "make a new plan: rebalancer run --dry-run -o json"

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
"""No name in a cluster is longer, and no uid."""


class _Landing(msgspec.Struct):
    node: _Name
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)]
    domains: dict[str, str] = {}


class _Gain(msgspec.Struct):
    hard: float
    soft: float
    imbalance: float


class _Move(msgspec.Struct, rename={"node": "from", "makes_way_for": "makesWayFor"}):
    namespace: _Name
    pod: _Name
    uid: _Name
    node: _Name
    strategy: _Name
    gain: _Gain
    wave: Annotated[int, msgspec.Meta(ge=1, le=_MAX_MOVES)]
    makes_way_for: _Name | None = None
    owner: str = ""
    reason: str = ""
    cost: float = 1.0
    landings: list[_Landing] = []
    marks: list[_Name] = []
    unit: str | None = None
    room: list[_Name] | None = None
    gang: str | None = None
    method: Method = Method.EVICT
    outcome: str = Status.PLANNED.value


class _Head(msgspec.Struct, rename="camel"):
    api_version: Any = None
    kind: Any = None
    dry_run: Any = None


class _Node(msgspec.Struct):
    node: _Name
    code: str


class _Emptying(msgspec.Struct):
    nodes: Annotated[list[_Node], msgspec.Meta(max_length=_MAX_MOVES)] = []


class _File(msgspec.Struct, rename="camel"):
    captured_at: str | None
    policy_hash: str
    moves: Annotated[list[_Move], msgspec.Meta(max_length=_MAX_MOVES)]
    policy_source: str = ""
    policy_flags: str = ""
    source: str = ""
    emptying: _Emptying | None = None
    warnings: list[str] = []
    """Nothing is taken from it."""


# Of a report of `apply --dry-run`, what was dropped there is no longer part of the plan.
_STANDING = {
    status.value
    for status in (Status.PLANNED, Status.OBSERVED, Status.NOT_ATTEMPTED, Status.BLOCKED)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedPlan:
    """A plan that a dry run made. A reviewer may have removed moves from it."""

    name: str
    """The file, or ``standard input``."""
    captured_at: float
    """When the cluster stood as the plan saw it; Unix seconds, by the cluster's clock."""
    source: str
    """The API server or file that it was made on."""
    policy_hash: str
    policy_source: str
    policy_flags: str = ""
    """The flags of the command line by which the policy was changed: ``--set KEY=VALUE``."""
    moves: tuple[Move, ...]
    """By wave; each of another pod. A move that goes first for another is in an earlier wave than that one."""
    empty: tuple[str, ...] = ()
    """Nodes without pods that the plan marks, so that they stay empty."""
    max_age: float = math.inf
    """Seconds after which it may no longer be carried out."""

    def check_policy(self, loaded: LoadedPolicy) -> None:
        """Raise PolicyError unless the plan was made with this policy and the policy allows moves."""
        if differs_by_defaults(self.policy_hash, loaded.policy_hash):
            raise self._wrong(
                "policyHash: the plan was made by another version of rebalancer, whose policy has other"
                f" keys or defaults: {_ANEW}"
            )
        if self.policy_hash != loaded.policy_hash:
            named = loaded.policy.scheduler.from_config is not None
            also = ", or its scheduler.fromConfig holds something else now" if named else ""
            made = _with_flags(self.policy_source or "unknown", self.policy_flags)
            same = f"--policy, and {self.policy_flags}" if self.policy_flags else "--policy"
            raise self._wrong(
                f"policyHash: the plan was made under another policy ({made}) than the one in force"
                f" ({_with_flags(loaded.source, loaded.changed_by)}), or by an earlier version of"
                f" rebalancer{also}: give the same {same}, or {_ANEW}"
            )
        if (mode := loaded.policy.mode) is not Mode.ENFORCE:
            raise self._wrong(
                f"policy {loaded.source} is in mode {mode}, which lets nothing be moved:"
                f" set mode: enforce, then {_ANEW}"
            )
        for move in self.moves:
            if loaded.policy.mode_of(move.strategy) is Mode.OFF:
                raise self._wrong(
                    f"the move of {move.ref}: strategy: {_shorten(move.strategy)} is none of the policy,"
                    f" or is off; {_ANEW}"
                )

    def check_age(self, now: float, tolerance: float) -> None:
        """Raise PolicyError if the plan is older than ``max_age`` at ``now``, or is from the future.

        ``tolerance``: the accepted difference of clocks in seconds. A plan without moves may have any age.
        """
        age = now - self.captured_at
        if age > self.max_age and self.moves:
            raise self._wrong(
                f"capturedAt: the plan is {_span(age)} old, older than --max-age {_span(self.max_age)}: {_ANEW}"
            )
        if age < -tolerance:
            raise self._wrong(
                f"capturedAt: lies {_span(-age)} in the future, by the cluster's clock:"
                " is it a plan of this cluster?"
            )

    def _wrong(self, text: str) -> PolicyError:
        return PolicyError([f"{self.name}: {text}"])


def read_plan(path: str, stdin: BinaryIO) -> ReviewedPlan:
    """Read a plan from a file; ``-`` is ``stdin``.

    Raises:
        PolicyError: the file does not exist, is not the report of a dry run, or lacks a valid value for a key.
    """
    name = "standard input" if path == "-" else path
    try:
        raw = _bytes(path, stdin)
    except OSError as error:
        raise PolicyError([f"{name}: cannot be read ({error.strerror or error})"]) from None
    if raw.startswith(_ARCHIVE):
        raise PolicyError(
            [
                f"{name}: is a zip archive, such as a snapshot, and no plan: rebalancer plan --snapshot {name}"
            ]
        )
    try:
        text = _text(raw)
        _check_kind(msgspec.json.decode(text, type=_Head))
        file = msgspec.json.decode(text, type=_File)
        _check_keys(text)
        return _plan(name, file)
    except _WrongError as error:
        raise PolicyError([f"{name}: {error}"]) from None
    except msgspec.ValidationError as error:
        raise PolicyError([f"{name}: {_problem(str(error))}; {_ANEW}"]) from None
    except UnicodeDecodeError:
        raise PolicyError([f"{name}: is not UTF-8 text; save it as UTF-8"]) from None
    except (ValueError, RecursionError) as error:  # what either of the two decoders refuses
        raise PolicyError([f"{name}: is no JSON, or cut off: {error}"]) from None


def _with_flags(source: str, flags: str) -> str:
    return f"{source}, changed by {flags}" if flags else source


class _WrongError(Exception):
    """The file is invalid; the message has the reason."""


def _bytes(path: str, stdin: BinaryIO) -> bytes:
    """Return the file, also of a gzip file, but no more than one byte over the limit."""
    if path == "-":
        return _read(stdin)
    with Path(path).open("rb") as file:
        return _read(file)


def _read(stream: BinaryIO) -> bytes:
    try:
        text, head = unpack(stream)
        return head + text.read(max(0, _MAX_BYTES + 1 - len(head)))
    except (EOFError, zlib.error) as error:
        raise OSError(0, f"damaged gzip: {error}") from None


# -- text to data ----------------------------------------------------------------------------------


def _text(raw: bytes) -> bytes:
    """Return the JSON of the file."""
    if len(raw) > _MAX_BYTES:
        raise _WrongError(
            f"is larger than {_MAX_BYTES >> 20} MiB; take out what no move needs: jq 'del(.skipped)'"
        )
    text = raw.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise _WrongError(f"is empty; {_ANEW}")
    if not text.startswith((b"{", b"[")):
        raise _WrongError(f"is no JSON, as plans are; {_ANEW}")
    return text


def _check_keys(text: bytes) -> None:
    """Check that no object has a key twice: the decoder takes the last value, a reviewer may have read the first."""
    # Numbers stay text: Python refuses to convert very long ones.
    json.loads(text, object_pairs_hook=_require_once, parse_int=str)


def _require_once(pairs: list[tuple[str, Any]]) -> None:
    keys = Counter(key for key, _ in pairs)
    if len(keys) < len(pairs):
        raise _WrongError(f"{keys.most_common(1)[0][0]}: the key is there twice")


# -- data to plan ----------------------------------------------------------------------------------


def _check_kind(head: _Head) -> None:
    for key, given, wanted in (
        ("kind", head.kind, "Report"),
        ("apiVersion", head.api_version, API_VERSION),
    ):
        if given != wanted:
            what = "is missing" if given is None else f"is {_shorten(given)}"
            raise _WrongError(f"{key}: {what}, a plan has {key}: {wanted}; {_ANEW}")
    if head.dry_run is not True:
        raise _WrongError(
            f"dryRun: is {_shorten(head.dry_run)}: the report of a run that has acted is no plan,"
            f" its moves are over; {_ANEW}"
        )


def _plan(name: str, file: _File) -> ReviewedPlan:
    if file.captured_at is None:
        raise _WrongError(f"capturedAt: the plan is of a file without a time; {_ANEW}")
    captured_at = unix_seconds(file.captured_at)
    if not captured_at:
        raise _WrongError(f"capturedAt: {_shorten(file.captured_at)} is no time; {_ANEW}")
    standing = [(i, move) for i, move in enumerate(file.moves) if move.outcome in _STANDING]
    _check_links(standing)
    moves = [_move(move) for _, move in standing]
    return ReviewedPlan(
        name=name,
        captured_at=captured_at,
        source=file.source,
        policy_hash=file.policy_hash,
        policy_source=file.policy_source,
        policy_flags=file.policy_flags,
        moves=tuple(sorted(moves, key=lambda move: move.wave)),
        empty=() if file.emptying is None else _empty(file.emptying),
    )


def _empty(emptying: _Emptying) -> tuple[str, ...]:
    return tuple(one.node for one in emptying.nodes if one.code == NodeCode.EMPTY.value)


def _check_links(moves: Sequence[tuple[int, _Move]]) -> None:
    """Check that no pod moves twice, and that a move which makes room for another comes before it.

    ``moves``: (position in the file, move).
    """
    by_uid: dict[str, tuple[int, _Move]] = {}
    for index, move in moves:
        first, _ = by_uid.setdefault(move.uid, (index, move))
        if first != index:
            raise _WrongError(f"moves[{index}].uid: stands in moves[{first}], too; remove one")
    for index, move in moves:
        place, other = by_uid.get(move.makes_way_for or "", (index, None))
        together = other is not None and bool(move.gang) and other.gang == move.gang
        if other is not None and other.wave <= move.wave and not together:
            raise _WrongError(
                f"moves[{index}].makesWayFor: moves[{place}] is in wave {other.wave}, not after"
                f" wave {move.wave}; {_ANEW}"
            )


def _move(move: _Move) -> Move:
    return Move(
        namespace=move.namespace,
        pod=move.pod,
        uid=move.uid,
        owner=move.owner,
        node=move.node,
        landings=tuple(Landing(one.node, one.probability, one.domains) for one in move.landings),
        strategy=move.strategy,
        reason=move.reason,
        gain=Cost(move.gain.hard, move.gain.soft, move.gain.imbalance),
        cost=move.cost,
        wave=move.wave,
        makes_way_for=move.makes_way_for or "",
        marks=tuple(move.marks),
        unit=move.unit or "",
        room=None if move.room is None else tuple(move.room),
        gang=move.gang or "",
        method=move.method,
    )


# -- words -----------------------------------------------------------------------------------------

_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>.*)`)?\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z")


def _problem(error: str) -> str:
    """Return an error of msgspec with the key first: ``moves[3].uid: is missing``."""
    match = _PLACE.match(error)
    what, path = (match["what"], match["path"] or "") if match else (error, "")
    path = path.removeprefix("$").removeprefix(".")
    if (missing := _MISSING.match(what)) is not None:
        path, what = f"{path}.{missing[1]}".removeprefix("."), "is missing"
    return f"{path or 'is no report'}: {what[:1].lower()}{what[1:]}"


_SHOWN = 60


def _shorten(value: Any) -> str:
    """Return a short text that identifies a value."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _span(seconds: float) -> str:
    """Format seconds as ``2h5m``; seconds are omitted from long times."""
    whole = int(seconds) if seconds < 120 else int(seconds // 60) * 60
    return format_duration(timedelta(seconds=whole))
