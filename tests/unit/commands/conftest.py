"""Commands, on a machine that may be too busy for the seconds that they have at their end."""

import pytest

from rebalancer.base import sending
from rebalancer.kube import client


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let what is said last, and what is sent to others, take as long as it takes here."""
    monkeypatch.setattr(client, "LAST_WORDS", 300.0)
    monkeypatch.setattr(sending, "TIMEOUT", 300.0)
