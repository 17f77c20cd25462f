"""DefaultEvictor, the keys at the top and namespaces: what protects and limits there, and here."""

import pytest
import yaml

from rebalancer.migrate.merge import convert_policy
from rebalancer.migrate.plugins import STRATEGIES
from rebalancer.registry import Registry

DUPLICATES = "strategies:\n  duplicates: {}\n"
ARGS = "profiles[0].pluginConfig[0].args"
OBSERVES = "; what it limited gets mode: observe, and moves nothing until you change that"


@pytest.mark.parametrize(
    ("evictor", "ours"),
    [
        ("{}", ""),
        ("{evictLocalStoragePods: true}", "protect: {localStorage: false}\n"),
        ("{evictLocalStoragePods: false}", "protect: {localStorage: true}\n"),
        ("{evictSystemCriticalPods: true}", "protect: {systemCritical: false}\n"),
        ("{ignorePvcPods: true}", "protect: {volumes: true}\n"),
        ("{ignorePvcPods: false}", "protect: {volumes: false}\n"),
        ("{minReplicas: 2}", "protect: {singleReplicas: true}\n"),
        ("{minReplicas: 1}", "protect: {singleReplicas: false}\n"),
        ("{minPodAge: 5m0s}", "protect: {minPodAge: 5m}\n"),
        ("{minPodAge: 1.5h}", "protect: {minPodAge: 1h30m}\n"),
        ("{minPodAge: -5m}", "protect: {minPodAge: 0s}\n"),
        ("{podProtections: {defaultDisabled: [SystemCriticalPods]}}", "protect: {systemCritical: false}\n"),
        ("{podProtections: {extraEnabled: [PodsWithPVC]}}", "protect: {volumes: true}\n"),
        ("{podProtections: {defaultDisabled: , extraEnabled: , config: {}}, nodeFit: true}", ""),
    ],
)  # fmt: skip
def test_a_protection_that_both_know_is_carried_over(profile, evictor, ours):
    assert profile(evictor)[0] == ours + DUPLICATES


@pytest.mark.parametrize(
    ("evictor", "select"),
    [
        ("{labelSelector: {matchLabels: {a: b}}}", "labels: {a: b}"),
        ("{labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}", "labels:\n    matchExpressions:\n    - {key: a, operator: Exists}"),
        ("{namespaceLabelSelector: {matchLabels: {a: b}}}", "namespaces:\n    labels: {a: b}"),
        ("{minReplicas: 3}", "{minReplicas: 3}"),
        ("{priorityThreshold: {value: 10000}}", "priority: {below: 10000}"),
        ("{priorityThreshold: {name: high}}", "priority: {below: high}"),
        ("{ignorePodsWithoutPDB: true}", "{podDisruptionBudget: true}"),
    ],
)  # fmt: skip
def test_a_limit_to_some_pods_becomes_a_select_and_is_enforced(profile, evictor, select):
    indented = select.replace("\n", "\n    ")
    written = f" {select}\n" if select.startswith("{") else f"\n      {indented}\n"
    ours = profile(evictor)[0].removeprefix("protect: {singleReplicas: true}\n")
    assert ours == f"strategies:\n  duplicates:\n    select:{written}"


@pytest.mark.parametrize(
    ("selector", "negated"),
    [
        ("a=b", "{key: a, operator: NotIn, values: [b]}"),
        ("a in (b, c)", "{key: a, operator: NotIn, values: [b, c]}"),
        ("a!=b", "{key: a, operator: In, values: [b]}"),
        ("a", "{key: a, operator: DoesNotExist}"),
        ("!a", "{key: a, operator: Exists}"),
    ],
)
def test_nodes_that_must_have_a_place_are_the_only_landings(profile, selector, negated):
    ours, notes = profile(f"{{nodeFit: true, nodeSelector: '{selector}'}}")
    assert yaml.safe_load(ours) == {
        "landings": {"exclude": {"matchExpressions": [yaml.safe_load(negated)]}},
        "strategies": {"duplicates": {}},
    }
    note = (
        "differs: a pod moves only if its replacement will land on such a node (landings.exclude)"
    )
    assert f"6: {ARGS}.nodeSelector: {note}" in notes


def test_a_limit_that_we_lack_makes_what_it_limited_observe_only(profile):
    ours, notes = profile("{nodeFit: true, nodeSelector: 'a=b,c=d'}")
    assert ours == f"mode: observe\n{DUPLICATES}"
    note = "not carried over: one policy avoids landings by one requirement, for all profiles"
    assert f"6: {ARGS}.nodeSelector: {note}{OBSERVES}" in notes


@pytest.mark.parametrize(
    ("second", "modes", "avoids"),
    [
        ("{nodeFit: true, nodeSelector: a=b}", [None, None], True),
        ("{nodeFit: true, nodeSelector: a=c}", ["observe", "observe"], False),
        ("{nodeFit: true}", ["observe", None], False),
        ("{nodeSelector: a=b}", ["observe", None], False),
    ],
)
def test_nodes_that_must_have_a_place_are_of_one_profile_alone_if_others_differ(
    profiles, second, modes, avoids
):
    ours, _ = profiles((SELF, "{}", "{nodeFit: true, nodeSelector: a=b}"), (TAINTS, "{}", second))
    data = yaml.safe_load(ours)
    of_all = data.get("mode")
    assert [one.get("mode", of_all) for one in data["strategies"].values()] == modes
    assert ("landings" in data) == avoids


@pytest.mark.parametrize(
    ("namespaces", "mode", "note"),
    [
        ("{exclude: [kube-*, a]}", None, "exclude: differs: kube-* is no namespace there, and leaves out none; here it leaves out all that it matches"),
        ("{include: [team-*, a]}", "observe", f"include: not carried over: team-* chose no namespace there, for patterns are not read, and does here{OBSERVES}"),
        ("{include: [team-1, '089']}", None, None),
    ],
)  # fmt: skip
def test_a_pattern_of_namespaces_is_carried_over_and_never_moves_more(
    migrate, namespaces, mode, note
):
    ours, notes = migrate(
        f"profiles:\n- pluginConfig:\n  - name: RemoveDuplicates\n    args: {{namespaces: {namespaces}}}\n"
        "  plugins: {balance: {enabled: [RemoveDuplicates]}}\n"
    )
    data = yaml.safe_load(ours)
    given = yaml.safe_load(namespaces)
    select = data["strategies"]["duplicates"]["select"]["namespaces"]
    assert select in (given, given.get("include"))
    assert data.get("mode") == mode
    about = [one for one in notes if "namespaces" in one and one.startswith("6")]
    assert about == ([f"6: {ARGS}.namespaces.{note}"] if note else [])


def test_the_note_on_protections_says_what_the_annotation_to_evict_means(profile):
    said = 'evict lifts none of these here, and "false" keeps a pod: there any value, also "false", lifts all'
    assert sum(said in note for note in profile("{}")[1]) == 1


def test_the_selectors_of_plug_in_and_evictor_must_both_match(migrate):
    ours, _ = migrate(
        "profiles:\n- pluginConfig:\n  - name: DefaultEvictor\n"
        "    args: {labelSelector: {matchLabels: {a: b, c: d}}}\n"
        "  - name: RemovePodsViolatingNodeTaints\n"
        "    args: {labelSelector: {matchLabels: {a: x}, matchExpressions: [{key: e, operator: Exists}]}}\n"
        "  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}\n"
    )
    assert ours == (
        "strategies:\n  taints:\n    select:\n      labels:\n        matchLabels: {a: x, c: d}\n"
        "        matchExpressions:\n        - {key: e, operator: Exists}\n"
        "        - key: a\n          operator: In\n          values: [b]\n"
    )


@pytest.mark.parametrize(
    ("evictor", "key", "note"),
    [
        ("{nodeFit: true}", "nodeFit", "always so here: every move is made for where the replacement will land"),
        ("{noEvictionPolicy: Mandatory}", "noEvictionPolicy", "always so here: pods annotated prefer-no-eviction are not moved"),
        ("{noEvictionPolicy: Preferred}", "noEvictionPolicy", "differs: pods annotated prefer-no-eviction are never moved, not only last"),
        ("{evictDaemonSetPods: true}", "evictDaemonSetPods", "not carried over: DaemonSetPods: pods of DaemonSets are never moved"),
        ("{evictFailedBarePods: true}", "evictFailedBarePods", "not carried over: FailedBarePods: pods without a controller are never moved"),
        ("{podProtections: {extraEnabled: [PodsWithResourceClaims]}}", "podProtections.extraEnabled", "always so here: PodsWithResourceClaims: where they would land is not predicted, so they stay"),
        ("{minPodAge: 5m}", "minPodAge", "differs: counted from when a pod was Ready"),
        ("{nodeSelector: a=b}", "nodeSelector", "had no effect there: only nodeFit reads it"),
    ],
)  # fmt: skip
def test_what_we_do_in_any_case_is_reported_and_still_enforced(profile, evictor, key, note):
    ours, notes = profile(evictor)
    assert ours.removeprefix("protect: {minPodAge: 5m}\n") == DUPLICATES
    assert f"6: {ARGS}.{key}: {note}" in notes


def test_some_storage_classes_alone_are_protected(profile):
    ours, _ = profile(
        "{podProtections: {extraEnabled: [PodsWithPVC],"
        " config: {PodsWithPVC: {protectedStorageClasses: [{name: fast}]}}}}"
    )
    assert ours == (
        "protect:\n  volumes:\n    except:\n      storageClasses:\n        exclude: [fast]\n"
        + DUPLICATES
    )


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
        ("maxNoOfPodsToEvictTotal: 7", "budgets: {perRun: 7}\n", None),
        ("maxNoOfPodsToEvictTotal: 0", "budgets: {perRun: 0}\n", None),
        ("maxNoOfPodsToEvictPerNode: 2", "budgets: {perNodeInRun: 2}\n", None),
        ("maxNoOfPodsToEvictPerNode: 5000", "budgets: {perNodeInRun: 5000}\n", None),
        ("maxNoOfPodsToEvictPerNamespace: 9", "budgets: {perNamespace: 9}\n", None),
        ("maxNoOfPodsToEvictPerNamespace: 0", "budgets: {perNamespace: 0}\n", None),
        ("gracePeriodSeconds: 5", "method: {gracePeriod: 5s}\n", None),
        ("gracePeriodSeconds: 90", "method: {gracePeriod: 1m30s}\n", None),
        ("gracePeriodSeconds: 0", "method: {gracePeriod: 1s}\n", "differs: with 0 a pod is gone before its processes end, and below 0 it is 1 there as well: 1s"),
        ("gracePeriodSeconds: 99999999", "method: {gracePeriod: 8784h}\n", None),
        ("evictionFailureEventNotification: true", "", "not carried over: the report names what was refused, and why"),
        ("tracing: {sampleRate: 1.0}", "", "had no effect there: nothing reads it"),
        ("metricsCollector: {enabled: true}", "", "always so here: metrics.k8s.io is read where the signal of low-utilisation asks for it"),
    ],
)  # fmt: skip
def test_keys_at_the_top(profile, top, ours, note):
    text, notes = profile("{}", f"{top}\n")
    assert text == ours + DUPLICATES
    notes_there = [text for text in notes if text.startswith("9: ")]
    assert notes_there == ([] if note is None else [f"9: {top.partition(':')[0]}: {note}"])


@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        ("a=b", " {a: b}\n"),
        ("'a in (b,c)'", "\n        matchExpressions:\n        - key: a\n          operator: In\n          values: [b, c]\n"),
    ],
)  # fmt: skip
def test_a_selector_of_nodes_says_which_nodes_pods_leave(profile, selector, nodes):
    text, notes = profile("{}", f"nodeSelector: {selector}\n")
    assert text == f"strategies:\n  duplicates:\n    select:\n      nodes:{nodes}"
    told = "differs: pods leave these nodes only; all nodes count, and may take them"
    assert f"9: nodeSelector: {told}" in notes


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


def test_namespaces_stand_with_each_strategy(two):
    # At the top they would only say which pods may move, and what is wrong in other namespaces would count.
    ours, _ = two("{include: [a]}", "{exclude: [x]}")
    assert ours == (
        "strategies:\n"
        "  anti-affinity:\n    select:\n      namespaces:\n        exclude: [x]\n    preferred: false\n"
        "  duplicates:\n    select:\n      namespaces: [a]\n"
    )


def test_a_selector_of_nodes_that_the_descheduler_refuses_is_refused(refused):
    text = "nodeSelector: 'a ! b'\nprofiles:\n- pluginConfig: [{name: RemoveDuplicates}]\n"
    text += "  plugins: {balance: {enabled: [RemoveDuplicates]}}\n"
    assert refused(text) == ["3: nodeSelector: 'a ! b' is no label selector"]


def test_a_name_like_a_number_stays_text(two):
    ours, _ = two("{exclude: ['089', 1e3x, '1e3']}", "{}")
    assert "- '089'\n        - 1e3x\n        - '1e3'\n" in ours


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
        "protect: {volumes: true, minPodAge: 2h}\nstrategies:\n  anti-affinity: {preferred: false}\n  taints: {}\n"
    )
    lost = "not carried over: PodsWithLocalStorage: another profile protects them"
    assert f"7: {ARGS}.evictLocalStoragePods: {lost}" in notes


def test_a_limit_of_one_profile_is_of_its_strategies_alone(profiles):
    ours, _ = profiles((SELF, "{}", "{minReplicas: 5}"), (TAINTS, "{}", "{}"))
    assert ours == (
        "protect: {singleReplicas: true}\n"
        "strategies:\n  anti-affinity:\n    select: {minReplicas: 5}\n    preferred: false\n  taints: {}\n"
    )


def test_a_plug_in_of_two_profiles_is_one_strategy_if_options_and_pods_agree(profiles):
    given = (SELF, "{namespaces: {include: [a]}}", "{}")
    ours, _ = profiles(given, given)
    assert ours == (
        "strategies:\n  anti-affinity:\n    select:\n      namespaces: [a]\n    preferred: false\n"
    )


def test_with_other_options_or_pods_it_stands_twice(profiles):
    ours, _ = profiles(
        (TAINTS, "{}", "{}"), (TAINTS, "{includePreferNoSchedule: true}", "{minReplicas: 9}")
    )
    assert ours == (
        "protect: {singleReplicas: true}\nstrategies:\n  taints: {}\n  taints-2:\n    strategy: taints\n"
        "    select: {minReplicas: 9}\n    preferNoSchedule: true\n"
    )


@pytest.mark.parametrize("replicas", [2, 7])
def test_what_one_profile_protects_is_said_to_protect_pods_of_the_others(profiles, replicas):
    evictor = f"{{minPodAge: 24h, minReplicas: {replicas}, ignorePvcPods: true}}"
    _, notes = profiles((SELF, "{}", evictor), (TAINTS, "{}", "{}"))
    said = [note.partition("args.")[2] for note in notes if "of the other profiles" in note]
    assert said == [
        "minPodAge: differs: younger pods of the other profiles stay, too",
        "minReplicas: differs: single replicas of the other profiles stay, too",
        "ignorePvcPods: differs: pods with volumes of the other profiles stay, too",
    ]
    _, alike = profiles((SELF, "{}", "{minPodAge: 1h}"), (TAINTS, "{}", "{minPodAge: 1h}"))
    assert not any("of the other profiles" in note for note in alike)


def test_pods_that_the_descheduler_evicts_last_are_said_to_stay(profiles):
    words = "pods annotated prefer-no-eviction are never moved, which it evicts last"
    _, notes = profiles((TAINTS, "{}", "{}"))
    assert sum(words in note for note in notes) == 1
    _, given = profiles((TAINTS, "{}", "{noEvictionPolicy: Mandatory}"))
    assert not any(words in note for note in given)


@pytest.mark.parametrize(
    ("top", "limits"),
    [
        ("", "inFlight 2%, perNode 5, perOwner 10%, perRun 10%, perHour 30%"),
        ("maxNoOfPodsToEvictTotal: 4\n", "inFlight 2%, perNode 5, perOwner 10%, perHour 30%"),
    ],
)
def test_budgets_that_the_file_leaves_open_are_named(top, limits):
    profiles = "profiles: [{pluginConfig: [{name: RemoveDuplicates}], plugins: {balance: {enabled: [RemoveDuplicates]}}}]\n"
    text = f"apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n{profiles}{top}"
    notes = convert_policy(text.encode(), "p.yaml", Registry.installed()).notes
    said = f"p.yaml: differs: limited by default here, though not there: {limits}; budgets of the policy changes that"
    assert said in map(str, notes)


@pytest.mark.parametrize(
    ("plugin", "options"),
    [
        ("RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 100}", {"podRestartThreshold": 100}),
        ("RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 9, includingInitContainers: false}", {"podRestartThreshold": 9, "includingInitContainers": False}),
        ("LowNodeUtilization, args: {thresholds: {cpu: 20, memory: 20, pods: 20}, targetThresholds: {cpu: 50, memory: 50, pods: 50}, useDeviationThresholds: false}", {"under": {"cpu": "20%", "memory": "20%", "pods": "20%"}, "over": {"cpu": "50%", "memory": "50%", "pods": "50%"}, "gap": "100%", "deviation": False}),
        ("PodLifeTime, args: {states: [Failed], maxPodLifeTimeSeconds: 3600}", {"phases": ["Failed"], "minPodLifetime": "1h"}),
        ("RemovePodsViolatingNodeTaints, args: {includePreferNoSchedule: false}", {"preferNoSchedule": False}),
        ("RemoveDuplicates, args: {excludeOwnerKinds: []}", {}),
    ],
)  # fmt: skip
def test_values_of_the_file_are_written_even_if_they_are_our_defaults(migrate, plugin, options):
    name = plugin.partition(",")[0]
    text = f"profiles:\n- pluginConfig: [{{name: {plugin}}}]\n  plugins: {{{STRATEGIES[name][0]}: {{enabled: [{name}]}}}}\n"
    (written,) = yaml.safe_load(migrate(text)[0])["strategies"].values()
    assert written == options


def test_a_plug_in_is_one_strategy_if_one_profile_states_what_is_the_default_of_the_other(profiles):
    ours, _ = profiles((TAINTS, "{}", "{}"), (TAINTS, "{includePreferNoSchedule: false}", "{}"))
    assert ours == "strategies:\n  taints: {preferNoSchedule: false}\n"


def test_a_threshold_by_a_name_says_when_it_moves_nothing(profile):
    _, notes = profile("{priorityThreshold: {name: gold}}")
    assert any("while neither is there, nothing that it limits moves" in note for note in notes)
    _, notes = profile("{priorityThreshold: {name: system-node-critical}}")
    assert not any("PriorityClass" in note for note in notes)


FOREIGN = (
    "profiles:\n- pluginConfig:\n  - {{name: RemoveDuplicates}}\n  - {{name: LoadAware, args: {{a: 1}}}}\n"
    "  plugins:\n    balance: {{enabled: [RemoveDuplicates{balance}]}}\n    filter: {{enabled: [DefaultEvictor{filter}]}}\n"
)


@pytest.mark.parametrize(
    ("balance", "filters", "ours", "said"),
    [
        ("", "", "strategies:\n  duplicates: {}\n", "6: profiles[0].pluginConfig[1]: had no effect there: LoadAware is configured, but enabled nowhere"),
        (", LoadAware", "", "strategies:\n  duplicates: {}\n", "8: profiles[0].plugins.balance.enabled[1]: not carried over: LoadAware is none of the descheduler's own plug-ins"),
        (", Unconfigured", "", "strategies:\n  duplicates: {}\n", "8: profiles[0].plugins.balance.enabled[1]: not carried over: Unconfigured is none of the descheduler's own plug-ins"),
        ("", ", LoadAware", "mode: observe\nstrategies:\n  duplicates: {}\n", "9: profiles[0].plugins.filter.enabled[1]: not carried over: LoadAware is none of the descheduler's own plug-ins, and may keep pods; what it limited gets mode: observe, and moves nothing until you change that"),
    ],
)  # fmt: skip
def test_plug_ins_of_others_are_named_and_what_their_filters_may_have_kept_is_only_observed(
    migrate, balance, filters, ours, said
):
    text, notes = migrate(FOREIGN.format(balance=balance, filter=filters))
    assert text == ours
    assert said in notes
