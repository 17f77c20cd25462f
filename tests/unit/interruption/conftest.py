"""A cluster with one node."""

import pytest

from rebalancer.embedded.cluster import EmbeddedCluster


@pytest.fixture
def cluster():
    with EmbeddedCluster() as made:
        made.add_node("n-a", "a")
        made.settle()
        yield made
