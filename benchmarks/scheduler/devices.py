"""Pods with resource claims on random clusters: where kube-scheduler puts them, and where the model does.

``python -m benchmarks.scheduler.devices --seed 1 --clusters 25 --decisions 12 --version 1.36.3``

Drivers publish ResourceSlices, so that slices written by hand do for the scheduler; claims are made and released by the
controller manager. No kubelet runs: a pod that is bound has its devices, and one that is deleted is gone.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from benchmarks.scheduler.vocabulary import Manifest
from rebalancer.kube.client import connect
from rebalancer.kube.read import read_cluster
from rebalancer.kube.seldom_read import list_device_kinds, read_devices
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from tests.controlplane import ControlPlane, Options, wait_until
from tests.controlplane.build import DEFAULT_VERSION

RESOURCE = "example.com/gpu"
"""What the class ``gpu`` also provides."""
GPU, NIC = "gpu.example.com", "nic.example.net"
_CONTROLLERS = "resource-claim-controller,garbage-collector-controller,serviceaccount-controller,namespace-controller"
_PODS = "/api/v1/namespaces/default/pods"
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_NOW = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_PATIENCE = 60.0
_NOTICE = 0.4
"""Seconds in which the scheduler takes notice of what was written."""
_GATE = "example.com/wait"


def options(version: str) -> Options:
    """Return a control plane whose controllers know claims only."""
    return Options(
        version=version,
        components=("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
        extra_args={
            "kube-apiserver": [
                "--disable-admission-plugins=TaintNodesByCondition",
                "--runtime-config=resource.k8s.io/v1beta2=true",
            ],
            "kube-controller-manager": [f"--controllers={_CONTROLLERS}"],
        },
    )


# -- what is drawn ------------------------------------------------------------------------------------

_MODELS, _SIZES = ("A100", "H100"), ("40Gi", "80Gi")


def draw_slices(rng: random.Random, names: Sequence[str]) -> Iterator[Manifest]:
    """Yield the devices of nodes, some of several nodes, some broken, some of a pool that is not whole."""
    for name in names:
        for driver, most in ((GPU, 4), (NIC, 2)):
            if rng.random() < 0.2:
                continue
            mixed = rng.random() < 0.15
            kind = _draw_kind(rng)
            devices = [
                _draw_device(rng, place, _draw_kind(rng) if mixed else kind)
                for place in range(rng.randint(1, most))
            ]
            where: Manifest = {"nodeName": name}
            if (chance := rng.random()) < 0.06:
                where = {"nodeSelector": _on(rng.sample(list(names), rng.choice((1, 1, 2))))}
            elif chance < 0.08:
                where = {"allNodes": True}
            count = 2 if rng.random() < 0.04 else 1
            yield _slice(f"{driver.partition('.')[0]}-{name}", driver, devices, where, count)


def _draw_kind(rng: random.Random) -> Manifest:
    return {
        "model": {"string": rng.choice(_MODELS)},
        "ecc": {"bool": rng.random() < 0.5},
        "numa": {"int": rng.randrange(2)},
        "driverVersion": {"version": rng.choice(("1.2.3", "2.0.0"))},
    }


def _draw_device(rng: random.Random, place: int, kind: Manifest) -> Manifest:
    attributes = {**kind, "uuid": {"string": f"u-{rng.randrange(10**9)}"}}
    if rng.random() < 0.01:
        del attributes["model"]
    made: Manifest = {
        "name": f"dev-{place}",
        "attributes": attributes,
        "capacity": {"memory": {"value": _SIZES[kind["model"]["string"] == "H100"]}},
    }
    if rng.random() < 0.08:
        made["taints"] = [_draw_taint(rng)]
    if rng.random() < 0.01:
        made["allowMultipleAllocations"] = True
    return made


def _draw_taint(rng: random.Random) -> Manifest:
    effect = rng.choice(("NoSchedule", "NoExecute", "None"))
    return {"key": f"{GPU}/{rng.choice(('hot', 'broken'))}", "value": "yes", "effect": effect}


def _slice(
    name: str, driver: str, devices: Sequence[Manifest], where: Manifest, count: int
) -> Manifest:
    pool = {"name": name, "generation": 1, "resourceSliceCount": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": pool, "devices": list(devices), **where},
    }


def _on(names: Sequence[str]) -> Manifest:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


_OF_GPU = f'device.attributes["{GPU}"]'
_CLASSES = {
    "gpu": [f'device.driver == "{GPU}"'],
    "big": [f'device.driver == "{GPU}" && {_OF_GPU}.model == "H100"'],
    "nic": [f'device.driver == "{NIC}"'],
}
_SELECTORS = (
    f'{_OF_GPU}.model in ["A100"]',
    f'device.capacity["{GPU}"].memory.compareTo(quantity("60Gi")) >= 0',
    f"{_OF_GPU}.numa < 1",
    f"{_OF_GPU}.ecc",
    f'!({_OF_GPU}.model == "A100") || {_OF_GPU}.ecc',
    f'{_OF_GPU}.driverVersion.isGreaterThan(semver("1.5.0"))',
    f'has({_OF_GPU}.model) && {_OF_GPU}.model.startsWith("H")',
    f'device.attributes["example.org"].missing == 1 || {_OF_GPU}.numa >= 0',
    f'"{GPU}" in device.attributes && "uuid" in {_OF_GPU}',
    f'{_OF_GPU}.model.matches("^H")',
)


def draw_claim(rng: random.Random) -> Manifest:
    """Return the spec of a claim."""
    requests = list[Manifest]()
    for place in range(rng.choice((1, 1, 1, 2))):
        exact: Manifest = {
            "deviceClassName": rng.choice(("gpu", "gpu", "gpu", "nic", "nic", "big"))
        }
        if rng.random() < 0.3 and exact["deviceClassName"] != "nic":
            exact["selectors"] = [{"cel": {"expression": rng.choice(_SELECTORS)}}]
        if rng.random() < 0.06:
            exact["allocationMode"] = "All"
        else:
            exact["count"] = rng.choice((1, 1, 1, 2))
        if rng.random() < 0.2:
            exact["tolerations"] = [{"key": f"{GPU}/hot", "operator": "Exists"}]
        name = f"r{place}"
        if rng.random() < 0.15:
            requests.append({"name": name, "firstAvailable": list(_draw_alternatives(rng, exact))})
        else:
            requests.append({"name": name, "exactly": exact})
    devices: Manifest = {"requests": requests}
    if rng.random() < 0.1:
        of_all = all(one.get("exactly", {}).get("deviceClassName") != "nic" for one in requests)
        if of_all:
            attribute = rng.choice(("numa", "model", "uuid"))
            devices["constraints"] = [{"matchAttribute": f"{GPU}/{attribute}"}]
    return {"devices": devices}


def _draw_alternatives(rng: random.Random, exact: Manifest) -> Iterator[Manifest]:
    """Yield alternatives: models, of which a node has one at most as a rule, and at times anything."""
    models = rng.sample(_MODELS, rng.choice((1, 2, 2)))
    for place, model in enumerate(models):
        expression = f'{_OF_GPU}.model == "{model}"'
        of_model = {
            "deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": expression}}],
            "count": rng.choice((1, 1, 1, 2)) if rng.random() < 0.1 else 1,
        }
        yield {"name": f"s{place}", **of_model}
    if rng.random() < 0.3:
        yield (
            {"name": "rest", "deviceClassName": "gpu"}
            if rng.random() < 0.5
            else {"name": "rest", **exact}
        )


# -- what is done -------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was compared."""

    decisions: int = 0
    placed: int = 0
    refused: int = 0
    chosen: int = 0
    """Decisions among nodes of which some, not all, had the devices."""
    unmodelled: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


class DeviceGround:
    """One control plane, one cluster after the other."""

    def __init__(self, plane: ControlPlane) -> None:
        major, minor = plane.options.version.split(".")[:2]
        self._api, self._version = plane.api, (int(major), int(minor))
        self._client = connect(kubeconfig=plane.kubeconfig, environ={})
        self._profile = SchedulerProfile.for_version(self._version)
        self._names = [f"node-{place}" for place in range(6)]

    def play(self, seed: int, decisions: int, tally: Tally) -> None:
        """Draw a cluster, and let the scheduler and the model decide."""
        rng = random.Random(seed)
        names = self._names[: rng.randint(3, 6)]
        self._fill(rng, names)
        templates = [f"t{place}" for place in range(rng.randint(2, 4))]
        for name in templates:
            spec = {"metadata": {}, "spec": draw_claim(rng)}
            self._make("ResourceClaimTemplate", name, spec)
        shared = [f"shared-{place}" for place in range(2)]
        for name in shared:
            self._make("ResourceClaim", name, draw_claim(rng))
        time.sleep(_NOTICE)
        for turn in range(decisions):
            if rng.random() < 0.25:
                self._delete_one(rng)
            pod = _draw_pod(rng, f"p{turn}", templates, shared)
            self._decide(pod, tally, f"seed {seed}, turn {turn}")
        self.clear()

    def _fill(self, rng: random.Random, names: Sequence[str]) -> None:
        for name in names:
            amounts = {"cpu": rng.choice(("4", "8")), "memory": "16Gi", "pods": "20"}
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": amounts, "capacity": amounts},
            }
            self._api.post("/api/v1/nodes", node)
        for name, expressions in _CLASSES.items():
            selectors = [{"cel": {"expression": one}} for one in expressions]
            named = {"extendedResourceName": RESOURCE} if name == "gpu" else {}
            self._make("DeviceClass", name, {"selectors": selectors, **named})
        if self._version >= (1, 37) and rng.random() < 0.5:
            chosen = {"driver": GPU, "device": f"dev-{rng.randrange(3)}"}
            rule = {"deviceSelector": chosen, "taint": _draw_taint(rng)}
            self._make("DeviceTaintRule", "rule", rule)
        for one in draw_slices(rng, names):
            self._api.post(self._api.collection(one), one)

    def _make(self, kind: str, name: str, spec: Any) -> None:
        everywhere = kind in ("DeviceClass", "DeviceTaintRule")
        metadata = {"name": name} | ({} if everywhere else {"namespace": "default"})
        made = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        }
        self._api.post(self._api.collection(made), made)

    def _decide(self, pod: Manifest, tally: Tally, where: str) -> None:
        name = pod["metadata"]["name"]
        self._api.post(_PODS, pod)
        wait_until(lambda: self._has_claims(name), _PATIENCE, f"the claims of {name}")
        snapshot = self._read(name)
        cls = int(snapshot.pods.cls[list(snapshot.pods.name).index(name)])
        model, state = SchedulerModel(snapshot, self._profile), ClusterState(snapshot)
        prediction = model.predict(state, cls)
        self._api.patch(f"{_PODS}/{name}", {"spec": {"schedulingGates": []}})
        decided = wait_until(lambda: self._find_decision(name), _PATIENCE, f"node of {name}")
        node, message = decided or ("", "")
        _compare(tally, snapshot, prediction, node, f"{where}: {message or node}")
        time.sleep(_NOTICE)
        if not node:
            self._delete(name)

    def _has_claims(self, name: str) -> bool:
        pod = self._api.get(f"{_PODS}/{name}")
        entries = pod["spec"].get("resourceClaims", ())
        wanted = [one for one in entries if "resourceClaimTemplateName" in one]
        made = pod["status"].get("resourceClaimStatuses") or ()
        return len([one for one in made if one.get("resourceClaimName")]) == len(wanted)

    def _read(self, name: str) -> Snapshot:
        """Return the cluster as the product reads it, with a pod that has no gate any more."""
        read = read_cluster(self._client, clock=time.time).snapshot
        classes = tuple(
            replace(cls, spec=msgspec.structs.replace(cls.spec, scheduling_gates=None))
            for cls in read.classes
        )
        snapshot, notes = read_devices(self._client, replace(read, classes=classes))
        assert notes == (), (name, notes)
        return snapshot

    def _find_decision(self, name: str) -> tuple[str, str] | None:
        """Return the node, or the message if no node will do; None as long as nothing was decided."""
        pod = self._api.get(f"{_PODS}/{name}")
        if node := pod["spec"].get("nodeName"):
            return node, ""
        for one in pod["status"].get("conditions") or ():
            if one["type"] == "PodScheduled" and one["reason"] in (
                "Unschedulable",
                "SchedulerError",
            ):
                return "", f"{one['reason']}: {one.get('message', '')}"
        return None

    def _delete_one(self, rng: random.Random) -> None:
        pods = [one["metadata"]["name"] for one in self._api.list_all(_PODS)]
        if pods:
            self._delete(rng.choice(sorted(pods)))

    def _delete(self, name: str) -> None:
        uid = self._api.get(f"{_PODS}/{name}")["metadata"]["uid"]
        self._api.delete(f"{_PODS}/{name}", _NOW)
        wait_until(lambda: not self._holds(uid), _PATIENCE, f"the claims of {name} are released")
        time.sleep(_NOTICE)

    def _holds(self, uid: str) -> bool:
        for claim in self._api.list_all(_CLAIMS):
            owners = claim["metadata"].get("ownerReferences") or ()
            consumers = claim.get("status", {}).get("reservedFor") or ()
            if uid in {one["uid"] for one in (*owners, *consumers)}:
                return True
            if claim.get("status", {}).get("allocation") and not consumers:
                return True
        return False

    def clear(self) -> None:
        """Delete everything."""
        for one in self._api.list_all(_PODS):
            self._delete(one["metadata"]["name"])
        for resource in list_device_kinds(self._version):
            path = resource.path("default")
            for one in (self._api.find(path) or {"items": ()})["items"]:
                self._api.delete(f"{path}/{one['metadata']['name']}")
        for name in [one["metadata"]["name"] for one in self._api.list_all("/api/v1/nodes")]:
            self._api.delete(f"/api/v1/nodes/{name}")
        time.sleep(_NOTICE)


def _draw_pod(
    rng: random.Random, name: str, templates: Sequence[str], shared: Sequence[str]
) -> Manifest:
    entries = [{"name": "own", "resourceClaimTemplateName": rng.choice(list(templates))}]
    if (chance := rng.random()) < 0.15:
        entries = [{"name": "shared", "resourceClaimName": rng.choice(list(shared))}]
    elif chance < 0.25:
        more = rng.choice(list(templates))
        entries.append({"name": "more", "resourceClaimTemplateName": more})
    requests = {"cpu": rng.choice(("100m", "1", "2")), "memory": "64Mi"}
    resources = {"requests": requests}
    if rng.random() < 0.2:
        number = rng.choice(("1", "1", "2"))
        resources = {"requests": {**requests, RESOURCE: number}, "limits": {RESOURCE: number}}
        entries = entries if rng.random() < 0.2 else []
    container = {"name": "main", "image": "example.com/x", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulingGates": [{"name": _GATE}],
            "resourceClaims": entries,
            "containers": [container],
            "automountServiceAccountToken": False,
        },
    }


def _compare(
    tally: Tally, snapshot: Snapshot, prediction: Prediction, node: str, where: str
) -> None:
    tally.decisions += 1
    tally.placed += bool(node)
    tally.refused += not node
    if prediction.unmodelled:
        tally.unmodelled.update(prediction.unmodelled)
        return
    names = [snapshot.nodes.names[one] for one in prediction.nodes.tolist()]
    tally.chosen += 0 < len(names) < len(snapshot.nodes)
    if (node not in names) if node else bool(names):
        tally.differences.append(f"{where}; predicted {names}")


def main() -> None:
    """Play clusters, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=25)
    parser.add_argument("--decisions", type=int, default=12)
    parser.add_argument("--version", default=DEFAULT_VERSION)
    given = parser.parse_args()
    tally = Tally()
    with ControlPlane(options(given.version)) as plane:
        ground = DeviceGround(plane)
        for seed in range(given.seed, given.seed + given.clusters):
            ground.play(seed, given.decisions, tally)
            print(seed, tally.decisions, len(tally.differences), flush=True)
    print(tally)
    if tally.differences:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
