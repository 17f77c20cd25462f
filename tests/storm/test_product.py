"""What is noted of a process that the storm runs."""

import os
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
