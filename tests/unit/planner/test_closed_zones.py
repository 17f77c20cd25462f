"""A zone is closed, as in a zonal shift: meanwhile only hard rules and nodes that go move pods."""

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.snapshot.zones import ZoneState, closed_nodes, closed_zones, list_zones
from rebalancer.testing.snapshots import HOSTNAME, apart, node, snapshot_of, spread, workload

REGISTRY = Registry.installed()
GOING = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
ENDS = "closed: only hard rules and nodes that go move pods"


def zones(**sizes):
    """Nodes x0, x1 ... of each zone x, by name."""
    return {
        f"{zone}{i}": node(f"{zone}{i}", zone) for zone, size in sizes.items() for i in range(size)
    }


def closed(nodes, names, how="cordoned"):
    """The nodes, of which those named take no new pods."""
    more: Any = {
        "cordoned": {"unschedulable": True},
        "NotReady": {"ready": False},
        "going": {"taints": GOING},
    }[how]
    return [node(name, name[0], **more) if name in names else one for name, one in nodes.items()]


def everywhere(nodes):
    return workload("all", list(nodes))


THREE = zones(x=3, y=3, z=3)


@pytest.mark.parametrize(
    ("nodes", "shut", "how", "says"),
    [
        (THREE, (), "cordoned", ""),
        (THREE, ("z0", "z1", "z2"), "cordoned", "zone z (of 3 nodes 3 cordoned, with 3 pods) is "),
        (THREE, ("z0", "z1", "z2"), "NotReady", "zone z (of 3 nodes 3 NotReady, with 3 pods) is "),
        (THREE, ("z0", "z1", "z2"), "going", "zone z (of 3 nodes 3 about to go, with 3 pods) is "),
        # Most of it.
        (THREE, ("z0", "z1"), "cordoned", "zone z (of 3 nodes 2 cordoned, with 3 pods) is "),
        # Nodes of one zone, or several, that somebody works on one by one.
        (THREE, ("z0",), "cordoned", ""),
        (THREE, ("x0", "y0", "z0"), "cordoned", ""),
        # Half of each zone, as where all nodes are replaced by others.
        (zones(x=4, y=4), ("x0", "x1", "y0", "y1"), "cordoned", ""),
        # The only node of a zone, among few zones; among many, zones are racks.
        (
            zones(x=1, y=1, z=1),
            ("z0",),
            "cordoned",
            "zone z (of 1 node 1 cordoned, with 1 pod) is ",
        ),
        (
            zones(x=4, y=4, z=1),
            ("z0",),
            "NotReady",
            "zone z (of 1 node 1 NotReady, with 1 pod) is ",
        ),
        (zones(x=4, y=4, z=1), ("z0",), "going", ""),
        (zones(**dict.fromkeys("abcdefghijk", 1)), ("k0",), "cordoned", ""),
        # Nothing is open.
        (zones(x=3), ("x0", "x1", "x2"), "cordoned", ""),
        (zones(x=2, y=2), ("x0", "x1", "y0", "y1"), "cordoned", ""),
        (
            zones(x=2, y=2, z=2),
            ("x0", "x1", "y0", "y1"),
            "cordoned",
            "zones x (of 2 nodes 2 cordoned, with 2 pods), y (of 2 nodes 2 cordoned, with 2 pods) are ",
        ),
    ],
)
def test_which_zones_are_closed(nodes, shut, how, says):
    snapshot = snapshot_of([*closed(nodes, shut, how), *everywhere(nodes)])
    assert closed_zones(snapshot) == (says and says + ENDS)


def changed(names, **more):
    """Nodes with other fields: labels, taints, annotations, version of the kubelet, time of creation; cordoned or not Ready."""
    made = []
    for name in names.split():
        one = node(name, name[0], **{k: v for k, v in more.items() if k in NODE_FIELDS})
        one["metadata"] |= {k: more[k] for k in ("annotations", "creationTimestamp") if k in more}
        one["status"]["nodeInfo"] = {"kubeletVersion": more.get("version", "v1.35.2")}
        made.append(one)
    return made


NODE_FIELDS = ("labels", "taints", "unschedulable", "ready")
CORDONED = {"unschedulable": True}
TAKEN_OUT = {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}}


def tainted(key, effect="NoSchedule"):
    return {"taints": [{"key": key, "effect": effect}]}


def noted(key, value="{}"):
    return {"annotations": {key: value}}


def of_pool(name, **more):
    return {"labels": {"eks.amazonaws.com/nodegroup": name}, **more}


SCALE_IN = '{"phase":"leaving","since":"2026-01-01T00:00:00Z","at":"2026-01-01T00:00:00Z"}'
GAVE_UP = '{"by":"laptop","why":"kernel","at":"2026-01-01T00:00:00Z","ended":true}'
NEWER = "2027-01-15T07:00:00Z"
# The nodes of zone z, each with a pod, beside three open nodes in each of x and y; whether z is closed.
WORKED_ON = {
    # Work on nodes one by one, each known by what stands on it.
    "Karpenter replaces two of three": (
        [*changed("z0 z1", **tainted("karpenter.sh/disrupted")), *changed("z2")],
        False,
    ),
    "Karpenter takes all of them": (changed("z0 z1", **tainted("karpenter.sh/disrupted")), True),
    "Cluster Autoscaler removes two of three": (
        [
            *changed("z0 z1", **tainted("ToBeDeletedByClusterAutoscaler"), **CORDONED),
            *changed("z2"),
        ],
        False,
    ),
    "Cluster Autoscaler may remove all of them": (
        changed("z0 z1 z2", **tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")),
        False,
    ),
    "those that it may remove are cordoned by somebody else": (
        changed(
            "z0 z1",
            **tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
            **CORDONED,
        ),
        True,
    ),
    "spot machines are taken back, others stay": (
        [
            *changed("z0 z1", **tainted("aws-node-termination-handler/spot-itn"), **CORDONED),
            *changed("z2"),
        ],
        False,
    ),
    "a drain of ours empties the zone": (
        changed("z0 z1 z2", **noted("rebalancer/drain"), **CORDONED),
        False,
    ),
    "a drain of ours has given up": (
        changed("z0 z1", **noted("rebalancer/drain", GAVE_UP), **CORDONED),
        False,
    ),
    "scale-in empties the zone": (
        changed("z0 z1", **noted("rebalancer/scale-in", SCALE_IN), **CORDONED),
        False,
    ),
    "kured reboots the only node": (
        changed("z0", **noted("weave.works/kured-reboot-in-progress", "now"), **CORDONED),
        False,
    ),
    "kured has gone on": (
        changed("z0 z1", **noted("weave.works/kured-reboot-in-progress", "now")),
        False,
    ),
    # An upgrade of a node group: the old nodes are cordoned, new ones stand beside them.
    "new nodes of a newer version": (
        [*changed("z0 z1 z2", **CORDONED), *changed("z3", version="v1.36.0")],
        False,
    ),
    "new nodes of the same version": (
        [*changed("z0 z1 z2", **CORDONED, **TAKEN_OUT), *changed("z3", creationTimestamp=NEWER)],
        False,
    ),
    "new nodes are not there yet": (changed("z0 z1 z2", **CORDONED, **TAKEN_OUT), True),
    "an older node alone is open": (
        [*changed("z0 z1 z2", **CORDONED), *changed("z3", version="v1.34.9")],
        True,
    ),
    "versions of which some are not known": (
        [*changed("z0 z1", version="", **CORDONED), *changed("z2", version="v1.36.0")],
        True,
    ),
    # Several node groups in one zone.
    "one of two groups is cordoned": (
        [*changed("z0 z1 z2", **of_pool("old", **CORDONED)), *changed("z3 z4", **of_pool("other"))],
        False,
    ),
    "most of both are cordoned": (
        [
            *changed("z0 z1", **of_pool("one", **CORDONED)),
            *changed("z2 z3", **of_pool("two", **CORDONED)),
            *changed("z4", **of_pool("two")),
        ],
        True,
    ),
    "a node of another group has joined since": (
        [
            *changed("z0 z1 z2", **of_pool("one", **CORDONED)),
            *changed("z3", **of_pool("two", creationTimestamp=NEWER)),
        ],
        True,
    ),
    "the open group takes no ordinary pods": (
        [
            *changed("z0 z1 z2", **of_pool("one", **CORDONED)),
            *changed("z3", **of_pool("gpu", **tainted("nvidia.com/gpu"))),
        ],
        True,
    ),
    "most of the zone is NotReady, whatever group stands": (
        [*changed("z0 z1 z2", **of_pool("one", ready=False)), *changed("z3", **of_pool("other"))],
        True,
    ),
    "machines are shut down, one still answers": (
        [
            *changed(
                "z0 z1 z2", **tainted("node.cloudprovider.kubernetes.io/shutdown"), ready=False
            ),
            *changed("z3"),
        ],
        True,
    ),
    # Few open nodes beside many that are shut show no work on single nodes.
    "one newer node has joined a zone of eight that is closed": (
        [
            *changed("z0 z1 z2 z3 z4 z5 z6 z7", **CORDONED),
            *changed("z8", version="v1.36.0", creationTimestamp=NEWER),
        ],
        True,
    ),
    "only the control plane has a newer version": (
        [
            *changed("z0 z1 z2", **CORDONED),
            *changed("z3", version="v1.36.0", **tainted("node-role.kubernetes.io/control-plane")),
        ],
        True,
    ),
    "Cluster Autoscaler may remove those that somebody has cordoned, and one is open": (
        [
            *changed(
                "z0 z1 z2 z3",
                **tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
                **CORDONED,
            ),
            *changed("z4"),
        ],
        True,
    ),
    "one node of another group is open": (
        [*changed("z0 z1 z2", **of_pool("one", **CORDONED)), *changed("z3", **of_pool("two"))],
        True,
    ),
    "its nodes are drained because they are NotReady": (
        changed("z0 z1 z2", **noted("rebalancer/drain"), **CORDONED, ready=False),
        True,
    ),
    # Work, and a zone that is closed for all that.
    "what nobody works on is cordoned": (
        [
            *changed("z0 z1", **CORDONED),
            *changed("z2 z3 z4", **noted("rebalancer/drain"), **CORDONED),
        ],
        True,
    ),
    "one that nobody works on is cordoned": (
        [*changed("z0", **CORDONED), *changed("z1 z2", **noted("rebalancer/drain"), **CORDONED)],
        False,
    ),
}


@pytest.mark.parametrize("case", WORKED_ON)
def test_work_on_single_nodes_closes_no_zone(case):
    there, is_closed = WORKED_ON[case]
    others = zones(x=3, y=3)
    names = [*others, *(one["metadata"]["name"] for one in there)]
    pods = workload("all", names)
    snapshot = snapshot_of([*others.values(), *there, *pods])
    assert bool(closed_zones(snapshot)) == is_closed
    backwards = snapshot_of([*reversed(there), *reversed(list(others.values())), *pods])
    assert closed_zones(backwards) == closed_zones(snapshot)
    # The pods in it are taken to serve, or not, all the same.
    assert closed_nodes(snapshot).tolist() == [
        is_closed and name.startswith("z") for name in sorted(names)
    ]


OUTAGE = tainted("acme.example/outage")
OUT_OF_SERVICE = tainted("node.kubernetes.io/out-of-service", "NoExecute")
FOR_GPU = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
# The nodes of zone z, the tolerations of the pods on them, and of pods in x; whether z is closed.
TAINTED = {
    "all of them, since their pods came": (changed("z0 z1 z2", **OUTAGE), None, None, True),
    "most of them": ([*changed("z0 z1", **OUTAGE), *changed("z2")], None, None, True),
    "one of them": ([*changed("z0", **OUTAGE), *changed("z1 z2")], None, None, False),
    "some tainted, some cordoned": (
        [*changed("z0", **OUTAGE), *changed("z1", **CORDONED), *changed("z2")],
        None,
        None,
        True,
    ),
    "with the taint that says so": (changed("z0 z1 z2", **OUT_OF_SERVICE), None, None, True),
    "softly": (
        changed("z0 z1 z2", **tainted("acme.example/outage", "PreferNoSchedule")),
        None,
        None,
        False,
    ),
    # Node pools: who may be there says so by its toleration.
    "a pool with its own pods": (
        changed("z0 z1 z2", **tainted("nvidia.com/gpu")),
        FOR_GPU,
        None,
        False,
    ),
    "a pool with pods from before it was one": (
        changed("z0 z1 z2", **tainted("nvidia.com/gpu")),
        None,
        FOR_GPU,
        False,
    ),
    "pods that tolerate everything came after it": (
        changed("z0 z1 z2", **OUTAGE),
        [{"operator": "Exists"}],
        None,
        False,
    ),
    "a pool that somebody has tainted besides": (
        changed("z0 z1 z2", taints=[*tainted("nvidia.com/gpu")["taints"], *OUTAGE["taints"]]),
        FOR_GPU,
        None,
        True,
    ),
    # What Kubernetes says of a node by a taint.
    "the nodes are short of disk": (
        changed("z0 z1 z2", **tainted("node.kubernetes.io/disk-pressure")),
        None,
        None,
        False,
    ),
    # Work on single nodes, as with a cordon.
    "new nodes of a newer version stand beside them": (
        [*changed("z0 z1 z2", **OUTAGE), *changed("z3", version="v1.36.0")],
        None,
        None,
        False,
    ),
    "one of two groups": (
        [*changed("z0 z1 z2", **of_pool("old", **OUTAGE)), *changed("z3 z4", **of_pool("other"))],
        None,
        None,
        False,
    ),
}


@pytest.mark.parametrize("case", TAINTED)
def test_a_zone_tainted_by_hand_is_closed_and_a_node_pool_is_not(case):
    there, here, elsewhere, is_closed = TAINTED[case]
    others = zones(x=3, y=3)
    of_z = [one["metadata"]["name"] for one in there]
    objects = [
        *others.values(),
        *there,
        *workload("some", of_z, spec={"tolerations": here or []}),
        *workload("all", list(others), spec={"tolerations": elsewhere or []}),
    ]
    for order in (objects, objects[::-1]):
        assert bool(closed_zones(snapshot_of(order))) == is_closed


def tolerating(key: str) -> dict[str, Any]:
    return {"tolerations": [{"key": key, "operator": "Exists"}]}


BY_ALL = {"tolerations": [{"operator": "Exists"}]}
DEDICATED = changed("x9 z0 z1 z2", **tainted("acme.example/dedicated"))
OUTAGE_OF_Z = changed("z0 z1 z2", **OUTAGE)
# Tainted nodes, the pods of single namespaces beside those of "default" on six nodes of x and y; whether z is closed.
TENANTS: dict[str, tuple[list[Any], list[Any], bool]] = {
    "a tenant has bound a pod to a pool": (
        DEDICATED,
        [("team", ["z0", "z1", "z2"], BY_ALL), ("tenant", ["x9"], {})],
        False,
    ),
    "a tenant has bound a pod to each node of a pool": (
        DEDICATED,
        [("tenant", ["x9", "z0", "z1", "z2"], {})],
        False,
    ),
    "two have bound a pod to one node of a pool in use": (
        DEDICATED,
        [
            ("team", ["x9", "z0", "z1", "z2"], tolerating("acme.example/dedicated")),
            ("tenant", ["z0", "z0"], {}),
            ("guest", ["z0"], {}),
        ],
        False,
    ),
    "two are in a pool of a third with more pods": (
        DEDICATED,
        [
            ("team", ["x9", "z0", "z1", "z2"] * 2, tolerating("acme.example/dedicated")),
            ("tenant", ["z0", "z1"], {}),
            ("guest", ["x9", "z2"], {}),
        ],
        False,
    ),
    "pods of two from before an outage": (
        OUTAGE_OF_Z,
        [("team", ["z0", "z1"], {}), ("guest", ["z2"], {})],
        True,
    ),
    "pods of the largest namespace from before an outage": (
        OUTAGE_OF_Z,
        [("default", ["z0", "z1", "z2"], {})],
        True,
    ),
    "a tenant elsewhere tolerates the outage": (
        OUTAGE_OF_Z,
        [
            ("default", ["z0", "z1", "z2"], {}),
            ("tenant", ["x0"], tolerating("acme.example/outage")),
        ],
        True,
    ),
    "a tenant on a node there tolerates the outage": (
        OUTAGE_OF_Z,
        [
            ("default", ["z0", "z1", "z2"], {}),
            ("tenant", ["z0"] * 3, tolerating("acme.example/outage")),
        ],
        True,
    ),
    "two tenants elsewhere tolerate it": (
        OUTAGE_OF_Z,
        [
            ("default", ["z0", "z1", "z2"], {}),
            ("tenant", ["x0"], tolerating("acme.example/outage")),
            ("guest", ["y0"], tolerating("acme.example/outage")),
        ],
        False,
    ),
}


@pytest.mark.parametrize("case", TENANTS)
def test_pods_of_one_tenant_neither_close_nor_open_a_zone(case):
    there, standing, is_closed = TENANTS[case]
    others = zones(x=3, y=3)
    objects = [*others.values(), *there, *workload("all", list(others))]
    for number, (namespace, on, spec) in enumerate(standing):
        objects += workload(f"own{number}", on, namespace=namespace, spec=spec)
    for order in (objects, objects[::-1]):
        assert bool(closed_zones(snapshot_of(order))) == is_closed


def test_nodes_without_pods_count_by_the_taint_of_those_that_have_some():
    there = changed("z0 z1 z2 z3", **OUTAGE)
    objects = [*zones(x=3, y=3).values(), *there, *workload("all", ["x0", "y0", "z0", "z1"])]
    assert closed_zones(snapshot_of(objects)).startswith("zone z (of 4 nodes 4 tainted")


def test_the_reason_names_what_is_tainted():
    there = [*changed("z0 z1", **OUTAGE), *changed("z2", **CORDONED)]
    objects = [*zones(x=3, y=3).values(), *there, *workload("all", ["x0", "y0", "z0", "z1", "z2"])]
    said = closed_zones(snapshot_of(objects))
    assert said == f"zone z (of 3 nodes 1 cordoned, 2 tainted, with 3 pods) is {ENDS}"


@pytest.mark.parametrize("more", [{}, noted("rebalancer/drain", GAVE_UP)])
def test_a_zone_none_of_whose_nodes_takes_pods_is_not_back(more):
    drained = [*zones(x=2, y=2).values(), *changed("z0 z1", **CORDONED, **more)]
    states = {
        zone.name: zone.state
        for zone in list_zones(snapshot_of([*drained, *workload("all", ["x0", "y0"])]))
    }
    assert states["z"] is ZoneState.OPEN


def test_a_zone_without_pods_is_not_closed_but_empty():
    objects = closed(THREE, ("z0", "z1", "z2"))
    pods = workload("all", ["x0", "y0", "z0"])
    assert closed_zones(snapshot_of([*objects, *pods])) == ""
    unlabelled = [node(f"n{i}", unschedulable=i > 0) for i in range(3)]
    assert closed_zones(snapshot_of([*unlabelled, *workload("all", ["n1", "n2"])])) == ""


def plan_of(strategies, objects, **more):
    text = f"apiVersion: rebalancer/v1\nkind: Policy\n{strategies}\n"
    loaded = load_text(text.encode(), "policy", REGISTRY)
    rules = RunRules(loaded, REGISTRY, Scope())
    return make_plan(rules, snapshot_of(objects), Timings(SystemClock()), **more)


CROWDED = {
    "duplicates": workload("web", ["x0", "x0"]),
    "topology-spread": workload("web", ["x0", "x0", "x1"], spec=spread("web")),
    "anti-affinity": workload("web", ["x0", "x1"], spec=apart("web", weight=50)),
    "low-utilisation": workload("web", ["x0"] * 3, cpu="1200m"),
    "hard": workload("web", ["x0", "x0"], spec=apart("web", HOSTNAME)),
}


@pytest.mark.parametrize(
    ("strategy", "moves"),
    [
        ("duplicates", 0),
        ("topology-spread", 0),
        ("anti-affinity", 0),
        ("low-utilisation", 0),
        ("hard", 1),
    ],
)
def test_meanwhile_only_hard_rules_move_pods(strategy, moves):
    name = "anti-affinity" if strategy == "hard" else strategy
    policy = f"strategies: {{{name}: {{}}}}"
    standing = [*CROWDED[strategy], *workload("kept", ["z0", "z1"])]
    opened = plan_of(policy, [*THREE.values(), *standing])
    assert len(opened.plan.moves) > 0
    shut = plan_of(policy, [*closed(THREE, ("z0", "z1", "z2")), *standing])
    assert (len(shut.plan.moves), shut.standstill) == (moves, ())
    why = f"zone z (of 3 nodes 3 cordoned, with 2 pods) is {ENDS}"
    assert why in shut.plan.warnings
    if not moves:
        assert {(skip.code, skip.message) for skip in shut.plan.skips} == {("ZoneClosed", why)}
        assert shut.plan.stopped.startswith("Nothing can be gained yet: ")


def test_a_node_that_goes_is_emptied_meanwhile():
    nodes = closed(THREE, ("z0", "z1", "z2"))
    nodes[0] = node("x0", "x", taints=GOING)
    pods = [*workload("web", ["x0", "y0"]), *workload("kept", ["z0", "z1"])]
    (move,) = plan_of("strategies: {leaving: {}, duplicates: {}}", [*nodes, *pods]).plan.moves
    assert (move.node, move.strategy) == ("x0", "leaving")


def test_what_was_planned_for_a_soft_rule_is_dropped_once_a_zone_closes():
    pods = [*CROWDED["duplicates"], *workload("kept", ["z0", "z1"])]
    made = plan_of("strategies: {duplicates: {}}", [*THREE.values(), *pods])
    now = snapshot_of([*closed(THREE, ("z0", "z1")), *pods])
    assert [why for _, why in made.revalidate(now, made.plan.moves)] == [
        f"zone z (of 3 nodes 2 cordoned, with 2 pods) is {ENDS}"
    ]


def test_no_node_is_begun_to_be_emptied_and_no_room_is_made():
    policy = "steer: marks\nstrategies: {consolidation: {}, make-room: {after: 0s}}"
    pods = [*workload("web", ["x0", "y0"], cpu="100m"), *workload("kept", ["z0", "z1"])]
    opened = plan_of(policy, [*THREE.values(), *pods]).plan
    assert opened.emptied
    shut = plan_of(policy, [*closed(THREE, ("z0", "z1", "z2")), *pods]).plan
    assert (shut.moves, shut.emptied) == ((), ())


def web_budget(least, healthy):
    """A PodDisruptionBudget over the pods of web, with what its controller has counted."""
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": max(0, healthy - least),
            "currentHealthy": healthy,
            "desiredHealthy": least,
            "expectedPods": healthy,
        },
    }


# Where the pods of web are, how many of them its budget asks for, whether z is closed, how many may go at once.
SERVING = {
    "all serve": (["x0", "x1", "y0", "y1", "z0", "z1"], 4, False, 2),
    "those in z do not": (["x0", "x1", "y0", "y1", "z0", "z1"], 4, True, 0),
    "one more than is asked for serves": (["x0", "x1", "y0", "y1", "z0", "z1"], 3, True, 1),
    "too few serve already": (["x0", "y0", "z0", "z1", "z2"], 3, True, 0),
    "none is in z": (["x0", "x1", "x2", "y0", "y1", "y2"], 4, True, 2),
}


@pytest.mark.parametrize("case", SERVING)
def test_pods_in_a_closed_zone_are_none_that_a_budget_may_count_on(case):
    places, least, shut, at_once = SERVING[case]
    nodes = zones(x=9, y=9, z=3)
    nodes |= {name: node(name, name[0], taints=GOING) for name in ("x0", "x1", "y0")}
    objects = closed(nodes, ("z0", "z1", "z2") if shut else ())
    kept = workload("kept", ["z0", "z1"])
    pods = workload("web", places)
    budgets = "budgets: {perOwner: 100%, inFlight: 100%, perRun: 100%}"
    plan = plan_of(
        f"{budgets}\nstrategies: {{leaving: {{}}}}",
        [*objects, *pods, *kept, web_budget(least, len(places))],
    ).plan
    moves = [move for move in plan.moves if move.owner == "Deployment/default/web"]
    first = [move for move in moves if move.wave == min(one.wave for one in moves)]
    assert len(first) == at_once
    said = {skip.message for skip in plan.skips if "outside of closed zone z: " in skip.message}
    assert bool(said) == (shut and not at_once)


def test_what_does_not_serve_may_leave_a_closed_zone():
    nodes = closed(THREE, ("z0", "z1", "z2"))
    nodes[-1] = node("z2", "z", taints=GOING)
    pods = [*workload("web", ["x0", "x1", "y0", "y1", "z1", "z2"]), web_budget(4, 6)]
    (move,) = plan_of("strategies: {leaving: {}}", [*nodes, *pods]).plan.moves
    assert move.node == "z2"


@pytest.mark.parametrize(("shut", "at_once"), [((), 3), (("z0", "z1", "z2"), 2)])
def test_a_share_of_an_owner_is_one_of_the_pods_that_serve(shut, at_once):
    names = ("x0", "x1", "y0", "y1")
    going = {name: node(name, name[0], taints=GOING) for name in names}
    nodes = closed(zones(x=6, y=6, z=3) | going, shut)
    budgets = "budgets: {perOwner: 50%, inFlight: 100%, perRun: 100%}"
    pods = workload("web", [*names, "z0", "z1"])
    plan = plan_of(f"{budgets}\nstrategies: {{leaving: {{}}}}", [*nodes, *pods]).plan
    assert sum(move.wave == 1 for move in plan.moves) == at_once


@pytest.mark.parametrize(
    ("shut", "places", "states"),
    [
        ((), ["x0", "y0", "z0"], ["open", "open", "open"]),
        ((), ["x0", "y0"], ["open", "open", "back"]),
        ((), [], ["open", "open", "open"]),
        (("z0", "z1", "z2"), ["x0", "y0", "z0", "z1"], ["open", "open", "closed"]),
        (("z0", "z1", "z2"), ["x0", "y0"], ["open", "open", "open"]),
    ],
)
def test_each_zone_has_one_state(shut, places, states):
    given = [*closed(THREE, shut), *workload("all", places)]
    assert [zone.state.value for zone in list_zones(snapshot_of(given))] == states
    assert [zone.state.value for zone in list_zones(snapshot_of(reversed(given)))] == states


def test_a_zone_without_nodes_that_earlier_runs_have_seen_is_empty():
    before = snapshot_of([*THREE.values(), *workload("all", ["x0", "y0"])])
    given = list_zones(replace(before, earlier_zones=("w", "x")))
    assert [(zone.name, zone.state.value) for zone in given] == [
        ("w", "empty"),
        ("x", "open"),
        ("y", "open"),
        ("z", "back"),
    ]


@pytest.mark.parametrize("age", ["2027-01-01T00:00:00Z", "2027-01-15T07:50:00Z"])
@pytest.mark.parametrize(
    ("alone", "others"), [("alpha", ["beta", "gamma"]), ("omega", ["beta", "gamma"])]
)
def test_once_a_zone_is_back_what_stands_in_one_zone_alone_goes_first(alone, others, age):
    """However young: its pods may have been created when the zone was lost."""
    nodes = zones(x=3, y=3, z=3)
    pods = [*workload(alone, ["x0", "x1", "x2"], spec=spread(alone))]
    for one in pods:
        one["metadata"]["creationTimestamp"] = age
    for name in others:
        pods += workload(name, ["x0", "x1", "y0", "y1"], spec=spread(name))
    budgets = "budgets: {perRun: 1}"
    (move,) = plan_of(
        f"{budgets}\nstrategies: {{topology-spread: {{}}}}", [*nodes.values(), *pods]
    ).plan.moves
    assert move.owner == f"Deployment/default/{alone}"
