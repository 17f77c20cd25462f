"""Commands, on a machine that may be too busy for the seconds that they have at their end."""

import pytest

from rebalancer.base import sending
from rebalancer.kube import client
from rebalancer.machines.drain import draining
from tests.support.worlds import embedded_nodes
from tests.unit.commands.scaling import fill, grounded, tick_until


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let what is said last, and what is sent to others, take as long as it takes here."""
    monkeypatch.setattr(client, "LAST_WORDS", 300.0)
    monkeypatch.setattr(sending, "TIMEOUT", 300.0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    """Let a drain look again soon."""
    monkeypatch.setattr(draining, "_PAUSE", 0.1)


@pytest.fixture
def ground(tmp_path, monkeypatch):
    """A group of two machines, of which n1 is full."""
    with grounded(tmp_path, monkeypatch, 2, low=1) as made:
        fill(made, "n1")
        yield made


@pytest.fixture
def going(ground):
    """The same, with n2 on its way out and empty."""
    assert tick_until(ground, "DrainStarted", "n2")
    return ground


@pytest.fixture
def two():
    """An embedded cluster with two nodes."""
    with embedded_nodes("n1", "n2") as made:
        yield made


@pytest.fixture
def three():
    """An embedded cluster with three nodes."""
    with embedded_nodes("n1", "n2", "n3") as made:
        yield made
