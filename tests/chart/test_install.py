"""``make install``: what it asks of kubectl and Helm, and in which order. Both are stand-ins that write down their calls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from image import oci

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """#!{python}
import json, pathlib, sys
name, words = pathlib.Path(sys.argv[0]).name, " ".join(sys.argv[1:])
folder = pathlib.Path({folder!r})
given = sys.stdin.read() if "--filename=-" in sys.argv else ""
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([name, words, given]) + "\\n")
for part, (code, out, err) in json.loads((folder / "answers").read_text()).items():
    if part in words:
        sys.stdout.write(out)
        sys.stderr.write(err)
        sys.exit(code)
"""
JOB = {
    "metadata": {"name": "now", "ownerReferences": [{"kind": "CronJob"}]},
    "spec": {"template": {"spec": {"containers": [{"args": ["run", "--yes"]}]}}},
}
ANSWERS = {
    "auth can-i": (0, "yes\n", ""),
    "list --deployed": (0, "", ""),
    "create job": (0, json.dumps(JOB), ""),
    "create --filename": (0, "job.batch/kube-rebalancer-now-x1\n", ""),
    "get job": (0, "SuccessCriteriaMet Complete", ""),
    "logs job": (0, "Plan: 3 evictions\n", ""),
}


@pytest.fixture
def installing(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("helm", "kubectl"):
        stand_in = programs / name
        stand_in.write_text(STAND_IN.format(python=sys.executable, folder=str(tmp_path)))
        stand_in.chmod(0o755)
    (tmp_path / "root" / "usr").mkdir(parents=True)
    (tmp_path / "root" / "usr" / "file").write_text("content")
    archive = tmp_path / "image.tar"
    oci.write(tmp_path / "root", archive, "localhost/x:1", entrypoint=["/x"])

    def install(more=None, *flags, archives=(str(archive),)):
        (tmp_path / "answers").write_text(json.dumps(ANSWERS | (more or {})))
        (tmp_path / "calls").write_text("")
        command = [sys.executable, "-m", "image.install", *archives, "--address=127.0.0.1:0"]
        done = subprocess.run(
            [*command, *flags],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": str(programs)},
        )
        calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
        return done, calls

    return install


def upgrade_of(calls):
    (words,) = (words for name, words, _ in calls if name == "helm" and "upgrade" in words)
    return words


def test_a_new_release_only_reports_and_its_first_report_is_of_a_dry_run(installing):
    done, calls = installing()
    assert done.returncode == 0, done.stderr
    assert "--set=mode=observe" in upgrade_of(calls)
    assert "runNow" not in upgrade_of(calls)
    assert "Plan: 3 evictions" in done.stdout
    assert "moves nothing" in done.stdout
    (made,) = (json.loads(given) for _, words, given in calls if "create --filename" in words)
    assert made["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--dry-run"
    assert made["metadata"]["generateName"] == "kube-rebalancer-now-"
    assert made["metadata"]["name"] is None
    # The CronJob's limits of history remove it.
    assert made["metadata"]["ownerReferences"]


def test_a_release_that_is_there_keeps_its_values_but_for_the_image(installing):
    done, calls = installing({"list --deployed": (0, "kube-rebalancer\n", "")})
    assert done.returncode == 0, done.stderr
    words = upgrade_of(calls)
    assert "--reset-then-reuse-values" in words
    assert "mode=" not in words
    assert words.count("--set=") == words.count("--set=image.") == 2
    assert "has kept its values" in done.stdout
    assert "moves nothing" not in done.stdout


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((1, "", 'error: context "nosuch" does not exist\n'), 'context "nosuch" does not exist'),
        ((1, "no\n", ""), "may not create ClusterRoles"),
    ],
)
def test_where_it_cannot_install_it_says_so_before_anything_else(installing, answer, says):
    for archives in ((), ("nowhere.tar",)):
        more = {"auth can-i": answer}
        done, calls = installing(more, "--context=nosuch", archives=archives)
        assert done.returncode == 1
        assert says in done.stderr
        assert [name for name, *_ in calls] == ["kubectl"]
        assert "--context=nosuch" in calls[0][1]


def test_without_an_archive_it_only_checks(installing):
    done, calls = installing(archives=())
    assert done.returncode == 0, done.stderr
    assert len(calls) == 1


def test_what_helm_refuses_is_no_failure_of_a_run(installing):
    done, calls = installing({"upgrade": (1, "", "Error: UPGRADE FAILED: conflict\n")})
    assert done.returncode == 1
    assert "UPGRADE FAILED: conflict" in done.stderr
    assert "Helm has failed" in done.stderr
    assert "first run" not in done.stderr
    assert not [words for _, words, _ in calls if "create job" in words]


def test_a_run_that_fails_is_shown_and_said_to_have_failed(installing):
    done, _ = installing({"get job": (0, "FailureTarget Failed", "")})
    assert done.returncode == 1
    assert "Plan: 3 evictions" in done.stdout
    assert "the first run has not ended well" in done.stderr


def test_of_a_deployment_the_log_is_shown(installing):
    gone = {"create job": (1, "", "not found"), "logs deployment": (0, "Plan: served\n", "")}
    done, _ = installing(gone)
    assert done.returncode == 0, done.stderr
    assert "Plan: served" in done.stdout


def test_make_checks_the_cluster_before_it_builds_the_image():
    made = ["make", "--dry-run", "--always-make", "install", "CONTEXT=nosuch"]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    first, *rest = (line for line in done.stdout.splitlines() if "image." in line)
    assert "-m image.install --context=nosuch" in first
    assert any("-m image.oci" in line for line in rest)
    assert "-m image.install dist/" in rest[-1]
