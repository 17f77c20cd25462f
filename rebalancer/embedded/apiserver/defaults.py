"""Defaults and admission checks when an object is created.

Only those that matter to scheduling and eviction: defaults of ``k8s.io/kubernetes/pkg/apis/*/v1/defaults.go`` and of the
admission plug-ins Priority, DefaultTolerationSeconds and TaintNodesByCondition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.kinds import Json, Kind
from rebalancer.embedded.apiserver.store import Store, clone

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_TOLERATED_SECONDS = 300
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_MAX_NAME = 253


def admit(store: Store, kind: Kind, namespace: str, manifest: Mapping[str, Any]) -> Json:
    """Return a new object with its defaults, ready to be stored.

    Raises :class:`kinds.ApiError` as the server does: 404 for a namespace that does not exist, 403 for
    one that is being deleted, 422 for a name or spec that is not valid.
    """
    made = {key: value for key, value in manifest.items() if key not in ("kind", "apiVersion")}
    made["metadata"] = dict(made.get("metadata") or {})
    if made["metadata"].get("resourceVersion"):
        raise kinds.bad_request("resourceVersion should not be set on objects to be created")
    _check_name(kind, made["metadata"])
    if kind.namespaced:
        _check_namespace(store, kind, namespace, made["metadata"])
    fill = _FILL.get(kind.kind)
    if fill is not None:
        fill(store, made)
    return made


def _check_name(kind: Kind, metadata: Json) -> None:
    name = metadata.get("name") or metadata.get("generateName", "").rstrip("-.")
    if not name:
        raise kinds.invalid(
            kind, "", "metadata.name", "Required value: name or generateName is required"
        )
    if len(name) > _MAX_NAME or not _NAME.match(name):
        raise kinds.invalid(
            kind, name, "metadata.name", f'Invalid value: "{name}": a lowercase RFC 1123 subdomain'
        )


def _check_namespace(store: Store, kind: Kind, namespace: str, metadata: Json) -> None:
    if metadata.get("namespace", namespace) != namespace:
        raise kinds.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    stored = store.get(kinds.NAMESPACE, "", namespace)
    if "deletionTimestamp" in stored["metadata"]:
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        raise kinds.forbidden(kind, metadata.get("name", ""), why)


def pod_spec(spec: Json) -> None:
    """Fill in the defaults of a PodSpec, in place."""
    if not spec.get("containers"):
        spec["containers"] = []
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault(
            "imagePullPolicy", "Always" if _is_mutable_tag(container) else "IfNotPresent"
        )
        container.setdefault("resources", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})


def _is_mutable_tag(container: Mapping[str, Any]) -> bool:
    image = str(container.get("image", "")).rsplit("/", 1)[-1]
    return "@" not in image and (":" not in image or image.endswith(":latest"))


def _pod(store: Store, made: Json) -> None:
    spec = made.setdefault("spec", {})
    if not spec.get("containers"):
        name = made["metadata"].get("name", "")
        raise kinds.invalid(kinds.POD, name, "spec.containers", "Required value")
    pod_spec(spec)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container["resources"]
        if limits := resources.get("limits"):
            container["resources"] = {
                **resources,
                "requests": {**limits, **resources.get("requests", {})},
            }
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("serviceAccountName", "default")
    _prioritise(store, made["metadata"].get("name", ""), spec)
    tolerated = {toleration.get("key") for toleration in spec.get("tolerations", ())}
    spec["tolerations"] = [
        *spec.get("tolerations", ()),
        *(
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _TOLERATED_SECONDS,
            }
            for key in (NOT_READY, UNREACHABLE)
            if key not in tolerated and None not in tolerated
        ),
    ]
    made["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _prioritise(store: Store, pod: str, spec: Json) -> None:
    name = spec.get("priorityClassName", "")
    priority_class = store.find(kinds.PRIORITY_CLASS, "", name) if name else None
    if name and name not in _SYSTEM_PRIORITIES and priority_class is None:
        why = f"no PriorityClass with name {name} was found"
        raise kinds.forbidden(kinds.POD, pod, why)
    spec["priority"] = _SYSTEM_PRIORITIES.get(name, (priority_class or {}).get("value", 0))
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _quality(spec: Mapping[str, Any]) -> str:
    resources = [container["resources"] for container in spec["containers"]]
    if not any(requirements.get("requests") for requirements in resources):
        return "BestEffort"
    equal = all(
        {"cpu", "memory"} <= set(requirements.get("limits", {}))
        and requirements["limits"] == requirements.get("requests")
        for requirements in resources
    )
    return "Guaranteed" if equal else "Burstable"


def _node(_: Store, made: Json) -> None:
    spec = made.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    # A node is not ready, and tainted so, until its kubelet has reported.
    if not any(taint["key"] == NOT_READY for taint in taints):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    made.setdefault("status", {})


def _namespace(_: Store, made: Json) -> None:
    made["metadata"]["labels"] = {
        **made["metadata"].get("labels", {}),
        "kubernetes.io/metadata.name": made["metadata"]["name"],
    }
    made["spec"] = {"finalizers": ["kubernetes"]}
    made["status"] = {"phase": "Active"}


_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
_WORKLOADS: Mapping[Kind, Json] = {
    kinds.DEPLOYMENT: {
        "replicas": 1,
        "strategy": _ROLLING,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    kinds.REPLICA_SET: {"replicas": 1},
    kinds.CONTROLLER: {"replicas": 1},
    kinds.STATEFUL_SET: {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
    },
    kinds.DAEMON_SET: {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "revisionHistoryLimit": 10,
    },
    kinds.JOB: {"parallelism": 1, "completions": 1, "backoffLimit": 6},
}
"""Kind -> the defaults of its spec."""


def complete(kind: Kind, obj: Json) -> None:
    """Fill in the defaults of a workload that is stored, in place; other kinds are not changed.

    ``kubectl`` sends ``strategy: {}`` if none was given.
    """
    if kind in _WORKLOADS and isinstance(spec := obj.get("spec"), dict):
        _fill_in(spec, _WORKLOADS[kind])


def _fill_in(spec: Json, defaults: Mapping[str, Any]) -> None:
    for field, value in defaults.items():
        given = spec.get(field)
        if given is None:
            spec[field] = clone(value)
        # Only what is of the default type has the rest of it.
        elif isinstance(value, dict) and given.get("type", value.get("type")) == value.get("type"):
            _fill_in(given, value)


def _workload(kind: Kind) -> Callable[[Store, Json], None]:
    def fill(_: Store, made: Json) -> None:
        spec = made.setdefault("spec", {})
        name = made["metadata"].get("name", "")
        template = spec.get("template") or {}
        if not (template.get("spec") or {}).get("containers"):
            raise kinds.invalid(kind, name, "spec.template.spec.containers", "Required value")
        complete(kind, made)
        pod_spec(template["spec"])
        _check_selector(kind, name, spec)
        made["status"] = {}

    return fill


def _check_selector(kind: Kind, name: str, spec: Mapping[str, Any]) -> None:
    if kind.kind in ("Job", "ReplicationController"):
        return
    labels = spec["template"].get("metadata", {}).get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if not spec.get("selector"):
        raise kinds.invalid(kind, name, "spec.selector", "Required value")
    if any(labels.get(key) != value for key, value in wanted.items()):
        why = "Invalid value: `selector` does not match template `labels`"
        raise kinds.invalid(kind, name, "spec.template.metadata.labels", why)


def _budget(_: Store, made: Json) -> None:
    spec = made.setdefault("spec", {})
    if "minAvailable" in spec and "maxUnavailable" in spec:
        why = "minAvailable and maxUnavailable cannot be both set"
        raise kinds.invalid(kinds.BUDGET, made["metadata"].get("name", ""), "spec", why)
    if "minAvailable" not in spec:
        spec.setdefault("maxUnavailable", 1)
    # Clients cannot set the status: no disruption is allowed until the controller has written it.
    made["status"] = {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    }


_FILL: Mapping[str, Callable[[Store, Json], None]] = {
    "Pod": _pod,
    "Node": _node,
    "Namespace": _namespace,
    "PodDisruptionBudget": _budget,
    **{kind.kind: _workload(kind) for kind in _WORKLOADS},
}
