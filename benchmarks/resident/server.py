"""`python -m benchmarks.resident.server 1000:30000`: what the CronJob and `serve` cost the API server in ten minutes.

Each looks every two minutes, as the chart has it, at one real control plane in which nothing happens; before them the same
time passes without a look. By itself the API server collects its garbage and keeps its caches, which takes more CPU than the
looks of `serve`, and not always the same. So the CPU of its goroutines that answer requests is taken from a profile of it.
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.resident.process import OURS, POLICY, serving
from benchmarks.scale import contenders
from benchmarks.scale.fill import OPTIONS, fill
from benchmarks.scale.measure import cpu_seconds, run, settle
from benchmarks.scale.shape import Shape
from tests.controlplane.cluster import ControlPlane

_say = functools.partial(print, flush=True)
_PERIOD = 120.0
"""Seconds between two runs of the chart's CronJob, and of `serve`."""
_LOOKED = "nothing to do on "
_SENT = ("apiserver_response_sizes_sum", "apiserver_watch_events_sizes_sum")
_ANSWERS = re.compile(
    r"net/http\.HandlerFunc\.ServeHTTP|\(\*(?:http2)?serverConn\)|net/http\.\(\*conn\)\.serve"
)
"""One of these functions of Go's HTTP server is on the stack of each goroutine that reads, answers or sends."""


@dataclass(frozen=True, slots=True)
class Window:
    """What one API server did for a while."""

    cpu: float
    """Seconds."""
    answering: float
    """Seconds of it on goroutines that answer requests."""
    lists: float
    requests: float
    """All that ended, lists among them; a watch counts when it ends."""
    megabytes: float
    """That it sent in answers and in events of watches."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure three windows and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resident.server", description=__doc__
    )
    parser.add_argument("size", nargs="?", default="1000:30000", metavar="NODES:PODS[:lean]")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each window")
    chosen = parser.parse_args(arguments)
    nodes, pods, *lean = chosen.size.split(":")
    seconds = 60 * chosen.minutes
    shape = Shape(nodes=int(nodes), pods=int(pods), lean=bool(lean), drifted=0.0, doubled=0.0)
    with ControlPlane(OPTIONS) as plane:
        fill(plane, shape, _say)
        reader, server = contenders.read_only(plane), plane.pid("kube-apiserver")
        settle([server, plane.pid("etcd")])
        idle = _window(plane, seconds, lambda: time.sleep(seconds))
        runs = _window(plane, seconds, lambda: _run_again_and_again(reader, seconds))
        with serving(reader, every=_PERIOD) as (process, log):
            # Its first lists are not a look at what it knows.
            plane.wait_until(lambda: _LOOKED in log.read_text(), 300, "a first look")
            settle([process.pid, server])
            before = log.read_text().count(_LOOKED)
            served = _window(plane, seconds, lambda: time.sleep(seconds))
            looks = log.read_text().count(_LOOKED) - before
    _say(_table({"none": idle, "CronJob": runs, f"`serve`, {looks} looks": served}))
    return 0


def _run_again_and_again(kubeconfig: Path, seconds: float) -> None:
    began = time.monotonic()
    for number in range(1, round(seconds / _PERIOD) + 1):
        if (ended := run([OURS, "run", *POLICY, f"--kubeconfig={kubeconfig}"])).status:
            raise RuntimeError(f"exit code {ended.status}: {ended.err[-2000:]}")
        time.sleep(max(0.0, began + number * _PERIOD - time.monotonic()))


def _window(plane: ControlPlane, seconds: float, passes: Callable[[], None]) -> Window:
    """Return what the API server does while ``passes``, which takes so many seconds, is called."""
    server, profiles = plane.pid("kube-apiserver"), list[bytes]()
    before, cpu = _counts(plane), cpu_seconds(server)
    profiler = threading.Thread(target=lambda: profiles.append(_profile(plane, seconds)))
    profiler.start()
    passes()
    used = cpu_seconds(server) - cpu
    profiler.join()
    done = {key: value - before[key] for key, value in _counts(plane).items()}
    answering = answering_seconds(profiles[0])
    window = Window(used, answering, done["lists"], done["requests"], done["bytes"] / 1e6)
    _say(f"{seconds:.0f} s: {window}")
    return window


def _profile(plane: ControlPlane, seconds: float) -> bytes:
    """Return a CPU profile of the API server over so many seconds."""
    pool = urllib3.PoolManager(ca_certs=str(plane.ca_file))
    answer = pool.request(
        "GET",
        f"{plane.url}/debug/pprof/profile?seconds={seconds:.0f}",
        headers={"Authorization": f"Bearer {plane.admin_token}"},
        timeout=seconds + 60,
        retries=False,
    )
    if answer.status != 200:
        raise RuntimeError(f"no profile: {answer.status} {answer.data[:200]!r}")
    return answer.data


def answering_seconds(profile: bytes) -> float:
    """Return the CPU seconds of a Go program on goroutines that answer HTTP requests."""
    with tempfile.NamedTemporaryFile(suffix=".pprof") as file:
        file.write(profile)
        file.flush()
        command = ["go", "tool", "pprof", "-traces", "-unit=ms", file.name]
        traces = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    total = 0.0
    # A block for each stack: its time before the innermost function, then the functions that called it.
    for block in re.split(r"^-+\+-+$", traces, flags=re.MULTILINE):
        if _ANSWERS.search(block) and (
            time_of := re.search(r"^\s*([\d.]+)ms\s", block, re.MULTILINE)
        ):
            total += float(time_of[1]) / 1000
    return total


def _counts(plane: ControlPlane) -> dict[str, float]:
    counts = {"lists": 0.0, "requests": 0.0, "bytes": 0.0}
    for family in text_string_to_metric_families(plane.api.get("/metrics")):
        for one in family.samples:
            if one.name == "apiserver_request_total" and one.labels["resource"] != "leases":
                counts["requests"] += one.value
                counts["lists"] += one.value if one.labels["verb"] == "LIST" else 0.0
            elif one.name in _SENT:
                counts["bytes"] += one.value
    return counts


def _table(windows: dict[str, Window]) -> str:
    lines = [
        "| client | CPU s of the API server | of them answering | lists | requests | MB sent |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {who} | {one.cpu:.1f} | {one.answering:.2f} | {one.lists:.0f} | {one.requests:.0f} | {one.megabytes:.1f} |"
        for who, one in windows.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
