"""``replace --surge``: groups of moto grow, old machines end, and all is as before but newer."""

import io
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import pytest

from rebalancer.base.environment import Environment
from rebalancer.base.errors import RebalancerError
from rebalancer.commands.replace import replace_nodes
from rebalancer.machines.aws.groups import (
    ACTS,
    CALLS,
    AutoScaling,
    AutoScalingGroups,
    AutoScalingParams,
)
from rebalancer.machines.aws.outdated import INSTANCES, MEDDLING, REPLACES, TAG
from rebalancer.machines.drain import draining, replacing
from rebalancer.machines.drain.replacing import ReplaceOptions
from rebalancer.machines.surge import note as group_note
from rebalancer.machines.surge import surging
from rebalancer.machines.surge.note import GroupNotes
from rebalancer.providers.contract import Guarded
from rebalancer.testing.objects import EmbeddedCluster, deployment, node, pdb
from tests.aws.cloud import REGION
from tests.aws.fleet import ENABLED, Fleet
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files
from tests.support.clocks import FastClock, Once
from tests.support.killing import Killed, Killing
from tests.support.worlds import FAST
from tests.unit.commands.draining import Drained, is_cordoned

WEB = 6
SIZE = 2
SPEED = 4.0
WRITES = ("set_size", "terminate", "write_note", "suspend", "resume")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(draining, "_PAUSE", 0.1)
    monkeypatch.setattr(replacing, "_PAUSE", 0.05)


class Ground:
    """A group of two machines in two zones, whose launch template has a new version, with pods under a budget."""

    def __init__(self, cloud, cluster, folder, *, zones="ab", size=SIZE, high=10):
        self.cloud, self.cluster, self.folder = cloud, cluster, folder
        self.fleet = Fleet(cloud, cluster)
        self.joins = True
        self._joining = threading.Lock()
        self.fleet.add("pool", size, low=2, high=high, zone=zones)
        cluster.apply(deployment("web", WEB, cpu="500m", memory="256Mi"))
        cluster.apply(pdb("web", {"app": "web"}, maxUnavailable=1))
        cluster.settle()
        self.size, self.old = size, self.fleet.machines("pool")
        self.start = self.zones()
        self.lowest = dict(self.start)
        self.ended: list[str] = []
        # The API server dates nodes in whole seconds; no machine starts within one.
        time.sleep(1.1)
        self.new = self.fleet.new_version(ImageId="ami-03cf127a")
        self.policy = folder / "policy.yaml"
        self.policy.write_text(
            "apiVersion: rebalancer/v1\nkind: Policy\nprotect: {minPodAge: 0s}\n"
            f"provider: {{aws: {{tags: [{ENABLED}], region: {REGION}, endpoint: '{cloud.url}'}}}}\n"
            "strategies: {}\n"
        )
        cloud.after_call = self.called

    def called(self, call, form):
        if call == ACTS[1]:
            self.ended.append(form["InstanceId"])
        if call in ACTS and self.joins:
            self.join()

    def join(self, **more):
        with self._joining:
            self.fleet.join(**more)

    def zones(self):
        """Zone -> nodes that are Ready and open."""
        return Counter(
            node["metadata"]["labels"]["topology.kubernetes.io/zone"]
            for node in self.cluster.objects("Node")
            if not node["spec"].get("unschedulable")
            and not node["spec"].get("taints")
            and any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in node["status"].get("conditions", ())
            )
        )

    def watch(self, end):
        seen = 0
        while not end.wait(0.01):
            # To read all nodes costs more than what is tested: only where something has changed.
            if (version := self.cluster.store.version) != seen:
                seen, now = version, self.zones()
                self.lowest = {zone: min(n, now[zone]) for zone, n in self.lowest.items()}

    def replace(self, err=None, until=None, by="one", **options):
        out, err = io.StringIO(), err or io.StringIO()
        stop = Once(lambda: until is not None and until in err.getvalue())
        chosen = {
            "kubeconfig": str(self.cluster.kubeconfig),
            "policy_path": str(self.policy),
            "outdated": None if options.get("take_back") else "template",
            "surge": 1,
            "output": "json",
            "timeout": 120.0 * SPEED,
            "request_timeout": 120.0 * SPEED,
            "pause": 0.0,
            "ignore_daemonsets": True,
            **options,
        }
        environment = Environment(FastClock(SPEED), {"POD_NAME": by}, out, err, stop)
        end = threading.Event()
        watcher = threading.Thread(target=self.watch, args=[end])
        watcher.start()
        try:
            code = int(replace_nodes(ReplaceOptions.of(**chosen), environment))
        except RebalancerError as error:
            code = int(error.exit_code)
            err.write(str(error))
        finally:
            end.set()
            watcher.join()
        return Drained(code, out.getvalue(), err.getvalue())

    def rewrite_note(self, **changes):
        """Write another note of the group, as a replacement in this cluster would."""
        (tag,) = [one for one in self.fleet.group("pool")["Tags"] if one["Key"] == TAG]
        notes = GroupNotes(self.cluster.get("Namespace", "kube-system")["metadata"]["uid"])
        note = notes.parse("pool", tag["Value"])
        assert note is not None
        text = notes.text("pool", replace(note, **changes))
        self.cloud.client("autoscaling").create_or_update_tags(Tags=[{**tag, "Value": text}])

    # -- what must hold ----------------------------------------------------------------------------

    @property
    def versions(self):
        return {
            one["InstanceId"]: one["LaunchTemplate"]["Version"]
            for one in self.fleet.group("pool")["Instances"]
        }

    def assert_restored(self, size=None):
        """The group is as it was, and nothing of a replacement is left in it or on nodes that stay."""
        size = size or self.size
        group = self.fleet.group("pool")
        assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (2, 10, size)
        assert len(group["Instances"]) == size
        assert group["SuspendedProcesses"] == []
        assert TAG not in {tag["Key"] for tag in group["Tags"]}
        assert len(self.ended) == len(set(self.ended)), self.ended
        for one in self.cluster.objects("Node"):
            name = one["metadata"]["name"]
            assert not is_cordoned(self.cluster, name), name
            assert not [k for k in one["metadata"].get("annotations", {}) if "rebalancer" in k]
        assert all(self.lowest[zone] >= n for zone, n in self.start.items()), (
            self.lowest,
            self.start,
        )
        self.cluster.settle()
        assert self.cluster.get("Deployment", "web")["status"]["readyReplicas"] == WEB

    def assert_replaced(self):
        self.join()
        self.assert_restored()
        assert set(self.versions.values()) == {str(self.new)}
        assert set(self.old) <= set(self.ended)
        # In each other zone one machine more may have come before one came in that of the last old ones.
        assert len(self.ended) - len(self.old) < len(self.start)


@contextmanager
def grounded(cloud, folder, **more):
    with EmbeddedCluster(timings=FAST) as cluster:
        ground = Ground(cloud, cluster, folder, **more)
        try:
            yield ground
        finally:
            cloud.after_call = lambda *_: None
            ground.fleet.close()


@pytest.fixture
def ground(cloud, tmp_path):
    with grounded(cloud, tmp_path) as made:
        yield made


def test_every_old_machine_is_replaced_and_the_group_is_as_before(ground, cloud):
    cloud.ours.clear()
    done = ground.replace()
    assert done.code == 0, done.err + done.out
    ground.assert_replaced()
    # The rights that docs/aws.md names, and no others.
    assert set(cloud.ours) == {CALLS[0], CALLS[2], INSTANCES, *ACTS, *REPLACES}
    again = ground.replace()
    assert (again.code, ground.ended) == (0, ground.ended)
    assert "nothing to replace" in again.out


# The threads of a process that was killed end, too.
dying = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@dying
@pytest.mark.parametrize(("after", "seed"), [(False, "same name"), (True, "other names")])
def test_killed_at_each_write_the_next_process_goes_on(ground, monkeypatch, after, seed):
    """Each process does some writes: those of one name go on at once, those of a name each take over first."""
    monkeypatch.setattr(surging, "STALE", 0.0)
    monkeypatch.setattr(replacing, "SECONDS", 0.0)
    killing = Killing(monkeypatch, after=after)
    for name in WRITES:
        killing.watch(AutoScalingGroups, name)
    writes, kills = random.Random(seed), 0
    done = None
    while done is None:
        # One write may be the note of what the next one does.
        killing.begin(writes.randint(2, 3) + ("other" in seed))
        with suppress(Killed):
            done = ground.replace(by="one" if "same" in seed else f"p{kills}")
        killing.begin(10**6)
        kills += done is None
        assert kills < 100
    assert done.code == 0, done.err + done.out
    ground.assert_replaced()
    assert kills >= 8


def test_a_machine_that_never_becomes_ready_ends_it_and_all_is_as_before(ground):
    ground.joins = False
    done = ground.replace(ready_within=1.0)
    assert done.code == 4
    assert "it is no node yet, after 1s" in done.report["ended"]
    ground.assert_restored()
    assert ground.fleet.machines("pool") == ground.old
    assert len(ground.ended) == 1


def test_an_old_machine_whose_node_is_away_is_not_ended_for_a_new_one(ground, cloud):
    """Its kubelet registers it again later, under its name: neither then nor meanwhile is it a new one."""
    ground.joins = False
    away: dict[str, object] = {}

    def called(call, form):
        ground.called(call, form)
        if call == ACTS[0] and not away:
            node = ground.cluster.objects("Node")[0]
            away.update(node)
            ground.cluster.delete("Node", node["metadata"]["name"])

    cloud.after_call = called
    done = ground.replace(ready_within=2.0)
    assert done.code == 4, done.err + done.out
    assert away
    assert not set(ground.old) & set(ground.ended)
    assert len(ground.ended) == 1


@dying
@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
def test_killed_while_it_takes_back_the_next_process_takes_back(ground, monkeypatch, after):
    """The new machine becomes a node, with a taint of its start that never goes."""
    monkeypatch.setattr(surging, "STALE", 0.0)
    monkeypatch.setattr(replacing, "SECONDS", 0.0)
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}
    ground.fleet.join = partial(ground.fleet.join, taints=[taint])
    killing = Killing(monkeypatch, after=after)
    for name in WRITES:
        killing.watch(AutoScalingGroups, name)
    kills, done = 0, None
    settings = ("capacity.startupTaints=[node.cilium.io/agent-not-ready]",)
    while done is None:
        killing.begin(5)
        with suppress(Killed):
            done = ground.replace(by=f"p{kills}", ready_within=1.0, settings=settings)
        killing.begin(10**6)
        kills += done is None
        assert kills < 50
    assert done.code == 4
    assert "start-up" in done.report["ended"]
    ground.assert_restored()
    assert ground.fleet.machines("pool") == ground.old
    assert kills >= 2


def test_nodes_that_people_have_cordoned_do_not_go_faster_than_new_machines_come(ground, cloud):
    """They count in no zone: what keeps them is that the group never becomes smaller than it was."""
    ground.cluster.cordon(ground.old)
    sizes: list[int] = []
    inner = cloud.after_call

    def called(call, form):
        inner(call, form)
        sizes.append(ground.fleet.sizes["pool"])

    cloud.after_call = called
    done = ground.replace(max_unavailable=4)
    assert done.code == 0, done.err + done.out
    assert min(sizes) == SIZE
    assert ground.fleet.sizes["pool"] == SIZE
    assert set(ground.old) <= set(ground.ended)


def test_a_group_that_people_have_made_smaller_gets_its_size_back(ground, cloud):
    assert ground.replace(until="grow").code == 4
    cloud.client("autoscaling").set_desired_capacity(
        AutoScalingGroupName="pool", DesiredCapacity=SIZE - 1
    )
    ground.join()
    back = ground.replace(take_back=True, surge=None)
    assert back.code == 0, back.err + back.out
    assert ground.fleet.sizes["pool"] == SIZE


def test_an_answer_without_the_group_is_asked_for_again(ground, monkeypatch):
    read, calls = AutoScalingGroups.group_named, []

    def named(self, name, nodes):
        calls.append(name)
        looks = bool(nodes)
        return None if looks and len(calls) % 4 == 0 else read(self, name, nodes)

    monkeypatch.setattr(AutoScalingGroups, "group_named", named)
    done = ground.replace()
    assert done.code == 0, done.err + done.out
    ground.assert_replaced()


def test_a_group_that_stays_away_is_said_not_to_be_restored(ground, monkeypatch):
    read = AutoScalingGroups.group_named

    def named(self, name, nodes):
        away = ground.fleet.sizes["pool"] > SIZE
        return None if away else read(self, name, nodes)

    monkeypatch.setattr(AutoScalingGroups, "group_named", named)
    done = ground.replace()
    assert done.code == 4, done.err + done.out
    assert "the provider has no group pool any more" in done.report["ended"]
    assert "pool is not restored" in done.out
    assert ground.ended == []


def test_an_end_whose_answer_is_lost_is_not_taken_from_an_empty_answer(ground, cloud, monkeypatch):
    monkeypatch.setattr(surging, "_SETTLED", 0.3)
    monkeypatch.setattr(surging, "_POLL_INTERVAL", 0.1)
    cloud.refuses[ACTS[1]] = 500
    read, terminate = AutoScalingGroups.group_named, AutoScalingGroups.terminate
    asked: list[str] = []

    def ending(self, group, one):
        asked.append(one)
        return terminate(self, group, one)

    def named(self, name, nodes):
        return None if asked and not nodes else read(self, name, nodes)

    monkeypatch.setattr(AutoScalingGroups, "terminate", ending)
    monkeypatch.setattr(AutoScalingGroups, "group_named", named)
    done = ground.replace()
    assert done.code == 4, done.err + done.out
    assert "is empty, but not removed" in done.report["ended"]
    assert "pool is not restored" in done.out
    assert len(asked) == 1


def test_a_note_from_far_ahead_is_taken_over(ground):
    """The clock of its writer was wrong."""
    assert ground.replace(until="grow").code == 4
    ground.rewrite_note(seen=9999999999)
    done = ground.replace(by="other")
    assert done.code == 0, done.err + done.out
    ground.assert_replaced()


def test_processes_that_people_have_suspended_are_not_resumed_by_a_written_note(ground, cloud):
    assert ground.replace(until="grow").code == 4
    client = cloud.client("autoscaling")
    client.suspend_processes(AutoScalingGroupName="pool", ScalingProcesses=["HealthCheck"])
    ground.rewrite_note(suspended=("HealthCheck", *MEDDLING))
    assert ground.replace(take_back=True, surge=None).code == 0
    (left,) = ground.fleet.group("pool")["SuspendedProcesses"]
    assert left["ProcessName"] == "HealthCheck"


def test_a_note_that_would_end_all_machines_is_refused(ground, cloud):
    value = "desired=0 size=4 at=0 since=0 zones=- suspended=- by=one seen=0 back=-"
    tag = {"ResourceId": "pool", "ResourceType": "auto-scaling-group", "Key": TAG}
    cloud.client("autoscaling").create_or_update_tags(
        Tags=[{**tag, "Value": value, "PropagateAtLaunch": False}]
    )
    for more in ({}, {"take_back": True, "surge": None}):
        done = ground.replace(**more)
        assert done.code not in (0, 4)
        assert "remove the note" in done.err
    assert ground.ended == []
    assert ground.fleet.machines("pool") == ground.old


def test_a_launch_that_fails_ends_it_and_all_is_as_before(ground, cloud):
    cloud.exhausted.add("pool")
    ground.fleet.fails("pool", "We currently do not have sufficient t3.medium capacity", after=60)
    done = ground.replace()
    assert done.code == 4
    assert "sufficient t3.medium capacity" in done.report["ended"]
    ground.assert_restored()
    assert ground.ended == []


def test_a_group_at_its_maximum_is_refused_before_anything_is_changed(cloud, tmp_path):
    with grounded(cloud, tmp_path, high=SIZE) as ground:
        cloud.ours.clear()
        done = ground.replace()
        assert done.code == 3
        assert f"set its maximum to {SIZE + 1} or more" in done.err
        assert set(cloud.ours) <= set(CALLS)


def test_no_more_than_the_maximum_where_the_surge_is_larger(cloud, tmp_path):
    with grounded(cloud, tmp_path, high=SIZE + 1, zones="a") as ground:
        sizes: list[int] = []
        inner = cloud.after_call

        def called(call, form):
            sizes.append(int(form.get("DesiredCapacity", 0)))
            inner(call, form)

        cloud.after_call = called
        done = ground.replace(surge=3, max_unavailable=3)
        assert done.code == 0, done.err
        assert max(sizes) == SIZE + 1
        assert ground.versions == dict.fromkeys(ground.versions, str(ground.new))


def test_several_at_once_with_a_larger_surge(ground):
    done = ground.replace(surge=2, max_unavailable=2)
    assert done.code == 0, done.err
    ground.assert_replaced()
    assert sorted(ground.ended) == ground.old


def test_a_template_that_changes_in_the_middle_leaves_nothing_half_done(cloud, tmp_path):
    """What has come of the first new version stays, and is old for the next call."""
    with grounded(cloud, tmp_path, zones="a", size=4) as ground:
        inner = cloud.after_call

        def called(call, form):
            inner(call, form)
            if call == ACTS[1] and len(ground.ended) == 2:
                ground.new = ground.fleet.new_version(ImageId="ami-04681a1dbd79675a5")

        cloud.after_call = called
        done = ground.replace()
        assert done.code == 0, done.err
        ground.join()
        ground.assert_restored()
        assert Counter(ground.versions.values()) == {"2": 2, "3": 2}
        again = ground.replace()
        assert again.code == 0
        assert set(ground.versions.values()) == {"3"}


def test_a_template_that_is_set_back_gives_the_rest_back(cloud, tmp_path):
    with grounded(cloud, tmp_path, zones="a") as ground:
        inner = cloud.after_call

        def called(call, form):
            inner(call, form)
            if call == ACTS[0] and "2" in ground.versions.values() and not ground.ended:
                group = {"LaunchTemplateId": ground.fleet._template, "Version": "1"}
                cloud.client("autoscaling").update_auto_scaling_group(
                    AutoScalingGroupName="pool", LaunchTemplate=group
                )

        cloud.after_call = called
        done = ground.replace()
        assert done.code == 0, done.err
        ground.join()
        ground.assert_restored()
        assert ground.fleet.machines("pool") == ground.old


def test_two_at_once_end_each_machine_once(cloud, tmp_path, monkeypatch):
    # Longer than it takes to read a group and to write its note, as in earnest.
    monkeypatch.setattr(replacing, "_PAUSE", 1.0)
    with grounded(cloud, tmp_path) as ground, ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda name: ground.replace(by=name), ("one", "other")))
        assert [done.code for done in both] == [0, 0], [done.err for done in both]
        ground.assert_replaced()
        assert any("another replacement of pool" in done.err for done in both)


def test_what_a_stopped_one_has_left_can_be_taken_back(ground, monkeypatch):
    monkeypatch.setattr(surging, "STALE", 0.0)
    done = ground.replace(until="emptying")
    assert done.code == 4
    assert "pool is not restored: call this again to go on, or with --take-back" in done.out
    assert ground.fleet.group("pool")["DesiredCapacity"] > SIZE
    back = ground.replace(by="other", take_back=True, surge=None)
    assert back.code == 0, back.err + back.out
    ground.assert_restored()
    assert not set(ground.old) & set(ground.ended)
    nothing = ground.replace(take_back=True, surge=None)
    assert (nothing.code, "no replacement is under way" in nothing.out) == (0, True)


@pytest.mark.parametrize("order", [{}, {"take_back": True, "surge": None}], ids=["again", "back"])
def test_a_group_without_old_machines_is_restored_once_its_process_shows_no_life(
    ground, cloud, monkeypatch, order
):
    """Ended at its last step, or killed: nothing is old any more, and the next one is called before the note is stale."""
    monkeypatch.setattr(surging, "STALE", 6.0)
    cloud.refuses[REPLACES[3]] = (403, "AccessDenied", "not authorized")
    done = ground.replace()
    assert (done.code, "pool is not restored" in done.out) == (4, True), done.err
    assert "allow it in the policy of this role" in done.out
    cloud.refuses.clear()
    again = ground.replace(by="other", **order)
    assert again.code == 0, again.err
    assert "another replacement of pool, by one" in again.err
    ground.assert_replaced()


def test_a_group_of_a_living_process_is_left_to_it_where_nothing_of_it_is_ours(ground):
    done = ground.replace(until="emptying")
    assert done.code == 4
    end = threading.Event()

    def live():
        while not end.wait(0.5):
            ground.rewrite_note(by="living", seen=int(time.time()))

    thread = threading.Thread(target=live)
    thread.start()
    try:
        other = ground.replace(by="other", selector="group=none", outdated=None)
    finally:
        end.set()
        thread.join()
    assert other.code == 0, other.err
    assert "pool: living is at work on it" in other.err
    assert TAG in {tag["Key"] for tag in ground.fleet.group("pool")["Tags"]}


def test_after_so_many_nodes_the_rest_is_left_and_the_group_is_restored(cloud, tmp_path):
    with grounded(cloud, tmp_path, zones="a") as ground:
        done = ground.replace(pause_after=1)
        assert done.code == 0, done.err
        assert "1 old node is left to a later call" in done.out
        ground.assert_restored()
        assert len(ground.ended) == 1
        assert Counter(ground.versions.values()) == {"1": 1, "2": 1}


def test_a_label_that_new_machines_have_too_does_not_make_them_old(ground, monkeypatch):
    """The first is stopped with some machines replaced; the next one goes on with those that are left."""
    monkeypatch.setattr(surging, "STALE", 0.0)
    flags = {"outdated": None, "selector": "group=pool"}
    assert ground.replace(until="ended    ", **flags).code == 4
    some = len(ground.ended)
    assert 0 < some < SIZE
    done = ground.replace(by="other", **flags)
    assert done.code == 0, done.err
    ground.assert_replaced()


def test_who_increases_the_group_meanwhile_keeps_what_they_asked_for(cloud, tmp_path, monkeypatch):
    monkeypatch.setattr(surging, "_SETTLED", 0.3)
    with grounded(cloud, tmp_path, zones="a") as ground:
        inner = cloud.after_call

        def called(call, form):
            inner(call, form)
            if call == ACTS[1] and len(ground.ended) == 2:
                cloud.client("autoscaling").set_desired_capacity(
                    AutoScalingGroupName="pool", DesiredCapacity=SIZE + 3
                )
                ground.join()

        cloud.after_call = called
        done = ground.replace()
        assert done.code == 0, done.err
        ground.assert_restored(SIZE + 3)
        assert set(ground.old) <= set(ground.ended)


@pytest.mark.parametrize("more", [1, 2])
def test_who_increases_the_group_right_before_the_replacement_does_keeps_that(
    cloud, tmp_path, monkeypatch, more
):
    """Between the note of the larger size and the request for it: the group has that size, and it is not the replacement's."""
    monkeypatch.setattr(surging, "_SETTLED", 0.3)
    with grounded(cloud, tmp_path, zones="a") as ground:
        inner, asked = cloud.after_call, list[int]()

        def called(call, form):
            inner(call, form)
            if call == REPLACES[0] and f"size={SIZE + 1} " in str(form) and not asked:
                asked.append(SIZE + more)
                cloud.client("autoscaling").set_desired_capacity(
                    AutoScalingGroupName="pool", DesiredCapacity=SIZE + more
                )
                ground.join()

        cloud.after_call = called
        done = ground.replace()
        assert done.code == 0, done.err
        assert asked
        ground.assert_restored(SIZE + more)
        assert set(ground.old) <= set(ground.ended)


def test_a_request_that_fails_is_asked_for_again_by_the_next_call(ground, cloud, monkeypatch):
    monkeypatch.setattr(surging, "_SETTLED", 0.3)
    monkeypatch.setattr(surging, "_POLL_INTERVAL", 0.1)
    cloud.refuses[ACTS[1]] = 500
    done = ground.replace()
    assert done.code == 4
    assert "is empty, but not removed" in done.report["ended"]
    assert ground.fleet.machines("pool") > ground.old[:0]
    cloud.refuses.clear()
    assert ground.replace().code == 0
    ground.assert_replaced()


def test_a_node_that_people_uncordon_keeps_its_machine(ground):

    class Err(io.StringIO):
        def write(self, text):
            if "removing" in text:
                name = text.split()[-1]
                if name in ground.old and not ground.ended:
                    ground.cluster.cordon([name], on=False)
                    kept.append(name)
            return super().write(text)

    kept: list[str] = []
    done = ground.replace(err=Err())
    assert done.code == 4
    assert "another client has uncordoned it" in done.report["ended"]
    assert kept[0] not in ground.ended


def test_images_are_compared_where_that_is_asked_for(cloud, tmp_path):
    with grounded(cloud, tmp_path, zones="a") as ground:
        cloud.ours.clear()
        done = ground.replace(outdated="image", pause_after=1)
        assert done.code == 0, done.err
        assert INSTANCES in cloud.ours
        assert len(set(ground.old) & set(ground.ended)) == 1
        # A new version with the same image makes none outdated by its image.
        for _ in range(3):
            ground.replace(outdated="image", pause_after=1)
        ground.assert_replaced()
        ground.fleet.new_version(ImageId="ami-03cf127a", InstanceType="t3.large")
        assert "no node is old" in ground.replace(outdated="image").out
        assert "no node is old" not in ground.replace(dry_run="client").out


def test_a_dry_run_asks_but_changes_nothing(ground, cloud):
    cloud.ours.clear()
    done = ground.replace(dry_run="client")
    assert done.code == 0
    assert set(done.verdicts.values()) == {"drainable"}
    assert set(cloud.ours) <= {*CALLS, INSTANCES}


def test_runs_leave_a_group_alone_that_is_being_replaced(ground, cloud):
    assert ground.replace(until="grow").code == 4
    (group,) = (
        AutoScaling()
        .open(AutoScalingParams(tags=(ENABLED,), region=REGION, endpoint=cloud.url), {})
        .groups([])
    )
    assert group.on_hold == "its machines are being replaced"


def register_again(cluster, name):
    """Its kubelet registers a node again: the same machine and name, another uid, and created now."""
    away = registered_anew(cluster.get("Node", name))
    cluster.delete("Node", name)
    cluster.apply(away)
    cluster.settle()


def registered_anew(node):
    """Return a node as its kubelet registers it, which knows nothing of annotations, cordons and taints that others set."""
    kept = {key: node["metadata"][key] for key in ("name", "labels")}
    spec = {key: of for key, of in node["spec"].items() if key not in {"unschedulable", "taints"}}
    return {**node, "apiVersion": "v1", "kind": "Node", "metadata": kept, "spec": spec}


def test_after_a_kill_a_node_that_was_registered_again_does_not_make_its_machine_new(
    ground, monkeypatch
):
    monkeypatch.setattr(surging, "STALE", 0.0)
    flags = {"outdated": None, "selector": "group=pool", "surge": 2}
    assert ground.replace(until="grow", **flags).code == 4
    ground.join()
    for name in ground.old:
        register_again(ground.cluster, name)
    back = ground.replace(by="other", take_back=True, surge=None)
    assert back.code == 0, back.err + back.out
    assert ground.fleet.machines("pool") == ground.old
    assert len(ground.ended) == 2


def test_an_old_node_that_is_registered_again_is_left_and_said(cloud, tmp_path):
    with grounded(cloud, tmp_path, zones="a") as ground:
        inner = cloud.after_call
        again: list[str] = []

        def called(call, form):
            inner(call, form)
            if call == ACTS[1] and not again:
                again.extend(name for name in ground.old if name not in ground.ended)
                register_again(ground.cluster, again[-1])

        cloud.after_call = called
        done = ground.replace()
        assert done.code == 4, done.err + done.out
        assert f"/{again[-1]}) of pool were left" in done.report["ended"]
        ground.assert_restored()
        assert again[-1] in ground.fleet.machines("pool")
        assert ground.replace().code == 0
        ground.assert_replaced()


def test_a_machine_that_joins_as_its_end_is_requested_is_emptied_first(ground, monkeypatch):
    ground.joins = False
    terminate = Guarded.terminate

    def joining(self, group, instance, may_be_sent):
        if not ground.ended:
            ground.join()
        return terminate(self, group, instance, may_be_sent)

    monkeypatch.setattr(Guarded, "terminate", joining)
    done = ground.replace(ready_within=1.0)
    assert done.code == 4, done.err + done.out
    ground.join()
    ground.assert_restored()
    (new,) = ground.ended
    assert new not in ground.old
    assert f"emptying {new}" in done.err


def test_who_increases_the_group_to_the_size_that_was_requested_last_keeps_it(
    cloud, tmp_path, monkeypatch
):
    """With one old machine left the group is smaller than its replacement had asked for at first."""
    monkeypatch.setattr(surging, "_SETTLED", 0.3)
    with grounded(cloud, tmp_path, zones="a") as ground:

        class Err(io.StringIO):
            def write(self, text):
                if "emptying" in text and len(ground.ended) == SIZE - 1 and not asked:
                    asked.append(ground.fleet.sizes["pool"] + 1)
                    cloud.client("autoscaling").set_desired_capacity(
                        AutoScalingGroupName="pool", DesiredCapacity=asked[0]
                    )
                    ground.join()
                return super().write(text)

        asked: list[int] = []
        done = ground.replace(err=Err(), surge=2)
        assert done.code == 0, done.err
        assert asked == [SIZE + 2]
        ground.assert_restored(SIZE + 1)


@pytest.mark.parametrize("order", [{"take_back": True, "surge": None}, {}], ids=["back", "on"])
def test_a_forged_note_ends_no_machine(ground, cloud, order):
    """It is consistent: by it two machines were there, and four are new."""
    note = (
        "desired=2 size=4 at=1 since=1 zones=- suspended=- by=x seen=1 seal=0123456789abcdef back=-"
    )
    tag = {"ResourceId": "pool", "ResourceType": "auto-scaling-group", "Key": TAG}
    cloud.client("autoscaling").create_or_update_tags(
        Tags=[{**tag, "Value": note, "PropagateAtLaunch": False}]
    )
    got = ground.replace(**order)
    assert got.code == 3
    assert "is not from a replacement of this group in this cluster" in got.err
    assert ground.ended == []
    assert ground.fleet.machines("pool") == ground.old


def test_a_note_that_others_remove_is_not_begun_anew(ground, cloud, monkeypatch):
    """Its new machine would count as one that was there before, and stay for ever."""
    monkeypatch.setattr(group_note, "_LATE", 0.2)

    def called(call, form):
        if call == ACTS[0]:
            tag = {"ResourceId": "pool", "ResourceType": "auto-scaling-group", "Key": TAG}
            cloud.client("autoscaling").delete_tags(Tags=[tag])
        ground.called(call, form)

    cloud.after_call = called
    done = ground.replace()
    assert done.code == 4
    assert "the note of this replacement on pool is gone" in done.report["ended"]
    assert "pool is not restored" in done.out
    assert done.err.count("begun ") == 1
    assert ground.ended == []


@pytest.mark.parametrize("alone", [False, True], ids=["beside others", "alone"])
def test_an_outdated_machine_without_a_node_is_left_and_said(ground, alone):
    away = ground.old if alone else ground.old[:1]
    join = ground.fleet.join

    def join_without(**more):
        join(**more)
        for name in away:
            ground.cluster.delete("Node", name)

    ground.fleet.join = join_without
    ground.join()
    ground.cluster.apply(node("other", zone="a"))
    text = "outdated machines without a node are left"
    dry = ground.replace(dry_run="server")
    assert (dry.code, text in dry.err + dry.out) == (0, True)
    done = ground.replace()
    assert (done.code, text in done.report["ended"]) == (4, True)
    assert not {*away} & {*ground.ended}
    assert {*ground.old} - {*away} <= {*ground.ended}
