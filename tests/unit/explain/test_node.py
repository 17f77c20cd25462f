"""``explain node``, on clusters whose answer a person can check."""

import pytest

from rebalancer.report.as_html import as_html
from rebalancer.report.as_text import as_markdown, as_table
from rebalancer.testing.snapshots import (
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    with_usage,
    workload,
)

# web's third pod has to leave zone a for zone c; nothing else is to be done.
STORY = [
    node("n-a", "a"),
    node("n-b", "b"),
    node("n-c", "c"),
    *workload("web", ["n-a", "n-b", "n-a"], namespace="shop", spec=apart("web", weight=100)),
    *workload("one", ["n-a"], cpu="1"),
]

TABLE = """\
Node n-a (a)
Dry run with the built-in default policy (mode enforce, eagerness careful)
cluster.json, Kubernetes 1.36, 3 nodes, 4 pods, 2027-01-15T08:00:00Z

  state    Ready
  taints   none
  landing  takes pods, as far as there is room

          allocatable  requested       after the plan
  cpu               4        1.2  30%             1.1  28%
  memory         16Gi      384Mi   2%           256Mi   2%
  pods            110          3   3%               2   2%

low-utilisation: between the thresholds; gives none, and invites pods of over-used nodes that are
  30% above it
  cpu     30% requested  10 points above 20% and 20 points below 50%
  memory   2% requested  17.7 points below 20%
  pods               3%  17.3 points below 20%

On it: 3 pods, of which the plan moves 1

  shop/web-0  Deployment/shop/web
      the plan moves it to n-c (c) in wave 1 (duplicates, gain 2 soft, cost 1)
      breaks a rule (anti-affinity, up to 1 soft): Deployment/shop/web apart over
        topology.kubernetes.io/zone (preferred, weight 100): a 2, b 1, c 0; asks for at most 1 apart
      breaks a rule (duplicates, up to 1 soft): Deployment/shop/web (3 pods, 3 feasible nodes): 2 on
        one node, at most 1 needed

  shop/web-2  Deployment/shop/web
      need not move: the moves of others fix it
      breaks a rule (anti-affinity, up to 1 soft): Deployment/shop/web apart over
        topology.kubernetes.io/zone (preferred, weight 100): a 2, b 1, c 0; asks for at most 1 apart
      breaks a rule (duplicates, up to 1 soft): Deployment/shop/web (3 pods, 3 feasible nodes): 2 on
        one node, at most 1 needed

  No rule asks for a move of 1 pod

  default/one-0  Deployment/default/one; may not move: singleReplica: the only replica of its owner

No planned move would land here.
"""


def test_a_node_reads_like_this(explaining):
    assert explaining.node("n-a", STORY).table == TABLE


def test_where_the_pod_lands_its_move_is_reported_with_its_probability(explaining):
    explanation = explaining.node("n-c", STORY)
    (arrival,) = explanation.data["arrivals"]
    assert (arrival["pod"], arrival["from"], arrival["probability"]) == ("web-0", "n-a", 1)
    assert explanation.data["pods"] == []
    assert "100%  shop/web-0 from n-a (a), wave 1" in explanation.table
    assert "On it: no pod" in explanation.table


def test_a_move_that_may_land_on_either_of_two_nodes_is_reported_of_both(explaining):
    objects = [*STORY, node("n-d", "c")]
    for name in ("n-c", "n-d"):
        (arrival,) = explaining.node(name, objects).data["arrivals"]
        assert arrival["probability"] == 0.5


def test_a_landing_too_unlikely_for_the_report_is_reported_all_the_same(explaining):
    nodes = [node(f"c-{i:02}", "c") for i in range(40)]
    objects = [*STORY[:2], *nodes, *STORY[3:]]
    arrivals_of = [explaining.node(f"c-{i:02}", objects).data["arrivals"] for i in (0, 39)]
    assert [arrivals[0]["probability"] for arrivals in arrivals_of] == [0.025, 0.025]
    report = explaining.node("c-39", objects).report
    assert len(report.plan.moves[0].landings) == 20


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ({}, "ordinary", "as far as there is room"),
        ({"unschedulable": True}, "tolerating", "its cordon"),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, "tolerating", "its taints"),
        ({"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}, "ordinary", "takes pods"),
        (
            {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            "leaving",
            "announced to go",
        ),
        ({"ready": False}, "ordinary", "not Ready, but no taint says so"),
        ({"cpu": "-1"}, "none", "unreadable"),
    ],
)
def test_it_says_whether_replacements_land_on_it(explaining, given, kind, says):
    explanation = explaining.node("n-x", [node("n-a"), node("n-b"), node("n-x", **given)])
    assert explanation.data["landing"]["kind"] == kind
    assert says in explanation.data["landing"]["message"]


def test_it_says_why_karpenter_keeps_replacements_off(explaining):
    pool = {"karpenter.sh/nodepool": "p"}
    claim = {
        "kind": "NodeClaim",
        "metadata": {"name": "c-x", "labels": pool, "deletionTimestamp": "2027-01-15T07:59:00Z"},
        "status": {"nodeName": "n-x"},
    }
    explanation = explaining.node("n-x", [node("n-a"), node("n-x", labels=pool), claim])
    assert explanation.data["landing"] == {
        "kind": "leaving",
        "message": "no move that lands here with more than 5% is made: NodeClaim c-x is being deleted",
    }


def test_taints_and_states_are_named(explaining):
    taints = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    explanation = explaining.node(
        "n-x", [node("n-x", taints=taints, unschedulable=True, ready=False)]
    )
    assert explanation.data["taints"] == [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    assert "  state    not Ready, cordoned\n  taints   team=ml:NoSchedule\n" in explanation.table


def test_what_terminating_pods_still_hold_is_distinguished(explaining):
    objects = [node("n-a"), *workload("web", ["n-a", "n-a"], cpu="500m")]
    objects[-1]["metadata"]["deletionTimestamp"] = "2027-01-15T07:59:50Z"
    explanation = explaining.node("n-a", objects)
    cpu = explanation.data["resources"][0]
    assert (cpu["resource"], cpu["unit"], cpu["allocatable"]) == ("cpu", "millicores", 4000)
    assert (cpu["requested"], cpu["terminating"], cpu["used"]) == (1000, 500, None)
    going = explanation.pod("web-1")
    assert (going["terminating"], going["plan"]["verdict"]) == (True, "nothing")
    assert (
        "default/web-1  Deployment/default/web  (terminating); terminating: is" in explanation.table
    )


# -- thresholds ----------------------------------------------------------------------------------------


def loaded(*tenths):
    """One node per number, with so many pods of a tenth of its cpu."""
    nodes = [node(f"n-{i}", cpu="10") for i in range(len(tenths))]
    on = [f"n-{i}" for i, count in enumerate(tenths) for _ in range(count)]
    return [*nodes, *workload("web", on, cpu="1", memory="1Mi")]


@pytest.mark.parametrize(
    ("tenths", "standing", "gives", "says"),
    [
        ((8, 1), "over-used", True, "gives pods: 1 node may take them"),
        ((8, 3), "over-used", True, "gives pods: 1 node may take them"),
        ((6, 4), "over-used", False, "gives none: no node is under-used, or 30% below it"),
        ((4, 8), "between", False, "invites pods of over-used nodes that are 30% above it"),
        ((1, 8), "under-used", False, "invites pods of over-used nodes"),
    ],
)
def test_how_a_node_stands_to_the_thresholds(explaining, tenths, standing, gives, says):
    (gauge,) = explaining.node("n-0", loaded(*tenths)).data["utilisation"]
    assert (gauge["strategy"], gauge["standing"], gauge["gives"]) == (
        "low-utilisation",
        standing,
        gives,
    )
    assert gauge["message"].endswith(says)
    (cpu,) = [level for level in gauge["levels"] if level["resource"] == "cpu"]
    assert cpu["share"] == tenths[0] / 10
    assert (cpu["under"], cpu["over"], cpu["by"]) == (0.2, 0.5, "requested")


def test_by_how_much_it_is_over_and_what_is_left_of_that_after_the_plan(explaining):
    explanation = explaining.node("n-0", loaded(9, 1))
    (gauge,) = explanation.data["utilisation"]
    after = {level["resource"]: level["after"] for level in gauge["levels"]}
    moved = len(explanation.report.plan.moves)
    assert moved > 0
    assert after["cpu"] == pytest.approx((9 - moved) / 10)
    assert "  cpu     90% requested  40 points above 50%\n" in explanation.table


def test_a_cordoned_node_attracts_no_pod_however_empty(explaining):
    objects = loaded(8, 1)
    objects[1]["spec"]["unschedulable"] = True
    (gauge,) = explaining.node("n-1", objects).data["utilisation"]
    assert (gauge["standing"], gauge["message"]) == (
        "under-used",
        "gives none and invites none: it is cordoned or about to go",
    )


def test_a_node_that_is_not_ready_stands_to_no_threshold(explaining):
    objects = loaded(1, 8)
    objects[0]["status"]["conditions"][0]["status"] = "False"
    assert explaining.node("n-0", objects).data["utilisation"] == []


USAGE = "strategies: {low-utilisation: {signal: usage, runs: %d}}\n"


@pytest.mark.parametrize(
    ("runs", "gives", "says"),
    [
        (1, True, "gives pods: 1 node may take them"),
        (3, False, "until nodes were over-used in 3 runs in a row, and earlier runs are not known"),
    ],
)
def test_by_usage_it_reports_what_was_measured_and_what_it_waits_for(explaining, runs, gives, says):
    measured = with_usage(snapshot_of(loaded(2, 1)), {"web": (4000, 2**20)})
    explanation = explaining.node("n-0", measured, policy=USAGE % runs)
    cpu, memory, pods = explanation.data["resources"]
    assert (cpu["requested"], cpu["used"], memory["used"]) == (2000, 8000, 2 * 2**20)
    assert pods["used"] is None
    (gauge,) = explanation.data["utilisation"]
    assert (gauge["standing"], gauge["gives"]) == ("over-used", gives)
    assert says in gauge["message"]
    assert next(level for level in gauge["levels"] if level["by"] == "used")["share"] == 0.8
    (rule, *_) = explanation.pod("web-0")["breaks"]
    assert rule["waits"] is not gives


def test_a_node_that_is_not_measured_says_so(explaining):
    measured = with_usage(snapshot_of(loaded(2, 8)), unknown=["n-0"])
    explanation = explaining.node("n-0", measured, policy=USAGE % 1)
    assert explanation.data["resources"][0]["used"] is None
    (gauge,) = explanation.data["utilisation"]
    assert gauge["message"] == "gives none and invites none: what it uses is not measured"


# -- its pods ------------------------------------------------------------------------------------------


def test_each_pod_says_what_it_breaks_and_what_becomes_of_it(explaining):
    explanation = explaining.node("n-a", STORY)
    moves, fixed, fine = (explanation.pod(name) for name in ("web-0", "web-2", "one-0"))
    assert [pod["plan"]["verdict"] for pod in (moves, fixed, fine)] == ["moves", "mended", "fine"]
    assert [rule["strategy"] for rule in moves["breaks"]] == ["anti-affinity", "duplicates"]
    assert [(w["entry"], w["gain"], w["lasts"]) for w in fixed["breaks"]] == [
        ("soft", 1, False),
        ("soft", 1, False),
    ]
    assert moves["plan"]["move"]["landings"][0]["node"] == "n-c"
    assert moves["mayMove"]
    assert fine["forbiddenBy"] == [
        {
            "code": "Protected",
            "protection": "singleReplica",
            "message": "the only replica of its owner",
        }
    ]
    assert (fine["mayMove"], fine["breaks"]) == (False, [])


@pytest.mark.parametrize(
    ("more", "options", "code", "says"),
    [
        (
            [disruption_budget("web", "web", allowed=0)],
            {},
            "PodDisruptionBudget",
            "default/web allows no disruption (3 healthy, 3 desired)",
        ),
        ([], {"annotations": {"rebalancer/evict": "false"}}, "Protected", "optedOut: annotated"),
    ],
)
def test_a_pod_that_stays_has_the_reports_code_and_message(explaining, more, options, code, says):
    nodes = [node("n-a", "a"), node("n-b", "b"), node("n-c", "c")]
    web = workload("web", ["n-a", "n-b", "n-a"], spec=spread("web"), **options)
    explanation = explaining.node("n-a", [*nodes, *web, *more])
    pod = explanation.pod("web-0")
    assert (pod["plan"]["verdict"], pod["plan"]["code"]) == ("stays", code)
    assert says in pod["plan"]["message"]
    assert not pod["mayMove"]
    assert [protection["code"] for protection in pod["forbiddenBy"]] == [code]
    assert f"stays, {code}: " in explanation.table


def test_a_strategy_that_only_observes_is_said_to(explaining):
    policy = "strategies: {anti-affinity: {mode: observe}}\n"
    explanation = explaining.node("n-a", STORY, policy=policy)
    pod = explanation.pod("web-0")
    assert [rule["observed"] for rule in pod["breaks"]] == [True]
    assert pod["plan"]["move"]["outcome"] == "observed"
    assert "which only observes" in explanation.table
    words = " ".join(explanation.table.split())
    assert "; observed: observed now, by the policy or its windows" in words


def test_where_no_plan_is_executed_it_says_why(explaining):
    far = [node(f"n-{i}", "a", ready=False) for i in range(5)]
    explanation = explaining.node("n-a", [*STORY, *far])
    assert explanation.report.standstill
    assert "Standing still: " in explanation.table
    assert explanation.pod("web-0")["plan"]["move"]["outcome"] == "not-attempted"


def test_what_becomes_of_a_node_where_nodes_are_emptied(explaining):
    objects = [
        *(node(f"n{i}") for i in range(3)),
        *workload("web", ["n0", "n0", "n1"], cpu="500m"),
        *workload("one", ["n2"]),
    ]
    policy = "steer: marks\nstrategies: {consolidation: {}}\n"
    kept = explaining.node("n2", objects, policy=policy)
    assert "  emptying PodStays: default/one-0: singleReplica" in kept.table
    assert kept.data["emptying"]["code"] == "PodStays"
    for text in (as_table(kept.report), as_markdown(kept.report).replace("\\", "")):
        assert "onsolidation: nodes with pods 3 -> 1; at least 1 needed" in text
        assert "to empty 2 nodes" in text
    assert "pods on 3 nodes, at least 1 needed" in "".join(as_html(kept.report))
    gone = explaining.node("n1", objects, policy=policy)
    assert gone.data["emptying"]["code"] == "Emptied"
    assert explaining.node("n1", objects).data["emptying"] is None
