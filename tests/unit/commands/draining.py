"""Drains in an embedded cluster, in this process."""

import io
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import RebalancerError
from rebalancer.commands.drain import DrainOptions, drain
from rebalancer.testing.objects import EmbeddedCluster
from tests.support.killing import Killed, Killing


class Drained:
    """What a drain did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.out)
        return report

    @property
    def verdicts(self) -> dict[str, str]:
        return {node["node"]: node["verdict"] for node in self.report["nodes"]}

    @property
    def codes(self) -> set[str]:
        return {pod["code"] for node in self.report["nodes"] for pod in node["pods"]}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def drained(
    cluster: EmbeddedCluster,
    *names: str,
    stop: threading.Event | None = None,
    clock: SystemClock | None = None,
    err: io.StringIO | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Drained:
    """Drain the nodes; a refusal of the flags is an exit code, too."""
    out, err = io.StringIO(), err or io.StringIO()
    chosen: dict[str, Any] = {
        "kubeconfig": str(cluster.kubeconfig),
        "nodes": names,
        "output": "json",
        "timeout": 60.0,
        **options,
    }
    environment = Environment(
        clock or SystemClock(), environ or {}, out, err, threading.Event() if stop is None else stop
    )
    try:
        code = int(drain(DrainOptions.of(**chosen), environment))
    except RebalancerError as error:
        code = int(error.exit_code)
        err.write(str(error))
    return Drained(code, out.getvalue(), err.getvalue())


def pods_on(cluster: EmbeddedCluster, node: str) -> list[str]:
    """Return the names of the pods on a node that have not ended."""
    return [
        pod["metadata"]["name"]
        for pod in cluster.objects("Pod")
        if pod["spec"].get("nodeName") == node
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def is_cordoned(cluster: EmbeddedCluster, node: str) -> bool:
    return bool(cluster.get("Node", node)["spec"].get("unschedulable"))


def drain_until_done(patch: pytest.MonkeyPatch, *args: Any, **options: Any) -> None:
    """Drain as :func:`drained` does, again and again; each process is killed after one write more than the one before."""
    kills, done, killing = 0, None, Killing(patch)
    while done is None:
        killing.begin(1 + kills)
        try:
            done = drained(*args, **options)
        except Killed:
            kills += 1
        assert kills < 20
    assert done.code == 0, done.err
    assert kills >= 2
