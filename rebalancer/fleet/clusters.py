"""The clusters of a fleet: their list, a file that the chart writes, and their records, in one ConfigMap.

The pods of one Indexed Job observe one cluster each, with read rights there. They share one ConfigMap, in which each
pod writes the record of its cluster.
"""

from __future__ import annotations

import enum
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import count, printable, quote_value
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.kube.resources import AccessRule
from rebalancer.policy.document import format_path, parse, validate
from rebalancer.policy.values import Labels, PositiveDuration, Section
from rebalancer.report.document import Block, Passage, ReportDocument, Table
from rebalancer.report.model import RunReport
from rebalancer.report.summary import Summary
from rebalancer.wire.kinds import CONFIG_MAPS
from rebalancer.wire.times import LAST_SECOND, rfc3339

FILE = "fleet.yaml"
"""Key of the list in its ConfigMap."""
STATUS = "-status"
"""Suffix of the ConfigMap with the records: its name is that of the list and this."""
_MAX_TEXT = 600
"""Characters of one text in a record: some hundred records fit into a ConfigMap."""

AHEAD = 300
"""Seconds that the clock of another pod may be ahead."""


def _matches(pattern: str, what: str) -> AfterValidator:
    """Return a check of a text: all of it has to match ``pattern``; else it is not ``what``."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{quote_value(text)} is not {what}")
        return text

    return AfterValidator(check)


_Name = Annotated[
    str,
    _matches(
        "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "a name of a cluster: at most 63 of a-z, 0-9 and -, and no - at its ends",
    ),
]
_MAX_ZONES = 10
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class PolicyByLabels(Section):
    """Policy values for all clusters with certain labels."""

    labels: Labels = Field(default_factory=dict)
    """Labels that the cluster must have; empty: every cluster."""
    policy: dict[str, Any] = Field(default_factory=dict)


class FleetCluster(Section):
    """One cluster."""

    name: _Name
    labels: Labels = Field(default_factory=dict)
    policy: dict[str, Any] = Field(default_factory=dict)
    """Values of its own policy, over those by labels."""


class Fleet(Section):
    """The list of clusters."""

    api_version: Literal["rebalancer/v1"] = Field(alias="apiVersion")
    kind: Literal["Fleet"]
    late_after: PositiveDuration = timedelta(minutes=15)
    """Time without a report after which a cluster is late."""
    policies: tuple[PolicyByLabels, ...] = ()
    clusters: tuple[FleetCluster, ...]

    def settings_of(self, cluster: FleetCluster) -> tuple[str, ...]:
        """Return the policy changes for a cluster as values of ``--set``: first those by labels, in order, then its own."""
        given = [
            one.policy
            for one in self.policies
            if one.labels.items() <= dict(cluster.labels).items()
        ]
        return tuple(text for values in (*given, cluster.policy) for text in _as_settings(values))


def _as_settings(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield ``KEY=VALUE`` for each value of a mapping that is no mapping itself, so that mappings are merged."""
    if isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from _as_settings(inner, (*path, key))
    else:
        yield f"{format_path(path)}={json.dumps(value)}"


def read_fleet(raw: bytes, source: str) -> Fleet:
    """Parse the list of clusters; messages name it ``source``.

    Raises:
        PolicyError: with all that is wrong in it.
    """
    document, problems = parse(raw, source)
    fleet: Fleet | None = None
    if document is not None and not problems:
        fleet, problems = validate(Fleet, document.data, document, ())
    if fleet is None:
        raise PolicyError([str(problem) for problem in problems])
    if not fleet.clusters:
        raise PolicyError([f"{source}: clusters: has none; name at least one"])
    names = [cluster.name for cluster in fleet.clusters]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise PolicyError([f"{source}: clusters: {twice} is there twice"])
    return fleet


def load_fleet(path: str) -> Fleet:
    """Read the list of clusters from a file.

    Raises:
        PolicyError: it cannot be read, or something is wrong in it.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise PolicyError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    return read_fleet(raw, path)


class ClusterRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of a cluster's last observation."""

    at: Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
    """The end of the observation, in Unix seconds."""
    exit_code: int
    error: str = ""
    """Why it failed before it had a report."""
    nodes: _Count = 0
    pods: _Count = 0
    unmet: _Count | None = None
    """Rules that are unmet; None: not known."""
    planned: _Count = 0
    """Moves that a run would make."""
    standstill: tuple[str, ...] = ()
    lost_with_zone: dict[str, _Count] = msgspec.field(default_factory=dict)
    """Zone -> number of workloads of several pods that lose all of them with the zone; zones with most first, without zones of none."""


def record_of(report: RunReport, exit_code: int, at: float) -> ClusterRecord:
    """Return the record of a dry run with a report. ``at``: Unix seconds."""
    return ClusterRecord(
        at=at,
        exit_code=exit_code,
        nodes=len(report.snapshot.nodes),
        pods=len(report.snapshot.pods),
        unmet=Summary(report).unmet_now,
        planned=len(report.outcomes),
        standstill=tuple(map(shorten, report.standstill[:4])),
        lost_with_zone=_count_lost_by_zone(report),
    )


def _count_lost_by_zone(report: RunReport) -> dict[str, int]:
    lost = {shorten(loss.zone): len(loss.lost) for loss in report.zones.losses if loss.lost}
    return dict(sorted(lost.items(), key=lambda item: (-item[1], item[0]))[:_MAX_ZONES])


def shorten(text: str) -> str:
    """Return the text as one line of limited length, as it is stored in a record."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}..."


class StatusMap:
    """The ConfigMap with the record of each cluster, under the cluster's name."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self._where = client, (namespace, name)

    def read(self) -> dict[str, ClusterRecord | None]:
        """Return the records; None for one that people or other versions wrote and that cannot be read.

        Raises:
            ClusterReadError: the ConfigMap does not exist, or cannot be read.
        """
        data = ConfigMapStore(self._client, *self._where).require().data
        records: dict[str, ClusterRecord | None] = {}
        for name, text in data.items():
            try:
                records[name] = msgspec.json.decode(text, type=ClusterRecord)
            except (ValueError, TypeError, RecursionError):
                records[name] = None
        return records

    def write(self, cluster: str, record: ClusterRecord) -> None:
        """Write the record of one cluster, and touch no other: pods write at the same time.

        Raises:
            ClusterReadError: it could not be written.
        """
        text = msgspec.json.encode(record, order="sorted").decode()
        body = msgspec.json.encode({"data": {cluster: text}})
        rule = AccessRule.of("patch", CONFIG_MAPS, *self._where)
        last = self._client.last_words
        last.expect(last.patch(CONFIG_MAPS.path(*self._where), body), rule)


class ClusterCondition(enum.StrEnum):
    """The condition of a cluster in the fleet's report; members are in order, worst first."""

    FAILED = "failed"
    """It could not be read; the last observation has the reason."""
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
    """The last record of the cluster; None: it has never reported."""
    condition: ClusterCondition
    why: str
    """The reason in one line; empty if there is none."""


@dataclass(frozen=True, slots=True)
class FleetReport:
    """All clusters at one time."""

    at: float
    """Time of the report, in Unix seconds."""
    lines: tuple[ClusterLine, ...]
    """The lines of all clusters, worst first."""

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


def document_of(report: FleetReport) -> ReportDocument:
    """Return the report in all its forms."""
    return ReportDocument(list(_blocks(report)), as_data(report))


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
    """Return how many workloads would be lost with the worst zone, and its name."""
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
