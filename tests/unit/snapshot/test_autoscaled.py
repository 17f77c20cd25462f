"""What HorizontalPodAutoscalers have just scaled, and for how long its pods stay."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.planner.notices import scope_notes
from rebalancer.policy.model import Policy
from rebalancer.policy.protect import Protect
from rebalancer.snapshot.protect import JUST_SCALED, Scope, names_of, protect, text_of
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.times import rfc3339

NOW = datetime(2027, 1, 1, tzinfo=UTC).timestamp()


def autoscaler(
    kind="Deployment", name="web", *, ago=None, current=2, desired=2, namespace="default", broken=""
):
    """An autoscaler of a target of this kind and name; the condition ``broken`` is False."""
    last = {} if ago is None else {"lastScaleTime": rfc3339(NOW - ago)}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"of-{name}", "namespace": namespace},
        "spec": {"scaleTargetRef": {"kind": kind, "name": name}},
        "status": {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "conditions": [{"type": broken, "status": "False"}],
            **last,
        },
    }


def held(objects, after="10m"):
    """Names of the pods that have just been scaled, each with what is said of it."""
    snapshot = snapshot_of([node("a"), node("b"), *objects], now=NOW)
    rules = Protect() if after is None else Protect(after_scaling=after)
    bits = protect(snapshot, rules, Scope())
    return {
        snapshot.pods.name[pod]: text_of(snapshot, pod, JUST_SCALED)
        for pod in range(len(snapshot.pods))
        if JUST_SCALED in names_of(int(bits[pod]))
    }


TWO = ["a", "b"]


@pytest.mark.parametrize(
    ("given", "after", "stays"),
    [
        ({"ago": 599}, "10m", True),
        ({"ago": 600}, "10m", False),
        ({"ago": 599}, "5m", False),
        ({"ago": -5}, "10m", True),  # clocks differ by a little
        ({"ago": 599}, None, False),
        ({}, "10m", False),  # never
        ({"desired": 3}, "10m", True),
        ({"desired": 3}, "0s", True),
        ({"desired": 1, "ago": 9999}, "10m", True),
        ({"current": 0, "desired": 0}, "10m", False),  # it has not looked yet
        ({"desired": 0}, "10m", False),  # it has never had metrics
        ({"desired": 0, "ago": 60}, "10m", True),  # to zero
        ({"desired": 5, "broken": "ScalingActive"}, "10m", False),
        ({"desired": 5, "broken": "AbleToScale"}, "10m", False),
        ({"desired": 5, "broken": "ScalingActive", "ago": 60}, "10m", True),
        ({"desired": 5, "broken": "ScalingLimited"}, "10m", True),
        ({"ago": 1, "name": "api"}, "10m", False),
        ({"ago": 1, "kind": "StatefulSet"}, "10m", False),
        ({"ago": 1, "namespace": "shop"}, "10m", False),
    ],
)
def test_pods_of_what_was_just_scaled_stay(given, after, stays):
    assert set(held([*workload("web", TWO), autoscaler(**given)], after)) == (
        {"web-0", "web-1"} if stays else set()
    )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_targets_of_each_kind_are_known_by_name(kind):
    objects = [*workload("web", TWO, kind=kind), *workload("api", TWO, kind=kind)]
    assert set(held([*objects, autoscaler(kind, ago=60)])) == {"web-0", "web-1"}


def owned_by(objects, kind, owner):
    """The objects, the ``kind`` among them belonging to an object that is not read."""
    reference = {
        "kind": owner,
        "apiVersion": "x.io/v1",
        "name": "top",
        "uid": "top",
        "controller": True,
    }
    return [
        {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}}
        if each["kind"] == kind
        else each
        for each in objects
    ]


def test_a_target_below_or_above_the_top_controller_is_its_own():
    plain = workload("web", TWO)
    (replica_set,) = (each for each in plain if each["kind"] == "ReplicaSet")
    below = autoscaler("ReplicaSet", replica_set["metadata"]["name"], ago=60)
    assert set(held([*plain, below])) == {"web-0", "web-1"}
    # A Rollout in the Deployment's place, and an operator's object above the Deployment.
    rollout = owned_by(workload("web", TWO, kind="ReplicaSet"), "ReplicaSet", "Rollout")
    assert set(held([*rollout, autoscaler("Rollout", "top", ago=60)])) == {"web-0", "web-1"}
    operated = owned_by(plain, "Deployment", "Proxy")
    other = owned_by(workload("api", TWO), "Deployment", "Proxy")
    both = {"web-0", "web-1", "api-0", "api-1"}
    assert set(held([*operated, *other, autoscaler("Proxy", "top", ago=60)])) == both


def test_it_says_which_autoscaler_and_since_when():
    web = workload("web", TWO)
    assert set(held([*web, autoscaler(ago=90)]).values()) == {
        "HorizontalPodAutoscaler default/of-web scaled it 1m30s ago, within protect.afterScaling"
    }
    assert set(held([*web, autoscaler(ago=90, desired=5)]).values()) == {
        "HorizontalPodAutoscaler default/of-web wants 5 replicas, and counted 2"
    }


def test_a_file_without_autoscalers_is_no_cluster_without_them():
    policy = Policy(protect=Protect.model_validate({"afterScaling": "10m"}))
    objects = [node("a"), *workload("web", ["a"])]
    (note,) = scope_notes(policy, snapshot_of(objects, now=NOW))
    assert note.startswith("protect.afterScaling protects no pod")
    assert not scope_notes(policy, snapshot_of([*objects, autoscaler()], now=NOW))
    assert not scope_notes(Policy(), snapshot_of(objects, now=NOW))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["w0", "w1", "w2", "gone"]),
            st.none() | st.integers(-10, 2000),
            st.integers(0, 3),
            st.integers(0, 3),
        ),
        max_size=6,
    ),
    st.integers(0, 1500),
)
def test_a_workload_stays_exactly_if_one_of_its_autoscalers_says_so(drawn, after):
    objects = [each for w in ("w0", "w1", "w2") for each in workload(w, TWO)]
    made = [
        {**one, "metadata": {"name": f"h{i}", "namespace": "default"}}
        for i, (name, ago, current, desired) in enumerate(drawn)
        for one in [autoscaler(name=name, ago=ago, current=current, desired=desired)]
    ]
    stays = {
        name
        for name, ago, current, desired in drawn
        if current != desired > 0 or (ago is not None and ago < after)
    }
    pods = {f"{name}-{i}" for name in stays - {"gone"} for i in range(2)}
    assert set(held([*objects, *made], f"{after}s")) == pods
