"""The format that the descheduler read until 0.30: each policy, and the one of v1alpha2 that means the same."""

import pytest
import yaml

from rebalancer.migrate.merge import convert_policy
from rebalancer.migrate.plugins import STRATEGIES
from tests.unit.migrate.conftest import KNOWN

HEAD = "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\n"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
USUAL = "thresholds: {cpu: 20}, targetThresholds: {cpu: 60}"


def converted(policy, head=HEAD):
    return convert_policy(f"{head}{policy}".encode(), "f.yaml", KNOWN)


def profile(name, args, evictor="{}"):
    return (
        f"- pluginConfig: [{{name: DefaultEvictor, args: {evictor}}}, {{name: {name}, args: {args}}}]\n"
        f"  plugins: {{{STRATEGIES[name][0]}: {{enabled: [{name}]}}}}\n"
    )


def same(policy, top, *profiles):
    """Whether a policy becomes what one of v1alpha2 becomes."""
    new = f"kind: DeschedulerPolicy\napiVersion: descheduler/v1alpha2\n{top}profiles:\n{''.join(profiles) or '  []'}"
    expected = converted(new, "").data
    assert yaml.safe_dump(converted(policy).data) == yaml.safe_dump(expected)


@pytest.mark.parametrize(
    ("name", "params", "args"),
    [
        ("RemoveDuplicates", "{}", "{}"),
        ("RemoveDuplicates", "{removeDuplicates: {excludeOwnerKinds: [Job]}, namespaces: {include: [a]}}", "{excludeOwnerKinds: [Job], namespaces: {include: [a]}}"),
        ("LowNodeUtilization", f"{{nodeResourceUtilizationThresholds: {{{USUAL}}}}}", f"{{{USUAL}}}"),
        ("LowNodeUtilization", f"{{namespaces: {{exclude: [a]}}, nodeResourceUtilizationThresholds: {{{USUAL}, useDeviationThresholds: true}}}}", f"{{{USUAL}, useDeviationThresholds: true, evictableNamespaces: {{exclude: [a]}}}}"),
        ("HighNodeUtilization", "{nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, numberOfNodes: 2}}", "{thresholds: {cpu: 20}, numberOfNodes: 2}"),
        ("RemovePodsViolatingInterPodAntiAffinity", "{labelSelector: {matchLabels: {a: b}}}", "{labelSelector: {matchLabels: {a: b}}}"),
        ("RemovePodsViolatingNodeAffinity", f"{{nodeAffinityType: [{REQUIRED}]}}", f"{{nodeAffinityType: [{REQUIRED}]}}"),
        ("RemovePodsViolatingNodeTaints", "{includePreferNoSchedule: true, excludedTaints: [a]}", "{includePreferNoSchedule: true, excludedTaints: [a]}"),
        ("RemovePodsViolatingNodeTaints", "{includedTaints: [a]}", "{includedTaints: [a]}"),
        ("RemovePodsViolatingTopologySpreadConstraint", "{includeSoftConstraints: true}", f"{{constraints: [{HARD}, {SOFT}]}}"),
        ("RemovePodsViolatingTopologySpreadConstraint", "{includeSoftConstraints: false}", f"{{constraints: [{HARD}]}}"),
        ("RemovePodsHavingTooManyRestarts", "{podsHavingTooManyRestarts: {podRestartThreshold: 9, includingInitContainers: true}}", "{podRestartThreshold: 9, includingInitContainers: true}"),
        ("PodLifeTime", "{podLifeTime: {maxPodLifeTimeSeconds: 60, podStatusPhases: [Pending], states: [ContainerCreating]}}", "{maxPodLifeTimeSeconds: 60, states: [Pending, ContainerCreating]}"),
        ("RemoveFailedPods", "{failedPods: {reasons: [a], excludeOwnerKinds: [Job], minPodLifetimeSeconds: 9, includingInitContainers: true}}", "{reasons: [a], excludeOwnerKinds: [Job], minPodLifetimeSeconds: 9, includingInitContainers: true}"),
    ],
)  # fmt: skip
def test_each_strategy_is_the_plug_in_of_its_name(name, params, args):
    same(f"strategies: {{{name}: {{enabled: true, params: {params}}}}}", "", profile(name, args))


@pytest.mark.parametrize(
    ("params", "evictor"),
    [
        ("{thresholdPriority: 9}", "{priorityThreshold: {value: 9}}"),
        ("{thresholdPriorityClassName: gold}", "{priorityThreshold: {name: gold}}"),
        ("{nodeFit: true}", "{nodeFit: true}"),
    ],
)
def test_limits_of_a_strategy_are_those_of_its_evictor(params, evictor):
    other = "RemovePodsViolatingInterPodAntiAffinity"
    same(
        f"strategies: {{RemoveDuplicates: {{enabled: true, params: {params}}}, {other}: {{enabled: true}}}}",
        "",
        profile("RemoveDuplicates", "{}", evictor),
        profile(other, "{}"),
    )


def test_keys_at_the_top_are_those_of_every_evictor():
    own = "evictLocalStoragePods: true\nevictSystemCriticalPods: true\nignorePvcPods: false\n"
    top = "nodeSelector: a=b\nmaxNoOfPodsToEvictPerNode: 3\nmaxNoOfPodsToEvictPerNamespace: 4\nmaxNoOfPodsToEvictTotal: 5\n"
    evictor = "{evictLocalStoragePods: true, evictSystemCriticalPods: true, ignorePvcPods: false}"
    same(
        f"{own}{top}strategies: {{RemoveDuplicates: {{enabled: true}}, RemoveFailedPods: {{enabled: true}}}}",
        top,
        profile("RemoveDuplicates", "{}", evictor),
        profile("RemoveFailedPods", "{}", evictor),
    )


@pytest.mark.parametrize("strategies", ["{RemoveDuplicates: {enabled: false}}", "{RemoveDuplicates: {params: {nodeFit: true}}}", "{}", ""])  # fmt: skip
def test_a_strategy_that_is_not_enabled_is_left_out(strategies):
    same(f"strategies: {strategies}\n", "")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("strategies:\n  RemoveDuplicates:\n    enabled: true\n    params:\n      podLifeTime: {states: [Failed]}\n", "7: strategies.RemoveDuplicates.params.podLifeTime.states: had no effect there: RemoveDuplicates does not read it"),
        ("strategies:\n  PodLifeTime:\n    enabled: true\n    params:\n      podLifeTime: {maxPodLifeTimeSeconds: 9}\n      nodeFit: true\n", "8: strategies.PodLifeTime.params.nodeFit: had no effect there: PodLifeTime does not read it"),
        ("strategies:\n  RemovePodsViolatingNodeTaints:\n    enabled: true\n    params:\n      includedTaints: [a]\n", "7: strategies.RemovePodsViolatingNodeTaints.params.includedTaints: differs: a limit here; the descheduler kept to it in v1alpha2 only"),
        ("strategies: {}\nmaxNoOfPodsToEvictTotal: 4\n", "4: maxNoOfPodsToEvictTotal: differs: a limit here; the descheduler kept to it in v1alpha2 only"),
        ("strategies: {}\nprofiles: []\n", "4: profiles: had no effect there: descheduler/v1alpha1 has no such key"),
        # Notes on arguments have the parameter's name and line.
        ("strategies:\n  RemoveDuplicates:\n    enabled: true\n    params:\n      removeDuplicates:\n        excludeOwnerKinds: [ReplicaSet]\n", "8: strategies.RemoveDuplicates.params.removeDuplicates.excludeOwnerKinds: differs: kinds are those of top owners"),
        ("evictDaemonSetPods: true\nstrategies: {RemoveDuplicates: {enabled: true}}\n", "3: evictDaemonSetPods: not carried over: DaemonSetPods: pods of DaemonSets are never moved"),
    ],
)  # fmt: skip
def test_notes_are_about_the_keys_of_the_file(text, note):
    notes = [str(one) for one in converted(text).notes]
    assert sum(one.startswith(f"f.yaml:{note}") for one in notes) == 1, notes


def test_the_head_names_the_version_of_the_file():
    head = converted("strategies: {RemoveDuplicates: {enabled: true}}\n").head
    assert "# Migrated from a policy of the descheduler (descheduler/v1alpha1).\n" in head


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("RemoveDuplicate: {enabled: false}", "4: strategies.RemoveDuplicate: unknown strategy RemoveDuplicate; did you mean RemoveDuplicates?"),
        ("RemoveDuplicates: {enable: true}", "4: strategies.RemoveDuplicates.enable: unknown key; did you mean enabled?"),
        ("RemoveDuplicates: {enabled: 'yes'}", '4: strategies.RemoveDuplicates.enabled: "yes" should be true or false'),
        ("RemoveDuplicates: {enabled: true, params: {namespace: {}}}", "4: strategies.RemoveDuplicates.params.namespace: unknown key; did you mean namespaces?"),
        ("PodLifeTime: {enabled: true, params: {podLifeTime: {maxSeconds: 5, states: [Running]}}}", "4: strategies.PodLifeTime.params.podLifeTime.maxSeconds: unknown key"),
        ("PodLifeTime: {enabled: true, params: {podLifeTime: 5}}", "4: strategies.PodLifeTime.params.podLifeTime: unknown key; did you mean podLifeTime.states?"),
        ("PodLifeTime: {enabled: true, params: {podLifeTime: {states: [Terminating]}}}", '4: strategies.PodLifeTime.params.podLifeTime.states[0]: "Terminating" is none of Running'),
        ("LowNodeUtilization: {enabled: true}", "4: strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds.thresholds: is missing; add it"),
        ("RemoveDuplicates: {enabled: true, params: {thresholdPriority: 1, thresholdPriorityClassName: a}}", "4: strategies.RemoveDuplicates.params.priorityThreshold: only one of value and name can be set"),
    ],
)  # fmt: skip
def test_what_the_descheduler_refuses_is_refused_with_its_line(refused, text, problem):
    problems = refused(f"strategies:\n  {text}\n", head=HEAD)
    assert any(one.startswith(problem) for one in problems), problems
