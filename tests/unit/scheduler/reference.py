"""The scheduler's rules as plain loops over JSON: slow, obvious, and only for comparison.

Nothing is shared with the model: no arrays, no classes of pods, no caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
UNITS = {"m": 0.001, "Mi": 2**20, "Gi": 2**30}


@dataclass
class Cluster:
    """Nodes and the pods that stand on them."""

    nodes: list[Json]
    pods: list[Json]
    namespaces: dict[str, dict[str, str]]

    def on(self, node: Json) -> list[Json]:
        return [p for p in self.pods if p["spec"]["nodeName"] == node["metadata"]["name"]]


def amount(text: str, resource: str) -> int:
    for suffix, factor in UNITS.items():
        if text.endswith(suffix):
            value = float(text.removesuffix(suffix)) * factor
            break
    else:
        value = float(text)
    return round(value * 1000) if resource == "cpu" else round(value)


def request(pod: Json, resource: str, default: int = 0) -> int:
    total = 0
    for container in pod["spec"]["containers"]:
        asked = container.get("resources", {}).get("requests", {})
        total += amount(asked[resource], resource) if resource in asked else default
    return total


def labels(thing: Json) -> dict[str, str]:
    found: dict[str, str] = thing["metadata"].get("labels", {})
    return found


def holds(requirement: Json, of: dict[str, str]) -> bool:
    key, operator, values = (
        requirement["key"],
        requirement["operator"],
        requirement.get("values", []),
    )
    match operator:
        case "In":
            return of.get(key) in values and key in of
        case "NotIn":
            return key not in of or of[key] not in values
        case "Exists":
            return key in of
        case "DoesNotExist":
            return key not in of
    try:
        value, bound = int(of[key]), int(values[0])
    except (KeyError, ValueError):
        return False
    return value > bound if operator == "Gt" else value < bound


def selects(selector: Json | None, of: dict[str, str]) -> bool:
    if selector is None:
        return False
    equal = all(of.get(k) == v for k, v in selector.get("matchLabels", {}).items())
    return equal and all(holds(r, of) for r in selector.get("matchExpressions", []))


# -- node affinity and taints --------------------------------------------------------------------------


def node_affinity(pod: Json) -> Json:
    found: Json = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return found


def term_holds(term: Json, node: Json) -> bool:
    expressions = term.get("matchExpressions", [])
    return bool(expressions) and all(holds(e, labels(node)) for e in expressions)


def wanted_node(pod: Json, node: Json) -> bool:
    if any(labels(node).get(k) != v for k, v in pod["spec"].get("nodeSelector", {}).items()):
        return False
    required = node_affinity(pod).get(REQUIRED)
    return required is None or any(term_holds(t, node) for t in required["nodeSelectorTerms"])


def tolerated(pod: Json, taint: Json) -> bool:
    for toleration in pod["spec"].get("tolerations", []):
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("key") not in (None, "", taint["key"]):
            continue
        if toleration.get("operator") == "Exists":
            return True
        if toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def untolerated(pod: Json, node: Json, *effects: str) -> int:
    taints = node["spec"].get("taints", [])
    return sum(t["effect"] in effects and not tolerated(pod, t) for t in taints)


# -- resources -----------------------------------------------------------------------------------------


def used(cluster: Cluster, node: Json, resource: str, default: int = 0) -> int:
    return sum(request(p, resource, default) for p in cluster.on(node))


def room(cluster: Cluster, pod: Json, node: Json) -> bool:
    allocatable = node["status"]["allocatable"]
    if len(cluster.on(node)) + 1 > int(allocatable["pods"]):
        return False
    for resource in ("cpu", "memory"):
        asked = request(pod, resource)
        left = amount(allocatable[resource], resource) - used(cluster, node, resource)
        if asked > 0 and asked > left:
            return False
    return True


def least_allocated(cluster: Cluster, pod: Json, node: Json) -> int:
    scores = []
    for resource, default in (("cpu", 100), ("memory", 200 * 2**20)):
        capacity = amount(node["status"]["allocatable"][resource], resource)
        if capacity:
            total = used(cluster, node, resource, default) + request(pod, resource, default)
            scores.append(0 if total > capacity else (capacity - total) * 100 // capacity)
    return sum(scores) // len(scores) if scores else 0


def balance(cluster: Cluster, node: Json, pods: list[Json]) -> int:
    shares = []
    for resource in ("cpu", "memory"):
        capacity = amount(node["status"]["allocatable"][resource], resource)
        if capacity:
            total = used(cluster, node, resource) + sum(request(p, resource) for p in pods)
            shares.append(min(1.0, total / capacity))
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else 0.0
    return int((1 - deviation) * 100.0)


def balanced(cluster: Cluster, pod: Json, node: Json) -> int:
    after, before = balance(cluster, node, [pod]), balance(cluster, node, [])
    return 50 + (50 + after - before) // 2


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
    found: dict[str, int] = {}
    for node in cluster.nodes:
        if all(c["topologyKey"] in labels(node) for c in among) and eligible(pod, constraint, node):
            value = labels(node)[constraint["topologyKey"]]
            here = counted(cluster.on(node), constraint, pod["metadata"]["namespace"])
            found[value] = found.get(value, 0) + here
    return found


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
    found = []
    for node in nodes:
        name = node["metadata"]["name"]
        if name not in raw:
            found.append(0)
        else:
            found.append(100 if high == 0 else 100 * (high + low - raw[name]) // high)
    return found


# -- inter-pod affinity --------------------------------------------------------------------------------


def terms(pod: Json, kind: str) -> list[Json]:
    found: list[Json] = pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, [])
    return found


def weighted(pod: Json, kind: str) -> list[Json]:
    found: list[Json] = pod["spec"].get("affinity", {}).get(kind, {}).get(PREFERRED, [])
    return found


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
    nobody = not any(t["topologyKey"] in labels(w) for t in own for w in friends)
    return nobody and all(means(cluster, pod, t, pod) for t in own)


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
    found = {
        "TaintToleration": [100 - 100 * t // most if most else 100 for t in taints],
        "NodeResourcesFit": [least_allocated(cluster, pod, n) for n in nodes],
    }
    if request(pod, "cpu") or request(pod, "memory"):
        found["NodeResourcesBalancedAllocation"] = [balanced(cluster, pod, n) for n in nodes]
    preferred = node_affinity(pod).get(PREFERRED, [])
    if preferred:
        raw = [sum(t["weight"] for t in preferred if term_holds(t["preference"], n)) for n in nodes]
        largest = max(raw, default=0)
        found["NodeAffinity"] = [100 * r // largest if largest else 0 for r in raw]
    if constraints(pod, "ScheduleAnyway"):
        found["PodTopologySpread"] = spread_scores(cluster, pod, nodes)
    raw = [interpod_raw(cluster, pod, n) for n in nodes]
    low, span = min(raw, default=0), max(raw, default=0) - min(raw, default=0)
    found["InterPodAffinity"] = [int(100.0 * ((r - low) / span)) if span else 0 for r in raw]
    return found
