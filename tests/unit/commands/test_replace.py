"""``rebalancer replace`` in an embedded cluster."""

import io
import json
import re
import shlex
import sys
import threading
from typing import Any

import pytest
import yaml

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import RebalancerError
from rebalancer.commands.replace import replace_nodes, text_of_missing
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.machines.capacity.packing import Missing
from rebalancer.machines.drain import draining, replacing
from rebalancer.machines.drain.remaining import list_remaining
from rebalancer.machines.drain.replacing import ReplaceHook, ReplaceOptions
from rebalancer.scheduler.topology import ZONE
from rebalancer.testing.objects import EmbeddedCluster, deployment, pdb, require_apart
from rebalancer.wire.times import rfc3339
from tests.support.clocks import LeapingClock, Once
from tests.support.volumes import attachment
from tests.support.worlds import FAST, embedded_nodes
from tests.unit.commands.called import called
from tests.unit.commands.draining import Drained, Terminal, is_cordoned, pods_on
from tests.unit.report.test_report_bars import WIPED

OLD = {"generation": "old"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(draining, "_PAUSE", 0.2)
    monkeypatch.setattr(replacing, "_PAUSE", 0.2)


def replaced(cluster, until=None, err=None, environ=None, **options):
    """Replace; what it says on standard error is its last once that holds the text ``until``."""
    out, err = io.StringIO(), err or io.StringIO()
    clock = LeapingClock(Once(lambda: until is not None and until in err.getvalue()))
    chosen: dict[str, Any] = {
        "kubeconfig": str(cluster.kubeconfig),
        "selector": "generation=old",
        "output": "json",
        "timeout": 60.0,
        "pause": 0.0,
        **options,
    }
    try:
        code = int(
            replace_nodes(
                ReplaceOptions.of(**chosen),
                Environment(clock, environ or {}, out, err, threading.Event()),
            )
        )
    except RebalancerError as error:
        code = int(error.exit_code)
        err.write(str(error))
    return Drained(code, out.getvalue(), err.getvalue())


def two_old_nodes(cluster):
    for name in ("n1", "n2"):
        cluster.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": OLD}}
        )


def writes_to(path):
    script = f"import sys; open({str(path)!r}, 'a').write(sys.argv[1] + ' ')"
    return shlex.join([sys.executable, "-c", script])


def test_old_nodes_are_emptied_and_handed_on_one_after_the_other(tmp_path):
    with embedded_nodes("n1", "n2", "n3", "n4") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 6), pdb("web", {"app": "web"}, maxUnavailable=2))
        cluster.settle()
        done = replaced(cluster, err=Terminal(), then=writes_to(tmp_path / "removed"))
        assert done.code == 0, done.err
        assert (tmp_path / "removed").read_text() == "n1 n2 "
        assert done.report["kind"] == "ReplaceReport"
        # Of the nodes, and of the pods on the one that is being emptied.
        assert all(
            re.search(f"replacing.*{bar}", done.err, re.DOTALL)
            for bar in ("0/2 nodes", r"emptying n1.*\d/\d pods", "1/2 nodes", "2/2 nodes")
        )
        assert WIPED.search(done.err)
        for name in ("n1", "n2"):
            assert not pods_on(cluster, name)
            assert is_cordoned(cluster, name)
            record = cluster.get("Node", name)["metadata"]["annotations"]["rebalancer/drain"]
            assert json.loads(record)["stage"]["phase"] == "done"
        again = replaced(cluster, then=writes_to(tmp_path / "removed"))
        assert again.code == 0
        assert (tmp_path / "removed").read_text() == "n1 n2 "


def test_a_node_that_was_uncordoned_is_replaced_from_the_beginning(tmp_path):
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 4))
        cluster.settle()
        removes = writes_to(tmp_path / "removed")
        assert replaced(cluster, then=removes).code == 0
        cluster.cordon(["n1"], on=False)
        cluster.apply(deployment("late", 2))
        cluster.settle()
        assert pods_on(cluster, "n1")
        done = replaced(cluster, then=removes)
        assert done.code == 0, done.err
        assert not pods_on(cluster, "n1")
        assert (tmp_path / "removed").read_text() == "n1 n2 n1 "


def test_what_people_have_cordoned_to_replace_it_closes_no_zone():
    """Both nodes of zone b are old and take no pods: theirs serve, so that the old one of zone a becomes empty, too."""
    with EmbeddedCluster(timings=FAST) as cluster:
        for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
            cluster.add_node(name, zone)
        cluster.settle()
        cluster.apply(deployment("web", 6), pdb("web", {"app": "web"}, maxUnavailable=1))
        cluster.settle()
        old = ("n1", "n2", "n3")
        cluster.add_node("n4", "a")
        cluster.settle()
        for name in old:
            cluster.apply(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": OLD}}
            )
        cluster.cordon(list(old))
        done = replaced(cluster, timeout=20.0)
        assert done.code == 0, done.err
        assert not [pod for name in old for pod in pods_on(cluster, name)]


def test_nodes_that_another_one_removed_while_it_had_the_lease_are_not_missed():
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "turns"}}
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        now = rfc3339(cluster.clock.now()).replace("Z", ".000000Z")
        held = {"holderIdentity": "other", "renewTime": now, "leaseDurationSeconds": 600}
        cluster.apply({**lease, "spec": held})

        class Err(io.StringIO):
            def write(self, text):
                if "waiting  for other, which holds the Lease default/turns until" in text:
                    cluster.remove_node("n1")
                    cluster.remove_node("n2")
                    cluster.apply({**lease, "spec": {"holderIdentity": ""}})
                return super().write(text)

        done = replaced(cluster, err=Err(), lease=("default", "turns"))
        assert done.code == 0, done.err
        assert done.report["nodes"] == []
        assert replaced(cluster, lease=("default", "turns")).code == 2


def test_what_the_new_nodes_do_not_hold_refuses_it_and_says_how_many_are_missing():
    with embedded_nodes("n1", "n2", cpu="2") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 6, cpu="600m"))
        cluster.settle()
        cluster.add_node("n3", "zone-n3", cpu="2")
        cluster.settle()
        done = replaced(cluster)
        assert done.code == 3
        # Six pods, three to a node: the new node takes three, one more like it would take the rest.
        assert any(
            "3 pods have no room" in note and "1 more like n3" in note
            for note in done.report["warnings"]
        )
        assert not is_cordoned(cluster, "n1")


def test_machines_are_promised_only_where_room_is_what_lacks():
    """A pod in each of three zones, by a required rule: another machine like the one of the third would hold none more."""
    rule = {"labels": {"app": "web"}, "affinity": require_apart({"app": "web"}, ZONE)}
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 3, **rule))
        cluster.settle()
        done = replaced(cluster)
    assert done.code == 3
    pods = [pod for node in done.report["nodes"] for pod in node["pods"]]
    (message,) = {one["message"] for one in pods if one["code"] == "NoRoom"}
    assert message.endswith(": 1 node(s) didn't match pod anti-affinity rules")
    assert not [note for note in done.report["warnings"] if "more like" in note]


@pytest.mark.parametrize(
    ("missing", "note"),
    [
        (Missing(1, 1, "n3"), "1 pod has no room on the nodes that stay: 1 more like n3 would do"),
        (Missing(2, 0, "n3"), "2 pods have no room, and one of them fits on no node like n3"),
    ],
)
def test_what_is_missing_is_a_sentence(missing, note):
    assert text_of_missing(missing) == note


def test_what_the_rounds_note_stands_in_the_report_once():
    """Each old node has one pod, and is emptied in a round of its own; all events are refused."""
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 3))
        cluster.settle()
        assert [len(pods_on(cluster, name)) for name in ("n1", "n2")] == [1, 1]
        cluster.faults.add(
            Fault(method="POST", path="/events", times=99, status=403, reason="Forbidden")
        )
        done = replaced(cluster)
        assert done.code == 0, done.err
        (note,) = done.report["warnings"]
        assert re.match("[12] events? (was|were) not written: forbidden", note)
        assert cluster.faults.count_seen("POST", "/events") == 2


PLUGIN = """
import json, sys
open(sys.argv[1], "a").write("asked ")
said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": sys.argv[2]}}
print(json.dumps(said))
"""


def test_a_credential_plugin_runs_once_for_all_rounds(tmp_path):
    """On EKS each run of it is a process of a second: aws eks get-token."""
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 3))
        cluster.settle()
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        token = config["users"][0]["user"]["token"]
        runs = {"command": sys.executable, "args": ["-c", PLUGIN, str(tmp_path / "asked"), token]}
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", **runs}
        config["users"] = [{"name": "plugin", "user": {"exec": plugin}}]
        config["contexts"][0]["context"]["user"] = "plugin"
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        done = replaced(cluster, kubeconfig=str(path))
        assert done.code == 0, done.err
        assert len(done.report["outcomes"]) == 2
        assert (tmp_path / "asked").read_text() == "asked "


def test_a_machine_is_removed_only_once_the_volumes_of_its_node_are_detached(tmp_path):
    removed = tmp_path / "removed"
    seen = []

    class Err(io.StringIO):
        """The volume is detached once the replacement says that it waits for it."""

        def write(self, text):
            if "waiting  for n1: volumes are detached from it: data" in text:
                seen.append(removed.exists())
                cluster.delete("VolumeAttachment", "detaching")
            return super().write(text)

    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(attachment("n1"), {**attachment("n3"), "metadata": {"name": "elsewhere"}})
        done = replaced(cluster, err=Err(), then=writes_to(removed))
        assert (done.code, done.report["warnings"]) == (0, []), done.err
        assert seen == [False]
        assert removed.read_text() == "n1 n2 "


def test_a_volume_that_is_never_detached_is_waited_for_two_minutes(tmp_path):
    with embedded_nodes("n1", "n3") as cluster:
        cluster.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": OLD}}
        )
        cluster.apply(attachment("n1"))
        removed = tmp_path / "removed"
        done = replaced(cluster, until="volumes are detached", timeout=0.0, then=writes_to(removed))
        assert done.code == 0, done.err
        assert removed.read_text() == "n1 "
        (note,) = done.report["warnings"]
        assert note.startswith("n1: its machine is ended although volumes are detached from it")


def test_without_a_hook_that_removes_machines_no_volume_is_waited_for():
    with embedded_nodes("n1", "n3") as cluster:
        cluster.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": OLD}}
        )
        cluster.apply(attachment("n1"))
        done = replaced(cluster)
        assert (done.code, done.report["warnings"]) == (0, []), done.err


def test_nothing_is_begun_outside_the_windows_of_the_policy(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "{apiVersion: rebalancer/v1, kind: Policy, windows: [{allow: '0 0 29 2 *', for: 1m}], strategies: {}}"
    )
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 2))
        cluster.settle()
        done = replaced(cluster, policy_path=str(policy), until="window is closed")
        assert done.code == 4
        assert "window is closed" in done.err
        assert done.report["outcomes"] == []


@pytest.mark.parametrize("more", [{}, {"dry_run": "client"}])
def test_where_no_node_is_old_there_is_nothing_to_do(more):
    with embedded_nodes("n1", "n2") as cluster:
        done = replaced(cluster, selector=None, older_than=3000 * 86_400.0, output="table", **more)
        assert done.code == 0, done.err
        lines = done.out.strip().splitlines()
        assert lines[-4:-2] == [lines[1], ""], "one blank line"
        assert lines[-2:] == [
            "No node is to be emptied.",
            "Note: no node is old: there is nothing to replace",
        ]
        assert not is_cordoned(cluster, "n1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"selector": None}, "say which nodes are old"),
        ({"kubelet_below": "new"}, "no version"),
        ({"selector": "generation=new"}, "no node is selected by -l generation=new"),
        ({"then": "  "}, "--then"),
    ],
)
def test_what_is_wrong_is_said(options, says):
    with embedded_nodes("n1") as cluster:
        done = replaced(cluster, **options)
        assert done.code == 2
        assert says in done.err


@pytest.mark.parametrize(
    "given",
    [
        ("drain", "n1", "--timeout=soon"),
        ("drain", "n1", "--wait-batch=6"),
        ("replace", "-l", "pool=old", "--pause=-3s"),
        ("replace", "--older-than=old"),
    ],
)
def test_a_flag_that_is_no_duration_is_named(given):
    done = called(*given)
    assert done.returncode == 2
    assert given[-1].partition("=")[0] in done.stderr


class Reinstalled:
    """What removes a machine: it comes back under its name, as another Node, with the labels ``labels``."""

    def __init__(self, cluster, labels, before=lambda _name: None):
        self.cluster, self.labels, self.before = cluster, labels, before
        self.names = []

    def __call__(self, name, _provider_id, _environ):
        self.before(name)
        self.names.append(name)
        self.cluster.remove_node(name)
        self.cluster.add_node(name, f"zone-{name}", labels=self.labels)
        self.cluster.settle()


@pytest.mark.parametrize("labels", [{}, OLD])
def test_a_machine_that_comes_back_under_its_name_is_left_alone(monkeypatch, labels):
    with embedded_nodes("n1", "n2", "n3", "n4") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 6))
        cluster.settle()
        world = Reinstalled(cluster, labels)
        monkeypatch.setattr(ReplaceHook, "call", world)
        done = replaced(cluster, then="reinstall", timeout=30.0)
        assert done.code == 0, done.err
        assert world.names == ["n1", "n2"]
        assert not any(is_cordoned(cluster, name) for name in ("n1", "n2"))


def test_pods_of_a_node_that_came_under_the_name_while_it_was_emptied_stay(monkeypatch):
    with embedded_nodes("n1", "n2", "n3") as cluster:
        old = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": OLD}}
        cluster.apply(old, deployment("web", 3))
        cluster.settle()
        world = Reinstalled(cluster, OLD)
        looked, late = list_remaining, list[str]()

        def meanwhile(pods, orders):
            if not world.names:
                left = looked(pods, orders)
                world("n1", "", {})
                cluster.apply(deployment("late", 2, nodeSelector=OLD))
                cluster.settle()
                late.extend(pods_on(cluster, "n1"))
                return left
            return looked(pods, orders)

        monkeypatch.setattr(draining, "list_remaining", meanwhile)
        done = replaced(cluster, timeout=30.0)
        assert done.code == 0, done.err
        assert late
        assert pods_on(cluster, "n1") == late
        assert not is_cordoned(cluster, "n1")


def test_a_node_that_is_not_old_any_more_is_given_back():
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 3))
        cluster.settle()

        def relabel(_name):
            new = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n2", "labels": {"generation": "new"}},
            }
            cluster.apply(new)

        world = Reinstalled(cluster, {}, relabel)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplaceHook, "call", world)
            done = replaced(cluster, then="reinstall", timeout=30.0)
        assert done.code == 0, done.err
        assert world.names == ["n1"]
        assert not is_cordoned(cluster, "n2")
        annotations = cluster.get("Node", "n2")["metadata"].get("annotations", {})
        assert "rebalancer/drain" not in annotations


@pytest.mark.parametrize(("ago", "is_open"), [(20.0, False), (1200.0, True)])
def test_what_another_process_may_be_removing_is_not_given_back_before_its_time(ago, is_open):
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.apply(deployment("web", 3))
        cluster.settle()

        def relabel(_name):
            metadata = cluster.get("Node", "n2")["metadata"]
            record = json.loads(metadata["annotations"]["rebalancer/drain"])
            at = SystemClock().unix() - ago
            stage = {"phase": "removing", "by": "killed", "at": at, "uid": metadata["uid"]}
            text = json.dumps({**record, "stage": stage})
            new = {"labels": {"generation": "new"}, "annotations": {"rebalancer/drain": text}}
            cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", **new}})

        world = Reinstalled(cluster, {}, relabel)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplaceHook, "call", world)
            done = replaced(cluster, "waiting  for another", then="reinstall", timeout=30.0)
        assert world.names == ["n1"]
        assert (done.code == 0, is_cordoned(cluster, "n2")) == (is_open, not is_open), done.err


@pytest.mark.parametrize(
    ("by", "ago", "is_left"),
    [("other", 20.0, True), ("other", 1200.0, False), ("own", 20.0, False)],
)
def test_a_machine_that_another_process_removes_is_not_removed_twice(by, ago, is_left, tmp_path):
    removed = tmp_path / "removed"
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        cluster.settle()
        here = {"POD_NAME": "own"}
        assert replaced(cluster, environ=here, then=writes_to(removed), pause_after=1).code == 0
        metadata = cluster.get("Node", "n1")["metadata"]
        record = json.loads(metadata["annotations"]["rebalancer/drain"])
        at = SystemClock().unix() - ago
        stage = {"phase": "removing", "by": by, "at": at, "uid": metadata["uid"]}
        text = {"rebalancer/drain": json.dumps({**record, "stage": stage})}
        cluster.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": text}}
        )
        until = "waiting  for another replacement" if is_left else None
        done = replaced(cluster, until, environ=here, then=writes_to(removed), timeout=30.0)
        names = removed.read_text().split()
        assert (names.count("n1"), done.code == 0) == (1 if is_left else 2, not is_left), done.err


def test_a_policy_without_strategies_is_no_reason_to_say_that_nothing_moves(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: rebalancer/v1\nkind: Policy\n")
    with embedded_nodes("n1", "n2", "n3") as cluster:
        two_old_nodes(cluster)
        done = replaced(cluster, policy_path=str(policy), dry_run="client")
        assert (done.code, done.report["warnings"]) == (0, [])
