"""Annotations of a pod, its owner or its namespace that forbid moving the pod."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from rebalancer.base.durations import parse_go_duration
from rebalancer.wire.pods import ANNOTATION_NAMES, PodAnnotations
from rebalancer.wire.times import unix_seconds

EVICT = ANNOTATION_NAMES["evict"]


class OptOut(NamedTuple):
    """One annotation that forbids moving a pod."""

    protection: str
    """Name of the protection (``rebalancer.snapshot.protect.NAMES``)."""
    text: str
    """The annotation as it is written."""
    seconds: float = math.inf
    """Seconds from the pod's start for which it protects."""
    until: float = math.inf
    """Until when it protects (Unix seconds)."""
    understood: bool = True
    """Whether the value is one of those that the annotation is documented to have; if not, it protects anyway."""

    def protects(self, age: float, now: float) -> bool:
        """Return whether it protects, at ``now`` (Unix seconds), a pod that started ``age`` seconds ago."""
        return age < self.seconds and now < self.until


@lru_cache(1024)
def opt_outs(annotations: PodAnnotations) -> tuple[OptOut, ...]:
    """Return the opt-outs in the annotations of a pod. A malformed value protects, too, and is reported."""
    return tuple(_of_pod(annotations))


def _of_pod(annotations: PodAnnotations) -> Iterator[OptOut]:
    if (ours := _evict(annotations.evict)) is not None:
        yield ours
    value = annotations.peer_evict
    if value is not None and value.lower() != "true":
        yield _opt_out("optedOut", "peer_evict", value, known=("false",))
    if annotations.peer_prefer_no_eviction is not None:
        name = ANNOTATION_NAMES["peer_prefer_no_eviction"]
        yield OptOut("preferNoEviction", f"annotated {name}")
    if annotations.evicting is not None:
        # KubeVirt answers an eviction with a live migration, and says so by this annotation until it is over.
        yield OptOut("evictionInProgress", f"annotated {ANNOTATION_NAMES['evicting']}")
    value = annotations.safe_to_evict
    if value not in (None, "true"):
        yield _opt_out("safeToEvict", "safe_to_evict", value, known=("false", "on-completion"))
    value = annotations.do_not_disrupt
    if value not in (None, "false"):
        try:
            # Karpenter 1.12: a duration protects for so long from the pod's start.
            seconds = parse_go_duration(value).total_seconds()
        except ValueError:
            yield _opt_out("doNotDisrupt", "do_not_disrupt", value, known=("true",))
        else:
            opt_out = _opt_out("doNotDisrupt", "do_not_disrupt", value, known=(value,))
            yield opt_out._replace(seconds=seconds)


def _opt_out(protection: str, field: str, value: str, known: tuple[str, ...]) -> OptOut:
    text = f'annotated {ANNOTATION_NAMES[field]}: "{value}"'
    if value.lower() in known:
        return OptOut(protection, text)
    return OptOut(protection, f"{text}, which is not understood", understood=False)


_FOR_A_TIME = re.compile(r"false\s+(until|for)\s+(\S+)", re.ASCII | re.IGNORECASE)


def _evict(value: str | None) -> OptOut | None:
    """Parse our own annotation: true, false, ``false until 2026-12-01``, ``false for 4h``."""
    if value is None or value.lower() == "true":
        return None
    plain = _opt_out("optedOut", "evict", value, known=("false",))
    match = _FOR_A_TIME.fullmatch(value.strip())
    if match is None:
        return plain
    until = match[1].lower() == "until"
    end = _moment(match[2]) if until else _span(match[2])
    if end <= 0:
        return plain
    timed = _opt_out("optedOut", "evict", value, known=(value.lower(),))
    return timed._replace(until=end) if until else timed._replace(seconds=end)


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?", re.ASCII)


def _moment(text: str) -> float:
    """Parse ``2026-12-01`` (its first second in UTC) or ``2026-12-01T08:00Z`` as Unix seconds; 0 if malformed."""
    return unix_seconds(text) if _MOMENT.fullmatch(text.upper()) else 0.0


def _span(text: str) -> float:
    """Parse a duration such as ``4h``; return seconds, 0 if malformed."""
    try:
        return parse_go_duration(text).total_seconds()
    except ValueError:
        return 0.0


def evict_opt_out(annotations: Mapping[str, str] | None) -> OptOut | None:
    """Return the opt-out in the annotations of an owner or a namespace; None if there is none."""
    return _evict((annotations or {}).get(EVICT))
