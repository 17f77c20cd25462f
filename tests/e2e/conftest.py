"""One real control plane for each process of the session, and an empty one for every test."""

import pytest

from tests.controlplane import ControlPlane, Options, audit
from tests.e2e.rights import check_all_runs

_RIGHTS = "test_installed_rights.py"
"""With this file, it is also checked what the runs of all tests have asked of the server."""
_RUNS = audit.policy(
    {"userGroups": ["system:serviceaccounts:default", "system:serviceaccounts:rebalancing"]}
)
_LONGEST = (
    "test_control_plane_contract",
    "test_scheduler_model",
    "test_devices",
    "test_decisions",
    "test_surge",
    "test_emptying_nodes",
    "test_people_on_nodes",
    "test_node_conditions",
    "test_single_replicas",
    "test_installed_kills",
    "test_interruption_kills",
    "test_chart_rendering",
)
"""Files that take minutes: they begin first, or one process would be left alone with them at the end."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder, so that runs without a control plane can leave them out."""
    item.add_marker(pytest.mark.e2e)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest go first."""
    rank = {stem: place for place, stem in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(_LONGEST)))


@pytest.fixture(scope="session")
def control_plane(kubernetes, request, tmp_path_factory):
    """Start a control plane once in each process; where there can be none, every test fails and says why."""
    with ControlPlane(Options(version=kubernetes, audit_policy=_RUNS)) as plane:
        yield plane
        if any(item.path.name == _RIGHTS for item in request.session.items):
            check_all_runs(plane, tmp_path_factory.mktemp("rights"))


@pytest.fixture
def cluster(control_plane):
    """Return the session's control plane, emptied: no nodes, no workloads, no budgets."""
    # Before the test rather than after it: what a failed test left can still be looked at.
    control_plane.reset()
    return control_plane
