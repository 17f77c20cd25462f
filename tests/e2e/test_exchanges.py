"""Exchanges on a real scheduler: two pods of full nodes change places, and the cluster is at rest."""

import json
from collections import Counter
from typing import Any

import pytest

from rebalancer.kube.access import MARK_RULES
from tests.controlplane import objects, operations
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.test_marks import marks, standing

RULES = (*RUN_RULES, *MARK_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: {steer}
budgets: {{perHour: 100%}}
protect: {{minPodAge: 0s}}
strategies: {{topology-spread: {{}}}}
"""


def apps(**keys):
    """A ReplicaSet of two pods for each name, with a hard constraint over its key; all stand on the node of that name already."""
    for name, (key, place) in keys.items():
        rule = objects.spread({"app": name}, key)
        if key != objects.ZONE:
            rule["whenUnsatisfiable"] = "ScheduleAnyway"
        more: dict[str, Any] = {
            "labels": {"app": name},
            "cpu": "2",
            "topologySpreadConstraints": [rule],
        }
        for number in range(2):
            yield objects.pod(f"{name}-{number}", nodeName=place, **more)
        yield objects.replicaset(name, 2, **more)


@pytest.fixture
def product(cluster, tmp_path):
    """The command with a policy that steers or does not."""

    def run(verb, *more, steer="off"):
        path = tmp_path / f"{steer}.yaml"
        path.write_text(POLICY.format(steer=steer))
        flags = f"--policy={path}", f"--kubeconfig={kubeconfig}", "--output=json"
        ran = rebalancer(verb, *flags, *more)
        assert ran.code == 0, ran.err
        return ran

    kubeconfig = grant(cluster, RULES)
    return run


def fill(cluster, west_cpu, bar_key):
    cluster.apply(
        [objects.node("east", zone="a", cpu="4"), objects.node("west", zone="b", cpu=west_cpu)]
    )
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply(list(apps(foo=(objects.ZONE, "east"), bar=(bar_key, "west"))))
    operations.wait_pods_ready(cluster.api, 4, 60)


def zones(cluster):
    return [
        {place: standing(cluster, f"app={name}")[place] for place in ("east", "west")}
        for name in ("foo", "bar")
    ]


def test_two_pods_that_hard_rules_keep_from_their_nodes_change_places(cluster, product):
    fill(cluster, "4", objects.ZONE)
    ran = product("run", "--yes")
    assert {(move["from"], move["landed"], move["predicted"]) for move in ran.evicted} == {
        ("east", "west", True),
        ("west", "east", True),
    }
    operations.wait_pods_ready(cluster.api, 4, 60)
    assert zones(cluster) == [{"east": 1, "west": 1}] * 2
    assert product("run", "--yes").report["moves"] == []


def test_the_second_takes_the_only_place_there_is_while_it_terminates(cluster, product):
    """No rule keeps bar from the west, which is as good as the east once its pod is gone."""
    fill(cluster, "4", "rack")
    ran = product("run", "--yes")
    assert Counter(move["landed"] for move in ran.evicted) == {"east": 1, "west": 1}
    operations.wait_pods_ready(cluster.api, 4, 60)
    assert zones(cluster) == [{"east": 1, "west": 1}] * 2
    assert product("run", "--yes").report["moves"] == []


def test_a_mark_keeps_the_second_from_going_back_where_no_rule_does(cluster, product):
    """The west is the emptier node, once the pod of bar is gone: by itself it would land there again."""
    fill(cluster, "5", "rack")
    assert product("run", "--yes").report["moves"] == []
    ran = product("run", "--yes", steer="marks")
    assert Counter(move["landed"] for move in ran.evicted) == {"east": 1, "west": 1}
    assert [move["marks"] for move in ran.evicted] == [["west"], ["west"]]
    operations.wait_pods_ready(cluster.api, 4, 60)
    assert zones(cluster) == [{"east": 1, "west": 1}] * 2
    assert marks(cluster) == {}
    assert product("run", "--yes", steer="marks").report["moves"] == []


def test_a_reviewed_plan_makes_the_exchange_or_none_of_it(cluster, product, tmp_path):
    fill(cluster, "4", objects.ZONE)
    file = tmp_path / "plan.json"
    product("plan", f"--out={file}")
    planned = json.loads(file.read_text())["moves"]
    assert {move["makesWayFor"] for move in planned} == {move["uid"] for move in planned}
    budget = objects.pdb("all", {"app": "bar"}, minAvailable=2)
    cluster.apply([budget])
    assert product("apply", str(file), "--yes").evicted == []
    cluster.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/all")
    assert len(product("apply", str(file), "--yes").evicted) == 2
    operations.wait_pods_ready(cluster.api, 4, 60)
    assert zones(cluster) == [{"east": 1, "west": 1}] * 2
