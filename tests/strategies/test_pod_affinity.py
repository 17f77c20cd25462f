"""Pod affinity on clusters of two to four nodes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy, view_of
from rebalancer.testing.snapshots import HOSTNAME, ZONE, node, snapshot_of, workload
from strategies.pod_affinity import PodAffinityParams
from tests.unit.planner.conftest import plan_of

NAME = "pod-affinity"
STRATEGY = Registry.installed().strategy(NAME)


def near(app, key=ZONE, weight=None):
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    if weight is None:
        return {
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        }
    preferred = [{"weight": weight, "podAffinityTerm": term}]
    return {
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    }


def plan(objects, **params):
    return plan_of(objects, strategies=[NAME], params={NAME: PodAffinityParams(**params)})


def moves(result):
    return [(m.owner.rpartition("/")[2], m.node, m.landings[0].node) for m in result.moves]


NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("b2", "b")]


def test_a_pod_whose_required_affinity_broke_goes_to_the_matching_pod():
    objects = [
        *NODES,
        *workload("cache", ["a1", "a2"]),
        *workload("web", ["b1", "a1"], spec=near("cache")),
    ]
    result = plan(objects)
    assert [(owner, start) for owner, start, _ in moves(result)] == [("web", "b1")]
    assert moves(result)[0][2] in ("a1", "a2")
    assert result.before[NAME].cost.hard == 1
    assert result.after[NAME].cost.hard == 0
    assert "0 matching pods in b" in result.moves[0].reason


def test_preferred_affinity_is_soft_and_by_its_weight():
    objects = [*NODES, *workload("cache", ["a1", "a2"])]
    objects += workload("web", ["b1", "a1"], spec=near("cache", weight=50))
    result = plan(objects)
    assert result.before[NAME].cost.soft == 0.5
    assert [(owner, start) for owner, start, _ in moves(result)] == [("web", "b1")]
    assert plan(objects, preferred=False).moves == ()


def test_the_pods_that_it_names_are_never_moved_for_it():
    objects = [*NODES, *workload("cache", ["a1", "a2"])]
    objects += workload("web", ["b1", "b2"], spec={**near("cache"), "nodeSelector": {ZONE: "b"}})
    result = plan(objects)
    assert result.moves == ()
    assert list(result.before[NAME].unsatisfiable) == [
        f"Deployment/default/web near over {ZONE} (required): no node near a matching pod takes 2 of its pods"
    ]


def test_pods_that_ask_for_their_own_kind_gather():
    objects = [*NODES, *workload("web", ["a1", "a2", "b1"], spec=near("web"))]
    result = plan(objects)
    assert [(owner, start) for owner, start, _ in moves(result)] == [("web", "b1")]
    assert result.after[NAME].cost.hard == 0


def test_the_first_of_its_kind_may_be_anywhere():
    objects = [*NODES, *workload("web", ["a1"], spec=near("web"))]
    assert plan(objects).before[NAME].cost.hard == 0


def test_a_node_without_the_label_is_near_nothing():
    objects = [*NODES, node("x"), *workload("cache", ["a1", "x"])]
    objects += workload("web", ["x", "a1"], spec=near("cache"))
    assert [(owner, start) for owner, start, _ in moves(plan(objects))] == [("web", "x")]


def test_a_pod_counts_only_if_it_matches_all_required_terms():
    both = [
        {"labelSelector": {"matchLabels": {key: "x"}}, "topologyKey": ZONE}
        for key in ("one", "two")
    ]
    spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": both}}}
    objects = [
        *NODES,
        *workload("half", ["b1", "b2"], labels={"one": "x"}),
        *workload("whole", ["a1", "a2"], labels={"one": "x", "two": "x"}),
        *workload("web", ["b1", "a2"], spec=spec),
    ]
    assert [(owner, start) for owner, start, _ in moves(plan(objects))] == [("web", "b1")]


# -- against plain words ------------------------------------------------------------------------------------

WHERE = {"a1": "a", "a2": "a", "b1": "b", "c1": "c", "x": None}
places = st.lists(st.sampled_from(sorted(WHERE)), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(places, places, st.booleans(), st.booleans())
def test_the_potential_is_the_number_of_pods_apart(web, cache, own_kind, by_host):
    key = HOSTNAME if by_host else ZONE
    app = "web" if own_kind else "cache"
    objects = [node(name, zone) for name, zone in WHERE.items()]
    objects += workload("cache", cache)
    objects += workload("web", web, spec=near(app, key))
    snapshot = snapshot_of(objects)
    domain = {name: (name if by_host else zone) for name, zone in WHERE.items()}
    matching = web if own_kind else cache
    apart = 0
    for index, place in enumerate(web):
        others = [
            p
            for i, p in enumerate(matching)
            if domain[p] is not None and not (own_kind and i == index)
        ]
        beside = domain[place] is not None and domain[place] in [domain[p] for p in others]
        first = own_kind and not others and domain[place] is not None
        apart += not (beside or first)
    term = STRATEGY.terms(view_of(snapshot), PodAffinityParams())[0]
    hopeless = sum("no node near" in text for text in term.unsatisfiable())
    assert term.potential() == (0 if hopeless else apart)
    check_strategy(STRATEGY, None, [snapshot])


@pytest.mark.parametrize("weight", [None, 30])
def test_the_contract_holds(weight):
    shapes = itertools.product(["a1", "b1"], ["a2", "b2"], ["a1", "b2"])
    snapshots = [
        snapshot_of(
            [
                *NODES,
                *workload("cache", [one, two]),
                *workload("web", [two, three], spec=near("cache", weight=weight)),
                *workload("self", [one, two, three], spec=near("self", weight=weight)),
            ]
        )
        for one, two, three in shapes
    ]
    check_strategy(STRATEGY, None, snapshots)


@settings(max_examples=30, deadline=None)
@given(places, places, st.booleans(), st.booleans())
def test_a_pod_is_apart_exactly_where_the_scheduler_would_not_put_it(web, cache, own_kind, by_host):
    objects = [node(name, zone) for name, zone in WHERE.items()]
    objects += workload("cache", cache)
    objects += workload(
        "web", web, spec=near("web" if own_kind else "cache", HOSTNAME if by_host else ZONE)
    )
    snapshot = snapshot_of(objects)
    view = view_of(snapshot)
    term = STRATEGY.terms(view, PodAffinityParams())[0]
    expected = 0
    for pod in range(len(snapshot.pods)):
        cls, start = int(snapshot.pods.cls[pod]), int(snapshot.pods.node[pod])
        if snapshot.classes[cls].labels.get("app") != "web":
            continue
        view.state.evict(pod)
        view.state.reap()
        expected += not view.scheduler.feasible(view.state, cls)[start]
        view.state.place(pod, cls, start)
    hopeless = any("no node near" in text for text in term.unsatisfiable())

    assert term.potential() == (0 if hopeless else expected)
