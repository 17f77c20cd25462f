"""One scripted API server per test."""

import pytest

from tests.unit.kube.scripted import ScriptedServer


@pytest.fixture
def server():
    with ScriptedServer() as running:
        yield running
