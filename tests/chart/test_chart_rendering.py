"""The chart as the real Helm renders it."""

import json
import re
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

import pytest
import yaml

from rebalancer.commands.fleet import command as fleet_command
from rebalancer.commands.node_agent import command as agent_command
from rebalancer.commands.record import command as record_command
from rebalancer.commands.run import command as run_command
from rebalancer.commands.serve import command as serve_command
from rebalancer.fleet.clusters import FILE, read_fleet
from rebalancer.kube.access import (
    ACT_RULES,
    ATTACHMENT_RULES,
    AUTOSCALER_FOLLOW_RULES,
    AUTOSCALER_RULES,
    CONDITION_RULES,
    DRAIN_RULES,
    EVENT_RULES,
    FOLLOW_RULES,
    MARK_RULES,
    POD_GROUP_RULES,
    READ_RULES,
    SCALE_OUT_RULES,
    USAGE_RULES,
    act_rules,
    config_map_rules,
    lease_rules,
)
from rebalancer.kube.evict import EVICT, RESTART_RULES
from rebalancer.kube.eviction_requests import LIST_REQUESTS, REQUEST_RULES
from rebalancer.kube.failures import name_values
from rebalancer.kube.read import scheduler_rules
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.seldom_read import BUFFER_RULES, DEVICE_RULES, NAMESPACE_POLICY_RULES
from rebalancer.machines.interruption.steps.pods import DELETE
from rebalancer.planner.findings import against_autoscalers
from rebalancer.policy.cluster import ConfigMapKey
from rebalancer.policy.forms import policy_hash
from rebalancer.policy.load import load_policy
from rebalancer.policy.select import Select
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests import fields
from tests.chart.helm import CHART, HelmError, compared_fields, helm, one, pod_spec, render
from tests.chart.values import own_paths, shipped
from tests.e2e.product import RUN_RULES

pytestmark = pytest.mark.e2e  # Helm is built from Go modules
NAME = "rebalancer-kube-rebalancer"
_PROVIDED: dict[str, Any] = {"policy": {"provider": {"aws": {}}}}
fleet_observe = fleet_command.commands["observe"]


def rules(role):
    """A role's rules, each as what it allows."""
    namespace = role["metadata"].get("namespace", "")
    return {
        AccessRule(verb, group, resource, namespace, name)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for name in rule.get("resourceNames", [""])
    }


def policy_of(manifests, folder):
    for name, text in one(manifests, "ConfigMap", f"{NAME}-policy")["data"].items():
        (folder / name).write_text(text)
    registry = Registry.installed()
    return load_policy(folder, registry, signals=registry.signals, steps=registry.steps)


def container(manifests):
    return pod_spec(one(manifests, "CronJob"))["containers"][0]


def test_the_default_policy_is_mounted_byte_for_byte(tmp_path):
    manifests = render()
    data = one(manifests, "ConfigMap", f"{NAME}-policy")["data"]
    assert {name: text.encode() for name, text in data.items()} == shipped()
    built_in = load_policy(None, Registry.installed())
    assert policy_of(manifests, tmp_path).policy_hash == policy_hash(built_in.policy)


def test_the_right_to_act_is_exactly_what_a_run_needs():
    manifests = render()
    name = f"rebalancing-{NAME}"
    assert rules(one(manifests, "ClusterRole", name)) == set(RUN_RULES)
    assert rules(one(manifests, "ClusterRole", f"{name}-observe")) == set(READ_RULES)
    assert rules(one(manifests, "Role")) == {
        *lease_rules("rebalancing", NAME),
        *config_map_rules("rebalancing", f"{NAME}-memory"),
    }
    assert one(manifests, "ClusterRoleBinding")["roleRef"]["name"] == name
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": "rebalancing"}
    assert one(manifests, "ClusterRoleBinding")["subjects"] == [account]
    assert one(manifests, "RoleBinding")["subjects"] == [account]


def test_a_run_of_one_namespace_may_evict_there_only():
    manifests = render({"namespace": "shop"})
    acting = rules(one(manifests, "ClusterRole", f"rebalancing-{NAME}"))
    evict = AccessRule("create", "", "pods/eviction", "shop")
    wanted = {*READ_RULES, *act_rules("shop"), *FOLLOW_RULES, *EVENT_RULES}
    assert evict in wanted
    assert acting == wanted - {evict}
    role = one(manifests, "Role", f"rebalancing-{NAME}-evict")
    assert rules(role) == {evict}
    binding = one(manifests, "RoleBinding", f"rebalancing-{NAME}-evict")
    assert binding["metadata"]["namespace"] == "shop"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == one(manifests, "ClusterRoleBinding")["subjects"]
    assert "--namespace=shop" in container(manifests)["args"]


def test_only_drains_may_change_nodes_and_only_where_that_is_switched_on():
    assert DRAIN_RULES[1] == AccessRule("patch", "", "nodes")
    enabled = render({"drain": {"enabled": True}})
    name = f"rebalancing-{NAME}-drain"
    wanted = {*RUN_RULES, *DRAIN_RULES, *ATTACHMENT_RULES}
    assert rules(one(enabled, "ClusterRole", name)) == wanted
    assert rules(one(enabled, "Role", name)) == set(lease_rules("rebalancing", NAME))
    account = {"kind": "ServiceAccount", "name": f"{NAME}-drain", "namespace": "rebalancing"}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        binding = one(enabled, kind, name)
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [account]
    # The CronJob's account gets none of it, also not where it empties nodes that are announced to go.
    with_leaving = render({"drain": {"enabled": True}, "strategies": {"leaving": {}}})
    for manifests in (render(), enabled, with_leaving):
        acting = rules(one(manifests, "ClusterRole", f"rebalancing-{NAME}"))
        assert not acting & set(DRAIN_RULES)
    # Nor do people who drain nodes get what only the step escalate needs.
    escalating = {"interruption": {"steps": [{"step": "escalate", "means": "delete"}]}}
    manifests = render(
        {
            "kind": "Deployment",
            "drain": {"enabled": True},
            "policy": {"signals": {"kubernetes": {}}, **escalating},
        }
    )
    assert DELETE in rules(one(manifests, "ClusterRole", f"rebalancing-{NAME}"))
    assert DELETE not in rules(one(manifests, "ClusterRole", name))


def test_an_agent_on_each_node_may_change_nodes_and_its_policy_says_which():
    manifests = render({"nodeAgent": {"enabled": True}}, "--kube-version=1.30.0")
    name = f"rebalancing-{NAME}-node-agent"
    assert rules(one(manifests, "ClusterRole", name)) == set(MARK_RULES)
    account = {"kind": "ServiceAccount", "name": f"{NAME}-node-agent", "namespace": "rebalancing"}
    assert one(manifests, "ClusterRoleBinding", name)["subjects"] == [account]
    policy = one(manifests, "ValidatingAdmissionPolicy", name)["spec"]
    assert "system:serviceaccount:rebalancing:" + account["name"] in str(policy["matchConditions"])
    assert one(manifests, "ValidatingAdmissionPolicyBinding")["spec"]["policyName"] == name
    spec = one(manifests, "DaemonSet")["spec"]
    pod = spec["template"]["spec"]
    assert pod["hostNetwork"]
    assert pod["securityContext"]["runAsNonRoot"]
    (agent,) = pod["containers"]
    assert agent["securityContext"]["readOnlyRootFilesystem"]
    known = {flag for parameter in agent_command.params for flag in parameter.opts}
    assert agent["args"][0] == "node-agent"
    assert {argument.partition("=")[0] for argument in agent["args"][1:]} <= known
    assert [variable["name"] for variable in agent["env"]] == ["NODE_NAME"]
    selector, labels = spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert selector["app.kubernetes.io/component"] == "node-agent"


def test_snapshots_are_kept_by_an_account_that_only_lists():
    manifests = render({"record": {"enabled": True, "claim": "recorded"}})
    name = f"rebalancing-{NAME}-record"
    assert rules(one(manifests, "ClusterRole", name)) == set(READ_RULES)
    account = {"kind": "ServiceAccount", "name": f"{NAME}-record", "namespace": "rebalancing"}
    assert one(manifests, "ClusterRoleBinding", name)["subjects"] == [account]
    job = one(manifests, "CronJob", f"{NAME}-record")["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["name"]
    assert pod["securityContext"]["fsGroup"] == 65532
    assert {"name": "recorded", "persistentVolumeClaim": {"claimName": "recorded"}} in pod[
        "volumes"
    ]
    (recording,) = pod["containers"]
    assert {"name": "recorded", "mountPath": "/recorded"} in recording["volumeMounts"]
    known = {flag for parameter in record_command.params for flag in parameter.opts}
    assert recording["args"][:2] == ["record", "--to=/recorded"]
    assert {argument.partition("=")[0] for argument in recording["args"][1:]} <= known


def test_the_key_that_redacts_names_is_mounted_and_never_an_argument():
    values = {"enabled": True, "claim": "recorded", "redactKeySecret": "redact"}
    job = one(render({"record": values}), "CronJob", f"{NAME}-record")["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert {
        "name": "redact",
        "secret": {"secretName": "redact", "items": [{"key": "key", "path": "key"}]},
    } in pod["volumes"]
    (recording,) = pod["containers"]
    assert "--redact-key-file=/redact/key" in recording["args"]
    assert {"name": "redact", "mountPath": "/redact", "readOnly": True} in recording["volumeMounts"]


def test_snapshots_are_kept_only_where_there_is_a_volume_for_them():
    with pytest.raises(HelmError, match=r"record\.enabled needs record\.claim"):
        render({"record": {"enabled": True}})


def test_agents_that_could_change_every_node_are_installed_only_where_that_is_accepted():
    with pytest.raises(HelmError, match=r"1\.29\.9 has no ValidatingAdmissionPolicy"):
        render({"nodeAgent": {"enabled": True}}, "--kube-version=1.29.9")


@pytest.mark.parametrize("version", ["1.29.9", "1.36.0"])
def test_agents_have_no_policy_where_nobody_wants_it(version):
    values = {"enabled": True, "admissionPolicy": False}
    manifests = render({"nodeAgent": values}, f"--kube-version={version}")
    assert "ValidatingAdmissionPolicy" not in {manifest["kind"] for manifest in manifests}
    assert one(manifests, "DaemonSet")


def test_accounts_are_limited_to_fields_only_where_the_cluster_can():
    wanted = {"rbac": {"admissionPolicy": True}}
    with pytest.raises(HelmError, match=r"1\.29\.9 has no ValidatingAdmissionPolicy"):
        render(wanted, "--kube-version=1.29.9")
    policies = [
        each
        for each in render({**wanted, "drain": {"enabled": True}}, "--kube-version=1.30.0")
        if each["kind"] == "ValidatingAdmissionPolicy"
    ]
    assert len(policies) == 3
    for policy in policies:
        ((condition),) = policy["spec"]["matchConditions"]
        for account in (NAME, f"{NAME}-drain"):
            assert f':{account}"' in condition["expression"]


@pytest.mark.parametrize(
    ("part", "may_change"), [("spec", {"taints", "unschedulable"}), ("status", {"conditions"})]
)
def test_the_policy_of_nodes_names_each_field_that_may_not_change(part, may_change):
    """Of all versions: ``tests/e2e/test_account_fields.py`` says the same of Deployments."""
    wanted = {"rbac": {"admissionPolicy": True}}
    policy = one(
        render(wanted, "--kube-version=1.36.0"),
        "ValidatingAdmissionPolicy",
        f"rebalancing-{NAME}-nodes",
    )
    of = f"Node{part.title()}"
    known = {
        field.name.removeprefix(f"{of}.")
        for field in fields.read()
        if field.name.startswith(f"{of}.")
    }
    assert compared_fields(policy, part) == known - may_change


def test_a_strategy_that_is_off_by_default_is_used_where_it_is_named(tmp_path):
    policy = policy_of(render({"strategies": {"leaving": {"leadTime": "2h"}}}), tmp_path).policy
    assert policy.strategies["leaving"].params.model_dump()["lead_time"].total_seconds() == 7200


def test_on_openshift_pods_ask_for_nothing_that_restricted_v2_refuses():
    recorded = {"record": {"enabled": True, "claim": "snapshots"}}
    manifests = render(recorded, f"--values={CHART / 'values-openshift.yaml'}")
    pods = [pod_spec(each) for each in manifests if each["kind"] == "CronJob"]
    assert len(pods) == 2
    for pod in pods:
        # SCC restricted-v2: uid and groups come from the namespace's range, seccomp from the runtime.
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        (container,) = pod["containers"]
        context = container["securityContext"]
        assert not {"runAsUser", "runAsGroup"} & set(context)
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert (context["allowPrivilegeEscalation"], context["privileged"]) == (False, False)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        kinds = {kind for volume in pod.get("volumes", ()) for kind in volume} - {"name"}
        assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim", "projected"}


PLACES: dict[str, Any] = {
    "eks": node("n", labels={"eks.amazonaws.com/nodegroup": "main"}),
    "gke": node("n", labels={"cloud.google.com/gke-nodepool": "p"}),
    "aks": node("n", labels={"kubernetes.azure.com/agentpool": "p"}),
    "karpenter": node("n", labels={"karpenter.sh/nodepool": "p"}),
}
"""Name of a values file -> a node as there."""
PACKING = workload("cluster-autoscaler", ["n"], namespace="kube-system")
PACKING[-1]["metadata"]["labels"] = {"app": "cluster-autoscaler"}


@pytest.mark.parametrize("place", PLACES)
def test_values_of_a_place_are_valid_and_work_against_nothing_there(place, tmp_path):
    file = CHART / f"values-{place}.yaml"
    manifests = render(None, f"--values={file}")
    loaded = policy_of(manifests, tmp_path)
    assert loaded.warnings == ()
    image = "--set=image.repository=registry.example/rebalancer"
    assert "[ERROR]" not in helm("lint", "--strict", str(CHART), f"--values={file}", image)
    assert f"values-{place}.yaml" in (CHART / "README.md").read_text()
    if place == "eks":
        assert one(manifests, "DaemonSet")
        assert one(manifests, "Deployment")
    # The built-in policy would spread over nodes that an autoscaler packs.
    there = snapshot_of([PLACES[place], *PACKING])
    built_in = load_policy(None, Registry.installed()).policy
    assert list(against_autoscalers(built_in, there))
    assert not list(against_autoscalers(loaded.policy, there))


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_run_of_one_namespace_that_does_not_enforce_may_evict_nowhere(mode):
    manifests = render({"namespace": "shop", "mode": mode})
    evicting = one(manifests, "Role", f"rebalancing-{NAME}-evict")
    # It is there, and empty: what an upgrade that fails later has not removed yet allows nothing.
    assert evicting["rules"] == []
    assert [m["metadata"]["name"] for m in manifests if m["kind"] == "Role" and m["rules"]] == [
        NAME
    ]


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
@pytest.mark.parametrize("more", [{}, {"namespace": "shop"}, {"policy": {"steer": "marks"}}])
def test_roles_and_bindings_have_the_same_names_in_every_mode(kind, more):
    named = {
        mode: {
            (m["kind"], m["metadata"]["name"])
            for m in render({"kind": kind, "mode": mode, **more})
            if m["apiVersion"].startswith("rbac.")
        }
        for mode in ("enforce", "observe", "off")
    }
    assert named["enforce"] == named["observe"] == named["off"]
    manifests = render({"kind": kind, "mode": "observe", **more})
    of_runs = one(manifests, "ClusterRole", f"rebalancing-{NAME}")
    assert of_runs["rules"] == one(manifests, "ClusterRole", f"rebalancing-{NAME}-observe")["rules"]


def test_the_schedule_is_stopped_by_the_value_and_else_left_to_others():
    assert one(render({"suspend": True}), "CronJob")["spec"]["suspend"] is True
    assert "suspend" not in one(render(), "CronJob")["spec"]


def test_releases_have_a_state_of_their_own_or_share_one():
    own = render()
    assert f"--lease=rebalancing/{NAME}" in container(own)["args"]
    assert one(own, "Lease")["metadata"]["namespace"] == "rebalancing"
    shared = render({"sharedState": "first/one"})
    assert {"--lease=first/one", "--memory=first/one-memory"} <= set(container(shared)["args"])
    assert not [m for m in shared if m["kind"] == "Lease"]
    role = one(shared, "Role", f"rebalancing-{NAME}")
    assert rules(role) == {*lease_rules("first", "one"), *config_map_rules("first", "one-memory")}
    binding = one(shared, "RoleBinding", f"rebalancing-{NAME}")
    assert binding["metadata"]["namespace"] == "first"
    assert binding["subjects"] == one(own, "RoleBinding")["subjects"]


@pytest.mark.parametrize("word", ["yes", "1e3", "null", "0x10"])
def test_names_that_yaml_reads_as_something_else_stay_text(word):
    manifests = render(
        {
            **dict.fromkeys(("priorityClassName", "schedulerName", "runtimeClassName"), word),
            **dict.fromkeys(("nameOverride", "fullnameOverride", "existingPolicy"), word),
            **dict.fromkeys(("namespaceOverride", "namespace"), word),
            "serviceAccount": {"name": word},
            "networkPolicy": {"enabled": True, "apiServer": {"cidrs": [word]}},
        }
    )
    spec = pod_spec(one(manifests, "CronJob"))
    for name in ("priorityClassName", "schedulerName", "runtimeClassName", "serviceAccountName"):
        assert spec[name] == word
    assert spec["volumes"][0]["configMap"]["name"] == word
    rule = one(manifests, "NetworkPolicy")["spec"]["egress"][0]
    assert rule["to"] == [{"ipBlock": {"cidr": word}}]
    for manifest in manifests:
        metadata = manifest["metadata"]
        assert isinstance(metadata["name"], str)
        assert metadata.get("namespace", word) == word
        assert metadata["labels"]["app.kubernetes.io/name"] == word
        for subject in manifest.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) == (word, word)


PROMETHEUS = {
    "url": "https://prometheus.monitoring:9091",
    "nodes": {"cpu": "sum by (node) (rate(node_cpu[5m]))"},
    "tokenFile": "/var/run/secrets/usage/token",
    "caFile": "/var/run/secrets/usage/ca.crt",
}


def test_prometheus_is_named_in_the_policy_and_its_secret_is_mounted(tmp_path):
    values = {"policy": {"usage": {"prometheus": PROMETHEUS}}, "usage": {"secretName": "reader"}}
    manifests = render(values)
    settings = policy_of(manifests, tmp_path).policy.usage.prometheus
    assert settings.nodes == PROMETHEUS["nodes"]
    spec = pod_spec(one(manifests, "CronJob"))
    (volume,) = (volume for volume in spec["volumes"] if volume.get("secret"))
    assert volume["secret"] == {"secretName": "reader"}
    (mount,) = (m for m in container(manifests)["volumeMounts"] if m["name"] == volume["name"])
    assert mount["readOnly"]
    assert {settings.token_file, settings.ca_file} == {
        f"{mount['mountPath']}/{key}" for key in ("token", "ca.crt")
    }


def test_a_wrong_key_of_prometheus_is_refused():
    with pytest.raises(HelmError, match="nodeQuery"):
        render({"policy": {"usage": {"prometheus": {**PROMETHEUS, "nodeQuery": "up"}}}})


def judged_by(signal):
    return {"strategies": {"low-utilisation": {"signal": signal}}}


_FOLLOWED = (*AUTOSCALER_RULES, *AUTOSCALER_FOLLOW_RULES)
_RESTARTED = {"policy": {"method": {"singleReplicas": "restart"}}}
_SCALED = {"policy": {"protect": {"afterScaling": "10m"}}}


@pytest.mark.parametrize(
    ("values", "acting", "observing"),
    [
        ({}, (), ()),
        ({"existingPolicy": "mine"}, (), ()),
        # The metrics API is asked only where the policy looks at usage.
        ({"strategies": {"low-utilisation": {"weight": 2}}}, (), ()),
        ({"strategies": {"low-utilisation": None}}, (), ()),
        (judged_by("requests"), (), ()),
        (judged_by("usage"), USAGE_RULES, USAGE_RULES),
        (judged_by("larger"), USAGE_RULES, USAGE_RULES),
        (
            {"strategies": {"hot": {"strategy": "low-utilisation", "signal": "usage"}}},
            USAGE_RULES,
            USAGE_RULES,
        ),
        ({"strategies": {"hot": {"strategy": "low-utilisation"}}}, (), ()),
        ({**judged_by("usage"), "mode": "observe"}, USAGE_RULES, USAGE_RULES),
        ({**judged_by("usage"), "policy": {"usage": {}}}, USAGE_RULES, USAGE_RULES),
        ({**judged_by("usage"), "policy": {"usage": {"prometheus": PROMETHEUS}}}, (), ()),
        (
            {"policy": {"usage": {"prometheus": PROMETHEUS}}, "rbac": {"usage": True}},
            USAGE_RULES,
            USAGE_RULES,
        ),
        ({"rbac": {"usage": True}}, USAGE_RULES, USAGE_RULES),
        ({"existingPolicy": "mine", "rbac": {"usage": True}}, USAGE_RULES, USAGE_RULES),
        # Autoscalers are read only where the policy asks for them.
        ({"policy": {"protect": {"minPodAge": "10m"}}}, (), ()),
        (_SCALED, _FOLLOWED, AUTOSCALER_RULES),
        ({**_SCALED, "kind": "Deployment"}, _FOLLOWED, _FOLLOWED),
        ({"rbac": {"autoscalers": True}}, _FOLLOWED, AUTOSCALER_RULES),
        ({"rbac": {"autoscalers": True}, "kind": "Deployment"}, _FOLLOWED, _FOLLOWED),
        ({"existingPolicy": "mine", "kind": "Deployment"}, (), ()),
        ({"existingPolicy": "mine", "rbac": {"autoscalers": True}}, _FOLLOWED, AUTOSCALER_RULES),
        # CapacityBuffers are read only where the policy counts them.
        ({"policy": {"capacity": {"maxNodes": 9}}}, (), ()),
        ({"policy": {"capacity": {"buffers": False}}}, (), ()),
        ({"policy": {"capacity": {"buffers": True}}}, BUFFER_RULES, BUFFER_RULES),
        ({"existingPolicy": "mine", "rbac": {"capacityBuffers": True}}, BUFFER_RULES, BUFFER_RULES),
        # Policies of namespaces are read only where the policy lets some have one.
        ({"policy": {"namespacePolicies": []}}, (), ()),
        *(
            (values, NAMESPACE_POLICY_RULES, NAMESPACE_POLICY_RULES)
            for values in (
                {"policy": {"namespacePolicies": ["team-*"]}},
                {"existingPolicy": "mine", "rbac": {"namespacePolicies": True}},
            )
        ),
        # Events are read only where room is made for pods that wait.
        ({"strategies": {"slots": {"free": {"cpu": "6"}}}}, (), ()),
        ({"strategies": {"make-room": {}}}, SCALE_OUT_RULES, SCALE_OUT_RULES),
        (
            {"strategies": {"pending": {"strategy": "make-room", "mode": "observe"}}},
            SCALE_OUT_RULES,
            SCALE_OUT_RULES,
        ),
        ({"strategies": {"make-room": {"mode": "off"}}}, (), ()),
        ({"existingPolicy": "mine", "rbac": {"events": True}}, SCALE_OUT_RULES, SCALE_OUT_RULES),
        # Nodes are patched only where the policy steers.
        ({"policy": {"steer": "off"}}, (), ()),
        ({"policy": {"steer": False}}, (), ()),
        ({"policy": {"steer": "marks"}}, MARK_RULES, ()),
        ({"rbac": {"marks": True}}, MARK_RULES, ()),
        # Their status is, where the policy says so.
        ({"policy": {"nodeConditions": False}}, (), ()),
        ({"policy": {"nodeConditions": True}}, CONDITION_RULES, ()),
        ({"existingPolicy": "mine", "rbac": {"nodeConditions": True}}, CONDITION_RULES, ()),
        ({"existingPolicy": "mine", "rbac": {"marks": True}}, MARK_RULES, ()),
        (
            {"existingPolicy": "mine", "kind": "Deployment", "rbac": {"volumeAttachments": True}},
            ATTACHMENT_RULES,
            (),
        ),
        # Deployments are patched only where the policy restarts.
        ({"policy": {"method": {"singleReplicas": "evict"}}}, (), ()),
        (_RESTARTED, RESTART_RULES, ()),
        ({"policy": {"method": {"unevictable": "restart"}}}, RESTART_RULES, ()),
        ({"rbac": {"restarts": True}}, RESTART_RULES, ()),
        ({"existingPolicy": "mine", "rbac": {"restarts": True}}, RESTART_RULES, ()),
        # Requests are sent only where the policy says how long they may take.
        ({"policy": {"method": {"gracePeriod": "9s"}}}, (), ()),
        *(
            (values, (*LIST_REQUESTS, *REQUEST_RULES), LIST_REQUESTS)
            for values in (
                {"policy": {"method": {"evictionRequests": "40m"}}},
                {"existingPolicy": "mine", "rbac": {"evictionRequests": True}},
            )
        ),
    ],
)
def test_a_right_is_there_only_where_the_policy_needs_it(values, acting, observing):
    manifests = render(values)
    name = f"rebalancing-{NAME}"
    watches = (*FOLLOW_RULES, AccessRule("watch", "", "pods"))
    follows = watches if values.get("kind") == "Deployment" else ()
    observes = rules(one(manifests, "ClusterRole", f"{name}-observe"))
    assert observes == {*READ_RULES, *follows, *observing}
    acts = rules(one(manifests, "ClusterRole", name))
    enforcing = {*RUN_RULES, *acting}
    assert acts == (observes if values.get("mode") == "observe" else enforcing)


@pytest.mark.parametrize("values", [{}, _RESTARTED, {"rbac": {"restarts": True}}])
@pytest.mark.parametrize("namespace", [None, "shop"])
def test_drains_restart_as_runs_do_and_a_run_of_one_namespace_restarts_there_only(
    values, namespace
):
    where = {"namespace": namespace} if namespace else {}
    manifests = render({**values, **where, "drain": {"enabled": True}})
    name = f"rebalancing-{NAME}"
    moves = {EVICT, *(RESTART_RULES if values else ())}
    everywhere = set(RUN_RULES) - {EVICT}
    draining = rules(one(manifests, "ClusterRole", f"{name}-drain"))
    assert draining == everywhere | moves | {*DRAIN_RULES, *ATTACHMENT_RULES}
    acting = rules(one(manifests, "ClusterRole", name))
    assert acting == everywhere | (set() if namespace else moves)
    if namespace:
        in_namespace = rules(one(manifests, "Role", f"{name}-evict"))
        assert in_namespace == {replace(rule, namespace=namespace) for rule in moves}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, False),
        ({"mode": "observe"}, False),
        ({"policy": {"interruption": {"steps": ["cordon", "leave"]}}}, False),
        ({"policy": {"signals": {"kubernetes": {}}}}, True),
        ({"policy": {"interruption": {"steps": ["cordon", "deregister"]}}}, True),
        (
            {
                "policy": {
                    "interruption": {"steps": [{"step": "quarantine", "securityGroups": ["sg-1"]}]}
                }
            },
            True,
        ),
        ({**_PROVIDED, "strategies": {"scale-out": {"mode": "observe"}}}, True),
        ({**_PROVIDED, "strategies": {"scale-out": {}}, "mode": "observe"}, True),
        ({"strategies": {"scale-out": {"mode": "off"}}}, False),
        ({"strategies": {"scale-out": {"mode": False}}}, False),
        ({"existingPolicy": "mine"}, False),
        ({"existingPolicy": "mine", "machineState": {"enabled": True}}, True),
        ({"machineState": {"enabled": True}, "sharedState": "other/one"}, True),
    ],
)
@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_what_is_known_of_machines_is_kept_only_by_a_process_that_stays(values, wanted, kind):
    manifests = render({**values, "kind": kind})
    name, wanted = f"{NAME}-machines", wanted and kind == "Deployment"
    maps = [m for m in manifests if m["metadata"]["name"] == name and m["kind"] == "ConfigMap"]
    roles = [m for m in manifests if m["metadata"]["name"] == name and m["kind"] == "Role"]
    flag = f"--machine-state=rebalancing/{name}"
    assert (len(maps), len(roles), flag in str(one(manifests, kind))) == (wanted, wanted, wanted)
    for role in roles:
        every = set(config_map_rules("rebalancing", name))
        assert rules(role) == {rule for rule in every if "mode" not in values or rule.verb == "get"}
        assert "data" not in maps[0]


@pytest.mark.parametrize("name", ["scale-in", "scale-out"])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_machines_are_added_and_ended_by_a_deployment_only(name, mode):
    """A CronJob may say what would be done, and has no right on machines."""
    api = {"policy": {"provider": {"cluster-api": {"cluster": "clusters/work"}}}}
    values = {**api, "strategies": {"mine": {"strategy": name, "mode": mode}}}
    if mode == "enforce":
        says = rf"strategies.mine: {name} acts on machines, .*kind: Deployment"
        with pytest.raises(HelmError, match=says):
            render(values)
        render({**values, "kind": "Deployment"})
        return
    manifests = render(values)
    for role in (m for m in manifests if m["kind"] in ("Role", "ClusterRole")):
        assert not any(one.group == "cluster.x-k8s.io" for one in rules(role))
        assert not any(one.resource == "nodes" and one.verb == "patch" for one in rules(role))


PACKED = {"scheduler": {"fromConfig": {"configMap": "kube-system/packing"}}}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, False),
        ({"policy": {"scheduler": {"fromConfig": "/etc/scheduler.yaml"}}}, False),
        ({"policy": PACKED}, True),
        ({"policy": PACKED, "mode": "observe"}, True),
        ({"existingPolicy": "mine"}, False),
        ({"existingPolicy": "mine", "rbac": {"schedulerConfig": "kube-system/packing"}}, True),
    ],
)
def test_the_schedulers_configuration_may_be_read_only_where_the_policy_names_it(values, wanted):
    manifests = render(values)
    name = f"rebalancing-{NAME}-scheduler"
    roles = [m for m in manifests if m["kind"] == "Role" and m["metadata"]["name"] == name]
    assert len(roles) == wanted
    for role in roles:
        assert role["metadata"]["namespace"] == "kube-system"
        of = ConfigMapKey(config_map="kube-system/packing")
        assert rules(role) == set(scheduler_rules(of))
        binding = one(manifests, "RoleBinding", name)
        assert binding["metadata"]["namespace"] == "kube-system"
        assert [subject["name"] for subject in binding["subjects"]] == [NAME]


@pytest.mark.parametrize("mode", ["observe", "off", False])
def test_without_enforcing_no_right_to_write_is_bound(mode, tmp_path):
    manifests = render({"mode": mode})
    bound = one(manifests, "ClusterRoleBinding")["roleRef"]["name"]
    verbs = {rule.verb for rule in rules(one(manifests, "ClusterRole", bound))}
    assert verbs <= {"get", "list"}
    remembered = next(iter(config_map_rules("rebalancing", f"{NAME}-memory")))
    assert remembered.verb == "get"
    assert rules(one(manifests, "Role")) == {remembered}
    loaded = policy_of(manifests, tmp_path)
    assert loaded.policy.mode == ("off" if mode is False else mode)
    assert loaded.warnings == ()


def test_values_of_the_policy_are_merged_over_the_files(tmp_path):
    manifests = render(
        {
            "policy": {
                "budgets": {"perRun": 3, "inFlight": "50%"},
                "protect": {"volumes": False},
                "windows": [{"allow": "0 22 * * *", "for": "8h", "timeZone": "Asia/Tokyo"}],
            },
            "strategies": {
                "duplicates": {"mode": False},
                "topology-spread": {"mode": "observe", "constraints": ["hard"]},
            },
        }
    )
    policy = policy_of(manifests, tmp_path).policy
    assert str(policy.budgets.per_run) == "3"
    assert str(policy.budgets.per_owner) == "10%"
    assert not policy.protect.volumes
    assert policy.protect.local_storage
    assert policy.windows[0].time_zone == "Asia/Tokyo"
    assert policy.mode_of("duplicates") == "off"
    assert policy.mode_of("topology-spread") == "observe"
    assert policy.mode_of("anti-affinity") == "enforce"


def test_a_policy_of_ones_own_replaces_the_charts():
    manifests = render({"existingPolicy": "mine"})
    names = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
    assert names == {f"{NAME}-memory"}
    (volume,) = pod_spec(one(manifests, "CronJob"))["volumes"]
    assert volume["configMap"] == {"name": "mine"}


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
@pytest.mark.parametrize(
    ("mode", "flags"), [("enforce", []), ("observe", ["--mode=observe"]), (False, ["--mode=off"])]
)
def test_a_policy_of_ones_own_only_observes_where_the_release_may_not_act(kind, mode, flags):
    spec = one(render({"existingPolicy": "mine", "kind": kind, "mode": mode}), kind)["spec"]
    template = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]
    (only,) = template["spec"]["containers"]
    assert [arg for arg in only["args"] if arg.startswith("--mode")] == flags


def test_every_argument_is_one_that_the_command_knows():
    known = {name for parameter in run_command.params for name in parameter.opts}
    arguments = container(render())["args"]
    assert arguments[0] == "run"
    assert {argument.partition("=")[0] for argument in arguments[1:]} <= known


def test_a_fleet_is_one_indexed_job_whose_pods_see_one_kubeconfig_each():
    names = ("eu", "us", "lab")
    clusters: list[dict[str, Any]] = [{"name": name, "secretName": f"{name}-k"} for name in names]
    clusters[0] |= {"labels": {"env": "prod"}, "policy": {"mode": "observe"}}
    policies = [
        {"labels": {"env": "prod"}, "policy": {"strategies": {"duplicates": {"weight": 2}}}}
    ]
    manifests = render(
        {"fleet": {"clusters": clusters, "policies": policies, "maxClustersAtOnce": 2}}
    )
    cron_job = one(manifests, "CronJob")
    job = cron_job["spec"]["jobTemplate"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 2)
    # Each index fails alone; two rounds of pods, each with its own time.
    assert (job["backoffLimitPerIndex"], "backoffLimit" in job) == (0, False)
    pod = pod_spec(cron_job)
    assert job["activeDeadlineSeconds"] == 2 * pod["activeDeadlineSeconds"]
    (running,) = pod["containers"]
    known = {flag for parameter in fleet_observe.params for flag in parameter.opts}
    assert running["args"][:2] == ["fleet", "observe"]
    assert {argument.partition("=")[0] for argument in running["args"][2:]} <= known
    (volume,) = [one for one in pod["volumes"] if one["name"] == "kubeconfigs"]
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    assert all(source["optional"] for source in sources)
    assert [(source["name"], source["items"]) for source in sources] == [
        (f"{name}-k", [{"key": "kubeconfig", "path": f"{index}/{name}"}])
        for index, name in enumerate(names)
    ]
    (mount,) = [one for one in running["volumeMounts"] if one["name"] == "kubeconfigs"]
    assert (mount["subPathExpr"], mount["readOnly"]) == ("$(JOB_COMPLETION_INDEX)", True)
    # Where the client writes what a kubeconfig holds inline.
    scratch = {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    assert scratch in pod["volumes"]
    text = one(manifests, "ConfigMap", f"{NAME}-fleet")["data"][FILE]
    assert "secret" not in text.lower()
    fleet = read_fleet(text.encode(), FILE)
    assert fleet.settings_of(fleet.clusters[0]) == (
        "strategies.duplicates.weight=2",
        'mode="observe"',
    )
    assert fleet.settings_of(fleet.clusters[2]) == ()
    # Nothing of this cluster is touched, and what runs write into is left alone by upgrades.
    assert "data" not in one(manifests, "ConfigMap", f"{NAME}-fleet-status")
    assert not {one["kind"] for one in manifests} & {"Lease", "ClusterRole", "ClusterRoleBinding"}


def test_kubeconfigs_come_from_a_volume_of_ones_own():
    csi = {"csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}
    fleet = {"clusters": [{"name": "eu"}], "kubeconfigVolume": csi}
    pod = pod_spec(one(render({"fleet": fleet}), "CronJob"))
    assert {"name": "kubeconfigs", **csi} in pod["volumes"]
    mount = {"name": "kubeconfigs", "mountPath": "/etc/rebalancer/kubeconfigs", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_no_pod_has_a_terminal_to_ask_on(kind):
    pod = one(render({"kind": kind}), kind)["spec"]
    template = pod["jobTemplate"]["spec"]["template"] if kind == "CronJob" else pod["template"]
    assert "--yes" in template["spec"]["containers"][0]["args"]


def served(values=None):
    """What is rendered of a Deployment, and its container."""
    manifests = render({"kind": "Deployment", **(values or {})})
    assert not [each for each in manifests if each["kind"] == "CronJob"]
    pod = one(manifests, "Deployment")["spec"]["template"]["spec"]
    return manifests, pod["containers"][0]


@pytest.mark.parametrize(
    ("every", "says"), [("*/5 * * * *", ["--time-zone=Asia/Tokyo"]), ("2m", [])]
)
def test_the_time_zone_is_that_of_a_cron_expression(every, says):
    _, container = served({"serve": {"every": every}, "timeZone": "Asia/Tokyo"})
    assert [one for one in container["args"] if "time-zone" in one] == says


def test_a_deployment_has_the_rights_of_a_run_and_arguments_that_serve_knows():
    manifests, container = served()
    name = f"rebalancing-{NAME}"
    cron_job = render()
    for kind, wanted in (("ClusterRole", name), ("Role", NAME)):
        assert rules(one(manifests, kind, wanted)) == rules(one(cron_job, kind, wanted))
    known = {flag for parameter in serve_command.params for flag in parameter.opts}
    arguments = container["args"]
    assert arguments[0] == "serve"
    assert {argument.partition("=")[0] for argument in arguments[1:]} <= known
    assert f"--lease=rebalancing/{NAME}" in arguments
    assert not [argument for argument in arguments if argument.startswith("--show-")]


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_deployment_that_does_not_enforce_may_only_read_and_follow(mode):
    manifests, container = served({"mode": mode})
    bound = one(manifests, "ClusterRoleBinding")["roleRef"]["name"]
    watches = {*FOLLOW_RULES, AccessRule("watch", "", "pods")}
    assert rules(one(manifests, "ClusterRole", bound)) == {*READ_RULES, *watches}
    assert not [argument for argument in container["args"] if argument.startswith("--lease")]


def test_a_deployment_is_probed_where_it_listens():
    manifests, container = served({"serve": {"port": 9999, "service": {"enabled": True}}})
    assert container["ports"] == [{"name": "http", "containerPort": 9999}]
    assert "--listen=:9999" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    spec = one(manifests, "Deployment")["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    labels = spec["template"]["metadata"]["labels"]
    selectors = (spec["selector"]["matchLabels"], one(manifests, "Service")["spec"]["selector"])
    for selector in selectors:
        assert selector.items() <= labels.items()
        # No pod of a Job of this release.
        assert selector["app.kubernetes.io/component"] == "serve"


def test_processes_that_stand_by_prefer_other_zones_and_nodes():
    affinity: dict[str, Any] = {"nodeAffinity": {}}
    manifests = render({"kind": "Deployment", "serve": {"replicas": 2}, "affinity": affinity})
    spec = one(manifests, "Deployment")["spec"]
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}
    assert all(one["labelSelector"] == spec["selector"] for one in spread)
    assert spec["template"]["spec"]["affinity"] == affinity
    alone = one(render({"kind": "Deployment"}), "Deployment")["spec"]["template"]["spec"]
    assert "topologySpreadConstraints" not in alone


def test_a_monitor_scrapes_the_service_of_serve():
    monitor = {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}
    manifests = render(
        {"kind": "Deployment", "serve": {"service": {"enabled": True, "monitor": monitor}}}
    )
    service, scraped = one(manifests, "Service"), one(manifests, "ServiceMonitor")
    wanted = scraped["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert scraped["spec"]["endpoints"] == [{"port": port["name"], "interval": "15s"}]
    assert scraped["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize("values", [{}, {"suspend": True}, {"mode": "observe"}])
def test_no_hook_of_an_install_or_upgrade_starts_a_run_also_where_a_release_has_runnow(values):
    manifests = render({**values, "runNow": {"enabled": True}})
    hooks = [m["metadata"].get("annotations", {}).get("helm.sh/hook") for m in manifests]
    assert {hook for hook in hooks if hook} == {"test"}
    assert manifests == render(values)


def test_every_strategy_that_is_known_is_known_to_the_chart():
    with pytest.raises(HelmError) as refused:
        render({"strategies": {"nonsense": {}}})
    named = str(refused.value).partition("there are ")[2].partition(".")[0]
    assert named.split(", ") == sorted(Registry.installed().keys())


def test_a_suspended_deployment_has_no_pods():
    manifests, _ = served({"suspend": True, "serve": {"replicas": 2}})
    assert one(manifests, "Deployment")["spec"]["replicas"] == 0


def test_a_deployment_s_network_policy_lets_its_port_in():
    manifests, _ = served({"networkPolicy": {"enabled": True}})
    ports = [{"protocol": "TCP", "port": 8080}]
    assert one(manifests, "NetworkPolicy")["spec"]["ingress"] == [{"ports": ports}]


def test_the_job_is_tried_once_and_ends_before_the_next_tick():
    cron_job = one(render(), "CronJob")["spec"]
    job = cron_job["jobTemplate"]["spec"]
    deadline = int(re.findall(r"--deadline=(\d+)", str(job))[0])
    grace = job["template"]["spec"]["terminationGracePeriodSeconds"]
    assert cron_job["schedule"] == "*/2 * * * *"
    assert cron_job["concurrencyPolicy"] == "Forbid"
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert deadline + 15 < job["activeDeadlineSeconds"]
    assert job["activeDeadlineSeconds"] + grace <= 120


RBAC = "rbac.authorization.k8s.io"
SHA = "sha256:" + "a" * 64
CHANGED = {
    "mode": "observe",
    "policy": {"eagerness": "eager"},
    "strategies": {"duplicates": {"weight": 2}},
    "extraStrategies": {"by-moon-phase": {"phase": "full"}},
    "existingPolicy": "mine",
    "output": "json",
    "logFormat": "json",
    "namespace": "shop",
    "extraArgs": ["--max-requests=4"],
    "sharedState": "other/rebalancer-kube",
    "machineState.enabled": True,
    "kind": "Deployment",
    "serve.every": "*/3 * * * *",
    "serve.replicas": 3,
    "serve.port": 18080,
    "serve.showReport": True,
    "serve.showPage": True,
    "serve.pageHosts": ["rebalancer.example.com"],
    "serve.service.enabled": True,
    "serve.service.annotations": {"prometheus.io/scrape": "true"},
    "serve.service.monitor.enabled": True,
    "serve.service.monitor.labels": {"release": "prometheus"},
    "serve.service.monitor.interval": "17s",
    "fleet.clusters": [
        {
            "name": "prod-eu",
            "secretName": "eu-access",
            "key": "config",
            "labels": {"env": "prod"},
            "policy": {"eagerness": "timid", "strategies": {"taints": {"weight": 3}}},
        }
    ],
    "fleet.policies": [{"labels": {"env": "lab"}, "policy": {"eagerness": "relentless"}}],
    "fleet.kubeconfigVolume": {"csi": {"driver": "secrets.test"}},
    "fleet.maxClustersAtOnce": 1,
    "fleet.lateAfter": "47m",
    "fleet.member.enabled": True,
    "fleet.member.token": True,
    "schedule": "0 22 * * *",
    "timeZone": "Asia/Tokyo",
    "suspend": True,
    "startingDeadlineSeconds": 33,
    "runDeadlineSeconds": 44,
    "activeDeadlineSeconds": 155,
    "terminationGracePeriodSeconds": 7,
    "successfulJobsHistoryLimit": 1,
    "failedJobsHistoryLimit": 2,
    "ttlSecondsAfterFinished": 99,
    "image.repository": "registry.test/rebalancer",
    "image.tag": "9.9.9",
    "image.digest": SHA,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "secret"}],
    "nameOverride": "other",
    "fullnameOverride": "entirely-other",
    "namespaceOverride": "elsewhere",
    "commonLabels": {"team": "blue"},
    "commonAnnotations": {"note": "common"},
    "cronJobLabels": {"l": "cron-job"},
    "cronJobAnnotations": {"a": "cron-job"},
    "jobLabels": {"l": "job"},
    "jobAnnotations": {"a": "job"},
    "podLabels": {"l": "pod"},
    "podAnnotations": {"a": "pod"},
    "usage.secretName": "prometheus-reader",
    "rbac.admissionPolicy": True,
    "rbac.autoscalers": True,
    "rbac.capacityBuffers": True,
    "rbac.clusterApi": "clusters",
    "rbac.deletePods": True,
    "rbac.deletionCosts": True,
    "rbac.events": True,
    "rbac.namespacePolicies": True,
    "rbac.evictionRequests": True,
    "rbac.karpenter": True,
    "rbac.podGroups": True,
    "rbac.devices": True,
    "rbac.create": False,
    "rbac.marks": True,
    "rbac.nodeConditions": True,
    "rbac.restarts": True,
    "rbac.schedulerConfig": "kube-system/packing",
    "rbac.usage": True,
    "rbac.volumeAttachments": True,
    "drain.enabled": True,
    "drain.serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"},
    "drain.subjects": [{"kind": "Group", "apiGroup": RBAC, "name": "node-admins"}],
    "nodeAgent.enabled": True,
    "nodeAgent.every": "7s",
    "nodeAgent.imds": "http://[fd00:ec2::254]",
    "nodeAgent.admissionPolicy": False,
    "nodeAgent.resources": {"requests": {"cpu": "11m"}},
    "nodeAgent.priorityClassName": "another-class",
    "nodeAgent.nodeSelector": {"on": "ec2"},
    "nodeAgent.affinity": {"podAffinity": {}},
    "nodeAgent.tolerations": [{"key": "spot"}],
    "record.enabled": True,
    "record.schedule": "7 * * * *",
    "record.keep": "13d",
    "record.maxSize": "11Gi",
    "record.claim": "another-claim",
    "record.redactKeySecret": "another-secret",
    "serviceAccount.create": False,
    "serviceAccount.name": "another",
    "serviceAccount.annotations": {"role": "arn"},
    "resources": {"requests": {"cpu": "1"}},
    "priorityClassName": "system-cluster-critical",
    "schedulerName": "another",
    "runtimeClassName": "gvisor",
    "nodeSelector": {"pool": "system"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"operator": "Exists"}],
    "dnsPolicy": "Default",
    "dnsConfig": {"nameservers": ["192.0.2.1"]},
    "hostNetwork": True,
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.test"}],
    "extraVolumes": [{"name": "x", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
    "podSecurityContext": {"runAsUser": 7},
    "securityContext": {"runAsUser": 8},
    "networkPolicy.enabled": True,
    "networkPolicy.apiServer.cidrs": ["192.0.2.7/32"],
    "networkPolicy.apiServer.ports": [16443],
    "networkPolicy.extraEgress": [{"ports": [{"port": 9091}]}],
    "networkPolicy.ingressFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
    "metrics.job": "another-job",
    "metrics.push.url": "http://pushgateway.test:9091",
    "metrics.push.secretName": "pushgateway",
    "metrics.file": "/textfile/rebalancer.prom",
    "metrics.rules.enabled": True,
    "metrics.rules.labels": {"release": "prometheus"},
    "metrics.rules.runbookUrl": "https://git.example.com/docs/metrics.md",
    "metrics.rules.periodSeconds": 500,  # shows as three periods: 1500
    "metrics.dashboard.enabled": True,
    "metrics.dashboard.labels": {"grafana": "yes"},
    "notify.secretName": "chat",
    "notify.template": "slack",
}
FLEET = {
    "fleet": {"clusters": [{"name": name, "secretName": name} for name in ("prod-eu", "prod-us")]}
}
PUSHED = {"push": {"url": "http://pushgateway"}}
NEEDS: dict[str, dict[str, Any]] = {
    "networkPolicy.apiServer": {"networkPolicy": {"enabled": True}},
    "networkPolicy.extraEgress": {"networkPolicy": {"enabled": True}},
    "networkPolicy.ingressFrom": {"kind": "Deployment", "networkPolicy": {"enabled": True}},
    "drain": {"drain": {"enabled": True}},
    "nodeAgent": {"nodeAgent": {"enabled": True}},
    "record": {"record": {"enabled": True, "claim": "recorded"}},
    "record.enabled": {"record": {"claim": "recorded"}},
    "serve": {"kind": "Deployment"},
    "serve.service.monitor": {
        "kind": "Deployment",
        "serve": {"service": {"enabled": True, "monitor": {"enabled": True}}},
    },
    "serve.service.monitor.enabled": {
        "kind": "Deployment",
        "serve": {"service": {"enabled": True}},
    },
    "serve.service": {"kind": "Deployment", "serve": {"service": {"enabled": True}}},
    "serve.service.enabled": {"kind": "Deployment"},
    "fleet": FLEET,
    "fleet.clusters": {},
    "fleet.member.enabled": {},
    "fleet.member": {"fleet": {"member": {"enabled": True}}},
    "machineState.enabled": {"kind": "Deployment"},
    "rbac.clusterApi": {"kind": "Deployment"},
    "rbac.deletePods": {"kind": "Deployment"},
    "rbac.volumeAttachments": {"kind": "Deployment"},
    "metrics.job": {"metrics": PUSHED},
    "metrics.rules": {"metrics": {**PUSHED, "rules": {"enabled": True}}},
    "metrics.rules.enabled": {"metrics": PUSHED},
    "metrics.dashboard": {"metrics": {**PUSHED, "dashboard": {"enabled": True}}},
    "metrics.dashboard.enabled": {"metrics": PUSHED},
    "notify.template": {"notify": {"secretName": "chat"}},
}
"""What has to be switched on for a value, or for all values under a path, to show."""


def test_every_value_has_an_example_here():
    assert set(CHANGED) == {".".join(path) for path in own_paths()}


_SERVED: dict[str, Any] = {**_PROVIDED, "kind": "Deployment"}
ESCALATE = {"interruption": {"steps": ["leave", {"step": "escalate", "means": "delete"}]}}


@pytest.mark.parametrize(
    ("values", "patches", "deletes"),
    [
        ({}, False, False),
        ({"kind": "Deployment"}, False, False),
        ({**_SERVED, "strategies": {"scale-in": {}}}, True, False),
        ({**_SERVED, "strategies": {"mine": {"strategy": "scale-in"}}}, True, False),
        ({**_PROVIDED, "strategies": {"scale-in": {"mode": "observe"}}}, False, False),
        ({**_SERVED, "strategies": {"scale-out": {}}}, False, False),
        ({"kind": "Deployment", "policy": {"signals": {"kubernetes": {}}}}, True, False),
        ({"policy": {"signals": {"kubernetes": {}}, **ESCALATE}}, False, False),
        ({"kind": "Deployment", "policy": ESCALATE}, False, False),
        ({"kind": "Deployment", "policy": {"signals": {"kubernetes": {}}, **ESCALATE}}, True, True),
        ({"kind": "Deployment", "existingPolicy": "mine"}, False, False),
        (
            {"kind": "Deployment", "existingPolicy": "mine", "rbac": {"deletePods": True}},
            False,
            True,
        ),
        ({"existingPolicy": "mine", "rbac": {"marks": True, "deletePods": True}}, True, False),
    ],
)
def test_nodes_are_changed_and_pods_deleted_only_where_the_policy_does_so(values, patches, deletes):
    rules = [
        rule for each in render(values) if each["kind"] == "ClusterRole" for rule in each["rules"]
    ]
    rights = {
        (verb, of) for rule in rules for verb in rule["verbs"] for of in rule.get("resources", ())
    }
    assert (("patch", "nodes") in rights, ("delete", "pods") in rights) == (patches, deletes)


@pytest.mark.parametrize("path", sorted(CHANGED))
def test_every_value_changes_what_is_rendered(path):
    above = {} if path.endswith(".enabled") else NEEDS.get(path.rpartition(".")[0], {})
    base: Any = NEEDS.get(path, above)
    wanted = CHANGED[path]
    changed = wanted
    for part in reversed(path.split(".")):
        changed = {part: changed}
    both = merged(base, changed)
    before, after = json.dumps(render(base)), json.dumps(render(both))
    assert before != after
    for word in words(wanted):
        assert word in after or all(part in after for part in word.split("/"))


def merged(left, right):
    both = dict(left)
    for key, value in right.items():
        both[key] = merged(left[key], value) if isinstance(left.get(key), dict) else value
    return both


def words(value):
    """All text and numbers inside a value."""
    if isinstance(value, dict):
        return [word for item in value.values() for word in words(item)]
    if isinstance(value, list):
        return [word for item in value for word in words(item)]
    return [] if isinstance(value, bool) else [str(value)]


def test_one_more_of_a_strategy_has_a_file_of_its_own(tmp_path):
    given = {"strategy": "topology-spread", "select": {"namespaces": ["shop"]}}
    avoid = {"avoid": {"capacity": "spot"}}
    manifests = render({"strategies": {"spread-shop": given, "placement": avoid}})
    policy = policy_of(manifests, tmp_path).policy
    assert policy.strategy_of("spread-shop") == "topology-spread"
    assert policy.strategies["spread-shop"].select == Select.model_validate(given["select"])
    assert "placement" in policy.strategies


_NIGHT = {"allow": "0 1 * * *", "for": "1h"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "enforced"}, "mode"),
        ({"schedule": "every 2m"}, "schedule"),
        ({"schedule": "@fortnightly"}, "schedule"),
        ({"schedule": "61 * * * *"}, r'schedule: "61" is no minute \(0-59\) in "61 \* \* \* \*"'),
        ({"schedule": "0 24 * * *"}, 'schedule: "24" is no hour'),
        ({"schedule": "0 0 1,32 * *"}, 'schedule: "1,32" is no day'),
        ({"schedule": "0 0 1 okt *"}, 'schedule: "okt" is no month'),
        ({"schedule": "0 0 * * 7"}, 'schedule: "7" is no weekday'),
        ({"schedule": "*/0 * * * *"}, r'schedule: "\*/0" is no minute'),
        (
            {"record": {"enabled": True, "claim": "kept", "schedule": "* 25 * * *"}},
            'record.schedule: "25" is no hour',
        ),
        ({"resources": {"requests": {"cpu": "lots"}}}, "cpu"),
        ({"resources": {"memory": "1Gi"}}, "memory"),
        ({"replicas": 3}, "replicas"),
        ({"policy": {"budgets": {"perRum": 3}}}, "perRum"),
        ({"policy": {"protect": {"minPodAge": ""}}}, "minPodAge"),
        # What Helm prints of a pattern begins with an example.
        ({"policy": {"protect": {"minPodAge": "five"}}}, r"pattern '\^90s\$"),
        ({"policy": {"mode": "observe"}}, "policy.mode: mode is a value of the chart: write it"),
        (
            {"policy": {"strategies": {"duplicates": {}}}},
            "policy.strategies: strategies is a value",
        ),
        ({"strategies": {"duplicate": {}}}, "strategies.duplicate: there is no such strategy"),
        (
            {"strategies": {"low-utilization": {"under": {"cpu": "20%"}}}},
            "strategies.low-utilization: there is no such strategy; there are .*, low-utilisation,",
        ),
        ({"strategies": {"mine": {"strategy": "duplicates", "selekt": {}}}}, "selekt"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"runDeadlineSeconds": 100}, "runDeadlineSeconds"),
        ({"extraStrategies": {"duplicates": {}}}, "strategies.duplicates"),
        ({"fleet": {"clusters": [{"name": "a"}]}}, "a needs secretName"),
        ({"fleet": {"clusters": [{"name": "A", "secretName": "a"}]}}, "name"),
        (
            {"fleet": {"clusters": [{"name": "a", "secretName": "a"}] * 2}},
            "fleet.clusters: a is there twice",
        ),
        ({**FLEET, "kind": "Deployment"}, "kind: CronJob"),
        ({**FLEET, "metrics": {"file": "/x.prom"}}, "metrics.file"),
        ({**FLEET, "drain": {"enabled": True}}, "drain.enabled"),
        ({"fleet": {**FLEET["fleet"], "member": {"enabled": True}}}, "use two releases"),
        ({"fleet": {"policies": [{"policy": {"eagernes": "timid"}}]}}, "eagernes"),
        ({"existingPolicy": "mine", "policy": {"eagerness": "eager"}}, "existingPolicy"),
        # What the policy would refuse at each run.
        ({"policy": {"windows": [{"allow": "60 1 * * *", "for": "1h"}]}}, "windows/0/allow"),
        ({"policy": {"windows": [{"allow": "0 1 * *", "for": "1h"}]}}, "windows/0/allow"),
        ({"policy": {"windows": [{"for": "1h"}]}}, "windows/0"),
        ({"policy": {"windows": [{"allow": "0 1 * * *", "for": "0s"}]}}, "windows/0/for"),
        ({"policy": {"budgets": {"perRun": "101%"}}}, "budgets/perRun"),
        (
            {"strategies": {"consolidation": {}}},
            "low-utilisation spreads nodes that strategies.consolidation packs",
        ),
        ({"strategies": {"pack": {"strategy": "consolidation"}}}, "strategies.pack packs"),
        (
            {"strategies": {"consolidation": {"select": {"nodes": {"pool": "a"}}}}},
            "strategies.consolidation packs",
        ),
        ({"strategies": {"slots": {}}}, "strategies.slots: slots needs free"),
        ({"strategies": {"gpus": {"strategy": "slots", "count": 2}}}, "gpus: slots needs free"),
        ({"strategies": {"placement": {"hard": True}}}, "placement needs avoid, prefer or order"),
        (
            {"strategies": {"placement": {"order": [{"a": "b"}], "avoid": {"c": "d"}}}},
            "order takes the place",
        ),
        ({"strategies": {"lifetime": {}}}, "lifetime needs maxPodLifeTime"),
        # What is said counts beside the defaults: over is 50 %.
        (
            {"strategies": {"low-utilisation": {"under": {"cpu": "70%"}}}},
            r"under.cpu is above over.cpu",
        ),
        (
            {"strategies": {"low-utilisation": {"under": {"nvidia.com/gpu": "10%"}}}},
            "under and over must name the same resources",
        ),
        (
            {"policy": {"windows": [{**_NIGHT, "timeZone": "Europe/Atlantis"}]}},
            'policy: windows: "Europe/Atlantis" is no time zone',
        ),
        (
            {"strategies": {"duplicates": {"windows": [{**_NIGHT, "timeZone": "Berlin"}]}}},
            'duplicates: windows: "Berlin" is no time zone',
        ),
        ({"timeZone": "Asia/Tokio"}, 'timeZone: "Asia/Tokio" is no time zone'),
        ({"kind": "Deployment", "timeZone": "Asia/Tokio"}, '"Asia/Tokio" is no time zone'),
        (
            {"kind": "Deployment", "serve": {"service": {"monitor": {"enabled": True}}}},
            "monitor.enabled needs serve.service.enabled",
        ),
        ({"kind": "Deployment", "serve": {"every": "2x"}}, "every"),
        ({"kind": "Deployment", "serve": {"every": "0 22 * *"}}, "every"),
        ({"kind": "Deployment", "serve": {"every": "61 * * * *"}}, "every"),
        ({"strategies": {"scale-in": {}}}, "scale-in needs policy.provider"),
        ({"strategies": {"more": {"strategy": "scale-out"}}}, "scale-out needs policy.provider"),
    ],
)
def test_wrong_values_are_refused_and_named(values, message):
    with pytest.raises(HelmError, match=message):
        render(values)


@pytest.mark.parametrize(
    "values",
    [
        {"strategies": {"consolidation": {}, "low-utilisation": {"mode": "off"}}},
        {"strategies": {"consolidation": {"mode": "observe"}}},
        {"mode": "observe", "strategies": {"consolidation": {}}},
        {
            "strategies": {
                "consolidation": {"select": {"nodes": {"pool": "a"}}},
                "low-utilisation": {"select": {"nodes": {"pool": "b"}}},
            }
        },
        {"strategies": {"scale-in": {"mode": False}}},
        {"strategies": {"slots": {"free": {"cpu": 4}}, "placement": {"prefer": {"a": "b"}}}},
        {"strategies": {"low-utilisation": {"under": {"cpu": "50%"}}}},
        {"strategies": {"low-utilisation": {"under": {"cpu": "70%"}, "deviation": True}}},
        *(
            {"policy": {"windows": [{**_NIGHT, "timeZone": zone}]}}
            for zone in ("Asia/Tokyo", "UTC", "Etc/UTC", "Europe/London", "Antarctica/Troll")
        ),
        {**_SERVED, "strategies": {"scale-out": {}}},
        {"policy": {"windows": [{"deny": "*/5,59 0-23/2 * jan-mar mon", "for": "1m"}]}},
        {"schedule": "@daily"},
        {"schedule": "*/5,059 0-23/2 ? jan-MAR,12 Sun-6"},
    ],
)
def test_what_the_policy_takes_is_not_refused_before(values, tmp_path):
    policy_of(render(values), tmp_path)


def test_what_is_off_says_so_in_the_files():
    values = {
        "policy": {"steer": False, "eagerness": "eager"},
        "strategies": {"duplicates": {"mode": False}, "leaving": {"mode": False}},
    }
    data = one(render(values), "ConfigMap", f"{NAME}-policy")["data"]
    assert 'steer: "off"' in data["rebalancer.yaml"]
    assert 'mode: "off"' in data["duplicates.yaml"]
    assert 'mode: "off"' in data["leaving.yaml"]
    assert "false" not in data["leaving.yaml"]


@pytest.mark.parametrize(
    "asked",
    [
        USAGE_RULES,
        AUTOSCALER_RULES,
        SCALE_OUT_RULES,
        BUFFER_RULES,
        POD_GROUP_RULES,
        DEVICE_RULES,
        MARK_RULES,
        CONDITION_RULES,
        ATTACHMENT_RULES,
        RESTART_RULES,
        DRAIN_RULES,
        ACT_RULES,
        (DELETE,),
        (AccessRule("list", "cluster.x-k8s.io", "machines", "capi"),),
    ],
)
def test_values_that_an_error_names_grant_what_is_missing(asked):
    values: dict[str, Any] = {"existingPolicy": "mine", "kind": "Deployment"}
    for value in name_values(asked):
        path, _, said = value.partition(": ")
        *section, key = path.split(".")
        under = values.setdefault(section[0], {}) if section else values
        under[key] = yaml.safe_load(said)
    roles = (m for m in render(values) if m["kind"] in ("ClusterRole", "Role"))
    granted = {replace(rule, name="") for role in roles for rule in rules(role)}
    assert set(asked) <= granted


@pytest.mark.parametrize("on_host", [False, True])
def test_a_deployment_on_the_hosts_network_lets_an_old_pod_go_first(on_host):
    manifests = render({"kind": "Deployment", "serve": {"replicas": 2}, "hostNetwork": on_host})
    spec = one(manifests, "Deployment")["spec"]
    first = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    assert spec.get("strategy") == (first if on_host else None)


def test_the_chart_knows_each_strategy_that_is_installed_with_it():
    with pytest.raises(HelmError) as refused:
        render({"strategies": {"duplicate": {}}})
    (listed,) = re.findall(r"there are (.*?)\. One more", str(refused.value))
    installed = {one.name for one in entry_points(group="rebalancer.strategies")}
    assert set(listed.split(", ")) == installed
