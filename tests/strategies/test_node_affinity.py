"""Node affinity on clusters of two to four nodes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code
from rebalancer.planner.settings import Settings
from rebalancer.policy.protect import Protect
from rebalancer.registry import Registry
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import ZONE, node, number_pods, snapshot_of, workload
from strategies.node_affinity import NodeAffinityParams
from tests.unit.planner.conftest import plan_of

NAME = "node-affinity"
STRATEGY = Registry.installed().strategy(NAME)


def term(**labels):
    return [{"key": k, "operator": "In", "values": [v]} for k, v in labels.items()]


def required(**labels):
    rule = {"nodeSelectorTerms": [{"matchExpressions": term(**labels)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}}


def preferred(*weighted):
    """Each of ``weighted`` is (weight, labels)."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": term(**labels)}}
        for weight, labels in weighted
    ]
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    }


def disk(name, kind, **more):
    return node(name, labels={"disk": kind}, **more)


def plan(objects, **options):
    return plan_of(objects, strategies=[NAME], **options)


def pairs(result):
    return [(move.node, move.landings[0].node) for move in result.moves]


@pytest.mark.parametrize("rule", [{"nodeSelector": {"disk": "ssd"}}, required(disk="ssd")])
def test_a_label_changed_under_running_pods_moves_exactly_those(rule):
    nodes = [disk("n0", "hdd"), disk("n1", "ssd"), disk("n2", "hdd")]
    result = plan([*nodes, *workload("web", ["n0", "n1"], spec=rule), *workload("b", ["n0", "n2"])])
    assert pairs(result) == [("n0", "n1")]
    assert result.before[NAME].cost.hard == 1
    assert result.after[NAME].cost.hard == 0
    assert result.lower_bound == 1
    assert "excludes n0" in result.moves[0].reason


def test_what_no_node_satisfies_is_reported_and_left_alone():
    web = workload("web", ["n0", "n0"], spec=required(disk="nvme"))
    result = plan([disk("n0", "hdd"), disk("n1", "ssd"), *web])
    assert result.moves == ()
    assert result.before[NAME].cost.hard == 0
    assert "no better node takes 2 of its pods" in result.before[NAME].unsatisfiable[0]


def test_without_room_on_the_right_node_the_pod_stays():
    web = workload("web", ["n0", "n0"], cpu="2", spec=required(disk="ssd"))
    # They may not leave either: otherwise they would change places.
    full = workload("full", ["n1", "n1"], cpu="2", spec=required(disk="ssd"))
    result = plan([disk("n0", "hdd"), disk("n1", "ssd"), *web, *full])
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.NO_ROOM}


def test_a_pod_moves_to_the_node_that_it_prefers():
    web = workload("web", ["n0", "n0"], spec=preferred((80, {"disk": "ssd"})))
    result = plan([disk("n0", "hdd"), disk("n1", "ssd"), *web])
    assert pairs(result) == [("n0", "n1")] * 2
    assert result.before[NAME].cost.soft == pytest.approx(1.6)
    assert result.after[NAME].cost.soft == 0


def test_a_preferred_node_that_is_full_is_no_reason_to_move():
    # The peer evicts such a pod in every cycle: the better node need not be feasible there.
    web = workload("web", ["n0", "n0"], cpu="1", spec=preferred((80, {"disk": "ssd"})))
    full = workload("full", ["n1", "n1"], cpu="2")
    result = plan([disk("n0", "hdd"), disk("n1", "ssd"), node("n2"), *web, *full])
    assert result.moves == ()
    assert result.skips == ()
    assert "no better node takes 2" in result.before[NAME].unsatisfiable[0]


def test_with_room_for_one_only_one_goes():
    web = workload("web", ["n0"] * 3, cpu="1", spec=preferred((80, {"disk": "ssd"})))
    result = plan([disk("n0", "hdd"), disk("n1", "ssd", cpu="1500m"), *web])
    assert pairs(result) == [("n0", "n1")]
    assert {skip.code for skip in result.skips} <= {Code.COMES_BACK, Code.NO_GAIN, Code.NO_ROOM}


def test_a_preference_too_weak_against_the_other_scores_would_come_back_and_stays():
    # Weight 1 of 1: 100 points twice; the preferred node is so full that it loses on its resources.
    web = workload("web", ["n0", "n0"], cpu="1", spec=preferred((100, {"disk": "ssd"})))
    tainted = [{"key": "slow", "effect": "PreferNoSchedule"}]
    nodes = [disk("n0", "hdd"), disk("n1", "ssd", taints=tainted)]
    crowd = workload("crowd", ["n1"] * 2, cpu="1")
    result = plan([*nodes, *web, *crowd])
    assert result.moves == ()
    assert {skip.code for skip in result.skips} == {Code.COMES_BACK}


def test_a_better_node_of_weight_sum_wins_over_one_of_a_single_term():
    rule = preferred((60, {"disk": "ssd"}), (40, {"gpu": "yes"}))
    best = node("n2", labels={"disk": "ssd", "gpu": "yes"})
    web = workload("web", ["n0", "n1"], spec=rule)
    result = plan([node("n0"), disk("n1", "ssd"), best, *web])
    assert pairs(result)[0] == ("n0", "n2")
    assert result.moves[0].gain.soft == pytest.approx(1.0)
    assert result.before[NAME].cost.soft == pytest.approx(1.0 + 0.4)


def test_options_switch_required_and_preferred_off():
    objects = [disk("n0", "hdd"), disk("n1", "ssd")]
    objects += workload("a", ["n0", "n0"], spec=required(disk="ssd"))
    objects += workload("b", ["n0", "n0"], spec=preferred((100, {"disk": "ssd"})))
    for off, owner in (("required", "Deployment/default/b"), ("preferred", "Deployment/default/a")):
        result = plan(objects, params={NAME: NodeAffinityParams(**{off: False})})
        assert {move.owner for move in result.moves} == {owner}


def test_a_daemon_sets_pod_is_left_alone():
    pods = workload("agent", ["n0"], kind="ReplicaSet", spec=required(disk="ssd"))
    pods = [item for item in pods if item["kind"] == "Pod"]
    pods[0]["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    result = plan([disk("n0", "hdd"), disk("n1", "ssd"), *pods])
    assert result.before[NAME].cost.hard == 0
    assert result.moves == ()


RULES = [
    {},
    {"nodeSelector": {"disk": "ssd"}},
    required(disk="hdd"),
    preferred((80, {"disk": "ssd"})),
    preferred((30, {"disk": "hdd"}), (50, {"gpu": "yes"})),
]


@st.composite
def clusters(draw):
    nodes = [
        node(
            f"n{i}",
            labels=draw(st.sampled_from([{}, {"disk": "ssd"}, {"disk": "hdd"}, {"gpu": "yes"}])),
        )
        for i in range(4)
    ]
    pods = []
    for index in range(draw(st.integers(1, 4))):
        places = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
        rule = draw(st.sampled_from(RULES))
        cpu = draw(st.sampled_from(["100m", "1", "2"]))
        pods += workload(f"w{index}", [f"n{p}" for p in places], cpu=cpu, spec=rule)
    return [*nodes, *pods]


@settings(max_examples=15, deadline=None)
@given(clusters())
def test_on_any_cluster_the_contract_holds_and_a_plan_never_makes_things_worse(objects):
    check_strategy(STRATEGY, snapshots=[snapshot_of(objects)])
    result = plan(objects)
    before, after = result.before[NAME].cost, result.after[NAME].cost
    assert after.as_tuple() <= before.as_tuple()
    assert result.lower_bound <= len(result.moves) + result.backlog.moves
    assert not result.moves or after.as_tuple() < before.as_tuple()


def _claim(name, mode):
    claim = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "accessModes": [mode],
            "volumeName": f"pv-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound"},
    }
    volume = {
        "kind": "PersistentVolume",
        "apiVersion": "v1",
        "metadata": {"name": f"pv-{name}", "uid": f"pv-{name}"},
        "spec": {
            "accessModes": [mode],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": name, "uid": name},
        },
        "status": {"phase": "Bound"},
    }
    return [claim, volume]


def _using(claim):
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def _apart_in_zone(app):
    selector = {"matchLabels": {"app": app}}
    term = {"labelSelector": selector, "topologyKey": ZONE}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(
    ("kind", "keeps", "more", "moves"),
    [
        ("StatefulSet", "ReadWriteOnce", [], 1),
        # Its claim is free, and the zone has none of its app, before a StatefulSet makes the next pod.
        ("StatefulSet", "ReadWriteOncePod", [], 1),
        ("StatefulSet", "zone", [], 1),
        # A Deployment makes it beside the pod that terminates.
        ("Deployment", "ReadWriteOncePod", [], 0),
        # The better node is full, whoever uses the claim.
        ("StatefulSet", "ReadWriteOncePod", workload("full", ["fast"], cpu="4"), 0),
    ],
)
def test_a_pod_does_not_keep_its_own_replacement_from_a_better_node(kind, keeps, more, moves):
    spec = preferred((10, {"disk": "ssd"}))
    if keeps == "zone":
        spec["affinity"] |= _apart_in_zone("ledger")
    else:
        spec |= _using("books")
    nodes = [disk("slow", "hdd", zone="east"), disk("fast", "ssd", zone="east")]
    pods = workload("ledger", ["slow"], kind=kind, spec=spec)
    result = plan(
        [*nodes, *_claim("books", keeps), *number_pods(pods), *more],
        protections=Protect(volumes=False, single_replicas=False),
        settings=Settings(steer=True),
    )
    assert pairs(result) == [("slow", "fast")] * moves
    assert (result.before[NAME].cost.soft > 0) is bool(moves)
