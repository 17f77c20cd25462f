"""An empty list may be ``null``: API servers write it so for metadata, and proxies for anything."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.doctor.server import list_cron_jobs
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import find_memory, list_memories
from rebalancer.kube.events import list_move_events
from rebalancer.kube.evict import read_disruptions_allowed
from rebalancer.kube.eviction_requests import list_requests
from rebalancer.kube.node_pods import read_node_pods
from rebalancer.kube.seldom_read import list_attachments, list_namespace_policies
from tests.unit.kube.scripted import Say, client_of


def _pods_on(client, node):
    read = read_node_pods(client, [node], clock=lambda: 0.0, version=(1, 36))
    return len(read.living.pods)


READERS: dict[str, tuple[Callable[[Client], Any], Any]] = {
    "ConfigMaps of releases": (list_memories, []),
    "CronJobs": (list_cron_jobs, []),
    "budgets": (lambda client: read_disruptions_allowed(client, "shop/b", seconds=5), None),
    "EvictionRequests": (list_requests, []),
    "events": (lambda client: list_move_events(client, "", "web-1"), []),
    "pods of a node": (lambda client: _pods_on(client, "n0"), 0),
    "attachments": (lambda client: list_attachments(client, "n0"), []),
    "policies of namespaces": (list_namespace_policies, []),
}


@pytest.fixture
def client(server, tmp_path):
    """A client of a server on which every list is empty, and null."""
    server.fallback = lambda _: Say(
        {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": None}
    )
    return client_of(server.url, tmp_path)


@pytest.mark.parametrize("kind", READERS)
def test_no_objects_are_read_from_null(client, kind):
    read, nothing = READERS[kind]
    assert read(client) == nothing


def test_without_a_release_the_search_says_what_it_looked_for(client):
    with pytest.raises(ClusterReadError, match="no release has a memory here"):
        find_memory(client)
