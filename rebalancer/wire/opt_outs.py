"""What the annotations of a pod, its owner or its namespace say against moving it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from rebalancer.durations import parse_go_duration
from rebalancer.wire.pods import ANNOTATION_NAMES, PodAnnotations

EVICT = ANNOTATION_NAMES["evict"]


class OptOut(NamedTuple):
    """One annotation that protects."""

    protection: str
    """Name of the protection (``rebalancer.snapshot.protect.NAMES``)."""
    text: str
    """The annotation as it stands there."""
    seconds: float = math.inf
    """How long it protects from the pod's start."""


@lru_cache(1024)
def opt_outs(annotations: PodAnnotations) -> tuple[OptOut, ...]:
    """Return what protects a pod with these annotations. A value that is not understood protects, and is named."""
    return tuple(_of_pod(annotations))


def _of_pod(annotations: PodAnnotations) -> Iterator[OptOut]:
    for field in ("evict", "peer_evict"):
        value = getattr(annotations, field)
        if value is not None and value.lower() != "true":
            yield _opt_out("optedOut", field, value, known=("false",))
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
    return OptOut(
        protection, text if value.lower() in known else f"{text}, which is not understood"
    )


def opted_out(annotations: Mapping[str, str] | None) -> bool:
    """Return whether an owner or a namespace with these annotations keeps its pods where they are."""
    value = (annotations or {}).get(EVICT)
    return value is not None and value.lower() != "true"
