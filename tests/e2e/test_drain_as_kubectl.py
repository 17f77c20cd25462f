"""A drain chooses and refuses the pods that ``kubectl drain --dry-run=server`` does, on random nodes of a real API server.

But for two groups that kubectl evicts: pods that have ended are left to those that read their results, and batch work
is waited for.
"""

import itertools
import json
import random
import re
import subprocess
from typing import Any

import pytest

from tests.controlplane import ControlPlane, Options, objects
from tests.controlplane.build import binary
from tests.e2e.product import rebalancer

NODES = 200
FLAGS = ("--force", "--ignore-daemonsets", "--delete-emptydir-data")
COMBINATIONS = [
    [flag for flag, on in zip(FLAGS, chosen, strict=True) if on]
    for chosen in itertools.product((False, True), repeat=len(FLAGS))
]
OWNERS = (
    ("ReplicaSet", "apps/v1", "web"),
    ("StatefulSet", "apps/v1", "db"),
    ("Job", "batch/v1", "sums"),
    ("Workflow", "argoproj.io/v1alpha1", "flow"),
    ("DaemonSet", "apps/v1", "agent"),
    ("DaemonSet", "apps/v1", "gone"),
    None,
)
LOCAL = [{"name": "v", "emptyDir": {}}]
PLACES: tuple[list[dict[str, Any]], ...] = (
    [],
    [],
    LOCAL,
    [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    [{"name": "v", "hostPath": {"path": "/var"}}],
    [{"name": "v", "configMap": {"name": "c"}}],
)
# What kubectl says of the pods that it will not evict -> our code.
SAYS = {
    "cannot delete DaemonSet-managed Pods": "DaemonSet",
    "cannot delete Pods with local storage": "LocalData",
    "cannot delete Pods that declare no controller": "NoController",
    "cannot delete cannot delete Pods that declare no controller": "NoController",
}


@pytest.fixture(scope="module")
def server():
    """An API server alone: pods are what they are made, and nothing becomes of them."""
    with ControlPlane(Options(components=("etcd", "kube-apiserver"))) as plane:
        plane.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "default", "namespace": "default"},
                    "automountServiceAccountToken": False,
                },
                objects.daemonset("agent"),
            ]
        )
        yield plane


def random_pod(rng: random.Random, name: str, node: str) -> dict[str, Any]:
    owner = rng.choice(OWNERS)
    made = objects.pod(name, nodeName=node, volumes=rng.choice(PLACES))
    made["spec"]["restartPolicy"] = rng.choice(["Always", "Always", "Never"])
    made["metadata"]["annotations"] = {}
    if owner is not None:
        kind, version, of = owner
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": version, "kind": kind, "name": of, "uid": of, "controller": True}
        ]
    elif rng.random() < 0.3:
        # Mirror pods belong to their node, have no ServiceAccount and no API volumes.
        made["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
        made["spec"]["volumes"] = []
    return made


def fill(plane: ControlPlane, rng: random.Random) -> set[str]:
    """Make the nodes and their pods; return the names of the pods that have ended."""
    ended: set[str] = set()
    for index in range(NODES):
        node = f"n-{index:03d}"
        plane.api.post("/api/v1/nodes", objects.node(node, labels={"combination": str(index % 8)}))
        for number in range(rng.randint(0, 5)):
            name = f"p-{index:03d}-{number}"
            made = random_pod(rng, name, node)
            plane.api.post("/api/v1/namespaces/default/pods", made)
            path = f"/api/v1/namespaces/default/pods/{name}"
            fate = rng.random()
            if fate < 0.2:
                phase = rng.choice(["Succeeded", "Failed"])
                plane.api.patch(f"{path}/status", {"status": {"phase": phase}})
                ended.add(name)
            elif fate < 0.3 and "ownerReferences" in made["metadata"]:
                plane.api.delete(path)  # terminating for ever: there is no kubelet
    return ended


def kubectl(
    plane: ControlPlane, selector: str, flags: list[str]
) -> tuple[set[str], dict[str, str]]:
    """Return the pods that kubectl would evict, and those that it will not -> our code, of a whole selection."""
    done = subprocess.run(
        [
            str(binary("kubectl")),
            f"--kubeconfig={plane.kubeconfig}",
            "drain",
            f"--selector={selector}",
            "--dry-run=server",
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    evicted = set(
        re.findall(r"^evicting pod default/(\S+) \(server dry run\)$", done.stdout, re.MULTILINE)
    )
    refused: dict[str, str] = {}
    for text in re.findall(r"due to error: ?\[?(.*?)\]?, continuing", done.stderr + done.stdout):
        for part in re.split(r", (?=cannot delete)", text):
            says, _, names = part.partition(": ")
            code = next((code for words, code in SAYS.items() if says.startswith(words)), None)
            if "not found" in part:
                code, names = "DaemonSetMissing", part.rpartition(": ")[2]
            assert code is not None, part
            refused |= dict.fromkeys(re.findall(r"default/(p-[\d-]+)", names), code)
    return evicted, refused


def ours(
    plane: ControlPlane, selector: str, flags: list[str]
) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Return the pods by what happens to them on nodes that are not refused, and the refused ones -> code."""
    done = rebalancer(
        "drain",
        f"--selector={selector}",
        f"--kubeconfig={plane.kubeconfig}",
        "--dry-run",
        "--without-landing",
        "--output=json",
        *flags,
    )
    assert done.code in (0, 3), done.err
    fates: dict[str, set[str]] = {"evict": set(), "wait": set(), "stay": set()}
    refused: dict[str, str] = {}
    for node in json.loads(done.out)["nodes"]:
        for pod in node["pods"]:
            if pod["fate"] == "refuse":
                refused[pod["pod"]] = pod["code"]
            elif node["verdict"] != "refused":
                fates[pod["fate"]].add(pod["pod"])
    return fates, refused


def test_the_same_pods_go_and_the_same_pods_are_refused(server):
    ended = fill(server, random.Random(7))
    seen = 0
    for number, flags in enumerate(COMBINATIONS):
        selector = f"combination={number}"
        theirs, not_theirs = kubectl(server, selector, flags)
        fates, refused = ours(server, selector, flags)
        assert refused == not_theirs, flags
        assert theirs - ended == fates["evict"] | fates["wait"], flags
        assert not ended & (fates["evict"] | fates["wait"]), flags
        seen += len(theirs) + len(not_theirs)
    # Not everything was refused, and not everything went.
    assert seen > NODES
