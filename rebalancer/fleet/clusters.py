"""The clusters of a fleet: their list, a file that the chart writes, and their records, in one ConfigMap.

The pods of one Indexed Job observe one cluster each, with read rights there. They share one ConfigMap, in which each
pod writes the record of its cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import printable, quote_value
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.kube.resources import AccessRule
from rebalancer.policy.document import format_path, parse, validate
from rebalancer.policy.values import Labels, PositiveDuration, Section
from rebalancer.report.model import RunReport
from rebalancer.report.summary import Summary
from rebalancer.wire.kinds import CONFIG_MAPS
from rebalancer.wire.times import LAST_SECOND

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
    """A cluster that has reported nothing for so long is late."""
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
    """When it ended, in Unix seconds."""
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
    """Zone -> workloads of several pods that lose all of them if it goes; zones with most, without those of none."""


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
        rule = AccessRule("patch", "", CONFIG_MAPS.plural, *self._where)
        last = self._client.last_words
        last.expect(last.patch(CONFIG_MAPS.path(*self._where), body), rule)
