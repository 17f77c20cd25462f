"""A cluster with one node."""

import pytest

from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations


@pytest.fixture
def cluster():
    with EmbeddedCluster(timings=Durations(start_up=0.01, node_start_up=0.01)) as made:
        made.add_node("n-a", "a")
        made.settle()
        yield made
