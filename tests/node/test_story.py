"""The story, played by the real image, in the real pod of the real CronJob, on a real node."""

from collections.abc import Iterator

import pytest

from tests.controlplane import wait_until
from tests.node.ground import Ground
from tests.node.node import NAME


@pytest.fixture
def drifted(ground: Ground) -> Iterator[Ground]:
    ground.drift()
    yield ground
    ground.clear()


def test_the_cron_job_fixes_twice_in_a_row_and_then_is_silent(drifted):
    assert sorted(drifted.zones().values()) == [1, 2]
    drifted.release().install(drifted.values())

    first = wait_until(drifted.finished, 120, "the first run ended")[0]
    log = drifted.log(first)
    assert first["status"]["phase"] == "Succeeded", log
    assert first["spec"]["nodeName"] == NAME
    assert dict(drifted.zones()) == {f"simulated-{zone}": 1 for zone in "abc"}, log

    second = wait_until(lambda: drifted.finished()[1:], 120, "the second run ended")[0]
    assert second["status"]["phase"] == "Succeeded"
    assert "every rule holds" in drifted.log(second)
