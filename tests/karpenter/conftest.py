"""One control plane with Karpenter for all tests of the folder."""

import pytest

from tests.controlplane import ControlPlane, Options
from tests.karpenter import manager
from tests.karpenter.ground import Ground


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder, so that other runs leave them out."""
    item.add_marker(pytest.mark.karpenter)


@pytest.fixture(scope="session")
def made(kubernetes, tmp_path_factory):
    """Start everything once."""
    folder = tmp_path_factory.mktemp("karpenter")
    options = Options(version=kubernetes)
    with ControlPlane(options) as plane, manager.running(plane, folder):
        yield Ground(plane)


@pytest.fixture
def ground(made):
    """Return it without workloads; afterwards Karpenter takes its nodes away."""
    made.plane.apply([manager.node_class()])
    yield made
    made.clear()
