"""A run is killed at many points of its life: what it did was planned, budgets are whole, the next run goes on.

Nothing is put back between the kills: each run finds what the one before it left, its dead holder's Lease and
its memory included, and goes on from there.
"""

import json
import random
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.controlplane import audit, operations, wait_until
from tests.e2e import crowd
from tests.e2e.installed import NAMESPACE, Installed

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:rebalancer-kube-rebalancer"
PER_RUN = 3
POLICY = {**crowd.SLOWLY, "budgets": {**crowd.SLOWLY["budgets"], "perRun": PER_RUN}}


@pytest.mark.parametrize("kills", [12, pytest.param(50, marks=pytest.mark.long)])
def test_killed_at_any_point_it_did_as_planned_and_the_next_run_goes_on(
    cluster, tmp_path, record_property, kills
):
    # More than all runs can move, even if none of them is killed in time.
    apps = PER_RUN * (kills + 2)
    crowd.gather(cluster, apps, ready_after="200ms")
    installed = Installed(cluster, tmp_path, policy=POLICY)
    log = audit.AuditLog(cluster.audit_log)
    points = random.Random(0)
    cut, expired = [], 0
    with crowd.BudgetWatcher(cluster) as watcher:
        begins, goes_on = whole_run(installed, log, apps)
        for number in range(kills):
            plan = planned(installed)
            assert len(plan) == PER_RUN
            log.mark()
            # Spread over the whole run: before the first eviction, and after each of them.
            after = number % PER_RUN
            kill(installed, log, after, points.uniform(0, goes_on if after else begins))
            crowd.settle(cluster, apps)
            done = carried_out(log, cluster)
            assert done == plan[: len(done)]
            cut.append(len(done))
            expired += expire_lease(installed)
        moved = PER_RUN + sum(cut)
        assert crowd.moved(cluster) == moved
        # A killed run leaves in the hour's count what it had reserved for its last wave, of one move here.
        assert moved <= remembered(installed) <= moved + kills
        finish(installed, apps)
    assert watcher.samples > kills
    assert watcher.broken == []
    record_property("evictions before the kill", [cut.count(n) for n in range(PER_RUN + 1)])
    record_property("Leases left by the dead", expired)
    assert {0, 1, 2} <= set(cut)
    assert expired > 0


def whole_run(installed, log, apps):
    """How many seconds a run lasts until its first eviction, and from each one to the next or to its end."""
    started = time.monotonic()
    run = installed.start()
    wait_until(lambda: evicted(log) or run.popen.poll() is not None, 60, "the first eviction")
    begun = time.monotonic()
    done = run.wait()
    ended = time.monotonic()
    assert done.code == 0, done.err
    assert len(done.evicted) == PER_RUN
    crowd.settle(installed.plane, apps)
    return begun - started, (ended - begun) / PER_RUN


def planned(installed):
    """The pods that the next run will move, in the plan's order, as a dry run says just before."""
    dry_run = installed.run("--dry-run")
    assert dry_run.code == 0, dry_run.err
    return [(move["namespace"], move["pod"]) for move in dry_run.report["moves"]]


def evicted(log):
    """The pods that runs have evicted, in the order in which the server did it."""
    return [(eviction.namespace, eviction.name) for eviction in log.evictions(ACCOUNT)]


def carried_out(log, plane):
    """The pods that a killed run has evicted, in the order in which it asked for them.

    To a client that is gone the server answers 504, "context canceled", whether it had evicted the pod or not: that
    is seen from the pod.
    """
    standing = {pod["metadata"]["name"] for pod in crowd.pods(plane).values()}
    asked = [request for request in log.requests() if request.kind == audit.EVICTION]
    order = dict.fromkeys(
        (request.namespace, request.name) for request in asked if request.user == ACCOUNT
    )
    return [ref for ref in order if ref[1] not in standing]


def kill(installed, log, evictions, seconds):
    """Kill a run so many seconds after so many of its evictions, or after its start."""
    run = installed.start()

    def due():
        return run.popen.poll() is not None or len(evicted(log)) >= evictions

    wait_until(due, 60, f"{evictions} evictions")
    try:
        run.popen.wait(seconds)
    except subprocess.TimeoutExpired:
        run.popen.send_signal(signal.SIGKILL)
    run.wait()


def expire_lease(installed):
    """Let the term of a dead holder's Lease pass; return whether there was one."""
    spec = installed.api.get(installed.lease_path).get("spec") or {}
    if not spec.get("holderIdentity"):
        return False
    # The next run watches it for its term.
    past = datetime.now(UTC) - timedelta(seconds=spec["leaseDurationSeconds"] + 1)
    renewed = past.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    installed.api.patch(
        installed.lease_path, {"spec": {"renewTime": renewed, "leaseDurationSeconds": 1}}
    )
    return True


def remembered(installed):
    """How many evictions the memory counts."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{installed.name}-memory"
    document = json.loads(installed.api.get(path)["data"]["memory.json"])
    return sum(count for _, count in document["evictions"])


def finish(installed, apps):
    """Nothing that the killed runs left hinders the runs that follow them."""
    installed.release.upgrade({**installed.values, "policy": {**POLICY, **UNHURRIED}})
    last = installed.run()
    assert last.code == 0, last.err
    operations.wait_pods_ready(installed.api, 3 * apps, 60, selector="crowd=yes")
    assert crowd.moved(installed.plane) == apps
    assert installed.run().report["moves"] == []


UNHURRIED = {"protect": {"minPodAge": "0s"}, "budgets": {**crowd.SLOWLY["budgets"], "inFlight": 10}}
"""All that is left in one run."""
