"""Each plug-in's arguments as options of the strategy that stands in its place."""

import pytest

SPREAD = "RemovePodsViolatingTopologySpreadConstraint"
TAINTS = "RemovePodsViolatingNodeTaints"
AFFINITY = "RemovePodsViolatingNodeAffinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
BALANCE = {SPREAD, "RemoveDuplicates", "LowNodeUtilization"}


@pytest.fixture
def plugin(migrate):
    """Name and arguments of a plug-in in; what stands below ``strategies:``, and notes on line 6, out."""

    def outcome(name, args):
        point = "balance" if name in BALANCE else "deschedule"
        ours, notes = migrate(
            f"profiles:\n- pluginConfig:\n  - name: {name}\n    args: {args}\n"
            f"  plugins: {{{point}: {{enabled: [{name}]}}}}\n"
        )
        notes_there = [note for note in notes if note.startswith("6: ")]
        return ours.removeprefix("strategies:\n"), notes_there

    return outcome


@pytest.mark.parametrize(
    ("name", "args", "ours"),
    [
        (SPREAD, "{}", "  topology-spread:\n    constraints: [hard]\n"),
        (SPREAD, "{constraints: [ScheduleAnyway, DoNotSchedule]}", "  topology-spread:\n    constraints: [hard, soft]\n"),
        (SPREAD, "{constraints: [ScheduleAnyway]}", "  topology-spread:\n    constraints: [soft]\n"),
        (SPREAD, "{includeSoftConstraints: true}", "  topology-spread:\n    constraints: [hard, soft]\n"),
        ("RemoveDuplicates", "{excludeOwnerKinds: [StatefulSet]}", "  duplicates:\n    excludeOwnerKinds: [StatefulSet]\n"),
        ("RemoveDuplicates", "{excludeOwnerKinds: [ReplicaSet, Job]}", "  duplicates:\n    excludeOwnerKinds: [ReplicaSet, Deployment, Rollout, Job, CronJob]\n"),
        (AFFINITY, f"{{nodeAffinityType: [{PREFERRED}]}}", "  node-affinity: {required: false, preferred: true}\n"),
        (AFFINITY, f"{{nodeAffinityType: [{PREFERRED}, {REQUIRED}]}}", "  node-affinity: {required: true, preferred: true}\n"),
        (AFFINITY, "{nodeAffinityType: [often]}", "strategies: {}\n"),
        (TAINTS, "{includePreferNoSchedule: true}", "  taints: {preferNoSchedule: true}\n"),
        (TAINTS, "{includedTaints: []}", "strategies: {}\n"),
        (TAINTS, "{includedTaints: ['', a=]}", "strategies: {}\n"),
        (TAINTS, "{includedTaints: [dedicated, a=b, dedicated]}", "  taints:\n    include: [dedicated, a=b]\n"),
        ("LowNodeUtilization", "{thresholds: {cpu: 12.5}, targetThresholds: {cpu: 12.5}}", "  low-utilisation:\n    under: {cpu: 12.5%}\n    over: {cpu: 12.5%}\n    gap: 100%\n"),
        ("LowNodeUtilization", "{thresholds: {cpu: 30}, targetThresholds: {cpu: 10}, useDeviationThresholds: true}", "  low-utilisation:\n    under: {cpu: 30%}\n    over: {cpu: 10%}\n    gap: 100%\n    deviation: true\n"),
        ("LowNodeUtilization", "{thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, evictionLimits: {node: 1}}", "  low-utilisation:\n    under: {cpu: 1%}\n    over: {cpu: 2%}\n    gap: 100%\n    budgets: {perNodeInRun: 1}\n"),
        ("LowNodeUtilization", "{thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, metricsUtilization: {source: KubernetesMetrics}}", "  low-utilisation:\n    under: {cpu: 1%}\n    over: {cpu: 2%}\n    gap: 100%\n    signal: usage\n"),
        ("PodLifeTime", "{maxPodLifeTimeSeconds: 86400}", "  lifetime: {maxPodLifeTime: 24h}\n"),
        ("PodLifeTime", "{states: [Pending, OOMKilled, Failed], includingInitContainers: true}", "  failed-pods:\n    phases: [Failed]\n    minPodLifetime: 0s\n    includingInitContainers: true\n  lifetime:\n    states: [Pending, OOMKilled]\n    includingInitContainers: true\n"),
        ("PodLifeTime", "{states: [Failed, Succeeded]}", "  failed-pods:\n    phases: [Failed, Succeeded]\n    minPodLifetime: 0s\n"),
        ("PodLifeTime", "{states: [Failed], maxPodLifeTimeSeconds: 90, exitCodes: [1]}", "  failed-pods:\n    phases: [Failed]\n    minPodLifetime: 1m30s\n    exitCodes: [1]\n"),
        # Reasons that only pods that have ended have.
        ("PodLifeTime", "{states: [Evicted, NodeAffinity], maxPodLifeTimeSeconds: 90}", "  failed-pods:\n    phases: [Failed]\n    reasons: [Evicted, NodeAffinity]\n    minPodLifetime: 1m30s\n"),
        ("PodLifeTime", "{states: [Failed, Shutdown]}", "  failed-pods:\n    phases: [Failed]\n    minPodLifetime: 0s\n"),
        ("PodLifeTime", "{states: [Shutdown, Running]}", "  failed-pods:\n    phases: [Failed]\n    reasons: [Shutdown]\n    minPodLifetime: 0s\n  lifetime:\n    states: [Running]\n"),
        ("PodLifeTime", "{states: [Shutdown, Succeeded]}", "strategies: {}\n"),
        ("RemoveFailedPods", "{}", "  failed-pods: {}\n"),
        ("RemoveFailedPods", "{minPodLifetimeSeconds: 0, exitCodes: [1]}", "  failed-pods:\n    minPodLifetime: 0s\n    exitCodes: [1]\n"),
        ("PodLifeTime", "{exitCodes: [1, 137], includingEphemeralContainers: true}", "  lifetime:\n    exitCodes: [1, 137]\n    includingEphemeralContainers: true\n"),
        ("PodLifeTime", "{conditions: [{type: a, status: 'True', reason: b, minTimeSinceLastTransitionSeconds: 90}]}", "  lifetime:\n    conditions:\n    - {type: a, status: 'True', reason: b, minTimeSinceLastTransition: 1m30s}\n"),
        ("PodLifeTime", "{conditions: [{minTimeSinceLastTransitionSeconds: 1}, {status: often}]}", "strategies: {}\n"),
        ("PodLifeTime", "{maxPodLifeTimeSeconds: 5, ownerKinds: {exclude: [Job]}}", "  lifetime:\n    select:\n      ownerKinds:\n        exclude: [Job]\n    maxPodLifeTime: 5s\n"),
        ("RemovePodsHavingTooManyRestarts", "{podRestartThreshold: 100}", "  restarts: {podRestartThreshold: 100}\n"),
        ("RemovePodsHavingTooManyRestarts", "{podRestartThreshold: 3, states: [Running], includingInitContainers: true}", "  restarts:\n    podRestartThreshold: 3\n    includingInitContainers: true\n    states: [Running]\n"),
        ("LowNodeUtilization", "{thresholds: {cpu: 0.0000001}, targetThresholds: {cpu: 100}}", "  low-utilisation:\n    under: {cpu: 0%}\n    over: {cpu: 100%}\n    gap: 100%\n"),
    ],
)  # fmt: skip
def test_options(plugin, name, args, ours):
    assert plugin(name, args)[0] == ours


def test_a_taint_of_cordons_counts_if_it_is_asked_for_by_name(plugin):
    ours, notes = plugin(TAINTS, "{includedTaints: [node.kubernetes.io/unschedulable]}")
    assert "include: [node.kubernetes.io/unschedulable]" in ours
    exclude = ours.partition("exclude:")[2]
    assert "not-ready" in exclude
    assert "unschedulable" not in exclude
    assert notes == []


def test_the_taint_of_an_agent_counts_if_it_is_asked_for_by_name(plugin):
    ours, _ = plugin(TAINTS, "{includedTaints: [node.cilium.io/agent-not-ready]}")
    assert "not-ready" not in ours.partition("exclude:")[2]


def test_taints_that_are_left_out_join_those_that_we_leave_out(plugin):
    ours, _ = plugin(TAINTS, "{excludedTaints: [dedicated, '=x', dedicated]}")
    exclude = ours.partition("exclude:")[2]
    assert "node.kubernetes.io/unschedulable" in exclude
    assert exclude.count("dedicated") == 1
    assert "=x" not in exclude


@pytest.mark.parametrize(
    ("name", "args", "note"),
    [
        (SPREAD, "{topologyBalanceNodeFit: false}", "topologyBalanceNodeFit: always so here: every move is made for where the replacement will land"),
        ("RemoveDuplicates", "{excludeOwnerKinds: [ReplicaSet]}", "excludeOwnerKinds: differs: kinds are those of top owners: a Deployment or Rollout beside its ReplicaSet, a CronJob beside its Job"),
        (TAINTS, "{includedTaints: [a, '=b']}", 'includedTaints: had no effect there: "=b" names no taint'),
        (AFFINITY, "{nodeAffinityType: [often]}", "nodeAffinityType: had no effect there: often is no type of node affinity"),
        ("PodLifeTime", "{states: [Evicted, Succeeded, Running]}", "states: not carried over: Evicted and Succeeded: lifetime is about pods that run; failed-pods, with phases and reasons, removes what has ended"),
        ("PodLifeTime", "{states: [Failed], includingEphemeralContainers: true}", "includingEphemeralContainers: had no effect there: only states of containers read it, and these have ended"),
        ("PodLifeTime", "{states: [OOMKilled]}", "states: differs: OOMKilled: of pods that run; failed-pods, with reasons, removes those that have ended"),
        ("LowNodeUtilization", "{thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, numberOfNodes: 3}", "numberOfNodes: not carried over: one node that is under-used is enough"),
        ("LowNodeUtilization", "{thresholds: {cpu: 1}, targetThresholds: {cpu: 2}, metricsUtilization: {metricsServer: true}}", "metricsUtilization: differs: a node gives once it was over-used in three runs in a row (runs), which needs --memory"),
    ],
)  # fmt: skip
def test_what_differs_is_reported(plugin, name, args, note):
    assert f"6: profiles[0].pluginConfig[0].args.{note}" in plugin(name, args)[1]


def test_a_label_selector_is_carried_over(plugin):
    ours, _ = plugin(TAINTS, "{labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}")
    assert ours == (
        "  taints:\n    select:\n      labels:\n        matchExpressions:\n"
        "        - {key: a, operator: Exists}\n"
    )
    assert plugin(TAINTS, "{labelSelector: {}}")[0] == "  taints: {}\n"


def test_what_never_ran_there_does_not_run_here_and_is_reported(migrate):
    ours, notes = migrate(
        "profiles:\n- pluginConfig:\n  - {name: RemoveDuplicates}\n  - {name: RemoveDuplicates}\n"
        "  - {name: RemoveFailedPods}\n  plugins:\n    balance: {enabled: [RemoveDuplicates], disabled: ['*']}\n"
        "    presort: {enabled: [x]}\n    preEvictionFilter: {enabled: [DefaultEvictor]}\n"
    )
    assert ours == "strategies:\n  duplicates: {}\n"
    assert notes[:-1] == [
        "6: profiles[0].pluginConfig[1]: had no effect there: RemoveDuplicates is configured above; the first holds",
        "7: profiles[0].pluginConfig[2]: had no effect there: RemoveFailedPods is configured, but enabled nowhere",
        "9: profiles[0].plugins.balance.disabled: had no effect there: nothing reads it",
        "10: profiles[0].plugins.presort: had no effect there: nothing reads it",
        "11: profiles[0].plugins.preEvictionFilter: had no effect there: nothing reads it",
    ]


def test_a_policy_without_profiles_does_nothing_here_either(migrate):
    assert migrate("") == (
        "strategies: {}\n",
        [" not carried over: nothing is left to do: the policy has no strategy"],
    )
