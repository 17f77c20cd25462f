"""The embedded cluster as the ground of the contract."""

import time
from pathlib import Path

import pytest

from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import TOKEN, EmbeddedCluster
from rebalancer.embedded.engine import Durations
from tests.contract.ground import Ground
from tests.controlplane import ApiClient

# Quicker still than the kubelets that are played on the real control plane.
_TIMINGS = Durations(start_up=0.1, shutdown=1.0, node_start_up=0.05, job=1.0, job_backoff=1.5)
_NO_CA = Path("unused")


@pytest.fixture
def ground():
    """Return an embedded cluster that lives in its own thread, as the demo's does."""
    with EmbeddedCluster(EmbeddedClock(time.time(), time.time), timings=_TIMINGS) as cluster:
        api = ApiClient(cluster.url, _NO_CA, TOKEN)
        stranger = ApiClient(cluster.url, _NO_CA, None)
        yield Ground(api, stranger, str(cluster.kubeconfig))
        api.close()
        stranger.close()
