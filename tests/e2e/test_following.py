"""A run that acts reads the cluster once, and follows it from wave to wave."""

import time
from collections import Counter

import pytest
import yaml

from rebalancer.base.errors import ExitCode
from rebalancer.kube.access import ACT_RULES, FOLLOW_RULES, READ_RULES
from rebalancer.kube.cache import ClusterCache
from rebalancer.kube.client import USER_AGENT, connect
from rebalancer.kube.read import read_cluster
from rebalancer.wire.kinds import LISTED
from tests.controlplane import audit, objects, operations
from tests.e2e import crowd
from tests.e2e.product import NO_WAIT, Product, grant
from tests.same import contents

APPS = 5
POLICY = yaml.safe_dump({**yaml.safe_load(NO_WAIT), **crowd.SLOWLY})
"""One move at a time: as many waves as apps."""


class Deaf:
    """Listens to nothing."""

    def take(self, event, pod):
        pass

    def fail(self, error):
        raise error


def asked(log, verb):
    """How often each resource was asked for with ``verb``."""
    return Counter(
        request.resource
        for request in log.requests()
        if request.agent == USER_AGENT and request.verb == verb and request.code < 400
    )


@pytest.fixture
def product(cluster, tmp_path):
    crowd.gather(cluster, APPS)
    return Product(cluster, tmp_path, POLICY)


def test_each_list_is_read_once_however_many_waves(cluster, product):
    log = audit.AuditLog(cluster.audit_log)
    done = patient(product)
    assert done.code == ExitCode.DONE, done.err
    assert len(done.evicted) == len({move["wave"] for move in done.evicted}) == APPS
    assert crowd.moved(cluster) == APPS
    assert asked(log, "list") == {resource.plural: 1 for resource in LISTED}
    watched = asked(log, "watch")
    assert set(watched) == {resource.plural for resource in LISTED}
    # The server logs a watch when it begins and when it ends; it ends none before five minutes.
    assert max(watched.values()) <= 2
    assert [w for w in done.report["warnings"] if "again" in w] == []


PATIENT = """
import sys
from rebalancer.cli import command
from rebalancer.kube import cache
cache._TIMEOUT = 600.0
sys.exit(command(sys.argv[1:]))
"""


def patient(product):
    """Run the product as one that lists nothing again for hearing of it late, as on a busy machine it is."""
    return product.run(start=("-c", PATIENT))


def test_without_the_right_to_watch_it_lists_again_and_says_so(cluster, product):
    grant(cluster, (*READ_RULES, *ACT_RULES))
    log = audit.AuditLog(cluster.audit_log)
    done = product.run()
    assert done.code == ExitCode.DONE, done.err
    assert len(done.evicted) == APPS
    # At the beginning, between the waves, and once more for the report of what is there afterwards.
    again = {rule.resource: APPS + 1 for rule in FOLLOW_RULES}
    assert asked(log, "list") == {"pods": 1, **again}
    (said,) = [w for w in done.report["warnings"] if "again" in w]
    assert "our account may not watch them" in said
    assert "nodes" in said


def test_a_followed_cluster_is_the_one_that_is_read_again(cluster):
    crowd.gather(cluster, APPS)
    client = connect(kubeconfig=cluster.kubeconfig, environ={})
    kept = read_cluster(client, clock=time.time, keep=True).kept
    assert kept is not None
    assert {listing.content_type for listing in kept.listings} == {
        "application/json",
        "application/vnd.kubernetes.protobuf",
    }
    cache = ClusterCache(client, kept, seconds=1200)
    view = cache.view_first(kept.snapshot, kept.at)
    with view.listen(Deaf()), cache:
        for act in (evict, roll_out, cordon, guard, drain):
            act(cluster)
            same_soon(client, view)
        assert view.notes == ()


def evict(cluster):
    first = min(crowd.pods(cluster).values(), key=lambda pod: pod["metadata"]["name"])
    operations.evict(cluster.api, "default", first["metadata"]["name"])


def roll_out(cluster):
    change = {"spec": {"template": {"metadata": {"annotations": {"release": "2"}}}}}
    cluster.api.patch("/apis/apps/v1/namespaces/default/deployments/app-01", change)


def cordon(cluster):
    operations.cordon(cluster.api, ["crowd-a"])


def guard(cluster):
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    cluster.api.patch(f"{path}/app-02", {"spec": {"minAvailable": 1}})
    cluster.api.delete(f"{path}/app-03")
    cluster.apply([objects.deployment("alone", 2, labels={"app": "alone"})])


def drain(cluster):
    operations.remove_node(cluster.api, "crowd-a")


def same_soon(client, view):
    """What happens arrives within a moment; kubelets and controllers go on meanwhile."""
    until = time.monotonic() + 240
    while True:
        seen = contents(view.snapshot(()))
        wanted = contents(read_cluster(client, clock=time.time).snapshot)
        if seen == wanted:
            return
        assert time.monotonic() < until, [key for key in seen if seen[key] != wanted[key]]
        time.sleep(0.2)
