"""Scale-in, run after run, on an embedded cluster whose nodes are a group of machines."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ExitCode, PolicyError, ProviderError
from rebalancer.node_record.protocol import EXCLUDE
from rebalancer.plan.machines import StepStatus
from rebalancer.run import one_run as run_command
from rebalancer.signals.state import STATE, PipelineState, StepState, encode_state, state_in
from rebalancer.testing.objects import deployment, pdb, require_apart
from rebalancer.wire.marks import SCALE_IN
from tests.unit.commands.embedded import Runner
from tests.unit.commands.ready import ReadyPods
from tests.unit.commands.scaling import TICK, OurClock, fill, grounded, tick_until
from tests.unit.commands.serving import serving, soon

_HALF = {"cpu": "500m", "memory": "512Mi"}


def _web(ground, replicas, **more):
    ground.cluster.apply(deployment("web", replicas, **{**_HALF, **more}))
    ground.cluster.settle()


@pytest.mark.parametrize(
    ("option", "ticks"),
    [({}, 6), ({"scaledownunneededtime": "4m"}, 3), ({"scaledownunneededtime": "20m"}, 11)],
)
def test_a_group_says_for_how_long_its_nodes_must_be_unneeded(ground, option, ticks):
    """A tick is two minutes, the policy's time ten."""
    ground.pool.group = replace(ground.pool.group, options=option)
    assert tick_until(ground, "DrainStarted", "n2") == ticks


def test_a_node_goes_once_it_could_for_ten_minutes_and_not_before(ground):
    assert ground.tick() == [("Unneeded", "n2", "done")]
    for _ in range(4):
        assert ground.tick() == [("Unneeded", "n2", "waits")]
        assert ground.is_open("n2")
    assert ground.tick() == [("DrainStarted", "n2", "done"), ("Draining", "n2", "waits")]
    assert ground.closed("n2")
    assert ground.stated("n2")["cordoned"]
    assert ground.tick() == [("Terminated", "n2", "done")]
    assert (ground.pool.ended, ground.pool.group.desired) == (["n2"], 1)
    assert (ground.tick(), ground.nodes) == ([], ["n1"])


def test_it_must_have_lasted_without_a_break(ground):
    for _ in range(4):
        ground.tick()
    _web(ground, 3)  # too much is requested
    assert ("NeededAgain", "n2", "done") in ground.tick()
    _web(ground, 0)
    assert ground.tick() == [("Unneeded", "n2", "done")]


def test_a_provider_that_cannot_be_asked_breaks_nothing_off(ground, monkeypatch):
    """A look that failed says nothing: what stands on nodes stays, as Cluster Autoscaler keeps it over a loop that failed."""
    ground.tick()
    with monkeypatch.context() as patch:

        def refuse(_):
            raise ProviderError("no credentials")

        patch.setattr(ground.pool, "groups", refuse)
        ground.cluster.advance(TICK)
        code, report = ground.run()
    assert code == 4
    assert report["warnings"] == ["nothing is done to machines: no credentials"]
    for _ in range(3):
        ground.tick()
    assert ground.tick()[0] == ("DrainStarted", "n2", "done")


def test_after_a_long_pause_of_the_runs_it_must_last_again(ground):
    ground.tick()
    assert ground.tick(3600.0) == [("Unneeded", "n2", "done")]
    assert ground.is_open("n2")


def test_a_process_that_starts_again_goes_on_with_the_nodes_that_are_closed(ground):
    """Since when others are unneeded it does not know: that begins again, as with Cluster Autoscaler."""
    for _ in range(4):
        ground.tick()
    ground.runner.restart()
    assert ground.tick() == [("Unneeded", "n2", "done")]
    assert tick_until(ground, "DrainStarted", "n2") == 5
    ground.runner.restart()
    assert ground.tick() == [("Terminated", "n2", "done")]


def _pads(ground):
    """Fill two of three nodes by half, so that they stay; return the third one."""
    labels = {"app": "pad"}
    ground.cluster.apply(
        deployment("pad", 2, cpu="1100m", affinity=require_apart(labels), labels=labels)
    )
    ground.cluster.settle()
    (free,) = [name for name in ground.nodes if not _pods(ground, name, "pad")]
    return free


def _web_on(ground, node, replicas, name="web", **more):
    """Have a Deployment's pods on one node, which they might leave."""
    others = [one for one in ground.nodes if one != node]
    ground.cluster.cordon(others)
    ground.cluster.apply(deployment(name, replicas, **{**_HALF, **more}))
    ground.cluster.settle()
    ground.cluster.cordon(others, on=False)
    assert len(_pods(ground, node, name)) == replicas


RESTART = "method: {singleReplicas: restart}"


@pytest.mark.parametrize(("more", "least"), [(RESTART, 1), ("", 0)])
def test_a_single_replica_goes_without_a_gap_where_the_policy_says_so(
    tmp_path, monkeypatch, more, least
):
    with grounded(tmp_path, monkeypatch, 3, low=1, more=more) as ground:
        free = _pads(ground)
        _web_on(ground, free, 1, cpu="200m")
        seen = ReadyPods(ground.cluster, "web")
        for _ in range(12):
            ground.tick()
        assert ground.pool.ended == [free]
        assert seen.least == {"web": least}


def test_pods_leave_within_their_budget_before_the_machine_ends(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 3, low=1) as ground:
        free = _pads(ground)
        ground.cluster.apply(pdb("web", {"app": "web"}, minAvailable=3))
        _web_on(ground, free, 4, cpu="200m", memory="256Mi")
        fewest, moves = [], []
        while not ground.pool.ended:
            ground.tick()
            fewest.append(ground.ready("web"))
            moves += ground.report["moves"]
            assert len(fewest) < 20
        assert ground.pool.ended == [free]
        assert min(fewest) >= 3
        assert {(one["strategy"], one["outcome"]) for one in moves} == {("scale-in", "evicted")}
        assert len(moves) == 4


def _pods(ground, node, name):
    return [
        one["metadata"]["name"]
        for one in ground.cluster.objects("Pod")
        if one["spec"].get("nodeName") == node and one["metadata"]["name"].startswith(name)
    ]


def test_the_empty_ones_go_first_and_of_the_others_one_at_a_time(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 6, low=1, options="atOnce: 4") as ground:
        fill(ground, "n1")
        for name in ("n2", "n3", "n4"):
            _web_on(ground, name, 1, name=f"on-{name}", cpu="100m")
        acts: list[tuple[str, str, str]] = []
        while not any(act[0] == "DrainStarted" for act in acts):
            acts = ground.tick()
        taken = [name for code, name, _ in acts if code == "DrainStarted"]
        assert taken[:2] == ["n5", "n6"]
        assert len(taken) == 3
        assert [code for code, *_ in acts].count("EnoughAtOnce") >= 1
        assert "drainingAtOnce is 1" in str(ground.report["machines"])


def test_never_below_the_minimum_also_if_that_is_raised_meanwhile(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 3, low=1) as ground:
        for _ in range(6):
            ground.tick()
        closed = [name for name in ground.nodes if ground.closed(name)]
        assert len(closed) == 2
        ground.pool.group = replace(ground.pool.group, minimum=3)
        codes = {act[0] for act in ground.tick()}
        assert codes == {"Cancelled"}
        assert (ground.pool.ended, ground.pool.group.desired) == ([], 3)
        assert all(ground.is_open(name) for name in ground.nodes)


def test_a_node_that_is_needed_again_is_opened(going):
    going.cluster.apply(deployment("new", 1, cpu="1500m"))
    going.cluster.settle()
    assert ("Cancelled", "n2", "done") in going.tick()
    assert going.is_open("n2")
    assert going.state("n2") is None
    assert going.ready("new") == 1


def test_a_cordon_that_was_there_before_stays(ground):
    ground.cluster.cordon(["n2"])
    assert tick_until(ground, "DrainStarted", "n2")
    assert not ground.stated("n2").get("cordoned", False)
    ground.pool.refuses = "autoscaling:TerminateInstanceInAutoScalingGroup: AccessDenied: no"
    assert tick_until(ground, "Failed", "n2")
    spec = ground.cluster.get("Node", "n2")["spec"]
    assert spec["unschedulable"]
    assert "rebalancer" not in str(spec.get("taints"))


def test_a_node_that_a_person_uncordons_is_left_to_them(going):
    going.cluster.cordon(["n2"], on=False)
    assert ("Cancelled", "n2", "done") in going.tick()
    assert going.is_open("n2")
    assert going.pool.ended == []


def test_a_refusal_gives_the_node_back_and_nothing_goes_for_three_minutes(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 3, low=1, options="atOnce: 1") as ground:
        fill(ground, "n1")
        first = ("n2", "n3")
        taken = None
        while taken is None:
            taken = next((act[1] for act in ground.tick() if act[0] == "DrainStarted"), None)
        other = next(name for name in first if name != taken)
        ground.pool.refuses = "AccessDenied: no"
        assert ("Failed", taken, "failed") in ground.tick()
        assert "AccessDenied" in ground.report["machines"][-1]["message"]
        assert ground.is_open(taken)
        ground.pool.refuses = None
        assert ("InCooldown", other, "waits") in ground.tick()
        acts = ground.tick()
        assert ("Unneeded", taken, "done") in acts
        assert ("DrainStarted", other, "done") in acts


def test_a_node_that_fails_again_and_again_is_closed_ever_more_rarely(tmp_path, monkeypatch):
    """Agents of DaemonSets that roll out meanwhile do not tolerate the taint."""
    with grounded(tmp_path, monkeypatch, 2, low=0, options="unneededFor: 4m") as ground:
        fill(ground, "n1")
        ground.pool.refuses = "AccessDenied: no"
        failed = [
            number * TICK / 60
            for number in range(36)
            if ("Failed", "n2", "failed") in ground.tick()
        ]
        pauses = [after - before for before, after in itertools.pairwise(failed)]
        # The pause, and the time for which it has to be unneeded and is closed, in ticks of two minutes.
        assert pauses == [10, 16, 26]
        # Needed once, it begins as any other node.
        ground.cluster.apply(deployment("more", 1, cpu="1500m"))
        ground.cluster.settle()
        ticks = itertools.takewhile(lambda _: ground.state("n2") is not None, range(32))
        for _ in ticks:
            ground.tick()
        assert ground.state("n2") is None


def test_a_node_that_does_not_become_empty_is_given_back(tmp_path, monkeypatch):
    options = "giveUpAfter: 5m, budgets: {perRun: 0}"
    with grounded(tmp_path, monkeypatch, 3, low=1, options=options) as ground:
        free = _pads(ground)
        _web_on(ground, free, 1, cpu="200m")
        codes = []
        for _ in range(10):
            ground.cluster.advance(TICK)
            code, report = ground.run()
            codes += [act["code"] for act in report["machines"]]
            if "Failed" in codes:
                break
        assert code == 4
        assert report["machines"][0]["message"].startswith("not empty after 5m: 1 to evict")
        assert codes.count("Draining") == 3
        assert (ground.pool.ended, ground.is_open(free)) == ([], True)
        assert ground.ready("web") == 1


@pytest.mark.parametrize("options", ["giveUpAfter: 5m, budgets: {perRun: 0}", "giveUpAfter: 5m"])
def test_runs_that_use_up_their_time_end_machines_and_give_nodes_back(
    tmp_path, monkeypatch, options
):
    """The moves of others take all of each run's time: what waits for its end has its own."""
    with grounded(tmp_path, monkeypatch, 3, low=1, options=options) as ground:
        free = _pads(ground)
        gives_back = "perRun" in options
        if gives_back:
            _web_on(ground, free, 1, cpu="200m")
        acting = run_command.act

        def act(reading, *given, stop=None, **more):
            execution = acting(reading, *given, stop=stop, **more)
            # Until the moves have to end.
            until = max(stop.now(), stop.deadline)
            monkeypatch.setattr(OurClock, "now", lambda _: until)
            return execution

        with monkeypatch.context() as patch:
            patch.setattr(run_command, "act", act)
            for _ in range(10):
                ground.cluster.advance(TICK)
                _, report = ground.run()
                monkeypatch.setattr(OurClock, "now", SystemClock.now)
                if report["machines"] and report["machines"][-1]["code"] in (
                    "Failed",
                    "Terminated",
                ):
                    break
        assert (ground.pool.ended, ground.is_open(free)) == (
            ([], True) if gives_back else ([free], False)
        )


def _labelled(ground, name):
    return EXCLUDE in ground.cluster.get("Node", name)["metadata"]["labels"]


@pytest.mark.parametrize("theirs", [False, True])
def test_load_balancers_are_told_before_the_machine_ends(ground, theirs):
    if theirs:
        _amend(ground, "n2", labels={EXCLUDE: "true"})
    assert tick_until(ground, "DrainStarted", "n2")
    assert _labelled(ground, "n2")
    # The scheduler has had its time, load balancers have not.
    assert ground.tick(10.0)[-1] == (
        ("Terminated", "n2", "done") if theirs else ("Draining", "n2", "waits")
    )
    if not theirs:
        ground.cluster.apply(deployment("new", 1, cpu="1500m"))
        ground.cluster.settle()
        assert ("Cancelled", "n2", "done") in ground.tick()
        assert not _labelled(ground, "n2")


def _amend(ground, name, **metadata):
    ground.cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}
    )


def _detach(ground, name, volume, *, stands):
    """Have the VolumeAttachment of a volume stand, as while it is detached, or not."""
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": volume},
        "spec": {"attacher": "x", "nodeName": name, "source": {"persistentVolumeName": volume}},
    }
    if stands:
        ground.cluster.apply(attachment)
    else:
        ground.cluster.delete("VolumeAttachment", volume)


@pytest.mark.parametrize(
    ("why", "goes"),
    [
        ("an annotation", True),
        ("a volume", True),
        ("a volume that is detached", True),
        ("a volume that is detached", False),
    ],
)
def test_an_empty_node_is_waited_for_two_minutes_at_most(going, why, goes):
    key = "delay-deletion.cluster-autoscaler.kubernetes.io/agent"
    if why == "an annotation":
        _amend(going, "n2", annotations={key: "sends its last logs"})
    elif why == "a volume":
        _attach(going, "n2", [{"name": "kubernetes.io/csi/x^vol-1", "devicePath": ""}])
    else:
        _detach(going, "n1", "vol-2", stands=True)
        _detach(going, "n2", "vol-1", stands=True)
    assert going.tick(20.0) == [("Draining", "n2", "done")]
    said = going.report["machines"][0]["message"]
    assert said.startswith("it is empty, and ")
    assert (key in said) or ("vol-1" in said)
    if goes:
        if why == "an annotation":
            _amend(going, "n2", annotations={key: None})
        elif why == "a volume":
            _attach(going, "n2", [])
        else:
            _detach(going, "n2", "vol-1", stands=False)
        assert going.tick(20.0) == [("Terminated", "n2", "done")]
        assert "although" not in going.report["machines"][0]["message"]
    else:
        assert going.tick(60.0) == [("Draining", "n2", "waits")]
        assert going.tick(60.0) == [("Terminated", "n2", "done")]
        named = said.removeprefix("it is empty, and ")
        assert f", although {named} after 120 s" in going.report["machines"][0]["message"]


def _attach(ground, name, volumes):
    status = {"volumesAttached": volumes}
    ground.cluster._amend_nodes([name], lambda node: node["status"].update(status))


_CLOSED: Any = {"settings": ("strategies.scale-in.windows=[{allow: '0 0 1 1 *', for: 1m}]",)}


def test_a_leaving_node_is_given_back_while_scale_in_is_suspended(going):
    """To give capacity back takes none away: it does not wait for a window, nor for a zone that is lost."""
    going.cluster.apply(deployment("new", 1, cpu="1500m"))
    going.cluster.settle()
    assert going.tick(**_CLOSED, dry_run=True)[0] == ("Cancelled", "n2", "planned")
    assert going.closed("n2")
    assert ("Cancelled", "n2", "done") in going.tick(**_CLOSED)
    assert going.is_open("n2")
    assert going.ready("new") == 1


def test_a_node_that_is_not_needed_is_given_back_once_its_window_is_closed_for_long(going):
    seen = [going.tick(**_CLOSED)[-1] for _ in range(8)]
    assert seen[0] == ("Draining", "n2", "planned")
    assert ("Cancelled", "n2", "done") in seen
    assert (going.is_open("n2"), going.pool.ended) == (True, [])


def test_nothing_goes_while_a_node_has_just_joined(ground):
    for _ in range(4):
        ground.tick()
    ground.pool.set_size(ground.pool.group, 3)
    ground.tick()
    assert ("InCooldown", "n2", "waits") in ground.tick()
    assert "has joined less than 10m ago" in str(ground.report["machines"])
    assert tick_until(ground, "DrainStarted", "n2") == 4


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"dry_run": True}, "a dry run changes nothing"),
        ({"mode": "observe"}, "it only observes"),
        ({"settings": ("strategies.scale-in.mode=observe",)}, "it only observes"),
        (
            {"settings": ("strategies.scale-in.windows=[{allow: '0 0 1 1 *', for: 1m}]",)},
            "its window is closed",
        ),
    ],
)
def test_advice_changes_nothing_and_says_why(ground, how, why):
    before = ground.cluster.get("Node", "n2")["metadata"]["resourceVersion"]
    assert ground.tick(**how) == [("Unneeded", "n2", "planned")]
    assert why in ground.report["machines"][0]["message"]
    assert ground.cluster.get("Node", "n2")["metadata"]["resourceVersion"] == before


def test_beside_another_autoscaler_it_is_advice(ground):
    labels = {"app": "cluster-autoscaler"}
    theirs = deployment("cluster-autoscaler", 1, labels=labels, cpu="10m")
    # A tenant's pod of that name is none.
    ground.cluster.apply(theirs)
    ground.cluster.settle()
    assert {act[2] for act in ground.tick(dry_run=True)} == {"planned"}
    assert "a dry run changes nothing" in ground.report["machines"][0]["message"]
    theirs["metadata"]["namespace"] = "kube-system"
    ground.cluster.apply(theirs)
    ground.cluster.settle()
    assert {act[2] for act in ground.tick()} == {"planned"}
    assert "Cluster Autoscaler runs here" in ground.report["machines"][0]["message"]
    assert "scale-in does nothing to machines: Cluster Autoscaler" in str(ground.report["warnings"])
    assert all(ground.state(name) is None for name in ground.nodes)
    assert "done" in {act[2] for act in ground.tick(settings=("capacity.besideAutoscaler=act",))}


def test_a_dry_run_plans_what_the_run_does(tmp_path, monkeypatch):
    with grounded(tmp_path, monkeypatch, 3, low=1) as ground:
        free = _pads(ground)
        _web_on(ground, free, 2, cpu="200m")
        for _ in range(5):
            ground.tick()
        ground.cluster.advance(TICK)
        _, dry = ground.run(dry_run=True)
        assert ground.is_open(free)
        _, real = ground.run()
        assert ground.closed(free)
        assert [one["pod"] for one in dry["moves"]] == [one["pod"] for one in real["moves"]] != []
        assert dry["machines"][0]["code"] == "DrainStarted"


def test_a_single_run_is_refused_before_anything_is_done(ground, tmp_path):
    alone = Runner(ground.cluster, tmp_path, ground.policy, OurClock(ground.cluster))
    with pytest.raises(PolicyError, match="scale-in ends machines, which only `rebalancer serve`"):
        alone()
    # What is only looked at is shown, and a plan that was reviewed is about pods.
    code, report = alone(dry_run=True)
    assert (code, [act["code"] for act in report["machines"]]) == (0, ["Unneeded"])
    code, report = alone(plan_path=alone.written(report))
    assert (code, report["machines"]) == (0, [])


def test_serve_goes_on_as_runs_do(tmp_path, monkeypatch):
    """It lives from the watch: what it writes on nodes is what its next run reads; the rest it remembers."""
    options = "unneededFor: 2s, coolDownAfterGrowth: 0s"
    with grounded(tmp_path, monkeypatch, 2, low=1, options=options) as ground:
        fill(ground, "n1")
        policy = ground.runner.policy.read_text()
        with serving(ground.cluster, tmp_path, policy=policy, every=0.5) as served:
            soon(lambda: ground.pool.ended == ["n2"], served.err.getvalue)
            ground.pool.catch_up()
            assert ground.nodes == ["n1"]
            assert served.end() is ExitCode.DONE
        assert ground.is_open("n1")


# -- others want the node, too ----------------------------------------------------------------------


def _annotate(ground, name, **annotations):
    metadata = {"name": name, "annotations": annotations}
    ground.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})


def test_the_cordon_goes_to_the_interruption_that_came_meanwhile(going):
    uid = going.cluster.get("Node", "n2")["metadata"]["uid"]
    attended = PipelineState((), 1.0, {"cordon": StepState(StepStatus.DONE)}, uid=uid)
    _annotate(going, "n2", **{STATE: encode_state(attended)})
    going.cluster.apply(deployment("new", 1, cpu="1500m"))
    going.cluster.settle()
    assert ("Cancelled", "n2", "done") in going.tick()
    there = going.cluster.get("Node", "n2")
    assert there["spec"]["unschedulable"]
    kept = state_in(there["metadata"]["annotations"], uid)
    assert kept is not None
    assert kept.steps["cordon"].left == "ours"


def test_what_another_version_has_written_is_left_as_it_is(ground):
    newer = json.dumps({"phase": "resting", "since": "t", "at": "t"})
    _annotate(ground, "n2", **{SCALE_IN: newer})
    for _ in range(6):
        ground.cluster.advance(TICK)
        code, report = ground.run()
    assert code == ExitCode.PARTIAL
    assert "cannot be read" in str(report["machines"])
    assert ground.state("n2") == json.loads(newer)
    assert ground.is_open("n2")


@pytest.mark.parametrize("phase", ["unneeded", "failed"])
def test_what_the_version_before_wrote_on_an_open_node_holds_up_nothing(ground, phase):
    earlier = json.dumps({"phase": phase, "since": "t", "at": "t"})
    _annotate(ground, "n2", **{SCALE_IN: earlier})
    reports = []
    for _ in range(6):
        ground.cluster.advance(TICK)
        reports.append(str(ground.run()[1]["machines"]))
    assert "cannot be read" not in "".join(reports)
    assert not ground.is_open("n2")
