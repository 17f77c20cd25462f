"""Each right that the chart gives, to whom, and which feature needs it: nothing more, and nothing without its feature.

``pytest -rP tests/chart/test_rights.py`` prints the roles with their verbs.
"""

import sys
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from tests.chart.helm import render

pytestmark = pytest.mark.e2e  # Helm is built from Go modules

RELEASE = "rebalancing-rebalancer-kube-rebalancer"
READS = {
    "get /version",
    *(
        f"list {what}"
        for what in [
            "csinodes.storage.k8s.io",
            "deployments.apps",
            "jobs.batch",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "poddisruptionbudgets.policy",
            "pods",
            "replicasets.apps",
            "replicationcontrollers",
            "resourcequotas",
            "services",
            "statefulsets.apps",
            "storageclasses.storage.k8s.io",
        ]
    ),
}
FOLLOWS = {f"watch {rule.partition(' ')[2]}" for rule in READS if rule.startswith("list ")}
_EVENTS = "create events.events.k8s.io"
OWN = "rebalancing/rebalancer-kube-rebalancer"
"""Namespace and name of Roles, and how the names of the release's objects begin there."""
_NAMED = OWN.partition("/")[2]
_LEASE = {f"{verb} leases.coordination.k8s.io/{_NAMED}" for verb in ("get", "update")}
_STATE = _LEASE | {f"{verb} configmaps/{_NAMED}-memory" for verb in ("get", "update")}
_DEFAULT = {
    # A run that moves pods: it reads, follows what it has read, evicts, and says so.
    RELEASE: {*READS, *FOLLOWS, "get pods", "create pods/eviction", _EVENTS},
    f"{RELEASE}-observe": READS,
    # Its Lease, and its memory: one object each.
    OWN: _STATE,
}
_CHANGES_NODES = {"get nodes", "patch nodes"}
_MACHINES = {f"{verb} configmaps/{_NAMED}-machines" for verb in ("get", "update")}
_KEPT = f"{OWN}-machines"
_SIGNALS: dict[str, Any] = {"kind": "Deployment", "policy": {"signals": {"kubernetes": {}}}}
_ESCALATES: dict[str, Any] = {
    "kind": "Deployment",
    "policy": {
        "signals": {"kubernetes": {}},
        "interruption": {"steps": [{"step": "escalate", "means": "delete"}]},
    },
}
_SCHEDULER = {"scheduler": {"fromConfig": {"configMap": "kube-system/packing"}}}
_CLUSTER_API: dict[str, Any] = {
    "kind": "Deployment",
    "policy": {"provider": {"cluster-api": {"cluster": "clusters/work"}}},
}
_AWS: dict[str, Any] = {"kind": "Deployment", "policy": {"provider": {"aws": {}}}}
_SCALED = [f"{kind}.cluster.x-k8s.io" for kind in ("machinedeployments", "machines", "machinesets")]
_READS_MACHINES = {"get clusters.cluster.x-k8s.io"} | {
    f"{verb} {kind}" for verb in ("get", "list") for kind in _SCALED
}
_CHANGES_MACHINES = {f"patch {kind}" for kind in _SCALED}
FEATURES: list[tuple[str, dict[str, Any], dict[str, set[str]]]] = [
    ("steer: marks", {"policy": {"steer": "marks"}}, {RELEASE: _CHANGES_NODES}),
    (
        "scale-in closes nodes, and keeps what it must know of machines",
        {**_AWS, "strategies": {"scale-in": {}}},
        {
            RELEASE: {*_CHANGES_NODES, "list volumeattachments.storage.k8s.io"},
            f"{RELEASE}-observe": FOLLOWS,
            _KEPT: _MACHINES,
        },
    ),
    (
        "scale-out keeps back-offs",
        {**_AWS, "strategies": {"scale-out": {}}},
        {f"{RELEASE}-observe": FOLLOWS, _KEPT: _MACHINES},
    ),
    (
        "machines of Cluster API are read, in their namespace",
        _CLUSTER_API,
        {f"{RELEASE}-observe": FOLLOWS, f"clusters/{RELEASE}-machines": _READS_MACHINES},
    ),
    (
        "scale-out changes them",
        {**_CLUSTER_API, "strategies": {"scale-out": {}}},
        {
            f"{RELEASE}-observe": FOLLOWS,
            f"clusters/{RELEASE}-machines": {*_READS_MACHINES, *_CHANGES_MACHINES},
            _KEPT: _MACHINES,
        },
    ),
    (
        "replace --surge, by people and Jobs, changes them, and the CronJob has no right on them",
        {"rbac": {"clusterApi": "clusters"}, "drain": {"enabled": True}},
        {
            f"clusters/{RELEASE}-drain-machines": {*_READS_MACHINES, *_CHANGES_MACHINES},
            f"{RELEASE}-drain": {
                *_DEFAULT[RELEASE],
                *_CHANGES_NODES,
                "list volumeattachments.storage.k8s.io",
                "get daemonsets.apps",
            },
            f"rebalancing/{RELEASE}-drain": _LEASE,
        },
    ),
    (
        "nodes say that they are emptied",
        {"policy": {"nodeConditions": True}},
        {RELEASE: {"get nodes", "patch nodes/status"}},
    ),
    (
        "method.singleReplicas: restart",
        {"policy": {"method": {"singleReplicas": "restart"}}},
        {RELEASE: {"get replicasets.apps", "get deployments.apps", "patch deployments.apps"}},
    ),
    (
        "method.evictionRequests",
        {"policy": {"method": {"evictionRequests": "40m"}}},
        {
            RELEASE: {
                f"{verb} evictionrequests.lifecycle.k8s.io" for verb in ("list", "create", "patch")
            },
            f"{RELEASE}-observe": {"list evictionrequests.lifecycle.k8s.io"},
        },
    ),
    (
        "protect.afterScaling",
        {"policy": {"protect": {"afterScaling": "10m"}}},
        {
            RELEASE: {
                "list horizontalpodautoscalers.autoscaling",
                "watch horizontalpodautoscalers.autoscaling",
            },
            f"{RELEASE}-observe": {"list horizontalpodautoscalers.autoscaling"},
        },
    ),
    (
        "capacity.buffers",
        {"policy": {"capacity": {"buffers": True}}},
        {
            role: {"list capacitybuffers.autoscaling.x-k8s.io", "get podtemplates"}
            for role in (RELEASE, f"{RELEASE}-observe")
        },
    ),
    (
        "namespacePolicies",
        {"policy": {"namespacePolicies": ["shop"]}},
        {role: {"list configmaps/rebalancer-policy"} for role in (RELEASE, f"{RELEASE}-observe")},
    ),
    *(
        (f"deletion-cost {of}", {"strategies": {"deletion-cost": of}}, {RELEASE: {"patch pods"}})
        for of in ({}, {"mode": "off"})
    ),
    ("deletion-cost observes", {"strategies": {"deletion-cost": {"mode": "observe"}}}, {}),
    (
        "deletion-cost in a policy of theirs",
        {"rbac": {"deletionCosts": True}},
        {RELEASE: {"patch pods"}},
    ),
    (
        "make-room",
        {"strategies": {"make-room": {}}},
        {role: {"list events.events.k8s.io"} for role in (RELEASE, f"{RELEASE}-observe")},
    ),
    (
        "PodGroups",
        {"rbac": {"podGroups": True}},
        {
            role: {"get leaderworkersets.leaderworkerset.x-k8s.io"}
            | {
                f"list podgroups.{group}"
                for group in (
                    "scheduling.k8s.io",
                    "scheduling.x-k8s.io",
                    "scheduling.sigs.k8s.io",
                    "scheduling.volcano.sh",
                    "scheduling.run.ai",
                )
            }
            for role in (RELEASE, f"{RELEASE}-observe")
        },
    ),
    (
        "devices",
        {"rbac": {"devices": True}},
        {
            role: {
                f"list {kind}.resource.k8s.io"
                for kind in (
                    "deviceclasses",
                    "devicetaintrules",
                    "resourceclaims",
                    "resourceclaimtemplates",
                    "resourceslices",
                )
            }
            for role in (RELEASE, f"{RELEASE}-observe")
        },
    ),
    (
        "Karpenter",
        {"rbac": {"karpenter": True}},
        {
            role: {"list nodeclaims.karpenter.sh", "list nodepools.karpenter.sh"}
            for role in (RELEASE, f"{RELEASE}-observe")
        },
    ),
    (
        "low-utilisation by use",
        {"strategies": {"low-utilisation": {"signal": "usage"}}},
        {
            role: {"list nodes.metrics.k8s.io", "list pods.metrics.k8s.io"}
            for role in (RELEASE, f"{RELEASE}-observe")
        },
    ),
    (
        "scheduler.fromConfig",
        {"policy": _SCHEDULER},
        {f"kube-system/{RELEASE}-scheduler": {"get configmaps/packing"}},
    ),
    (
        "serve follows also where it only reports",
        {"kind": "Deployment"},
        {f"{RELEASE}-observe": FOLLOWS},
    ),
    (
        "signals close nodes, and serve keeps what announced machines",
        _SIGNALS,
        {RELEASE: _CHANGES_NODES, f"{RELEASE}-observe": FOLLOWS, _KEPT: _MACHINES},
    ),
    (
        "escalate: delete",
        _ESCALATES,
        {
            RELEASE: {*_CHANGES_NODES, "delete pods"},
            f"{RELEASE}-observe": FOLLOWS,
            _KEPT: _MACHINES,
        },
    ),
    (
        "drain, by people and Jobs",
        {"drain": {"enabled": True}},
        {
            f"{RELEASE}-drain": {
                *_DEFAULT[RELEASE],
                *_CHANGES_NODES,
                "list volumeattachments.storage.k8s.io",
                "get daemonsets.apps",
            },
            f"rebalancing/{RELEASE}-drain": _LEASE,
        },
    ),
    (
        "an agent on each node",
        {"nodeAgent": {"enabled": True}},
        {f"{RELEASE}-node-agent": _CHANGES_NODES},
    ),
    (
        "snapshots for compare",
        {"record": {"enabled": True, "claim": "recorded"}},
        {f"{RELEASE}-record": READS},
    ),
]


def _rights(manifests: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return role -> what it allows; that of a namespace begins with it."""
    roles = defaultdict[str, set[str]](set)
    for role in manifests:
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in role["rules"]:
            groups = rule.get("apiGroups", [""])
            named = [
                f"{resource}.{group}" if group else resource
                for resource in rule.get("resources", ())
                for group in groups
            ]
            if names := rule.get("resourceNames", ()):
                named = [f"{resource}/{name}" for resource in named for name in names]
            for verb in rule["verbs"]:
                every = (*named, *rule.get("nonResourceURLs", ()))
                within = f"{role['metadata']['namespace']}/" if role["kind"] == "Role" else ""
                roles[within + role["metadata"]["name"]] |= {f"{verb} {what}" for what in every}
    return dict(roles)


@cache
def _default() -> dict[str, set[str]]:
    return _rights(render())


def _printed(feature: str, rights: dict[str, set[str]]) -> None:
    lines = [f"  {role}: {', '.join(sorted(rules))}" for role, rules in sorted(rights.items())]
    sys.stdout.write("\n".join((f"{feature}:", *lines, "")))


def test_by_default_a_run_reads_follows_evicts_and_says_so():
    _printed("by default", _default())
    assert _default() == _DEFAULT


@pytest.mark.parametrize(
    ("feature", "values", "wanted"), FEATURES, ids=[one[0] for one in FEATURES]
)
def test_each_further_right_is_one_feature_s(feature, values, wanted):
    rights = _rights(render(values, "--kube-version=1.36.0"))
    more = {role: rules - _default().get(role, set()) for role, rules in rights.items()}
    more = {role: rules for role, rules in more.items() if rules}
    _printed(feature, more)
    assert more == wanted


@pytest.mark.parametrize(
    ("given", "granted"), [("auto", True), (None, True), (False, False), (True, True)]
)
def test_karpenter_is_read_by_itself_where_the_cluster_serves_it(given, granted):
    served = "--api-versions=karpenter.sh/v1/NodeClaim"
    role = _rights(render({"rbac": {"karpenter": given}}, served))[RELEASE]
    assert ({"list nodeclaims.karpenter.sh", "list nodepools.karpenter.sh"} <= role) is granted
    assert not any("karpenter" in right for right in _default()[RELEASE])


def test_a_fleet_s_pods_may_write_their_records_and_a_member_may_only_read():
    clusters = [{"name": "eu", "secretName": "eu"}]
    # Also where the policy, which is of the clusters, needs more.
    policy = {"steer": "marks", "scheduler": {"fromConfig": {"configMap": "kube-system/packing"}}}
    strategies: dict[str, Any] = {"make-room": {}}
    fleet = {"fleet": {"clusters": clusters}, "policy": policy, "strategies": strategies}
    rights = _rights(render(fleet))
    _printed("several clusters, here", rights)
    assert rights == {f"{OWN}-fleet": {f"patch configmaps/{_NAMED}-fleet-status"}}
    member = render({"fleet": {"member": {"enabled": True, "token": True}}})
    _printed("several clusters, in each", _rights(member))
    rules = set().union(*_rights(member).values())
    assert {rule.split()[0] for rule in rules} <= {"get", "list"}
    kinds = {one["kind"] for one in member}
    assert not kinds & {"CronJob", "Deployment", "Job", "Lease"}


def test_no_rule_has_a_wildcard_and_secrets_are_read_by_none():
    every: dict[str, Any] = {
        "drain": {"enabled": True},
        "nodeAgent": {"enabled": True},
        **_ESCALATES,
    }
    every["policy"] = {**every["policy"], **_AWS["policy"]}
    every["strategies"] = {"scale-in": {}, "scale-out": {}}
    rights = _rights(render(every))
    rules = set().union(*rights.values())
    assert not [rule for rule in rules if "*" in rule or "secrets" in rule or "impersonate" in rule]
