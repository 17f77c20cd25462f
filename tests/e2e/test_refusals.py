"""What the cluster or the user gets wrong ends with a message, an exit code, and nothing evicted."""

import pytest

from rebalancer.kube.access import ACT_RULES, EVENT_RULES, READ_RULES
from tests.controlplane import drift, objects, operations
from tests.e2e.product import RUN_RULES, Product, grant, rebalancer

# Every account may read /version and ask about its own rights by the default ClusterRoles.
DEFAULTED = [rule for rule in RUN_RULES if rule.resource.startswith("/")]
SHOWN = [
    rule for rule in RUN_RULES if rule.resource in {"pods", "poddisruptionbudgets", "pods/eviction"}
]
"""Reading what every run reads, reading what limits it, and acting."""


def names(plane):
    return sorted(
        pod["metadata"]["name"] for pod in operations.pods(plane.api, selector="app=nginx")
    )


@pytest.mark.parametrize(
    "missing",
    [
        rule if rule in SHOWN else pytest.param(rule, marks=pytest.mark.long)
        for rule in (*READ_RULES, *ACT_RULES)
        if rule not in DEFAULTED
    ],
    ids=str,
)
def test_each_missing_right_is_named_and_nothing_is_evicted(cluster, tmp_path, missing):
    drift.article(cluster)
    before = names(cluster)
    product = Product(cluster, tmp_path)
    grant(cluster, [rule for rule in RUN_RULES if rule != missing])
    done = product.run()
    assert done.code == 3, done.err
    assert missing.verb in done.err
    assert missing.resource in done.err
    assert "Traceback" not in done.err
    assert names(cluster) == before


def test_without_the_right_to_write_events_it_still_runs_and_warns(cluster, tmp_path):
    drift.article(cluster)
    product = Product(cluster, tmp_path)
    grant(cluster, [rule for rule in RUN_RULES if rule not in EVENT_RULES])
    done = product.run()
    assert done.code == 0, done.err
    assert len(done.evicted) == 1
    assert any("events" in warning for warning in done.report["warnings"])


def test_an_expired_token_is_said_to_be_one(cluster, tmp_path):
    drift.article(cluster)
    product = Product(cluster, tmp_path)
    product.kubeconfig = cluster.kubeconfig_for_service_account(
        "default", "rebalancer", expiration_seconds=-60
    )
    done = product.run()
    assert done.code == 3
    assert "Unauthorized" in done.err or "credentials" in done.err
    assert "Traceback" not in done.err


def test_an_empty_cluster_has_nothing_to_do(cluster, tmp_path):
    done = Product(cluster, tmp_path).run()
    assert done.code == 0, done.err
    assert done.report["moves"] == []


def test_a_cluster_with_only_tainted_nodes_has_nothing_to_do(cluster, tmp_path):
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    cluster.apply([objects.node("n-0", zone="zone-a", taints=[taint])])
    operations_ready(cluster)
    cluster.apply([objects.deployment("nginx", 2, labels={"app": "nginx"})])
    done = Product(cluster, tmp_path).run()
    assert done.code == 0, done.err
    assert done.report["moves"] == []


def operations_ready(plane):
    def ready():
        return any(operations.is_ready(node) for node in plane.api.list_all("/api/v1/nodes"))

    plane.wait_until(ready, 30, "a node to be Ready")


def test_an_unreachable_server_is_named(tmp_path, cluster):
    product = Product(cluster, tmp_path)
    text = product.kubeconfig.read_text().replace(cluster.url, "https://127.0.0.1:1")
    (tmp_path / "elsewhere").write_text(text)
    flags = (f"--policy={product.policy}", f"--kubeconfig={tmp_path / 'elsewhere'}")
    done = rebalancer("run", "--yes", *flags)
    assert done.code == 3
    assert "127.0.0.1:1" in done.err
    assert "Traceback" not in done.err
