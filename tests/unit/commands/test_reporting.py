"""What a run that has acted says where its streams fail it."""

import io
import json

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ExitCode
from rebalancer.commands.options import RunOptions
from rebalancer.commands.run import run_once
from tests.unit.commands.embedded import NOW_POLICY, third_zone_joined


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
    chosen = RunOptions(
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


def test_progress_that_cannot_be_written_ends_no_run(tmp_path):
    with third_zone_joined("web") as cluster:
        out = io.StringIO()
        code = run(cluster, tmp_path, out, Broken(OSError(28, "No space left on device")))
        report = json.loads(out.getvalue())
    assert code == ExitCode.DONE
    assert [(m["outcome"], m["landed"]) for m in report["moves"]] == [("evicted", "n-c")]
