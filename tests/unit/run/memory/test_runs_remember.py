"""Runs on the embedded cluster that remember: what the next plan makes of it, and what a signal leaves."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError, ExitCode
from rebalancer.cli import command
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.plan.plan import Cost, Landing, Move, Outcome, Status
from rebalancer.run.memory.document import KEY, Document, decode, encode
from rebalancer.run.memory.remember import remember
from rebalancer.testing.objects import EmbeddedCluster
from tests.unit.commands.embedded import (
    MEMORY,
    NOW_POLICY,
    Runner,
    SignalAfterEviction,
    third_zone_joined,
)

WEB = "Deployment/default/web"

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def drifted():
    with third_zone_joined("web") as cluster:
        yield cluster


@pytest.fixture
def run(drifted, tmp_path):
    """Run on the cluster with its memory; return the exit code and the report."""
    return partial(Runner(drifted, tmp_path), memory=MEMORY)


def remembered(cluster: EmbeddedCluster) -> Document:
    document, warning = decode(cluster.get("ConfigMap", "memory").get("data") or {})
    assert warning is None
    return document


def rewrite(cluster: EmbeddedCluster, document: Document) -> None:
    config_map = cluster.get("ConfigMap", "memory")
    cluster.apply({**config_map, "apiVersion": "v1", "kind": "ConfigMap", "data": encode(document)})


def strike(cluster: EmbeddedCluster) -> Document:
    """What is remembered after the one right move went wrong."""
    move = Move(
        namespace="default",
        pod="web-x",
        uid="x",
        owner=WEB,
        node="n-a",
        landings=(Landing("n-c", 1.0, {}),),
        strategy="anti-affinity",
        reason="two in zone a",
        gain=Cost(0.0, 1.0, 0.0),
        cost=1.0,
        wave=1,
    )
    came_back = Outcome(move, Status.EVICTED, "", landed="n-a", predicted=False)
    return remember(Document(), cluster.snapshot(), [came_back], cluster.snapshot().captured_at)


def test_what_a_run_did_is_remembered_and_history_prints_it(drifted, run, capsys):
    code, report = run()
    assert (code, [move["landed"] for move in report["moves"]]) == (0, ["n-c"])
    document = remembered(drifted)
    term = document.owners[WEB].terms["anti-affinity/soft"]
    assert (term.moves, term.as_predicted, term.strikes) == (1, 1, 0)
    kubeconfig = f"--kubeconfig={drifted.kubeconfig}"
    assert command(["history", kubeconfig, f"--memory={MEMORY}"]) == 0
    printed = capsys.readouterr().out
    assert "1 eviction in the last hour." in printed
    assert f"{WEB}\n  anti-affinity/soft: 1 move (1 as predicted)" in printed
    assert command(["history", kubeconfig, "--memory=default/none"]) == int(ExitCode.UNREADABLE)
    assert "no ConfigMap default/none" in capsys.readouterr().err


def test_after_its_move_the_plan_itself_ends_and_nothing_more_is_written(drifted, run):
    run()
    written = drifted.get("ConfigMap", "memory")
    code, report = run()
    assert (code, report["moves"], report["skipped"]) == (0, [], [])
    assert drifted.get("ConfigMap", "memory") == written


def test_a_workload_that_rests_is_left_alone_and_the_report_says_until_when_and_why(drifted, run):
    rewrite(drifted, strike(drifted))
    code, report = run()
    assert (code, report["moves"]) == (0, [])
    texts = {skip["message"] for skip in report["skipped"]}
    assert len(texts) == 1
    text = texts.pop()
    assert "anti-affinity/soft cools down until" in text
    assert "web-x came back to n-a" in text


def test_the_hour_that_earlier_runs_used_up_holds_a_run_back(drifted, run):
    minute = int(drifted.snapshot().captured_at // 60)
    rewrite(drifted, Document(evictions=((minute - 5, 20),)))
    _, report = run()
    assert report["moves"] == []
    assert {skip["message"] for skip in report["skipped"]} == {"perHour: 0 were left of it"}
    _, lifted = run(lift_budgets=True, dry_run=True)
    assert len(lifted["moves"]) == 1


def test_a_dry_run_knows_the_memory_and_leaves_it_alone(drifted, run):
    rewrite(drifted, strike(drifted))
    written = drifted.get("ConfigMap", "memory")
    _, report = run(dry_run=True)
    assert report["moves"] == []
    assert drifted.get("ConfigMap", "memory") == written


def test_an_explanation_knows_the_memory_as_a_dry_run_does_and_leaves_it_alone(
    drifted, tmp_path, capsys
):
    rewrite(drifted, strike(drifted))
    written = drifted.get("ConfigMap", "memory")
    policy = tmp_path / "policy.yaml"
    policy.write_text(NOW_POLICY)
    options = [f"--kubeconfig={drifted.kubeconfig}", f"--policy={policy}", "--output=json"]
    verdicts = []
    for memory in ([], [f"--memory={MEMORY}"]):
        assert command(["explain", "workload", "default/web", *options, *memory]) == 0
        pods = json.loads(capsys.readouterr().out)["pods"]
        verdicts.append({pod["plan"]["verdict"] for pod in pods})
    assert verdicts[0] == {"moves", "mended", "fine"}
    assert verdicts[1] == {"stays", "fine"}
    assert "coolDown: anti-affinity/soft cools down until" in json.dumps(pods)
    assert drifted.get("ConfigMap", "memory") == written


def write(cluster: EmbeddedCluster, text: str) -> None:
    config_map = cluster.get("ConfigMap", "memory")
    cluster.apply({**config_map, "apiVersion": "v1", "kind": "ConfigMap", "data": {KEY: text}})


@pytest.mark.parametrize("text", ["}{", '{"version": 2}', '{"version": 1, "evictions": 7}'])
@pytest.mark.parametrize("dry_run", [True, False])
def test_where_the_hour_is_not_known_a_run_stands_still_and_leaves_the_memory_alone(
    drifted, run, text, dry_run
):
    write(drifted, text)
    pods = drifted.objects("Pod", "default")
    code, report = run(dry_run=dry_run)
    assert code == 0
    assert [move["outcome"] for move in report["moves"]] == ["not-attempted"]
    (why,) = report["standstill"]
    assert why.startswith("what perHour allows is not known: ")
    assert "remove memory.json from ConfigMap default/memory" in why
    assert drifted.objects("Pod", "default") == pods
    assert drifted.get("ConfigMap", "memory")["data"] == {KEY: text}


def test_with_the_budgets_lifted_the_hour_need_not_be_known(drifted, run):
    write(drifted, '{"version": 2}')
    code, report = run(lift_budgets=True)
    assert (code, [move["outcome"] for move in report["moves"]]) == (0, ["evicted"])
    assert any("nothing is remembered: the memory is of version 2" in w for w in report["warnings"])
    assert drifted.get("ConfigMap", "memory")["data"] == {KEY: '{"version": 2}'}


@pytest.mark.parametrize("dry_run", [True, False])
def test_without_the_config_map_nothing_is_done(drifted, run, dry_run):
    drifted.delete("ConfigMap", "memory")
    with pytest.raises(ClusterReadError, match="there is no ConfigMap default/memory"):
        run(dry_run=dry_run)


def test_where_the_memory_cannot_be_written_nothing_is_moved(run, drifted, monkeypatch):
    """Each run would spend the whole hour's budget again."""

    def refused(self, *_):
        raise ClusterReadError("may not update configmaps memory")

    monkeypatch.setattr(ConfigMapStore, "write", refused)
    pods = drifted.objects("Pod", "default")
    why = (
        "nothing was moved: what this run is about to evict could not be remembered: may not update"
    )
    with pytest.raises(ClusterReadError, match=why) as raised:
        run()
    assert raised.value.exit_code == ExitCode.UNREADABLE
    assert drifted.objects("Pod", "default") == pods
    code, report = run(lift_budgets=True)
    assert code == ExitCode.PARTIAL
    assert [move["outcome"] for move in report["moves"]] == ["evicted"]


def test_a_memory_that_cannot_be_written_any_more_keeps_what_was_reserved(
    run, drifted, monkeypatch
):
    write, writes = ConfigMapStore.write, []

    def once(self, known, data, annotations):
        writes.append(data)
        if len(writes) > 1:
            raise ClusterReadError("may not update configmaps memory")
        return write(self, known, data, annotations)

    monkeypatch.setattr(ConfigMapStore, "write", once)
    code, report = run()
    assert sum(count for _, count in remembered(drifted).evictions) == 1
    assert code == ExitCode.PARTIAL
    assert [move["outcome"] for move in report["moves"]] == ["evicted"]
    assert any("could not be remembered" in warning for warning in report["warnings"])


def test_a_signal_after_an_eviction_leaves_it_remembered_and_exit_code_4(drifted, run):
    code, report = run(stop=SignalAfterEviction(drifted))
    assert code == ExitCode.PARTIAL
    assert report["cut"] == "stopped by a signal"
    document = remembered(drifted)
    assert document.owners[WEB].terms["anti-affinity/soft"].moves == 1
    assert sum(count for _, count in document.evictions) == 1
