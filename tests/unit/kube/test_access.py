"""Which cluster it is."""

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.access import read_cluster_uid
from rebalancer.kube.client import connect
from rebalancer.testing.objects import EmbeddedCluster
from tests.unit.kube.scripted import Say, client_of

PATH = "/api/v1/namespaces"


def listed(*namespaces):
    items = [{"metadata": {"name": name, "uid": uid}} for name, uid in namespaces]
    return {"metadata": {"resourceVersion": "7"}, "items": items}


def test_the_uid_of_the_system_namespace_is_read():
    with EmbeddedCluster() as cluster:
        uid = cluster.get("Namespace", "kube-system")["metadata"]["uid"]
        assert uid
        assert read_cluster_uid(connect(kubeconfig=cluster.kubeconfig, environ={})) == uid


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({}, "the list of namespaces"),
        ({**listed(), "items": None}, "no namespace kube-system"),
        (listed(), "no namespace kube-system"),
        (listed(("default", "u1")), "no namespace kube-system"),
        (listed(("kube-system", "")), "no namespace kube-system"),
    ],
    ids=str,
)
def test_an_answer_without_it_is_an_error(server, tmp_path, answer, error):
    server.on("GET", PATH, Say(answer))
    with pytest.raises(ClusterReadError, match=error):
        read_cluster_uid(client_of(server.url, tmp_path))


def test_a_server_that_ignores_the_selector_is_understood(server, tmp_path):
    server.on("GET", PATH, Say(listed(("a", "u1"), ("kube-system", "u2"))))
    assert read_cluster_uid(client_of(server.url, tmp_path)) == "u2"
