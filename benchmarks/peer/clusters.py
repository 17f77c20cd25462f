"""Small random clusters, as they are when something has gone wrong: pods stand where no scheduler would put them.

Nothing runs in them: the embedded API server answers, and no controller changes what is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver.kinds import BUDGET, BY_NAME, POD, Json
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.wire.times import rfc3339

NAMESPACES = ("a", "b", "kube-system")
POOL = {"pool": "blue"}
_HOUR = 3600.0
_ZONES = ("zone-a", "zone-b", "zone-c")
_KINDS = ("Deployment",) * 4 + ("ReplicaSet",) * 2 + ("StatefulSet",) * 2 + ("Job", "")
_TAINTS = (
    {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
    {"key": "soft", "effect": "PreferNoSchedule"},
)


@contextmanager
def frozen_cluster(random: Random, now: float) -> Iterator[EmbeddedCluster]:
    """Yield a cluster with 3 to 6 nodes and 3 to 8 workloads at ``now`` (Unix seconds)."""
    with EmbeddedCluster(EmbeddedClock(now - 1)) as cluster:
        cluster.access.anonymous = True  # client-go sends no token without TLS
        for namespace in NAMESPACES[:2]:
            cluster.apply(manifests.namespace(namespace))
        cluster.apply(_priority_class("high", 1000))
        nodes = [f"n{index}" for index in range(random.randint(3, 6))]
        for index, name in enumerate(nodes):
            cluster.add_node(
                name,
                random.choice(_ZONES),
                cpu="4",
                memory="8Gi",
                labels=POOL if index < 2 or random.random() < 0.3 else {},
                taints=[random.choice(_TAINTS)] if index > 1 and random.random() < 0.3 else [],
            )
        cluster.settle()
        for index in range(random.randint(3, 8)):
            _workload(cluster, random, f"w{index}", nodes, now)
        cluster.clock.set(now)
        yield cluster


def _priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _workload(
    cluster: EmbeddedCluster, random: Random, name: str, nodes: list[str], now: float
) -> None:
    """Add a workload, its pods on nodes of one's choosing, and maybe a PodDisruptionBudget."""
    kind, namespace = random.choice(_KINDS), random.choice(NAMESPACES)
    labels = {"app": random.choice(("x", "y")), "name": name}
    spec = _pod_spec(random, labels)
    count = random.choice((1, 2, 2, 3, 4, 5)) if kind else 1
    if kind == "Job":
        spec["restartPolicy"] = "Never"
    reference = _controllers(cluster, kind, namespace, name, labels, spec, count) if kind else None
    # Few nodes, so that replicas stand together.
    near = random.sample(nodes, random.randint(1, min(3, len(nodes))))
    for index in range(count):
        metadata: Json = {"name": f"{name}-{index}", "namespace": namespace, "labels": labels}
        if reference is not None:
            metadata["ownerReferences"] = [reference]
        own = {**spec, "nodeName": random.choice(near)}
        (pod,) = cluster.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": own}
        )
        _runs(cluster, random, pod, now)
    if random.random() < 0.3:
        budget = manifests.pdb(name, {"name": name}, namespace=namespace, maxUnavailable=1)
        (stored,) = cluster.apply(budget)
        status = {
            "disruptionsAllowed": 1,
            "currentHealthy": count,
            "desiredHealthy": count - 1,
            "expectedPods": count,
            "observedGeneration": 1,
        }
        _set(cluster, BUDGET, stored, {"status": status})


def _controllers(
    cluster: EmbeddedCluster,
    kind: str,
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    spec: Json,
    count: int,
) -> Json:
    """Add the controllers of a workload; return the reference of its pods."""
    reference: Json | None = None
    for each in ("Deployment", "ReplicaSet") if kind == "Deployment" else (kind,):
        version = "batch/v1" if each == "Job" else "apps/v1"
        metadata: Json = {"name": name, "namespace": namespace}
        if reference is not None:
            metadata["ownerReferences"] = [reference]
        wanted: Json = {"template": {"metadata": {"labels": dict(labels)}, "spec": spec}}
        if each == "Job":
            wanted |= {"parallelism": count, "completions": count}
        else:
            wanted |= {"replicas": count, "selector": {"matchLabels": dict(labels)}}
        if each == "StatefulSet":
            wanted["serviceName"] = name
        made = {"apiVersion": version, "kind": each, "metadata": metadata, "spec": wanted}
        (stored,) = cluster.apply(made)
        status: Json = {"observedGeneration": stored["metadata"].get("generation", 1)}
        for field in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"):
            status[field] = count
        if each == "Job":
            status = {"active": count}
        _set(cluster, BY_NAME[version, each], stored, {"status": status})
        reference = {
            "apiVersion": version,
            "kind": each,
            "name": name,
            "uid": stored["metadata"]["uid"],
            "controller": True,
        }
    if reference is None:
        raise ValueError("a workload has a controller")
    return reference


def _pod_spec(random: Random, labels: Mapping[str, str]) -> Json:
    requests = {"cpu": random.choice(("100m", "500m", "1")), "memory": "128Mi"}
    spec: Json = {
        "containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]
    }
    selector = {"matchLabels": {"name": labels["name"]}}
    key = random.choice(("kubernetes.io/hostname", "topology.kubernetes.io/zone"))
    term = {"topologyKey": key, "labelSelector": selector}
    rule = random.choice(("", "", "spread", "spread", "apart", "apart", "node", "selector"))
    if rule == "spread":
        unmet = random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
        constraint = {"maxSkew": 1, "whenUnsatisfiable": unmet, **term}
        spec["topologySpreadConstraints"] = [constraint]
    elif rule == "apart":
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"] = {"podAntiAffinity": required}
    elif rule == "node":
        zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        required_on = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required_on}
    elif rule == "selector":
        spec["nodeSelector"] = POOL
    if random.random() < 0.15:
        spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if random.random() < 0.2:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if (name := random.choice(("",) * 6 + ("high", "high", "system-cluster-critical"))) != "":
        spec["priorityClassName"] = name
        spec["priority"] = {"high": 1000}.get(name, 2_000_000_000)
    return spec


def _runs(cluster: EmbeddedCluster, random: Random, pod: Json, now: float) -> None:
    """Let a pod run, for ten minutes or a month; some restart again and again."""
    created = rfc3339(now - random.choice((600.0, 2 * _HOUR, 48 * _HOUR, 700 * _HOUR)))
    crashes = random.random() < 0.04
    state: Json = {"running": {"startedAt": created}}
    if crashes:
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {
        "name": "main",
        "ready": not crashes,
        "restartCount": random.choice((0, 0, 0, 4, 150)),
        "state": state,
        "image": "x",
        "imageID": "",
    }
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": created},
        {"type": "Ready", "status": str(not crashes), "lastTransitionTime": created},
    ]
    status = {
        "phase": "Running",
        "startTime": created,
        "conditions": conditions,
        "containerStatuses": [container],
    }
    metadata = {**pod["metadata"], "creationTimestamp": created}
    _set(cluster, POD, pod, {"metadata": metadata, "status": status})


def _set(cluster: EmbeddedCluster, kind: Any, stored: Json, fields: Json) -> None:
    with cluster.store.lock:
        cluster.store.modify(kind, stored, lambda obj: obj.update(fields), anything=True)
