"""What a run that has acted says where its streams fail it."""

import io
import json

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ExitCode
from rebalancer.commands.run import run_once
from rebalancer.run.memory.document import decode
from tests.unit.commands.embedded import MEMORY, NOW_POLICY, Runner, run_options, third_zone_joined


class Broken(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def run(cluster, folder, out, err, **options):
    policy = folder / "policy.yaml"
    policy.write_text(NOW_POLICY)
    chosen = run_options(
        policy_path=str(policy), kubeconfig=str(cluster.kubeconfig), output="json", **options
    )
    return run_once(chosen, Environment(SystemClock(), {}, out, err))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError()])
def test_a_lost_report_of_a_run_that_evicted_is_said_with_exit_code_4(tmp_path, error):
    with third_zone_joined("web") as cluster:
        err = io.StringIO()
        code = run(cluster, tmp_path, Broken(error), err, quiet=True)
        assert code == ExitCode.PARTIAL
        said = err.getvalue().splitlines()
        assert said[0].startswith("rebalancer: the output could not be written")
        assert said[1].startswith("evicted or lost: 1: default/web-")
        # Nothing is left to do: a lost report is no failure of its own any more.
        assert run(cluster, tmp_path, io.StringIO(), err, quiet=True) == ExitCode.DONE


def cannot(*_: object, **__: object) -> str:
    raise RuntimeError("a fault of a strategy")


def test_of_a_run_that_cannot_be_explained_it_is_said_and_remembered_what_it_evicted(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("rebalancer.planner.plan.stopped", cannot)
    with third_zone_joined("web") as cluster:
        err = io.StringIO()
        with pytest.raises(RuntimeError, match="fault of a strategy"):
            run(cluster, tmp_path, io.StringIO(), err, quiet=True, memory=MEMORY)
        document, _ = decode(cluster.get("ConfigMap", "memory")["data"])
    assert err.getvalue().startswith("evicted or lost: 1: default/web-")
    assert sum(count for _, count in document.evictions) == 1


@pytest.mark.parametrize(("mode", "committed"), [("enforce", True), ("observe", False)])
def test_a_run_that_evicts_nothing_may_still_be_ended_while_it_is_explained(
    tmp_path, monkeypatch, mode, committed
):
    seen: list[bool] = []
    with third_zone_joined("web") as cluster:
        policy = NOW_POLICY.replace("anti-affinity: {}", f"anti-affinity: {{mode: {mode}}}")
        runner = Runner(cluster, tmp_path, policy)

        def stopped(*_: object, **__: object) -> str:
            seen.append(runner.environment.committed.is_set())
            return ""

        monkeypatch.setattr("rebalancer.planner.plan.stopped", stopped)
        runner()
    assert seen == [committed]


def test_progress_that_cannot_be_written_ends_no_run(tmp_path):
    with third_zone_joined("web") as cluster:
        out = io.StringIO()
        code = run(cluster, tmp_path, out, Broken(OSError(28, "No space left on device")))
        report = json.loads(out.getvalue())
    assert code == ExitCode.DONE
    assert [(m["outcome"], m["landed"]) for m in report["moves"]] == [("evicted", "n-c")]
