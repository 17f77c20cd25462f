"""What is noted of a process that the storm runs."""

import os
import signal
import subprocess
import time

from tests.controlplane import wait_until
from tests.storm.product import Process
from tests.storm.witnesses import Ran


def test_the_end_of_a_process_is_when_it_ends_and_not_when_it_is_waited_for(tmp_path):
    ran = Ran("main", "main-1", 1.0, time.time())
    process = Process(ran, ["sh", "-c", "exit 3"], os.environ, tmp_path / "main-1", "")
    wait_until(lambda: process.ended, 60, "its end")
    time.sleep(1)
    waited = time.time()
    assert process.wait(0.0).code == 3
    assert ran.ended < waited


def test_what_it_waits_for_a_processor_is_noted(tmp_path):
    """As long as it runs: one that spins beside another on each processor waits for its share."""
    ran = Ran("main", "main-1", 1.0, time.time())
    spin = ["sh", "-c", "while :; do :; done"]
    others = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        process = Process(ran, spin, os.environ, tmp_path / "main-1", "")
        wait_until(lambda: ran.starved_since(0.0) > 0.05, 60, "a processor taken by another")
        process.signal(signal.SIGKILL)
        process.wait(1.0)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert ran.starved_since(ran.ended) == 0.0
