"""Nodes that Karpenter takes, or may take next: nothing lands there, while all others take pods as ever."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, spread, workload

REGISTRY = Registry.installed()
NOW = 1_800_000_000.0
POOL = "karpenter.sh/nodepool"
KEEP = {"karpenter.sh/do-not-disrupt": "true"}


def at(seconds: float) -> str:
    """A time so many seconds before now."""
    return datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def claim(on: str, *true: str, since: float = 10, age: float = 86_400, **more: Any) -> Any:
    """The NodeClaim of node ``on``, with these conditions True ``since`` so many seconds ago."""
    conditions = [
        {"type": one, "status": "True", "reason": one, "lastTransitionTime": at(since)}
        for one in ("Launched", "Registered", "Initialized", *true)
    ]
    metadata = {"name": f"c-{on}", "labels": {POOL: "p"}, "creationTimestamp": at(age)}
    metadata |= more.pop("metadata", {})
    return {
        "kind": "NodeClaim",
        "metadata": metadata,
        "spec": {"expireAfter": more.pop("expires", "Never")},
        "status": {"nodeName": on, "conditions": conditions, **more},
    }


def pool(policy: str = "WhenEmptyOrUnderutilized", **disruption: Any) -> Any:
    """The NodePool of all nodes here."""
    replicas = disruption.pop("replicas", None)
    spec = {"consolidationPolicy": policy, "consolidateAfter": "30s", **disruption}
    return {
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"disruption": spec, **({"replicas": replicas} if replicas else {})},
    }


def rules(policy="strategies: {topology-spread: {}}\nprotect: {minPodAge: 0s}") -> RunRules:
    text = f"apiVersion: rebalancer/v1\nkind: Policy\n{policy}\n"
    return RunRules(load_text(text.encode(), "p", REGISTRY), REGISTRY, Scope())


def closed(objects) -> dict[str, str]:
    """The nodes that are to take no replacement, with what is noted of each."""
    snapshot = rules().problem(snapshot_of(objects, now=NOW)).snapshot
    return {
        name: "; ".join(one.text for one in snapshot.nodes.notices.get(row, ()))
        for row, name in enumerate(snapshot.nodes.names)
        if snapshot.nodes.leaving[row]
    }


def three(**more: Any) -> list[Any]:
    """Three nodes: full1 and full2 have no room for what stands on low."""
    return [
        *(node(name, labels={POOL: "p"}, cpu="2") for name in ("full1", "full2", "low")),
        *workload("busy", ["full1", "full2"], cpu="1700m"),
        *workload("few", ["low"], cpu=more.pop("few", "500m"), **more),
    ]


@pytest.mark.parametrize(
    ("claims", "of", "why"),
    [
        # No pod has come or gone for long: Karpenter has looked at it, and leaves it.
        ([claim("low")], pool(), ""),
        ([claim("low", metadata={"deletionTimestamp": at(0)})], pool(), "is being deleted"),
        ([claim("low", "DisruptionReason")], pool(), "Karpenter is removing it"),
        ([claim("low", "Drifted")], pool(), "is drifted"),
        ([claim("low", "Drifted")], pool(budgets=[{"nodes": "0"}]), ""),
        ([claim("low", "Drifted", metadata={"annotations": KEEP})], pool(), ""),
        (
            [claim("low", "Drifted")],
            pool(budgets=[{"nodes": "0", "reasons": ["Empty"]}]),
            "drifted",
        ),
        ([claim("low", age=3600 * 10, expires="10h5m")], pool(), "expires"),
        ([claim("low", age=3600 * 10, expires="12h")], pool(), ""),
    ],
)
def test_what_karpenter_says_of_a_node(claims, of, why):
    noted = closed([*three(), *claims, of])
    assert (why in noted["low"]) if why else "low" not in noted
    assert not {"full1", "full2"} & noted.keys()


@pytest.mark.parametrize(
    ("of", "goes"),
    [
        (pool(), True),
        (pool("Balanced"), True),
        (pool("WhenEmpty"), False),
        (pool(consolidateAfter="Never"), False),
        (pool(replicas=3), False),
        (pool(budgets=[{"nodes": "0%"}]), False),
        (pool(budgets=[{"nodes": "0", "reasons": ["Underutilized"]}]), False),
        (pool(budgets=[{"nodes": "10%"}, {"nodes": "1", "reasons": ["Empty"]}]), True),
        # It is eight o'clock on a Friday.
        (pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "8h"}]), True),
        (pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "8h10m"}]), True),
        (pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "8h20m"}]), False),
        (pool(budgets=[{"nodes": "0", "schedule": "0 8 * * 5", "duration": "1h"}]), False),
        (pool(budgets=[{"nodes": "0", "schedule": "0 8 * * 1-4", "duration": "1h"}]), True),
        (pool(budgets=[{"nodes": "0", "schedule": "* * * * *", "duration": "10m"}]), False),
        (pool(budgets=[{"nodes": "0", "schedule": "every day", "duration": "8h"}]), False),
    ],
)
def test_a_node_whose_pods_fit_elsewhere_goes_if_its_pool_lets_it(of, goes):
    assert ("low" in closed([*three(few="200m"), claim("low"), of])) is goes


@pytest.mark.parametrize(
    ("of", "goes"),
    [
        (pool(), True),
        (pool("WhenEmpty"), True),
        (pool("WhenEmpty", consolidateAfter="Never"), False),
        (pool(budgets=[{"nodes": "0", "reasons": ["Empty"]}]), False),
    ],
)
def test_an_empty_node_goes_if_its_pool_lets_it(of, goes):
    nodes = [node(name, labels={POOL: "p"}, cpu="2") for name in ("full1", "full2", "low")]
    noted = closed([*nodes, *workload("busy", ["full1", "full2"], cpu="1700m"), claim("low"), of])
    assert ("low" in noted) is goes


@pytest.mark.parametrize(
    "more",
    [
        {"few": "500m"},
        {"few": "200m", "annotations": KEEP},
        {"few": "200m", "spec": {"nodeSelector": {"kubernetes.io/hostname": "low"}}},
    ],
)
def test_a_node_stays_whose_pods_are_bound_to_it(more):
    assert not closed([*three(**more), claim("low"), pool()])


def test_a_node_stays_whose_budget_allows_no_disruption():
    held = disruption_budget("few", "few", allowed=0, healthy=1)
    assert not closed([*three(few="200m"), held, claim("low"), pool()])


@pytest.mark.parametrize(
    ("since", "of", "goes"),
    [
        (50, pool(), True),
        (70, pool(), False),
        # Who could take nothing until now has decided nothing.
        (70, pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "8h"}]), True),
        (70, pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "7h"}]), False),
        (7200, pool(budgets=[{"nodes": "0", "schedule": "@daily", "duration": "8h10m"}]), True),
    ],
)
def test_a_node_stays_that_karpenter_has_left_there_when_it_might_have_taken_it(since, of, goes):
    low = claim("low", "Consolidatable", since=since)
    assert ("low" in closed([*three(few="200m"), low, of])) is goes


@pytest.mark.parametrize(
    ("after", "last_event", "goes"),
    [
        ("30s", 10, True),
        ("24h", None, False),
        ("24h", 3600, False),
        ("24h", 86_000, True),
        ("10m", 0, True),
        ("20m", 0, False),
        ("20m", 600, True),
        ("0s", 0, True),
    ],
)
def test_a_node_stays_while_karpenter_waits_for_long_before_it_looks(after, last_event, goes):
    more: dict[str, Any] = {} if last_event is None else {"lastPodEventTime": at(last_event)}
    objects = [*three(few="200m"), claim("low", **more), pool(consolidateAfter=after)]
    assert ("low" in closed(objects)) is goes


def held(how: str) -> list[Any]:
    """Three nodes of which ``low`` has a pod that Karpenter may not evict, as ``how`` says."""
    if how == "annotation":
        return three(annotations=KEEP)
    return [*three(), disruption_budget("few", "few", allowed=0, healthy=1)]


@pytest.mark.parametrize("how", ["annotation", "budget"])
@pytest.mark.parametrize(("grace", "goes"), [(None, False), ("1h", True)])
def test_a_drifted_node_stays_whose_pods_hold_it_for_good(how, grace, goes):
    low = claim("low", "Drifted")
    low["spec"]["terminationGracePeriod"] = grace
    assert ("low" in closed([*held(how), low, pool("WhenEmpty")])) is goes


def test_a_drifted_node_without_pods_is_the_next_one():
    drifted = [claim("low", "Drifted", since=60), claim("full1", "Drifted", since=9999)]
    nodes = [node(name, labels={POOL: "p"}, cpu="2") for name in ("full1", "full2", "low")]
    one_at_a_time = pool("WhenEmpty", consolidateAfter="Never", budgets=[{"nodes": "1"}])
    objects = [*nodes, *workload("busy", ["full1", "full2"], cpu="1"), *drifted, one_at_a_time]
    assert list(closed(objects)) == ["low"]


def test_a_node_stays_that_should_have_expired_long_ago():
    low = claim("low", age=3600 * 10, expires="9h")
    assert not closed([*three(), low, pool("WhenEmpty")])


@pytest.mark.parametrize(
    ("budgets", "hours", "goes"),
    [
        # Hours since each node has been drifted; the nodes that are replaced next.
        ([{"nodes": "1"}], [4, 3, 2, 1, 1, 1], [0]),
        ([{"nodes": "20%"}], [1, 2, 3, 4, 5, 6], [4, 5]),
        ([{"nodes": "20%"}, {"nodes": "1", "reasons": ["Drifted"]}], [1, 2, 3, 4, 5, 6], [5]),
        ([{"nodes": "1", "reasons": ["Empty"]}], [1, 2, 3, 4, 5, 6], [3, 4, 5]),
        (None, [1, 2, 3, 4, 5, 6], [3, 4, 5]),
        # From nine to five: not yet; as daily ones that hold at eight o'clock for the longer one.
        (
            [{"nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h"}],
            [1, 2, 3, 4, 5, 6],
            [3, 4, 5],
        ),
        ([{"nodes": "1", "schedule": "@daily", "duration": "8h"}], [1, 2, 3, 4, 5, 6], [3, 4, 5]),
        ([{"nodes": "1", "schedule": "@daily", "duration": "9h"}], [1, 2, 3, 4, 5, 6], [5]),
        # Which of equal ones goes first is not known.
        ([{"nodes": "2"}], [4, 3, 3, 1, 1, 1], [0]),
        ([{"nodes": "2"}], [1, 1, 1, 1, 1, 1], []),
        ([{"nodes": "2"}], [1, 0, 1, 0, 0, 0], [0, 2]),
        ([{"nodes": "x"}], [1, 2, 3, 4, 5, 6], []),
    ],
)
def test_of_drifted_nodes_only_the_next_ones_are_closed(budgets, hours, goes):
    names = [f"n{number}" for number in range(6)]
    claims = [
        claim(name, *["Drifted"][: bool(since)], since=since * 3600)
        for name, since in zip(names, hours, strict=True)
    ]
    objects = [
        *(node(name, labels={POOL: "p"}) for name in names),
        *workload("web", names),
        *claims,
        pool("WhenEmpty", **({"budgets": budgets} if budgets else {})),
    ]
    assert list(closed(objects)) == [names[one] for one in goes]
    assert list(closed(objects[::-1])) == [names[one] for one in goes]


def zones(other: Any = None) -> list[Any]:
    """Three zones of a node each; ``web`` is to spread over them, and stands in two."""
    nodes = [node(f"n-{zone}", zone, labels={POOL: "p"}, cpu="4") for zone in "xyz"]
    spec = spread("web")
    return [
        *nodes,
        *workload("web", ["n-x", "n-x", "n-y"], cpu="1", spec=spec),
        *workload("else", ["n-z"], cpu="1", spec=other),
    ]


def planned(objects, of="topology-spread: {}") -> list[tuple[str, str]]:
    snapshot = snapshot_of(objects, now=NOW)
    made = rules(f"strategies: {{{of}}}\nprotect: {{minPodAge: 0s}}")
    plan = make_plan(made, snapshot, Timings(SystemClock())).plan
    return [(move.pod, landing.node) for move in plan.moves for landing in move.landings[:1]]


def test_no_move_keeps_a_node_that_karpenter_may_remove():
    assert [where for _, where in planned([*zones(), pool()])] == ["n-z"]
    assert planned([*zones(), claim("n-z"), pool()]) == []
    bound = {"nodeSelector": {"topology.kubernetes.io/zone": "z"}}
    stays = [*zones(other=bound), claim("n-z"), pool()]
    assert [where for _, where in planned(stays)] == ["n-z"]


@pytest.mark.parametrize("of", ["low-utilisation: {}", "duplicates: {}"])
def test_no_strategy_fills_what_karpenter_empties(of):
    objects = [
        *(node(name, labels={POOL: "p"}, cpu="4") for name in ("n0", "n1", "low")),
        *workload("many", ["n0"] * 4 + ["n1"] * 4, cpu="800m"),
        *workload("one", ["low"], cpu="200m"),
    ]
    assert {where for _, where in planned([*objects, pool()], of)} == {"low"}
    assert planned([*objects, claim("low"), pool()], of) == []
    assert planned([*objects, claim("low", "DisruptionReason"), pool("WhenEmpty")], of) == []
    assert planned([*objects, claim("low"), pool("WhenEmpty")], of)


@pytest.mark.parametrize("after", ["30s", "24h"])
def test_the_plan_says_how_many_nodes_take_nothing(after):
    names = [f"n{number}" for number in range(6)]
    objects = [
        *(node(name, labels={POOL: "p"}) for name in names),
        *workload("web", [*names, "n0"], cpu="200m"),
        *(claim(name) for name in names),
        pool(consolidateAfter=after),
    ]
    made = rules("strategies: {duplicates: {}}\nprotect: {minPodAge: 0s}")
    plan = make_plan(made, snapshot_of(objects, now=NOW), Timings(SystemClock())).plan
    said = [one for one in plan.warnings if "Karpenter" in one]
    assert [one[:38] for one in said] == ["6 of 6 nodes take no replacements, sin"] * (
        after == "30s"
    )


def test_a_zone_whose_only_node_may_go_is_no_closed_zone():
    snapshot = snapshot_of([*zones(), claim("n-z"), pool()], now=NOW)
    assert rules().problem(snapshot).held == ""


@pytest.mark.parametrize(("coming", "stands"), [(0, False), (1, False), (2, True)])
def test_runs_stand_still_while_many_nodes_come(coming, stands):
    on_their_way = [ordered(number) for number in range(coming)]
    snapshot = snapshot_of([*zones(), *on_their_way, pool()], now=NOW)
    said = rules().standstill(snapshot, 0.0)
    assert bool(said) is stands, said


def ordered(number: int, of: str = "p") -> Any:
    """A NodeClaim whose node is not there yet."""
    metadata = {"name": f"new{number}", "labels": {POOL: of}, "creationTimestamp": at(20)}
    return {"kind": "NodeClaim", "metadata": metadata}


def deleted(on: str, since: float) -> Any:
    return claim(on, metadata={"deletionTimestamp": at(since)})


def unhealthy(status: str) -> Any:
    """A NodePool whose nodes have not registered, as far as its condition says."""
    conditions = [{"type": "NodeRegistrationHealthy", "status": status}]
    return {"kind": "NodePool", "metadata": {"name": "q"}, "status": {"conditions": conditions}}


CHANGES = {
    "two go": ([deleted("n-x", 60), deleted("n-y", 60)], True),
    "two have been going for three days": (
        [deleted("n-x", 259_200), deleted("n-y", 259_200)],
        False,
    ),
    "one of them has": ([deleted("n-x", 259_200), deleted("n-y", 60)], False),
    "two are being replaced for long": (
        [claim(name, "DisruptionReason", since=7200) for name in ("n-x", "n-y")],
        False,
    ),
    "one is replaced": ([claim("n-x", "DisruptionReason"), ordered(0)], False),
    "two are replaced": (
        [claim(name, "DisruptionReason") for name in ("n-x", "n-y")] + [ordered(0), ordered(1)],
        True,
    ),
    "no node of the pool registers": (
        [ordered(0, "q"), ordered(1, "q"), unhealthy("False")],
        False,
    ),
    "whether they do is not known": (
        [ordered(0, "q"), ordered(1, "q"), unhealthy("Unknown")],
        True,
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_runs_stand_still_only_while_nodes_change(case):
    given, stands = CHANGES[case]
    snapshot = snapshot_of([*zones(), *given, pool("WhenEmpty")], now=NOW)
    assert bool(rules().standstill(snapshot, 0.0)) is stands


@pytest.mark.parametrize(("age", "coming"), [(60, True), (1000, False)])
def test_room_is_not_made_for_a_pod_whose_node_is_ordered(age, coming):
    new = {
        "kind": "NodeClaim",
        "metadata": {"name": "new", "labels": {POOL: "p"}, "creationTimestamp": at(age)},
        "status": {
            "providerID": "kwok://new",
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        },
    }
    policy = "strategies: {make-room: {after: 0s}}\nprotect: {minPodAge: 0s}"
    objects = [
        *(node(f"n{i}", labels={POOL: "p"}, cpu="2") for i in range(2)),
        *workload("a", ["n0", "n1"], cpu="1"),
        *workload("big", ["n0"], cpu="1500m"),
    ]
    waiting = objects[-1]
    waiting["spec"].pop("nodeName")
    waiting["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": at(60),
            }
        ],
    }
    snapshot = snapshot_of([*objects, new, pool()], now=NOW)
    plan = make_plan(rules(policy), snapshot, Timings(SystemClock())).plan
    said = {skip.message for skip in plan.skips if skip.code == "MachineComes"}
    assert (said == {"NodeClaim new takes it once it is ready for pods"}) is coming


@given(
    pods=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["200m", "600m", "1"])), min_size=1, max_size=8
    ),
    claimed=st.sets(st.integers(0, 3)),
    order=st.permutations(range(4)),
)
@settings(max_examples=60, deadline=None)
def test_other_names_and_orders_change_nothing(pods, claimed, order):
    """And a node that no NodeClaim speaks of takes pods in any case."""

    def closed_under(names) -> set[int]:
        nodes = [node(name, labels={POOL: "p"}, cpu="2") for name in names]
        groups: dict[str, list[str]] = {}
        for on, cpu in pods:
            groups.setdefault(cpu, []).append(names[on])
        loads = [one for cpu, on in groups.items() for one in workload(f"w{cpu}", on, cpu=cpu)]
        claims = [claim(names[one]) for one in sorted(claimed)]
        noted = closed([*nodes, *loads, *claims, pool()])
        return {number for number, name in enumerate(names) if name in noted}

    first = closed_under([f"n{number}" for number in range(4)])
    assert first <= claimed
    assert closed_under([f"n{order.index(number)}" for number in range(4)]) == first
