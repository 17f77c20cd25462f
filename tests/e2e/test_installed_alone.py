"""Two runs at once: the Lease of the chart keeps them apart."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.controlplane import audit, wait_until
from tests.e2e import crowd
from tests.e2e.installed import Installed

APPS = 6


def hold(installed, holder, seconds, ago=0):
    """Write the Lease as a run would that has taken it so many seconds ago."""
    now = (datetime.now(UTC) - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "renewTime": now,
        "acquireTime": now,
    }
    installed.api.patch(installed.lease_path, {"spec": spec})


@pytest.fixture
def installed(cluster, tmp_path):
    crowd.gather(cluster, APPS)
    return Installed(cluster, tmp_path, policy=crowd.SLOWLY)


def test_a_second_run_leaves_at_once_and_says_until_when(installed):
    with crowd.standing_still(installed.plane):
        first = installed.start()
        wait_until(lambda: crowd.moved(installed.plane), 30, "the first run's first move")
        # It cannot end now: what waited for it would not end either.
        second = installed.run()
        assert first.popen.poll() is None
    assert second.code == 0
    assert second.report["heldBy"]["holder"].startswith("rebalancer-kube-rebalancer-1_")
    assert "holds the Lease until 20" in second.report["stopped"]
    assert second.report["moves"] == []
    done = first.wait()
    assert done.code == 0, done.err
    assert len(done.evicted) == APPS == crowd.moved(installed.plane)


def test_a_dead_holders_lease_blocks_no_longer_than_its_term(installed):
    hold(installed, "a-dead-run", 3600)
    asked = audit.AuditLog(installed.plane.audit_log)
    blocked = installed.run()
    assert blocked.code == 0
    assert blocked.report["heldBy"]["holder"] == "a-dead-run"
    # What it may do and whose the Lease is: nothing else was asked of the server.
    assert {request.resource for request in asked.requests()} == {
        "selfsubjectaccessreviews",
        "leases",
    }
    assert {request.verb for request in asked.requests() if request.resource == "leases"} == {"get"}
    assert crowd.moved(installed.plane) == 0
    # It looks expired, and is watched for its term.
    hold(installed, "a-dead-run", 5, ago=3601)
    done = installed.run()
    assert done.code == 0, done.err
    assert crowd.moved(installed.plane) == APPS


def test_a_run_that_loses_its_lease_stops_evicting(installed):
    plane = installed.plane
    with crowd.standing_still(plane):
        run = installed.start()
        wait_until(lambda: crowd.moved(plane), 30, "the first move")
        hold(installed, "another-run", 3600)
        # It learns of that at the next renewal, while it waits for the wave.
        done = run.wait()
    assert done.code == 4, done.err
    assert "Lease" in done.report["cut"]
    assert len(done.evicted) == 1
    crowd.settle(plane, APPS)
    assert crowd.moved(plane) == 1
    assert plane.api.get(installed.lease_path)["spec"]["holderIdentity"] == "another-run"
