"""The contract, kept by a real control plane: what the embedded cluster is measured against."""

import pytest

from tests.contract.api_rules import *  # noqa: F403 - every test of the contract
from tests.contract.controller_rules import *  # noqa: F403
from tests.contract.ground import Ground
from tests.contract.placement_rules import *  # noqa: F403
from tests.controlplane import ControlPlane


@pytest.fixture
def ground(cluster: ControlPlane) -> Ground:
    """Return the session's control plane, emptied."""
    return Ground(cluster.api, cluster.client(None), str(cluster.kubeconfig))
