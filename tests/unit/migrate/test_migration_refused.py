"""What is no policy of the descheduler, or is broken, is refused with all its lines; nothing is guessed."""

import pytest

PLUG_IN = "profiles:\n- pluginConfig:\n  - {name: %s, args: %s}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("", "is empty"),
        ("[]", "1: [] should be a mapping of keys to values"),
        ("a: 1\na: 2\n", "2: a: stands here and in line 1; remove one of them"),
        ("kind: Job\nspec: 1\n", "1: kind: \"Job\" is no policy of the descheduler; give a DeschedulerPolicy, the ConfigMap that holds it, or the values of the descheduler's chart"),
        ("profiles: []\n", "1: kind: is missing; give a DeschedulerPolicy, the ConfigMap that holds it, or the values of the descheduler's chart"),
        ("kind: DeschedulerPolicy\n", "1: apiVersion: is missing; write descheduler/v1alpha2"),
        ("kind: DeschedulerPolicy\napiVersion: descheduler/v1\n", '2: apiVersion: "descheduler/v1" is not known; write descheduler/v1alpha2'),
        ('image: {tag: v0.36}\nschedule: "0 3 * * *"\n', "1: these values have no deschedulerPolicy, so the policy is that of the chart's own release: give the ConfigMap in the cluster"),
        ("kind: Deployment\ndeschedulerPolicy:\n", "1: these values have no deschedulerPolicy"),
        ("apiVersion: operator.openshift.io/v1\nkind: KubeDescheduler\nspec: {profiles: [AffinityAndTaints]}\n", '2: kind: "KubeDescheduler" is no policy of the descheduler; the operator of OpenShift makes the policy of its profiles: give the ConfigMap with policy.yaml that it writes into the same namespace'),
        ("kind: HelmRelease\nspec: {values: {schedule: a}}\n", '1: kind: "HelmRelease" is no policy of the descheduler; these values have no deschedulerPolicy'),
        ("kind: Application\nspec: {source: {chart: descheduler}}\n", '1: kind: "Application" is no policy of the descheduler; these values have no deschedulerPolicy'),
        ("apiVersion: rebalancer/v1\nkind: Policy\n", "1: apiVersion: this is a policy of the rebalancer already"),
        ("kind: ConfigMap\ndata: {a: b, c: d}\n", "2: data: this ConfigMap has no policy.yaml; give the one with the descheduler's policy"),
        ("kind: ConfigMap\n", "1: data: this ConfigMap has no policy.yaml; give the one with the descheduler's policy"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_policy_of_the_descheduler(refused, text, message):
    (refusal,) = refused(text, head="")
    assert message in refusal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profile: []\n", "3: profile: unknown key; did you mean profiles?"),
        ("profiles:\n- plugin: {}\n", "4: profiles[0].plugin: unknown key; did you mean plugins?"),
        ("profiles:\n- plugins: {balnce: {}}\n", "4: profiles[0].plugins.balnce: unknown key; did you mean balance?"),
        ("maxNoOfPodsToEvictTotal: -1\n", "3: maxNoOfPodsToEvictTotal: -1 should be at least 0"),
        (PLUG_IN % ("RemoveDuplicate", "{}"), "5: profiles[0].pluginConfig[0].name: unknown plug-in RemoveDuplicate; did you mean RemoveDuplicates?"),
        (PLUG_IN % ("RemoveDuplicates", "{labelSelector: {}}"), "5: profiles[0].pluginConfig[0].args.labelSelector: unknown key; known here: apiVersion, excludeOwnerKinds, kind, namespaces"),
        (PLUG_IN % ("DefaultEvictor", "{nodefit: true}"), "5: profiles[0].pluginConfig[0].args.nodefit: unknown key; did you mean nodeFit?"),
        (PLUG_IN % ("DefaultEvictor", "{minPodAge: 1d}"), '5: profiles[0].pluginConfig[0].args: "1d" is no duration; write for example 90s, 5m or 1h30m'),
        (PLUG_IN % ("DefaultEvictor", "{priorityThreshold: {value: 1, name: a}}"), "5: profiles[0].pluginConfig[0].args.priorityThreshold: only one of value and name can be set"),
        (PLUG_IN % ("DefaultEvictor", "{ignorePvcPods: true, podProtections: {extraEnabled: [PodsWithPVC]}}"), "5: profiles[0].pluginConfig[0].args: the deprecated switches cannot stand beside extraEnabled or defaultDisabled"),
        (PLUG_IN % ("RemoveDuplicates", "{namespaces: {include: [a], exclude: [b]}}"), "5: profiles[0].pluginConfig[0].args.namespaces: only one of include and exclude can be set"),
        (PLUG_IN % ("RemovePodsViolatingNodeTaints", "{includedTaints: [a], excludedTaints: [b]}"), "5: profiles[0].pluginConfig[0].args: only one of includedTaints and excludedTaints can be set"),
        (PLUG_IN % ("LowNodeUtilization", "{thresholds: {cpu: 60}, targetThresholds: {cpu: 50}}"), "5: profiles[0].pluginConfig[0].args: thresholds.cpu is above targetThresholds.cpu"),
        (PLUG_IN % ("LowNodeUtilization", "{thresholds: {cpu: 60}, targetThresholds: {memory: 50}}"), "5: profiles[0].pluginConfig[0].args: thresholds and targetThresholds must name the same resources"),
        (PLUG_IN % ("LowNodeUtilization", "{thresholds: {cpu: 160}, targetThresholds: {cpu: 50}}"), "5: profiles[0].pluginConfig[0].args.thresholds.cpu: 160 should be at most 100"),
        (PLUG_IN % ("HighNodeUtilization", "{thresholds: {cpu: 1}, evictableNamespaces: {include: [a]}}"), "5: profiles[0].pluginConfig[0].args.evictableNamespaces: only exclude can be set here"),
        (PLUG_IN % ("RemovePodsHavingTooManyRestarts", "{}"), "5: profiles[0].pluginConfig[0].args.podRestartThreshold: is missing; add it"),
        ("profiles:\n- plugins:\n    balance: {enabled: [LowNodeUtilization]}\n", "5: profiles[0].plugins.balance.enabled[0]: LowNodeUtilization is enabled, but not configured; add it to pluginConfig"),
        (PLUG_IN % ("LowNodeUtilization", "{thresholds: {}, targetThresholds: {}}"), "5: profiles[0].pluginConfig[0].args.thresholds: names nothing; write at least one"),
        (PLUG_IN % ("RemovePodsViolatingNodeAffinity", "{nodeAffinityType: []}"), "5: profiles[0].pluginConfig[0].args.nodeAffinityType: names nothing; write at least one"),
        ("profiles:\n- plugins:\n    balance: {enabled: [PodLifeTime]}\n", "5: profiles[0].plugins.balance.enabled[0]: PodLifeTime is no plug-in for balance; it belongs to deschedule"),
        ("profiles:\n- plugins:\n    balance: {enabled: [RemoveDuplikates]}\n", "5: profiles[0].plugins.balance.enabled[0]: RemoveDuplikates is no plug-in for balance; did you mean RemoveDuplicates?"),
    ],
)  # fmt: skip
def test_what_the_descheduler_refuses_or_does_not_know(refused, text, message):
    assert message in refused(text)


def test_everything_that_is_wrong_is_reported_at_once_in_the_order_of_the_file(refused):
    text = "profiles:\n- nme: a\n  pluginConfig:\n  - name: Nope\nnodeSelectr: a\n"
    assert [problem.partition(":")[0] for problem in refused(text)] == ["4", "7"]
