"""What a process of ours imports, and what settings it gives to the packages that it imports."""

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from rebalancer.testing.snapshots import node, workload

SETTINGS = ("OPENBLAS_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS")
# Prints modules and settings when main() has left the process.
WATCHED = f"""
import atexit, json, os, sys
settings = lambda: [os.environ.get(name) for name in {SETTINGS!r}]
atexit.register(lambda: print(json.dumps([sorted(sys.modules), settings()])))
from rebalancer.__main__ import main
main()
"""


@cache
def watched(*args, **environment):
    """Return the modules and the two settings at the end of a process."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *args],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in SETTINGS} | environment,
        timeout=600,
        check=True,
    )
    modules, settings = json.loads(done.stdout.splitlines()[-1])
    return set(modules), settings


@pytest.fixture
def snapshot(tmp_path):
    objects = [node("n-a", "a"), *workload("web", ["n-a"])]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


def test_help_imports_no_array_and_no_policy():
    modules, _ = watched("--help")
    unused = {"numpy", "pydantic", "yaml", "msgspec", "rich", "jinja2", "rebalancer.commands.run"}
    assert not unused & modules


AGENT = """
import sys
import rebalancer.machines.aws.agent, rebalancer.commands.node_agent
ours = [name for name in sys.modules]
from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.kube.client import connect
connect(kubeconfig=sys.argv[1], context=None, environ={}, stop=Stop(SystemClock()))
assert False, "-OO leaves this out"
# Not getrusage(): its figure counts what the process that started this one had.
[most] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(most, *ours)
"""
KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}]}
"""


def test_the_agent_of_each_node_loads_no_policy_and_takes_at_most_64_mebibytes(
    tmp_path, pytestconfig
):
    """It runs once on every node, started as the chart does, and the chart asks for 64Mi of memory there."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    environment = {key: v for key, v in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    # Kept from run to run: to compile all that it imports takes two seconds.
    environment["PYTHONPYCACHEPREFIX"] = str(pytestconfig.cache.mkdir("compiled"))
    for _ in ("compiled", "as in the image"):
        done = subprocess.run(
            [sys.executable, "-OO", "-c", AGENT, str(kubeconfig)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=600,
            check=True,
        )
    kibibytes, *modules = done.stdout.split()
    assert not {"numpy", "pydantic", "rebalancer.registry"} & set(modules)
    ours = [name for name in modules if name.startswith("rebalancer.")]
    packages = {name.split(".")[1] for name in ours}
    own = {"aws", "machines", "base", "commands", "kube", "node_record", "run", "signals", "wire"}
    assert not packages - own
    assert len(ours) <= 40
    assert int(kibibytes) <= 64 * 1024


def test_a_run_imports_only_what_it_uses(snapshot):
    modules, _ = watched("run", f"--snapshot={snapshot}")
    assert {"numpy", "pydantic"} <= modules
    unused = {"croniter", "dateutil", "jinja2", "kubernetes", "urllib3", "ssl", "google.protobuf"}
    ours = {"run.execution.executor", "kube.client", "reviewing", "report.plan_file"}
    assert not (unused | {f"rebalancer.{name}" for name in ours}) & modules


def test_a_report_as_data_imports_nothing_that_lays_out_text(snapshot):
    modules, _ = watched("run", f"--snapshot={snapshot}", "--output=json")
    assert not {"rich", "jinja2", "rebalancer.report.summary"} & modules


def test_an_explanation_on_a_file_imports_no_client(snapshot):
    modules, _ = watched("explain", "node", "n-a", f"--snapshot={snapshot}")
    unused = {"croniter", "html", "kubernetes", "urllib3", "ssl", "google.protobuf"}
    assert not (unused | {"rebalancer.run.execution.executor", "rebalancer.kube.client"}) & modules


def test_a_policy_with_windows_and_a_report_in_html_import_the_rest(snapshot, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\n"
        'windows: [{allow: "0 22 * * *", for: 8h}]\nstrategies: {duplicates: {}}\n'
    )
    modules, _ = watched("run", f"--snapshot={snapshot}", f"--policy={policy}", "--output=html")
    assert {"croniter", "jinja2"} <= modules
    assert "rich" not in modules


@pytest.mark.parametrize("own", [None, "3"])
def test_threads_for_linear_algebra_are_not_started_unless_the_user_asks(own):
    given = {} if own is None else {"OPENBLAS_NUM_THREADS": own}
    _, settings = watched("--help", **given)
    assert settings == [own or "1", "__all__"]
