"""One control plane with one real node and two simulated ones, for all node tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane, Options
from tests.node import images
from tests.node.ground import Ground

_HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: they need root, containerd and Go."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build the images once."""
    folder = tmp_path_factory.mktemp("images")
    return [images.write_rebalancer(folder), images.write_pause(folder)]


@pytest.fixture(scope="session")
def ground(archives: list[Path]) -> Iterator[Ground]:
    """Start a control plane, and the node beside it; where that cannot be, say why and fail."""
    # KWOK plays the annotated nodes only; the real one is the kubelet's.
    with ControlPlane(Options(managed_nodes="annotated")) as plane, Ground(plane) as made:
        for archive in archives:
            made.node.load(archive)
        yield made
