"""One page over all clusters of a fleet, worst first: as text, as data, and in HTML."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.plain_text import count
from rebalancer.fleet.clusters import (
    AHEAD,
    ClusterRecord,
    Fleet,
    FleetCluster,
    shorten,
)
from rebalancer.report.document import Block, Passage, ReportDocument, Table
from rebalancer.wire.times import rfc3339


class ClusterCondition(enum.StrEnum):
    """The condition of a cluster in the fleet's report; members are in order, worst first."""

    FAILED = "failed"
    """It could not be read, and the last observation said why."""
    LATE = "late"
    """It has reported nothing for too long, or never."""
    STANDS_STILL = "stands still"
    UNMET = "unmet rules"
    WELL = "well"


_ORDER = {condition: place for place, condition in enumerate(ClusterCondition)}


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """One row of the page: a cluster."""

    cluster: FleetCluster
    record: ClusterRecord | None
    """None: it has never reported."""
    condition: ClusterCondition
    why: str
    """In one line; empty where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class FleetReport:
    """All clusters at one time."""

    at: float
    """Unix seconds."""
    lines: tuple[ClusterLine, ...]
    """Worst first."""

    @property
    def is_incomplete(self) -> bool:
        """Whether a cluster failed, or has not reported."""
        unknown = (ClusterCondition.FAILED, ClusterCondition.LATE)
        return any(line.condition in unknown for line in self.lines)

    @property
    def title(self) -> str:
        """One line with the number of clusters in each condition."""
        numbers = Counter(line.condition for line in self.lines)
        parts = [f"{numbers[condition]} {condition}" for condition in _ORDER if numbers[condition]]
        return f"{count(len(self.lines), 'cluster')}: {', '.join(parts)}"


def report_on(fleet: Fleet, records: Mapping[str, ClusterRecord | None], now: float) -> FleetReport:
    """Return the page over all clusters of the list at ``now`` (Unix seconds).

    ``records``: cluster -> its record; None for a record that cannot be read.
    """
    late_after = fleet.late_after.total_seconds()
    lines = [_line(one, records, now, late_after) for one in fleet.clusters]
    return FleetReport(now, tuple(sorted(lines, key=_badness)))


def _badness(line: ClusterLine) -> tuple[int, int, str]:
    unmet = 0 if line.record is None else line.record.unmet or 0
    return _ORDER[line.condition], -unmet, line.cluster.name


def _line(
    cluster: FleetCluster,
    records: Mapping[str, ClusterRecord | None],
    now: float,
    late_after: float,
) -> ClusterLine:
    record = records.get(cluster.name)
    if record is None:
        unread = cluster.name in records
        why = "its record cannot be read" if unread else "it has never reported"
        return ClusterLine(cluster, None, ClusterCondition.LATE, why)
    if record.at - now > AHEAD:
        why = f"its record is of {rfc3339(record.at)}, which is to come: a clock is wrong"
        return ClusterLine(cluster, record, ClusterCondition.LATE, why)
    if now - record.at > late_after:
        last = f"; the last said: {shorten(record.error)}" if record.error else ""
        why = f"nothing was reported since {rfc3339(record.at)}{last}"
        return ClusterLine(cluster, record, ClusterCondition.LATE, why)
    return ClusterLine(cluster, record, *_condition_of(record))


def _condition_of(record: ClusterRecord) -> tuple[ClusterCondition, str]:
    if record.error:
        return ClusterCondition.FAILED, shorten(record.error)
    if record.standstill:
        return ClusterCondition.STANDS_STILL, shorten("; ".join(record.standstill))
    return (ClusterCondition.UNMET if record.unmet else ClusterCondition.WELL), ""


_HEADS = ("CLUSTER", "STATE", "NODES", "PODS", "UNMET", "MOVES", "ZONE LOSS", "EXIT", "OBSERVED")


def render_report(report: FleetReport, form: str) -> str:
    """Return the page in a form, one of ``rebalancer.report.document.FORMS``."""
    return ReportDocument(list(_blocks(report)), as_data(report)).write(form)


def _blocks(report: FleetReport) -> Iterator[Block]:
    """Yield a table, and below it one sentence for each cluster that needs attention."""
    yield from (report.title, "")
    yield Table([_HEADS, *(_cells(line) for line in report.lines)], "  ", (0, 1, 8))
    yield ""
    for line in report.lines:
        if line.why:
            yield Passage(f"{line.cluster.name}: {line.why}", "", "    ")


def _cells(line: ClusterLine) -> tuple[str, ...]:
    name, condition, record = line.cluster.name, line.condition.value, line.record
    if record is None:
        return (name, condition, *["-"] * (len(_HEADS) - 2))
    at = rfc3339(record.at)[:16].replace("T", " ")
    numbers = (record.nodes, record.pods, record.unmet, record.planned)
    # Where there was an error, nothing was read.
    cells = ["-" if record.error or number is None else f"{number:,}" for number in numbers]
    return (name, condition, *cells, _zone_loss(record), str(record.exit_code), at)


def _zone_loss(record: ClusterRecord) -> str:
    """Return how many workloads the worst zone takes with it, and its name."""
    if record.error:
        return "-"
    zone, lost = max(
        record.lost_with_zone.items(), key=lambda item: (item[1], item[0]), default=("", 0)
    )
    return f"{lost:,} ({shorten(zone)})" if zone else "0"


def as_data(report: FleetReport) -> dict[str, Any]:
    """Return ``apiVersion: rebalancer/v1, kind: FleetReport``; times in RFC 3339."""
    return {
        "apiVersion": API_VERSION,
        "kind": "FleetReport",
        "at": rfc3339(report.at),
        "clusters": [
            {
                "name": line.cluster.name,
                "labels": dict(sorted(line.cluster.labels.items())),
                "state": line.condition.value,
                "why": line.why,
                "observed": None if line.record is None else _record_data(line.record),
            }
            for line in report.lines
        ],
    }


def _record_data(record: ClusterRecord) -> dict[str, Any]:
    data = {
        field.encode_name: getattr(record, field.name)
        for field in msgspec.structs.fields(ClusterRecord)
    }
    return data | {"at": rfc3339(record.at)}
