"""Scale-in while requests are lost, others write on the same nodes, and annotations are forged."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.base.errors import ProviderError
from rebalancer.base.stop import Stop
from rebalancer.kube.nodes import NodeView
from rebalancer.machines.capacity import scale_in
from rebalancer.machines.capacity.scaling import Scaler, Scaling
from rebalancer.machines.capacity.writing import change_state
from rebalancer.machines.drain.remaining import describe_remaining
from rebalancer.plan.machines import ActStatus, MachineAct
from rebalancer.signals.notice import NOTICE
from rebalancer.signals.state import STATE
from rebalancer.snapshot.leaving import DRAIN, LEAVE
from rebalancer.testing.objects import deployment
from rebalancer.wire.marks import SCALE_IN, Phase, ScaleInRecord
from tests.unit.commands.scaling import TICK, fill, grounded, tick_until
from tests.unit.kube.scripted import Say, ScriptedServer, client_of

_FUTURE = "2099-01-01T00:00:00Z"


def _forge(ground, name, phase, *, cordon, at="2020-01-01T00:00:00Z", **more):
    """Write on a node what scale-in writes, as any user who may annotate nodes can."""
    uid = ground.cluster.get("Node", name)["metadata"]["uid"]
    said = {"phase": phase, "since": "2020-01-01T00:00:00Z", "at": at, "uid": uid, **more}
    node = {"apiVersion": "v1", "kind": "Node"}
    metadata = {"name": name, "annotations": {SCALE_IN: json.dumps(said)}}
    ground.cluster.apply({**node, "metadata": metadata})
    if cordon:
        ground.cluster.cordon([name])


def _annotate(ground, name, **annotations):
    metadata = {"name": name, "annotations": annotations}
    ground.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


# -- the reply of the provider is lost -----------------------------------------------------------------------


def test_a_lost_reply_to_a_request_that_was_carried_out_ends_one_machine(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 2, low=0) as ground:
        fill(ground, "n1")
        assert tick_until(ground, "DrainStarted", "n2")
        ground.pool.lost = "done"
        assert ground.tick() == [("Failed", "n2", "failed")]
        # What may be ending is not opened again.
        assert ground.closed("n2")
        ground.pool.lost = None
        for _ in range(3):
            ground.tick()
        assert (ground.pool.ended, ground.pool.group.desired) == (["n2"], 1)
        assert ground.nodes == ["n1"]


@pytest.mark.parametrize("ready", [True, False])
def test_an_end_that_was_accepted_is_not_asked_for_again_though_it_is_shown_late(
    tmp_path, monkeypatch, ready
):
    """The provider lists the group as before for nine minutes: a second request could make it smaller again."""
    with grounded(tmp_path, monkeypatch, 2, low=0) as ground:
        fill(ground, "n1")
        assert tick_until(ground, "DrainStarted", "n2")
        late = ground.pool.group
        ended = tick_until(ground, "Terminated", "n2")
        assert ended
        with monkeypatch.context() as lagging:
            lagging.setattr(ground.pool, "groups", lambda _: [late])
            lagging.setattr(ground.pool, "catch_up", lambda: None)
            if not ready:
                ground.cluster.break_nodes(["n2"])
            for _ in range(9):
                assert ground.tick(60.0) == [("Terminating", "n2", "waits")]
                assert ground.closed("n2")
        ground.tick()
        assert (ground.pool.ended, ground.nodes) == (["n2"], ["n1"])


def test_a_machine_that_stays_although_its_end_was_accepted_is_asked_for_once_more(
    tmp_path, monkeypatch
):
    """The provider has ended another one in its place, say."""
    with grounded(tmp_path, monkeypatch, 2, low=0) as ground:
        fill(ground, "n1")
        assert tick_until(ground, "DrainStarted", "n2")
        end, asked = ground.pool.terminate, []
        monkeypatch.setattr(ground.pool, "terminate", lambda _, instance: asked.append(instance))
        for _ in range(6):
            ground.tick()
        assert asked == ["n2"]
        monkeypatch.setattr(ground.pool, "terminate", end)
        for _ in range(4):
            ground.tick()
        assert (ground.pool.ended, ground.nodes) == (["n2"], ["n1"])


def test_a_lost_request_is_sent_again_after_a_new_look(going):
    going.pool.lost = "ignored"
    assert going.tick() == [("Failed", "n2", "failed")]
    assert going.stated("n2")["phase"] == "ending"
    going.pool.lost = None
    assert [act[0] for act in going.tick()] == ["Draining", "Draining"]
    assert (going.stated("n2")["phase"], going.stated("n2")["cordoned"]) == ("leaving", True)
    assert going.tick() == [("Terminated", "n2", "done")]
    assert going.pool.ended == ["n2"]


def test_a_machine_that_never_ends_is_given_back(going):
    going.pool.lost = "ignored"
    for _ in range(3):
        going.tick()
    assert going.stated("n2")["phase"] == "ending"
    assert ("Failed", "n2", "failed") in going.tick()
    assert going.state("n2") is None
    assert going.is_open("n2")


def test_a_node_whose_end_was_lost_is_given_back_if_it_is_needed_by_then(going):
    going.pool.lost = "ignored"
    going.tick()
    going.pool.lost = None
    going.cluster.apply(deployment("new", 1, cpu="1500m"))
    going.cluster.settle()
    going.tick()
    assert ("Cancelled", "n2", "done") in going.tick()
    assert (going.pool.ended, going.ready("new")) == ([], 1)


# -- others write on the same node ---------------------------------------------------------------------------


def _entered(monkeypatch, stands, ours):
    """Return why a machine is not ended on whose node ``stands`` stands."""
    node = NodeView("n", "u", "1", True, {SCALE_IN: stands.value}, "", ())

    def change(_client, _name, wanted):
        wanted(node)
        return node

    monkeypatch.setattr("rebalancer.node_record.protocol.change_node", change)
    client: Any = None
    return change_state(client, "n", ours, Phase.LEAVING).why_not


def test_of_two_processes_one_alone_ends_a_machine(monkeypatch):
    leaving = ScaleInRecord(Phase.LEAVING, "t0", "t1", "a", uid="u")
    ours = ScaleInRecord(Phase.ENDING, "t0", "t2", "a", uid="u")
    theirs = ScaleInRecord(Phase.ENDING, "t0", "t2", "b", uid="u")
    assert _entered(monkeypatch, leaving, ours) is None
    assert _entered(monkeypatch, ours, ours) is None  # the reply was lost
    assert _entered(monkeypatch, theirs, ours) == "b is ending its machine"


def test_nothing_more_is_done_once_the_lease_is_lost():
    done = []

    def acts():
        for name in ("a", "b", "c"):
            done.append(name)
            yield MachineAct(
                strategy="s", code="Closed", status=ActStatus.DONE, group="", node=name, message=""
            )

    class Clock:
        def now(self):
            return 0.0

    class Acting(Scaler):
        def before(self):
            return acts()

        after = before

    context: Any = None
    stop = Stop(Clock())
    stop.add(lambda: "the Lease is lost" if len(done) >= 2 else None)
    scaling = Scaling([("s", Acting(context))], lambda _: True, stop=stop)
    scaling.before()
    scaling.after()
    assert done == ["a", "b"]
    assert [act.node for act in scaling.acts] == ["a", "b"]


def test_a_node_that_a_person_drains_meanwhile_stays_cordoned(going):
    _annotate(going, "n2", **{DRAIN: "{}"})
    assert ("Cancelled", "n2", "waits") in going.tick()
    assert going.closed("n2")
    assert going.pool.ended == []
    # Who cordoned it stays known, and opens it once the person does not want it closed any more.
    _annotate(going, "n2", **{DRAIN: None})
    fill(going, "n2")
    for _ in range(2):
        going.tick()
    assert going.is_open("n2")


# -- the last look -------------------------------------------------------------------------------------------


def _between(monkeypatch, ground, act):
    """Do this after the group was read for the request, and before the node is written."""
    read = ground.pool.group_named

    def group_named(*asked):
        try:
            return read(*asked)
        finally:
            act()

    monkeypatch.setattr(ground.pool, "group_named", group_named)


_DRAIN = json.dumps({"by": "someone", "at": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    "annotation",
    [
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"),
        ("karpenter.sh/do-not-disrupt", "true"),
        (DRAIN, _DRAIN),
        (LEAVE, "now"),
        (NOTICE, "{}"),
        (STATE, "{}"),
        (STATE, "not ours"),
    ],
    ids=lambda of: of[0] + of[1][:3],
)
def test_who_comes_between_the_look_and_the_request_keeps_the_machine(
    going, monkeypatch, annotation
):
    _between(monkeypatch, going, lambda: _annotate(going, "n2", **dict([annotation])))
    # Others may count on the cordon: it is scale-in's own for as long as they do, and never nobody's.
    counts = annotation[0].startswith("rebalancer")
    assert ("Cancelled", "n2", "waits" if counts else "done") in going.tick()
    assert going.pool.ended == []
    assert (going.is_open("n2"), going.state("n2") is None) == (not counts, not counts)


@pytest.mark.parametrize("annotation", [NOTICE, LEAVE, "karpenter.sh/do-not-disrupt"])
def test_a_node_that_is_protected_since_the_look_is_not_cordoned(ground, monkeypatch, annotation):
    for _ in range(5):
        ground.tick()
    cordon = scale_in._cordon

    def late(*of):
        _annotate(ground, "n2", **{annotation: "true"})
        return cordon(*of)

    monkeypatch.setattr(scale_in, "_cordon", late)
    assert ("DrainStarted", "n2", "waits") in ground.tick()
    assert ground.is_open("n2")


def test_nothing_is_requested_once_the_run_must_end(going, monkeypatch):
    """A signal while the group is read: neither the node is written nor the machine ended."""
    signalled = threading.Event()
    _between(monkeypatch, going, signalled.set)
    going.cluster.advance(TICK)
    going.run(stop=signalled)
    assert (going.pool.ended, going.stated("n2")["phase"]) == ([], "leaving")


def test_nothing_is_requested_long_after_the_note_on_the_node(going, monkeypatch):
    """By then another process may have taken the request for a lost one, and given the node back."""
    late = [25.0]

    def slowly(client, name, state, after):
        changed = change_state(client, name, state, after)
        if state.phase is Phase.ENDING and late:
            monkeypatch.setattr(Stop, "now", _later(Stop.now, late.pop()))
        return changed

    monkeypatch.setattr("rebalancer.machines.capacity.scale_in.change_state", slowly)
    assert ("Draining", "n2", "done") in going.tick()
    assert (going.pool.ended, going.stated("n2")["phase"]) == ([], "leaving")
    assert ("Terminated", "n2", "done") in going.tick()


def _later(now, seconds):
    return lambda stop: now(stop) + seconds


def test_a_read_that_fails_before_the_request_is_no_request(going, monkeypatch):
    """Throttled three times: a machine whose termination was never requested is not given back for that."""
    with monkeypatch.context() as patch:

        def throttled(*_):
            raise ProviderError("Throttling: Rate exceeded")

        patch.setattr(going.pool, "group_named", throttled)
        for _ in range(3):
            assert ("Failed", "n2", "failed") in going.tick()
            assert going.stated("n2")["phase"] == "leaving"
    assert going.tick() == [("Terminated", "n2", "done")]


def test_one_answer_without_pods_does_not_make_a_node_empty(tmp_path):
    pod = {
        "metadata": {"name": "web", "namespace": "default", "uid": "1"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    with ScriptedServer() as server:
        empty = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}
        server.on("GET", "/api/v1/pods", Say(empty), Say({**empty, "items": [pod]}))
        client = client_of(server.url, tmp_path)
        left = describe_remaining(client, "n1", clock=lambda: 0.0, version=(1, 36), ready=True)
    assert left == "1 to evict: n1: default/web"


# -- forged annotations --------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["leaving", "ending"])
@pytest.mark.parametrize("cordon", [False, True])
def test_a_forged_annotation_does_not_end_a_machine_that_cannot_go(
    tmp_path, monkeypatch, phase, cordon
):
    """Neither one with pods that have no place elsewhere, nor an empty one that is to stay."""
    with grounded(tmp_path, monkeypatch, 3, low=1) as ground:
        fill(ground, "n1", "n2")
        _annotate(ground, "n3", **{"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"})
        for name in ("n2", "n3"):
            _forge(ground, name, phase, cordon=cordon)
        for _ in range(3):
            ground.tick()
        assert ground.pool.ended == []
        assert [ground.state(name) for name in ("n2", "n3")] == [None, None]
        assert ground.ready("pad-n2") == 1


@pytest.mark.parametrize("phase", ["leaving", "ending"])
def test_a_time_that_is_yet_to_come_holds_nothing_for_ever(tmp_path, monkeypatch, phase):
    with grounded(tmp_path, monkeypatch, 3, low=1) as ground:
        fill(ground, "n1")
        _forge(ground, "n3", phase, cordon=True, at=_FUTURE)
        for _ in range(12):
            ground.tick()
        assert sorted(ground.pool.ended) == ["n2", "n3"]


# -- two releases --------------------------------------------------------------------------------------------


def _of_another_group(monkeypatch, ground):
    """Have the provider show a release only a group that has no node of the cluster."""
    other = replace(ground.pool.group, name="other", instances=())
    monkeypatch.setattr(ground.pool, "groups", lambda _nodes: [other])
    monkeypatch.setattr(ground.pool, "catch_up", lambda: None)


def test_another_release_leaves_a_node_alone_that_this_one_drains(ground, monkeypatch):
    """For it the node is in no group, and would be given up when it is not empty in time."""
    for name in "ab":
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        ground.cluster.apply({**lease, "metadata": {"name": name}})
    for _ in range(10):
        if not ground.closed("n2"):
            ground.tick(lease=("default", "a"))
    assert ground.stated("n2")["release"] == "default/a"
    with monkeypatch.context() as patch:
        _of_another_group(patch, ground)
        acts = ground.tick(20 * 60.0, lease=("default", "b"))
        assert [act for act in acts if act[1] == "n2"] == []
        assert (ground.stated("n2")["phase"], ground.closed("n2")) == ("leaving", True)
        # That release is gone: who comes later gives the node back.
        acts = ground.tick(4 * 3600.0, lease=("default", "b"))
        assert ("Failed", "n2", "failed") in acts
        assert ground.is_open("n2")
