"""Groups of LeaderWorkerSets and JobSets: what their controllers do with a pod that is evicted decides how they move."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code
from rebalancer.policy.protect import Protect
from rebalancer.snapshot.jobs import JobState, job_state
from rebalancer.snapshot.redact import Redactor
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire import objects as o
from tests.unit.planner.conftest import plan_of
from tests.unit.planner.room.test_plan import MARKS
from tests.unit.planner.test_gangs import LEAVES

GOING = node("going", unschedulable=True, labels={"rack": "r1"})
JOBS = Protect(jobs=False)
IGNORES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


def job_of_set(name, nodes, set_name="train", *, failed=0, succeeded=0, cpu="1", spec=(), **job):
    """A Job of a JobSet with a pod on each of ``nodes``; ``job``: more of the Job's spec, ``spec``: of its pods."""
    labels = {"jobset.sigs.k8s.io/jobset-name": set_name, "app": set_name}
    of = workload(name, nodes, kind="Job", labels=labels, cpu=cpu, spec=dict(spec))
    size = len(nodes) + succeeded
    of[0]["spec"] = {**of[0]["spec"], "parallelism": size, "completions": size, **job}
    of[0]["spec"].pop("replicas", None)
    of[0]["metadata"]["generation"] = 1
    of[0]["status"] = {"active": len(nodes), "failed": failed, "succeeded": succeeded}
    of[0]["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": set_name,
            "uid": f"set-{set_name}",
            "controller": True,
        }
    ]
    return of


def group(name, nodes, *, size=None, cpu="1", topology=None, leader_node=None):
    """A group of a LeaderWorkerSet: the leader on the first of ``nodes``, workers on the others."""
    leader_on, *others = nodes
    key = "leaderworkerset.sigs.k8s.io"
    labels = {"app": name, f"{key}/name": name, f"{key}/group-index": "0", f"{key}/group-key": name}
    annotations = {f"{key}/size": str(size or len(nodes))}
    spec, of_workers = {}, {}
    if topology is not None:
        annotations[f"{key}/exclusive-topology"] = topology
        term = {
            "topologyKey": topology,
            "labelSelector": {"matchLabels": {f"{key}/group-key": name}},
        }
        spec = {
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        }
        of_workers = {"nodeSelector": {topology: leader_node}}
    leader = workload(
        name, [leader_on], kind="StatefulSet", cpu=cpu, spec=spec,
        labels={**labels, f"{key}/worker-index": "0"}, annotations=annotations,
    )  # fmt: skip
    workers = workload(
        f"{name}-0", others, kind="StatefulSet", cpu=cpu, spec=of_workers,
        labels={**labels, f"{key}/worker-index": "1"}, annotations=annotations,
    )  # fmt: skip
    return [*leader, *(workers if others else [])]


def planned(*objects, protections=JOBS, strategies=("leaving",), params=LEAVES):
    return plan_of(
        [GOING, *objects], strategies=list(strategies), params=params, protections=protections
    )


def leave(plan):
    return {move.pod for move in plan.moves}


# -- Jobs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        # All together, as long as the Job goes on after it.
        ({}, 4),
        ({"backoffLimit": 4}, 4),
        ({"failed": 2}, 4),
        ({"backoffLimit": 0, "podFailurePolicy": IGNORES}, 4),
        ({"backoffLimitPerIndex": 1}, 4),
        # Else the two that have to, as with kubectl.
        ({"backoffLimit": 3}, 2),
        ({"failed": 3}, 2),
        ({"failed": 4}, 2),
        ({"backoffLimit": 2}, 2),
        # Else none.
        ({"backoffLimit": 1}, 0),
        ({"backoffLimit": 0}, 0),
        ({"failed": 5}, 0),
        ({"backoffLimitPerIndex": 0}, 0),
        ({"backoffLimitPerIndex": 1, "failed": 1}, 0),
    ],
)
def test_pods_of_a_job_set_leave_together_only_where_no_job_fails_by_it(job, pods):
    jobs = job_of_set("train-w", ["going", "going", "a", "b"], **job)
    plan = planned(node("a"), node("b"), *jobs)
    assert len(plan.moves) == pods
    assert {"train-w-0", "train-w-1"} <= leave(plan) or not pods
    if not pods:
        assert {skip.code for skip in plan.skips} == {Code.GANG}
        assert "its Job train-w would fail: it allows " in plan.skips[0].message


def test_each_job_of_a_set_has_its_own_limit():
    """Of the drivers' Job no pod may fail, and none has to leave: those of the other Job leave alone."""
    plan = planned(
        node("a"), node("b"),
        *job_of_set("train-driver", ["a"], backoffLimit=0),
        *job_of_set("train-w", ["going", "b"], backoffLimit=6),
    )  # fmt: skip
    assert leave(plan) == {"train-w-0"}
    both = planned(
        node("a"), node("b"),
        *job_of_set("train-driver", ["going"], backoffLimit=0),
        *job_of_set("train-w", ["going", "b"], backoffLimit=6),
    )  # fmt: skip
    assert leave(both) == set()


def test_a_gang_that_its_scheduler_needs_whole_is_not_torn_for_the_sake_of_a_job():
    labels = {"scheduling.x-k8s.io/pod-group": "sim", "app": "sim"}
    pods = workload("sim", ["going", "a", "b"], kind="Job", labels=labels, cpu="1")
    pods[0]["spec"] |= {"backoffLimit": 2, "parallelism": 3, "completions": 3}
    plan = planned(node("a"), node("b"), *pods)
    assert leave(plan) == set()
    assert {skip.code for skip in plan.skips} == {Code.GANG}


def test_a_job_that_was_not_read_keeps_its_pods():
    job, *pods = job_of_set("train-w", ["going", "a"])
    plan = planned(node("a"), node("b"), *pods)
    assert job["kind"] == "Job"
    assert leave(plan) == set()
    assert "was not read" in plan.skips[0].message


@pytest.mark.parametrize(("job", "pods"), [({}, 1), ({"backoffLimit": 0}, 0), ({"failed": 6}, 0)])
def test_no_policy_lets_a_run_make_a_job_of_its_own_fail(job, pods):
    (one, *of) = workload("sum", ["going"], kind="Job", cpu="1")
    one["spec"] |= {
        "parallelism": 1,
        "completions": 1,
        **{k: v for k, v in job.items() if k != "failed"},
    }
    one["status"] = {"failed": job.get("failed", 0)}
    plan = planned(node("a"), one, *of)
    assert len(plan.moves) == pods
    if not pods:
        assert "its Job sum would fail: it allows " in plan.skips[0].message


def test_a_job_set_of_several_jobs_settles():
    """A Job observes no generation and counts no pods as replicas, and a set has several."""
    jobs = [*job_of_set("train-a", ["a", "b"]), *job_of_set("train-b", ["a"])]
    (owner,) = snapshot_of([node("a"), node("b"), *jobs]).owners
    assert (owner.kind, owner.unsettled, owner.replicas) == ("JobSet", None, 3)


CODES = st.sampled_from([1, 42, 137, 143])
RULES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "action": st.sampled_from(["Ignore", "Count", "FailJob", "FailIndex"]),
                "onExitCodes": st.fixed_dictionaries(
                    {"operator": st.sampled_from(["In", "NotIn"]), "values": st.lists(CODES, min_size=1)}
                ),
            }
        ),
        st.fixed_dictionaries(
            {
                "action": st.sampled_from(["Ignore", "Count", "FailJob", "FailIndex"]),
                "onPodConditions": st.lists(
                    st.fixed_dictionaries(
                        {"type": st.sampled_from(["DisruptionTarget", "ConfigIssue"])},
                        optional={"status": st.sampled_from(["True", "False"])},
                    ),
                    min_size=1,
                ),
            }
        ),
    ),
    max_size=4,
)  # fmt: skip


def read(job):
    return job_state(msgspec.convert(job, o.Workload))


@given(RULES, st.integers(0, 8), st.integers(0, 8))
def test_no_policy_lets_more_pods_go_than_the_first_rule_that_matches_them(rules, limit, failed):
    """Played by the letter of the API for each exit code that an evicted pod may have."""

    def matches(rule, code):
        if "onExitCodes" in rule:
            inside = code in rule["onExitCodes"]["values"]
            return inside is (rule["onExitCodes"]["operator"] == "In")
        return any(
            one["type"] == "DisruptionTarget" and one.get("status", "True") == "True"
            for one in rule["onPodConditions"]
        )

    spec = {"backoffLimit": limit, "podFailurePolicy": {"rules": rules}}
    state = read({"spec": spec, "status": {"failed": failed}})
    firsts = [
        next((rule["action"] for rule in rules if matches(rule, code)), "Count")
        for code in (143, 137)
    ]
    for pods in range(1, 9):
        fails = {"Ignore": False, "Count": failed + pods > limit}
        assert state.allows(pods) is not any(fails.get(first, True) for first in firsts)


@pytest.mark.parametrize(
    "policy", [None, "x", [], {"rules": None}, {"rules": ["x", {"action": 3}]}]
)
def test_a_policy_that_is_not_understood_counts_each_pod(policy):
    assert read({"spec": {"podFailurePolicy": policy}}) == JobState(runs=1, total=6)


@pytest.mark.parametrize(
    ("failed", "pods", "seconds"),
    [(0, 1, 10), (0, 2, 20), (0, 4, 80), (1, 1, 20), (3, 4, 600), (0, 5000, 600)],
)
def test_a_job_pauses_twice_as_long_with_each_failed_pod(failed, pods, seconds):
    assert JobState(failed=failed).pause(pods) == seconds


# -- groups of LeaderWorkerSets -------------------------------------------------------------------------


def test_a_group_of_which_only_the_leader_exists_stays():
    plan = planned(node("a"), node("b"), *group("serve", ["going"], size=3))
    assert leave(plan) == set()
    assert "1 of 3 pods of it exist: it is not whole now" in plan.skips[0].message


def test_whole_groups_move():
    plan = planned(node("a"), node("b"), *group("serve", ["a", "going"], size=2))
    assert len(plan.moves) == 2


RACKS = [node("a", labels={"rack": "r1"}), node("c", labels={"rack": "r2"}), node("d", labels={"rack": "r2"})]  # fmt: skip


def test_workers_follow_their_leader_into_another_rack():
    """In the rack of the group is no room without the node that goes; its workers' nodeSelector names that rack."""
    full = workload("full", ["a"], cpu="3500m", annotations={"rebalancer/evict": "false"})
    serve = group("serve", ["a", "going", "going"], cpu="2", topology="rack", leader_node="r1")
    plan = planned(*RACKS, *full, *serve)
    assert {move.landings[0].node for move in plan.moves} <= {"c", "d"}
    assert len(plan.moves) == 3


def test_where_a_group_may_land_in_two_racks_it_is_not_predictable():
    more = node("b", labels={"rack": "r1"})
    serve = group("serve", ["a", "going"], topology="rack", leader_node="r1")
    plan = planned(*RACKS, more, *serve)
    assert leave(plan) == set()
    assert "not predictable: it may land in each rack of r1, r2" in plan.skips[0].message


@settings(max_examples=30)
@given(st.data())
def test_the_order_of_objects_changes_nothing(data):
    objects = [
        *group("serve", ["a", "going"], size=2),
        *job_of_set("train-w", ["going", "going", "b"], backoffLimit=2),
        *job_of_set("train-x", ["a"], backoffLimit=0),
    ]
    drawn = data.draw(st.permutations(objects))
    plan = planned(node("a"), node("b"), *drawn)
    assert leave(plan) == {"serve-0", "serve-0-0", "train-w-0", "train-w-1"}


def test_a_redacted_file_has_the_rack_of_a_group_as_the_file_has():
    leader, *_ = (
        one
        for one in group("serve", ["a", "going"], topology="rack", leader_node="r1")
        if one["kind"] == "Pod"
    )
    redacted = json.loads(Redactor(b"0123456789abcdef").redact("Pod", json.dumps(leader).encode()))
    key = "leaderworkerset.sigs.k8s.io/exclusive-topology"
    assert redacted["metadata"]["annotations"][key] == "rack"


# -- pods that wait -------------------------------------------------------------------------------------


def refused(objects):
    """The pods among ``objects``, of which no node takes any."""
    for one in objects:
        if one["kind"] == "Pod":
            one["spec"].pop("nodeName")
            why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            one["status"] = {"phase": "Pending", "conditions": [why]}
    return objects


WAITING = {
    "a leader, its two workers to be made": (group("wide", [""], size=3, cpu="3"), 0),
    "a leader alone": (group("wide", [""], cpu="3"), 1),
    "the first of two pods of a Job": (
        job_of_set("wide", [""], parallelism=2, completions=2, cpu="3"), 0,
    ),
    "the last pod of a Job": (job_of_set("wide", [""], parallelism=2, completions=2, succeeded=1, cpu="3"), 1),
}  # fmt: skip


@pytest.mark.parametrize("of", WAITING, ids=str)
def test_room_is_made_for_a_group_once_all_of_its_pods_exist(of):
    """On each of two nodes of 4 CPUs is a pod of 2, of which one would leave for a pod of 3."""
    waits, moves = WAITING[of]
    objects = [node("a", cpu="4"), node("b", cpu="4"), *workload("small", ["a", "b"], cpu="2")]
    plan = plan_of([*objects, *refused(waits)], settings=MARKS, strategies=["make-room"])
    assert len(plan.moves) == moves
    if not moves:
        (why,) = [skip for skip in plan.skips if skip.pod == "wide-0"]
        assert why.code is Code.GANG
        assert "exist: it is not whole now" in why.message


def test_followers_of_a_job_go_where_its_leader_goes():
    """The pod webhook of JobSet writes the rack of the pod with index 0 into the nodeSelector of the others."""
    key = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-key": "k"}
    term = {
        "topologyKey": "rack",
        "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/job-key": "k"}},
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    index = "batch.kubernetes.io/job-completion-index"
    job, leader = workload(
        "w", ["going"], kind="Job", cpu="2", labels={**labels, index: "0"}, annotations=key, spec={"affinity": near}
    )  # fmt: skip
    _, follower = workload(
        "w", ["going"], kind="Job", cpu="2", labels={**labels, index: "1"}, annotations=key,
        spec={"nodeSelector": {"rack": "r1"}},
    )  # fmt: skip
    follower["metadata"] |= {"name": "w-1", "uid": "w-1"}
    job["spec"] |= {"parallelism": 2, "completions": 2}
    job["spec"]["template"]["spec"] = {
        key: value for key, value in leader["spec"].items() if key not in ("affinity", "nodeName")
    }
    job["spec"]["template"]["metadata"]["labels"] = labels
    plan = planned(
        node("c", labels={"rack": "r2"}), node("d", labels={"rack": "r2"}), job, leader, follower
    )
    assert {move.pod: move.landings[0].node in ("c", "d") for move in plan.moves} == {
        "w-0": True,
        "w-1": True,
    }
