"""Objects as they are in life: pods of about 10 KB with environment, probes, a sidecar and full status.

Names have fixed lengths and are written with stand-ins, so that one object that went through the API
server can be copied by replacing bytes (``benchmarks.scale.copies``).
"""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]

NAMESPACE, APP, NODE, SUFFIX, HASH = "nszzzzz", "apzzzzzz", "nozzzzz", "pzzzz", "hzzzzzzzz"
"""Stand-ins; real ones have the same lengths."""
OLD_HASH = "ozzzzzzzz"
REPLICA_SET, OLD_REPLICA_SET = f"{APP}-{HASH}", f"{APP}-{OLD_HASH}"
KINDS = ("plain", "zone-soft", "zone-hard", "apart-soft", "apart-zone", "apart-hard")
"""What an app may ask of the scheduler; the article asks for ``apart-zone``."""
_OLD = "2026-01-01T00:00:00Z"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def labels(kind: str) -> dict[str, str]:
    """Return the labels that an app's pods are selected by, and those that everything carries."""
    return {
        "app.kubernetes.io/name": APP,
        "app.kubernetes.io/part-of": NAMESPACE,
        "app.kubernetes.io/managed-by": "Helm",
        "kind": kind,
    }


def _selector() -> Manifest:
    return {"matchLabels": {"app.kubernetes.io/name": APP}}


def _wishes(kind: str) -> Manifest:
    term = {"labelSelector": _selector(), "topologyKey": HOSTNAME}
    zone_term = {**term, "topologyKey": ZONE}
    spread = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": _selector()}
    preferred, required = (
        f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("preferred", "required")
    )

    def apart(one: Manifest) -> Manifest:
        return {
            "affinity": {"podAntiAffinity": {preferred: [{"weight": 100, "podAffinityTerm": one}]}}
        }

    match kind:
        case "zone-soft":
            one = {**spread, "whenUnsatisfiable": "ScheduleAnyway"}
            return {"topologySpreadConstraints": [one]}
        case "zone-hard":
            one = {**spread, "whenUnsatisfiable": "DoNotSchedule"}
            return {"topologySpreadConstraints": [one]}
        case "apart-soft":
            return apart(term)
        case "apart-zone":
            return apart(zone_term)
        case "apart-hard":
            return {"affinity": {"podAntiAffinity": {required: [term]}}}
    return {}


def _container(name: str, *, size: int, cpu: str, memory: str) -> Manifest:
    probe = {"httpGet": {"path": "/healthz/ready", "port": 8080}, "periodSeconds": 10}
    env: list[Manifest] = [
        {"name": f"SETTING_{number:02d}", "value": f"https://backend-{number}.{NAMESPACE}.svc:8443"}
        for number in range(size)
    ]
    env += [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "credentials", "key": "token"}}},
    ]
    return {
        "name": name,
        "image": f"registry.example.com/team/{name}:v1.24.3",
        "args": ["--config=/etc/config/settings.yaml", "--log-level=info", "--port=8080"],
        "env": env,
        "ports": [
            {"containerPort": 8080, "name": "http"},
            {"containerPort": 9090, "name": "metrics"},
        ],
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
        "livenessProbe": {**probe, "initialDelaySeconds": 15},
        "readinessProbe": probe,
        "startupProbe": {**probe, "failureThreshold": 30},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/config"},
            {"name": "credentials", "mountPath": "/etc/credentials"},
        ],
    }


def pod_spec(kind: str, *, lean: bool) -> Manifest:
    """Return the spec of an app's pods; a lean one has one container and little else."""
    if lean:
        requests = {"cpu": "150m", "memory": "320Mi"}
        container = {"name": "main", "image": "nginx", "resources": {"requests": requests}}
        return {"containers": [container], **_wishes(kind)}
    return {
        "containers": [
            _container("main", size=12, cpu="100m", memory="256Mi"),
            _container("mesh-proxy", size=4, cpu="50m", memory="64Mi"),
        ],
        "initContainers": [
            {"name": "init", "image": "registry.example.com/mesh/init:v1", "args": ["--iptables"]}
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": f"{APP}-config"}},
            {"name": "credentials", "secret": {"secretName": f"{APP}-credentials"}},
        ],
        "securityContext": {"fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        **_wishes(kind),
    }


def pod(kind: str, owner_uid: str, *, lean: bool) -> Manifest:
    """Return a bound pod; its status is :func:`pod_status`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{REPLICA_SET}-{SUFFIX}",
            "namespace": NAMESPACE,
            "labels": {**labels(kind), "pod-template-hash": HASH},
            "annotations": {}
            if lean
            else {
                "checksum/config": "3f786850e387550fdab836ed7e6dc881de23001b" * 2,
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
                "sidecar.istio.io/status": '{"containers":["mesh-proxy"],"revision":"default"}',
            },
            "ownerReferences": [
                _reference("ReplicaSet", REPLICA_SET, owner_uid),
            ],
        },
        "spec": {**pod_spec(kind, lean=lean), "nodeName": NODE},
    }


def _reference(kind: str, name: str, uid: str) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_status(manifest: Manifest) -> Manifest:
    """Return the status of a pod that has run for a while."""
    return {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
        "qosClass": "Burstable",
        "startTime": _OLD,
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": _OLD}
            for name in (
                "PodReadyToStartContainers",
                "Initialized",
                "Ready",
                "ContainersReady",
                "PodScheduled",
            )
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": f"{container['image']}@sha256:{'0123456789abcdef' * 4}",
                "containerID": f"containerd://{'fedcba9876543210' * 4}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _OLD}},
            }
            for container in manifest["spec"]["containers"]
        ],
    }


def _workload(kind: str, name: str, app_kind: str, *, lean: bool, replicas: int) -> Manifest:
    of_pods = labels(app_kind) | ({"pod-template-hash": HASH} if kind == "ReplicaSet" else {})
    selected = {
        k: of_pods[k] for k in ("app.kubernetes.io/name", "pod-template-hash") if k in of_pods
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": of_pods},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": of_pods}, "spec": pod_spec(app_kind, lean=lean)},
        },
    }


def deployment(kind: str, *, lean: bool, replicas: int) -> Manifest:
    """Return an app's Deployment."""
    return _workload("Deployment", APP, kind, lean=lean, replicas=replicas)


def replica_set(kind: str, name: str, owner_uid: str, *, lean: bool, replicas: int) -> Manifest:
    """Return a ReplicaSet of a Deployment; of the old ones there are several, with no replicas."""
    made = _workload("ReplicaSet", name, kind, lean=lean, replicas=replicas)
    made["metadata"]["ownerReferences"] = [_reference("Deployment", APP, owner_uid)]
    return made


def workload_status(replicas: int) -> Manifest:
    """Return the status of a workload at rest, as far as ReplicaSets and Deployments share it."""
    return {
        "observedGeneration": 1,
        "replicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
    }


def budget() -> Manifest:
    """Return the PodDisruptionBudget of an app."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": APP, "namespace": NAMESPACE},
        "spec": {"maxUnavailable": 1, "selector": _selector()},
    }


def budget_status(replicas: int) -> Manifest:
    """Return the status of the budget of an app that is whole."""
    return {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": replicas,
        "desiredHealthy": replicas - 1,
        "expectedPods": replicas,
    }


def node(zone: str, *, lean: bool) -> Manifest:
    """Return a node that has some images; its status comes with it."""
    room = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "labels": {
                HOSTNAME: NODE,
                ZONE: zone,
                "topology.kubernetes.io/region": "region-1",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m6i.4xlarge",
            },
        },
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {
                    "type": name,
                    "status": state,
                    "lastTransitionTime": _OLD,
                    "reason": "KubeletReady",
                }
                for name, state in (
                    ("MemoryPressure", "False"),
                    ("DiskPressure", "False"),
                    ("PIDPressure", "False"),
                    ("Ready", "True"),
                )
            ],
            "images": [
                {
                    "names": [
                        f"registry.example.com/team/image-{i}@sha256:{'0123456789abcdef' * 4}",
                        f"registry.example.com/team/image-{i}:v1.24.3",
                    ],
                    "sizeBytes": 100_000_000 + i,
                }
                for i in range(0 if lean else 40)
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3",
                "osImage": "Linux",
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kernelVersion": "6.1",
                "containerRuntimeVersion": "containerd://2.0",
                "kubeProxyVersion": "",
                "machineID": "0" * 32,
                "systemUUID": "0" * 36,
                "bootID": "0" * 36,
            },
        },
    }
