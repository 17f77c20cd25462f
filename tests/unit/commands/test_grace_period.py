"""The grace period of evictions: the policy's where it names one, else the pod's own."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.embedded.engine import Durations
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.testing.objects import EmbeddedCluster, deployment
from tests.unit.commands.embedded import ClusterClock, Runner

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {{minPodAge: 0s}}
method: {method}
strategies: {{duplicates: {{}}}}
"""
# Their processes take longer to end than any test: what was evicted is still there to be looked at.
SLOW = Durations(start_up=0.05, shutdown=3600.0, node_start_up=0.05)


@pytest.mark.parametrize(("method", "seconds"), [("{}", 1200), ("{gracePeriod: 15m}", 900)])
def test_an_evicted_pod_has_the_grace_period_of_the_policy(tmp_path, method, seconds):
    with EmbeddedCluster(timings=SLOW) as cluster:
        cluster.add_node("n-a", "a")
        cluster.settle()
        cluster.apply(deployment("web", 2, terminationGracePeriodSeconds=1200))
        cluster.settle()
        cluster.add_node("n-b", "b")
        cluster.settle()
        run = Runner(cluster, tmp_path, POLICY.format(method=method), clock=ClusterClock(cluster))
        code, report = run()
        assert (code, [move["outcome"] for move in report["moves"]]) == (0, ["evicted"])
        going = [
            pod["metadata"]["deletionGracePeriodSeconds"]
            for pod in cluster.objects("Pod", "default")
            if "deletionTimestamp" in pod["metadata"]
        ]
        assert going == [seconds]


@pytest.mark.parametrize("span", ["0s", "0.5s", "1.5s", "367d"])
def test_a_grace_period_is_whole_seconds_and_at_least_one(span):
    text = POLICY.format(method=f"{{gracePeriod: {span}}}")
    with pytest.raises(PolicyError, match="gracePeriod"):
        load_text(text.encode(), "policy", Registry.installed())
