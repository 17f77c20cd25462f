"""Scale-out: runs on an embedded cluster whose nodes are instances of moto."""

import pytest

from rebalancer.embedded.apiserver.http import Fault
from rebalancer.embedded.manifests import deployment
from rebalancer.machines.capacity.state import NOT_LAUNCHED, TIMEOUT
from tests.aws.fleet import site
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files

PLUS_ONE = ("pool", "ScaledUpGroup", "done")
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"
LIMITED = ("pool", "ClusterLimitReached", "waits")
_CALLS = {"autoscaling:DescribeAutoScalingGroups", "autoscaling:SetDesiredCapacity"}


@pytest.fixture
def ground(cloud, tmp_path):
    with site(cloud, tmp_path) as made:
        yield made


@pytest.fixture
def pending(ground):
    """Article 004: three machines of 1930m hold nine of ten pods of 500m; the tenth waits."""
    ground.fleet.add("pool", 3, high=6)
    ground.scale(1)
    assert ground.acts() == []
    ground.scale(10)
    assert ground.pending() == 1
    return ground


@pytest.mark.parametrize(
    ("capacity", "acts"),
    [
        ("groups: {pool: {max: 3}}", []),
        # A machine has two cores.
        ("total: {cpu: {max: 7}}", [LIMITED]),
        ("expander: [price, least-waste, random], total: {cpu: {max: 8}}", [PLUS_ONE]),
    ],
)
def test_limits_of_the_policy_hold_at_the_provider(cloud, tmp_path, capacity, acts):
    """As above: three machines, and a tenth replica that waits."""
    prices = "prices: {asOf: 2026-11-01, table: {t3.medium: 0.04}}"
    strategies = f"{{scale-out: {{}}}}\n{prices}\ncapacity: {{{capacity}}}"
    with site(cloud, tmp_path, strategies) as made:
        made.fleet.add("pool", 3, high=6)
        made.scale(1)
        assert made.acts() == []
        made.scale(10)
        assert made.acts() == acts
        assert made.fleet.sizes == {"pool": 4 if PLUS_ONE in acts else 3}


@pytest.mark.parametrize(("amount", "grown"), [("2", 1), (None, 0)])
def test_a_group_from_zero_brings_the_device_that_its_tag_names(cloud, tmp_path, amount, grown):
    """No node has a GPU, and two pods ask for one each; a machine of the group ``gpu`` has two."""
    train = deployment("train", 2, cpu="100m", memory="64Mi")
    (container,) = train["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    with site(cloud, tmp_path) as made:
        made.fleet.add("pool", 1)
        made.fleet.add("gpu", 0)
        if amount is not None:
            made.fleet.tag("gpu", f"{_TEMPLATE}resources/nvidia.com/gpu", amount)
        made.cluster.apply(train)
        made.cluster.settle()
        made.acts()
        made.pass_time(30)
        made.acts()
        assert made.fleet.sizes == {"pool": 1, "gpu": grown}
        code = made.judged()["pending"][0]["code"]
        assert code == ("NodeUpcoming" if grown else "NotPredictable")


def test_article_004_from_one_to_ten_replicas(pending):
    pending.cloud.ours.clear()
    assert pending.acts() == [PLUS_ONE]
    assert pending.fleet.sizes == {"pool": 4}
    assert set(pending.cloud.ours) == _CALLS

    # The machine is on its way: nothing grows twice.
    pending.pass_time(120)
    assert pending.acts() == []
    assert pending.fleet.sizes == {"pool": 4}
    document = pending.judged()
    assert document["groups"][0]["upcoming"] == 1
    assert [one["code"] for one in document["pending"]] == ["NodeUpcoming"]

    pending.fleet.join()
    assert pending.pending() == 0
    pending.pass_time(120)
    assert pending.acts() == []
    (pool,) = pending.judged()["groups"]
    assert (pool["nodes"], pool["desired"], pool["upcoming"]) == (4, 4, 0)


def test_events_are_written_once_for_a_change(pending):
    for _ in range(3):
        pending.acts()
        pending.pass_time(120)
    (pod,) = [
        pod["metadata"]["name"]
        for pod in pending.cluster.objects("Pod")
        if not pod["spec"].get("nodeName")
    ]
    of_nodes = pending.events("NoScaleDown")
    assert sorted({*pending.events()} - {*of_nodes}) == [
        ("ConfigMap", "machines", "ScaledUpGroup"),
        ("Pod", pod, "TriggeredScaleUp"),
    ]
    # Three nodes could be removed, or had no place for a pod, while there was one pod only; now they are full.
    assert len(of_nodes) == len(set(of_nodes)) == 3


def test_a_lost_zone_holds_back_moves_but_not_machines(ground):
    """Two of six nodes are not Ready: what ran there needs room in the other zones. Of most of them it is another thing."""
    ground.fleet.add("pool", 4, high=9)
    ground.fleet.add("lost", 2, zone="b", high=9)
    ground.scale(4)
    _not_ready(ground, ground.fleet.machines("lost"))
    ground.scale(20)
    code, report = ground.run()
    assert code == 0
    assert "2 of 6 nodes are NotReady" in report["standstill"][0]
    assert ground.fleet.sizes["pool"] > 4
    ground.fleet.join()
    _not_ready(ground, ground.fleet.machines("pool"))
    ground.scale(60)
    before = ground.fleet.sizes
    _, report = ground.run()
    assert ground.fleet.sizes == before
    assert {one["status"] for one in report["machines"]} <= {"planned", "waits"}
    assert "nodes are not Ready" in report["machines"][0]["message"]


def _not_ready(ground, names):
    ground.pass_time(3600)
    ground.cluster.break_nodes(names)
    ground.cluster.settle()


_AGENT = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}


def test_a_node_whose_agent_starts_is_upcoming(pending):
    """It is Ready, and takes no pod yet: nothing else is requested for the pods that wait for it."""
    assert pending.acts() == [PLUS_ONE]
    before = {one["metadata"]["name"] for one in pending.cluster.objects("Node")}
    (new,) = set(pending.fleet.machines("pool")) - before
    pending.fleet.join(taints=[_AGENT])
    pending.pass_time(120)
    assert pending.acts() == []
    assert pending.fleet.sizes == {"pool": 4}
    (verdict,) = pending.judged()["pending"]
    assert verdict["code"] == "NodeUpcoming"
    pending.cluster._amend_nodes([new], lambda node: node["spec"].update(taints=[]))
    pending.cluster.settle()
    assert pending.pending() == 0
    assert pending.acts() == []


def test_a_group_of_another_cluster_with_the_same_tag_is_not_ours(ground):
    """Its machines never become nodes here: after 15 minutes it is neither upcoming nor increased."""
    ground.fleet.add("ours", 1, high=4)
    ground.fleet.add("theirs", 1, high=9, zone="b")
    for machine in ground.fleet.machines("theirs"):
        ground.cluster.remove_node(machine)
    ground.acts()
    # Beyond the back-off, too, that follows on machines that did not come.
    for _ in range(12):
        ground.pass_time(120)
        ground.acts()
    ground.scale(6)
    assert ground.acts() == [("ours", "ScaledUpGroup", "done")]
    assert ground.fleet.sizes["theirs"] == 1


def test_machines_that_do_not_register_are_upcoming_until_another_group_is_increased(pending):
    assert pending.acts() == [PLUS_ONE]
    pending.fleet.add("other", 0, high=5, zone="b")
    sizes = pending.fleet.sizes
    for _ in range(7):
        pending.pass_time(120)
        assert pending.acts() == []
    pending.pass_time(61)
    assert pending.acts() == [("other", "ScaledUpGroup", "done")]
    assert pending.fleet.sizes == {"pool": sizes["pool"], "other": 1}
    pool = pending.groups["pool"]
    assert (pool.failures, pool.code) == (1, TIMEOUT)
    assert pending.events("ScaleUpTimedOut") == [("ConfigMap", "machines", "ScaleUpTimedOut")]


def test_machines_that_aws_has_not_are_given_up_after_the_provision_time(pending):
    """Cluster Autoscaler's UC4 (proposals/clusterstate.md): the target size is reduced to the current size."""
    pending.cloud.exhausted.add("pool")
    assert pending.acts() == [PLUS_ONE]
    pending.fleet.add("other", 0, high=5, zone="b")
    machines = pending.fleet.machines("pool")
    pending.pass_time(480)
    assert pending.acts() == []
    pending.pass_time(480)
    assert pending.acts() == [
        ("pool", "DecreasedTargetSize", "done"),
        ("other", "ScaledUpGroup", "done"),
    ]
    assert pending.fleet.sizes == {"pool": 3, "other": 1}
    assert pending.fleet.machines("pool") == machines
    assert len(pending.events("DecreasedTargetSize")) == 1
    # It is in the back-off still, and is not increased although AWS has machines again.
    pending.cloud.exhausted.clear()
    pending.pass_time(120)
    pending.scale(14)
    assert pending.acts() == [("other", "ScaledUpGroup", "done")]


_EMPTY = (
    "We currently do not have sufficient t3.medium capacity in the Availability Zone you requested"
)


def test_a_launch_that_fails_is_seen_at_the_next_look(pending):
    pending.fleet.fails("pool", "an old failure, before the request")
    pending.pass_time(60)
    pending.cloud.exhausted.add("pool")
    assert pending.acts() == [PLUS_ONE]
    pending.fleet.add("other", 0, high=5, zone="b")
    pending.pass_time(30)
    # Of a termination, or of what goes on, nothing is said.
    pending.fleet.fails("pool", "no", description="Terminating EC2 instance: i-1")
    pending.fleet.fails("pool", "", status="InProgress")
    assert pending.acts() == []
    pending.fleet.fails("pool", _EMPTY)
    pending.pass_time(60)
    # It would be one machine too many: AWS would terminate one of its choice.
    _, report = pending.run()
    assert [(one["group"], one["code"], one["status"]) for one in report["machines"]] == [
        ("pool", "DecreasedTargetSize", "waits"),
        ("other", "ScaledUpGroup", "done"),
    ]
    assert pending.fleet.sizes["pool"] == 4
    pending.cloud.activities["pool"][1]["StatusCode"] = "Cancelled"
    pending.scale(14)
    pending.pass_time(30)
    code, report = pending.run()
    assert code == 0
    first, second = report["machines"]
    assert (first["code"], first["message"]) == (
        "DecreasedTargetSize",
        f"4 -> 3 machines: {_EMPTY}",
    )
    assert (second["group"], second["code"]) == ("other", "ScaledUpGroup")
    pool = pending.groups["pool"]
    assert (pool.code, pool.why) == (NOT_LAUNCHED, _EMPTY)
    assert pending.events("ScaleUpFailed") == [("ConfigMap", "machines", "ScaleUpFailed")]


def test_launches_are_asked_about_only_while_machines_are_missing(pending):
    looks = "autoscaling:DescribeScalingActivities"
    pending.acts()
    pending.pass_time(120)
    pending.acts()  # the instance runs, and no kubelet has registered it yet
    pending.fleet.join()
    pending.pass_time(120)
    pending.acts()
    assert looks not in pending.cloud.ours
    pending.cloud.exhausted.add("pool")
    pending.scale(14)
    pending.pass_time(120)
    assert pending.acts() == [PLUS_ONE]
    assert looks not in pending.cloud.ours
    pending.pass_time(120)
    pending.acts()
    assert pending.cloud.ours.count(looks) == 1


def test_where_launches_cannot_be_asked_about_the_provision_time_counts(pending):
    pending.cloud.exhausted.add("pool")
    pending.cloud.refuses["autoscaling:DescribeScalingActivities"] = 403
    assert pending.acts() == [PLUS_ONE]
    pending.fleet.fails("pool", _EMPTY)
    pending.pass_time(120)
    code, report = pending.run()
    assert (code, report["machines"]) == (0, [])
    assert "whether launches have failed is not known" in " ".join(report["warnings"])
    # Whether machines are being launched is not known either: with fewer to be there AWS could terminate one that has pods.
    pending.pass_time(800)
    code, report = pending.run()
    (act,) = [one for one in report["machines"] if one["status"] == "failed"]
    assert (code, act["code"]) == (4, "FailedToScaleUpGroup")
    assert "pool: autoscaling:DescribeScalingActivities" in act["message"]
    assert pending.fleet.sizes == {"pool": 4}
    pending.cloud.refuses.clear()
    pending.pass_time(120)
    assert ("pool", "DecreasedTargetSize", "done") in pending.acts()


def test_a_group_whose_process_launch_is_suspended_is_not_increased(pending):
    """SuspendedProcesses in DescribeAutoScalingGroups; moto launches all the same."""
    scaling = pending.cloud.client("autoscaling")
    pending.fleet.add("other", 0, high=5, zone="b")
    scaling.suspend_processes(AutoScalingGroupName="other", ScalingProcesses=["AZRebalance"])
    scaling.suspend_processes(AutoScalingGroupName="pool", ScalingProcesses=["Launch"])
    assert pending.acts() == [("other", "ScaledUpGroup", "done")]
    scaling.suspend_processes(AutoScalingGroupName="other", ScalingProcesses=["Launch"])
    pending.fleet.join()
    pending.scale(20)
    _, report = pending.run()
    assert {(one["group"], one["code"]) for one in report["machines"]} == {
        ("other", "GroupMayNotGrow"),
        ("pool", "GroupMayNotGrow"),
    }
    assert {one["message"] for one in report["machines"]} == {"its process Launch is suspended"}
    scaling.resume_processes(AutoScalingGroupName="pool")
    pending.pass_time(30)
    assert PLUS_ONE in pending.acts()


def test_a_suspended_group_keeps_its_size_and_its_machines_have_their_time_once_it_is_resumed(
    pending,
):
    """Launch is suspended by people, as for maintenance: the desired size is theirs until it is resumed."""
    pending.cloud.exhausted.add("pool")
    assert pending.acts() == [PLUS_ONE]
    scaling = pending.cloud.client("autoscaling")
    scaling.suspend_processes(AutoScalingGroupName="pool", ScalingProcesses=["Launch"])
    for _ in range(4):
        pending.pass_time(480)
        assert pending.acts() == [("pool", "GroupMayNotGrow", "waits")]
    assert pending.fleet.sizes == {"pool": 4}
    assert pending.events("ScaleUpSuspended") == [("ConfigMap", "machines", "ScaleUpSuspended")]
    assert pending.groups["pool"].suspended == "its process Launch is suspended"
    # What failed while it was suspended is not asked about.
    assert "autoscaling:DescribeScalingActivities" not in pending.cloud.ours

    scaling.resume_processes(AutoScalingGroupName="pool")
    pending.pass_time(480)
    assert pending.acts() == []
    assert (pending.groups["pool"].suspended, pending.groups["pool"].failures) == ("", 0)
    pending.pass_time(901)
    assert ("pool", "DecreasedTargetSize", "done") in pending.acts()


def test_a_group_is_never_decreased_below_its_minimum(cloud, ground):
    cloud.exhausted.add("pool")
    ground.fleet.add("pool", 2, low=2, high=6)
    ground.fleet.add("other", 1, zone="b")
    ground.scale(4)
    assert ground.acts() == []  # they are on their way, and would take the pod
    for _ in range(3):
        ground.pass_time(480)
        ground.acts()
    assert ground.fleet.sizes["pool"] == 2


@pytest.mark.parametrize("options", [{"dry_run": True}, {}])
def test_what_does_not_act_gives_nothing_up(cloud, tmp_path, options):
    with site(cloud, tmp_path) as ground:
        ground.fleet.add("pool", 1)
        ground.scale(4)
        cloud.exhausted.add("pool")
        assert ground.acts() == [PLUS_ONE]
        ground.pass_time(480)
        ground.acts()
        ground.pass_time(480)
        if not options:
            cloud.refuses["autoscaling:SetDesiredCapacity"] = 400
        code, report = ground.run(**options)
        (act,) = [one for one in report["machines"] if one["code"] != "GroupMayNotGrow"]
        assert "2 machines were requested, and 1 exist: 1 machine did not" in act["message"]
        expected = (
            (0, "DecreasedTargetSize", "planned")
            if options
            else (4, "FailedToScaleUpGroup", "failed")
        )
        assert (code, act["code"], act["status"]) == expected
        assert ground.fleet.sizes == {"pool": 2}
        # The next run that acts does it.
        cloud.refuses.clear()
        ground.pass_time(30)
        assert ("pool", "DecreasedTargetSize", "done") in ground.acts()


def test_a_group_that_failed_and_whose_machines_come_after_all_has_failed_at_nothing(pending):
    pending.acts()
    pending.pass_time(901)
    code, report = pending.run()
    assert (code, [one["code"] for one in report["machines"]]) == (0, ["GroupMayNotGrow"])
    pending.fleet.join()
    pending.acts()
    assert pending.groups["pool"].failures == 0


def test_what_the_provider_refuses_ends_the_run_with_4_and_backs_off(pending):
    pending.cloud.refuses["autoscaling:SetDesiredCapacity"] = 400
    code, report = pending.run()
    (act,) = report["machines"]
    assert (code, act["code"], act["status"]) == (4, "FailedToScaleUpGroup", "failed")
    assert "autoscaling:SetDesiredCapacity: Injected: by the test" in act["message"]
    assert pending.events("FailedToScaleUpGroup")
    pending.cloud.refuses.clear()
    pending.pass_time(120)
    assert pending.acts() == [("pool", "GroupMayNotGrow", "waits")]
    pending.pass_time(200)
    assert pending.acts() == [PLUS_ONE]
    assert pending.fleet.sizes == {"pool": 4}


def test_a_process_that_was_killed_before_it_wrote_does_not_grow_a_group_twice(pending):
    """What was asked for stands at the provider: what is stored may be lost."""
    before = pending.cluster.get("ConfigMap", "machines")
    assert pending.acts() == [PLUS_ONE]
    now = pending.cluster.get("ConfigMap", "machines")
    pending.cluster.apply({**now, "apiVersion": "v1", "kind": "ConfigMap", "data": before["data"]})
    pending.restart()
    assert pending.acts() == []
    assert pending.fleet.sizes == {"pool": 4}


@pytest.mark.parametrize(
    ("strategies", "options"),
    [("{scale-out: {mode: observe}}", {}), ("{scale-out: {}}", {"dry_run": True})],
)
def test_what_only_observes_asks_for_nothing(cloud, tmp_path, strategies, options):
    with site(cloud, tmp_path, strategies) as ground:
        ground.fleet.add("pool", 1)
        ground.scale(4)
        assert ground.acts(**options) == [("pool", "ScaledUpGroup", "planned")]
        assert ground.fleet.sizes == {"pool": 1}
        assert "autoscaling:SetDesiredCapacity" not in cloud.ours
        if options:
            assert "data" not in ground.cluster.get("ConfigMap", "machines")
            assert ground.events() == []
        else:
            assert ground.events("TriggeredScaleUp") == []


def test_without_the_config_map_nothing_is_done_to_machines_and_the_run_says_so(ground):
    ground.fleet.add("pool", 1)
    ground.scale(4)
    code, report = ground.run(machine_state="default/none")
    assert (code, report["machines"]) == (4, [])
    assert "there is no ConfigMap default/none" in " ".join(report["warnings"])
    assert ground.fleet.sizes == {"pool": 1}


def test_a_run_that_cannot_write_the_state_of_groups_resizes_none(pending):
    """Back-offs would be lost: the group would be increased and given up in turns."""
    pending.cluster.faults.add(Fault("PUT", "/configmaps/machines", status=422, times=1000))
    pending.cloud.exhausted.add("pool")
    for _ in range(4):
        code, report = pending.run()
        assert (code, [act["status"] for act in report["machines"]]) == (4, ["failed"])
        assert "the state of groups could not be kept" in report["machines"][0]["message"]
        pending.fleet.fails("pool", _EMPTY)
        pending.pass_time(120)
    assert "autoscaling:SetDesiredCapacity" not in pending.cloud.ours
    pending.cluster.faults.clear()
    assert pending.acts() == [PLUS_ONE]


def test_a_back_off_is_kept_before_machines_are_given_up(pending):
    """A process that is killed right after leaves it to the next one."""
    pending.cloud.exhausted.add("pool")
    assert pending.acts() == [PLUS_ONE]
    pending.fleet.fails("pool", _EMPTY)
    pending.pass_time(60)
    # The write before the request comes through, the one at the end does not.
    pending.cluster.faults.add(Fault("PUT", "/configmaps/machines", status=422, times=1000, skip=1))
    code, report = pending.run()
    assert (code, report["machines"][0]["code"]) == (4, "DecreasedTargetSize")
    pending.cluster.faults.clear()
    pending.restart()
    pending.pass_time(120)
    assert pending.acts() == [("pool", "GroupMayNotGrow", "waits")]
    assert pending.fleet.sizes == {"pool": 3}


def test_a_state_that_cannot_be_stored_is_a_partial_failure(pending):
    assert pending.acts() == [PLUS_ONE]
    pending.fleet.join()
    pending.scale(9)
    pending.cluster.faults.add(Fault("PUT", "/configmaps/machines", status=500, times=20))
    code, report = pending.run()
    assert (code, report["machines"]) == (4, [])
