"""A control plane with one real node of its own: these tests wait for a schedule of two minutes."""

import pytest

from tests.controlplane import audit
from tests.node.ground import started

_EVICTIONS = audit.policy({"resources": [{"group": "", "resources": ["pods/eviction"]}]})


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder: they need what the node tests need, and much time."""
    item.add_marker(pytest.mark.ticks)


@pytest.fixture(scope="session")
def ground(tmp_path_factory):
    """Start them; where that cannot be, say why and fail."""
    with started(tmp_path_factory.mktemp("images"), _EVICTIONS) as made:
        yield made
