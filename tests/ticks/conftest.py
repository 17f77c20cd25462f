"""A control plane with one real node of its own: these tests wait for a schedule of two minutes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane, Options, audit
from tests.node import images
from tests.node.ground import Ground

_HERE = Path(__file__).resolve().parent
_EVICTIONS = audit.policy({"resources": [{"group": "", "resources": ["pods/eviction"]}]})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they need what the node tests need, and much time."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.ticks)


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Start it with the product's image; where that cannot be, say why and fail."""
    folder = tmp_path_factory.mktemp("images")
    archives = [images.write_rebalancer(folder), images.write_pause(folder)]
    options = Options(managed_nodes="annotated", audit_policy=_EVICTIONS)
    with ControlPlane(options) as plane, Ground(plane) as made:
        for archive in archives:
            made.node.load(archive)
        yield made
