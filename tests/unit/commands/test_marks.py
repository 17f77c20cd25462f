"""Runs that steer, from the policy to the report, on an embedded cluster; and the command ``marks``."""

import io
import json
import threading
from contextlib import contextmanager

import pytest

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ExitCode, StoppedError
from rebalancer.commands.marks import show_marks
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.run.options import ClusterFlags
from rebalancer.testing.objects import EmbeddedCluster, deployment, node, pod, spread
from rebalancer.wire.marks import EMPTY, Mark
from tests.support.worlds import FAST
from tests.unit.commands.embedded import Runner, SignalAfterEviction

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: {steer}
protect: {{minPodAge: 0s}}
strategies: {{duplicates: {{}}}}
"""
TEAM = {"key": "team", "value": "x", "effect": "PreferNoSchedule"}


def mark(value):
    return {"key": "rebalancer/mark", "value": value, "effect": "PreferNoSchedule"}


DEAD, LIVE = mark("steer.20200101T000000Z.dead"), mark("steer.20991231T000000Z.live")


@contextmanager
def crowded(taints=()):
    """Two web pods on n0; n1, which is emptier than n2 and n3, would take any replacement, and holds one already."""
    with EmbeddedCluster(timings=FAST) as cluster:
        cluster.apply(node("n0", zone="a"))
        cluster.settle()
        labels = {"app": "web"}
        more = {
            "labels": labels,
            "cpu": "200m",
            # A rule of its own switches the scheduler's default spreading over hosts off.
            "topologySpreadConstraints": [spread(labels, hard=False)],
        }
        cluster.apply(deployment("web", 2, **more))
        cluster.settle()
        cluster.apply(node("n1", zone="a"))
        cluster.settle()
        cluster.apply(deployment("web", 3, **more))
        cluster.settle()
        for name in ("n2", "n3"):
            cluster.apply(node(name, zone="a", taints=taints))
            full = pod(f"full-{name}", cpu="5")
            full["spec"]["nodeName"] = name
            cluster.apply(full)
        cluster.settle()
        assert standing(cluster) == ["n0", "n0", "n1"]
        yield cluster


def standing(cluster):
    pods = [p for p in cluster.objects("Pod", "default") if p["metadata"]["name"].startswith("web")]
    return sorted(p["spec"]["nodeName"] for p in pods if "deletionTimestamp" not in p["metadata"])


def taints(cluster):
    return {
        one["metadata"]["name"]: one["spec"]["taints"]
        for one in cluster.objects("Node", "")
        if one["spec"].get("taints")
    }


def runner(cluster, folder, steer="marks"):
    return Runner(cluster, folder, POLICY.format(steer=steer))


def test_a_marked_node_sends_the_replacement_elsewhere_and_no_mark_is_left(tmp_path):
    with crowded() as cluster:
        code, report = runner(cluster, tmp_path, steer="off")(dry_run=True)
        assert (code, report["moves"]) == (0, [])
        run = runner(cluster, tmp_path)
        _, planned = run(dry_run=True)
        assert taints(cluster) == {}
        code, report = run()
        assert code == 0
        (move,) = report["moves"]
        assert move["marks"] == planned["moves"][0]["marks"] != []
        assert "n1" in move["marks"]
        assert (move["outcome"], move["predicted"]) == ("evicted", True)
        assert move["landed"] in ("n2", "n3")
        cluster.settle()
        assert len(set(standing(cluster))) == 3
        assert taints(cluster) == {}
        assert run()[1]["moves"] == []


def test_stale_marks_go_first_and_those_of_others_stay(tmp_path):
    with crowded(taints=[DEAD, TEAM]) as cluster:
        cluster.apply(node("n4", zone="a", taints=[LIVE], unschedulable=True))
        cluster.settle()
        code, _ = runner(cluster, tmp_path)()
        assert code == 0
        cordon = "node.kubernetes.io/unschedulable"
        left = {
            name: [taint for taint in of_node if taint["key"] != cordon]
            for name, of_node in taints(cluster).items()
        }
        assert left == {"n2": [TEAM], "n3": [TEAM], "n4": [LIVE]}


def test_a_mark_of_another_run_stands_and_landings_are_predicted_by_it(tmp_path):
    # It steers the replacement off n1 as a mark of this run would.
    with crowded() as cluster:
        cluster.apply(node("n1", zone="a", taints=[LIVE]))
        cluster.settle()
        code, report = runner(cluster, tmp_path)()
        assert code == 0
        (move,) = report["moves"]
        assert "n1" not in move["marks"]
        assert (move["outcome"], move["predicted"]) == ("evicted", True)
        assert move["landed"] in ("n2", "n3")
        assert taints(cluster) == {"n1": [LIVE]}


NONE = "this run marks no node, and empties none"


def refusing(cluster, node):
    cluster.faults.faults.append(
        Fault(method="PATCH", path=f"/api/v1/nodes/{node}", status=403, times=99)
    )


def test_a_stale_mark_that_cannot_be_removed_is_named_and_the_run_steers_nothing(tmp_path):
    # Landings are predicted as the scheduler sees the mark; the pods that need no marks move.
    with crowded(taints=[DEAD]) as cluster:
        refusing(cluster, "n2")
        code, report = runner(cluster, tmp_path)()
        assert code == 4
        (said,) = report["warnings"]
        assert said.startswith(f"{NONE}: the stale mark on node n2 could not be removed: ")
        assert report["moves"] == []
        assert standing(cluster) == ["n0", "n0", "n1"]
        assert taints(cluster) == {"n2": [DEAD]}


class SignalAtPatch(threading.Event):
    """Set once a node is about to be patched."""

    def __init__(self, cluster):
        super().__init__()
        self._faults = cluster.faults

    def is_set(self):
        return self._faults.count_seen("PATCH", "/nodes/") > 0


class SignalAtSteering(threading.Event):
    """Set, for good, once a node has a mark that steers."""

    def __init__(self, cluster):
        super().__init__()
        self._cluster = cluster

    def is_set(self):
        of_nodes = taints(self._cluster).values()
        if any(taint["key"] == "rebalancer/mark" for of in of_nodes for taint in of):
            self.set()
        return super().is_set()


def test_a_signal_while_stale_marks_are_removed_ends_the_run(tmp_path):
    with crowded(taints=[DEAD]) as cluster:
        refusing(cluster, "n2")
        with pytest.raises(StoppedError):
            runner(cluster, tmp_path)(stop=SignalAtPatch(cluster))
        assert standing(cluster) == ["n0", "n0", "n1"]


EMPTIES = """
apiVersion: rebalancer/v1
kind: Policy
steer: marks
protect: {minPodAge: 0s}
strategies: {taints: {}, consolidation: {minNodeAge: 0s}}
"""


def test_nodes_that_cannot_be_marked_are_not_emptied_and_the_run_says_so(tmp_path):
    with EmbeddedCluster(timings=FAST) as cluster:
        cluster.apply(*(node(f"n{i}", zone="a") for i in range(3)))
        cluster.apply(deployment("web", 2, cpu="200m"))
        cluster.settle()
        for name in ("n0", "n1", "n2"):
            refusing(cluster, name)
        code, report = Runner(cluster, tmp_path, EMPTIES)()
        assert (code, report["moves"], taints(cluster)) == (4, [], {})
        assert report["warnings"][0].startswith(f"{NONE}: nodes could not be marked as to be empty")


def test_nodes_that_pods_hold_and_that_cannot_be_marked_are_named_as_such(tmp_path):
    with EmbeddedCluster(timings=FAST) as cluster:
        cluster.apply(*(node(f"n{i}", zone="a") for i in range(3)))
        held = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        for name in ("n0", "n1", "n2"):
            one = pod(f"cron-{name}", cpu="200m", annotations=held)
            one["spec"]["nodeName"] = name
            cluster.apply(one)
            refusing(cluster, name)
        cluster.settle()
        code, report = Runner(cluster, tmp_path, EMPTIES)()
        assert (code, report["moves"], taints(cluster)) == (4, [], {})
        said = f"{NONE}: nodes could not be marked as held by pods that stay: "
        assert report["warnings"][0].startswith(said)


@pytest.mark.parametrize(
    ("left", "code"), [(30 * 86400, ExitCode.STOPPED), (600, ExitCode.PARTIAL)]
)
def test_marks_that_stood_before_are_no_change_of_a_run_that_is_stopped(tmp_path, left, code):
    """A mark that would expire soon is renewed, which is a change."""
    value = Mark(EMPTY, SystemClock().unix() + left, "nolease").value
    empty = {**TEAM, "key": "rebalancer/empty", "value": value}
    policy = EMPTIES.replace("taints", "duplicates")
    with crowded() as cluster:
        cluster.apply(node("n4", zone="a", taints=[empty]))
        cluster.settle()
        stop = SignalAtSteering(cluster)
        ended, report = Runner(cluster, tmp_path, policy)(stop=stop)
        assert "evicted" not in {move["outcome"] for move in report["moves"]}
        assert ended == code


def test_a_run_that_does_not_steer_says_that_marks_have_expired(tmp_path):
    with crowded(taints=[DEAD]) as cluster:
        _, report = runner(cluster, tmp_path, steer="off")()
        assert report["warnings"] == [
            "2 nodes carry marks that have expired (n2, n3), which keep pods away: rebalancer marks --clear"
        ]
        assert taints(cluster) == {"n2": [DEAD], "n3": [DEAD]}


def test_a_signal_leaves_no_mark(tmp_path):
    with crowded() as cluster:
        code, report = runner(cluster, tmp_path)(stop=SignalAfterEviction(cluster))
        assert code in (0, 4)
        assert report["moves"][0]["outcome"] == "evicted"
        assert taints(cluster) == {}


def test_what_cannot_be_marked_is_not_evicted(tmp_path):
    with crowded() as cluster:
        cluster.faults.faults.append(Fault(method="PATCH", path="/nodes/", status=403, times=99))
        code, report = runner(cluster, tmp_path)()
        assert code == 4
        assert report["moves"][0]["outcome"] == "failed"
        assert standing(cluster) == ["n0", "n0", "n1"]


def marks_of(cluster, *, output="table", clear=False):
    out, err = io.StringIO(), io.StringIO()
    environment = Environment(SystemClock(), {}, out, err)
    code = show_marks(
        ClusterFlags(kubeconfig=str(cluster.kubeconfig)), output, environment, clear=clear
    )
    return int(code), out.getvalue()


def cleared(cluster):
    """Exit code and states of what was removed."""
    code, out = marks_of(cluster, output="json", clear=True)
    return code, {row["state"] for row in json.loads(out)["marks"]}


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_no_marks_are_shown_as_none(output):
    with EmbeddedCluster() as cluster:
        code, out = marks_of(cluster, output=output)
    assert code == 0
    assert "No node" in out or "marks" in out


def test_marks_are_shown_and_cleared_by_hand():
    with EmbeddedCluster() as cluster:
        for name, of_node in (("n0", [DEAD, TEAM]), ("n1", [LIVE]), ("n2", [mark("by-hand")])):
            cluster.apply(node(name, taints=of_node))
        cluster.settle()
        code, out = marks_of(cluster)
        assert (code, [line.split() for line in out.splitlines()]) == (
            0,
            [
                ["NODE", "REASON", "EXPIRES", "RUN", "STATE"],
                ["n0", "steer", "2020-01-01T00:00:00Z", "dead", "expired"],
                ["n1", "steer", "2099-12-31T00:00:00Z", "live", "standing"],
                ["n2", "by-hand", "-", "-", "unreadable"],
            ],
        )
        assert cleared(cluster) == (0, {"removed"})
        assert taints(cluster) == {"n0": [TEAM]}


def scale_in(phase, *, cordoned=True, at="2026-11-20T10:00:00Z"):
    state = {"phase": phase, "since": at, "at": at, "by": "pod-1", "uid": "u", "cordoned": cordoned}
    return {"rebalancer/scale-in": json.dumps(state)}


OURS = {"key": "rebalancer/scale-in", "effect": "NoSchedule"}
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}


def scaled_in(name, phase, *taints, closed=True, **more):
    """A node as scale-in has left it."""
    made = node(name, taints=[*taints, *([OURS] if closed else [])], unschedulable=closed)
    made["metadata"]["annotations"] = {**scale_in(phase, **more), "team": "x"}
    return made


def test_what_scale_in_has_left_is_shown_and_undone():
    with EmbeddedCluster() as cluster:
        cluster.apply(
            scaled_in("n1", "leaving", TEAM),
            scaled_in("n2", "leaving", cordoned=False),
            scaled_in("n3", "leaving", GOING),
            node("n5", taints=[OURS]),
            node("n6", taints=[TEAM]),
        )
        cluster.settle()
        code, out = marks_of(cluster)
        assert code == 0
        assert [line.split() for line in out.splitlines()[1:]] == [
            ["n1", "scale-in", "-", "pod-1", "leaving"],
            ["n2", "scale-in", "-", "pod-1", "leaving"],
            ["n3", "scale-in", "-", "pod-1", "leaving"],
            ["n5", "scale-in", "-", "-", "unreadable"],
        ]
        assert cleared(cluster) == (0, {"removed"})
        assert marks_of(cluster)[1] == "No node carries a mark.\n"
        cluster.settle()
        nodes = {one["metadata"]["name"]: one for one in cluster.objects("Node", "")}
        # Another one cordoned n2, and Cluster Autoscaler wants n3 closed, too.
        assert {name for name, one in nodes.items() if one["spec"].get("unschedulable")} == {
            "n2",
            "n3",
        }
        assert nodes["n1"]["spec"]["taints"] == [TEAM]
        assert nodes["n1"]["metadata"]["annotations"] == {"team": "x"}


def test_of_what_cannot_be_read_it_is_said_that_the_cordon_stays():
    """Who cordoned the node is not known, and once all else is removed nothing lists it any more."""
    closed, open_ = scaled_in("n0", "leaving"), scaled_in("n1", "leaving", closed=False)
    for one in (closed, open_):
        one["metadata"]["annotations"] = {"rebalancer/scale-in": "{"}
    with EmbeddedCluster() as cluster:
        cluster.apply(closed, open_)
        cluster.settle()
        out, err = io.StringIO(), io.StringIO()
        environment = Environment(SystemClock(), {}, out, err)
        access = ClusterFlags(kubeconfig=str(cluster.kubeconfig))
        assert int(show_marks(access, "json", environment, clear=True)) == 4
        states = {row["node"]: row["state"] for row in json.loads(out.getvalue())["marks"]}
        assert states == {"n0": "unreadable", "n1": "removed"}
        assert "node n0: it stays cordoned" in err.getvalue()
        n0 = cluster.get("Node", "n0")
        assert n0["spec"]["unschedulable"]
        assert "rebalancer/scale-in" not in n0["metadata"].get("annotations", {})
        assert OURS not in n0["spec"].get("taints", [])


def test_a_node_whose_machine_is_being_terminated_stays_cordoned():
    with EmbeddedCluster() as cluster:
        cluster.apply(scaled_in("n0", "ending"), scaled_in("n1", "ending", closed=False))
        cluster.settle()
        out, err = io.StringIO(), io.StringIO()
        environment = Environment(SystemClock(), {}, out, err)
        access = ClusterFlags(kubeconfig=str(cluster.kubeconfig))
        assert int(show_marks(access, "json", environment, clear=True)) == 4
        states = {row["node"]: row["state"] for row in json.loads(out.getvalue())["marks"]}
        # Of one that a person has uncordoned nothing is kept.
        assert states == {"n0": "ending", "n1": "removed"}
        assert (
            "node n0: the termination of its machine was requested at 2026-11-20" in err.getvalue()
        )
        assert cluster.get("Node", "n0")["spec"]["unschedulable"]
        assert "rebalancer/scale-in" in cluster.get("Node", "n0")["metadata"]["annotations"]
