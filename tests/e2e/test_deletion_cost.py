"""Scale-ins of the real controller manager, with deletion costs of ours and without: which zones they take pods from."""

import random
import time
from collections import Counter

import pytest

from rebalancer.kube.deletion_costs import CHANGE_POD
from rebalancer.wire.deletion_order import read_replicas, sort_replicas
from rebalancer.wire.pods import DELETION_COST, OUR_DELETION_COST
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import Product

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
strategies:
  deletion-cost: {podsPerRun: 10000, select: {labels: {ordered: "yes"}}}
"""
ZONES = "abc"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SHAPES = ((20, 3), (60, 30), (9, 4))
"""Replicas before and after a scale-in."""
TRIES = 1
CYCLES = 10


def deployment(name, replicas, *, ordered):
    labels = {"app": name, "ordered": "yes" if ordered else "no"}
    even = [objects.spread({"app": name})]
    return objects.deployment(
        name, replicas, labels=labels, cpu="10m", topologySpreadConstraints=even
    )


@pytest.fixture
def product(cluster, tmp_path):
    """Three zones of four nodes."""
    nodes = [f"{zone}{number}" for zone in ZONES for number in range(4)]
    cluster.apply(objects.node(name, zone=f"zone-{name[0]}") for name in nodes)
    operations.wait_nodes_ready(cluster.api, len(nodes))
    return Product(cluster, tmp_path, POLICY, (CHANGE_POD,))


def pods_of(cluster, name):
    pods = operations.pods(cluster.api, "default", f"app={name}")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def zones_of(cluster, name):
    on = Counter(pod["spec"]["nodeName"][0] for pod in pods_of(cluster, name))
    return [on[zone] for zone in ZONES]


def is_broken(counts):
    return max(counts) - min(counts) > 1


def scale(cluster, replicas):
    """Scale Deployments, name -> replicas, and wait until all pods are there and Ready."""
    for name, number in replicas.items():
        cluster.api.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": number}})

    def settled():
        pods = operations.pods(cluster.api, "default")
        ready = Counter(
            pod["metadata"]["labels"]["app"] for pod in pods if operations.is_ready(pod)
        )
        return len(pods) == sum(replicas.values()) and ready == Counter(replicas)

    wait_until(settled, 240, "the replicas of all Deployments")


def run(product):
    done = product.run()
    assert done.code == 0, done.err
    assert all(one["outcome"] == "written" for one in done.report["deletionCosts"]["changes"])
    return done


def test_scale_ins_keep_the_spread_that_they_break_without_costs(cluster, product):
    before, after = {}, {}
    for old, new in SHAPES:
        for number in range(TRIES):
            for word in ("ordered", "plain"):
                name = f"{word}-{old}-{number}"
                before[name], after[name] = old, new
    cluster.apply(deployment(name, 0, ordered=name.startswith("ordered")) for name in before)
    scale(cluster, before)
    assert not any(is_broken(zones_of(cluster, name)) for name in before)
    done = run(product)
    of = {one["workload"].partition("-")[0] for one in done.report["deletionCosts"]["changes"]}
    assert of == {"Deployment/default/ordered"}
    # What is right already is not written again.
    assert run(product).report["deletionCosts"]["changes"] == []
    scale(cluster, after)
    zones = {name: zones_of(cluster, name) for name in after}
    broken = {name for name, counts in zones.items() if is_broken(counts)}
    assert not {name for name in broken if name.startswith("ordered")}, zones
    # Else this would be true of itself.
    assert broken, zones


def foretell(pods, number, since, until):
    """What the model takes, at each time between two: ages are compared by powers of two, so that it changes."""
    replicas = read_replicas(pods)
    times = [since + (until - since) * part / 200 for part in range(201)]
    orders = {tuple(sort_replicas(replicas, at)[:number]) for at in times}
    return [{pods[row]["metadata"]["name"] for row in order} for order in orders]


def test_the_model_takes_the_pods_that_the_controller_takes(cluster, product):
    names = [f"plain-{number}" for number in range(8)]
    cluster.apply(deployment(name, 0, ordered=False) for name in names)
    # No two of a Deployment are Ready in the same second: the controller's sort leaves the order of such pods open.
    for replicas in range(1, 13):
        scale(cluster, dict.fromkeys(names, replicas))
        time.sleep(1.0)
    pods = {name: pods_of(cluster, name) for name in names}
    since = time.time()  # the controller manager of this machine has the same clock
    scale(cluster, dict.fromkeys(names, 7))
    for name, of in pods.items():
        left = {pod["metadata"]["name"] for pod in pods_of(cluster, name)}
        gone = {pod["metadata"]["name"] for pod in of} - left
        assert gone in foretell(of, 5, since, time.time())


def cycle(cluster, product, names, cycles, seed):
    """Play HPA-like cycles; return how many scale-ins there were, and how many broke the spread."""
    rng = random.Random(seed)
    at = dict.fromkeys(names, 6)
    scale(cluster, at)
    cuts, broken = Counter[str](), Counter[str]()
    for _ in range(cycles):
        run(product)
        to = {name: rng.randrange(2, 25) for name in names}
        held = {name for name in names if not is_broken(zones_of(cluster, name))}
        scale(cluster, to)
        for name in held:
            if to[name] < at[name]:
                word = name.partition("-")[0]
                cuts[word] += 1
                broken[word] += is_broken(zones_of(cluster, name))
        at = to
    return cuts, broken


@pytest.mark.long
def test_cycles_of_an_autoscaler_break_no_spread(cluster, product):
    names = [f"{word}-{number}" for word in ("ordered", "plain") for number in range(4)]
    cluster.apply(deployment(name, 0, ordered=name.startswith("ordered")) for name in names)
    cuts, broken = cycle(cluster, product, names, CYCLES, seed=1)
    assert cuts["ordered"] > CYCLES
    assert broken["ordered"] == 0, (cuts, broken)
    assert broken["plain"], (cuts, broken)


def test_costs_of_others_are_kept_and_ours_taken_back(cluster, product):
    cluster.apply([deployment("mine", 9, ordered=True), deployment("theirs", 9, ordered=True)])
    scale(cluster, {"mine": 9, "theirs": 9})
    first = pods_of(cluster, "theirs")[0]["metadata"]["name"]
    path = f"/api/v1/namespaces/default/pods/{first}"
    cluster.api.patch(path, {"metadata": {"annotations": {DELETION_COST: "7"}}})
    run(product)
    written = [pod["metadata"].get("annotations") or {} for pod in pods_of(cluster, "mine")]
    assert any(DELETION_COST in of for of in written)
    assert [of.get(DELETION_COST) for of in written] == [
        of.get(OUR_DELETION_COST) for of in written
    ]
    kept = {
        pod["metadata"]["name"]: pod["metadata"].get("annotations") or {}
        for pod in pods_of(cluster, "theirs")
    }
    assert {name: of[DELETION_COST] for name, of in kept.items() if DELETION_COST in of} == {
        first: "7"
    }
    product.policy.write_text(POLICY.replace("{podsPerRun", "{mode: 'off', podsPerRun"))
    run(product)
    for pod in pods_of(cluster, "mine"):
        assert not {DELETION_COST, OUR_DELETION_COST} & set(
            pod["metadata"].get("annotations") or {}
        )
    now = {
        pod["metadata"]["name"]: pod["metadata"].get("annotations") or {}
        for pod in pods_of(cluster, "theirs")
    }
    assert {name: of[DELETION_COST] for name, of in now.items() if DELETION_COST in of} == {
        first: "7"
    }
