"""The old format: one list of strategies, options of all in ``params``."""

V1ALPHA1 = "apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\n"


def test_the_old_format_gives_what_todays_gives(migrate):
    ours, notes = migrate(
        """evictLocalStoragePods: true
ignorePvcPods: false
maxNoOfPodsToEvictPerNode: 3
strategies:
  RemoveDuplicates:
    enabled: true
    weight: 3
    params:
      removeDuplicates: {excludeOwnerKinds: [StatefulSet]}
      namespaces: {exclude: [kube-system]}
  LowNodeUtilization:
    enabled: true
    params:
      nodeFit: true
      namespaces: {exclude: [kube-system]}
      nodeResourceUtilizationThresholds:
        thresholds: {cpu: 10}
        targetThresholds: {cpu: 70.5}
  RemovePodsViolatingTopologySpreadConstraint:
    enabled: true
    params:
      includeSoftConstraints: true
      excludedTaints: [a]
      namespaces: {exclude: [kube-system]}
  PodLifeTime:
    enabled: true
    params: {namespaces: {exclude: [kube-system]}, podLifeTime: {maxPodLifeTimeSeconds: 86400, podStatusPhases: [Pending]}}
  RemovePodsViolatingNodeTaints: {enabled: false}
""",
        head=V1ALPHA1,
    )
    elsewhere = "    select:\n      namespaces:\n        exclude: [kube-system]\n"
    assert ours == (
        "budgets: {perNodeInRun: 3}\n"
        "protect: {volumes: false, localStorage: false}\n"
        "strategies:\n"
        f"  duplicates:\n{elsewhere}    excludeOwnerKinds: [StatefulSet]\n"
        f"  lifetime:\n{elsewhere}    maxPodLifeTime: 24h\n    states: [Pending]\n"
        f"  low-utilisation:\n{elsewhere}    under: {{cpu: 10%}}\n    over: {{cpu: 70.5%}}\n"
        f"  topology-spread:\n{elsewhere}"
    )
    assert [note.partition(": differs: protected")[0] for note in notes] == [
        "9: strategies.RemoveDuplicates.weight: had no effect there: nothing reads it",
        (
            "15: strategies.LowNodeUtilization.params: differs: LowNodeUtilization: an over-used node also gives "
            "pods while another is far below it; with gap: 100% only while one is under all thresholds, as there"
        ),
        (
            "16: strategies.LowNodeUtilization.params.nodeFit: always so here: every move is made for "
            "where the replacement will land"
        ),
        (
            "25: strategies.RemovePodsViolatingTopologySpreadConstraint.params.excludedTaints: had no effect "
            "there: RemovePodsViolatingTopologySpreadConstraint does not read it"
        ),
        (
            "29: strategies.PodLifeTime.params.podLifeTime.podStatusPhases: differs: Pending: a pod without a node "
            "stays, it would only wait again"
        ),
        (
            "29: strategies.PodLifeTime.params: differs: PodLifeTime: a pod goes only if its replacement has a place; "
            "owners whose replacements do no better cool down"
        ),
        (
            " differs: protected here, though not there: single replicas (protect.singleReplicas), pods younger "
            "than 5m (protect.minPodAge), pods of Jobs (protect.jobs), "
            "pods of custom controllers (protect.recreatedBy); false lifts a protection, 0s that of minPodAge, a list of kinds that of recreatedBy; pods annotated prefer-no-eviction are never moved, which it evicts last"
        ),
    ]


def test_a_threshold_of_priority_is_of_its_own_strategy(migrate):
    ours, _ = migrate(
        """strategies:
  RemoveDuplicates:
    enabled: true
    params: {thresholdPriorityClassName: high}
  RemovePodsViolatingInterPodAntiAffinity: {enabled: true}
""",
        head=V1ALPHA1,
    )
    assert ours == (
        "strategies:\n  anti-affinity: {preferred: false}\n"
        "  duplicates:\n    select:\n      priority: {below: high}\n"
    )


def test_what_is_wrong_has_the_key_that_stands_in_the_file(refused):
    text = """strategies:
  RemoveDuplicate: {enabled: true}
  LowNodeUtilization:
    enabled: true
    params:
      nodeResourceUtilizationThresholds:
        thresholds: {cpu: 10}
        targetThreshold: {cpu: 70}
  RemoveFailedPods:
    enabled: true
    params: {failedPods: {reasons: 5}, thresholdPriority: 1, thresholdPriorityClassName: a}
"""
    at = "strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds"
    params = "strategies.RemoveFailedPods.params"
    assert refused(text, head=V1ALPHA1) == [
        "4: strategies.RemoveDuplicate: unknown strategy; did you mean RemoveDuplicates?",
        f"8: {at}.targetThresholds: is missing; add it",
        f"10: {at}.targetThreshold: unknown key; did you mean targetThresholds?",
        f"13: {params}.failedPods.reasons: 5 should be a list",
        f"13: {params}.priorityThreshold: only one of value and name can be set",
    ]
