"""``explain workload``, on clusters whose answer a person can check."""

import pytest

from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    apart,
    disruption_budget,
    node,
    spread,
    workload,
)

ZONES = [node("n-a", "a"), node("n-b", "b"), node("n-c", "c")]

TABLE = """\
Deployment/shop/web
Dry run with the built-in default policy (mode enforce, eagerness careful)
cluster.json, Kubernetes 1.36, 3 nodes, 4 pods, 2027-01-15T08:00:00Z

  4 wanted, 4 ready; settled

Where its pods are  now  after the plan
  a                   3               2
    n-a               3               2
  b                   1               1
    n-b               1               1
  c                   0               1
    n-c               0               1

Rules: 2, 2 unmet

  duplicates: Deployment/shop/web (4 pods, 3 feasible nodes)
      asks for at most 2 on one node
      now n-a 3, n-b 1: 1 unmet; at least 1 move would fix it
      after the plan most probably n-a 2, n-b 1, n-c 1: holds

  topology-spread: Deployment/shop/web over topology.kubernetes.io/zone (soft)
      asks for at most 1 apart
      now a 3, b 1, c 0: 1 unmet; at least 1 move would fix it
      after the plan most probably a 2, b 1, c 1: holds

PodDisruptionBudgets
  shop/web allows 1 disruption now (4 healthy, 3 desired), over 4 pods of it

May be moved: 4 of 4 pods

The plan moves 1 pod of it

  shop/web-0  n-a (a)
      the plan moves it to n-c (c) in wave 1 (topology-spread, gain 2 soft, cost 1)
      breaks a rule (duplicates, up to 1 soft): Deployment/shop/web (4 pods, 3 feasible nodes): 3 on
        one node, at most 2 needed
      breaks a rule (topology-spread, up to 1 soft): Deployment/shop/web over
        topology.kubernetes.io/zone (soft): a 3, b 1, c 0; asks for at most 1 apart

Break a rule that the moves of others fix: 2 pods
No rule asks for a move: 1 pod
"""


def rule_of(explanation, strategy):
    (rule,) = [rule for rule in explanation.data["rules"] if rule["strategy"] == strategy]
    return rule


def test_a_workload_reads_like_this(explaining):
    on = ["n-a", "n-a", "n-a", "n-b"]
    objects = [
        *ZONES,
        *workload("web", on, namespace="shop", spec=spread("web")),
        disruption_budget("web", "web", allowed=1, namespace="shop", healthy=4),
    ]
    assert explaining.workload("shop/web", objects).table == TABLE


@pytest.mark.parametrize(
    ("on", "standing", "unmet", "after"),
    [
        (["n-a", "n-b", "n-c"], "a 1, b 1, c 1", 0, 0),
        (["n-a", "n-a", "n-b"], "a 2, b 1, c 0", 1, 0),
        # Six pods in one zone: four have to go. 10 % of an owner's pods, at least one, at a time.
        (["n-a"] * 6, "a 6, b 0, c 0", 4, 0),
    ],
)
def test_a_rule_says_how_it_stands_and_the_fewest_moves_that_fix_it(
    explaining, on, standing, unmet, after
):
    explanation = explaining.workload("web", [*ZONES, *workload("web", on, spec=spread("web"))])
    rule = rule_of(explanation, "topology-spread")
    assert (rule["entry"], rule["wants"]) == ("soft", "at most 1 apart")
    assert rule["now"] == {"standing": standing, "unmet": unmet, "unsatisfiable": None}
    assert (rule["leastMoves"], rule["after"]["unmet"]) == (unmet, after)


def test_a_rule_that_holds_is_reported_even_where_all_is_well(explaining):
    explanation = explaining.workload("web", [*ZONES, *workload("web", ["n-a", "n-b"])])
    rule = rule_of(explanation, "duplicates")
    assert rule["rule"] == "Deployment/default/web (2 pods, 3 feasible nodes)"
    assert (rule["wants"], rule["now"]["standing"], rule["now"]["unmet"]) == (
        "at most 1 on one node",
        "n-a 1, n-b 1",
        0,
    )


def test_what_cannot_hold_names_the_constraint_and_the_cause(explaining):
    nodes = [node("n-a", "a"), node("n-b", "b", unschedulable=True)]
    web = workload("web", ["n-a"] * 3, spec=spread("web", hard=True))
    explanation = explaining.workload("web", [*nodes, *web])
    rule = rule_of(explanation, "topology-spread")
    assert (rule["entry"], rule["now"]["unmet"]) == ("hard", 0)
    text = "a 3, b 0, maxSkew 1: no node of b takes another of its pods"
    assert rule["now"]["unsatisfiable"].endswith(text)
    assert "Rules: 2, 0 unmet, 1 cannot hold" in explanation.table
    assert f"      cannot hold: {text}\n" in explanation.table


@pytest.mark.parametrize("ref", ["web", "db"])
@pytest.mark.parametrize(("weight", "entry"), [(None, "hard"), (50, "soft")])
def test_two_workloads_apart_are_reported_from_either_side(explaining, ref, weight, entry):
    objects = [
        *ZONES,
        *workload("web", ["n-a", "n-b"], spec=apart("db", weight=weight)),
        *workload("db", ["n-a", "n-c"]),
    ]
    rule = rule_of(explaining.workload(ref, objects), "anti-affinity")
    assert (rule["entry"], rule["wants"]) == (entry, "none beside one that it repels")
    assert rule["now"]["standing"] == "a 1 beside 1 that they repel"
    assert rule["weight"] == (1 if weight is None else 0.5)


def test_a_workload_apart_from_itself_wants_one_in_a_domain(explaining):
    web = workload("web", ["n-a", "n-a"], spec=apart("web", HOSTNAME))
    rule = rule_of(explaining.workload("web", [*ZONES, *web]), "anti-affinity")
    assert (rule["wants"], rule["now"]["standing"]) == ("at most 1 in a domain", "n-a 2")
    assert (rule["leastMoves"], rule["after"]["unmet"]) == (1, 0)


def test_more_pods_than_domains_that_repel_each_other_cannot_all_be_apart(explaining):
    web = workload("web", ["n-a", "n-b", "n-b"], spec=apart("web", ZONE))
    explanation = explaining.workload("web", [*ZONES[:2], *web])
    rule = rule_of(explanation, "anti-affinity")
    assert rule["now"]["unsatisfiable"].endswith("3 pods, 2 domains: 1 must share")
    assert rule["now"]["unmet"] == 0


def test_pods_on_nodes_that_do_not_suit_them_are_reported(explaining):
    wanted = {"nodeSelector": {"disk": "ssd"}}
    nodes = [node("n-a"), node("n-s", labels={"disk": "ssd"})]
    web = workload("web", ["n-a", "n-s"], spec=wanted)
    rule = rule_of(explaining.workload("web", [*nodes, *web]), "node-affinity")
    assert rule["now"] == {
        "standing": "1 of 2 not: its nodeSelector or required affinity excludes n-a",
        "unmet": 1,
        "unsatisfiable": None,
    }
    assert rule["after"]["standing"] == "all on nodes that suit them"


def test_required_affinity_is_reported_as_kept(explaining):
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}
    beside = {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    objects = [
        *ZONES,
        *workload("web", ["n-a", "n-b"], spec=beside),
        *workload("cache", ["n-a", "n-c"]),
    ]
    explanation = explaining.workload("web", objects)
    rule = rule_of(explanation, None)
    assert (rule["rule"], rule["wants"], rule["now"]["standing"]) == (
        f"required affinity over {ZONE}",
        "each beside one that it matches",
        "1 without a match",
    )
    assert f"kept by every move: required affinity over {ZONE}" in explanation.table
    assert "would fix it" not in explanation.table


def test_pods_without_a_node_and_on_their_way_out_are_counted_apart(explaining):
    web = workload("web", ["n-a", "n-b", "", "n-c"])
    web[-1]["metadata"]["deletionTimestamp"] = "2027-01-15T07:59:50Z"
    explanation = explaining.workload("web", [*ZONES, *web])
    assert (explanation.data["waiting"], explanation.data["terminating"]) == (1, 1)
    assert [(zone["zone"], zone["pods"]) for zone in explanation.data["zones"]] == [
        ("a", 1),
        ("b", 1),
        ("c", 0),
    ]
    assert "Without a node, or terminating: 2 pods" in explanation.table


def test_what_makes_it_rest_is_reported(explaining):
    web = workload("web", ["n-a", "n-a"])
    for item in web[:2]:
        item["status"]["updatedReplicas"] = 1
        item["status"]["readyReplicas"] = 1
    web[-1]["status"]["conditions"][0]["status"] = "False"
    explanation = explaining.workload("web", [*ZONES, *web])
    assert explanation.data["unsettled"] == "rollout: 1 of 2 updated"
    assert "not settled: rollout: 1 of 2 updated" in explanation.table
    message = "2 pods not, ownerUnsettled: Deployment/default/web: rollout: 1 of 2 updated"
    assert message in explanation.table
    assert {pod["plan"]["code"] for pod in explanation.data["pods"]} == {"Protected"}


def test_a_cool_down_is_reported_with_its_end(explaining):
    cooling = {"Deployment/default/web": "duplicates/soft cools down until 12:00: it came back"}
    explanation = explaining.workload(
        "web", [*ZONES, *workload("web", ["n-a", "n-a"])], cooling=cooling
    )
    assert [
        protection["protection"] for protection in explanation.data["pods"][0]["forbiddenBy"]
    ] == ["coolDown"]
    assert "coolDown: duplicates/soft cools down until 12:00: it came back" in explanation.table


def test_what_stays_is_grouped_by_its_reason(explaining):
    web = workload("web", ["n-a"] * 4, spec=spread("web"))
    budget = disruption_budget("web", "web", allowed=0, healthy=4)
    explanation = explaining.workload("web", [*ZONES, *web, budget])
    assert explanation.report.plan.moves == ()
    assert "May be moved: 0 of 4 pods" in explanation.table
    assert "A rule asks for a move, but they stay: 4 pods" in explanation.table
    assert explanation.table.count("PodDisruptionBudget: default/web allows no disruption") == 2


@pytest.mark.parametrize(
    ("shut", "counted", "says"),
    [
        (False, 2, "allows 2 disruptions now (4 healthy, 2 desired), over 4 pods of it\n"),
        (True, 1, "of it; 1 of these outside of closed zone c, whose pods may not serve"),
    ],
)
def test_of_a_budget_it_says_what_runs_count_while_a_zone_is_closed(
    explaining, shut, counted, says
):
    nodes = [*ZONES[:2], node("n-c", "c", unschedulable=shut)]
    web = workload("web", ["n-a", "n-a", "n-b", "n-c"])
    budget = disruption_budget("web", "web", allowed=2, healthy=4)
    explanation = explaining.workload("web", [*nodes, *web, budget])
    (of,) = explanation.data["budgets"]
    assert (of["allowed"], of["allowedInOpenZones"]) == (2, counted)
    assert says.rstrip() in " ".join(explanation.table.split())


def test_a_workload_whose_pods_no_strategy_counts_has_no_rules(explaining):
    one = workload("one", ["n-a"], kind="ReplicaSet")
    explanation = explaining.workload("one", [*ZONES, *one], policy="strategies: {taints: {}}\n")
    assert explanation.data["rules"] == []
    assert "Rules: none of the policy's strategies counts its pods." in explanation.table
    assert "PodDisruptionBudgets: none selects its pods." in explanation.table


def test_long_lists_are_cut_in_the_table_and_whole_in_the_json(explaining):
    nodes = [node(f"n-{i:02}", "abc"[i % 3]) for i in range(40)]
    web = workload("web", [f"n-{i:02}" for i in range(40)])
    explanation = explaining.workload("web", [*nodes, *web])
    assert len(explanation.data["nodes"]) == 40
    assert "    ... and 28 more (-o json shows all)" in explanation.table
