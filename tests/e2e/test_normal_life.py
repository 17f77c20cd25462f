"""What an autoscaler, a rollout or a new node does meanwhile: plans stay right, or are dropped."""

import contextlib
import threading
from collections import Counter
from typing import Any

import pytest

from rebalancer.base.errors import ExitCode
from tests.controlplane import objects, operations
from tests.controlplane.stages import NEVER_READY, READY_AFTER
from tests.e2e import crowd
from tests.e2e.product import NO_WAIT, Product

NODES = {"a-0": "zone-a", "a-1": "zone-a", "b-0": "zone-b", "c-0": "zone-c"}
SLOW = {READY_AFTER: "2s"}
"""Each wave takes so long that there is time to do something meanwhile."""


def crowded(plane, apps, replicas=9):
    """All pods of every app are in zone a, although a hard spread wants them even; b and c joined later.

    ``apps`` are names with the annotations of their pods.
    """
    add_nodes(plane, "a-0", "a-1")
    plane.apply(
        objects.deployment(
            app,
            replicas,
            pod_annotations=annotations,
            topologySpreadConstraints=[objects.spread({"app": app})],
        )
        for app, annotations in apps.items()
    )
    operations.wait_pods_ready(plane.api, replicas * len(apps))
    add_nodes(plane, "b-0", "c-0")


def add_nodes(plane, *names):
    there = len(plane.api.list_all("/api/v1/nodes"))
    plane.apply(objects.node(name, zone=NODES.get(name, "zone-c")) for name in names)
    operations.wait_nodes_ready(plane.api, there + len(names))


def zones_of(plane, app):
    pods = operations.pods(plane.api, selector=f"app={app}")
    zone = {
        node["metadata"]["name"]: node["metadata"]["labels"][objects.ZONE]
        for node in plane.api.list_all("/api/v1/nodes")
    }
    return Counter(
        zone[pod["spec"]["nodeName"]] for pod in pods if "deletionTimestamp" not in pod["metadata"]
    )


def names_of(plane, app):
    return {pod["metadata"]["name"] for pod in operations.pods(plane.api, selector=f"app={app}")}


def deployment(app):
    return f"/apis/apps/v1/namespaces/default/deployments/{app}"


def owners(moves):
    return {move["owner"].rpartition("/")[2] for move in moves}


class Meanwhile:
    """Does something as soon as the first pod of an app is on its way out.

    The run gets no further until it is done, unless the act itself needs the kubelets.
    """

    def __init__(self, plane, app, act, *, kubelets=False):
        self._plane, self._app, self._act = plane, app, act
        self._still = contextlib.nullcontext() if kubelets else crowd.standing_still(plane)
        self._before = self._standing()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error = None
        self.done = False

    def __enter__(self):
        self._still.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self):
        try:
            self._plane.wait_until(self._begun, 60, f"an eviction of {self._app}")
            self._act()
            self.done = True
        except Exception as error:  # noqa: BLE001 - raised by __exit__
            self.error = error
        finally:
            self._still.__exit__(None, None, None)

    def _begun(self):
        return not self._before <= self._standing()

    def _standing(self):
        pods = operations.pods(self._plane.api, selector=f"app={self._app}")
        return {p["metadata"]["uid"] for p in pods if "deletionTimestamp" not in p["metadata"]}


def until_silent(product, most=8):
    """Run until a run evicts nothing; return the evictions of each run."""
    counts: list[int] = []
    while len(counts) < most and (not counts or counts[-1]):
        done = product.run()
        assert done.code == ExitCode.DONE, done.err
        counts.append(len(done.evicted))
    return counts


SCALED_UP: dict[str, Any] = {"spec": {"replicas": 12}}
ROLLOUT: dict[str, Any] = {"spec": {"template": {"metadata": {"annotations": {"release": "2"}}}}}


# -- it was so when the plan was made --------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "pods"),
    [
        pytest.param(SCALED_UP, 12, id="scaled up by an autoscaler", marks=pytest.mark.long),
        pytest.param(ROLLOUT, 10, id="in a rollout"),
    ],
)
def test_an_unsettled_workload_waits_and_the_others_do_not(cluster, tmp_path, change, pods):
    crowded(cluster, {"busy": {READY_AFTER: "8s"}, "calm": {}})
    product = Product(cluster, tmp_path)
    before = names_of(cluster, "busy")
    cluster.api.patch(deployment("busy"), change)

    def going_on():
        # It goes on for as long as the test looks: none of the new pods becomes Ready.
        new = names_of(cluster, "busy") - before
        for name in new:
            path = f"/api/v1/namespaces/default/pods/{name}"
            cluster.api.patch(path, {"metadata": {"annotations": {NEVER_READY: "true"}}})
        return len(before) + len(new) >= pods

    cluster.wait_until(going_on, 5, "the first new pods")
    done = product.run()
    assert done.code == ExitCode.DONE, done.err
    assert owners(done.evicted) == {"calm"}
    assert sorted(zones_of(cluster, "calm").values()) == [3, 3, 3]
    skipped = [skip for skip in done.report["skipped"] if skip["pod"].startswith("busy-")]
    assert skipped
    assert {skip["code"] for skip in skipped} == {"Protected"}


# -- it happens between the plan and an eviction ---------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(SCALED_UP, id="an autoscaler scales up"),
        pytest.param(ROLLOUT, id="a rollout begins", marks=pytest.mark.long),
    ],
)
def test_what_is_left_of_the_plan_is_dropped_when_the_workload_moves(cluster, tmp_path, change):
    crowded(cluster, {"web": SLOW})
    product = Product(cluster, tmp_path)

    def act():
        cluster.api.patch(deployment("web"), change)

    with Meanwhile(cluster, "web", act) as meanwhile:
        done = product.run()
    assert meanwhile.done
    assert done.code == ExitCode.DONE, done.err
    outcomes = Counter(move["outcome"] for move in done.report["moves"])
    assert outcomes["evicted"] >= 1
    assert outcomes["dropped"] + outcomes["notAttempted"] >= 1, outcomes
    replicas = change["spec"].get("replicas", 9)
    settled(cluster, "web", replicas)
    until_silent(product)
    assert max(zones_of(cluster, "web").values()) - min(zones_of(cluster, "web").values()) <= 1


def test_moves_from_a_node_that_vanishes_are_dropped(cluster, tmp_path):
    crowded(cluster, {"web": SLOW}, replicas=12)
    product = Product(cluster, tmp_path)
    planned = product.run("--dry-run").report["moves"]
    doomed = planned[-1]["from"]

    with Meanwhile(
        cluster, "web", lambda: operations.remove_node(cluster.api, doomed)
    ) as meanwhile:
        done = product.run()
    assert meanwhile.done
    assert done.code == ExitCode.DONE, done.err
    last = next(m for m in done.report["moves"] if m["uid"] == planned[-1]["uid"])
    assert last["outcome"] in ("dropped", "gone", "notAttempted")
    settled(cluster, "web", 12)
    until_silent(product)
    assert sorted(zones_of(cluster, "web").values()) == [4, 4, 4]


def test_a_landing_that_vanishes_is_not_insisted_on(cluster, tmp_path):
    crowded(cluster, {"web": SLOW})
    product = Product(cluster, tmp_path)
    with Meanwhile(cluster, "web", lambda: operations.remove_node(cluster.api, "c-0")) as meanwhile:
        done = product.run()
    assert meanwhile.done
    assert done.code == ExitCode.DONE, done.err
    settled(cluster, "web", 9)
    until_silent(product)
    assert sorted(zones_of(cluster, "web").values()) == [4, 5]


def test_a_node_that_joins_meanwhile_is_an_ordinary_landing(cluster, tmp_path):
    crowded(cluster, {"web": SLOW})
    product = Product(cluster, tmp_path)
    with Meanwhile(cluster, "web", lambda: add_nodes(cluster, "c-1"), kubelets=True) as meanwhile:
        done = product.run()
    assert meanwhile.done
    assert done.code == ExitCode.DONE, done.err
    # With one node more fewer pods may share one: what would now land beside too many waits for the next run.
    assert len(done.evicted) >= 3
    settled(cluster, "web", 9)
    until_silent(product)
    assert sorted(zones_of(cluster, "web").values()) == [3, 3, 3]


def test_scaling_up_and_down_keeps_what_was_learnt(cluster, tmp_path):
    crowded(cluster, {"web": {}})
    name = "default/memory"
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "memory", "namespace": "default"},
                "data": {},
            }
        ]
    )
    product = Product(cluster, tmp_path, NO_WAIT)
    product.kubeconfig = cluster.kubeconfig
    first = product.run(f"--memory={name}")
    assert first.code == ExitCode.DONE, first.err
    assert len(first.evicted) == 6
    for replicas in (12, 9):
        cluster.api.patch(deployment("web"), {"spec": {"replicas": replicas}})
        settled(cluster, "web", replicas)
        done = product.run(f"--memory={name}")
        assert done.code == ExitCode.DONE, done.err
    data = cluster.api.get("/api/v1/namespaces/default/configmaps/memory")["data"]
    assert '"Deployment/default/web"' in data["memory.json"]


def settled(plane, app, replicas):
    """Wait until the workload is whole, and its controller has noticed."""
    operations.wait_pods_ready(plane.api, replicas, 60, selector=f"app={app}")

    def seen():
        workload = plane.api.get(deployment(app))
        status = workload["status"]
        return (
            status.get("observedGeneration") == workload["metadata"]["generation"]
            and status.get("updatedReplicas") == status.get("readyReplicas") == replicas
        )

    plane.wait_until(seen, 60, f"{app} settled")
