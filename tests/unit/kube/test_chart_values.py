import pytest

from rebalancer.kube.access import (
    ACT_RULES,
    ATTACHMENT_RULES,
    AUTOSCALER_RULES,
    CLAIM_RULES,
    CONDITION_RULES,
    DRAIN_RULES,
    MARK_RULES,
    POD_GROUP_RULES,
    READ_RULES,
    SCALE_OUT_RULES,
    USAGE_RULES,
)
from rebalancer.kube.evict import RESTART_RULES
from rebalancer.kube.eviction_requests import LIST_REQUESTS, REQUEST_RULES
from rebalancer.kube.failures import ForbiddenError, name_values
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.seldom_read import BUFFER_RULES, DEVICE_RULES, NAMESPACE_POLICY_RULES
from rebalancer.machines.interruption.steps.pods import DELETE

MACHINES = AccessRule("list", "cluster.x-k8s.io", "machines", "capi")


@pytest.mark.parametrize(
    ("rules", "values"),
    [
        (READ_RULES, ()),
        (ACT_RULES, ("mode: enforce",)),
        (USAGE_RULES, ("rbac.usage: true",)),
        (AUTOSCALER_RULES, ("rbac.autoscalers: true",)),
        (SCALE_OUT_RULES, ("rbac.events: true",)),
        (BUFFER_RULES, ("rbac.capacityBuffers: true",)),
        (NAMESPACE_POLICY_RULES, ("rbac.namespacePolicies: true",)),
        (CLAIM_RULES, ("rbac.karpenter: true",)),
        (POD_GROUP_RULES, ("rbac.podGroups: true",)),
        (DEVICE_RULES, ("rbac.devices: true",)),
        (MARK_RULES, ("rbac.marks: true",)),
        (CONDITION_RULES, ("rbac.marks: true", "rbac.nodeConditions: true")),
        (CONDITION_RULES[1:], ("rbac.nodeConditions: true",)),
        (ATTACHMENT_RULES, ("rbac.volumeAttachments: true",)),
        (RESTART_RULES, ("rbac.restarts: true",)),
        ((*LIST_REQUESTS, *REQUEST_RULES), ("rbac.evictionRequests: true",)),
        (DRAIN_RULES[-1:], ("drain.enabled: true",)),
        ((DELETE,), ("rbac.deletePods: true",)),
        ((MACHINES,), ("rbac.clusterApi: capi",)),
    ],
)
def test_the_values_that_grant_rights_are_named(rules, values):
    assert name_values(rules) == values


def test_an_error_names_the_rules_and_the_values():
    text = str(ForbiddenError(USAGE_RULES))
    assert text.endswith(
        '- {apiGroups: ["metrics.k8s.io"], resources: ["pods"], verbs: ["list"]}\n'
        "The chart gives this by rbac.usage: true. If that is set, somebody has changed the role: `helm upgrade` writes it again"
    )
    assert "chart" not in str(ForbiddenError(READ_RULES))


@pytest.mark.parametrize(
    ("user", "named"), [("jane@example.com", False), ("system:serviceaccount:ops:mover", True)]
)
def test_who_was_denied_is_named_and_a_person_gets_no_values_of_a_chart(user, named):
    said = f'pods.metrics.k8s.io is forbidden: User "{user}" cannot list resource "pods"'
    text = str(ForbiddenError(USAGE_RULES, said))
    assert text.startswith(f"forbidden: our account {user} may not list")
    assert ("rbac.usage: true" in text) is named


def test_a_list_of_config_maps_by_label_is_not_what_policies_of_namespaces_need():
    assert name_values([AccessRule("list", "", "configmaps")]) == ()
