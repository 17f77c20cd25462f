"""What the chart's notes print for the night, word by word, and the upgrade of the morning after, with both Helms."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.chart.helm import HelmError, Release
from tests.controlplane import access, objects, wait_until
from tests.controlplane.build import binary
from tests.e2e.product import rebalancer
from tests.e2e.test_chart import RESTRICTED, objects_of_the_release

NAMESPACE = "rebalancing"
ACCOUNT = "rebalancer-kube-rebalancer"
WRITES = (
    {"verb": "create", "resource": "pods", "subresource": "eviction"},
    {"verb": "patch", "resource": "nodes"},
)
ENFORCING = {
    "schedule": "0 0 29 2 *",
    "image": {"repository": "registry.example/kube-rebalancer"},
    "policy": {"steer": "marks"},
}


def commands_below(notes: str, heading: str) -> list[str]:
    """The commands that the notes print below a line that begins so, up to the next such line."""
    lines = iter(notes.splitlines())
    assert any(line.startswith(heading) for line in lines), notes
    below = []
    for line in lines:
        if line and not line.startswith("  "):
            break
        below += [line.strip()] if line else []
    return below


def walk(plane, commands: list[str], folder: Path) -> None:
    """Run commands as they are printed, with the kubectl of this version."""
    folder.mkdir(exist_ok=True)
    (folder / "kubectl").unlink(missing_ok=True)
    (folder / "kubectl").symlink_to(binary("kubectl"))
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig),
    }
    for command in commands:
        assert command.startswith("kubectl ")
        subprocess.run(shlex.split(command), check=True, env=env, timeout=120, capture_output=True)


def is_stopped(api) -> bool:
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{ACCOUNT}"
    return bool(api.get(path)["spec"]["suspend"])


def may_write(api) -> list[bool]:
    return [access.is_allowed(api, ACCOUNT, NAMESPACE, what) for what in WRITES]


def answer_from_the_cluster(plane, notes: str, folder: Path) -> None:
    """The line that shows the history is admitted where Pod Security is restricted, and its account may read the history."""
    (line,) = commands_below(notes, "The program is installed by")
    dry = line.replace("--rm --attach", "--dry-run=server")
    assert dry != line
    walk(plane, [dry], folder)
    token = plane.token_for_service_account(NAMESPACE, ACCOUNT)
    kubeconfig = str(plane.write_kubeconfig("on-call", token))
    command = shlex.split(line.partition(" -- ")[2])
    answer = rebalancer(*command, env={**os.environ, "KUBECONFIG": kubeconfig})
    assert answer.code == 0, answer.err
    assert "0 evictions in the last hour" in answer.out


@pytest.mark.parametrize("program", ["helm", pytest.param("helm3", marks=pytest.mark.long)])
def test_what_was_stopped_in_the_night_can_be_upgraded_rolled_back_and_removed(
    cluster, tmp_path, program
):
    cluster.apply([objects.namespace(NAMESPACE, RESTRICTED)])
    release = Release(cluster.kubeconfig, NAMESPACE, program=program)
    # A release that still has runNow: no upgrade of it starts a run, and none is refused.
    notes = release.install({**ENFORCING, "runNow": {"enabled": True}})
    assert "WARNING: runNow has no effect any more" in notes
    wait_until(lambda: may_write(cluster.api) == [True, True], 30, "the rights in force")
    answer_from_the_cluster(cluster, notes, tmp_path / "bin")
    by_hand = commands_below(notes, "Do not wait for the tick")
    stop = commands_below(notes, "Stop it now")
    walk(cluster, [*by_hand, *stop], tmp_path / "bin")
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    wait_until(lambda: not cluster.api.list_all(jobs), 60, "the run under way has ended")
    assert is_stopped(cluster.api)

    # The morning: only look, go back, look again. What was stopped stays so.
    morning = release.upgrade({"mode": "observe"}, "--reuse-values")
    assert (
        "It was stopped by kubectl, and this upgrade leaves it stopped: nothing runs until"
        in morning
    )
    assert "What happens next" not in morning
    assert "Stop it now" in morning
    wait_until(lambda: may_write(cluster.api) == [False, False], 30, "no right to write")
    release.rollback(1)
    wait_until(lambda: may_write(cluster.api) == [True, True], 30, "the rights of before")
    release.upgrade({"mode": "observe"}, "--reuse-values")
    assert is_stopped(cluster.api)
    assert not cluster.api.list_all(jobs)
    walk(
        cluster, commands_below(notes, "Upgrades and rollbacks leave it stopped"), tmp_path / "bin"
    )
    assert not is_stopped(cluster.api)

    # Helm 4 stops it by the value again once it has the field back.
    if program == "helm":
        with pytest.raises(HelmError, match="conflict"):
            release.upgrade({"suspend": True}, "--reuse-values")
        release.upgrade({"suspend": True}, "--reuse-values", "--force-conflicts")
        assert is_stopped(cluster.api)
        release.upgrade({"suspend": False}, "--reuse-values")
        assert not is_stopped(cluster.api)

    release.uninstall()
    wait_until(lambda: not objects_of_the_release(cluster.api), 30, "nothing of the release left")
    assert may_write(cluster.api) == [False, False]


@pytest.mark.parametrize("program", ["helm", pytest.param("helm3", marks=pytest.mark.long)])
def test_what_helm_has_suspended_is_not_said_to_be_stopped_once_an_upgrade_starts_it(
    cluster, program
):
    cluster.apply([objects.namespace(NAMESPACE)])
    release = Release(cluster.kubeconfig, NAMESPACE, program=program)
    night = release.install({**ENFORCING, "suspend": True})
    assert "It is suspended: nothing will happen until suspend is false" in night
    started = release.upgrade({"suspend": False}, "--reuse-values")
    assert not is_stopped(cluster.api)
    assert "stopped by kubectl" not in started
    assert "What happens next" in started
    for notes in (night, started):
        assert commands_below(notes, "Stop it now")[0].startswith("kubectl ")


def test_an_upgrade_that_fails_leaves_no_right_to_write(cluster):
    cluster.apply([objects.namespace(NAMESPACE)])
    release = Release(cluster.kubeconfig, NAMESPACE)
    release.install(ENFORCING)
    # A field that is Helm's own, written by somebody else: Helm 4 stops at the CronJob.
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{ACCOUNT}"
    cluster.api.patch(path, {"spec": {"schedule": "0 0 30 6 *"}})
    with pytest.raises(Exception, match="conflict"):
        release.upgrade({"mode": "observe"}, "--reuse-values")
    wait_until(lambda: may_write(cluster.api) == [False, False], 30, "no right to write")
    release.uninstall()
    left = objects_of_the_release(cluster.api)
    assert not [name for name in left if "clusterrole" in name], left
