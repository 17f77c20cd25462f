"""What is said of the newest pod of a release's runs, and of Events about one that is gone."""

from typing import Any

import msgspec
import pytest

from rebalancer.doctor.release import judge_runs
from rebalancer.kube.releases import PodObject, WarningEvent

LABELS = {"app.kubernetes.io/name": "kube-rebalancer", "app.kubernetes.io/instance": "mover"}
RUNNING: dict[str, Any] = {"running": {}}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "no such digest"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}


def pod(name, state, *, at="00:10", phase="Running", labels=LABELS, before=None):
    status = {"state": state, "lastState": before or {}}
    made = {
        "metadata": {"name": name, "creationTimestamp": f"2026-11-20T{at}:00Z", "labels": labels},
        "status": {"phase": phase, "containerStatuses": [status]},
    }
    return msgspec.convert(made, PodObject)


def ended(code):
    return {"terminated": {"exitCode": code}}


def warning(about, reason, note, at="00:20"):
    made = {
        "metadata": {"name": "e", "creationTimestamp": f"2026-11-20T{at}:00Z"},
        "regarding": {"name": about},
        "reason": reason,
        "note": note,
    }
    return msgspec.convert(made, WarningEvent)


def judged(pods, warnings=()):
    return list(judge_runs("ops", "mover", LABELS, pods, list(warnings)))


@pytest.mark.parametrize(
    ("pods", "says", "command"),
    [
        (
            [pod("mover-1-a", ended(0), at="00:08"), pod("mover-2-a", ended(3))],
            "its last run failed: pod mover-2-a, begun 2026-11-20T00:10:00Z, ended with exit code 3 (it could",
            "kubectl --namespace ops logs mover-2-a",
        ),
        # One that was started by hand has a name of its own.
        (
            [pod("by-hand-a", ended(2))],
            "exit code 2 (its policy or a flag is wrong)",
            "logs by-hand-a",
        ),
        (
            [pod("mover-2-a", PULL, phase="Pending")],
            "its pod mover-2-a does not start: ImagePullBackOff: no such digest",
            "kubectl --namespace ops describe pod mover-2-a",
        ),
        (
            [pod("mover-6f-a", {"waiting": {"reason": "CrashLoopBackOff"}}, before=ended(3))],
            "CrashLoopBackOff: ; before, it ended with exit code 3",
            "describe pod mover-6f-a",
        ),
    ],
)
def test_a_pod_that_failed_or_does_not_start_is_a_problem_with_the_command_that_shows_more(
    pods, says, command
):
    (finding,) = judged(pods)
    assert finding.grade == "problem"
    assert says in finding.message
    assert command in finding.lines[0]


def test_a_run_that_moved_a_part_is_a_warning():
    (finding,) = judged([pod("mover-2-a", ended(4))])
    assert finding.grade == "warning"


@pytest.mark.parametrize(
    "pods",
    [
        [],
        [pod("mover-2-a", RUNNING, before=ended(3))],
        [pod("mover-1-a", ended(3), at="00:01"), pod("mover-2-a", ended(0))],
        [pod("mover-2-a", CREATING, phase="Pending")],
        # A recorder, a node agent and another release are no runs of this one.
        [pod("mover-record-1-a", ended(3))],
        [pod("agent", ended(3), labels={**LABELS, "app.kubernetes.io/component": "node-agent"})],
        [pod("b-1-a", ended(3), labels={**LABELS, "app.kubernetes.io/instance": "b"})],
    ],
)
def test_nothing_is_said_of_runs_that_go_well_and_of_other_pods(pods):
    assert judged(pods) == []


MOUNT = warning("mover-2-a", "FailedMount", 'configmap "mover-policy" not found')
GONE = warning("mover-3-a", "Failed", "pull: not found")


@pytest.mark.parametrize(
    ("pods", "warnings", "says"),
    [
        ([pod("mover-2-a", CREATING, phase="Pending")], [MOUNT], "mover-2-a did not start at"),
        # Its Job is past the deadline, so that its pod is gone.
        ([], [GONE, warning("mover-3", "DeadlineExceeded", "long", "00:30")], "Failed: pull"),
        ([pod("mover-2-a", ended(0), phase="Succeeded")], [GONE], "Failed: pull: not found"),
        ([], [warning("mover-4", "FailedCreate", "quota")], "mover-4 did not start"),
    ],
)
def test_an_event_says_why_there_is_no_run(pods, warnings, says):
    (finding,) = judged(pods, warnings)
    assert finding.grade == "problem"
    assert says in finding.message


@pytest.mark.parametrize(
    ("pods", "warnings"),
    [
        ([pod("mover-4-a", ended(0), at="00:40")], [GONE]),
        ([pod("mover-4-a", RUNNING)], [GONE]),
        ([pod("mover-4-a", CREATING, phase="Pending")], [GONE]),
        ([], [warning("other-3-a", "Failed", "not ours")]),
    ],
)
def test_an_event_that_is_over_or_of_others_says_nothing(pods, warnings):
    assert judged(pods, warnings) == []
