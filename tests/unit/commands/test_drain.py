"""``rebalancer drain`` in an embedded cluster: what it empties, waits for, refuses and leaves behind."""

import io
import json
import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import PolicyError
from rebalancer.cli import command as cli
from rebalancer.commands.drain import DrainOptions, command, drain
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.machines.drain import command as node_command
from rebalancer.testing.objects import daemonset, deployment, job, pdb, pod
from rebalancer.testing.snapshots import node, workload
from rebalancer.wire.times import rfc3339
from tests.support.clocks import LeapingClock, Once
from tests.support.worlds import FAST, embedded_nodes
from tests.unit.commands.draining import Terminal, drained, is_cordoned, pods_on
from tests.unit.report.test_report_bars import WIPED

CONTROL = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\r")


def annotation(cluster, node):
    return (cluster.get("Node", node)["metadata"].get("annotations") or {}).get("rebalancer/drain")


def test_a_node_is_cordoned_and_emptied_and_the_pods_run_elsewhere(three):
    three.apply(deployment("web", 6), daemonset("agent"))
    three.settle()
    before = len(pods_on(three, "n1"))
    done = drained(three, "n1", ignore_daemonsets=True)
    assert done.code == 0, done.err
    three.settle()
    assert [name.partition("-")[0] for name in pods_on(three, "n1")] == ["agent"]
    assert is_cordoned(three, "n1")
    assert annotation(three, "n1") is None
    assert len(done.report["outcomes"]) == before - 1
    assert {one["outcome"] for one in done.report["outcomes"]} == {"evicted"}
    assert all(one["predicted"] for one in done.report["outcomes"])
    web = three.get("Deployment", "web")
    assert web["status"]["readyReplicas"] == 6
    asked = three.faults.count_seen("POST", "selfsubjectaccessreviews")
    # Once more there is nothing to do.
    again = drained(three, "n1", ignore_daemonsets=True)
    assert (again.code, again.report["outcomes"]) == (0, [])
    # A drain of several rounds has asked for its rights as often as one that only looked.
    assert three.faults.count_seen("POST", "selfsubjectaccessreviews") == 2 * asked


def test_a_terminal_shows_bars_around_the_same_lines():
    with embedded_nodes("n1", "n2", "n3") as cluster:
        cluster.apply(deployment("web", 6))
        cluster.settle()
        shown, plain = drained(cluster, "n1", err=Terminal()), drained(cluster, "n2")
    assert (shown.code, plain.code) == (0, 0)
    assert re.search(r"emptying n1.*\d/2 pods", shown.err)
    assert all(of in shown.err for of in ("reading", "planning", "wave 1 of"))
    assert WIPED.search(shown.err)
    assert "emptying" not in plain.err
    assert "\x1b" not in plain.err
    said = [set(re.findall(r"[\d.]+ s  (\w+)", CONTROL.sub("", of.err))) for of in (shown, plain)]
    assert {"cordoned", "wave", "evicted", "landed"} <= said[0] & said[1]


def test_an_annotation_that_cannot_be_taken_away_is_not_called_done(two):
    two.apply(deployment("web", 2))
    two.settle()
    # The cordon is written, and nothing after it.
    two.faults.add(Fault(method="PATCH", path="/nodes/n1", skip=1, times=99, status=403))
    done = drained(two, "n1")
    assert not pods_on(two, "n1")
    assert annotation(two, "n1") is not None
    assert done.code == 4
    assert "n1" in done.report["ended"]


def test_several_nodes_are_cordoned_before_one_is_emptied(three):
    three.apply(deployment("web", 6))
    three.settle()
    done = drained(three, "n1", "n2")
    assert done.code == 0, done.err
    assert not pods_on(three, "n1")
    assert not pods_on(three, "n2")
    # No pod went from one of them to the other.
    assert {one["landed"] for one in done.report["outcomes"]} == {"n3"}
    said = [line.split()[2] for line in done.err.splitlines()]
    assert said[:2] == ["cordoned", "cordoned"]


@pytest.mark.parametrize(
    ("made", "flag", "code"),
    [
        (daemonset("agent"), "ignore_daemonsets", "DaemonSet"),
        (pod("alone"), "force", "NoController"),
        (
            deployment("cache", 2, volumes=[{"name": "v", "emptyDir": {}}]),
            "delete_emptydir_data",
            "LocalData",
        ),
        (deployment("db", 2, pod_annotations={"rebalancer/evict": "false"}), "force", "OptedOut"),
        (deployment("llm", 2, pod_annotations={"pod-group-name": "llm"}), "evict_gangs", "Gang"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_needs_a_flag_refuses_the_drain_and_nothing_is_changed(two, made, flag, code):
    two.apply(made)
    two.settle()
    done = drained(two, "n1", "n2", without_landing=True)
    assert done.code == 3
    assert code in done.codes
    assert "refused" in done.verdicts.values()
    assert not is_cordoned(two, "n1")
    assert not is_cordoned(two, "n2")
    assert len(pods_on(two, "n1") + pods_on(two, "n2")) == 2 - (code == "NoController")
    more: dict[str, Any] = {flag: True}
    with_flag = drained(two, "n1", "n2", without_landing=True, **more)
    assert with_flag.code == 0, with_flag.err


LLM = deployment("llm", 2, pod_annotations={"pod-group-name": "llm"})
"""Two pods that are a gang."""


def test_the_pods_of_a_gang_leave_together_those_on_other_nodes_too(three):
    three.apply(LLM)
    three.settle()
    before = {pod["metadata"]["uid"] for pod in three.objects("Pod")}
    (node, *_) = (pod["spec"]["nodeName"] for pod in three.objects("Pod"))
    done = drained(three, node)
    assert done.code == 0, done.err
    assert len(done.report["outcomes"]) == 2
    after = [pod for pod in three.objects("Pod") if pod["spec"].get("nodeName")]
    assert len(after) == 2
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in after)
    assert pods_on(three, node) == []


@pytest.mark.parametrize(("wait", "fate"), [(0.0, "evict"), (60.0, "wait")])
def test_a_dry_run_checks_batch_that_is_evicted_at_once_as_other_pods(wait, fate):
    with embedded_nodes("n1", "n2", timings=replace(FAST, job=600.0)) as cluster:
        cluster.apply(job("sum"))
        cluster.settle()
        node = cluster.objects("Pod")[0]["spec"]["nodeName"]
        looked = drained(cluster, node, dry_run="client", evict_batch=True, wait_batch=wait)
        pods = looked.report["nodes"][0]["pods"]
        assert {pod["fate"] for pod in pods} == {fate}
        assert all(bool(pod["landings"]) is (fate == "evict") for pod in pods)


def test_a_dry_run_names_the_pods_of_a_gang_on_other_nodes(three):
    three.apply(LLM)
    three.settle()
    where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in three.objects("Pod")}
    (_, goes), (other, stays) = where.items()
    assert goes != stays
    table = drained(three, goes, dry_run="client", output="table").out
    assert f"with it default/{other} on {stays} -> " in table
    (pod,) = drained(three, goes, dry_run="client").report["nodes"][0]["pods"]
    assert [(one["pod"], one["from"]) for one in pod["alsoEvicted"]] == [(other, stays)]
    assert pod["alsoRestarted"] == []
    alone = drained(three, goes, dry_run="client", evict_gangs=True).report
    assert alone["nodes"][0]["pods"][0]["alsoEvicted"] == []


class Withdrawing(io.StringIO):
    """A stream that lets a gang have no more pods once it says that the first of them is evicted."""

    def __init__(self, cluster):
        super().__init__()
        self._cluster = cluster

    def write(self, text):
        if "evicted" in text:
            self._cluster.apply(deployment("llm", 0, pod_annotations={"pod-group-name": "llm"}))
        return super().write(text)


def test_a_gang_that_does_not_come_back_is_named_and_is_no_success(three):
    three.apply(LLM)
    three.settle()
    (node, *_) = (pod["spec"]["nodeName"] for pod in three.objects("Pod"))
    short = ("safety.maxPendingTime=1s",)
    done = drained(three, node, err=Withdrawing(three), settings=short, output="table")
    assert done.code == 4, done.err
    assert "Empty: all of them." in done.out
    assert "default: 0 of 2 pods of PodGroup llm have a node again" in done.out


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ({"maxUnavailable": 1}, 3),  # one after the other only
        ({"minAvailable": 1}, 3),
        ({"maxUnavailable": 2}, 0),
    ],
)
def test_a_budget_has_to_let_all_of_a_gang_go_at_once(two, budget, code):
    two.apply(LLM, pdb("llm", {"app": "llm"}, **budget))
    two.settle()
    done = drained(two, "n1")
    assert done.code == code, done.err
    if code:
        assert done.verdicts == {"n1": "never-satisfiable"}
        assert ", and never more than 1; 2 pods would go at once" in done.out


def test_pods_without_room_elsewhere_refuse_the_drain_unless_their_landing_does_not_matter():
    with embedded_nodes("n1", "n2", cpu="1") as cluster:
        cluster.apply(deployment("web", 4, cpu="400m"))
        cluster.settle()
        done = drained(cluster, "n1")
        assert done.code == 3
        assert done.verdicts == {"n1": "no-room"}
        assert "NoRoom" in done.codes
        assert not is_cordoned(cluster, "n1")
        forced = drained(cluster, "n1", without_landing=True)
        assert forced.code == 0, forced.err
        assert not pods_on(cluster, "n1")


def test_a_budget_that_allows_nothing_now_is_waited_for(three):
    three.apply(deployment("web", 3), pdb("web", {"app": "web"}, maxUnavailable=1))
    three.settle()
    done = drained(three, "n1", "n2")
    assert done.code == 0, done.err
    assert len(done.report["outcomes"]) == 2


class Uncordons(io.StringIO):
    """Opens a node as soon as a text is written."""

    def __init__(self, cluster, node, text):
        super().__init__()
        self.cluster, self.node, self.text = cluster, node, text

    def write(self, text):
        if self.text in text:
            self.cluster.cordon([self.node], on=False)
        return super().write(text)


@pytest.mark.parametrize("opens", [True, False])
def test_pods_in_a_closed_zone_are_waited_for_by_name_and_no_longer_than_asked(opens):
    with embedded_nodes("n1", "n2", "n3", "n4") as cluster:
        cluster.apply(deployment("web", 4), pdb("web", {"app": "web"}, maxUnavailable=1))
        cluster.settle()
        cluster.cordon(["n4"])
        why = "outside of closed zone zone-n4: 1 of 4 healthy pods are there and may not serve"
        err = Uncordons(cluster, "n4", why) if opens else None
        done = drained(cluster, "n1", err=err, timeout=60.0 if opens else 8.0)
        assert (done.code, why in done.err) == (0 if opens else 4, True), done.err
        assert (why in (done.report["ended"] or "")) is not opens
        assert len(done.report["outcomes"]) == opens


def test_batch_pods_are_waited_for_and_never_evicted(two):
    two.cordon(["n2"])
    two.apply(job("sums"), pdb("sums", {"job": "sums"}, minAvailable=65535))
    two.settle()
    two.cordon(["n2"], on=False)
    two.apply(deployment("web", 2))
    two.settle()
    done = drained(two, "n1")
    assert done.code == 0, done.err
    assert done.verdicts == {"n1": "waits"}
    assert "Batch" in done.codes
    assert {one["pod"].partition("-")[0] for one in done.report["outcomes"]} == {"web"}
    assert two.get("Job", "sums")["status"]["succeeded"] == 1
    assert not two.get("Job", "sums")["status"].get("failed")


def test_batch_that_does_not_end_in_time_is_named_or_evicted_by_order():
    with embedded_nodes("n1", "n2", timings=replace(FAST, job=600.0)) as cluster:
        cluster.cordon(["n2"])
        cluster.apply(job("sums", job_spec={"backoffLimit": 9}))
        cluster.settle()
        cluster.cordon(["n2"], on=False)
        done = drained(cluster, "n1", wait_batch=0.0, uncordon_on_failure=True)
        assert done.code == 4
        assert "sums" in done.report["ended"]
        assert not is_cordoned(cluster, "n1")
        assert annotation(cluster, "n1") is None
        done = drained(cluster, "n1", wait_batch=0.0, evict_batch=True)
        assert done.code == 0, done.err
        assert [one["outcome"] for one in done.report["outcomes"]] == ["evicted"]


def test_a_drain_that_times_out_says_on_the_node_who_and_why_or_gives_it_back():
    with embedded_nodes("n1", timings=replace(FAST, job=600.0)) as cluster:
        cluster.apply(job("sums"))
        cluster.settle()
        over = LeapingClock(Once(lambda: is_cordoned(cluster, "n1")))
        done = drained(cluster, "n1", timeout=600.0, reason="kernel", clock=over)
        assert done.code == 4, done.out
        assert is_cordoned(cluster, "n1")
        left = json.loads(annotation(cluster, "n1"))
        assert left["why"] == "kernel"
        assert left["cordoned"] is True
        assert left["ended"] is True
        assert left["by"]
        assert left["until"] >= left["at"]
        # Its time is over once it has taken the node over from the one that gave up.
        over = LeapingClock(
            Once(lambda: not json.loads(annotation(cluster, "n1") or "{}").get("ended"))
        )
        done = drained(
            cluster, "n1", timeout=600.0, reason="kernel", uncordon_on_failure=True, clock=over
        )
        assert done.code == 4
        assert not is_cordoned(cluster, "n1")
        assert annotation(cluster, "n1") is None


def test_a_cordon_that_was_there_before_is_not_taken_away():
    with embedded_nodes("n1", "n2", timings=replace(FAST, job=600.0)) as cluster:
        cluster.apply(job("sums"))
        cluster.settle()
        name = (pods_on(cluster, "n1") and "n1") or "n2"
        cluster.cordon([name])
        done = drained(cluster, name, wait_batch=0.0, uncordon_on_failure=True)
        assert done.code == 4
        assert is_cordoned(cluster, name)
        assert annotation(cluster, name) is None


def test_a_dry_run_changes_nothing(two):
    two.apply(deployment("web", 4), pdb("web", {"app": "web"}, minAvailable=1))
    two.settle()
    for kind in ("client", "server"):
        done = drained(two, "n1", dry_run=kind)
        assert (done.code, done.verdicts) == (0, {"n1": "drainable"})
        landings = {
            landing["node"]
            for of in done.report["nodes"]
            for one in of["pods"]
            for landing in one["landings"]
        }
        assert landings == {"n2"}
    assert not is_cordoned(two, "n1")
    assert pods_on(two, "n1")


def test_only_selected_pods_go(two):
    two.apply(deployment("web", 2), deployment("db", 2))
    two.settle()
    done = drained(two, "n1", pod_selector="app=web")
    assert done.code == 0, done.err
    left = {name.partition("-")[0] for name in pods_on(two, "n1")}
    assert left == {"db"}


def test_nodes_are_selected_by_labels_and_what_is_wrong_is_said(two):
    selected = drained(two, selector="kubernetes.io/hostname=n1", dry_run="client")
    assert selected.verdicts == {"n1": "drainable"}
    assert drained(two, "n9").code == 2
    assert "no node n9" in drained(two, "n9").err
    assert drained(two, selector="pool=x").code == 2
    assert drained(two).code == 2
    assert drained(two, "n1", selector="a=b").code == 2


def test_a_signal_ends_it_in_good_order():
    with embedded_nodes("n1", timings=replace(FAST, job=600.0)) as cluster:
        cluster.apply(job("sums"))
        cluster.settle()
        stop = Once(lambda: is_cordoned(cluster, "n1"))
        started = time.monotonic()
        done = drained(cluster, "n1", stop=stop, uncordon_on_failure=True)
        assert done.code == 4
        assert time.monotonic() - started < 300
        assert not is_cordoned(cluster, "n1")


@pytest.mark.parametrize("minutes", [1, 60])
def test_who_holds_the_lease_is_said_once_and_that_it_may_be_a_serve(minutes, monkeypatch):
    monkeypatch.setattr(node_command, "_TURN", 0.1)
    with embedded_nodes("n1", "n2") as cluster:
        now = cluster.clock.now()
        spec = {
            "holderIdentity": "host-7",
            "acquireTime": rfc3339(now - 60 * minutes),
            "renewTime": rfc3339(now),
            "leaseDurationSeconds": 600,
        }
        metadata = {"name": "turns"}
        kinds = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        cluster.apply({**kinds, "metadata": metadata, "spec": spec})
        done = drained(cluster, "n1", lease=("default", "turns"), stop=Once(Looks(cluster)))
    (line,) = [line for line in done.err.splitlines() if "waiting" in line]
    until = rfc3339(now + 600)
    assert f"for host-7, which holds the Lease default/turns until {until} unless renewed" in line
    serves = f"since {rfc3339(now - 3600)}; a serve keeps it until it ends"
    assert (serves in line) == (minutes == 60)
    assert done.code == 130
    assert done.err.count(serves) == (minutes == 60)


def test_the_time_of_a_drain_is_over_also_while_another_process_has_the_lease(monkeypatch):
    monkeypatch.setattr(node_command, "_TURN", 0.1)
    with embedded_nodes("n1", "n2") as cluster:
        spec = {
            "holderIdentity": "host-7",
            "renewTime": rfc3339(cluster.clock.now()),
            "leaseDurationSeconds": 600,
        }
        kinds = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        cluster.apply({**kinds, "metadata": {"name": "turns"}, "spec": spec})
        done = drained(cluster, "n1", lease=("default", "turns"), timeout=2.0)
        assert not cluster.get("Node", "n1")["spec"].get("unschedulable")
    assert done.code == 3
    assert "host-7 held the Lease default/turns" in done.err


class Looks:
    """True once the Lease was looked at three times."""

    def __init__(self, cluster):
        self._faults = cluster.faults

    def __call__(self):
        return self._faults.count_seen("GET", "/leases/turns$") >= 3


def test_a_dry_run_shows_where_each_pod_goes(tmp_path):
    objects = [node("n1"), node("n2"), *workload("web", ["n1", "n2"])]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    out = io.StringIO()
    environment = Environment(SystemClock(), {}, out, io.StringIO(), threading.Event())
    assert drain(DrainOptions.of(nodes=("n1",), snapshot_path=str(path)), environment) == 0
    (line,) = [line for line in out.getvalue().splitlines() if "->" in line]
    assert line.strip().startswith("default/web-")
    assert line.endswith("-> n2 100%")
    assert "--yes" not in out.getvalue()


def test_a_snapshot_file_cannot_be_asked_about_evictions():
    environment = Environment(SystemClock(), {}, io.StringIO(), io.StringIO(), threading.Event())
    options = DrainOptions.of(nodes=("n1",), snapshot_path="cluster.json", dry_run="server")
    with pytest.raises(PolicyError, match="--dry-run=server asks the API server"):
        drain(options, environment)


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (["--dry-run", "n1"], {"dry_run": "client", "nodes": ("n1",)}),
        (["n1", "--dry-run=server"], {"dry_run": "server"}),
        (["--force=true", "n1"], {"force": True}),
        (["--ignore-daemonsets=false", "n1"], {"ignore_daemonsets": False}),
        (["--delete-emptydir-data", "n1", "n2"], {"delete_emptydir_data": True}),
    ],
)
def test_flags_are_taken_as_kubectl_takes_them(args, given):
    context = command.make_context("drain", list(args))
    assert {name: context.params[name] for name in given} == given


def test_settings_of_flags_reach_the_drain(two):
    wrong = drained(two, "n1", settings=("no.such=1",))
    assert wrong.code == 2
    assert "unknown key" in wrong.err
    set_ = ["drain", "n1", "--dry-run", "--set", "safety.maxReadyTime=1m"]
    assert cli([*set_, "--kubeconfig", str(two.kubeconfig)]) == 0


def test_a_drain_predicts_by_the_configmap_that_the_policy_names(two, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\n"
        "scheduler: {fromConfig: {configMap: default/scheduler}}\n"
    )
    kind = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    two.apply(
        deployment("web", 2),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "scheduler"},
            "data": {"config.yaml": kind},
        },
    )
    two.settle()
    done = drained(two, "n1", policy_path=str(policy))
    assert (done.code, pods_on(two, "n1")) == (0, []), done.err


@pytest.mark.parametrize("mode", ["observe", "off", "enforce"])
def test_what_is_ordered_is_done_whatever_the_mode_of_the_policy(two, tmp_path, mode):
    """The mode says what runs may do by themselves."""
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"apiVersion: rebalancer/v1\nkind: Policy\nmode: {mode}\nstrategies: {{taints: {{}}}}\n"
    )
    two.apply(deployment("web", 2))
    two.settle()
    done = drained(two, "n1", policy_path=str(path))
    assert done.code == 0, done.err
    assert is_cordoned(two, "n1")
    assert pods_on(two, "n1") == []
