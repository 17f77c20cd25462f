"""Taints on clusters of two to four nodes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rebalancer.plan.plan import Code
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import HOSTNAME, node, snapshot_of, spread, workload
from strategies.taints import TaintsParams
from tests.unit.planner.conftest import plan_of

NAME = "taints"
STRATEGY = Registry.installed().strategy(NAME)


def taint(key, effect="NoSchedule", value=""):
    return {"key": key, "value": value, "effect": effect}


def plan(objects, **params):
    return plan_of(objects, strategies=[NAME], params={NAME: TaintsParams(**params)})


def pairs(result):
    return [(move.node, move.landings[0].node) for move in result.moves]


def test_pods_leave_a_node_that_was_tainted_under_them():
    tolerant = {"tolerations": [{"key": "team", "operator": "Equal", "value": "a"}]}
    objects = [node("n0", taints=[taint("team", value="a")]), node("n1")]
    objects += workload("web", ["n0", "n1"])
    objects += workload("mine", ["n0", "n0"], spec=tolerant)
    result = plan(objects)
    assert pairs(result) == [("n0", "n1")]
    assert result.before[NAME].cost.hard == 1
    assert "team=a (NoSchedule) of n0" in result.moves[0].reason


@pytest.mark.parametrize("effect", ["NoExecute", "PreferNoSchedule"])
def test_other_effects_are_none_of_its_business(effect):
    objects = [node("n0", taints=[taint("team", effect)]), node("n1")]
    result = plan([*objects, *workload("web", ["n0", "n0"])])
    assert result.moves == ()
    assert result.before[NAME].cost.hard == 0


@pytest.mark.parametrize(
    ("key", "moved"),
    [
        ("node.kubernetes.io/unschedulable", 0),
        ("node.kubernetes.io/not-ready", 0),
        ("node.cilium.io/agent-not-ready", 0),
        ("cni.istio.io/not-ready", 0),
        ("readiness.k8s.io/acme.com/network-unavailable", 0),
        ("nidhogg.uswitch.com/kube-system.kiam", 0),
        ("startup-taint.cluster-autoscaler.kubernetes.io/a", 0),
        ("team", 1),
        ("not-ready-for-tests", 1),
    ],
)
def test_an_agent_that_restarts_on_a_node_moves_no_pod_off_it(key, moved):
    objects = [node("n0", taints=[taint(key, value="true")]), node("n1")]
    result = plan([*objects, *workload("web", ["n0", "n1"])])
    assert len(result.moves) == moved
    assert result.before[NAME].cost.hard == moved


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ({"exclude": ["te*"]}, 0),
        ({"exclude": ["team=*"]}, 0),
        ({"exclude": ["team=b*"]}, 1),
        ({"exclude": ["eam"]}, 1),
        ({"include": ["*eam=a"]}, 1),
        ({"include": ["b*"]}, 0),
    ],
)
def test_a_star_stands_for_any_text(given, moved):
    objects = [node("n0", taints=[taint("team", value="a")]), node("n1")]
    assert len(plan([*objects, *workload("web", ["n0", "n1"])], **given).moves) == moved


def test_prefer_no_schedule_is_mended_by_choice():
    objects = [node("n0", taints=[taint("slow", "PreferNoSchedule")]), node("n1")]
    result = plan([*objects, *workload("web", ["n0", "n0"])], prefer_no_schedule=True)
    assert pairs(result) == [("n0", "n1")] * 2
    assert result.before[NAME].cost.soft == 2
    assert result.after[NAME].cost.soft == 0


def test_a_mark_that_a_killed_run_has_left_moves_no_pod():
    mark = taint("rebalancer/mark", "PreferNoSchedule", "steer.20200101T000000Z.dead")
    objects = [node("n0", taints=[mark]), node("n1"), *workload("web", ["n0", "n1"])]
    assert plan(objects, prefer_no_schedule=True).moves == ()


def test_where_all_nodes_are_equally_unwanted_the_pods_stay():
    objects = [node(f"n{i}", taints=[taint(f"slow{i}", "PreferNoSchedule")]) for i in range(2)]
    result = plan([*objects, *workload("web", ["n0", "n0"])], prefer_no_schedule=True)
    assert result.moves == ()
    assert result.before[NAME].cost.soft == 0


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({}, {"n0", "n1"}),
        ({"include": ["team"]}, {"n0", "n1"}),
        ({"include": ["team=a"]}, {"n0"}),
        ({"exclude": ["team=a"]}, {"n1"}),
        ({"exclude": ["team"]}, set()),
        ({"include": ["team"], "exclude": ["team=b"]}, {"n0"}),
        ({"include": ["other"]}, set()),
    ],
)
def test_include_and_exclude_name_taints_by_key_or_by_key_and_value(options, moved):
    tainted = [node(f"n{i}", taints=[taint("team", value=v)]) for i, v in enumerate("ab")]
    result = plan([*tainted, node("n2"), *workload("web", ["n0", "n1"])], **options)
    assert {source for source, _ in pairs(result)} == moved


def test_a_cordon_drains_nothing_unless_the_policy_says_so():
    cordon = node("n0", unschedulable=True, taints=[taint("node.kubernetes.io/unschedulable")])
    objects = [cordon, node("n1"), *workload("web", ["n0", "n0"])]
    assert plan(objects).moves == ()
    assert pairs(plan(objects, exclude=[])) == [("n0", "n1")] * 2


def test_a_node_about_to_go_is_left_to_the_one_that_marked_it():
    objects = [node("n0", taints=[taint("ToBeDeletedByClusterAutoscaler")]), node("n1")]
    assert plan([*objects, *workload("web", ["n0", "n0"])]).moves == ()


def test_when_every_node_is_tainted_it_is_said_and_nothing_moves():
    objects = [node(f"n{i}", taints=[taint("team")]) for i in range(2)]
    result = plan([*objects, *workload("web", ["n0", "n0"])])
    assert result.moves == ()
    assert "no better node takes 2 of its pods" in result.before[NAME].unsatisfiable[0]


def test_without_room_elsewhere_the_pods_stay_and_the_reason_is_named():
    objects = [node("n0", taints=[taint("team")]), node("n1", cpu="1")]
    result = plan([*objects, *workload("web", ["n0", "n0"], cpu="2")])
    assert result.moves == ()
    assert result.before[NAME].unsatisfiable != ()
    objects = [node("n0", taints=[taint("team")]), node("n1")]
    full = workload("full", ["n1", "n1"], cpu="1500m")
    result = plan([*objects, *full, *workload("web", ["n0", "n0"], cpu="2")])
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.NO_ROOM}


def test_a_pod_that_the_scheduler_would_put_back_stays():
    # The taint weighs 3; a preference for its node (2) and spread over nodes (2) outweigh it.
    slow = [taint("slow", "PreferNoSchedule")]
    objects = [node("n0", labels={"disk": "ssd"}, taints=slow), node("n1")]
    ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    likes = [{"weight": 100, "preference": ssd}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": likes}}
    even = {**spread("web", HOSTNAME), "affinity": affinity}
    web = workload("web", ["n0", "n1", "n1", "n1"], cpu="100m", spec=even)
    result = plan([*objects, *web], prefer_no_schedule=True)
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.COMES_BACK}


@pytest.mark.parametrize("text", ["", "=a", " "])
def test_a_taint_without_a_key_is_refused(text):
    with pytest.raises(ValidationError, match="names no taint"):
        TaintsParams(include=(text,))


TAINTS = [[], [taint("a")], [taint("a"), taint("b")], [taint("s", "PreferNoSchedule")]]


@st.composite
def clusters(draw):
    nodes = [node(f"n{i}", taints=draw(st.sampled_from(TAINTS))) for i in range(4)]
    pods = []
    for index in range(draw(st.integers(1, 4))):
        places = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
        keys = draw(st.sets(st.sampled_from("ab")))
        tolerations = [{"key": key, "operator": "Exists"} for key in sorted(keys)]
        cpu = draw(st.sampled_from(["100m", "1", "2"]))
        spec = {"tolerations": tolerations}
        pods += workload(f"w{index}", [f"n{p}" for p in places], cpu=cpu, spec=spec)
    return [*nodes, *pods]


@settings(max_examples=15, deadline=None)
@given(clusters(), st.booleans())
def test_on_any_cluster_the_contract_holds_and_a_plan_never_makes_things_worse(objects, soft):
    params = TaintsParams(prefer_no_schedule=soft)
    check_strategy(STRATEGY, params, [snapshot_of(objects)])
    result = plan(objects, prefer_no_schedule=soft)
    before, after = result.before[NAME].cost, result.after[NAME].cost
    assert after.as_tuple() <= before.as_tuple()
    assert result.lower_bound <= len(result.moves) + result.backlog.moves
    assert not result.moves or after.as_tuple() < before.as_tuple()
