"""What-if edits of workloads: change the number of replicas."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from rebalancer.base.errors import PolicyError
from rebalancer.whatif.objects import Json, Objects, controller, is_ready, unschedule

KINDS = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
_MAX_REPLICAS = 150_000
"""Pods: as many as Kubernetes supports in one cluster (``considerations for large clusters``)."""
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True, slots=True)
class Scale:
    """A new number of replicas for one workload."""

    kind: str
    namespace: str
    name: str
    replicas: int

    @property
    def ref(self) -> str:
        """``Kind/namespace/name``."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @staticmethod
    def parse(text: str) -> Scale:
        """Parse ``KIND/NAMESPACE/NAME=N``.

        Raises:
            PolicyError: the text has another form.
        """
        ref, _, number = text.partition("=")
        parts = ref.split("/")
        kinds = {kind.lower(): kind for kind in KINDS}
        if len(parts) != 3 or not all(parts) or not _is_number(number):
            raise PolicyError([f"--scale {text}: write KIND/NAMESPACE/NAME=REPLICAS"])
        if parts[0].lower() not in kinds:
            raise PolicyError([f"--scale {text}: the kind is one of {', '.join(KINDS)}"])
        replicas = int(number) if len(number) <= len(str(_MAX_REPLICAS)) else _MAX_REPLICAS + 1
        if replicas > _MAX_REPLICAS:
            raise PolicyError(
                [f"--scale {text}: a cluster has no room for more than {_MAX_REPLICAS:,} pods"]
            )
        return Scale(kinds[parts[0].lower()], parts[1], parts[2], replicas)


def scale(objects: Objects, wanted: Scale) -> None:
    """Add pending pods, or delete pods as the controller would, until the number is right.

    Raises:
        PolicyError: there is no such workload, it is in the middle of a rollout, or there is no pod or template to copy.
    """
    workload = objects.find(wanted.kind, wanted.name, wanted.namespace)
    if workload is None:
        raise PolicyError([f"--scale {wanted.ref}: there is no such workload in the snapshot"])
    maker = _maker(objects, wanted, workload)
    for changed in (workload, maker):
        changed["spec"] = {**(changed.get("spec") or {}), "replicas": wanted.replicas}
        status = dict(changed.get("status") or {})
        counted = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
        changed["status"] = {**status, **dict.fromkeys(counted, wanted.replicas)}
    pods = objects.pods_of({maker["metadata"]["uid"]})
    if len(pods) > wanted.replicas:
        surplus = _order_of_deletion(wanted.kind, pods)[: len(pods) - wanted.replicas]
        gone = {id(pod) for pod in surplus}
        objects.items[:] = [item for item in objects.items if id(item) not in gone]
    names = {pod["metadata"]["name"] for pod in pods}
    free = (n for n in count() if _pod_name(wanted, maker, n) not in names)
    for number in islice(free, max(0, wanted.replicas - len(pods))):
        objects.items.append(_new_pod(wanted, maker, number, pods[-1] if pods else None))


def _maker(objects: Objects, wanted: Scale, workload: Json) -> Json:
    """Return the controller that creates the pods: the workload itself, or a Deployment's single ReplicaSet in use."""
    if wanted.kind != "Deployment":
        return workload
    uid = workload["metadata"]["uid"]
    sets = [one for one in objects.of_kind("ReplicaSet") if controller(one).get("uid") == uid]
    used = [one for one in sets if objects.pods_of({one["metadata"]["uid"]})]
    if len(used) > 1:
        raise PolicyError([f"--scale {wanted.ref}: it is in the middle of a rollout"])
    if not (used or sets):
        raise PolicyError([f"--scale {wanted.ref}: its ReplicaSet is not in the snapshot"])
    newest = max(sets, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""))
    return (used or [newest])[0]


def _order_of_deletion(kind: str, pods: list[Json]) -> list[Json]:
    """Return the pods in the order in which they would be deleted.

    StatefulSets delete the highest ordinal first. ReplicaSets (``pkg/controller/controller_utils.go:
    ActivePodsWithRanks``): unscheduled, then not ready, then the lowest deletion cost, then those with most siblings
    on their node, then the youngest.
    """
    if kind == "StatefulSet":
        return sorted(pods, key=lambda pod: -_ordinal(pod["metadata"]["name"]))
    siblings = Counter(pod["spec"].get("nodeName") for pod in pods)
    by_name = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    youngest = sorted(
        by_name, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True
    )

    def rank(pod: Json) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName")
        return bool(node), is_ready(pod), _deletion_cost(pod), -siblings[node]

    return sorted(youngest, key=rank)


def _deletion_cost(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _is_number(text: str) -> bool:
    # Python's digits are those of all scripts.
    return text.isascii() and text.isdecimal()


def _ordinal(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if _is_number(number) else -1


def _pod_name(wanted: Scale, maker: Json, number: int) -> str:
    word = "" if wanted.kind == "StatefulSet" else "new-"
    return f"{maker['metadata']['name']}-{word}{number}"


def _new_pod(wanted: Scale, maker: Json, number: int, like: Json | None) -> Json:
    """Return a pending pod: a copy of the pod ``like``, or of the template if there is none."""
    prefix, name = maker["metadata"]["name"], _pod_name(wanted, maker, number)
    if like is not None:
        pod = copy.deepcopy(unschedule(like))
    else:
        template = maker["spec"].get("template") or {}
        owner = {
            "kind": maker["kind"],
            "apiVersion": "v1" if maker["kind"] == "ReplicationController" else "apps/v1",
            "name": prefix,
            "uid": maker["metadata"]["uid"],
            "controller": True,
        }
        labels = dict((template.get("metadata") or {}).get("labels") or {})
        pod = unschedule({"kind": "Pod", "spec": copy.deepcopy(template.get("spec") or {})})
        pod["metadata"] = {"labels": labels, "ownerReferences": [owner]}
    labels = pod["metadata"].get("labels") or {}
    for key, value in (
        ("statefulset.kubernetes.io/pod-name", name),
        ("apps.kubernetes.io/pod-index", str(number)),
    ):
        if key in labels:
            labels[key] = value
    uid = f"{wanted.ref}/{name}"
    pod["metadata"] |= {"name": name, "namespace": wanted.namespace, "uid": uid}
    return pod
