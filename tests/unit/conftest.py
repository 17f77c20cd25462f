"""One scripted API server per test, for all packages that talk to one."""

from collections.abc import Iterator

import pytest

from tests.unit.kube.scripted import ScriptedServer, Sleeps


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()
