"""Pods that have ended, beside running ones: which are removed, which stay, and that they count nowhere."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Cause
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import snapshot_of, workload
from tests.strategies.failed_pods import (
    ARGO,
    BOTH,
    CRON,
    NAME,
    NEVER,
    OF_JOB,
    REGISTRY,
    failed,
    job,
    nodes,
    plan,
    rules_of,
)
from tests.strategies.pod_states import ago, condition, ended
from tests.support.worlds import read_rules


def test_a_failed_pod_whose_replica_set_has_made_another_is_removed():
    result = plan([*nodes(), *workload("web", ["n1", "n2"]), failed()])
    (move,) = result.moves
    assert (move.pod, move.node, move.landings, move.cause) == ("dead", "n1", (), Cause.ENDED)
    assert (move.owner, move.cost, move.wave) == ("Deployment/default/web", 0.0, 1)
    assert move.reason == "default/dead is Failed (Evicted), 3h old"
    assert (result.before[NAME].violated, result.after[NAME].violated) == (1, 0)
    assert (result.lower_bound, result.stopped) == (1, "After these moves every rule holds.")


def test_nothing_is_read_or_done_without_the_strategy():
    of = read_rules("strategies: {duplicates: {}}")
    assert of.finished == frozenset()
    snapshot = snapshot_of([*nodes(), *workload("web", ["n1", "n2"]), failed()])
    assert snapshot.finished is None
    assert rules_of("{mode: off}").finished == frozenset()
    assert rules_of("{phases: [Succeeded]}").finished == {"Succeeded"}


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
    of_dead = [
        failed(f"dead-{i}", owner=owner, status={"phase": phase}, spec={"nodeName": on})
        for i, (phase, on, owner) in enumerate(dead)
    ]
    assert others(*of_dead) == alone()


def others(*dead):
    """What a plan has of all but the strategy, beside these pods."""
    living = [*nodes(), *workload("web", ["n1", "n2", "n2"], cpu="1"), job()]
    snapshot = snapshot_of([*living, *dead], finished=BOTH)
    made = make_plan(RunRules(beside_others(), REGISTRY, Scope()), snapshot, Timings(SystemClock()))
    moves = [move for move in made.plan.moves if move.strategy != NAME]
    scores = {name: score for name, score in made.plan.before.items() if name != NAME}
    return len(snapshot.pods), snapshot.owners, made.standstill, moves, scores


alone = cache(others)


@cache
def beside_others():
    text = (
        "apiVersion: rebalancer/v1\nkind: Policy\nstrategies:\n  failed-pods: {phases: [Failed, Succeeded]}\n"
        "  duplicates: {}\n  low-utilisation: {}\n  topology-spread: {}\n"
    )
    return load_text(text.encode(), "policy", REGISTRY)
