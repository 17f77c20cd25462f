"""``policy migrate``: files, standard input, ConfigMaps, directories, exit codes."""

import contextlib
import json
import os
import subprocess
import sys
from io import BytesIO, StringIO
from typing import NamedTuple

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import RebalancerError
from rebalancer.commands.policy import migrate
from rebalancer.policy.forms import MODELINE
from tests.unit.commands.called import called

POLICY = """apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- pluginConfig:
  - {name: RemoveDuplicates}
  - {name: RemoveFailedPods}
  plugins:
    balance: {enabled: [RemoveDuplicates]}
    deschedule: {enabled: [RemoveFailedPods]}
maxNoOfPodsToEvictTotal: 7
"""
LOST = "differs: RemoveFailedPods: pods of a Job stay"


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(file, output=None, *, stdin=""):
    out, err = StringIO(), StringIO()
    environment = Environment(SystemClock(), {}, out, err)
    target = None if output is None else str(output)
    try:
        code = int(migrate(str(file), target, BytesIO(stdin.encode()), environment))
    except RebalancerError as error:
        code = int(error.exit_code)
        err.write(f"{error}\n")
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def test_a_file_becomes_a_policy_on_standard_output_and_notes_on_standard_error(source):
    done = run(source)
    assert done.returncode == 0
    assert done.stdout.removeprefix(MODELINE).startswith(
        "# Migrated from a policy of the descheduler (descheduler/v1alpha2).\n"
        f"# - line 6: profiles[0].pluginConfig[1].args: {LOST}"
    )
    assert done.stdout.endswith(
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perRun: 7}\nstrategies:\n  duplicates: {}\n  failed-pods: {}\n"
    )
    assert done.stderr.startswith(f"{source}:6: profiles[0].pluginConfig[1].args: {LOST}")


@pytest.mark.parametrize(("edit", "code"), [("", 0), ("profile: b\n", 2)])
def test_the_command_line_does_the_same(source, tmp_path, edit, code):
    source.write_text(POLICY + edit)
    done = called("policy", "migrate", str(source), "-o", str(tmp_path / "x"))
    assert (done.returncode, done.stdout) == (code, "")
    expected, target = run(source), tmp_path / "x"
    written = f"rebalancer: {target} is written; `rebalancer plan --policy {target}` shows what it would move\n"
    assert done.stderr == (f"rebalancer: {expected.stderr}" if code else expected.stderr + written)
    assert (tmp_path / "x").exists() == (code == 0)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_notes_are_printed_once_where_both_streams_end_at_one_place(source, terminal):
    read, written = os.openpty() if terminal else os.pipe()
    call = [sys.executable, "-m", "rebalancer", "policy", "migrate", str(source)]
    process = subprocess.Popen(call, stdout=written, stderr=written)
    os.close(written)
    printed = b""
    # The end of a terminal without a writer is an error.
    with contextlib.suppress(OSError):
        while part := os.read(read, 65536):
            printed += part
    os.close(read)
    assert process.wait(60) == 0
    assert printed.decode().count("RemoveFailedPods: pods") == 1
    assert "perRun: 7" in printed.decode()


def test_standard_input_is_read_and_the_same_bytes_come_out(source):
    done = run("-", stdin=POLICY)
    assert done.stdout == run(source).stdout
    assert done.stderr.startswith("standard input:6: ")


def config_map(text):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": text}


def test_a_config_map_is_read_with_the_lines_of_its_own_file():
    text = "".join(f"    {line}\n" for line in POLICY.splitlines())
    manifest = f"apiVersion: v1\nkind: ConfigMap\ndata:\n  policy.yaml: |\n{text}metadata: {{}}\n"
    done = run("-", stdin=manifest)
    assert done.returncode == 0
    assert "duplicates: {}" in done.stdout
    assert done.stderr.startswith(f"standard input:10: profiles[0].pluginConfig[1].args: {LOST}")
    broken = run("-", stdin=manifest.replace("plugins:", "plugns:"))
    assert broken.stderr == (
        "standard input:11: profiles[0].plugns: unknown key; did you mean plugins?\n"
    )


def test_in_json_a_config_map_has_the_line_of_its_key():
    done = run("-", stdin=json.dumps(config_map({"any.yaml": POLICY}), indent=1))
    assert done.returncode == 0
    assert done.stderr.startswith("standard input:8: profiles[0].pluginConfig[1].args: ")


def test_output_goes_to_a_file(source, tmp_path):
    target = tmp_path / "ours.yaml"
    done = run(source, target)
    assert (done.returncode, done.stdout) == (0, "")
    assert target.read_text() == run(source).stdout


def test_a_file_that_may_have_been_edited_is_not_replaced(source, tmp_path):
    target = tmp_path / "ours.yaml"
    target.write_text("# by hand\n")
    done = run(source, target)
    assert (done.returncode, done.stderr) == (
        2,
        f"{target}: exists already: name a new file, or remove this one\n",
    )
    assert target.read_text() == "# by hand\n"
    target.write_text("")
    assert run(source, target).returncode == 0, "an empty one of mktemp has nothing to lose"


def test_what_cannot_be_read_or_written_is_said(source, tmp_path):
    assert run(tmp_path / "none").stderr == (
        f"{tmp_path}/none: cannot be read (No such file or directory)\n"
    )
    done = run(source, tmp_path / "none" / "x.yaml")
    assert (done.returncode, "cannot be written" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("plugin", "values"),
    [
        ("{name: RemoveDuplicates}", ""),
        ("{name: HighNodeUtilization, args: {thresholds: {cpu: 20}}}", "--set rbac.marks=true"),
        ("{name: LowNodeUtilization, args: {thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, metricsUtilization: {metricsServer: true}}}", "--set rbac.usage=true"),
    ],
)  # fmt: skip
def test_the_last_note_and_a_comment_are_the_values_of_the_chart_that_the_policy_needs(
    plugin, values
):
    name = plugin.removeprefix("{name: ").partition(",")[0].rstrip("}")
    text = f"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n- pluginConfig: [{plugin}]\n  plugins: {{balance: {{enabled: [{name}]}}}}\n"
    done = run("-", stdin=text)
    line = f"as existingPolicy of the chart it needs {values}"
    assert (done.stderr.splitlines()[-1] == line) == bool(values)
    comments = [one for one in done.stdout.splitlines() if one.startswith("#")]
    assert (comments[-1] == f"# - {line}") == bool(values)
    assert ("existingPolicy" in done.stdout) == bool(values)
