"""Reports of users of other deschedulers, played on a cluster: the whole product against a placement.

Pods are put where the report has them (``spec.nodeName``), and adopted by a ReplicaSet; then the command
runs, really evicts, and the cluster's own controllers and scheduler answer. Run twice: what is not fixed
at once must not be tried for ever.
"""

import json
import time
from typing import Any

import pytest

from rebalancer.wire.times import rfc3339
from tests.contract.ground import Ground
from tests.controlplane import objects, operations
from tests.controlplane.objects import prefer_apart, require_apart, spread
from tests.e2e.product import NO_WAIT, Ran, rebalancer

PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
HOST = objects.HOSTNAME


def place(
    ground: Ground,
    name: str,
    nodes: list[str],
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """Let a ReplicaSet adopt Ready pods that stand on just these nodes."""
    labels = labels or {"app": name}
    for index, node in enumerate(nodes):
        manifest = objects.pod(
            f"{name}-{index}", labels=labels, annotations=annotations, nodeName=node, **spec
        )
        ground.api.post("/api/v1/namespaces/default/pods", manifest)
    # Only then: a ReplicaSet whose controller has not heard of them yet makes others.
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    operations.wait_pods_ready(ground.api, len(nodes), selector=selector)
    ground.apply(
        objects.replicaset(name, len(nodes), labels=labels, pod_annotations=annotations, **spec)
    )
    path = f"/apis/apps/v1/namespaces/default/replicasets/{name}"

    def settled() -> bool:
        status = ground.api.get(path).get("status", {})
        return bool(status.get("readyReplicas", 0) == len(nodes) == status.get("replicas"))

    ground.wait(settled, f"{name} settled")
    pods = operations.pods(ground.api, "default", selector)
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == sorted(nodes)


def nodes(ground: Ground, **zones: Any) -> None:
    """Add nodes: name=zone, or name=(zone, options of objects.node)."""
    for name, what in zones.items():
        zone, options = what if isinstance(what, tuple) else (what, {})
        ground.apply(objects.node(name, zone=zone, **options))
    operations.wait_nodes_ready(ground.api, len(zones))


@pytest.fixture
def run(ground, tmp_path):
    """Run the command on the ground."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(NO_WAIT)

    def once(*args: str) -> Ran:
        flags = (f"--policy={policy}", f"--kubeconfig={ground.kubeconfig}", "--output=json")
        done = rebalancer("run", "--yes", *flags, *args)
        assert done.code == 0, done.err
        return done

    return once


def landed(done: Ran) -> list[tuple[str, str]]:
    """From where to where pods were moved."""
    return [(move["from"], move["landed"]) for move in done.evicted]


def test_two_on_each_of_five_nodes_stay(ground, run):
    nodes(ground, **{f"n{i}": "a" for i in range(5)})
    place(ground, "web", [f"n{i % 5}" for i in range(10)])
    assert run().evicted == []


def test_four_on_each_worker_stay_beside_tainted_nodes(ground, run):
    workers = {f"w{i}": "a" for i in range(3)}
    masters = {f"m{i}": ("a", {"taints": [TAINT]}) for i in range(3)}
    nodes(ground, **workers, **masters)
    rule = [spread({"app": "web"}, HOST, hard=False)]
    place(ground, "web", [f"w{i % 3}" for i in range(12)], topologySpreadConstraints=rule)
    assert run().evicted == []


def test_pods_that_may_not_move_count_in_the_skew(ground, run):
    nodes(ground, na="a", nb="b")
    rule = [spread({"tier": "web"})]
    labels = {"tier": "web"}
    place(
        ground,
        "free",
        ["na", "nb"],
        labels={**labels, "app": "free"},
        topologySpreadConstraints=rule,
    )
    place(
        ground,
        "pin",
        ["nb", "nb"],
        labels={**labels, "app": "pin"},
        annotations={"rebalancer/evict": "false"},
        topologySpreadConstraints=rule,
    )
    assert landed(run()) == [("nb", "na")]
    assert run().evicted == []


def test_three_and_one_is_exactly_one_move_in_dry_run_and_in_earnest(ground, run):
    nodes(ground, na="a", nb="b")
    place(
        ground, "web", ["na", "na", "na", "nb"], topologySpreadConstraints=[spread({"app": "web"})]
    )
    planned = run("--dry-run").report["moves"]
    done = run()
    assert [move["uid"] for move in done.evicted] == [move["uid"] for move in planned]
    assert landed(done) == [("na", "nb")]
    assert run().evicted == []


def test_five_that_want_a_node_each_on_three_stay_and_are_reported(ground, run):
    nodes(ground, n0="a", n1="a", n2="a")
    affinity = require_apart({"app": "web"})
    # Only by nodeName can five be there: the scheduler would have left two without a node.
    place(ground, "web", ["n0", "n1", "n2", "n0", "n1"], affinity=affinity)
    done = run()
    assert done.evicted == []
    assert "5 pods" in str(done.report["before"]["anti-affinity"]["unsatisfiable"])


def test_zone_and_hostname_rules_that_conflict_do_no_harm(ground, run):
    nodes(ground, a1="a", a2="a", b1="b")
    rules = [spread({"app": "web"}), spread({"app": "web"}, HOST)]
    place(ground, "web", ["a1", "a2", "b1", "a1", "a2", "b1"], topologySpreadConstraints=rules)
    assert run().evicted == []


def test_ten_big_pods_and_one_slot_make_one_move(ground, run):
    nodes(
        ground, n0=("a", {"cpu": "96", "memory": "256Gi"}), n1=("a", {"cpu": "9", "memory": "20Gi"})
    )
    affinity = prefer_apart({"app": "web"}, HOST)
    place(ground, "web", ["n0"] * 10, cpu="8", memory="16Gi", affinity=affinity)
    assert landed(run()) == [("n0", "n1")]
    assert run().evicted == []


def test_a_pod_bigger_than_the_threshold_stays(ground, run):
    nodes(ground, n0=("a", {"cpu": "7"}), n1=("a", {"cpu": "3500m"}), n2=("a", {"cpu": "3500m"}))
    place(ground, "big", ["n0"], cpu="3", labels={"app": "big"})
    place(ground, "tall", ["n0"], cpu="3", labels={"app": "tall"})
    assert run().evicted == []


def test_of_two_candidates_the_one_that_can_move_goes(ground, run):
    nodes(ground, n0=("a", {"cpu": "4"}), n1=("a", {"cpu": "4"}))
    place(ground, "other", ["n1", "n1"], cpu="10m")
    place(ground, "stuck", ["n0", "n0"], cpu="900m", affinity=require_apart({"app": "other"}))
    place(ground, "free", ["n0", "n0"], cpu="900m")
    done = run()
    assert {move["owner"] for move in done.evicted} == {"ReplicaSet/default/free"}


def test_evict_false_means_no(ground, run):
    nodes(ground, na="a", nb="b")
    place(
        ground,
        "web",
        ["na", "na"],
        annotations={"descheduler.alpha.kubernetes.io/evict": "false"},
        topologySpreadConstraints=[spread({"app": "web"})],
    )
    done = run()
    assert done.evicted == []
    assert "optedOut" in str(done.report["skipped"])


def test_no_room_in_the_short_zone_is_no_move(ground, run):
    nodes(ground, na="a", nb=("b", {"cpu": "500m"}))
    place(ground, "web", ["na"] * 3, cpu="1", topologySpreadConstraints=[spread({"app": "web"})])
    assert run().evicted == []


def test_a_vanishing_node_is_no_place_to_move_to(ground, run):
    leaving = {"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}
    nodes(ground, na="a", nb=("b", {"taints": [leaving]}))
    everywhere = [{"operator": "Exists"}]
    affinity = prefer_apart({"app": "web"})
    place(ground, "web", ["na", "na"], affinity=affinity, tolerations=everywhere)
    assert run().evicted == []


@pytest.mark.parametrize(
    ("make", "spec"),
    [
        (objects.statefulset, {}),
        (objects.statefulset, {"priorityClassName": "high"}),
        (objects.deployment, {}),
        (objects.deployment, {"terminationGracePeriodSeconds": 0}),
    ],
    ids=["gone first", "gone first, of a higher priority", "beside the victim", "gone at once"],
)
def test_a_pending_pod_takes_the_room_that_an_eviction_frees(ground, make, spec):
    nodes(ground, na=("a", {"cpu": "2"}), nb=("b", {"cpu": "2"}))
    if "priorityClassName" in spec:
        ground.apply(PRIORITY)
    ground.apply(make("db", 2, cpu="1500m", affinity=prefer_apart({"app": "db"}, HOST), **spec))
    operations.wait_pods_ready(ground.api, 2, selector="app=db")
    only_a: dict[str, Any] = {"nodeSelector": {HOST: "na"}}
    ground.apply(objects.pod("young", cpu="1500m", **only_a))
    ground.apply(objects.pod("small", cpu="200m", **only_a))
    ground.wait(lambda: where(ground, "small") == "na", "the small pod on na")
    # Now there is a choice: without the pending pod, na and nc would be as good as each other.
    ground.apply(objects.node("nc", zone="c", cpu="2"))
    operations.wait_nodes_ready(ground.api, 3)
    [victim] = [name for name in ground.names() if name[:2] == "db" and where(ground, name) == "na"]
    others = set(ground.names())
    explanation = explained(ground, victim)
    assert explanation["pending"] == [{"pod": "default/young", "node": "na"}]
    assert [one["node"] for one in explanation["landings"]] == ["nc"]

    before = ground.pod(victim)["metadata"]["uid"]
    ground.evict(victim)
    ground.wait(lambda: where(ground, "young") == "na", "the pending pod on na", 60)

    def landed() -> str | None:
        replacements = operations.pods(ground.api, "default", "app=db")
        fresh = [p for p in replacements if p["metadata"]["name"] not in others - {victim}]
        fresh = [p for p in fresh if p["metadata"]["uid"] != before]
        return fresh[0]["spec"].get("nodeName") if fresh else None

    assert ground.wait(landed, "the replacement on a node", 60) == "nc"


def where(ground: Ground, name: str) -> str | None:
    """Return the node of a pod, None as long as it has none."""
    return ground.pod(name)["spec"].get("nodeName")


def explained(ground: Ground, pod: str) -> dict[str, Any]:
    """Return what the command says of a pod of the default namespace, as JSON has it."""
    done = rebalancer(
        "explain", "pod", f"default/{pod}", f"--kubeconfig={ground.kubeconfig}", "--output=json"
    )
    assert done.code == 0, done.err
    return dict(json.loads(done.out))


AUTOSCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


def test_what_an_autoscaler_has_just_scaled_stays(ground, run):
    nodes(ground, **{"node-0": "a", "node-1": "a"})
    place(ground, "web", ["node-0", "node-0"])
    ground.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"},
                "maxReplicas": 5,
            },
        }
    )

    def scaled(ago: float) -> None:
        """Let the autoscaler have scaled so many seconds ago."""
        last = rfc3339(time.time() - ago)
        status = {"currentReplicas": 2, "desiredReplicas": 2, "lastScaleTime": last}
        ground.api.patch(f"{AUTOSCALERS}/web/status", {"status": status})

    scaled(ago=60)
    done = run("--set=protect.afterScaling=1h")
    assert done.evicted == []
    assert {skip["code"] for skip in done.report["skipped"]} == {"JustScaled"}
    scaled(ago=7200)
    assert landed(run("--set=protect.afterScaling=1h")) == [("node-0", "node-1")]
