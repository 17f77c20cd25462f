"""What Karpenter takes, ours leaves to it; what Karpenter leaves in place, ours uses, and neither undoes the other."""

import time

from rebalancer.kube.access import CLAIM_RULES
from tests.controlplane import wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.karpenter.manager import ZONES

SPREAD = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies: {topology-spread: {}}
"""
READS_CLAIMS = (*RUN_RULES, *CLAIM_RULES)
QUIET = 45.0
"""Seconds in which Karpenter looks at each node several times."""


def run(policy, kubeconfig, *flags):
    source = ("--snapshot", flags[1]) if flags[:1] == ("--snapshot",) else ()
    given = source or (f"--kubeconfig={kubeconfig}", *flags)
    return rebalancer("run", f"--policy={policy}", "--output=json", *given)


def landings(ran):
    return [landing["node"] for move in ran.report["moves"] for landing in move["landings"][:1]]


def test_nothing_lands_on_a_node_that_is_about_to_go(ground, tmp_path):
    left = ground.drift(after="25s", budgets=[{"nodes": "100%"}])
    ground.scale(f"hold-{ZONES[-1]}", 0)
    policy = tmp_path / "policy.yaml"
    policy.write_text(SPREAD)
    # Whoever may not read NodeClaims does not know it, and says so.
    unaware = run(policy, grant(ground.plane), "--dry-run")
    assert landings(unaware) == [left], unaware.out
    assert "NodeClaims and NodePools could not be read" in unaware.out
    kubeconfig = grant(ground.plane, READS_CLAIMS)
    aware = run(policy, kubeconfig, "--dry-run")
    assert aware.report["moves"] == [], aware.out
    file = tmp_path / "cluster.zip"
    taken = rebalancer("snapshot", f"--kubeconfig={kubeconfig}", "-o", str(file))
    assert taken.code == 0, taken.err
    assert run(policy, None, "--snapshot", str(file)).report["moves"] == []
    explained = rebalancer("explain", "node", left, f"--kubeconfig={kubeconfig}")
    assert "Karpenter may remove it: it is empty" in explained.out
    assert run(policy, kubeconfig, "--yes").evicted == []
    wait_until(lambda: left not in ground.nodes(), 120, "Karpenter has removed it")


def test_a_move_to_a_node_that_stays_is_never_undone(ground, tmp_path):
    left = ground.drift(after="10s")
    policy = tmp_path / "policy.yaml"
    policy.write_text(SPREAD)
    kubeconfig = grant(ground.plane, READS_CLAIMS)
    moved = run(policy, kubeconfig, "--yes")
    assert [one["landed"] for one in moved.evicted] == [left], moved.out
    ground.settle()
    pods = ground.zones_of("web")
    assert pods == list(ZONES)
    until = time.monotonic() + QUIET
    while time.monotonic() < until:
        assert left in ground.nodes()
        time.sleep(1)
    assert ground.zones_of("web") == pods
    assert run(policy, kubeconfig, "--yes").evicted == []
