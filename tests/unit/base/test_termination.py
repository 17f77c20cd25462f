"""Signals: before anything is moved they end a command soon, afterwards they are waited for."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.embedded.apiserver.http import Fault
from rebalancer.testing.objects import node, pod
from tests.unit.commands.embedded import MEMORY, NOW_POLICY, third_zone_joined

SECONDS = 600


PATIENT = """
from rebalancer.__main__ import main
from rebalancer.kube import client
client.LAST_WORDS = 600.0
main()
"""
"""The command, on a machine that may be too busy for the seconds that it has after a signal."""


LINE = "rebalancer: stopped by a signal; nothing was moved"


@contextlib.contextmanager
def reading(tmp_path: Path, *command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a command on a snapshot file without end; yield it once it reads, and the file's writing end."""
    fifo = tmp_path / "snapshot.json"
    os.mkfifo(fifo)
    arguments = [sys.executable, "-m", "rebalancer", *command, f"--snapshot={fifo}"]
    piped = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=piped, stderr=piped, text=True) as process:
        try:
            # Opened for writing only once the command has opened it for reading.
            yield process, os.open(fifo, os.O_WRONLY)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("command", "number"),
    [("run", signal.SIGTERM), ("plan", signal.SIGINT), ("simulate", signal.SIGTERM)],
)
def test_what_reads_is_left_at_once(tmp_path, command, number):
    with reading(tmp_path, command) as (process, writing):
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
        os.close(writing)
    assert (process.returncode, out, err.strip()) == (130, "", LINE)


IN_A_CALL = """
import importlib, os, signal, sys, threading
from rebalancer.__main__ import main
module, _, name = sys.argv.pop(1).rpartition(".")
def hang(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()
if module:
    home = importlib.import_module(module)
    real = getattr(home, name)
    def after(*words):
        real(*words)
        hang()
    setattr(home, name, after if name == "call" else hang)
else:
    class Finder:
        def find_spec(self, asked, *_):
            if asked == name:
                hang()
    sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize(
    "where",
    [
        "click",
        "numpy",
        "rebalancer.run.one_run.run_context",
        "rebalancer.run.one_run.make_plan",
        "rebalancer.planner.search.search",
        "rebalancer.planner.plan.stopped",
        "rebalancer.run.ending.render",
        "rebalancer.cli.call",
    ],
)
def test_ctrl_c_is_one_line_and_one_exit_code_whenever_it_comes(tmp_path, where):
    """While modules are imported, a plan is made, explained and printed, and when the command itself has ended."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": [node("n1"), pod("web")]}))
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALL, where, "plan", f"--snapshot={file}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (130, LINE)


def test_at_a_prompt_that_completes_ctrl_c_says_nothing():
    asks = {
        "_REBALANCER_COMPLETE": "bash_complete",
        "COMP_WORDS": "rebalancer p",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CALL, "click", "plan"],
        env={**os.environ, **asks},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert done.returncode == 130


SCRIPT = """
import sys, threading, time
from rebalancer.base.environment import system_environment
environment = system_environment(patience=0.05)
if sys.argv[1] == "committed":
    environment.committed.set()
try:
    print("ready", flush=True)
    environment.stop.wait()
    if sys.argv[1] == "committed":
        # Longer than the patience.
        threading.Event().wait(0.5)
    else:
        threading.Event().wait()
except KeyboardInterrupt:
    print("left")
else:
    print("ended by itself")
"""


@pytest.mark.parametrize(
    ("state", "end"), [("not yet", "left\n"), ("committed", "ended by itself\n")]
)
def test_patience_ends_only_before_anything_is_moved(state, end):
    arguments = [sys.executable, "-c", SCRIPT, state]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, end)


WHILE_IT_WAITS = """
import os, signal
from rebalancer.base.environment import system_environment
environment = system_environment(patience=60)
# What a wait for the stop does in its critical moments.
with environment.stop._cond:
    os.kill(os.getpid(), signal.SIGTERM)
environment.stop.wait()
environment.committed.set()
"""


def test_a_signal_in_the_middle_of_a_wait_for_it_ends_the_wait():
    subprocess.run([sys.executable, "-c", WHILE_IT_WAITS], timeout=SECONDS, check=True)


IN_ANOTHER_THREAD = """
import os, signal, threading
from rebalancer.base.environment import system_environment
environment = system_environment(patience=60)
blocked, _ = os.pipe()
def receive():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.pthread_kill(threading.get_ident(), number)
try:
    threading.Thread(target=receive).start()
    os.read(blocked, 1)
except KeyboardInterrupt:
    print("left")
"""


def test_signals_that_another_thread_receives_end_a_blocking_call():
    """The same to the main thread as a signal that comes in the last microsecond before the call."""
    arguments = [sys.executable, "-c", IN_ANOTHER_THREAD]
    done = subprocess.run(arguments, timeout=SECONDS, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("left\n", "")


AT_THE_END = """
import os, signal, sys, time
from rebalancer.base.environment import system_environment
class Slow:
    def __del__(self, kill=os.kill, number=int(sys.argv[1]), own=os.getpid(), sleep=time.sleep):
        if number:
            kill(own, number)
        sleep(0.5)
# Deleted when Python ends, after it has given the signals their default actions back: longer than the patience.
slow = Slow()
environment = system_environment(patience=0.1)
environment.committed.set()
print("ready", flush=True)
environment.stop.wait()
"""


@pytest.mark.parametrize("late", [0, signal.SIGTERM, signal.SIGINT])
def test_no_signal_and_no_patience_ends_a_command_that_has_reported(late):
    arguments = [sys.executable, "-c", AT_THE_END, str(int(late))]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


# -- on a cluster, whatever hangs --------------------------------------------------------------------

ENDLESS = 300.0
"""Longer than a busy machine takes to start and end a process: what ends sooner has not waited for it."""
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "lease"},
    "spec": {},
}


def test_a_run_that_acts_reports_and_remembers_whatever_hangs(tmp_path):
    with third_zone_joined("web") as cluster:
        cluster.apply(LEASE)
        cluster.faults.add(Fault("POST", "/eviction$", delay=ENDLESS))
        policy = tmp_path / "policy.yaml"
        policy.write_text(NOW_POLICY)
        arguments = [
            *(sys.executable, "-c", PATIENT, "run", "--yes", f"--policy={policy}", "-ojson"),
            *(f"--kubeconfig={cluster.kubeconfig}", "--lease=default/lease"),
            f"--memory={MEMORY}",
        ]
        piped = subprocess.PIPE
        with subprocess.Popen(arguments, stdout=piped, stderr=piped, text=True) as process:
            until(lambda: cluster.faults.count_seen("POST", "/eviction$") > 0)
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=SECONDS)
            took = time.monotonic() - started
        (lease,) = cluster.objects("Lease", "default")
        (memory,) = cluster.objects("ConfigMap", "default")
    assert process.returncode == 4, err
    assert [move["outcome"] for move in json.loads(out)["moves"]] == ["lost"]
    assert took < ENDLESS
    assert not lease["spec"].get("holderIdentity")
    assert memory["data"]


@pytest.mark.parametrize(
    "command", [["run", "--yes"], ["explain", "node", "n-a"], ["snapshot", "-o-"]]
)
def test_what_reads_a_cluster_is_left_at_once(command):
    with third_zone_joined("web") as cluster:
        cluster.faults.add(Fault("GET", "/nodes$", delay=ENDLESS))
        arguments = [
            *(sys.executable, "-m", "rebalancer", *command),
            f"--kubeconfig={cluster.kubeconfig}",
        ]
        piped = subprocess.PIPE
        with subprocess.Popen(arguments, stdout=piped, stderr=piped) as process:
            until(lambda: cluster.faults.count_seen("GET", "/nodes$") > 0)
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=SECONDS)
            took = time.monotonic() - started
    assert process.returncode == 130
    assert command[0] == "snapshot" or out == b""
    assert err.decode().strip() == LINE
    assert took < ENDLESS


def test_the_deadline_ends_a_run_that_reads():
    with third_zone_joined("web") as cluster:
        cluster.faults.add(Fault("GET", "/nodes$", delay=ENDLESS))
        arguments = [
            sys.executable,
            "-m",
            "rebalancer",
            "run",
            "--yes",
            f"--kubeconfig={cluster.kubeconfig}",
        ]
        started = time.monotonic()
        done = subprocess.run(
            [*arguments, "--deadline=2"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        took = time.monotonic() - started
    assert done.returncode == 3
    assert "the run's deadline has passed" in done.stderr
    assert took < ENDLESS


def until(happened):
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)
