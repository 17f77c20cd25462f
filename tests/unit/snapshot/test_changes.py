"""Changes folded into a snapshot one by one give what all objects give that are there at the end."""

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.columns import StringColumn
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import Scope
from rebalancer.wire.lists import decode_objects
from rebalancer.wire.pods import PodRecord, decode_page
from tests.same import contents

CAPTURE: dict[str, Any] = {"captured_at": 1_800_000_000.0, "version": (1, 36)}
SETS = ("web-1", "web-2", "lone")
"""ReplicaSets: two of one Deployment, and one without an owner."""


def pod(number: int, controller: str, node: str = "n1", **status: Any) -> dict[str, Any]:
    """One of two specs by its number; the number is also the order of names, and no order of uids."""
    return {
        "metadata": {
            "name": f"p{number}",
            "namespace": f"space-{number % 2}",
            "uid": f"{(number * 7) % 10}{'0' * (number % 3)}-{number}-{status.pop('life', 0)}",
            "labels": {"app": controller},
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": controller, "uid": controller, "controller": True}
            ],
            **status.pop("metadata", {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": f"{number % 2 + 1}00m"}}}
            ],
        },
        "status": {"phase": "Running", **status},
    }


def replica_set(name: str, replicas: int = 2) -> dict[str, Any]:
    owner = [{"kind": "Deployment", "name": "web", "uid": "web", "controller": True}]
    return {
        "metadata": {
            "name": name,
            "namespace": "space-0",
            "uid": name,
            **({"ownerReferences": owner} if name != "lone" else {}),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name, "new": "1"}}, "spec": {}},
        },
    }


def node(name: str, cpu: int = 4) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"zone": name}},
        "status": {"allocatable": {"cpu": str(cpu), "pods": "10"}},
    }


def budget(name: str, allowed: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "space-0"},
        "spec": {"selector": {"matchLabels": {"app": "lone"}}},
        "status": {"disruptionsAllowed": allowed},
    }


def records(pods: list[dict[str, Any]]) -> list[PodRecord]:
    return list(decode_page(json.dumps({"items": pods}).encode())[0])


def objects(kind: str, items: list[dict[str, Any]]) -> tuple[Any, ...]:
    return decode_objects(kind, json.dumps({"items": items}).encode())[0]


class World:
    """What the server has: pods by number, other objects by kind and name."""

    def __init__(self) -> None:
        self.pods: dict[int, dict[str, Any]] = {n: pod(n, SETS[n % 2]) for n in (3, 4, 5, 8)}
        self.others: dict[tuple[str, str], dict[str, Any]] = {
            ("ReplicaSet", "web-1"): replica_set("web-1"),
            ("ReplicaSet", "web-2"): replica_set("web-2"),
            ("Node", "n1"): node("n1"),
            ("PodDisruptionBudget", "one"): budget("one", 1),
        }

    def read(self) -> Fold:
        fold = Fold()
        fold.add_pods(records(list(self.pods.values())))
        for (kind, _), item in self.others.items():
            fold.add(kind, objects(kind, [item]))
        return fold


PODS = st.builds(
    lambda number, controller, node, phase, life, deleting: (
        number,
        pod(
            number,
            controller,
            node,
            phase=phase,
            life=life,
            metadata={"deletionTimestamp": "2026-11-20T10:00:00Z"} if deleting else {},
        ),
    ),
    st.integers(0, 9),
    st.sampled_from(SETS),
    st.sampled_from(["n1", "n2", "n3", ""]),
    st.sampled_from(["Running", "Running", "Pending", "Failed"]),
    st.integers(0, 1),
    st.booleans(),
)
GONE = st.integers(0, 9)
OTHERS = st.one_of(
    st.builds(
        lambda n, r: ("ReplicaSet", replica_set(n, r)), st.sampled_from(SETS), st.integers(0, 3)
    ),
    st.builds(
        lambda n, c: ("Node", node(n, c)), st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 9)
    ),
    st.builds(
        lambda n, a: ("PodDisruptionBudget", budget(n, a)), st.sampled_from("ab"), st.integers(0, 2)
    ),
)
REMOVED = st.builds(lambda item: (item[0], item[1]["metadata"]["name"]), OTHERS)
STEP = st.one_of(
    st.tuples(st.just("pod"), PODS),
    st.tuples(st.just("pod gone"), GONE),
    st.tuples(st.just("other"), OTHERS),
    st.tuples(st.just("other gone"), REMOVED),
    st.tuples(st.just("look"), st.none()),
)


def follow(world: World, fold: Fold, what: str, change: Any) -> None:
    """Let one thing happen in the world, and give the change to the fold as a watch does."""
    if what == "pod":
        number, now = change
        before = world.pods.get(number)
        if before is not None and before["metadata"]["uid"] != now["metadata"]["uid"]:
            fold.remove_pod(before["metadata"]["uid"])
        world.pods[number] = now
        fold.change_pod(records([now])[0])
    elif what == "pod gone":
        before = world.pods.pop(change, None)
        if before is not None:
            fold.remove_pod(before["metadata"]["uid"])
    elif what == "other":
        kind, now = change
        world.others[kind, now["metadata"]["name"]] = now
        fold.change(kind, objects(kind, [now])[0])
    elif what == "other gone":
        before = world.others.pop(change, None)
        if before is not None:
            fold.remove(change[0], objects(change[0], [before])[0])
    else:
        seen(fold)


def seen(fold: Fold) -> Snapshot:
    return fold.settle().snapshot(**CAPTURE)


@settings(max_examples=30, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_a_followed_snapshot_is_the_one_that_is_read_again(steps):
    world = World()
    fold = world.read()
    first = seen(fold)
    before = contents(first)
    for what, change in steps:
        follow(world, fold, what, change)
    assert contents(seen(fold)) == contents(world.read().finish(**CAPTURE))
    assert contents(first) == before


def planned(snapshot: Snapshot, registry: Registry) -> str:
    """A plan, as a sequence of bytes that names all that it says."""
    policy = load_policy(None, registry)
    plan = make_plan(RunRules(policy, registry, Scope()), snapshot, Timings(SystemClock())).plan
    said = (plan.moves, plan.skips, plan.before, plan.after, plan.lower_bound, plan.funnel)
    return repr((*said, plan.warnings))


@settings(max_examples=20, deadline=None)
@given(st.lists(STEP, max_size=15))
def test_the_plan_over_what_was_kept_is_the_plan_of_a_fresh_read(steps):
    registry = Registry.installed()
    world = World()
    fold = world.read()
    for what, change in [("look", None), *steps]:
        follow(world, fold, what, change)
        if what == "look":
            # A run plans here: what it works out on the snapshot may be kept, too.
            planned(seen(fold), registry)
    fresh = world.read().finish(**CAPTURE)
    assert planned(seen(fold), registry) == planned(fresh, registry)
    assert planned(seen(fold), registry) == planned(fresh, registry)


def test_classes_come_and_go_with_their_pods():
    world = World()
    fold = world.read()
    seen(fold)
    follow(world, fold, "pod", (0, pod(0, "lone")))
    names = [c.labels["app"] for c in seen(fold).classes if "new" not in c.labels]
    assert names == ["lone", "web-1", "web-2"]
    follow(world, fold, "pod gone", 0)
    assert all(c.labels["app"] != "lone" for c in seen(fold).classes)


def test_it_is_known_which_controllers_are_named_and_were_not_seen():
    world = World()
    fold = world.read()
    assert fold.settle().without_object() == set()
    follow(world, fold, "pod", (0, pod(0, "lone")))
    assert fold.settle().without_object() == {("ReplicaSet", "lone")}
    follow(world, fold, "other", ("ReplicaSet", replica_set("lone")))
    assert fold.settle().without_object() == set()


def test_the_controllers_of_pods_that_have_ended_are_kept_with_them():
    fold = Fold(frozenset({"Failed"}))
    fold.add_pods(records([pod(0, "lone", phase="Failed")]))
    fold.add("ReplicaSet", objects("ReplicaSet", [replica_set("lone", 0)]))
    fold.settle()
    fold.compact()
    assert fold.settle().without_object() == set()
    fold.remove_pod(records([pod(0, "lone")])[0].uid)
    fold.settle()
    fold.compact()
    assert fold.find("ReplicaSet", objects("ReplicaSet", [replica_set("lone")])[0]) is None


@given(st.lists(st.text(max_size=4), max_size=12), st.data())
def test_columns_of_strings_are_taken_and_searched_like_lists(values, data):
    column = StringColumn(values)
    rows = data.draw(st.lists(st.integers(0, len(values) - 1))) if values else []
    assert list(column.take(np.array(rows, np.intp))) == [values[row] for row in rows]
    assert list(column.concat(StringColumn(["x", ""]))) == [*values, "x", ""]
    sought = set(data.draw(st.lists(st.sampled_from([*values, "none"]))))
    matches = column.rows_of(sought).tolist()
    assert matches == [row for row, value in enumerate(values) if value in sought]


@given(
    st.lists(st.text("ab", min_size=3, max_size=3), max_size=12), st.sets(st.text("ab", max_size=4))
)
def test_strings_of_one_length_are_searched_where_they_lie(values, sought):
    rows = StringColumn(values).rows_of(sought).tolist()
    assert rows == [row for row, value in enumerate(values) if value in sought]


def test_what_is_kept_of_pods_that_have_ended_is_compacted_too():
    fold = Fold(frozenset({"Failed"}))
    for life in range(5000):
        (record,) = records([pod(1, "web-1", life=life)])
        fold.change_pod(record)
        fold.remove_pod(record.uid)
        fold.compact()
    assert len(fold._finished._newest) < 2000
    assert len(fold._pods._newest) < 2000


def test_the_controller_of_a_pod_that_has_ended_is_not_forgotten():
    fold = Fold(frozenset({"Failed"}))
    fold.add_pods(records([pod(1, "web-1", phase="Failed")]))
    (idle,) = objects("ReplicaSet", [replica_set("web-1", 0)])
    fold.change("ReplicaSet", idle)
    fold.compact()
    assert not fold.settle().without_object()
