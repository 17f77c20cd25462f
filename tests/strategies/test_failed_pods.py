"""Pods that have ended, beside running ones: which are removed, which stay, and that they count nowhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Cause, Code
from rebalancer.planner.planning import Planning
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.contract import check_strategy
from rebalancer.testing.snapshots import snapshot_of
from rebalancer.testing.workloads import disruption_budget, node, workload
from tests.strategies.pod_states import ago, condition, ended

REGISTRY = Registry.installed()
NAME = "failed-pods"
BOTH = frozenset({"Failed", "Succeeded"})


def planning(options="{}", more="", **flags):
    text = (
        f"apiVersion: rebalancer/v1\nkind: Policy\n{more}\nstrategies: {{failed-pods: {options}}}\n"
    )
    return Planning(
        load_text(text.encode(), "policy", REGISTRY), REGISTRY, flags.pop("scope", Scope()), **flags
    )


def plan(objects, options="{}", more="", **flags):
    of = planning(options, more, **flags)
    snapshot = snapshot_of(objects, finished=of.finished)
    return of.plan(snapshot, 0.0, Timings(SystemClock())).plan


def nodes():
    return [node("n1"), node("n2")]


def failed(name="dead", *, owner=("ReplicaSet", "apps/v1", "web"), hours=3.0, **more):
    """A pod that has ended on n1."""
    references = []
    if owner is not None:
        kind, version, of = owner
        uid = f"{kind}/default/{of}"
        references = [
            {"kind": kind, "apiVersion": version, "name": of, "uid": uid, "controller": True}
        ]
    made: dict[str, Any] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "annotations": more.pop("annotations", {}),
            "creationTimestamp": ago(hours=hours),
            "ownerReferences": references,
        },
        "spec": {
            "nodeName": "n1",
            "priority": 0,
            "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
            ],
            **more.pop("spec", {}),
        },
        "status": {"phase": "Failed", "reason": "Evicted", **more.pop("status", {})},
    }
    return {**made, "metadata": {**made["metadata"], **more}}


def job(name="work", *, over="Complete", owner=None):
    references = [] if owner is None else [{**owner, "uid": "u", "name": "x", "controller": True}]
    conditions = [{"type": over, "status": "True"}] if over else []
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"Job/default/{name}",
            "ownerReferences": references,
        },
        "spec": {"parallelism": 1, "template": {"spec": {"containers": []}}},
        "status": {"conditions": conditions},
    }


OF_JOB = ("Job", "batch/v1", "work")
NEVER = {"restartPolicy": "Never"}
ARGO = {"kind": "Workflow", "apiVersion": "argoproj.io/v1alpha1"}
CRON = {"kind": "CronJob", "apiVersion": "batch/v1"}


def test_a_failed_pod_whose_replica_set_has_made_another_is_removed():
    result = plan([*nodes(), *workload("web", ["n1", "n2"]), failed()])
    (move,) = result.moves
    assert (move.pod, move.node, move.landings, move.cause) == ("dead", "n1", (), Cause.ENDED)
    assert (move.owner, move.cost, move.wave) == ("Deployment/default/web", 0.0, 1)
    assert move.reason == "default/dead is Failed (Evicted), 3h old"
    assert (result.before[NAME].violated, result.after[NAME].violated) == (1, 0)
    assert (result.lower_bound, result.stopped) == (1, "After these moves every rule holds.")


def test_nothing_is_read_or_done_without_the_strategy():
    text = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {duplicates: {}}\n"
    of = Planning(load_text(text.encode(), "policy", REGISTRY), REGISTRY, Scope())
    assert of.finished == frozenset()
    snapshot = snapshot_of([*nodes(), *workload("web", ["n1", "n2"]), failed()])
    assert snapshot.finished is None
    assert planning("{mode: off}").finished == frozenset()
    assert planning("{phases: [Succeeded]}").finished == {"Succeeded"}


@pytest.mark.parametrize(
    ("objects", "goes"),
    [
        ([failed(owner=("StatefulSet", "apps/v1", "db"))], True),
        ([failed(owner=("ReplicationController", "v1", "rc"))], True),
        # A controller of a kind that is not known, or no controller: what it left may still be read.
        ([failed(owner=("Workflow", "argoproj.io/v1alpha1", "steps"), spec=NEVER)], False),
        ([failed(owner=("Workflow", "argoproj.io/v1alpha1", "steps"))], False),
        ([failed(owner=("ReplicaSet", "example.com/v1", "own"))], False),
        ([failed(owner=None)], False),
        ([failed(owner=("DaemonSet", "apps/v1", "agent"))], False),
        ([failed(owner=("Node", "v1", "n1"))], False),
        # A Job is done with its pods once it has ended; what owns the Job may not be.
        ([failed(owner=OF_JOB, spec=NEVER), job(over=None)], False),
        ([failed(owner=OF_JOB, spec=NEVER), job(over="Suspended")], False),
        ([failed(owner=OF_JOB, spec=NEVER), job()], True),
        ([failed(owner=OF_JOB, spec=NEVER), job(over="Failed")], True),
        ([failed(owner=OF_JOB, spec=NEVER), job(owner=CRON)], True),
        ([failed(owner=OF_JOB, spec=NEVER), job(owner=ARGO)], False),
        ([failed(owner=OF_JOB, spec=NEVER)], False),  # not read
        ([failed(owner=("Job", "batch.volcano.sh/v1alpha1", "work")), job()], False),
        ([failed(deletionTimestamp=ago(hours=0))], False),
        ([failed(spec={"nodeName": ""})], False),
        ([failed(spec={"nodeName": "gone"})], False),
    ],
)
@pytest.mark.parametrize("jobs", ["true", "false"])
def test_what_its_owner_is_not_done_with_stays(objects, goes, jobs):
    # protect.jobs is about pods that run.
    result = plan([*nodes(), *workload("web", ["n1"]), *objects], more=f"protect: {{jobs: {jobs}}}")
    assert bool(result.moves) is goes
    assert result.skips == ()
    assert result.before[NAME].violated == goes


def test_a_kind_that_the_policy_names_is_known_to_make_others():
    objects = [*nodes(), failed(owner=("CloneSet", "apps.kruise.io/v1alpha1", "web"))]
    more = "protect: {recreatedBy: [CloneSet.apps.kruise.io]}"
    assert len(plan(objects, more=more).moves) == 1


@pytest.mark.parametrize(
    ("options", "pod", "goes"),
    [
        ("{}", {"hours": 0.9}, False),
        ("{}", {"hours": 1.0}, True),
        ("{minPodLifetime: 0s}", {"hours": 0.0}, True),
        ("{minPodLifetime: 24h}", {"hours": 3}, False),
        ("{reasons: [Evicted]}", {}, True),
        ("{reasons: [NodeAffinity]}", {}, False),
        ("{reasons: [OOMKilled]}", {"status": {"containerStatuses": [ended("OOMKilled", 137)]}}, True),
        ("{reasons: [OOMKilled]}", {"status": {"initContainerStatuses": [ended("OOMKilled", 137)]}}, False),
        ("{reasons: [OOMKilled], includingInitContainers: true}", {"status": {"initContainerStatuses": [ended("OOMKilled", 137)]}}, True),
        ("{exitCodes: [137]}", {"status": {"containerStatuses": [ended("Error", 137)]}}, True),
        ("{exitCodes: [1]}", {"status": {"containerStatuses": [ended("Error", 137)]}}, False),
        ("{exitCodes: [137]}", {"status": {"initContainerStatuses": [ended("Error", 137)]}}, False),
        ("{exitCodes: [1], reasons: [Evicted]}", {}, False),
        ("{conditions: [{type: DisruptionTarget}]}", {"status": {"conditions": [condition("DisruptionTarget", "True")]}}, True),
        ("{conditions: [{type: DisruptionTarget}]}", {}, False),
        ("{excludeOwnerKinds: [ReplicaSet]}", {}, False),
        ("{excludeOwnerKinds: [Deployment]}", {}, False),
        ("{excludeOwnerKinds: [Job]}", {}, True),
        ("{}", {"status": {"phase": "Succeeded"}}, False),
        ("{phases: [Succeeded]}", {"status": {"phase": "Succeeded"}}, True),
        ("{phases: [Succeeded]}", {}, False),
        ("{select: {labels: {app: web}}}", {}, True),
        ("{select: {labels: {app: db}}}", {}, False),
        ("{select: {namespaces: [other]}}", {}, False),
        ("{select: {nodes: {kubernetes.io/hostname: n2}}}", {}, False),
    ],
)  # fmt: skip
def test_options(options, pod, goes):
    result = plan([*nodes(), *workload("web", ["n1", "n2"]), failed(**pod)], options)
    assert bool(result.moves) is goes
    assert result.before[NAME].violated == goes


@pytest.mark.parametrize(
    ("pod", "more", "protection"),
    [
        ({"annotations": {"rebalancer/evict": "false"}}, "", "optedOut"),
        ({"spec": {"volumes": [{"emptyDir": {}, "name": "v"}]}}, "", "localStorage"),
        ({"spec": {"priority": 2_000_000_000}}, "", "systemCritical"),
        ({}, "protect: {pods: [{labels: {app: web}}]}", "pods"),
        ({}, "select: {namespaces: [other]}", "notSelected"),
    ],
)
def test_protections_hold(pod, more, protection):
    objects = [*nodes(), *workload("web", ["n1", "n2"]), failed(**pod)]
    (skip,) = plan(objects, more=more).skips
    assert (skip.code, skip.message.partition(":")[0]) == (Code.PROTECTED, protection)


def test_what_is_about_running_pods_does_not():
    # One replica, not at rest, and with a budget that allows nothing: the API server asks for none of an ended pod.
    web = workload("web", ["n1"], replicas=1)
    objects = [*nodes(), *web, failed(), disruption_budget("web", "web", allowed=0)]
    assert [move.pod for move in plan(objects).moves] == ["dead"]


@pytest.mark.parametrize(
    ("more", "options", "code"),
    [
        ("budgets: {perRun: 1}", "{}", Code.BUDGET),
        ("budgets: {perHour: 1}", "{}", Code.BUDGET),
        ("budgets: {perNamespace: 1}", "{}", Code.BUDGET),
        ("", "{budgets: {perRun: 1}}", Code.BUDGET),
        ("", "{budgets: {perNamespace: 1}}", Code.BUDGET),
    ],
)
def test_budgets_of_a_run_hold_and_the_oldest_go_first(more, options, code):
    objects = [*nodes(), failed("young", hours=2), failed("old", hours=9), failed("mid", hours=5)]
    result = plan(objects, options, more)
    assert [move.pod for move in result.moves] == ["old"]
    assert [(skip.pod, skip.code) for skip in result.skips] == [("mid", code), ("young", code)]
    assert (result.backlog.moves, result.after[NAME].violated) == (2, 2)


def test_budgets_of_what_is_in_flight_do_not():
    more = "budgets: {inFlight: 0, perNode: 0, perOwner: 0}"
    assert len(plan([*nodes(), failed("a"), failed("b")], more=more).moves) == 2


def test_they_go_after_the_moves_of_other_strategies_and_only_if_these_leave_something():
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perRun: 2}\n"
        "strategies: {failed-pods: {}, duplicates: {}}\n"
    )
    of = Planning(load_text(text.encode(), "policy", REGISTRY), REGISTRY, Scope())
    objects = [*nodes(), *workload("web", ["n1", "n1"]), failed("a", hours=3), failed("b")]
    snapshot = snapshot_of(objects, finished=of.finished)
    result = of.plan(snapshot, 0.0, Timings(SystemClock())).plan
    assert [(move.strategy, move.wave) for move in result.moves] == [
        ("duplicates", 1),
        (NAME, 2),
    ]
    assert [(skip.pod, skip.code) for skip in result.skips] == [("b", Code.BUDGET)]


def test_an_observing_instance_shows_what_another_does_not_remove():
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\n"
        "strategies: {failed-pods: {mode: observe}, mine: {strategy: failed-pods, reasons: [Evicted]}}\n"
    )
    of = Planning(load_text(text.encode(), "policy", REGISTRY), REGISTRY, Scope())
    other = failed("other", status={"reason": "Shutdown"})
    snapshot = snapshot_of([*nodes(), failed("a"), other], finished=of.finished)
    moves = of.plan(snapshot, 0.0, Timings(SystemClock())).plan.moves
    assert {(m.pod, m.strategy, m.observed) for m in moves} == {
        ("a", "mine", False),
        ("other", NAME, True),
    }


def test_between_waves_only_what_still_may_go_goes():
    objects = [*nodes(), *workload("web", ["n1", "n2"]), failed()]
    of = planning()
    snapshot = snapshot_of(objects, finished=of.finished)
    (move,) = of.plan(snapshot, 0.0, Timings(SystemClock())).plan.moves
    assert of.rechecked(snapshot, [move], 0.0) == [(move, None)]
    kept = [*objects[:-1], failed(annotations={"rebalancer/evict": "false"})]
    later = snapshot_of(kept, finished=of.finished)
    assert of.rechecked(later, [move], 0.0) == [(move, "protected now: optedOut")]
    gone = snapshot_of(objects[:-1], finished=of.finished)
    assert of.rechecked(gone, [move], 0.0) == [(move, "no strategy removes it any more")]


def test_a_reviewed_plan_removes_what_it_names_and_nothing_else():
    objects = [*nodes(), failed("a"), failed("b"), failed("c")]
    first = planning()
    snapshot = snapshot_of(objects, finished=first.finished)
    moves = first.plan(snapshot, 0.0, Timings(SystemClock())).plan.moves
    again = planning(reviewed=[move for move in moves if move.pod != "b"])
    kept = [
        *nodes(),
        failed("a"),
        failed("b"),
        failed("c", annotations={"rebalancer/evict": "false"}),
    ]
    made = again.plan(snapshot_of(kept, finished=first.finished), 0.0, Timings(SystemClock()))
    assert [move.pod for move in made.left] == ["a"]
    assert {o.move.pod: o.message for o in made.ended.values()} == {"c": "protected now: optedOut"}
    assert made.plan.stopped == "Left of the plan: 1 of 2 moves (1 dropped)."


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Failed", "Succeeded"]),
            st.sampled_from(["n1", "n2", ""]),
            st.sampled_from([("ReplicaSet", "apps/v1", "web"), OF_JOB, None]),
        ),
        max_size=6,
    )
)
def test_pods_that_have_ended_count_nowhere(dead):
    living = [*nodes(), *workload("web", ["n1", "n2", "n2"], cpu="1"), job()]
    of_dead = [
        failed(f"dead-{i}", owner=owner, status={"phase": phase}, spec={"nodeName": on})
        for i, (phase, on, owner) in enumerate(dead)
    ]
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\nstrategies:\n  failed-pods: {phases: [Failed, Succeeded]}\n"
        "  duplicates: {}\n  low-utilisation: {}\n  topology-spread: {}\n"
    )
    loaded = load_text(text.encode(), "policy", REGISTRY)

    def others(objects):
        snapshot = snapshot_of(objects, finished=BOTH)
        made = Planning(loaded, REGISTRY, Scope()).plan(snapshot, 0.0, Timings(SystemClock()))
        moves = [move for move in made.plan.moves if move.strategy != NAME]
        scores = {name: score for name, score in made.plan.before.items() if name != NAME}
        return len(snapshot.pods), snapshot.owners, made.standstill, moves, scores

    assert others([*living, *of_dead]) == others(living)


def test_the_contract():
    check_strategy(REGISTRY.strategy(NAME))
