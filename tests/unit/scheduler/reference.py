"""The scheduler's rules as plain loops over JSON: slow, obvious, and only for comparison.

Nothing is shared with the model: no arrays, no classes of pods, no caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from tests.unit.scheduler.reference_nodes import (
    HOSTNAME,
    PREFERRED,
    REQUIRED,
    Cluster,
    Json,
    balanced,
    labels,
    least_allocated,
    node_affinity,
    request,
    room,
    selects,
    term_holds,
    untolerated,
    wanted_node,
)

__all__ = ["Cluster", "feasible", "scores"]

# -- topology spread -----------------------------------------------------------------------------------


def constraints(pod: Json, action: str) -> list[Json]:
    declared = pod["spec"].get("topologySpreadConstraints", [])
    return [c for c in declared if c["whenUnsatisfiable"] == action]


def counted(pods: list[Json], constraint: Json, namespace: str) -> int:
    selector = constraint.get("labelSelector")
    if selector == {}:
        return 0
    return sum(
        "deletionTimestamp" not in p["metadata"]
        and p["metadata"]["namespace"] == namespace
        and selects(selector, labels(p))
        for p in pods
    )


def eligible(pod: Json, constraint: Json, node: Json) -> bool:
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not wanted_node(pod, node):
        return False
    honour = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
    return not (honour and untolerated(pod, node, "NoSchedule", "NoExecute"))


def domain_counts(
    cluster: Cluster, pod: Json, constraint: Json, among: list[Json]
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in cluster.nodes:
        if all(c["topologyKey"] in labels(node) for c in among) and eligible(pod, constraint, node):
            value = labels(node)[constraint["topologyKey"]]
            here = counted(cluster.on(node), constraint, pod["metadata"]["namespace"])
            counts[value] = counts.get(value, 0) + here
    return counts


def spread_fits(cluster: Cluster, pod: Json, node: Json) -> bool:
    hard = constraints(pod, "DoNotSchedule")
    for constraint in hard:
        if constraint["topologyKey"] not in labels(node):
            return False
        counts = domain_counts(cluster, pod, constraint, hard)
        least = min(counts.values(), default=0)
        if len(counts) < constraint.get("minDomains", 1):
            least = 0
        itself = int(selects(constraint.get("labelSelector"), labels(pod)))
        here = counts.get(labels(node)[constraint["topologyKey"]], 0)
        if here + itself - least > constraint["maxSkew"]:
            return False
    return True


def spread_scores(cluster: Cluster, pod: Json, nodes: list[Json]) -> list[int]:
    soft = constraints(pod, "ScheduleAnyway")
    keyed = [n for n in nodes if all(c["topologyKey"] in labels(n) for c in soft)]
    raw: dict[str, int] = {}
    for node in keyed:
        score = 0.0
        for constraint in soft:
            key = constraint["topologyKey"]
            if key == HOSTNAME:
                count = counted(cluster.on(node), constraint, pod["metadata"]["namespace"])
                size = len(keyed)
            else:
                count = domain_counts(cluster, pod, constraint, soft).get(labels(node)[key], 0)
                size = len({labels(n)[key] for n in keyed})
            score += count * math.log(size + 2) + float(constraint["maxSkew"] - 1)
        raw[node["metadata"]["name"]] = math.floor(score + 0.5)
    low, high = min(raw.values(), default=0), max(raw.values(), default=0)
    scores = []
    for node in nodes:
        name = node["metadata"]["name"]
        if name not in raw:
            scores.append(0)
        else:
            scores.append(100 if high == 0 else 100 * (high + low - raw[name]) // high)
    return scores


# -- inter-pod affinity --------------------------------------------------------------------------------


def terms(pod: Json, kind: str) -> list[Json]:
    listed: list[Json] = pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])
    return listed


def weighted(pod: Json, kind: str) -> list[Json]:
    listed: list[Json] = pod["spec"].get("affinity", {}).get(kind, {}).get(PREFERRED, [])
    return listed


def means(cluster: Cluster, owner: Json, term: Json, other: Json) -> bool:
    """Whether a term of the owner means another pod."""
    namespace = other["metadata"]["namespace"]
    names, selector = term.get("namespaces", []), term.get("namespaceSelector")
    if not names and selector is None:
        names = [owner["metadata"]["namespace"]]
    known = cluster.namespaces.get(namespace, {})
    return (namespace in names or selects(selector, known)) and selects(
        term.get("labelSelector"), labels(other)
    )


def placed(cluster: Cluster) -> Iterator[tuple[Json, Json]]:
    for node in cluster.nodes:
        for pod in cluster.on(node):
            yield pod, node


def same_domain(one: Json, other: Json, key: str) -> bool:
    return key in labels(one) and labels(one)[key] == labels(other).get(key)


def interpod_fits(cluster: Cluster, pod: Json, node: Json) -> bool:
    for other, where in placed(cluster):
        for term in terms(other, "podAntiAffinity"):
            if means(cluster, other, term, pod) and same_domain(where, node, term["topologyKey"]):
                return False
        for term in terms(pod, "podAntiAffinity"):
            if means(cluster, pod, term, other) and same_domain(where, node, term["topologyKey"]):
                return False
    own = terms(pod, "podAffinity")
    if any(t["topologyKey"] not in labels(node) for t in own):
        return False
    friends = [
        where for other, where in placed(cluster) if all(means(cluster, pod, t, other) for t in own)
    ]
    if all(any(same_domain(w, node, t["topologyKey"]) for w in friends) for t in own):
        return True
    no_match = not any(t["topologyKey"] in labels(w) for t in own for w in friends)
    return no_match and all(means(cluster, pod, t, pod) for t in own)


def interpod_raw(cluster: Cluster, pod: Json, node: Json) -> int:
    total = 0
    for other, where in placed(cluster):
        pulls: list[tuple[int, Json, Json, Json]] = []
        for sign, kind in ((1, "podAffinity"), (-1, "podAntiAffinity")):
            pulls += [
                (sign * w["weight"], w["podAffinityTerm"], pod, other) for w in weighted(pod, kind)
            ]
            pulls += [
                (sign * w["weight"], w["podAffinityTerm"], other, pod)
                for w in weighted(other, kind)
            ]
        pulls += [(1, term, other, pod) for term in terms(other, "podAffinity")]
        for weight, term, owner, meant in pulls:
            if means(cluster, owner, term, meant) and same_domain(where, node, term["topologyKey"]):
                total += weight
    return total


# -- all together --------------------------------------------------------------------------------------


def feasible(cluster: Cluster, pod: Json) -> list[Json]:
    checks: list[Callable[[Cluster, Json, Json], bool]] = [room, spread_fits, interpod_fits]
    return [
        node
        for node in cluster.nodes
        if not node["spec"].get("unschedulable")
        and wanted_node(pod, node)
        and not untolerated(pod, node, "NoSchedule", "NoExecute")
        and all(check(cluster, pod, node) for check in checks)
    ]


def scores(cluster: Cluster, pod: Json, nodes: list[Json]) -> dict[str, list[int]]:
    """Return plug-in -> unweighted scores over the nodes that are scored."""
    taints = [untolerated(pod, n, "PreferNoSchedule") for n in nodes]
    most = max(taints, default=0)
    by_plugin = {
        "TaintToleration": [100 - 100 * t // most if most else 100 for t in taints],
        "NodeResourcesFit": [least_allocated(cluster, pod, n) for n in nodes],
    }
    if request(pod, "cpu") or request(pod, "memory"):
        by_plugin["NodeResourcesBalancedAllocation"] = [balanced(cluster, pod, n) for n in nodes]
    preferred = node_affinity(pod).get(PREFERRED, [])
    if preferred:
        raw = [sum(t["weight"] for t in preferred if term_holds(t["preference"], n)) for n in nodes]
        largest = max(raw, default=0)
        by_plugin["NodeAffinity"] = [100 * r // largest if largest else 0 for r in raw]
    if constraints(pod, "ScheduleAnyway"):
        by_plugin["PodTopologySpread"] = spread_scores(cluster, pod, nodes)
    raw = [interpod_raw(cluster, pod, n) for n in nodes]
    low, span = min(raw, default=0), max(raw, default=0) - min(raw, default=0)
    by_plugin["InterPodAffinity"] = [int(100.0 * ((r - low) / span)) if span else 0 for r in raw]
    return by_plugin
