"""Commands, on a machine that may be too busy for the seconds that they have at their end."""

import pytest

from rebalancer.base import sending
from rebalancer.kube import client
from rebalancer.machines.drain import draining


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let what is said last, and what is sent to others, take as long as it takes here."""
    monkeypatch.setattr(client, "LAST_WORDS", 300.0)
    monkeypatch.setattr(sending, "TIMEOUT", 300.0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    """Let a drain look again soon."""
    monkeypatch.setattr(draining, "_PAUSE", 0.1)
