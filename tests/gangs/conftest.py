"""One control plane with both controllers for all tests of the folder; each makes groups of its own."""

import pytest

from tests.controlplane import ControlPlane, Options
from tests.gangs import controllers
from tests.gangs.ground import Ground


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder, so that other runs leave them out."""
    item.add_marker(pytest.mark.gangs)


@pytest.fixture(scope="session")
def made(kubernetes, tmp_path_factory):
    """Start everything once; pods take some time to end, as real ones do."""
    folder = tmp_path_factory.mktemp("gangs")
    options = Options(version=kubernetes, pod_grace_cap=3.0)
    with ControlPlane(options) as plane, controllers.running(plane, folder):
        yield Ground(plane)


@pytest.fixture
def ground(made):
    """Return it without nodes and workloads."""
    made.clear()
    return made
