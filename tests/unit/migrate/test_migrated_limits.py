"""DefaultEvictor, the keys at the top and namespaces: what protects and limits there, and here."""

import pytest

DUPLICATES = "strategies:\n  duplicates: {}\n"
ARGS = "profiles[0].pluginConfig[0].args"
OBSERVES = "; what it limited only observes"


@pytest.mark.parametrize(
    ("evictor", "ours"),
    [
        ("{}", ""),
        ("{evictLocalStoragePods: true}", "protect: {localStorage: false}\n"),
        ("{evictLocalStoragePods: false}", ""),
        ("{evictSystemCriticalPods: true}", "protect: {systemCritical: false}\n"),
        ("{ignorePvcPods: true}", ""),
        ("{ignorePvcPods: false}", "protect: {volumes: false}\n"),
        ("{minReplicas: 2}", ""),
        ("{minReplicas: 1}", "protect: {singleReplicas: false}\n"),
        ("{minPodAge: 5m0s}", ""),
        ("{minPodAge: 1.5h}", "protect: {minPodAge: 1h30m}\n"),
        ("{minPodAge: -5m}", "protect: {minPodAge: 0s}\n"),
        ("{podProtections: {defaultDisabled: [SystemCriticalPods]}}", "protect: {systemCritical: false}\n"),
        ("{podProtections: {extraEnabled: [PodsWithPVC]}}", ""),
        ("{podProtections: {defaultDisabled: , extraEnabled: , config: {}}, nodeFit: true}", ""),
    ],
)  # fmt: skip
def test_a_protection_that_both_know_is_carried_over(profile, evictor, ours):
    assert profile(evictor)[0] == ours + DUPLICATES


@pytest.mark.parametrize(
    ("evictor", "key", "note"),
    [
        ("{labelSelector: {matchLabels: {a: b}}}", "labelSelector", "a policy has no selector; run -l has"),
        ("{namespaceLabelSelector: {matchLabels: {a: b}}}", "namespaceLabelSelector", "protect.namespaces takes names only"),
        ("{minReplicas: 3}", "minReplicas", "protect.singleReplicas is the only limit by replicas"),
        ("{priorityThreshold: {value: 10000}}", "priorityThreshold", "only system-critical priority protects here"),
        ("{priorityThreshold: {name: high}}", "priorityThreshold", "only system-critical priority protects here"),
        ("{ignorePodsWithoutPDB: true}", "ignorePodsWithoutPDB", "pods without a PodDisruptionBudget are moved here, few of an owner at once"),
        ("{nodeFit: true, nodeSelector: a=b}", "nodeSelector", "landings are predicted among all nodes"),
    ],
)  # fmt: skip
def test_a_protection_that_we_lack_makes_what_it_protected_observe_only(
    profile, evictor, key, note
):
    ours, notes = profile(evictor)
    assert ours == f"mode: observe\n{DUPLICATES}"
    assert f"6: {ARGS}.{key}: not carried over: {note}{OBSERVES}" in notes


@pytest.mark.parametrize(
    ("evictor", "key", "note"),
    [
        ("{nodeFit: true}", "nodeFit", "always so here: nodeFit: every move is made for where the replacement will land"),
        ("{noEvictionPolicy: Mandatory}", "noEvictionPolicy", "always so here: pods annotated prefer-no-eviction are not moved"),
        ("{noEvictionPolicy: Preferred}", "noEvictionPolicy", "differs: pods annotated prefer-no-eviction are never moved, not only last"),
        ("{evictDaemonSetPods: true}", "evictDaemonSetPods", "not carried over: DaemonSetPods: pods of DaemonSets are never moved"),
        ("{evictFailedBarePods: true}", "evictFailedBarePods", "not carried over: FailedBarePods: pods without a controller are never moved"),
        ("{podProtections: {extraEnabled: [PodsWithResourceClaims]}}", "podProtections.extraEnabled", "always so here: PodsWithResourceClaims: where they would land is not predicted, so they stay"),
        ("{minPodAge: 5m}", "minPodAge", "differs: counted from when a pod was Ready"),
        ("{nodeSelector: a=b}", "nodeSelector", "had no effect there: only nodeFit reads it"),
    ],
)  # fmt: skip
def test_what_we_do_in_any_case_is_told_and_still_enforced(profile, evictor, key, note):
    ours, notes = profile(evictor)
    assert ours == DUPLICATES
    assert f"6: {ARGS}.{key}: {note}" in notes


def test_some_storage_classes_alone_cannot_be_protected(profile):
    ours, notes = profile(
        "{podProtections: {extraEnabled: [PodsWithPVC],"
        " config: {PodsWithPVC: {protectedStorageClasses: [{name: fast}]}}}}"
    )
    assert ours == DUPLICATES
    assert any("pods with volumes of any storage class are protected, or none" in n for n in notes)


def test_a_priority_threshold_at_the_system_critical_one_is_ours(profile):
    assert profile("{priorityThreshold: {value: 2000000000}}")[0] == DUPLICATES
    assert profile("{priorityThreshold: {name: system-cluster-critical}}")[0] == DUPLICATES


def test_a_priority_threshold_is_not_read_where_system_critical_pods_may_go(profile):
    ours, notes = profile("{evictSystemCriticalPods: true, priorityThreshold: {value: 10}}")
    assert ours == "protect: {systemCritical: false}\n" + DUPLICATES
    text = "had no effect there: not read where SystemCriticalPods is lifted"
    assert f"6: {ARGS}.priorityThreshold: {text}" in notes


# -- the top of the file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("top", "ours", "note"),
    [
        ("nodeSelector: a=b", "mode: observe\n", f"not carried over: a policy is for all nodes{OBSERVES}"),
        ("maxNoOfPodsToEvictTotal: 7", "budgets: {perRun: 7}\n", None),
        ("maxNoOfPodsToEvictTotal: 0", "budgets: {perRun: 0}\n", None),
        ("maxNoOfPodsToEvictPerNode: 2", "budgets: {perNode: 2}\n", "differs: perNode is of pods in flight, not of a run; at most 2"),
        ("maxNoOfPodsToEvictPerNode: 5000", "", "differs: perNode is of pods in flight, not of a run; at most 5"),
        ("maxNoOfPodsToEvictPerNamespace: 9", "", "not carried over: there is no budget per namespace; perOwner, perRun and inFlight hold"),
        ("maxNoOfPodsToEvictPerNamespace: 0", "budgets: {perRun: 0}\n", "not carried over: there is no budget per namespace; perOwner, perRun and inFlight hold"),
        ("gracePeriodSeconds: 5", "", "not carried over: pods keep their own grace period"),
        ("evictionFailureEventNotification: true", "", "not carried over: the report names what was refused, and why"),
        ("tracing: {sampleRate: 1.0}", "", "had no effect there: nothing reads it"),
        ("metricsCollector: {enabled: true}", "", "always so here: metrics.k8s.io is read where the signal of low-utilisation asks for it"),
    ],
)  # fmt: skip
def test_keys_at_the_top(profile, top, ours, note):
    text, notes = profile("{}", f"{top}\n")
    assert text == ours + DUPLICATES
    told = [text for text in notes if text.startswith("9: ")]
    assert told == ([] if note is None else [f"9: {top.partition(':')[0]}: {note}"])


# -- namespaces ----------------------------------------------------------------------------------------


@pytest.fixture
def two(migrate):
    """Namespaces of RemoveDuplicates and of RemovePodsViolatingInterPodAntiAffinity in, as ``migrate`` out."""

    def outcome(duplicates, anti_affinity):
        return migrate(
            "profiles:\n- pluginConfig:\n"
            f"  - {{name: RemoveDuplicates, args: {{namespaces: {duplicates}}}}}\n"
            "  - name: RemovePodsViolatingInterPodAntiAffinity\n"
            f"    args: {{namespaces: {anti_affinity}}}\n"
            "  plugins:\n    balance: {enabled: [RemoveDuplicates]}\n"
            "    deschedule: {enabled: [RemovePodsViolatingInterPodAntiAffinity]}\n"
        )

    return outcome


BOTH = "  anti-affinity: {preferred: false}\n  duplicates: {}\n"


@pytest.mark.parametrize(
    ("duplicates", "anti_affinity", "namespaces", "strategies"),
    [
        ("{include: [b, a]}", "{include: [a, b]}", "include: [a, b]", BOTH),
        ("{exclude: [x]}", "{exclude: [x]}", "exclude: [x]", BOTH),
        ("{exclude: [x]}", "{exclude: [y]}", "exclude: [x, y]", BOTH),
        ("{exclude: [x]}", "{}", "exclude: [x]", BOTH),
        ("{include: [a]}", "{include: [a, b]}", "include: [a, b]", "  anti-affinity: {preferred: false}\n  duplicates: {mode: observe}\n"),
        ("{include: [a]}", "{exclude: [x]}", "exclude: [x]", "  anti-affinity: {preferred: false}\n  duplicates: {mode: observe}\n"),
    ],
)  # fmt: skip
def test_no_strategy_reaches_beyond_its_own_namespaces(
    two, duplicates, anti_affinity, namespaces, strategies
):
    ours, _ = two(duplicates, anti_affinity)
    assert ours == f"protect:\n  namespaces:\n    {namespaces}\nstrategies:\n{strategies}"


@pytest.mark.parametrize(
    ("selector", "ours"),
    [
        ("{matchLabels: {kubernetes.io/metadata.name: a}}", "include: [a]"),
        ("{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [b, a]}]}", "include: [a, b]"),
        ("{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}]}", "exclude: [x]"),
    ],
)  # fmt: skip
def test_a_selector_of_namespaces_by_name_is_carried_over(profile, selector, ours):
    text, notes = profile(f"{{namespaceLabelSelector: {selector}}}")
    assert text == f"protect:\n  namespaces:\n    {ours}\n{DUPLICATES}"
    assert len(notes) == 1


@pytest.mark.parametrize(
    "selector",
    [
        "{matchLabels: {kubernetes.io/metadata.name: a, b: c}}",
        "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}",
        "{matchLabels: {b: c}, matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [a]}]}",
    ],
)
def test_a_selector_of_namespaces_by_anything_else_is_not(profile, selector):
    assert profile(f"{{namespaceLabelSelector: {selector}}}")[0] == f"mode: observe\n{DUPLICATES}"


def test_no_namespace_at_all_is_not_taken_for_all(migrate):
    ours, _ = migrate(
        "profiles:\n- pluginConfig:\n  - name: DefaultEvictor\n"
        "    args: {namespaceLabelSelector: {matchLabels: {kubernetes.io/metadata.name: a}}}\n"
        "  - {name: RemoveDuplicates, args: {namespaces: {exclude: [a]}}}\n"
        "  plugins: {balance: {enabled: [RemoveDuplicates]}}\n"
    )
    assert ours == f"mode: observe\n{DUPLICATES}"


def test_disjoint_namespaces_make_both_observe(two):
    ours, notes = two("{include: [a]}", "{include: [b]}")
    assert (
        ours == f"mode: observe\nprotect:\n  namespaces:\n    include: [a, b]\nstrategies:\n{BOTH}"
    )
    text = "namespaces hold for all strategies, and others have more of them; what it limited"
    assert sum(text in note for note in notes) == 2


def test_a_name_like_a_number_stays_text(two):
    ours, _ = two("{exclude: ['089', 1e3x, '1e3']}", "{}")
    assert "- '089'\n    - '1e3'\n    - 1e3x\n" in ours


# -- several profiles ----------------------------------------------------------------------------------


@pytest.fixture
def profiles(migrate):
    """(plug-in, its arguments, DefaultEvictor's) of each profile in, as ``migrate`` out; 7 lines each from line 4."""

    def outcome(*given):
        text = "profiles:\n"
        for name, args, evictor in given:
            text += (
                f"- name: {name}\n  pluginConfig:\n  - name: DefaultEvictor\n    args: {evictor}\n"
                f"  - {{name: {name}, args: {args}}}\n"
                f"  plugins: {{deschedule: {{enabled: [{name}]}}}}\n\n"
            )
        return migrate(text)

    return outcome


SELF = "RemovePodsViolatingInterPodAntiAffinity"
TAINTS = "RemovePodsViolatingNodeTaints"


def test_what_one_profile_protects_is_protected(profiles):
    ours, notes = profiles(
        (SELF, "{}", "{evictLocalStoragePods: true, ignorePvcPods: false, minPodAge: 1h}"),
        (TAINTS, "{}", "{ignorePvcPods: true, minPodAge: 2h}"),
    )
    assert ours == (
        "protect: {minPodAge: 2h}\nstrategies:\n  anti-affinity: {preferred: false}\n  taints: {}\n"
    )
    lost = "not carried over: PodsWithLocalStorage: another profile protects them"
    assert f"7: {ARGS}.evictLocalStoragePods: {lost}" in notes


def test_a_limit_of_one_profile_holds_back_its_strategies_alone(profiles):
    ours, _ = profiles((SELF, "{}", "{minReplicas: 5}"), (TAINTS, "{}", "{}"))
    assert ours == (
        "strategies:\n  anti-affinity: {mode: observe, preferred: false}\n  taints: {}\n"
    )


def test_a_plug_in_of_two_profiles_is_one_strategy_if_its_options_agree(profiles):
    ours, _ = profiles(
        (SELF, "{namespaces: {include: [a]}}", "{}"), (SELF, "{namespaces: {include: [b]}}", "{}")
    )
    assert ours == (
        "protect:\n  namespaces:\n    include: [a, b]\n"
        "strategies:\n  anti-affinity: {preferred: false}\n"
    )


def test_with_other_options_the_first_profile_holds(profiles):
    ours, notes = profiles(
        (TAINTS, "{}", "{}"), (TAINTS, "{includePreferNoSchedule: true}", "{minReplicas: 9}")
    )
    assert ours == "strategies:\n  taints: {}\n"
    text = "runs in another profile with other options, which hold"
    assert f"15: profiles[1].pluginConfig[1].args: not carried over: {TAINTS}: {text}" in notes
