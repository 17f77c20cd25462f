"""Single replicas on a real control plane: the rollout is restarted, and the replica is Ready all the while."""

import pytest

from rebalancer.kube.client import connect
from rebalancer.kube.evict import RESTART_RULES, RESTARTED_AT, AnswerKind, Restart
from tests.controlplane import audit, objects, operations
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.ready import ready_pods

RULES = (*RUN_RULES, *RESTART_RULES)
POLICY = """
apiVersion: rebalancer/v1
kind: Policy
method: {singleReplicas: restart}
protect: {minPodAge: 0s}
strategies: {node-affinity: {}}
"""
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
POOL = {"nodeSelector": {"pool": "web"}}


@pytest.fixture
def misplaced(cluster):
    """One replica on node a, from which the label has gone that it asks for; b has it."""
    cluster.apply([objects.node("a", labels={"pool": "web"}), objects.node("b")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 1, labels={"app": "web"}, **POOL)])
    operations.wait_pods_ready(cluster.api, 1, 60, selector="app=web")
    for name, pool in (("a", None), ("b", "web")):
        cluster.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"pool": pool}}})
    return cluster


@pytest.fixture
def run(misplaced, tmp_path):
    kubeconfig = grant(misplaced, RULES)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    flags = (f"--policy={policy}", f"--kubeconfig={kubeconfig}", "--output=json", "--yes")
    return lambda *more: rebalancer("run", *flags, *more)


def nodes_of(plane):
    return [p["spec"]["nodeName"] for p in operations.pods(plane.api, selector="app=web")]


def test_a_single_replica_is_ready_all_the_while_it_moves(misplaced, run):
    misplaced.apply([objects.pdb("web", {"app": "web"}, minAvailable=1)])
    log = audit.AuditLog(misplaced.audit_log)
    with ready_pods(misplaced.api) as seen:
        ran = run()
    assert ran.code == 0, ran.err
    (move,) = ran.report["moves"]
    assert (move["outcome"], move["landed"], move["predicted"]) == ("restarted", "b", True)
    # The run has waited for the old pod to be gone.
    assert nodes_of(misplaced) == ["b"]
    assert seen.events > 2
    assert seen.least == {"web": 1}
    again = run()
    assert (again.code, again.report["moves"]) == (0, [])
    asked = [one for one in log.requests() if one.user.endswith(":rebalancer")]
    writes = [one for one in asked if one.verb not in ("get", "list", "watch")]
    of_moves = [one for one in writes if one.resource.partition("/")[0] in ("deployments", "pods")]
    assert [(*one.kind, one.name) for one in of_moves] == [("patch", "apps", "deployments", "web")]
    # Each right that the chart adds for the method is one that a run uses.
    assert {(rule.verb, rule.group, rule.resource) for rule in RESTART_RULES} <= {
        one.kind for one in asked
    }


def test_an_edit_at_the_same_moment_stands(misplaced, tmp_path):
    kubeconfig = grant(misplaced, RULES)
    (pod,) = operations.pods(misplaced.api, selector="app=web")
    web = misplaced.api.get(f"{DEPLOYMENTS}/web")

    class Overtaken(Restart):
        """Another client scales the Deployment between the read and the patch."""

        def _patch(self, deployment):
            misplaced.api.patch(f"{DEPLOYMENTS}/web", {"spec": {"replicas": 2}})
            return super()._patch(deployment)

    client = connect(kubeconfig=kubeconfig, environ={})
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    of = (client, "default", name, uid, web["metadata"]["uid"], "2026-11-22T12:00:00Z", 10.0)
    assert Overtaken(*of).ask().kind is AnswerKind.CHANGED
    after = misplaced.api.get(f"{DEPLOYMENTS}/web")
    assert after["spec"]["replicas"] == 2
    assert RESTARTED_AT not in after["spec"]["template"]["metadata"].get("annotations", {})
    # As it is now, it is no single replica any more.
    answer = Restart(*of).ask()
    assert answer.kind is AnswerKind.DROPPED
    assert "it has 2 replicas now" in answer.message
    client.close()
