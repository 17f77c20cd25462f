"""Drawings of a cluster for the demo: zones with their pods, workloads with their replicas per zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.controllers.pods import controller_of, is_active
from rebalancer.embedded.manifests import ZONE

ZoneCounts = Mapping[str, Counter[str]]
"""Workload -> zone -> replicas."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod with its node and zone."""

    name: str
    uid: str
    workload: str
    node: str
    zone: str


def list_placed(cluster: EmbeddedCluster) -> list[PlacedPod]:
    """Return the pods that count as replicas, by name."""
    zones = zones_of(cluster)
    pods = []
    for pod in cluster.objects("Pod"):
        if not is_active(pod):
            continue
        node = pod["spec"].get("nodeName", "")
        metadata = pod["metadata"]
        pods.append(
            PlacedPod(
                metadata["name"], metadata["uid"], workload_of(pod), node, zones.get(node, "")
            )
        )
    return pods


def zones_of(cluster: EmbeddedCluster) -> dict[str, str]:
    """Return the zone of every node."""
    return {
        node["metadata"]["name"]: node["metadata"]["labels"].get(ZONE, "")
        for node in cluster.objects("Node")
    }


def workload_of(pod: Mapping[str, Any]) -> str:
    """Return the name of a pod's workload: the Deployment, not its ReplicaSet."""
    reference = controller_of(pod)
    if reference is None:
        return str(pod["metadata"]["name"])
    name = reference["name"]
    return name.rsplit("-", 1)[0] if reference["kind"] == "ReplicaSet" else name


def zone_counts(pods: Sequence[PlacedPod]) -> dict[str, Counter[str]]:
    """Return the number of replicas per workload and zone."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        counts.setdefault(pod.workload, Counter())[pod.zone] += 1
    return counts


def predict_counts(
    before: ZoneCounts, moves: Sequence[Mapping[str, Any]]
) -> dict[str, Counter[str]]:
    """Return the counts of :func:`zone_counts` after the moves, each landed in its most probable zone.

    ``moves`` are those of a JSON report; see :func:`move_zones`.
    """
    counts = {workload: Counter(zones) for workload, zones in before.items()}
    for move in moves:
        workload = move["owner"].rsplit("/", 1)[1]
        counts[workload][move["from_zone"]] -= 1
        counts[workload][move["to_zone"]] += 1
    return counts


def move_zones(
    moves: Sequence[Mapping[str, Any]], zones: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the moves of a JSON report with ``from_zone``, and the most probable ``to_zone``."""
    zoned = []
    for move in moves:
        chances: Counter[str] = Counter()
        for landing in move["landings"]:
            chances[zones[landing["node"]]] += landing["probability"]
        likely = max(sorted(chances), key=lambda zone: chances[zone]) if chances else ""
        zoned.append({**move, "from_zone": zones.get(move["from"], ""), "to_zone": likely})
    return zoned


def draw_zones(
    pods: Sequence[PlacedPod], zones: Sequence[str], present: Sequence[str], new: frozenset[str]
) -> list[str]:
    """Return the zones with their pods, one per line; those with a uid in ``new`` are marked."""
    lines = []
    for zone in zones:
        shown = [
            f"{p.name} ({p.node}{', new' if p.uid in new else ''})" for p in pods if p.zone == zone
        ]
        if not shown:
            shown = ["-" if zone in present else "(no node)"]
        lines += [f"  {zone if i == 0 else ' ' * len(zone)}   {pod}" for i, pod in enumerate(shown)]
    return lines


def draw_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with columns as wide as their widest cell."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, ["-" * width for width in widths], *rows)
    ]
    return [f"  {line}" for line in lines]


def format_counts(counts: Mapping[str, int], zones: Sequence[str]) -> str:
    """Return replicas per zone as ``2/1/0``."""
    return "/".join(str(counts.get(zone, 0)) for zone in zones)
