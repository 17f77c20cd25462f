"""Embedded clusters whose time stands still until a test moves it."""

import pytest

from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster

START = 1_800_000_000.0


@pytest.fixture
def cluster():
    """Return an empty cluster at a fixed time."""
    with EmbeddedCluster(EmbeddedClock(START)) as made:
        yield made


@pytest.fixture
def three(cluster):
    """Return a cluster with one node in each of three zones."""
    for zone in "abc":
        cluster.add_node(f"node-{zone}", f"zone-{zone}")
    cluster.settle()
    return cluster
