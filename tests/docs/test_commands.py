"""Every command in README and docs works: on an embedded cluster whose third zone is back, page by page."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from image import oci
from rebalancer.embedded import demo
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.embedded.cluster import EmbeddedCluster
from rebalancer.embedded.engine import Durations
from rebalancer.policy.load import load_policy
from rebalancer.policy.namespace import KEY, read_namespace_policy
from rebalancer.registry import Registry
from rebalancer.run.memory.document import ActingRun, Document, MoveRecord, encode, with_acting_run
from tests.chart.helm import helm
from tests.controlplane import build
from tests.docs.pages import ROOT, commands, pages
from tests.release.make import Files
from tests.release.source import Source
from tests.support.cli import program as called_program

_SPEED = 30.0
_AGO = 7200.0
_KINDS = {
    "Node": "v1",
    "Pod": "v1",
    "PodDisruptionBudget": "policy/v1",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
}
"""Kind -> API version."""
_DESCHEDULER = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig: [{name: RemoveDuplicates}]
  plugins: {balance: {enabled: [RemoveDuplicates]}}
"""
KEPT = "docs/demo.md"
"""The page whose commands are for the cluster that its first command keeps."""
_ELSEWHERE = {
    "ctr": "make release imports the image and runs it",
    "podman": "tests/chart/test_image.py and tests/node carry the Containerfile's steps out",
}
"""Programs that are not run here -> where what they do is tested."""

RELEASED = Files(Path("dist/release"), Source(ROOT, 0).version)
"""What make release leaves: tests/release makes it, installs it and runs it."""


def texts(kind: str) -> list[tuple[str, list[str]]]:
    """Return each page that has commands of a program, or of ours, with these commands."""
    result = []
    for page in pages():
        mine = [
            each for each in commands(page.read_text(encoding="utf-8")) if program(each) == kind
        ]
        if mine:
            result.append((str(page.relative_to(ROOT)), mine))
    return result


def program(command: str) -> str:
    words = command.replace(".venv/bin/", "").split()
    return "rebalancer" if "rebalancer" in words and words[0] == "kubectl" else words[0]


def test_every_program_is_known():
    named = {
        program(each) for page in pages() for each in commands(page.read_text(encoding="utf-8"))
    }
    assert named == {
        "rebalancer",
        "make",
        "helm",
        "pip",
        "kubectl",
        "export",
        "source",
        *_ELSEWHERE,
    }


@pytest.fixture
def cluster():
    clock = EmbeddedClock(time.time() - _AGO, time.time)
    with EmbeddedCluster(clock, seed=7, timings=Durations().faster(_SPEED)) as running:
        demo.many_workloads(running)
        demo.zone_lost(running)
        demo.zone_back(running)
        running.catch_up()
        configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        running.apply(
            configmap, {**lease, "metadata": {"name": "rebalancer"}}, _memory_of_release()
        )
        running.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        yield running


def _memory_of_release() -> dict[str, Any]:
    """Return the memory that the chart makes, after a run that moved the pod of docs/operating.md."""
    move = MoveRecord(
        "default/api-5f75b8dbc7-hv9jk",
        "Deployment/default/api",
        "node-a1",
        "topology-spread",
        "zone-a 3, zone-b 3, zone-c 0",
        "evicted",
    )
    document = with_acting_run(Document(), ActingRun("one", int(time.time() - _AGO), "", (move,)))
    labels = {"app.kubernetes.io/name": "kube-rebalancer"}
    metadata = {"name": "kube-rebalancer-memory", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": encode(document)}


@pytest.fixture
def folder(tmp_path, cluster):
    """A checkout, as far as the commands see: what they write lands elsewhere."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "policy.yaml").write_text("apiVersion: rebalancer/v1\nkind: Policy\n")
    # In place of kubectl: what it would print of this cluster.
    items = [
        {"apiVersion": version, "kind": kind, **each}
        for kind, version in _KINDS.items()
        for each in cluster.objects(kind)
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    (tmp_path / "list.json").write_text(json.dumps(listed))
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.yaml": _DESCHEDULER}}
    (tmp_path / "configmap.yaml").write_text(yaml.safe_dump(configmap))
    kubectl = tmp_path / "bin" / "kubectl"
    for programs in (kubectl.parent, tmp_path / ".venv" / "bin"):
        programs.mkdir(parents=True)
        (programs / "rebalancer").symlink_to(called_program())
    kubectl.write_text(
        f'#!/bin/sh\ncase "$2" in configmap) cat {tmp_path}/configmap.yaml ;; *) cat {tmp_path}/list.json ;; esac\n'
    )
    kubectl.chmod(0o755)
    return tmp_path


_ASKING = ("rebalancer run", "rebalancer apply plan.json")
"""Commands of the pages that ask before they evict."""


def _answered(line: str) -> str:
    """Return a command with the yes that a person gives on the terminal, which a test has not."""
    return f"{line} --yes" if line.strip() in _ASKING else line


def _run(line: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell does."""
    shell = ["/bin/bash", "-o", "pipefail", "-c", line]
    return subprocess.run(
        shell, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


PAGES = [(page, lines) for page, lines in texts("rebalancer") if page != KEPT]


@pytest.mark.parametrize(("page", "lines"), PAGES, ids=[page for page, _ in PAGES])
def test_our_commands_work(page, lines, folder, cluster):
    environ = {
        "PATH": f"{folder}/bin:{sys.prefix}/bin:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "HOME": str(folder),
    }
    for line in lines:
        done = _run(_answered(line), folder, environ)
        assert done.returncode == 0, f"{page}: {line}\n{done.stdout}\n{done.stderr}"
        if ">" in line:
            assert (folder / line.rpartition(">")[2].strip()).stat().st_size > 0, line


def test_the_image_that_a_node_imports_is_the_release_s():
    ((_, lines),) = texts("ctr")
    files = {line.rpartition(" ")[2] for line in lines}
    of_any_machine = {str(RELEASED.image).replace(oci.architecture(), "amd64")}
    assert files == of_any_machine


@pytest.fixture
def playground(tmp_path):
    """The environment of another terminal, after the first command of the page."""
    environ = {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    first, *_ = dict(texts("rebalancer"))[KEPT]
    assert first == "rebalancer demo --keep"
    with subprocess.Popen(
        first.split(), cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "An embedded cluster is at" in process.stdout.readline()
        ((variable, _, file),) = [
            line.removeprefix("export ").partition("=") for _, (line,) in texts("export")
        ]
        path = f"{called_program().parent}:{environ['PATH']}"
        yield {**environ, "PATH": path, variable: str(tmp_path / file)}
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().endswith("The cluster is gone.\n")
    assert process.returncode == 0


def printed(line: str, environ: dict[str, str]) -> str:
    return subprocess.run(
        ["/bin/bash", "-c", line], env=environ, capture_output=True, text=True, check=True
    ).stdout


def test_a_person_can_play_with_the_kept_cluster(playground):
    _, look, _, run, again, drift, lifted = dict(texts("rebalancer"))[KEPT]
    assert "7 evictions" in printed(look, playground)
    assert "7 pods evicted" in printed(_answered(run), playground)
    # On a busy machine a replacement may land elsewhere, in another order than planned: it is too young to go again.
    assert re.match("Nothing (to do|can be gained yet)", printed(again, playground))
    assert printed(drift, playground) == "zone-c was lost and is back, empty.\n"
    assert " evictions in " in printed(lifted, playground)


@pytest.fixture
def kubectl():
    """Return the program; built before there is a cluster, whose ages are looked at."""
    return str(build.binary("kubectl"))


@pytest.mark.e2e  # kubectl is built from Go modules
def test_kubectl_accepts_the_kept_cluster(kubectl, playground):
    wide, cordon, listed, drain, uncordon, scale, rolled = [
        line.replace("kubectl", kubectl) for line in dict(texts("kubectl"))[KEPT]
    ]
    shown = printed(wide, playground)
    assert re.search(r"NAME +STATUS +AGE +ZONE\nnode/node-a1 +Ready +2h +zone-a\n", shown)
    assert re.search(r"\npod/api-\S+ +1/1 +Running +1h5\dm +node-\w+\n", shown)
    assert "node-a1 cordoned" in printed(cordon, playground)
    assert len(json.loads(printed(listed, playground))["items"]) == 6
    assert "node-a2 drained" in printed(drain, playground)
    assert "node-a2 uncordoned" in printed(uncordon, playground)
    assert "deployment.apps/api scaled" in printed(scale, playground)
    assert "successfully rolled out" in printed(rolled, playground)
    made = f"{kubectl} create deployment more --image=nginx"
    refused = subprocess.run(
        made.split(), env=playground, capture_output=True, text=True, check=False
    )
    assert "this server takes JSON only" in refused.stderr
    applied = printed(f"{made} --dry-run=client -o yaml | {kubectl} apply -f -", playground)
    assert applied == "deployment.apps/more created\n"


@pytest.mark.parametrize("line", [line for _, lines in texts("make") for line in lines])
def test_make_has_the_targets(line):
    subprocess.run([*line.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.e2e  # Helm is built from Go modules
@pytest.mark.parametrize("line", [line for _, lines in texts("helm") for line in lines])
def test_the_chart_takes_the_values(line):
    _, command, release, *words = line.split()
    assert release == "kube-rebalancer"
    if command in {"rollback", "uninstall"}:
        assert words == ["--namespace", "rebalancing"]
        return
    assert command in {"install", "upgrade"}
    # The package is made from this folder: tests/release.
    path, *words = words
    assert path in {"chart", f"{RELEASED.folder}/{RELEASED.chart.name}"}
    flags = [word for word in words if word not in {"--create-namespace", "--reuse-values"}]
    manifests = list(
        yaml.safe_load_all(helm("template", "rebalancer", str(ROOT / "chart"), *flags))
    )
    (workload,) = [each for each in manifests if each and each["kind"] in {"CronJob", "Deployment"}]
    spec = workload["spec"].get("jobTemplate", workload)["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    if "image.repository" in line:
        assert container["image"] in {"registry.example/kube-rebalancer:dev", RELEASED.image_name}


def test_pip_installs_what_the_release_has():
    lines = [line for _, lines in texts("pip") for line in lines]
    assert lines == [f"pip install {RELEASED.wheel('x86_64')}"]


def policies() -> list[tuple[str, str]]:
    """Return page and text of each policy in a YAML block."""
    result = []
    for page in pages():
        blocks = page.read_text(encoding="utf-8").split("```yaml\n")[1:]
        of_page = [block.partition("```")[0] for block in blocks]
        result += [(page.name, text) for text in of_page if "kind: Policy" in text]
    return result


@pytest.mark.parametrize(
    ("page", "text"), policies(), ids=[f"{p}-{i}" for i, (p, _) in enumerate(policies())]
)
def test_policies_are_right(page, text, tmp_path):
    registry, manifest = Registry.installed(), yaml.safe_load(text)
    if manifest["kind"] == "ConfigMap":
        cluster = load_policy(None, registry).policy
        namespace, own = manifest["metadata"]["namespace"], manifest["data"][KEY]
        assert read_namespace_policy(own, namespace, cluster, set(registry)).problems == (), page
        return
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    loaded = load_policy(
        str(file),
        registry,
        signals=registry.signals,
        steps=registry.steps,
        providers=registry.providers,
    )
    assert loaded.warnings == (), page


def test_yaml_blocks_are_whole_policies():
    blocks = sum(page.read_text(encoding="utf-8").count("```yaml\n") for page in pages())
    assert blocks == len(policies())
