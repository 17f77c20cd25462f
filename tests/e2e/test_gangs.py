"""Gangs while nodes are replaced, interrupted and removed: a watch sees all pods of a gang leave, or none."""

import contextlib
import json
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from rebalancer.kube.access import DRAIN_RULES, MARK_RULES, SCALE_OUT_RULES, config_map_rules
from rebalancer.signals.notice import NOTICE, NodeNotice, encode_notice
from rebalancer.signals.state import STATE
from tests.controlplane import ApiError, objects, operations, wait_until
from tests.e2e.machines import fleet_of, policy_of
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer
from tests.e2e.served import PATIENT, Server, runs
from tests.e2e.test_interruption import POLICY
from tests.e2e.test_make_room import POLICY as ROOM
from tests.e2e.test_make_room import marks, wait_unschedulable

TOGETHER = 10.0
"""Seconds within which all pods of a gang have to leave once the first has."""
KINDS = (
    ("labels", "pod-group.scheduling.sigs.k8s.io"),
    ("labels", "scheduling.x-k8s.io/pod-group"),
    ("annotations", "pod-group-name"),
    ("annotations", "scheduling.k8s.io/group-name"),
    ("annotations", "gang.scheduling.koordinator.sh/name"),
)
"""Where schedulers of gangs look for the name: coscheduling, KAI, Volcano, Koordinator."""


def gang(name, pods, kind=KINDS[0], **more):
    """A Deployment whose pods are a gang."""
    where, key = kind
    if where == "labels":
        return objects.deployment(name, pods, labels={"app": name, key: name}, **more)
    return objects.deployment(name, pods, labels={"app": name}, pod_annotations={key: name}, **more)


class Departures:
    """Watches the pods of the apps that are gangs while it is open."""

    def __init__(self, plane, apps):
        self._api, self._apps = plane.client(plane.admin_token), set(apps)
        self._living: dict[str, set[str]] = {app: set() for app in apps}
        self._leaving: dict[str, tuple[float, set[str]]] = {}
        """App -> when the first of its pods was evicted, and those that were there then and are still."""
        self.partial: list[str] = []
        self.whole: Counter[str] = Counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        listed = self._api.get("/api/v1/namespaces/default/pods")
        for pod in listed["items"]:
            self._see("ADDED", pod, time.monotonic())
        self._version = listed["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, *_):
        time.sleep(2)
        self._end.set()
        self._thread.join(30)
        self._judge(float("inf"))
        assert not self._thread.is_alive()

    def _watch(self):
        while not self._end.is_set():
            path = f"/api/v1/namespaces/default/pods?resourceVersion={self._version}"
            with contextlib.suppress(ApiError):
                for event in self._api.watch(path, 1):
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self._see(event["type"], event["object"], time.monotonic())
            self._judge(time.monotonic())

    def _see(self, what, pod, now):
        app, uid = pod["metadata"].get("labels", {}).get("app"), pod["metadata"]["uid"]
        if app not in self._apps:
            return
        conditions = pod["status"].get("conditions", ())
        evicted = any(one.get("reason") == "EvictionByEvictionAPI" for one in conditions)
        if what != "DELETED" and "deletionTimestamp" not in pod["metadata"]:
            if pod["spec"].get("nodeName"):
                self._living[app].add(uid)
            return
        if evicted and uid in self._living[app] and app not in self._leaving:
            self._leaving[app] = now, set(self._living[app])
        self._living[app].discard(uid)
        if app in self._leaving:
            self._leaving[app][1].discard(uid)
            if not self._leaving[app][1]:
                del self._leaving[app]
                self.whole[app] += 1

    def _judge(self, now):
        for app, (since, left) in list(self._leaving.items()):
            if now - since > TOGETHER:
                self.partial.append(f"{app}: {len(left)} stayed")
                del self._leaving[app]


def where(plane, app):
    """The nodes of an app's pods."""
    return [
        pod["spec"].get("nodeName") for pod in operations.pods(plane.api, selector=f"app={app}")
    ]


def settled(plane, counts):
    def ready():
        pods = operations.pods(plane.api)
        return len(pods) == sum(counts.values()) and all(map(operations.is_ready, pods))

    wait_until(ready, 60, "all pods are Ready")


def spread_over_old(plane, kind=KINDS[0]):
    """A gang of four and six other pods on three old nodes, then three new ones."""
    plane.apply([objects.node(f"old-{n}", cpu="4", labels={"age": "old"}) for n in range(3)])
    operations.wait_nodes_ready(plane.api, 3)
    plane.apply(
        [
            gang("train", 4, kind, cpu="1500m"),
            objects.deployment("web", 6, cpu="300m", labels={"app": "web"}),
            objects.pdb("web", {"app": "web"}, maxUnavailable=1),
        ]
    )
    settled(plane, {"train": 4, "web": 6})
    assert len(set(where(plane, "train"))) > 1
    plane.apply([objects.node(f"new-{n}", cpu="4", labels={"age": "new"}) for n in range(3)])
    operations.wait_nodes_ready(plane.api, 6)


@pytest.mark.parametrize(
    "kind", [KINDS[1], pytest.param(KINDS[2], marks=pytest.mark.long)], ids=lambda kind: kind[1]
)
def test_a_gang_on_several_old_nodes_leaves_them_at_once(cluster, kind):
    """Node by node would move it three times; it must not land on a node whose turn comes next."""
    spread_over_old(cluster, kind)
    kubeconfig = grant(cluster, (*RUN_RULES, *DRAIN_RULES))
    with Departures(cluster, ["train"]) as departures:
        done = rebalancer(
            "replace", "-l", "age=old", "--then", "true", "--pause=0s", "--max-unavailable=1",
            "--ignore-daemonsets", "-o", "json", f"--kubeconfig={kubeconfig}",
        )  # fmt: skip
        assert done.code == 0, done.err + done.out
    assert departures.partial == []
    assert departures.whole == {"train": 1}
    assert {name.partition("-")[0] for name in where(cluster, "train")} == {"new"}


def test_the_gang_on_a_machine_that_goes_leaves_at_once(cluster, tmp_path):
    spread_over_old(cluster)
    policy = {key: of for key, of in POLICY.items() if key != "budgets"}
    product = Product(cluster, tmp_path, yaml.safe_dump(policy))
    cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}])
    product.kubeconfig = grant(
        cluster, (*RUN_RULES, *MARK_RULES, *config_map_rules("default", "kept"))
    )
    goes = Counter(where(cluster, "train")).most_common(1)[0][0]
    path = f"/api/v1/nodes/{goes}"
    flags = ("--every=1h", "--output=json", "--machine-state=default/kept")
    server = Server(product, tmp_path, "one", *flags)
    try:
        server.await_words("nothing to do")
        with Departures(cluster, ["train"]) as departures:
            deadline = f"{datetime.now(UTC) + timedelta(minutes=50):%Y-%m-%dT%H:%M:%SZ}"
            notice = encode_notice(NodeNotice("spot-1", "spot", deadline))
            cluster.api.patch(path, {"metadata": {"annotations": {NOTICE: notice}}})

            def ended():
                annotations = cluster.api.get(path)["metadata"].get("annotations") or {}
                return json.loads(annotations.get(STATE, "{}")).get("ended")

            wait_until(ended, PATIENT, "the pipeline at its end")
    finally:
        server.end()
    assert departures.partial == []
    assert departures.whole == {"train": 1}
    assert goes not in where(cluster, "train")


def test_scale_in_takes_the_machines_of_a_gang_whole(cluster, monkeypatch, tmp_path):
    with fleet_of(cluster, monkeypatch) as fleet:
        fleet.add("pool", 4, low=2, high=6)
        # Their requests keep two of them apart.
        cluster.apply([objects.deployment("web", 10, cpu="500m", labels={"app": "web"})])
        settled(cluster, {"web": 10})
        cluster.apply([gang("train", 4, cpu="300m")])
        settled(cluster, {"web": 10, "train": 4})
        assert len(set(where(cluster, "train"))) > 1
        cluster.apply([objects.deployment("web", 2, cpu="500m", labels={"app": "web"})])
        settled(cluster, {"web": 2, "train": 4})
        times = {"unneededFor": "3s", "coolDownAfterGrowth": "0s"}
        policy = policy_of(fleet, tmp_path, {"scale-in": times})
        kubeconfig = grant(cluster, (*RUN_RULES, *MARK_RULES))
        with (
            Departures(cluster, ["train"]) as departures,
            runs(f"--policy={policy}", f"--kubeconfig={kubeconfig}") as served,
        ):

            def run():
                served.acts()
                fleet.join()
                return fleet.sizes["pool"] == 2

            wait_until(run, 240, "two machines are left")
        assert departures.partial == []
        assert departures.whole["train"] >= 1
        settled(cluster, {"web": 2, "train": 4})


def test_a_gang_leaves_at_once_for_a_pod_that_waits(cluster, tmp_path):
    """It has a pod on each of two nodes; only where one of them stands is there room, and on a third for it."""
    cluster.apply([objects.node(f"n{n}", cpu="8", labels={"pool": "two"}) for n in range(2)])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([gang("train", 2, cpu="4")])
    settled(cluster, {"train": 2})
    stays = {"pod_annotations": {"rebalancer/evict": "false"}}
    of_two = {"affinity": objects.require_node("pool", "two"), **stays}
    cluster.apply([objects.deployment("stays", 2, cpu="2", labels={"app": "stays"}, **of_two)])
    cluster.apply([objects.node("n2", cpu="8", labels={"pool": "three"})])
    operations.wait_nodes_ready(cluster.api, 3)
    of_three = {"affinity": objects.require_node("pool", "three"), **stays}
    cluster.apply([objects.deployment("here", 1, cpu="4", labels={"app": "here"}, **of_three)])
    settled(cluster, {"train": 2, "stays": 2, "here": 1})
    assert sorted(where(cluster, "train")) == sorted(where(cluster, "stays")) == ["n0", "n1"]
    cluster.apply([objects.deployment("big", 1, cpu="6", labels={"app": "big"})])
    wait_unschedulable(cluster, "big")
    policy = tmp_path / "policy.yaml"
    policy.write_text(ROOM)
    kubeconfig = grant(cluster, (*RUN_RULES, *MARK_RULES, *SCALE_OUT_RULES))
    flags = (f"--policy={policy}", f"--kubeconfig={kubeconfig}", "--output=json")
    with Departures(cluster, ["train"]) as departures:
        ran = rebalancer("run", "--yes", *flags)
        assert ran.code == 0, ran.err
    assert departures.partial == []
    assert departures.whole == {"train": 1}
    assert {move["gang"] for move in ran.evicted} == {"default: PodGroup train"}
    settled(cluster, {"train": 2, "stays": 2, "here": 1, "big": 1})
    assert marks(cluster) == []
    again = rebalancer("run", "--yes", *flags)
    assert again.report["moves"] == []


def test_gangs_stay_whole_while_labels_and_taints_come_and_go(cluster, tmp_path):
    """Rules are broken again and again, at random; each run moves whole gangs, or says why they stay."""
    draw = random.Random(20261127)
    names = [f"node-{n}" for n in range(8)]
    cluster.apply([objects.node(name, cpu="4", labels={"ok": "yes"}) for name in names])
    operations.wait_nodes_ready(cluster.api, len(names))
    wants = {"affinity": objects.require_node("ok", "yes")}
    sizes = {f"gang-{n}": draw.randint(2, 5) for n in range(5)}
    cluster.apply(
        [
            *(gang(app, of, KINDS[n % len(KINDS)], cpu="700m", **wants) for n, (app, of) in enumerate(sizes.items())),
            objects.deployment("web", 8, cpu="500m", labels={"app": "web"}, **wants),
        ]
    )  # fmt: skip
    counts = {**sizes, "web": 8}
    settled(cluster, counts)
    product = Product(cluster, tmp_path)
    with Departures(cluster, sizes) as departures:
        for _ in range(3):
            for name in names:
                path, bad = f"/api/v1/nodes/{name}", draw.random() < 0.25
                taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
                taints = [taint] if draw.random() < 0.1 else None
                labels = {"ok": "no" if bad else "yes"}
                cluster.api.patch(
                    path, {"metadata": {"labels": labels}, "spec": {"taints": taints}}
                )
            ran = product.run()
            assert ran.code == 0, (ran.err, ran.out)
            settled(cluster, counts)
    assert departures.partial == []
    assert sum(departures.whole.values()) >= len(sizes)
