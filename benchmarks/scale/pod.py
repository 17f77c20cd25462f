"""`python -m benchmarks.scale.pod 5000:150000:lean`: a run in the CronJob's pod, on a real kubelet, beside a big cluster.

The chart is installed with its defaults, but ``mode: observe``: what is measured is reading and planning, under the
chart's own requests and limits. Needs root and containerd, as ``make e2e-node`` does. The controllers are those that
a Job needs: the others would judge a hundred thousand pods that no kubelet runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale import fill
from benchmarks.scale.measure import cpu_seconds, settle
from benchmarks.scale.shape import Shape
from tests.controlplane.cluster import ControlPlane
from tests.node import images
from tests.node.ground import Ground

_say = functools.partial(print, flush=True)
_SERVERS = ("etcd", "kube-apiserver")
_LATER = ("kube-controller-manager", "kube-scheduler")
_CONTROLLERS = (
    "job-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
)
_OPTIONS = dataclasses.replace(
    fill.OPTIONS,
    components=(*_SERVERS, *_LATER),
    extra_args={
        **fill.OPTIONS.extra_args,
        "kube-controller-manager": [f"--controllers={','.join(_CONTROLLERS)}"],
    },
)
_NEVER = "0 0 29 2 *"
_LIMIT = 300.0

_WRAPPER = """
import os, subprocess, sys, time
began = time.monotonic()
process = subprocess.Popen([sys.executable, "-IB", "-m", "rebalancer", *sys.argv[1:]])
_, status, use = os.wait4(process.pid, 0)
took = time.monotonic() - began
print(f"\\nmeasured {took:.2f} {use.ru_utime + use.ru_stime:.2f} {use.ru_maxrss / 1024:.0f}", flush=True)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Runs the product as the pod's own command would, in the same container, and tells what it took."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a control plane, run the pod so many times, and print what each run took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.pod", description=__doc__)
    parser.add_argument("size", nargs="?", default="1000:30000", metavar="NODES:PODS[:lean]")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    nodes, pods, *rest = chosen.size.split(":")
    shape = Shape(nodes=int(nodes), pods=int(pods), lean=rest == ["lean"])
    with tempfile.TemporaryDirectory() as folder, ControlPlane(_OPTIONS) as plane:
        for name in _LATER:
            plane.stop(name)
        fill.fill(plane, shape, _say)
        archives = [images.make_rebalancer(), images.write_pause(Path(folder))]
        for name in _LATER:
            plane.start(name)
        with Ground(plane) as ground:
            for archive in archives:
                ground.node.containerd.load(archive)
            return _measure(ground, chosen.rounds)


def _measure(ground: Ground, rounds: int) -> int:
    ground.keep_others_away()
    values = ground.necessities(mode="observe", output="json", schedule=_NEVER)
    ground.release().install(values)
    servers = [ground.plane.pid(name) for name in _SERVERS]
    _say("\n| run | exit code | s | CPU s | peak MiB | API server CPU s | pods | moves |")
    _say("|---|---|---|---|---|---|---|---|")
    # The first as the CronJob would start it: its limits are met, or the kernel ends it.
    for number in range(rounds + 1):
        if not settle(servers, quiet=0.5):
            _say("the servers are still busy")
        before = cpu_seconds(servers[1])
        ground.start_job(f"run-{number}", **(_wrapped(ground) if number else {}))
        pod = ground.wait_finished(f"run-{number}", _LIMIT)
        served = cpu_seconds(servers[1]) - before
        _say(_row(number, pod, ground.log(pod), served))
    return 0


def _wrapped(ground: Ground) -> dict[str, Any]:
    (cron_job,) = ground.api.list_all("/apis/batch/v1/namespaces/rebalancing/cronjobs")
    (only,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return {
        "command": ["/usr/local/bin/python3"],
        "args": ["-I", "-c", _WRAPPER, *only["args"]],
    }


def _row(number: int, pod: dict[str, Any], log: str, served: float) -> str:
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    code = f"{ended['exitCode']} ({ended['reason']})"
    measured = re.search(r"^measured (\S+) (\S+) (\S+)$", log, re.MULTILINE)
    took, cpu, peak = measured.groups() if measured else ("", "", "")
    if ended["exitCode"] != 0:
        return f"| {number} | {code} | {took} | {cpu} | {peak} | {served:.1f} | {log[-500:]!r} | |"
    # Progress comes first, each line of it with a time in front.
    report, _ = json.JSONDecoder().raw_decode(log, log.find("\n{") + 1)
    pods, moves = report["funnel"]["pods"], len(report["moves"])
    what = "as it is" if number == 0 else f"measured {number}"
    return f"| {what} | {code} | {took} | {cpu} | {peak} | {served:.1f} | {pods} | {moves} |"


if __name__ == "__main__":
    sys.exit(main())
