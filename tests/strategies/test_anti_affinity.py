"""Anti-affinity between namespaces, on clusters of three nodes."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import HOSTNAME, node, snapshot_of, workload
from strategies.anti_affinity import AntiAffinityParams
from tests.unit.planner.conftest import plan_of

NAME = "anti-affinity"
STRATEGY = Registry.installed().strategy(NAME)
NODES = [node(f"n{i}") for i in range(4)]
KEPT = {"rebalancer/evict": "false"}


def repels(app, *, everywhere=True, weight=None):
    """A pod spec with anti-affinity to pods labelled ``app``, in all namespaces or in its own."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    if everywhere:
        term["namespaceSelector"] = {}
    if weight is None:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    else:
        one = {"weight": weight, "podAffinityTerm": term}
        rule = {"preferredDuringSchedulingIgnoredDuringExecution": [one]}
    return {"affinity": {"podAntiAffinity": rule}}


def moved(*objects, **params):
    """How many pods of each workload are moved."""
    made = plan_of(
        [*NODES, *(item for part in objects for item in part)],
        strategies=[NAME],
        params={NAME: AntiAffinityParams(**params)},
    )
    return Counter(move.owner.split("/", 1)[1] for move in made.moves)


def web(nodes=("n0", "n0", "n1"), **more):
    return workload("web", nodes, namespace="shop", **more)


def api(nodes=("n0", "n1"), **more):
    return workload("api", nodes, namespace="other", **more)


@pytest.mark.parametrize("weight", [None, 100])
def test_who_opted_out_cannot_have_the_pods_of_another_namespace_evicted(weight):
    deputy = api(spec=repels("web", weight=weight), annotations=KEPT)
    assert moved(web(), deputy) == {}
    assert moved(web(), deputy, crossNamespace=True) == {"shop/web": 3}


def test_across_namespaces_the_declaring_side_moves_even_where_it_is_more():
    objects = web(nodes=["n0", "n1"]), api(nodes=["n0", "n0"], spec=repels("web"))
    assert moved(*objects) == {"other/api": 2}
    assert moved(*objects, crossNamespace=True) == {"shop/web": 1}


def test_within_a_namespace_the_fewest_move_in_either_direction():
    many = workload("api", ["n0", "n0"], namespace="shop", spec=repels("web"))
    assert moved(web(nodes=["n0", "n1"]), many) == {"shop/web": 1}


def _staying(kind, name="guard", on="n0", namespace="shop", **more):
    """A pod that is never moved: of a DaemonSet, or without a controller."""
    made = workload(name, [on], kind="DaemonSet", namespace=namespace, **more)
    (one,) = [item for item in made if item["kind"] == "Pod"]
    if kind == "Pod":
        del one["metadata"]["ownerReferences"]
    return [one]


@pytest.mark.parametrize("kind", ["Pod", "DaemonSet"])
@pytest.mark.parametrize(
    ("of_guard", "params", "expected"),
    [
        ({"spec": repels("web")}, {}, {"shop/web": 2}),
        ({"spec": repels("web", everywhere=False)}, {}, {"shop/web": 2}),
        ({"spec": repels("web"), "on": "n3"}, {}, {}),
        ({"spec": repels("api")}, {}, {}),
        # The scheduler weighs it, and obeys only what is required.
        ({"spec": repels("web", weight=100)}, {}, {}),
        ({"spec": repels("web")}, {"required": False}, {}),
        # Nobody has the pods of another namespace evicted.
        ({"spec": repels("web"), "namespace": "other"}, {}, {}),
        ({"spec": repels("web"), "namespace": "other"}, {"crossNamespace": True}, {"shop/web": 2}),
    ],
)
def test_what_pods_that_stay_repel_goes(kind, of_guard, params, expected):
    nodes = ["n0", "n0", "n1", "n1"]
    assert moved(web(nodes=nodes), _staying(kind, **of_guard), **params) == expected


def test_what_stays_beside_a_pod_that_repels_it_is_named():
    objects = [*NODES, *web(nodes=["n0", "n1"]), *_staying("Pod", spec=repels("web"))]
    nowhere = [*objects, *_staying("Pod", name="other", spec=repels("web"), on="n2")]
    made = plan_of(nowhere, strategies=[NAME])
    (move,) = made.moves
    assert "Pod/shop/guard-0 apart over kubernetes.io/hostname (required)" in move.reason
    assert [landing.node for landing in move.landings] == ["n3"]


def test_who_declares_it_too_counts_once():
    mine = web(nodes=["n0", "n1"], spec=repels("web"))
    guard = _staying("Pod", labels={"app": "web"}, spec=repels("web"))
    assert moved(mine, guard) == {"shop/web": 1}


@pytest.mark.parametrize("kind", ["Pod", "DaemonSet"])
def test_who_declares_it_too_leaves_a_pod_that_it_does_not_match(kind):
    # web keeps its own pods apart; the guard, which web does not match, says the same of web.
    mine = web(nodes=["n0", "n1"], spec=repels("web"))
    assert moved(mine, _staying(kind, spec=repels("web"))) == {"shop/web": 1}
    named = _staying(kind, name="twin", on="n1", labels={"app": "web"}, spec=repels("web"))
    assert moved(mine, _staying(kind, spec=repels("web")), named) == {"shop/web": 2}


def test_who_repels_itself_is_not_drawn_in_by_another_that_says_the_same():
    # Both declare the very same matches: web for itself, api against it.
    mine = web(nodes=["n0", "n1", "n2"], spec=repels("web", everywhere=False))
    deputy = api(nodes=["n0", "n1"], spec=repels("web"), annotations=KEPT)
    assert moved(mine, deputy) == {}


def test_who_declares_it_on_both_sides_moves_on_either():
    mine = web(nodes=["n0", "n1"], spec=repels("web"))
    theirs = workload(
        "api", ["n0", "n1"], namespace="other", spec=repels("web"), labels={"app": "web"}
    )
    assert sum(moved(mine, theirs).values()) == 2


def test_a_conflict_that_both_sides_declare_is_one_move_in_the_lower_bound():
    red = workload("red", ["n0", "n1"], namespace="red", spec=repels("blue"))
    blue = workload("blue", ["n0", "n1"], namespace="blue", spec=repels("red"))
    made = plan_of([*NODES, *red, *blue], strategies=[NAME])
    assert len(made.moves) == 2
    assert made.lower_bound == 2


def test_own_pods_move_where_a_foreign_one_is_repelled_only_together_with_the_declaring():
    # api repels web in both namespaces; its own namespace's web is one pod against two.
    own = workload("web", ["n0", "n1"], namespace="other")
    many = api(nodes=["n0", "n0"], spec=repels("web"))
    assert moved(own, many) == {"other/web": 1}
    assert moved(own, web(nodes=["n0", "n2"]), many) == {"other/api": 2}


nodes = st.lists(st.sampled_from(["n0", "n1", "n2", "n3"]), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(nodes, nodes, nodes, st.sampled_from([None, 50]), st.booleans(), st.booleans())
def test_the_strategy_is_sound_over_namespaces(first, second, third, weight, mutual, cross):
    own = repels("web", everywhere=False) if mutual else {}
    objects = [
        *NODES,
        *workload("web", first, namespace="a", spec=own),
        *workload("web", second, namespace="b"),
        *workload("api", third, namespace="b", spec=repels("web", weight=weight)),
    ]
    params = AntiAffinityParams(cross_namespace=cross)
    check_strategy(STRATEGY, params, [snapshot_of(objects)])
