"""One real control plane for the whole session, and an empty one for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane

_HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, so that runs without a control plane can leave them out."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Start a control plane once; where there can be none, every test fails and says why."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """Return the session's control plane, emptied: no nodes, no workloads, no budgets."""
    # Before the test rather than after it: what a failed test left can still be looked at.
    control_plane.reset()
    return control_plane
