"""The article's drift in an embedded cluster, and runs on it in this process."""

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ExitCode
from rebalancer.commands.flags import reference
from rebalancer.commands.run import run_once
from rebalancer.machines.capacity import MachineScaler
from rebalancer.run.context import run_context
from rebalancer.run.one_run import run_on
from rebalancer.run.options import RunOptions
from rebalancer.run.source import open_source
from rebalancer.testing.objects import EmbeddedCluster, deployment, prefer_apart
from tests.support.worlds import FAST

MEMORY = "default/memory"
NOW_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies: {anti-affinity: {}}
"""


@contextmanager
def third_zone_joined(*names: str) -> Iterator[EmbeddedCluster]:
    """Three replicas of each name that want a zone each, two zones, and a third that has just joined."""
    with EmbeddedCluster(timings=FAST) as cluster:
        for zone in "ab":
            cluster.add_node(f"n-{zone}", zone)
        cluster.settle()
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}})
        for name in names:
            labels = {"app": name}
            cluster.apply(deployment(name, 3, labels=labels, affinity=prefer_apart(labels)))
        cluster.settle()
        cluster.add_node("n-c", "c")
        cluster.settle()
        yield cluster


def run_options(**flags: Any) -> RunOptions:
    """Return the options of a run, which asks nothing; Lease and memory as on the command line."""
    for name in {"lease", "memory", "machine_state"} & flags.keys():
        if isinstance(flags[name], str):
            flags[name] = reference(f"--{name}", flags[name])
    return RunOptions.of(**{"yes": True, **flags})


class ClusterClock(SystemClock):
    """The time of day is the cluster's; a run's patience lasts 20 times as long, for machines that do much else."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def now(self) -> float:
        return super().now() / 20

    def unix(self) -> float:
        return self._cluster.clock.now()


class Runner:
    """``run`` and ``apply`` on one cluster, under one policy."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        folder: Path,
        policy: str = NOW_POLICY,
        clock: SystemClock | None = None,
    ) -> None:
        self._cluster, self._folder = cluster, folder
        self._clock = clock or SystemClock()
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy)
        self.environment: Environment
        """Of the newest run."""

    def __call__(
        self, stop: threading.Event | None = None, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        """Run once, or apply ``plan_path``; return the exit code and the report."""
        out, err = io.StringIO(), io.StringIO()
        stop = stop if stop is not None else threading.Event()
        chosen: dict[str, Any] = {
            "policy_path": str(self.policy),
            "kubeconfig": str(self._cluster.kubeconfig),
            "quiet": True,
            "output": "json",
            **options,
        }
        self.environment = Environment(self._clock, {}, out, err, stop)
        code = self._run(run_options(**chosen))
        return int(code), json.loads(out.getvalue())

    def _run(self, options: RunOptions) -> ExitCode:
        return run_once(options, self.environment)

    def said(
        self, command: Callable[[RunOptions, Environment], ExitCode], **options: Any
    ) -> dict[str, Any]:
        """Return what another command that only looks says of the cluster, under the policy."""
        out = io.StringIO()
        environment = Environment(self._clock, {}, out, io.StringIO(), threading.Event())
        chosen = run_options(
            policy_path=str(self.policy),
            kubeconfig=str(self._cluster.kubeconfig),
            output="json",
            dry_run=True,
            **options,
        )
        assert command(chosen, environment) is ExitCode.DONE
        said: dict[str, Any] = json.loads(out.getvalue())
        return said

    def planned(self, **options: Any) -> tuple[str, dict[str, Any]]:
        """Write the plan of a dry run; return its path and what is in it."""
        code, report = self(dry_run=True, **options)
        assert code == 0
        return self.written(report), report

    def written(self, report: dict[str, Any]) -> str:
        """Write a report; return its path."""
        path = self._folder / "plan.json"
        path.write_text(json.dumps(report))
        return str(path)


class ServedRunner(Runner):
    """The runs of one process that stays, one at a time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scale = MachineScaler()

    def restart(self) -> None:
        """Have another process do the next run."""
        self.scale = MachineScaler()

    def _run(self, options: RunOptions) -> ExitCode:
        run = run_context(options, self.environment)
        with open_source(run, options.cluster) as source:
            return run_on(source, options.ending, self.scale).code


class SignalAfterEviction(threading.Event):
    """Set as soon as a pod that was there at the beginning is going, or gone."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._known = self._living()

    def _living(self) -> set[str]:
        return {
            pod["metadata"]["uid"]
            for pod in self._cluster.objects("Pod", "default")
            if "deletionTimestamp" not in pod["metadata"]
        }

    def is_set(self) -> bool:
        return not self._known <= self._living()
