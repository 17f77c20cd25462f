"""The servers fail in mid-run, and the token changes: retries, a clear outcome, no work reported that was not done."""

import time

import pytest

from tests.controlplane import access, audit, wait_until
from tests.e2e import crowd
from tests.e2e.installed import Installed

APPS = 8


@pytest.fixture
def installed(cluster, tmp_path):
    crowd.gather(cluster, APPS)
    return Installed(cluster, tmp_path, policy=crowd.SLOWLY)


def started(installed):
    run = installed.start()
    wait_until(lambda: crowd.moved(installed.plane), 30, "the first move")
    return run


def check_and_finish(installed, done, log):
    """What the run says is what was done; the next one does the rest."""
    crowd.settle(installed.plane, APPS)
    assert done.code in (0, 4), done.err
    reported = {move["pod"] for move in done.evicted}
    assert len(done.report["moves"]) == APPS
    if done.code == 0:
        assert len(reported) == APPS
    else:
        undone = [move for move in done.report["moves"] if move["outcome"] != "evicted"]
        assert done.report["cut"] or all(move["message"] for move in undone)
    assert crowd.moved(installed.plane) == len(reported)
    # The server may have died before it could log one, but it logs none that was not made.
    assert {eviction.name for eviction in log.evictions()} <= reported
    installed.free_lease()
    rest = installed.run()
    assert rest.code == 0, rest.err
    assert crowd.moved(installed.plane) == APPS


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_api_server_is_restarted_in_mid_run(installed, kill):
    plane = installed.plane
    log = audit.AuditLog(plane.audit_log)
    with crowd.BudgetWatcher(plane) as watcher:
        run = started(installed)
        plane.restart("kube-apiserver", kill=kill)
        plane.restart_clients()
        done = run.wait()
        check_and_finish(installed, done, log)
    assert watcher.samples > APPS
    assert not watcher.broken


def test_etcd_stands_still_for_twenty_seconds(installed):
    plane = installed.plane
    log = audit.AuditLog(plane.audit_log)
    with crowd.BudgetWatcher(plane) as watcher:
        run = started(installed)
        plane.stop("etcd")
        time.sleep(20)
        plane.start("etcd")
        plane.wait_ready("kube-apiserver")
        # Controllers come back from their long back-offs in minutes otherwise.
        plane.restart_clients()
        done = run.wait()
        check_and_finish(installed, done, log)
    assert watcher.samples > APPS
    assert not watcher.broken


def test_a_run_that_finds_no_etcd_has_done_nothing_and_says_so(installed):
    plane = installed.plane
    log = audit.AuditLog(plane.audit_log)
    start = installed.prepare("--deadline=20")
    plane.stop("etcd")
    try:
        done = start().wait()
    finally:
        plane.start("etcd")
        plane.wait_ready("kube-apiserver")
        plane.restart_clients()
    assert done.code == 3, done.err
    assert done.out == ""
    assert plane.url in done.err
    assert log.evictions() == []
    assert crowd.moved(plane) == 0


def test_the_token_is_rotated_in_mid_run(installed):
    plane = installed.plane
    # As a kubelet does it: the new token is there before the old one ends, here with what it is bound to.
    bound = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bound"}}
    secrets = "/api/v1/namespaces/rebalancing/secrets"
    plane.api.post(secrets, bound)
    installed.kubeconfig_with_token(bound_to="bound")
    old = plane.client(installed.token_file.read_text())
    with crowd.standing_still(plane):
        run = started(installed)
        installed.kubeconfig_with_token()
        plane.api.delete(f"{secrets}/bound")
        # The server remembers a good token for ten seconds.
        wait_until(lambda: not access.is_known(old), 30, "the old token refused")
        assert crowd.moved(plane) == 1
    done = run.wait()
    assert done.code == 0, done.err
    assert len(done.evicted) == APPS == crowd.moved(plane)
    old.close()
