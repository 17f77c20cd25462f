"""The rules that look at a node alone, and at what it holds, as plain loops; see reference.py."""

from __future__ import annotations

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
    own: dict[str, str] = thing["metadata"].get("labels", {})
    return own


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
    affinity: Json = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    return affinity


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
