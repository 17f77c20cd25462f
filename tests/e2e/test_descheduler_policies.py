"""The shape that ``policy migrate`` takes a policy of the descheduler to have, against the descheduler itself.

It reads its policy before it asks for the server: where none answers, that it asks says that the policy is right.
"""

import subprocess

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.migrate.merge import convert_policy
from rebalancer.registry import Registry
from tests.controlplane import build

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"""

EVERYTHING = """apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: a=b
maxNoOfPodsToEvictPerNode: 3
maxNoOfPodsToEvictPerNamespace: 3
maxNoOfPodsToEvictTotal: 3
evictionFailureEventNotification: true
gracePeriodSeconds: 3
metricsCollector: {enabled: false}
metricsProviders:
- {source: KubernetesMetrics}
- {source: Prometheus, prometheus: {url: "http://x", authToken: {secretReference: {namespace: a, name: b}}}}
profiles:
- name: p
  pluginConfig:
  - name: DefaultEvictor
    args:
      nodeSelector: a=b
      labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
      namespaceLabelSelector: {matchLabels: {a: b}}
      priorityThreshold: {value: 5}
      nodeFit: true
      minReplicas: 2
      minPodAge: 1.5h
      noEvictionPolicy: Preferred
      podProtections:
        extraEnabled: [PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims]
        defaultDisabled: [PodsWithLocalStorage, DaemonSetPods, SystemCriticalPods, FailedBarePods]
        config: {PodsWithPVC: {protectedStorageClasses: [{name: x}]}}
  - {name: RemoveDuplicates, args: {namespaces: {include: [a]}, excludeOwnerKinds: [Job]}}
  - name: RemovePodsViolatingInterPodAntiAffinity
    args: {namespaces: {exclude: [a]}, labelSelector: {}}
  - name: RemovePodsViolatingNodeTaints
    args: {namespaces: {exclude: [a]}, labelSelector: {}, includePreferNoSchedule: true, excludedTaints: [a]}
  - name: RemovePodsViolatingNodeAffinity
    args: {namespaces: , labelSelector: , nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]}
  - name: RemovePodsViolatingTopologySpreadConstraint
    args: {namespaces: , labelSelector: , constraints: [DoNotSchedule], topologyBalanceNodeFit: true}
  - name: RemovePodsHavingTooManyRestarts
    args: {namespaces: , podRestartThreshold: 3, includingInitContainers: true, states: [Running]}
  - name: PodLifeTime
    args:
      maxPodLifeTimeSeconds: 3
      states: [Running]
      conditions: [{type: a, status: b, reason: c, minTimeSinceLastTransitionSeconds: 3}]
      exitCodes: [1]
      ownerKinds: {include: [a]}
      includingInitContainers: true
      includingEphemeralContainers: false
  - name: RemoveFailedPods
    args:
      reasons: [a]
      exitCodes: [1]
      includingInitContainers: true
      excludeOwnerKinds: [a]
      minPodLifetimeSeconds: 3
  - name: HighNodeUtilization
    args:
      thresholds: {cpu: 3}
      numberOfNodes: 2
      evictionModes: [OnlyThresholdingResources]
      evictableNamespaces: {exclude: [a]}
  - name: LowNodeUtilization
    args:
      thresholds: {cpu: 3, x/y: 1.5}
      targetThresholds: {cpu: 5, x/y: 2}
      useDeviationThresholds: false
      numberOfNodes: 2
      evictionLimits: {node: 3}
      evictableNamespaces: {exclude: [a]}
      metricsUtilization: {source: KubernetesMetrics}
  plugins:
    deschedule: {enabled: [PodLifeTime], disabled: [x]}
    balance: {enabled: [RemoveDuplicates]}
    filter: {enabled: [DefaultEvictor]}
    preevictionfilter: {enabled: [DefaultEvictor]}
    preEvictionFilter: {enabled: [x]}
    presort: {}
    sort: {}
"""


@pytest.fixture
def judged(tmp_path):
    """Return what the descheduler says against a policy, and what we say; both nothing if it is right."""

    def outcome(text):
        policy, kubeconfig = tmp_path / "policy.yaml", tmp_path / "kubeconfig"
        policy.write_text(text)
        kubeconfig.write_text(KUBECONFIG)
        command = [
            str(build.binary("descheduler")),
            f"--policy-config-file={policy}",
            f"--kubeconfig={kubeconfig}",
            "--secure-port=0",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        theirs = done.stderr.splitlines()[-1]
        try:
            convert_policy(text.encode(), "p.yaml", Registry.installed())
            ours = ""
        except PolicyError as error:
            ours = str(error)
        return "" if "connection refused" in theirs else theirs, ours

    return outcome


def test_every_key_that_we_know_is_known_there(judged):
    assert judged(EVERYTHING) == ("", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("apiVersion: descheduler/v1alpha2", "apiVersion: descheduler/v1"),
        ("nodeFit: true", "nodefit: true"),
        ("minPodAge: 1.5h", "minPodAge: 1d"),
        ("minReplicas: 2", "minReplicas: -2"),
        ("noEvictionPolicy: Preferred", "noEvictionPolicy: preferred"),
        ("priorityThreshold: {value: 5}", "priorityThreshold: {value: 5, name: a}"),
        ("extraEnabled: [PodsWithPVC,", "extraEnabled: [SystemCriticalPods,"),
        ("nodeFit: true", "evictLocalStoragePods: true"),
        ("{name: RemoveDuplicates,", "{name: RemoveDuplicate,"),
        ("excludeOwnerKinds: [Job]", "labelSelector: {}"),
        ("namespaces: {include: [a]}", "namespaces: {include: [a], exclude: [b]}"),
        ("excludedTaints: [a]", "excludedTaints: [a], includedTaints: [b]"),
        ("nodeAffinityType: [required", "nodeAffinityType: [], constraints: [required"),
        ("constraints: [DoNotSchedule]", "constraints: [hard]"),
        ("podRestartThreshold: 3", "podRestartThreshold: 0"),
        ("maxPodLifeTimeSeconds: 3", "maxPodLifeTimeSecond: 3"),
        ("minPodLifetimeSeconds: 3", "minPodLifetimeSecond: 3"),
        ("thresholds: {cpu: 3}", "thresholds: {}"),
        ("evictableNamespaces: {exclude: [a]}", "evictableNamespaces: {include: [a]}"),
        ("thresholds: {cpu: 3, x/y: 1.5}", "thresholds: {cpu: 3}"),
        ("thresholds: {cpu: 3, x/y: 1.5}", "thresholds: {cpu: 6, x/y: 1.5}"),
        ("targetThresholds: {cpu: 5,", "targetThresholds: {cpu: 105,"),
    ],
)
def test_what_is_refused_there_is_refused_here(judged, old, new):
    assert EVERYTHING.count(old) >= 1
    theirs, ours = judged(EVERYTHING.replace(old, new, 1))
    assert theirs
    assert ours
