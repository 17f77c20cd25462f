"""One control plane with Cluster API for all tests of the folder; each makes groups of its own and takes them away."""

import pytest

from tests.capi import infrastructure, manager
from tests.capi.ground import Ground
from tests.controlplane import ControlPlane, Options


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder, so that other runs leave them out."""
    item.add_marker(pytest.mark.capi)


@pytest.fixture(scope="session")
def made(kubernetes, tmp_path_factory):
    """Start everything once."""
    folder = tmp_path_factory.mktemp("capi")
    with (
        ControlPlane(Options(version=kubernetes, managed_nodes="annotated")) as plane,
        manager.running(plane, folder) as log,
        infrastructure.working(plane) as provider,
    ):
        yield Ground(plane, provider, log)


@pytest.fixture
def ground(made):
    """Return it without groups and workloads."""
    made.clear()
    return made
