"""The descheduler's own examples (its examples/ folder, chart and base manifest), each with what happens to it."""

import pytest

DEFAULTS = (
    " differs: protected here, though not there: pods with volumes (protect.volumes), single replicas "
    "(protect.singleReplicas), pods younger than 5m (protect.minPodAge), pods of Jobs (protect.jobs), "
    "pods of custom controllers (protect.recreatedBy); false lifts a protection, 0s that of minPodAge, a list of kinds that of recreatedBy; "
    'descheduler.alpha.kubernetes.io/evict lifts none of these here, and "false" keeps a pod: there any value, also "false", lifts all; '
    "pods annotated prefer-no-eviction are never moved, which it evicts last"
)
GAP = (
    "differs: LowNodeUtilization: a pod leaves only for a node that it does not over-use; gap: 100% lets nodes give "
    "pods only while one is under all thresholds, as there, and without it new nodes are filled further"
)
WHOLE = (
    "a node is emptied whole or not at all, where every pod on it has a landing elsewhere, and is marked "
    "(steer: marks), so that it stays empty; where all nodes are below the thresholds nothing is done there, "
    "and here the pods of some are packed onto the others"
)
SELECTOR = "differs: a nodeSelector is fixed like required node affinity"
RESTS = "a pod goes only if its replacement has a place; owners whose replacements do no better cool down"
RESTARTS = f"differs: RemovePodsHavingTooManyRestarts: {RESTS}"
READ = (
    "pods of a Job stay until it has ended, and those of custom controllers and without one stay: "
    "their results may still be read"
)


def a_profile(point, name, args):
    return (
        f"profiles:\n- name: ProfileName\n  pluginConfig:\n  - name: {name}\n    args:\n{args}"
        f"  plugins:\n    {point}:\n      enabled:\n      - {name}\n"
    )


ARGS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("text", "ours", "notes"),
    [
        pytest.param(
            a_profile(
                "balance",
                "LowNodeUtilization",
                '      thresholds:\n        "memory": 20\n      targetThresholds:\n        "memory": 70\n',
            ),
            "strategies:\n  low-utilisation:\n    under: {memory: 20%}\n    over: {memory: 70%}\n    gap: 100%\n",
            [f"7: {ARGS}: {GAP}", DEFAULTS],
            id="low-node-utilization.yml",
        ),
        pytest.param(
            a_profile(
                "deschedule",
                "RemovePodsViolatingNodeAffinity",
                "      nodeAffinityType:\n      - requiredDuringSchedulingIgnoredDuringExecution\n",
            ),
            "strategies:\n  node-affinity: {required: true, preferred: false}\n",
            [f"8: {ARGS}.nodeAffinityType: {SELECTOR}", DEFAULTS],
            id="node-affinity.yml",
        ),
        pytest.param(
            a_profile(
                "balance",
                "RemovePodsViolatingTopologySpreadConstraint",
                "      constraints:\n      - DoNotSchedule\n      - ScheduleAnyway\n",
            ),
            "strategies:\n  topology-spread:\n    constraints: [hard, soft]\n",
            [DEFAULTS],
            id="topology-spread-constraint.yaml",
        ),
        pytest.param(
            a_profile("balance", "HighNodeUtilization", "      thresholds: {memory: 20}\n"),
            "steer: marks\nstrategies:\n  consolidation:\n    under: {memory: 20%}\n",
            [f"7: {ARGS}: differs: HighNodeUtilization: {WHOLE}", DEFAULTS],
            id="high-node-utilization.yml",
        ),
        pytest.param(
            a_profile(
                "deschedule",
                "PodLifeTime",
                "      maxPodLifeTimeSeconds: 604800\n      states: [Pending, PodInitializing]\n",
            ),
            "strategies:\n  lifetime:\n    maxPodLifeTime: 168h\n    states: [Pending, PodInitializing]\n",
            [
                f"7: {ARGS}: differs: PodLifeTime: {RESTS}",
                f"9: {ARGS}.states: differs: Pending: a pod without a node stays, it would only wait again",
                DEFAULTS,
            ],
            id="pod-life-time.yml",
        ),
        pytest.param(
            a_profile(
                "deschedule",
                "PodLifeTime",
                "      states: [Succeeded]\n      conditions:\n"
                "      - {reason: PodCompleted, status: 'True', minTimeSinceLastTransitionSeconds: 14400}\n"
                "      namespaces: {include: [default]}\n",
            ),
            "strategies:\n  failed-pods:\n    select:\n      namespaces: [default]\n    phases: [Succeeded]\n    minPodLifetime: 0s\n"
            "    conditions:\n    - {status: 'True', reason: PodCompleted, minTimeSinceLastTransition: 4h}\n",
            [f"7: {ARGS}: differs: PodLifeTime: {READ}", DEFAULTS],
            id="pod-life-time-transition.yml",
        ),
        pytest.param(
            a_profile(
                "deschedule",
                "RemovePodsHavingTooManyRestarts",
                "      podRestartThreshold: 100\n      includingInitContainers: true\n"
                "      states: [CrashLoopBackOff]\n",
            ),
            "strategies:\n  restarts:\n    podRestartThreshold: 100\n    includingInitContainers: true\n    states: [CrashLoopBackOff]\n",
            [f"7: {ARGS}: {RESTARTS}", DEFAULTS],
            id="too-many-restarts.yml",
        ),
        pytest.param(
            a_profile(
                "deschedule",
                "RemoveFailedPods",
                "      reasons: [OutOfcpu, CreateContainerConfigError]\n"
                "      includingInitContainers: true\n      excludeOwnerKinds: [Job]\n"
                "      minPodLifetimeSeconds: 3600\n",
            ),
            "strategies:\n  failed-pods:\n    minPodLifetime: 1h\n    reasons: [OutOfcpu, CreateContainerConfigError]\n"
            "    includingInitContainers: true\n    excludeOwnerKinds: [Job]\n",
            [f"7: {ARGS}: differs: RemoveFailedPods: {READ}", DEFAULTS],
            id="failed-pods.yaml",
        ),
    ],
)
def test_each_example_of_one_plug_in(migrate, text, ours, notes):
    assert migrate(text) == (ours, notes)


USUAL_THRESHOLDS = """
      thresholds: {cpu: 20, memory: 20, pods: 20}
      targetThresholds: {cpu: 50, memory: 50, pods: 50}
"""


def test_what_empties_nodes_only_observes_beside_what_fills_them(migrate):
    text = f"""profiles:
- name: ProfileName
  pluginConfig:
  - name: LowNodeUtilization
    args: {USUAL_THRESHOLDS}
  - name: HighNodeUtilization
    args: {{thresholds: {{cpu: 20}}, numberOfNodes: 2, evictionModes: [OnlyThresholdingResources]}}
  plugins:
    balance:
      enabled: [LowNodeUtilization, HighNodeUtilization]
"""
    ours, notes = migrate(text)
    assert "steer: marks\n" in ours
    assert "  consolidation:\n    mode: observe\n    under: {cpu: 20%}\n" in ours
    said = "\n".join(notes)
    for what in ("numberOfNodes: not carried over", "evictionModes: not carried over"):
        assert what in said
    assert "another plug-in fills the nodes that this one empties: it only observes" in said


def test_the_example_of_several_plug_ins(migrate):
    text = f"""profiles:
- name: ProfileName
  pluginConfig:
  - name: RemoveDuplicates
  - name: RemovePodsViolatingInterPodAntiAffinity
  - name: LowNodeUtilization
    args: {USUAL_THRESHOLDS}
  - name: RemovePodsHavingTooManyRestarts
    args: {{podRestartThreshold: 100, includingInitContainers: true}}
  - name: RemovePodsViolatingTopologySpreadConstraint
    args: {{constraints: [DoNotSchedule, ScheduleAnyway]}}
  plugins:
    deschedule:
      enabled: [RemovePodsViolatingInterPodAntiAffinity, RemovePodsHavingTooManyRestarts]
    balance:
      enabled:
      - RemoveDuplicates
      - LowNodeUtilization
      - RemovePodsViolatingTopologySpreadConstraint
"""
    ours, notes = migrate(text)
    assert ours == (
        "strategies:\n"
        "  anti-affinity: {preferred: false}\n"
        "  duplicates: {}\n"
        "  low-utilisation:\n    under: {cpu: 20%, memory: 20%, pods: 20%}\n    over: {cpu: 50%, memory: 50%, pods: 50%}\n    gap: 100%\n"
        "  restarts: {podRestartThreshold: 100, includingInitContainers: true}\n"
        "  topology-spread:\n    constraints: [hard, soft]\n"
    )
    assert notes == [
        f"9: profiles[0].pluginConfig[2].args: {GAP}",
        f"14: profiles[0].pluginConfig[3].args: {RESTARTS}",
        DEFAULTS,
    ]


def test_the_default_policy_of_its_chart(migrate):
    text = f"""profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args:
      podProtections:
        defaultDisabled: [PodsWithLocalStorage]
        extraEnabled: [PodsWithPVC]
  - name: RemoveDuplicates
  - name: RemovePodsHavingTooManyRestarts
    args: {{podRestartThreshold: 100, includingInitContainers: true}}
  - name: RemovePodsViolatingNodeAffinity
    args: {{nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}}
  - name: RemovePodsViolatingNodeTaints
  - name: RemovePodsViolatingInterPodAntiAffinity
  - name: RemovePodsViolatingTopologySpreadConstraint
  - name: LowNodeUtilization
    args: {USUAL_THRESHOLDS}
  plugins:
    balance:
      enabled: [RemoveDuplicates, RemovePodsViolatingTopologySpreadConstraint, LowNodeUtilization]
    deschedule:
      enabled:
      - RemovePodsHavingTooManyRestarts
      - RemovePodsViolatingNodeTaints
      - RemovePodsViolatingNodeAffinity
      - RemovePodsViolatingInterPodAntiAffinity
"""
    ours, notes = migrate(text)
    assert ours == (
        "protect: {localStorage: false, volumes: true}\n"
        "strategies:\n"
        "  anti-affinity: {preferred: false}\n"
        "  duplicates: {}\n"
        "  low-utilisation:\n    under: {cpu: 20%, memory: 20%, pods: 20%}\n    over: {cpu: 50%, memory: 50%, pods: 50%}\n    gap: 100%\n"
        "  node-affinity: {required: true, preferred: false}\n"
        "  restarts: {podRestartThreshold: 100, includingInitContainers: true}\n"
        "  taints: {}\n"
        "  topology-spread:\n"
        "    constraints: [hard]\n"
    )
    assert notes == [
        f"13: profiles[0].pluginConfig[2].args: {RESTARTS}",
        f"15: profiles[0].pluginConfig[3].args.nodeAffinityType: {SELECTOR}",
        (
            "16: profiles[0].pluginConfig[4].args: differs: RemovePodsViolatingNodeTaints: taints of cordons, "
            "node conditions and agents that are not ready are left out; without them in exclude they count, as there"
        ),
        f"20: profiles[0].pluginConfig[7].args: {GAP}",
        DEFAULTS.replace("pods with volumes (protect.volumes), ", ""),
    ]
