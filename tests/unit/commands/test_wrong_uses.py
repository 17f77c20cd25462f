"""What people type and hand over by mistake: one line that says what to do, and the exit code for it."""

import json
import socket
import zipfile

import click
import pytest

from rebalancer.cli import main
from tests.docs.pages import ROOT
from tests.unit.commands.called import called

EXAMPLE = str(ROOT / "docs" / "examples" / "zone-back.zip")
CAPACITY = str(ROOT / "docs" / "examples" / "capacity.zip")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "--strategy", "dup"], "unknown strategy dup; did you mean duplicates?"),
        (
            ["plan", "--set", "scheduler.version=1"],
            '"1" is no Kubernetes version; write it like 1.36',
        ),
        (["plan", "--set", 'select={namespaces: ["shop-[ab"]}'], '"shop-[ab" is no namespace'),
        (["plan", "--set", "select={namespaces: ['[]']}"], '"[]" is no namespace'),
        (["explain", "pod", "api"], "did you mean default/api-"),
        (["plan", "--set", "windows=[{allow: '60 * * * *', for: 1h}]"], "minutes are 0-59"),
        (["plan", "--set", "windows=[{allow: '0 0 31 2 *', for: 1h}]"], "have to be in the months"),
    ],
)
def test_it_is_said_what_to_do(words, says):
    done = called(*words, f"--snapshot={EXAMPLE}")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_name_with_a_capital_is_that_of_a_code_and_needs_no_cluster():
    assert called("explain", "NoRoom").stdout == called("explain", "code", "NoRoom").stdout
    assert "there is no code 'NoRom'; did you mean NoRoom?" in called("explain", "NoRom").stderr


@pytest.mark.parametrize("path", ["ours/", "new/", "ours"])
@pytest.mark.parametrize(
    "words",
    [
        ["policy", "migrate", "descheduler.yaml", "-o"],
        ["snapshot", "-o"],
        ["plan", f"--snapshot={EXAMPLE}", "--out"],
        ["run", f"--snapshot={EXAMPLE}", "--metrics-file"],
        ["demo", "--report"],
    ],
)
def test_a_directory_is_no_file_to_write(words, path, tmp_path, monkeypatch):
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path)
    done = called(*words, path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} is a directory: name a file" in done.stderr
    assert [one.name for one in tmp_path.rglob("*")] == ["ours"]


def test_a_version_on_the_command_line_is_the_text_that_was_typed():
    for typed in ("1.40", '"1.40"'):
        done = called("plan", f"--snapshot={EXAMPLE}", "--set", f"scheduler.version={typed}")
        assert done.returncode == 0
        assert "Kubernetes 1.40 is outside" in " ".join(done.stdout.split())


def test_a_snapshot_is_no_plan():
    done = called("apply", EXAMPLE, "--dry-run")
    assert done.returncode == 2
    assert f"{EXAMPLE}: is a zip archive, such as a snapshot, and no plan" in done.stderr


def test_a_snapshot_of_another_version_is_named_as_such(tmp_path):
    later = tmp_path / "later.zip"
    with zipfile.ZipFile(EXAMPLE) as old, zipfile.ZipFile(later, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "manifest.json":
                text = json.dumps(json.loads(text) | {"apiVersion": "rebalancer/v2"}).encode()
            new.writestr(name, text)
    done = called("plan", f"--snapshot={later}")
    assert done.returncode == 2
    assert "apiVersion rebalancer/v2: this version of kube-rebalancer reads" in done.stderr


@pytest.mark.parametrize(
    ("member", "change", "says"),
    [
        (
            "manifest.json",
            lambda text: text.replace(b'"rebalancer/v1"', b"1"),
            "manifest.json: apiVersion: has to be a text, and is a whole number",
        ),
        ("PodList.json", lambda text: text[:200], "later.zip: PodList.json: it has 200 bytes"),
    ],
)
def test_a_damaged_snapshot_is_named_once_and_in_words(member, change, says, tmp_path):
    later = tmp_path / "later.zip"
    with zipfile.ZipFile(EXAMPLE) as old, zipfile.ZipFile(later, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, change(text) if name == member else text)
            assert name != member or change(text) != text
    done = called("plan", f"--snapshot={later}")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count(member) == 1
    assert "`" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan", "-o", "JSON"], "'JSON' is not one of 'table', 'wide', 'json',"),
        (["plan", "-o", "JSON"], "; did you mean json? See rebalancer plan --help"),
        (["demo", "drift", "zone-bak"], "; did you mean zone-back? See"),
        (["completion", "bsh"], "; did you mean bash? See"),
        (
            ["simulate", EXAMPLE, "--lose-zone=zoneb"],
            "no node is in this zone; did you mean zone-b?",
        ),
        (
            ["simulate", EXAMPLE, "--lose-zone=x"],
            "no node is in this zone; known here: zone-a, zone-b, zone-c",
        ),
        (
            ["explain", "node", "c1", f"--snapshot={EXAMPLE}"],
            "there is no such node; did you mean node-c1?",
        ),
    ],
)
def test_what_was_meant_is_suggested_in_the_words_of_all_errors(words, says):
    done = called(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says", "command"),
    [
        (["plan", "--polcy=x"], "no such option", "rebalancer plan"),
        (
            ["plan", "--mode=on"],
            "invalid value for '--mode': 'on' is not one of",
            "rebalancer plan",
        ),
        (
            ["drain", "--grace-period"],
            "option '--grace-period' requires an argument.",
            "rebalancer drain",
        ),
        (["plan", "-o"], "option '-o' requires an argument.", "rebalancer plan"),
        (["explain", "pod", "-o"], "option '-o' requires an argument.", "rebalancer explain pod"),
        (["plann"], "no such command 'plann'; did you mean plan?", "rebalancer"),
        (["get", "pods"], "no such command 'get'; did you mean explain?", "rebalancer"),
        (["status"], "no such command 'status'; did you mean doctor?", "rebalancer"),
        (["xyz"], "no such command 'xyz'.", "rebalancer"),
        (["policy", "chek"], "no such command 'chek'; did you mean check?", "rebalancer policy"),
        (
            ["plan", "--snapsho=x"],
            "no such option '--snapsho'; did you mean --snapshot?",
            "rebalancer plan",
        ),
        (["plan", "--server"], "no such option '--server'; did you mean --sel", "rebalancer plan"),
        (["demo", "drift"], "missing argument", "rebalancer demo drift"),
    ],
)
def test_a_wrong_use_is_one_line_that_names_the_help(words, says, command):
    done = called(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rebalancer: {says}")
    assert done.stderr.endswith(f" See {command} --help\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["run"],
        ["run", "--yes"],
        ["capacity"],
        ["doctor"],
        ["advise"],
        ["simulate", "--cycles=1"],
    ],
    ids=" ".join,
)
def test_a_command_that_reads_a_snapshot_takes_it_as_an_argument(words):
    by_flag = called(*words, f"--snapshot={EXAMPLE}", "-o", "markdown")
    assert by_flag.returncode == 0, by_flag.stderr
    assert called(*words, EXAMPLE, "-o", "markdown") == by_flag
    assert called(*words, EXAMPLE, f"--snapshot={EXAMPLE}", "-o", "markdown") == by_flag
    of_two = called(*words, "other.zip", f"--snapshot={EXAMPLE}")
    assert (of_two.returncode, of_two.stdout) == (2, "")
    assert f"other.zip and --snapshot {EXAMPLE}: name one file" in of_two.stderr


@pytest.mark.parametrize(
    ("words", "hints"),
    [
        (["explain", "pod", "web-0", EXAMPLE], True),
        (["explain", "node", "node-a1", EXAMPLE], True),
        (["apply", "plan.json", EXAMPLE], True),
        (["policy", "check", "policy.yaml", EXAMPLE], True),
        (["policy", "check", "policy.yaml", EXAMPLE, "--snapshot=other.zip"], False),
        (["policy", "show", EXAMPLE], False),
        (["plan", "other.zip", EXAMPLE], False),
        (["explain", "pod", "web-0", EXAMPLE, "--snapshot=other.zip"], False),
    ],
)
def test_where_a_file_may_be_something_else_the_flag_is_named(words, hints):
    done = called(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"got unexpected extra argument ({EXAMPLE})" in done.stderr
    assert ("; a snapshot is named by --snapshot FILE." in done.stderr) == hints


def test_a_file_completes_names_as_the_flag_does():
    command = main.get_command(click.Context(main), "simulate")
    assert command is not None
    context = command.make_context("simulate", [EXAMPLE], resilient_parsing=True)
    (flag,) = (one for one in command.params if one.name == "cordon")
    assert [one.value for one in flag.shell_complete(context, "node-a1")] == ["node-a1"]


def test_a_file_without_end_is_refused_at_its_beginning():
    done = called("plan", "--snapshot=/dev/zero")
    assert done.returncode == 2
    assert "/dev/zero: is no text, and no zip archive" in done.stderr


@pytest.mark.parametrize(
    "words", [["plan"], ["run", "--yes"], ["snapshot", "-o", "x.zip"], ["marks"]], ids=" ".join
)
def test_a_server_that_accepts_and_is_silent_is_left(words, tmp_path):
    file = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(
            f"{{current-context: a, contexts: [{{name: a, context: {{cluster: a}}}}], "
            f"clusters: [{{name: a, cluster: {{server: '{server}'}}}}]}}"
        )
        done = called(*words, f"--kubeconfig={file}", "--request-timeout=1s")
    assert done.returncode == 3
    assert f"{server} was given up: it has not answered within 1 s" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_time_for_requests_that_is_none_is_refused():
    done = called("plan", "--request-timeout=0.5")
    assert done.returncode == 2
    assert "'0.5' is shorter than 1s" in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (":::", "is not a kubeconfig: expected clusters, contexts and users"),
        ("{}", "is empty"),
        ("current-context: {a: b}\ncontexts: []", "current-context is not a name"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: {x: 1}}}]",
            "cluster of context a is not a name",
        ),
        (
            (
                "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: [u]}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]"
            ),
            "user of context a is not a name",
        ),
        (
            (
                "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
                "users: [{name: u, user: {exec: {command: is-not-there, interactiveMode: Never,"
                " apiVersion: client.authentication.k8s.io/v1}}}]"
            ),
            "failed: there is no program is-not-there: is it on the PATH?",
        ),
    ],
)
def test_a_kubeconfig_that_is_none_is_named_as_such(tmp_path, text, says):
    config = tmp_path / "config"
    config.write_text(text)
    done = called("plan", f"--kubeconfig={config}", "-q")
    assert (done.returncode, done.stdout) == (3, "")
    assert says in done.stderr


def test_a_plan_made_with_flags_names_them_where_it_is_applied_without(tmp_path):
    plan = tmp_path / "plan.json"
    of_file = f"--snapshot={EXAMPLE}"
    flags = ("--set", "protect.minPodAge=0s", "--strategy", "topology-spread")
    assert called("plan", of_file, f"--out={plan}", *flags).returncode == 0
    done = called("apply", str(plan), of_file, "--dry-run")
    given = "--set protect.minPodAge=0s --strategy topology-spread"
    assert done.returncode == 2
    assert f"(built-in default, changed by {given})" in done.stderr
    assert f"give the same --policy, and {given}" in done.stderr
    assert called("apply", str(plan), of_file, *flags).returncode == 0


def test_a_run_points_to_the_command_about_pending_pods():
    shown = " ".join(called("plan", f"--snapshot={CAPACITY}").stdout.split())
    assert "4 pods are pending: `rebalancer capacity` says which machines they need." in shown
