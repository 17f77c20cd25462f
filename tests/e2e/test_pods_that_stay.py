"""Pods that only the real scheduler and API server can show: members of a PodGroup, a DaemonSet's pods that wait."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rebalancer.kube import lists, read
from rebalancer.kube.client import JSON, connect
from rebalancer.kube.seldom_read import read_pod_groups
from rebalancer.snapshot.model import PodGroup
from tests.controlplane import ControlPlane, Options, objects, operations, wait_until
from tests.controlplane.audit import EVICTION, AuditLog, policy
from tests.e2e.product import Product, grant, rebalancer
from tests.storm.faults import Script
from tests.storm.proxy import Proxy, Upstream


def is_newer(version):
    """Whether PodGroups are of v1beta1 (from 1.37 on)."""
    return int(version.split(".")[1]) >= 37


def pod_group(version):
    """Path and object of a PodGroup whose pods are disrupted together, as a version of Kubernetes has it."""
    newer = is_newer(version)
    served = "scheduling.k8s.io/" + ("v1beta1" if newer else "v1alpha2")
    mode = {"all": {}} if newer else "PodGroup"
    return f"/apis/{served}/namespaces/default/podgroups", {
        "apiVersion": served,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": mode},
    }


@pytest.fixture(scope="module")
def gangs(kubernetes):
    """A control plane that schedules gangs, which is off by default."""
    serves = pod_group(kubernetes)[1]["apiVersion"]
    gates = ["GenericWorkload"]
    if not is_newer(kubernetes):
        gates += ["GangScheduling", "WorkloadAwarePreemption"]
    options = Options(
        version=kubernetes,
        feature_gates=dict.fromkeys(gates, True),
        extra_args={"kube-apiserver": [f"--runtime-config={serves}=true"]},
        audit_policy=policy({"resources": [{"group": "", "resources": ["pods/eviction"]}]}),
    )
    with ControlPlane(options) as plane:
        yield plane


def test_the_pods_of_a_pod_group_stay_or_leave_together(gangs, kubernetes, tmp_path, monkeypatch):
    gangs.apply([objects.node("node-0")])
    operations.wait_nodes_ready(gangs.api, 1)
    gangs.api.post(*pod_group(kubernetes))
    group = {"schedulingGroup": {"podGroupName": "train"}}
    gangs.apply([objects.deployment("train", 3, labels={"app": "train"}, **group)])
    operations.wait_pods_ready(gangs.api, 3, 60, selector="app=train")
    gangs.apply([objects.node("node-1")])
    operations.wait_nodes_ready(gangs.api, 2)

    done = Product(gangs, tmp_path).run()
    assert done.code == 0, done.err
    assert done.evicted == []
    stays = [skip for skip in done.report["skipped"] if skip["strategy"] == "duplicates"]
    assert {skip["code"] for skip in stays} == {"Gang"}
    assert "a member of PodGroup train with 2 other pods" in stays[0]["message"]

    client = connect(kubeconfig=gangs.kubeconfig, environ={})
    in_protobuf = read.read_cluster(client, clock=lambda: 0.0).snapshot
    monkeypatch.setattr(lists, "POD_DECODERS", {JSON: lists.POD_DECODERS[JSON]})
    in_json = read.read_cluster(client, clock=lambda: 0.0).snapshot
    for snapshot in (in_protobuf, in_json):
        assert [cls.gang for cls in snapshot.classes if cls.gang] == ["PodGroup train"]
    groups, _ = read_pod_groups(client, in_json)
    assert groups == {
        ("default", "scheduling.k8s.io", "train"): PodGroup(
            3, alone=False, constrained=False, together=True
        )
    }

    audit, members = AuditLog(gangs.audit_log), Members(gangs, "train")
    order = drain_of(gangs, "node-0")
    drained = rebalancer(*order)
    assert drained.code == 0, drained.err
    assert len(asked(audit)) == 6
    assert members.gone() == (3, 3, 3)
    assert {
        pod["spec"]["nodeName"] for pod in operations.pods(gangs.api, selector="app=train")
    } == {"node-1"}


POOL = {"pool": "gangs"}


class Members:
    """The pods that an app had, beside those that it has."""

    def __init__(self, plane, app):
        self._before = {
            pod["metadata"]["uid"] for pod in operations.pods(plane.api, selector=f"app={app}")
        }
        self._plane, self._app = plane, app

    def gone(self):
        """How many of the first pods are gone, of how many, and how many pods there are now."""
        now = operations.pods(self._plane.api, selector=f"app={self._app}")
        stay = {pod["metadata"]["uid"] for pod in now if "deletionTimestamp" not in pod["metadata"]}
        return len(self._before - stay), len(self._before), len(stay)


def of_gang(name, pods, **more):
    return objects.deployment(
        name, pods, labels={"app": name}, pod_annotations={"pod-group-name": name}, **more
    )


def drain_of(plane, node):
    """The words that drain a node."""
    access = ("--kubeconfig", str(plane.kubeconfig))
    return ("drain", node, *access, "-o", "json", "--timeout", "60s")


def asked(audit):
    """The evictions that the server was asked for, dry runs too: names in order."""
    return [request.name for request in audit.requests() if request.kind == EVICTION]


def test_a_drain_takes_all_of_a_gang_or_none(gangs):
    """Refused by a budget and by room, nothing is asked; else all are rehearsed before the first is evicted."""
    gangs.apply([objects.node(f"pool-{number}", cpu="4", labels=POOL) for number in range(3)])
    operations.wait_nodes_ready(gangs.api, 5)
    gangs.apply(
        [
            of_gang("llm", 3, cpu="1500m", nodeSelector=POOL),
            objects.pdb("llm", {"app": "llm"}, minAvailable=2),
        ]
    )
    operations.wait_pods_ready(gangs.api, 3, 60, selector="app=llm")
    members, audit = Members(gangs, "llm"), AuditLog(gangs.audit_log)
    node = operations.pods(gangs.api, selector="app=llm")[0]["spec"]["nodeName"]
    order = drain_of(gangs, node)

    refused = rebalancer(*order)
    assert refused.code == 3, refused.err
    assert ", and never more than 1; 3 pods would go at once" in refused.out
    gangs.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/llm")
    gangs.apply(
        [objects.deployment("web", 6, cpu="1200m", labels={"app": "web"}, nodeSelector=POOL)]
    )
    wait_until(lambda: len(operations.pods(gangs.api, selector="app=web")) == 6, 30, "web is there")
    refused = rebalancer(*order)
    assert refused.code == 3, refused.err
    assert {pod["code"] for of in refused.report["nodes"] for pod in of["pods"]} >= {"Gang"}
    assert asked(audit) == []
    assert members.gone() == (0, 3, 3)

    gangs.api.delete("/apis/apps/v1/namespaces/default/deployments/web")
    wait_until(lambda: not operations.pods(gangs.api, selector="app=web"), 60, "web is gone")
    done = rebalancer(*order)
    assert done.code == 0, done.err
    names = asked(audit)
    assert len(names) == 6
    assert names[:3] == names[3:]
    assert len(set(names)) == 3
    assert members.gone() == (3, 3, 3)
    assert node not in {
        pod["spec"]["nodeName"] for pod in operations.pods(gangs.api, selector="app=llm")
    }


def test_a_gang_that_is_begun_is_finished_after_a_signal(gangs, tmp_path):
    """SIGTERM comes after the API server has carried out the first eviction, and before its answer."""
    own = {"pool": "signal"}
    gangs.apply([objects.node(f"signal-{number}", cpu="4", labels=own) for number in range(3)])
    operations.wait_nodes_ready(gangs.api, len(gangs.api.list_all("/api/v1/nodes")))
    gangs.apply([of_gang("sim", 3, cpu="1500m", nodeSelector=own)])
    operations.wait_pods_ready(gangs.api, 3, 60, selector="app=sim")
    members = Members(gangs, "sim")
    node = operations.pods(gangs.api, selector="app=sim")[0]["spec"]["nodeName"]
    running = list[subprocess.Popen[str]]()
    sent = list[float]()

    def end_it(seen):
        if seen.kind == "eviction" and 200 <= seen.status < 300 and "dryRun" not in seen.target:
            sent.append(seen.at)
            if len(sent) == 1:
                running[0].send_signal(signal.SIGTERM)

    with Proxy(Upstream.of(gangs), Script(), end_it) as proxy:
        config = yaml.safe_load(Path(gangs.kubeconfig).read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        words = [sys.executable, "-m", "rebalancer", *drain_of(gangs, node)]
        words[words.index(str(gangs.kubeconfig))] = str(path)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
            running.append(process)
            out, err = process.communicate(timeout=120)
    assert proxy.errors == []
    assert process.returncode == 4, (out, err)
    assert len(sent) == 3
    assert sent[-1] - sent[0] < 2.0
    assert members.gone()[:2] == (3, 3)


def test_a_daemon_set_s_pod_that_waits_goes_to_its_own_node_only(cluster):
    """``agent`` fits on no node but the free one, for which its pod is not made."""
    cluster.apply([objects.node("full", labels={"agent": "yes"}), objects.node("free")])
    operations.wait_nodes_ready(cluster.api, 2)
    cpu = cluster.api.get("/api/v1/nodes/full")["status"]["allocatable"]["cpu"]
    most = {"requests": {"cpu": f"{int(cpu) - 1}"}}
    on_full = {"nodeSelector": {"kubernetes.io/hostname": "full"}}
    cluster.apply([objects.deployment("big", 1, labels={"app": "big"}, resources=most, **on_full)])
    operations.wait_pods_ready(cluster.api, 1, 60, selector="app=big")
    agent = objects.daemonset("agent", labels={"app": "agent"}, resources=most)
    agent["spec"]["template"]["spec"]["nodeSelector"] = {"agent": "yes"}
    cluster.apply([agent])

    def said():
        for pod in operations.pods(cluster.api, selector="app=agent"):
            for condition in pod["status"].get("conditions", ()):
                if condition.get("reason") == "Unschedulable":
                    return pod["metadata"]["name"], condition["message"]
        return None

    name, message = wait_until(said, 30, "the scheduler has refused the DaemonSet's pod")
    grant(cluster)
    seen = rebalancer("capacity", "--kubeconfig", str(cluster.kubeconfig), "-o", "json")
    assert seen.code == 0, seen.err
    [waits] = [pod for pod in seen.report["pending"] if pod["pod"].endswith(name)]
    assert waits["code"] == "BelongsToNode"
    # The scheduler's own words, up to what it says of preemption.
    assert message.startswith(waits["message"].rstrip("."))
    removable = {node["name"]: node["code"] for node in seen.report["nodes"]}
    assert removable["free"] == "Empty"


DRIVER, EBS = "d.example.com", "ebs.csi.aws.com"


def volume(name, source, claim):
    """A PersistentVolume, bound to a claim."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": claim},
        **source,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "",
    "resources": {"requests": {"storage": "1Gi"}},
}


def claim(name):
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": CLAIM,
    }


def csi(driver, handle):
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def mounting(name, on, volume):
    where = {"kubernetes.io/hostname": on}
    return objects.pod(name, volumes=[{"name": "data", **volume}], nodeSelector=where)


def full(node, driver):
    """What says that a driver attaches one volume to a node at most."""
    drivers = [{"name": driver, "nodeID": node, "allocatable": {"count": 1}}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node},
        "spec": {"drivers": drivers},
    }


def of_claim(name):
    return {"persistentVolumeClaim": {"claimName": name}}


def refused(cluster, count):
    """Pod -> why the scheduler has refused it, once so many are."""
    said = {}
    for pod in operations.pods(cluster.api):
        for condition in pod["status"].get("conditions", ()):
            if condition.get("reason") == "Unschedulable":
                said[pod["metadata"]["name"]] = condition["message"]
    return said if len(said) == count else None


def bound(cluster, names):
    claims = cluster.api.list_all("/api/v1/namespaces/default/persistentvolumeclaims")
    phases = {one["metadata"]["name"]: one["status"].get("phase") for one in claims}
    return all(phases.get(name) == "Bound" for name in names)


def test_volumes_that_no_claim_of_a_running_pod_shows_count_as_the_scheduler_counts_them(cluster):
    """One volume a node at most: left attached, of an old kind, of a pod alone."""
    names = ("attached", "intree", "ephemeral")
    cluster.apply([objects.node(name) for name in names])
    operations.wait_nodes_ready(cluster.api, len(names))
    cluster.apply([full("attached", DRIVER), full("intree", EBS), full("ephemeral", DRIVER)])
    ebs = {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}
    own = {"ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}
    cluster.apply(
        [
            volume("left", csi(DRIVER, "left"), "gone"),
            volume("old", ebs, "old"),
            claim("old"),
            volume("own", csi(DRIVER, "own"), "runs-ephemeral-data"),
            *(volume(f"new-{n}", csi(EBS if n == "intree" else DRIVER, n), n) for n in names),
            *map(claim, names),
            mounting("runs-intree", "intree", of_claim("old")),
            mounting("runs-ephemeral", "ephemeral", own),
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": "left"},
                "spec": {
                    "attacher": DRIVER,
                    "nodeName": "attached",
                    "source": {"persistentVolumeName": "left"},
                },
            },
        ]
    )
    attached = {"volumesAttached": [{"name": f"kubernetes.io/csi/{DRIVER}^left", "devicePath": ""}]}
    cluster.api.patch("/api/v1/nodes/attached/status", {"status": attached})
    operations.wait_pods_ready(cluster.api, 2, 60)
    # Until then the scheduler, and the model, have another reason.
    wait_until(lambda: bound(cluster, names), 30, "the claims are bound")
    cluster.apply([mounting(f"wants-{name}", name, of_claim(name)) for name in names])
    said = wait_until(lambda: refused(cluster, 3), 60, "the scheduler has refused the pods")
    seen = rebalancer("capacity", "--kubeconfig", str(cluster.kubeconfig), "-o", "json")
    assert seen.code == 0, seen.err
    pending = {pod["pod"]: pod["message"] for pod in seen.report["pending"]}
    assert pending.keys() == said.keys()
    for name, message in pending.items():
        assert "1 node(s) exceed max volume count" in message
        # In another order: the scheduler sorts them with their numbers.
        parts = message.removeprefix("0/3 nodes are available: ").split(", ")
        assert [part for part in parts if part not in said[name]] == []
