"""The annotation by which a workload declines advice."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from rebalancer.base.plain_text import quote_value
from rebalancer.doctor.advice import Topic
from rebalancer.doctor.workloads import RolledWorkload

ADVISE = "rebalancer/advise"
"""Annotation of a Deployment or StatefulSet: ``false``, or ``without`` and topics, separated by commas."""
_WITHOUT = "without "


def find_declined(workload: RolledWorkload) -> tuple[AbstractSet[Topic], str]:
    """Return the topics on which a workload wants no advice, and what is wrong with its annotation, or an empty text.

    An annotation that is not understood declines nothing.
    """
    value = (workload.metadata.annotations or {}).get(ADVISE)
    if value is None or value.strip().lower() == "true":
        return frozenset(), ""
    if value.strip().lower() == "false":
        return frozenset(Topic), ""
    names = [name.strip() for name in value.strip().removeprefix(_WITHOUT).split(",")]
    known = {topic.value for topic in Topic}
    if not value.strip().startswith(_WITHOUT) or not known.issuperset(names):
        wrong = (
            f"{workload.ref}: {ADVISE}: {quote_value(value)} is not understood, and declines nothing: write false, or"
            f" without TOPIC,... ({', '.join(sorted(known))})"
        )
        return frozenset(), wrong
    return frozenset(map(Topic, names)), ""
