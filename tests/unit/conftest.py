"""One scripted API server per test, for all packages that talk to one."""

from functools import partial

import pytest

from rebalancer.kube import transport
from tests.unit.kube.scripted import ScriptedServer, Sleeps


@pytest.fixture
def server():
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def sleeps():
    return Sleeps()


@pytest.fixture
def quick_retries(monkeypatch):
    """Let commands wait milliseconds between the attempts of a request, not half a minute in all."""
    monkeypatch.setattr(transport, "Limits", partial(transport.Limits, first_wait=0.01))
