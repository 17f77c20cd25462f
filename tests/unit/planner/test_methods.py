"""By which method a single replica is moved off a machine that goes."""

import pytest

from rebalancer.plan.machines import InterruptedMachine, Result
from rebalancer.planner.methods import with_methods
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.owners import HASH
from rebalancer.snapshot.protect import Scope, names_of, protect
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, workload
from rebalancer.wire.times import unix_seconds

CREATED = "2027-01-15T07:00:00Z"
NODES = [node("n1"), node("n2")]


def policy(method="restart"):
    text = f"apiVersion: rebalancer/v1\nkind: Policy\nmethod: {{singleReplicas: {method}}}\n"
    return load_text(text.encode(), "policy", Registry.installed()).policy


def single(ready="2027-01-15T07:00:40Z", strategy=None):
    """The one pod of a Deployment on n1, which took 40 seconds to be Ready."""
    objects = workload("web", ["n1"], kind="Deployment")
    for each in objects:
        hashed = {"app": "web", HASH: "abc"}
        if each["kind"] == "Pod":
            each["metadata"] |= {"labels": hashed, "creationTimestamp": CREATED}
            of = {"type": "Ready", "status": "True", "lastTransitionTime": ready}
            each["status"]["conditions"] = [of]
        elif each["kind"] == "ReplicaSet":
            each["spec"]["template"]["metadata"]["labels"] = hashed
        elif strategy is not None:
            each["spec"]["strategy"] = strategy
    return objects


def judged(objects, left, method="restart", name="n1"):
    """The class of the pod where the machine of a node goes in so many seconds."""
    snapshot = snapshot_of([*NODES, *objects])
    of = policy(method)
    methods = with_methods(of, snapshot, {name: snapshot.captured_at + left})
    (bits,) = protect(methods, of.protect, Scope())
    return methods.classes[methods.pods.cls[0]], set(names_of(int(bits)))


@pytest.mark.parametrize(
    ("left", "restarts"), [(3600.0, True), (40.0, True), (39.0, False), (-60.0, False)]
)
def test_it_restarts_where_another_pod_is_ready_in_time(left, restarts):
    cls, protections = judged(single(), left)
    assert cls.restarts is restarts
    # What cannot be kept Ready goes in good order, also where single replicas are protected.
    assert not protections & {"singleReplica", "cannotSurge"}
    took = "and the pod took 40 s to be Ready"
    seconds = max(0, int(left))
    assert cls.too_late == ("" if restarts else f"its machine goes in {seconds} s, {took}")


def test_a_pod_that_was_ready_again_long_after_its_start_counts_with_the_longest_time():
    late = single("2027-01-15T07:50:00Z")
    assert judged(late, 121.0)[0].restarts
    assert "took 120 s" in judged(late, 119.0)[0].too_late


def test_what_a_budget_keeps_is_restarted_however_late():
    kept = disruption_budget("one", "web", allowed=0, healthy=1)
    assert judged([*single(), kept], 5.0)[0].restarts


def test_other_machines_and_other_policies_are_not_concerned():
    assert judged(single(), 5.0, name="n2")[0].restarts
    assert judged(single(), 5.0, name="elsewhere")[0].restarts
    cls, protections = judged(single(), 5.0, method="evict")
    assert (cls.restarts, cls.too_late) == (False, "")
    assert "singleReplica" in protections


def test_what_can_never_surge_stays_protected():
    cls, protections = judged(single(strategy={"type": "Recreate"}), 5.0)
    assert (cls.restarts, cls.too_late) == (False, "")
    assert "cannotSurge" in protections


@pytest.mark.parametrize(
    ("result", "known"), [("under-way", True), ("waiting", True), (Result.CANCELLED.value, False)]
)
def test_a_machine_goes_while_its_steps_are_under_way(result, known):
    at = unix_seconds(CREATED)
    machine = InterruptedMachine("n1", "i-1", "spot", "sqs", at, result, {})
    assert machine.goes_at == (at if known else None)
