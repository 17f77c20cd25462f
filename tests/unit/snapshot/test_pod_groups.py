"""How many pods a gang needs, by what its pods say themselves and by the PodGroups of each project; and what is not taken from them."""

import pytest

from rebalancer.policy.protect import Protect
from rebalancer.snapshot.pod_groups import groups_of_use
from rebalancer.snapshot.protect import Scope, names_of, protect, text_of
from rebalancer.testing.snapshots import node, snapshot_of, workload

LWS = "leaderworkerset.sigs.k8s.io"
KOORDINATOR = "gang.scheduling.koordinator.sh"
OLD = "pod-group.scheduling.sigs.k8s.io"
GANG = ("default", "PodGroup pg")


def pod_group(version, *, annotations=None, **spec):
    """The PodGroup ``pg`` of one project."""
    meta = {"name": "pg", "namespace": "default", "annotations": annotations}
    return {"kind": "PodGroup", "apiVersion": version, "metadata": meta, "spec": spec}


COSCHEDULING = {"labels": {"scheduling.x-k8s.io/pod-group": "pg"}}
OLDER = {"labels": {OLD: "pg"}}
VOLCANO = {"annotations": {"scheduling.k8s.io/group-name": "pg"}}
KAI = {"annotations": {"pod-group-name": "pg"}}
KOORDINATED = {"annotations": {f"{KOORDINATOR}/name": "pg"}}
OF_X, OF_SIGS = "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"
OF_VOLCANO, OF_KAI = "scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2alpha2"


def saying(**of):
    """A pod of a gang of Koordinator with more annotations; ``_`` for ``-``."""
    more = {f"{KOORDINATOR}/{key.replace('_', '-')}": value for key, value in of.items()}
    return {"annotations": {f"{KOORDINATOR}/name": "pg", **more}}


def gang_of(given, *groups, pods=3):
    labels = {"app": "w", **given.get("labels", {})}
    more = {key: value for key, value in given.items() if key != "labels"}
    return snapshot_of([node("a"), *workload("w", ["a"] * pods, labels=labels, **more), *groups])


@pytest.mark.parametrize(
    ("given", "group", "least"),
    [
        # By the PodGroup that the pods name, of the project whose label or annotation names it.
        (COSCHEDULING, pod_group(OF_X, minMember=2), 2),
        (OLDER, pod_group(OF_SIGS, minMember=2), 2),
        (VOLCANO, pod_group(OF_VOLCANO, minMember=2), 2),
        ({"annotations": {"scheduling.volcano.sh/group-name": "pg"}}, pod_group(OF_VOLCANO, minMember=2), 2),
        (KAI, pod_group(OF_KAI, minMember=2), 2),
        (KOORDINATED, pod_group(OF_SIGS, minMember=2), 2),
        # Of another project it is another object, and without one the number is not known.
        (COSCHEDULING, pod_group(OF_VOLCANO, minMember=2), None),
        (KAI, pod_group("scheduling.k8s.io/v1beta1", schedulingPolicy={"gang": {"minCount": 2}}), None),
        (COSCHEDULING, None, None),
        # By what Koordinator's pods say, of which the label counts first.
        (saying(min_available="2"), None, 2),
        ({**saying(min_available="3"), "labels": {f"{OLD}/min-available": "2"}}, None, 2),
        (saying(min_available="many"), None, None),
        (saying(min_available="-1"), None, None),
        (saying(min_available="2", match_policy="once-satisfied"), None, 2),
        # There the replacement of one pod waits for as many others: all have to go.
        (saying(min_available="2", match_policy="only-waiting"), None, None),
        (saying(min_available="2", match_policy="only-waiting"), pod_group(OF_SIGS, minMember=2), None),
        (KOORDINATED, pod_group(OF_SIGS, minMember=2, annotations={f"{OLD}/match-policy": "only-waiting"}), None),
        # The oldest coscheduling needed no object.
        ({"labels": {f"{OLD}/name": "pg", f"{OLD}/min-available": "2"}}, None, 2),
        # Parts with numbers of their own; Volcano looks at them only where the whole needs as many as all of them.
        (VOLCANO, pod_group(OF_VOLCANO, minMember=3, minTaskMember={"ps": 1, "worker": 2}), None),
        (VOLCANO, pod_group(OF_VOLCANO, minMember=2, minTaskMember={"ps": 1, "worker": 2}), 2),
        (VOLCANO, pod_group(OF_VOLCANO, minMember=2, minTaskMember={"worker": 2}), 2),
        (VOLCANO, pod_group(OF_VOLCANO, minMember=2, subGroupPolicy=[{"name": "ps"}]), None),
        (KAI, pod_group(OF_KAI, minMember=2, subGroups=[{"name": "ps", "minMember": 1}]), None),
        (KAI, pod_group(OF_KAI), None),
    ],
)  # fmt: skip
def test_how_many_pods_a_gang_needs(given, group, least):
    snapshot = gang_of(given, *([] if group is None else [group]))
    assert snapshot.gang_least.get(GANG) == least


@pytest.mark.parametrize(
    ("given", "gang"),
    [
        ({"labels": {f"{LWS}/name": "llm", f"{LWS}/group-index": "2"}, **VOLCANO}, "LeaderWorkerSet llm, group 2"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}, **VOLCANO}, "JobSet js"),
        ({"labels": {"volcano.sh/job-name": "vj"}, **VOLCANO}, "Volcano Job vj"),
    ],
)  # fmt: skip
def test_gangs_that_their_controllers_start_again_as_a_whole_need_all_pods(given, gang):
    """What the scheduler would let in with fewer pods is ended by the controller when one of them is evicted."""
    snapshot = gang_of(given, pod_group(OF_VOLCANO, minMember=2))
    assert [key for _, key in snapshot.gangs] == [gang]
    assert snapshot.gang_least == {}
    assert groups_of_use(snapshot) == set()


def test_pods_of_one_gang_that_say_different_numbers_are_all_needed():
    objects = workload("w", ["a"] * 3, labels={"app": "w"})
    for one, number in zip(objects[-3:], ("1", "2", "2"), strict=True):
        one["metadata"].update(saying(min_available=number))
    assert snapshot_of([node("a"), *objects]).gang_least == {}


@pytest.mark.parametrize(
    ("given", "group", "kept", "text"),
    [
        (VOLCANO, pod_group(OF_VOLCANO, minMember=2), ["gang"], "not moved in part; it needs 2 pods"),
        (VOLCANO, None, ["gang"], "not moved in part; how many pods it needs is not known"),
        # As Volcano makes one for each ReplicaSet, and KAI for what it knows nothing of.
        (VOLCANO, pod_group(OF_VOLCANO, minMember=1), [], ""),
        (saying(min_available="1"), None, [], ""),
        ({"labels": {f"{LWS}/name": "llm"}}, None, ["gang"], "a gang is not moved in part"),
    ],
)  # fmt: skip
def test_pods_of_a_gang_of_which_one_is_enough_are_no_gang(given, group, kept, text):
    snapshot = gang_of(given, *([] if group is None else [group]))
    assert names_of(int(protect(snapshot, Protect(), Scope())[0])) == kept
    assert not kept or text_of(snapshot, 0, "gang").endswith(text)


@pytest.mark.parametrize(
    ("given", "pods", "asked"),
    [
        (COSCHEDULING, 2, {("default", "scheduling.x-k8s.io", "pg")}),
        (KOORDINATED, 2, {("default", "scheduling.sigs.k8s.io", "pg")}),
        (saying(min_available="2"), 2, set()),
        # KAI makes a PodGroup for each pod of a Deployment.
        (KAI, 1, set()),
        ({"spec": {"schedulingGroup": {"podGroupName": "pg"}}}, 1, {("default", "scheduling.k8s.io", "pg")}),
    ],
)  # fmt: skip
def test_only_pod_groups_that_say_something_are_read(given, pods, asked):
    assert groups_of_use(gang_of(given, pods=pods)) == asked
