"""Single replicas that move by a restart of their rollout, from the policy to the report, on an embedded cluster."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from rebalancer.embedded.engine import Durations
from rebalancer.kube.evict import RESTARTED_AT
from rebalancer.testing.objects import EmbeddedCluster, deployment, node, pdb
from tests.unit.commands.embedded import ClusterClock, Runner

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
method: {{singleReplicas: {method}}}
protect: {{minPodAge: 0s}}
strategies: {{node-affinity: {{}}}}
"""


def web(**more):
    made = deployment("web", 1, nodeSelector={"pool": "web"})
    made["spec"] |= more
    return made


@contextmanager
def misplaced():
    """One replica of web on n-a, from which the label has gone that web asks for; n-b has it now."""
    with EmbeddedCluster(
        timings=Durations(start_up=0.3, shutdown=0.3, node_start_up=0.05)
    ) as cluster:
        cluster.apply(node("n-a", labels={"pool": "web"}))
        cluster.settle()
        cluster.apply(web())
        cluster.settle()
        cluster.apply(node("n-a", labels={"pool": "other"}))
        cluster.apply(node("n-b", labels={"pool": "web"}))
        cluster.settle()
        yield cluster


def runner(cluster, folder, method="restart"):
    return Runner(cluster, folder, POLICY.format(method=method), clock=ClusterClock(cluster))


def pods(cluster):
    return [
        (p["metadata"]["uid"], p["spec"]["nodeName"]) for p in cluster.objects("Pod", "default")
    ]


def test_a_single_replica_stays_unless_the_policy_says_restart(tmp_path):
    with misplaced() as cluster:
        code, report = runner(cluster, tmp_path, "evict")()
        assert (code, report["moves"]) == (0, [])
        assert [skip["code"] for skip in report["skipped"]] == ["Protected"]


def test_the_new_pod_is_ready_before_the_old_one_goes(tmp_path):
    with misplaced() as cluster:
        cluster.apply(pdb("web", {"app": "web"}, minAvailable=1))
        cluster.settle()
        (before,) = pods(cluster)
        run = runner(cluster, tmp_path)
        _, planned = run(dry_run=True)
        code, report = run()
        (move,), (plan,) = report["moves"], planned["moves"]
        assert (code, move["outcome"], move["method"]) == (0, "restarted", "restart")
        assert (move["landed"], move["predicted"], move["budgets"]) == ("n-b", True, [])
        assert {key: move[key] for key in ("landings", "gain", "reason", "wave")} == {
            key: plan[key] for key in ("landings", "gain", "reason", "wave")
        }
        # The run has waited until the rollout was at its end.
        assert [where for uid, where in pods(cluster) if uid != before[0]] == ["n-b"]
        assert len(pods(cluster)) == 1
        (restarted,) = cluster.objects("Deployment", "default")
        assert RESTARTED_AT in restarted["spec"]["template"]["metadata"]["annotations"]
        assert run()[1]["moves"] == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"strategy": {"type": "Recreate"}}, "its strategy is Recreate"),
        ({"paused": True}, "it is paused"),
        (
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}},
            "its maxSurge is 0",
        ),
    ],
)
def test_what_would_leave_a_gap_stays_and_says_why(tmp_path, more, why):
    with misplaced() as cluster:
        cluster.apply(web(**more))
        cluster.settle()
        code, report = runner(cluster, tmp_path)()
        assert (code, report["moves"]) == (0, [])
        (skip,) = report["skipped"]
        assert skip["code"] == "CannotSurge"
        assert skip["message"].endswith(f"Deployment/default/web: {why}")


def test_a_reviewed_plan_carries_the_method(tmp_path):
    with misplaced() as cluster:
        run = runner(cluster, tmp_path)
        path, plan = run.planned()
        assert [move["method"] for move in plan["moves"]] == ["restart"]
        code, report = run(plan_path=path)
        assert (code, [move["outcome"] for move in report["moves"]]) == (0, ["restarted"])


def test_a_method_that_the_file_says_and_the_policy_does_not_is_dropped(tmp_path):
    with misplaced() as cluster:
        run = runner(cluster, tmp_path)
        path, plan = run.planned()
        del plan["moves"][0]["method"]
        Path(path).write_text(json.dumps(plan))
        _, report = run(plan_path=path)
        (move,) = report["moves"]
        assert move["outcome"] == "dropped"
        assert "planned as evict, it would be restart now" in move["message"]
