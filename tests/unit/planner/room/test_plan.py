"""Room for pods that wait: the fewest moves let them in, in an order in which each lands."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.plan.plan import Code, Plan
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.protect import Protect
from rebalancer.policy.values import Limit
from rebalancer.testing.snapshots import (
    HOSTNAME,
    OLD,
    ZONE,
    Manifest,
    apart,
    disruption_budget,
    node,
    spread,
    workload,
)
from tests.unit.planner.conftest import plan_of, rechecked

MARKS = Settings(steer=True)
RECENT = "2027-01-15T07:55:00Z"
"""Five minutes ago."""
CA = "cluster-autoscaler.kubernetes.io"


def waiting(
    name: str, pods: int = 1, *, since: str = OLD, nominated: str = "", **options: Any
) -> list[Manifest]:
    """A workload whose pods no node takes."""
    objects = workload(name, [""] * pods, **options)
    for one in objects:
        if one["kind"] == "Pod":
            refused = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": since,
            }
            one["status"] = {"phase": "Pending", "conditions": [refused]}
            if nominated:
                one["status"]["nominatedNodeName"] = nominated
    return objects


def three_nodes(pods: int = 1, **options: Any) -> list[Manifest]:
    """Three nodes of 8 CPUs, 4 of them in use, by pods of one and of two; a pod of 6 waits."""
    nodes = [node(f"n{i}", cpu="8") for i in range(3)]
    ones = workload("ones", ["n0", "n0", "n1", "n1", "n2", "n2"], cpu="1")
    twos = workload("twos", ["n0", "n1", "n2"], cpu="2")
    return [*nodes, *ones, *twos, *waiting("big", pods, cpu="6", **options)]


def room(objects: list[Manifest], settings: Settings = MARKS, **options: Any) -> Plan:
    return plan_of(objects, settings=settings, strategies=["make-room"], **options)


def shown(plan: Plan) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(m.pod, m.node, m.landings[0].node, m.marks) for m in plan.moves]


def skip_of(plan: Plan, pod: str = "big-0") -> tuple[Code, str]:
    (skip,) = [skip for skip in plan.skips if skip.pod == pod]
    return skip.code, skip.message


def test_one_move_lets_in_what_fits_nowhere():
    made = room(three_nodes())
    (move,) = made.moves
    assert move.pod.startswith("twos")
    assert move.makes_way_for == "default/big-0"
    assert move.node in move.marks
    assert move.room == (move.node,)
    assert move.landings[0].node != move.node
    assert made.lower_bound == 1
    assert made.before["make-room"].violated == 1
    assert made.after["make-room"].violated == 0
    assert made.stopped == "After these moves every rule holds."


def test_without_room_for_marks_nothing_is_steered_but_the_room_is_marked():
    made = room(three_nodes(), Settings(steer=True, budgets=Budgets(marks=Limit.parse(0))))
    assert [move.marks for move in made.moves] == [(made.moves[0].node,)]


def test_as_many_pods_that_wait_as_may_be_in_flight_do_not_keep_all_in_their_places():
    """Five minutes old, they count as starting for five more: at most five may be in flight."""
    objects = three_nodes(pods=6, since=RECENT)
    for one in objects:
        if one["kind"] == "Pod" and one["metadata"]["name"].startswith("big"):
            one["metadata"]["creationTimestamp"] = RECENT
    assert [move.makes_way_for for move in room(objects).moves] == [
        "default/big-0",
        "default/big-1",
    ]
    # For all others they do count.
    objects += workload("web", ["n0", "n0"], cpu="10m")
    both = plan_of(objects, settings=MARKS, strategies=["make-room", "duplicates"])
    assert skip_of(both, "web-0") == (Code.BUDGET, "inFlight 5: 6 in flight already")


@pytest.mark.parametrize(
    "options",
    [
        {"since": "2027-01-15T07:59:00Z"},  # it has waited for a minute
        {"nominated": "n1"},  # preemption has seen to it
        {"spec": {"schedulingGates": [{"name": "quota"}]}},
        {"spec": {"schedulerName": "other"}},  # what that one does is not known
        {"spec": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "none"}}]}},
    ],
)
def test_pods_that_others_see_to_are_left_alone(options):
    made = room(three_nodes(**options))
    assert made.moves == ()
    assert made.after["make-room"].violated == 0


def event(reason: str, uid: str = "default/big-0", *, about: str = "regarding") -> Manifest:
    return {"kind": "Event", "reason": reason, about: {"uid": uid}, "metadata": {"name": "e"}}


@pytest.mark.parametrize(
    ("said", "since", "moves"),
    [
        (event("TriggeredScaleUp"), RECENT, 0),
        (event("Nominated", about="involvedObject"), RECENT, 0),
        # A machine that does not come, or an Event that only says so, holds nothing up for ever.
        (event("TriggeredScaleUp"), "2027-01-15T07:44:59Z", 1),
        (event("TriggeredScaleUp", "default/other-0"), RECENT, 1),
        (event("NotTriggerScaleUp"), RECENT, 1),
    ],
)
def test_a_pod_for_which_a_machine_is_on_its_way_is_left_alone_for_a_time(said, since, moves):
    made = room([*three_nodes(since=since), said])
    assert len(made.moves) == moves
    if not moves:
        code, text = skip_of(made)
        assert code is Code.MACHINE_COMES
        assert f"says an Event ({said['reason']})" in text
        assert made.after["make-room"].violated == 1


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("options", "created", "since", "moves"),
    [
        ({"ready": False, "taints": [NOT_READY]}, RECENT, RECENT, 0),
        ({"taints": [{**NOT_READY, "key": f"startup-taint.{CA}/agent"}]}, RECENT, RECENT, 0),
        ({"taints": [{**NOT_READY, "key": "node.cilium.io/agent-not-ready"}]}, RECENT, RECENT, 0),
        ({"ready": False, "taints": [NOT_READY]}, OLD, RECENT, 1),  # it does not start any more
        ({"ready": False, "taints": [NOT_READY]}, RECENT, OLD, 1),  # waited for long enough
        ({"ready": False, "taints": [NOT_READY], "cpu": "4"}, RECENT, RECENT, 1),  # too small
        ({"taints": [{"key": "team", "effect": "NoSchedule"}]}, RECENT, RECENT, 1),
        ({"ready": False, "unschedulable": True}, RECENT, RECENT, 1),
    ],
)
def test_a_pod_that_a_node_takes_once_it_has_started_is_left_alone(options, created, since, moves):
    new = node("new", **{"cpu": "8", **options})
    new["metadata"]["creationTimestamp"] = created
    made = room([*three_nodes(since=since), new])
    assert len(made.moves) == moves
    if not moves:
        assert skip_of(made) == (Code.MACHINE_COMES, "new takes it once it is ready for pods")


@pytest.mark.parametrize(("keys", "moves"), [((), 1), (("example.com/agent",), 0)])
def test_start_up_taints_of_the_policy_tell_of_a_machine_on_its_way(keys, moves):
    new = node("new", cpu="8", taints=[{"key": "example.com/agent", "effect": "NoSchedule"}])
    new["metadata"]["creationTimestamp"] = RECENT
    settings = Settings(steer=True, startup_taints=frozenset(keys))
    assert len(room([*three_nodes(since=RECENT), new], settings).moves) == moves


def test_a_node_that_starts_is_waited_for_by_as_many_pods_as_it_takes():
    new = node("new", cpu="8", ready=False, taints=[NOT_READY])
    new["metadata"]["creationTimestamp"] = RECENT
    # Of what leaves for it, the first pod could not take the place.
    others = waiting("other", cpu="5", since=RECENT)
    made = room([*three_nodes(since=RECENT), *others, new])
    assert [move.makes_way_for for move in made.moves] == ["default/other-0"]
    assert [skip.pod for skip in made.skips] == ["big-0"]


def resizing(reason: str = "Deferred", since: str = OLD, **options: Any) -> list[Manifest]:
    """A node of 8 CPUs with 7 in use, 3 of them by a pod that is to have 5; another node has 4 free."""
    nodes = [node("n0", cpu="8"), node("n1", cpu="8")]
    grown = workload("db", ["n0", "n1"], cpu="3", **options)
    others = workload("web", ["n0", "n0", "n1"], cpu="1"), workload("api", ["n0"], cpu="2")
    (db,) = [one for one in grown if one["metadata"]["name"] == "db-0"]
    db["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5"
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    db["status"].setdefault("conditions", []).append({**pending, "lastTransitionTime": since})
    return [*nodes, *grown, *(one for objects in others for one in objects)]


def test_a_resize_that_waits_for_room_gets_it_by_the_fewest_neighbours_and_its_pod_stays():
    made = room(resizing())
    assert [(move.pod, move.node, move.reason) for move in made.moves] == [
        ("web-0", "n0", "makes room for the resize of default/db-0 on n0")
    ]
    assert (made.before["make-room"].violated, made.after["make-room"].violated) == (1, 0)
    assert made.lower_bound == 1


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"reason": "Infeasible"}, Code.UNSATISFIABLE, "the kubelet calls its resize infeasible"),
        ({"since": "2027-01-15T07:59:00Z"}, None, ""),
        ({"priority": -1}, Code.PROTECTED, "of a higher priority than the pod that waits"),
    ],
)
def test_a_resize_for_which_none_can_leave_is_named(options, code, text):
    made = room(resizing(**options))
    assert made.moves == ()
    if code is not None:
        got, message = skip_of(made, "db-0")
        assert got is code
        assert text in message


def test_a_resize_with_room_on_its_node_takes_no_moves():
    objects = [one for one in resizing() if "web" not in one["metadata"]["name"]]
    made = room(objects)
    assert (made.moves, made.before["make-room"].violated) == ((), 0)


def test_pods_of_a_higher_priority_stay():
    nodes = [node("n0", cpu="4"), node("n1", cpu="4")]
    high = workload("high", ["n0", "n1"], cpu="2", priority=1000)
    made = room([*nodes, *high, *waiting("big", cpu="4", priority=10)])
    assert made.moves == ()
    code, why = skip_of(made)
    assert code is Code.PROTECTED
    assert why == (
        "short by least on n0, were all gone that may leave: cpu 2; "
        "1 of its pods stay: of a higher priority than the pod that waits"
    )


def test_too_little_in_all_is_unsatisfiable_and_moves_nothing():
    nodes = [node("n0", cpu="4"), node("n1", cpu="4")]
    low = workload("low", ["n0", "n0", "n1", "n1"], cpu="1500m")
    made = room([*nodes, *low, *waiting("big", cpu="3")])
    assert made.moves == ()
    code, why = skip_of(made)
    assert code is Code.UNSATISFIABLE
    assert (
        why == "all nodes together have cpu 2 free, it asks for cpu 3; short by least on n0: cpu 2"
    )


def test_what_no_empty_node_would_take_is_said_in_the_scheduler_s_words():
    made = room([node("n0", cpu="4"), *waiting("big", cpu="5")])
    code, why = skip_of(made)
    assert code is Code.UNSATISFIABLE
    assert why.startswith("no node would take it, were it empty: 0/1 nodes are available")


def test_a_budget_that_allows_nothing_is_named():
    budget = [disruption_budget(name, name, allowed=0) for name in ("ones", "twos")]
    made = room([*three_nodes(), *budget])
    assert made.moves == ()
    code, why = skip_of(made)
    assert code is Code.PDB
    assert "allows no disruption" in why


def test_the_reason_stands_beside_the_unmet_rule():
    made = room(
        [
            *three_nodes(),
            disruption_budget("twos", "twos", allowed=0),
            disruption_budget("ones", "ones", allowed=0),
        ]
    )
    (unmet,) = made.unmet
    assert unmet.rule == "default/big-0 waits for room"
    assert unmet.workload == "Deployment/default/big"
    assert dict(unmet.codes) == {"PodDisruptionBudget": 1}


def test_a_chain_lets_in_what_no_single_node_could():
    # Three move up: the pod of 3 can only go where the pod of 1 leaves, and big only where the pod of 3 was.
    nodes = [node("n0", cpu="4"), node("n1", cpu="4"), node("n2", cpu="4", labels={"pool": "c"})]
    objects = [
        *nodes,
        *workload("three", ["n0", "n0"], cpu="1500m", replicas=2),
        *workload("fix", ["n1", "n1"], cpu="1", annotations={"rebalancer/evict": "false"}),
        *workload("one", ["n1", "n1"], cpu="500m"),
        *waiting("big", cpu="2500m", spec={"nodeSelector": {"kubernetes.io/hostname": "n0"}}),
    ]
    for one in objects:
        if one["kind"] == "Node" and one["metadata"]["name"] == "n2":
            one["spec"]["taints"] = [{"key": "small", "effect": "NoSchedule"}]
        if one["kind"] == "Pod" and one["metadata"]["name"].startswith("one-"):
            one["spec"]["tolerations"] = [{"key": "small", "operator": "Exists"}]
    for one in objects:
        if one["kind"] in ("Deployment", "ReplicaSet") and one["metadata"]["name"] == "one":
            one["spec"]["template"]["spec"]["tolerations"] = [
                {"key": "small", "operator": "Exists"}
            ]
    made = room(objects)
    assert [
        (move.pod.rpartition("-")[0], move.node, move.landings[0].node) for move in made.moves
    ] == [("one", "n1", "n2"), ("three", "n0", "n1")]
    assert [move.wave for move in made.moves] == [1, 2]
    # Both nodes are kept until what they are meant for is there.
    assert made.moves[0].room == ("n0", "n1")
    assert made.moves[1].room == ("n0",)
    assert made.lower_bound == 2


def test_a_daemonset_s_pod_is_let_in_on_its_own_node():
    nodes = [node("n0", cpu="2"), node("n1", cpu="4")]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
    required = {"nodeSelectorTerms": [term]}
    pinned = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }
    agent = waiting("agent", kind="DaemonSet", cpu="1", spec=pinned)
    objects = [*nodes, *workload("web", ["n0", "n0"], cpu="1"), *agent]
    made = room([one for one in objects if one["kind"] != "DaemonSet"])
    (move,) = made.moves
    assert (move.node, move.landings[0].node) == ("n0", "n1")
    assert move.makes_way_for == "default/agent-0"


def test_extended_resources_host_ports_and_anti_affinity_can_be_in_the_way():
    gpus = {"nvidia.com/gpu": "2"}
    nodes = [node("n0"), node("n1")]
    for one in nodes:
        one["status"]["allocatable"] |= gpus

    def using(**amounts: str) -> dict[str, Any]:
        return {"containers": [{"name": "main", "image": "x", "resources": {"requests": amounts}}]}

    one_gpu, two = using(**{"nvidia.com/gpu": "1"}), using(**{"nvidia.com/gpu": "2"})
    made = room([*nodes, *workload("train", ["n0", "n1"], spec=one_gpu), *waiting("big", spec=two)])
    assert len(made.moves) == 1

    port = {
        "containers": [
            {"name": "main", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}
        ]
    }
    only = {"nodeSelector": {"kubernetes.io/hostname": "n0"}}
    made = room(
        [
            *nodes,
            node("n2"),
            *workload("edge", ["n0", "n2"], spec=port),
            *waiting("big", spec={**port, **only}),
        ]
    )
    assert [(move.pod, move.node, move.landings[0].node) for move in made.moves] == [
        ("edge-0", "n0", "n1")
    ]

    lonely = apart("web", HOSTNAME)
    made = room([*nodes, *workload("web", ["n0", "n0"]), *waiting("big", spec={**lonely, **only})])
    assert sorted(move.pod for move in made.moves) == ["web-0", "web-1"]
    assert {move.landings[0].node for move in made.moves} == {"n1"}


def test_topology_spread_can_be_in_the_way():
    # Zone a has two pods of web, zone b one: a third one in zone a would be a skew of 2.
    nodes = [node("n0", labels={ZONE: "a"}), node("n1", labels={ZONE: "b"})]
    evenly = spread("web", hard=True, nodeAffinityPolicy="Ignore")
    only = {"nodeSelector": {HOSTNAME: "n0"}}
    big = waiting("big", spec={**evenly, **only}, labels={"app": "web"})
    made = room([*nodes, *workload("web", ["n0", "n0", "n1"]), *big])
    assert [(move.node, move.landings[0].node) for move in made.moves] == [("n0", "n1")]


@pytest.mark.parametrize("policy", ["Ignore", "Honor"])
def test_where_the_replacement_stands_counts_for_topology_spread(policy):
    # Zone a has three pods, zone b one, and no room there for the large one. Of a zone with two pods, and two in zone b, the
    # skew is 1 with it: one move will do, though without its replacement the skew would be 2.
    nodes = [node("n0", cpu="8", labels={ZONE: "a"}), node("n1", cpu="2", labels={ZONE: "b"})]
    evenly = spread("web", hard=True, nodeAffinityPolicy=policy)
    big = waiting("big", cpu="3", spec=evenly, labels={"app": "web"})
    made = room([*nodes, *workload("web", ["n0", "n0", "n0", "n1"], cpu="500m"), *big])
    assert [(move.node, move.landings[0].node) for move in made.moves] == [("n0", "n1")]
    assert made.lower_bound == 1


def test_a_pod_of_a_higher_priority_leaves_for_none_below_it_though_it_may_for_another():
    nodes = [node(f"n{i}", cpu="4") for i in range(4)]
    on = [{"nodeSelector": {HOSTNAME: name}} for name in ("n0", "n1")]
    objects = [
        *nodes,
        *workload("plain", ["n0", "n2"], cpu="2"),
        *workload("high", ["n1", "n2"], cpu="500m", priority=1000),
        *waiting("first", cpu="3", priority=1000, spec=on[0]),
        *waiting("second", cpu="4", spec=on[1]),
    ]
    made = room(objects)
    assert [move.pod for move in made.moves] == ["plain-0"]
    assert skip_of(made, "second-0")[0] is Code.PROTECTED


def test_those_of_the_highest_priority_come_first():
    nodes = [node("n0", cpu="4"), node("n1", cpu="4")]
    web = workload("web", ["n0", "n0", "n1", "n1"], cpu="1")
    both = [*waiting("low", cpu="3"), *waiting("high", cpu="3", priority=5)]
    made = room([*nodes, *web, *both])
    assert {move.makes_way_for for move in made.moves} == {"default/high-0"}
    assert skip_of(made, "low-0")[0] is Code.UNSATISFIABLE


def test_several_pods_are_let_in_and_one_move_may_do_for_two():
    nodes = [node("n0", cpu="4"), node("n1", cpu="4"), node("n2", cpu="4")]
    web = workload("web", ["n0", "n1"], cpu="3")
    more = workload("more", ["n2"], cpu="1")
    made = room(
        [
            *nodes,
            *web,
            *more,
            *waiting(
                "pair", 2, cpu="1500m", spec={"nodeSelector": {"kubernetes.io/hostname": "n0"}}
            ),
        ]
    )
    assert len(made.moves) == 1
    assert made.after["make-room"].violated == 0


def test_a_pod_that_waits_keeps_its_room_from_others_that_do():
    # What is young waits, too: it would take what the first move frees.
    young = waiting(
        "small",
        cpu="1500m",
        since="2027-01-15T07:59:30Z",
        spec={"nodeSelector": {"kubernetes.io/hostname": "n0"}},
    )
    made = room([*three_nodes(spec={"nodeSelector": {"kubernetes.io/hostname": "n0"}}), *young])
    let_in = made.after["make-room"].violated == 0
    assert let_in or made.moves == ()


def test_the_same_snapshot_gives_the_same_plan():
    assert shown(room(three_nodes())) == shown(room(three_nodes()))


def test_moves_that_are_only_shown_leave_the_others_as_they_are():
    closed = node("n3", taints=[{"key": "closed", "effect": "NoSchedule"}])
    objects = [*three_nodes(), closed, *workload("web", ["n3", "n3"], cpu="100m")]
    plain = plan_of(objects, settings=MARKS, strategies=["taints"])
    both = {"settings": MARKS, "strategies": ["taints", "make-room"]}
    seen = plan_of(objects, observed=("make-room",), **both)
    assert [m.uid for m in seen.moves if not m.observed] == [m.uid for m in plain.moves] != []
    assert [m.strategy for m in seen.moves if m.observed] == ["make-room"]


def test_no_rule_is_broken_for_it():
    # Each node has its share of both workloads: a third pod of one of them on a node would be one too many.
    made = plan_of(three_nodes(), settings=MARKS, strategies=["duplicates", "make-room"])
    assert made.moves == ()
    code, why = skip_of(made)
    assert code is Code.NO_GAIN
    assert why.endswith("a rule that holds would break")


def between_waves(objects: list[Manifest]) -> tuple[Plan, list[str | None]]:
    plan = room(three_nodes())
    return plan, [
        why for _, why in rechecked(objects, plan.moves, settings=MARKS, strategies=["make-room"])
    ]


def test_between_waves_all_moves_for_one_pod_are_judged_together():
    _, still = between_waves(three_nodes())
    assert still == [None]
    gone = [o for o in three_nodes() if o["metadata"]["name"] != "big-0"]
    assert between_waves(gone)[1] == ["the pod that it makes room for is gone"]
    bound = three_nodes()
    for one in bound:
        if one["metadata"]["name"] == "big-0":
            one["spec"]["nodeName"] = "n1"
    assert between_waves(bound)[1] == ["the pod that it makes room for has its node"]
    rival = [*three_nodes(), *workload("rival", ["n0", "n1", "n2"], cpu="1")]
    assert between_waves(rival)[1] == ["the pod that it makes room for would not fit even then"]


def _pair(rule: str) -> list[Manifest]:
    """Pods of 6 wait for left and right, where a pod of 3 stands on each; both may go to either of two more nodes."""
    objects = [node(name, ZONE_OF[name], cpu="8") for name in ("left", "right", "up", "down")]
    port: dict[str, Any] = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    port["resources"] = {"requests": {"cpu": "3", "memory": "128Mi"}}
    specs: dict[str, dict[str, Any]] = {
        "none": {},
        "port": {"containers": [port]},
        "host": apart("pair", HOSTNAME),
        "zone": apart("pair", ZONE),
    }
    # Both names are of one app, so that a rule of one concerns the other.
    labels = {"app": "pair"}
    for name in ("left", "right"):
        objects += workload(f"on-{name}", [name], cpu="3", spec=specs[rule], labels=labels)
        objects += waiting(
            f"for-{name}", cpu="6", spec={"nodeSelector": {"kubernetes.io/hostname": name}}
        )
    return objects


ZONE_OF = {"left": "w1", "right": "w2", "up": "e1", "down": "e2"}


@pytest.mark.parametrize(
    ("rule", "waves"), [("none", [1, 1]), ("port", [1, 2]), ("host", [1, 2]), ("zone", [1, 2])]
)
def test_pods_that_exclude_each_other_do_not_go_at_once_to_where_both_may_land(rule, waves):
    plan = room(_pair(rule), protections=Protect(single_replicas=False))
    assert [move.wave for move in plan.moves] == waves
    assert {move.makes_way_for for move in plan.moves} == {
        "default/for-left-0",
        "default/for-right-0",
    }


GANG = {"app": "big", "scheduling.x-k8s.io/pod-group": "train"}


def of_two(pods: int = 2, **options: Any) -> list[Manifest]:
    """Four nodes of 8 CPUs with 4 in use, half of it movable; of a gang each pod asks for 6."""
    nodes = [node(f"n{i}", cpu="8") for i in range(4)]
    pinned = {"rebalancer/evict": "false"}
    fixed = workload("fixed", ["n0", "n1", "n2", "n3"], cpu="2", annotations=pinned)
    moving = workload("moving", ["n0", "n1", "n2", "n3"], cpu="2")
    return [*nodes, *fixed, *moving, *waiting("big", pods, cpu="6", labels=GANG, **options)]


def test_a_gang_is_let_in_as_a_whole():
    plan = room(of_two())
    assert len(plan.moves) == 2
    assert {move.unit for move in plan.moves} == {"default: PodGroup train"}
    assert {move.makes_way_for for move in plan.moves} == {"default/big-0", "default/big-1"}
    objects = of_two()
    assert [
        why for _, why in rechecked(objects, plan.moves, strategies=["make-room"], settings=MARKS)
    ] == [None, None]


def test_nothing_leaves_for_a_gang_of_which_a_part_would_stay_outside():
    plan = room(of_two(3))
    assert plan.moves == ()
    texts = {skip.pod: skip.message for skip in plan.skips}
    assert set(texts) == {"big-0", "big-1", "big-2"}
    assert len(set(texts.values())) == 1
    assert texts["big-0"].startswith("1 pod of PodGroup train would stay outside: default/big-2: ")


def _change_late(pod: Manifest) -> None:
    pod["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T07:59:00Z"


def _change_new(pod: Manifest) -> None:
    pod["status"] = {"phase": "Pending"}


def _change_nominated(pod: Manifest) -> None:
    pod["status"]["nominatedNodeName"] = "n3"


def _change_gated(pod: Manifest) -> None:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]


def _change_claims(pod: Manifest) -> None:
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (_change_late, Code.GANG, "it has not waited long enough"),
        (_change_new, Code.GANG, "the scheduler has not refused it yet"),
        (_change_nominated, Code.GANG, "makes room for it on n3"),
        (_change_gated, Code.GANG, "waiting for scheduling gates"),
        (_change_claims, Code.UNPREDICTED, "resource claims"),
    ],
)
def test_nothing_leaves_for_a_gang_of_which_a_pod_cannot_have_room_yet(change, code, text):
    objects = of_two()
    change(objects[-1])
    plan = room(objects)
    assert plan.moves == ()
    (skip,) = plan.skips
    assert (skip.pod, skip.code) == ("big-0", code)
    assert "default/big-1: " in skip.message
    assert text in skip.message


def test_pods_that_the_policy_does_not_keep_together_are_let_in_one_by_one():
    plan = room(of_two(3), protections=Protect(gangs=False))
    assert len(plan.moves) == 2


def test_a_node_where_a_pod_would_do_harm_is_marked_while_it_moves():
    """The scheduler prefers n1, where ``web`` has a pod already: with a mark there it takes n2."""
    slow = {"key": "slow", "value": "", "effect": "PreferNoSchedule"}
    objects = [
        *(node(name, cpu="8", taints=[slow] * (name == "n2")) for name in ("n0", "n1", "n2")),
        *workload("web", ["n0", "n1"], cpu="3"),
        *workload("fixed", ["n0"], cpu="2", annotations={"rebalancer/evict": "false"}),
        *waiting("big", cpu="6", spec={"nodeSelector": {HOSTNAME: "n0"}}),
    ]
    made = plan_of(objects, settings=MARKS, strategies=["duplicates", "make-room"])
    assert shown(made) == [("web-0", "n0", "n2", ("n0", "n1"))]
    unmarked = plan_of(objects, strategies=["duplicates", "make-room"])
    assert unmarked.moves == ()
