"""One real control plane for the whole session, and an empty one for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane, Options, audit

_LAST = "test_installed_rights.py"
"""It looks back at what the runs of all other tests have asked of the server."""
_RUNS = audit.policy(
    {
        "userGroups": [
            "system:serviceaccounts:default",
            "system:serviceaccounts:rebalancing",
        ]
    }
)
_HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, so that runs without a control plane can leave them out; order them."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: item.path.name == _LAST)


@pytest.fixture(scope="session")
def control_plane(kubernetes: str) -> Iterator[ControlPlane]:
    """Start a control plane once; where there can be none, every test fails and says why."""
    with ControlPlane(Options(version=kubernetes, audit_policy=_RUNS)) as plane:
        yield plane


@pytest.fixture(scope="session")
def all_runs(control_plane: ControlPlane) -> audit.AuditLog:
    """Return all that ServiceAccounts have asked of the server since it was started."""
    return audit.AuditLog(control_plane.audit_log, whole=True)


@pytest.fixture
def cluster(control_plane: ControlPlane) -> ControlPlane:
    """Return the session's control plane, emptied: no nodes, no workloads, no budgets."""
    # Before the test rather than after it: what a failed test left can still be looked at.
    control_plane.reset()
    return control_plane
