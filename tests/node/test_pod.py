"""The real pod: how it starts, what it may, what it uses, against what the chart asks for."""

import json
import re
import time

import pytest
import yaml

from tests.chart.helm import CHART
from tests.controlplane import wait_until
from tests.node.node import NAME

NEVER = "0 0 29 2 *"


@pytest.fixture
def drifted(ground):
    ground.drift()
    yield ground
    ground.clear()


def test_it_runs_as_nobody_on_a_read_only_root_without_any_capability(drifted):
    drifted.release().install(drifted.values(schedule=NEVER, mode="observe"))
    look = (
        "import json,os;"
        "status=dict(l.split(':\\t',1) for l in open('/proc/self/status') if ':\\t' in l);"
        "readonly=[l.split()[3].split(',')[0] for l in open('/proc/mounts') if l.split()[1]=='/'];"
        "print(json.dumps([os.getuid(), status['CapEff'].strip(), status['NoNewPrivs'].strip(),"
        " status['Seccomp'].strip(), readonly, os.path.exists('/bin/sh')]))"
    )
    drifted.start_job("look", command=["/usr/local/bin/python3"], args=["-I", "-c", look])
    pod = drifted.wait_finished("look")
    seen = json.loads(drifted.log(pod))
    # Seccomp 2: a filter is in force.
    assert seen == [65532, "0" * 16, "1", "2", ["ro"], False]


def test_with_observe_the_log_is_the_report_and_nothing_moves(drifted):
    before = drifted.zones()
    drifted.release().install(drifted.values(schedule=NEVER, mode="observe", output="json"))
    drifted.start_job("observe")
    pod = drifted.wait_finished("observe")
    log = drifted.log(pod)
    assert pod["status"]["phase"] == "Succeeded", log
    report = json.loads(log[log.index("{") :])
    assert report["dryRun"]
    assert len(report["moves"]) == 1
    assert drifted.zones() == before


def test_helm_test_runs_inside_and_checks_the_report(drifted):
    drifted.release().install(drifted.values(schedule=NEVER))
    before = drifted.zones()
    drifted.release().test()
    pod = drifted.pod_of("rebalancer-kube-rebalancer-test")
    assert pod is not None
    assert re.search(r"^\d+ nodes and \d+ pods were read", drifted.log(pod), re.MULTILINE)
    assert drifted.zones() == before


MEASURE = """
import os, subprocess, sys, time
def measure(*arguments):
    began = time.monotonic()
    run = [sys.executable, "-IB", "-m", "rebalancer", *arguments]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL)
    _, status, use = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{arguments}: {status}")
    took = time.monotonic() - began
    print("measured", arguments[0], took, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024)
for _ in range(5):
    measure("--version")
    measure(*sys.argv[1:])
"""


def test_it_starts_in_a_second_and_stays_within_its_requests(drifted, record_property):
    drifted.release().install(drifted.values(schedule=NEVER))
    arguments = ["-I", "-c", MEASURE, "run", "--yes", "--policy=/etc/rebalancer/policy"]
    drifted.start_job("measure", command=["/usr/local/bin/python3"], args=arguments)
    pod = drifted.wait_finished("measure")
    log = drifted.log(pod)
    assert pod["status"]["phase"] == "Succeeded", log
    samples = re.findall(r"^measured (\S+) (\S+) (\S+) (\S+)$", log, re.MULTILINE)
    # By what a start takes of a processor: that is the same on a machine that does much else, and it waits for nothing.
    starts = [float(cpu) for what, _, cpu, _ in samples if what == "--version"]
    runs = [tuple(map(float, numbers)) for what, *numbers in samples if what == "run"]
    assert (len(starts), len(runs)) == (5, 5)
    seconds, cpu, mebibytes = (sorted(column) for column in zip(*runs, strict=True))
    spread = {"start, CPU s": sorted(starts), "run, s": seconds, "CPU, s": cpu, "MiB": mebibytes}
    measured = {name: [round(value, 2) for value in values] for name, values in spread.items()}
    record_property("measured", measured)
    asked = yaml.safe_load((CHART / "values.yaml").read_text())["resources"]
    assert sorted(starts)[2] < 1, measured
    assert mebibytes[-1] < int(asked["requests"]["memory"].removesuffix("Mi")), measured
    # Over one period of two minutes.
    assert cpu[-1] / 120 * 1000 < int(asked["requests"]["cpu"].removesuffix("m")), measured


def test_the_pod_ends_by_itself_long_before_its_deadline(drifted, record_property):
    drifted.release().install(drifted.values(schedule=NEVER))
    started = time.monotonic()
    drifted.start_job("quick")
    pod = drifted.wait_finished("quick")
    # Five on a machine that does nothing else; the run's own deadline is after 75.
    record_property("seconds", round(time.monotonic() - started, 1))
    log = drifted.log(pod)
    assert pod["status"]["phase"] == "Succeeded", log
    assert "deadline" not in log
    assert pod["spec"]["nodeName"] == NAME
    wait_until(lambda: sorted(drifted.zones().values()) == [1, 1, 1], 5, "one pod per zone")
