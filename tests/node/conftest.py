"""One control plane with one real node and two simulated ones, for all node tests."""

import pytest

from tests.node.ground import started


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests of this folder: they need root, containerd and Go."""
    item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def ground(tmp_path_factory):
    """Start them; where that cannot be, say why and fail."""
    with started(tmp_path_factory.mktemp("images")) as made:
        yield made
