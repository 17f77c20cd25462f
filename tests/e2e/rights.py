"""What runs are allowed, beside what they have asked of the API server by its own audit log."""

from rebalancer.kube.access import (
    ATTACHMENT_RULES,
    AUTOSCALER_FOLLOW_RULES,
    AUTOSCALER_RULES,
    CLAIM_RULES,
    CONDITION_RULES,
    DRAIN_RULES,
    POD_GROUP_RULES,
    SCALE_OUT_RULES,
    USAGE_RULES,
    config_map_rules,
    lease_rules,
)
from rebalancer.kube.client import USER_AGENT
from rebalancer.kube.evict import RESTART_RULES
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.seldom_read import DEVICE_RULES
from rebalancer.machines.interruption.steps.pods import DELETE
from rebalancer.wire.kinds import ALL_POD_GROUPS, KARPENTER, OF_DEVICES, POD_GROUPS
from tests.controlplane import audit
from tests.e2e.installed import NAMESPACE, Installed

OPTIONAL = dict.fromkeys(
    ("usage", "restarts", "autoscalers", "events", "capacityBuffers", "deletionCosts"), True
)
ASKING = (
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
)
"""Kubernetes lets everybody ask what they may do, and who they are."""


def asked(log, *, answered_well=False):
    """What runs have asked for (and got, with ``answered_well``), as rules, but for asking what they may."""
    rights = set()
    for request in log.requests():
        if request.agent != USER_AGENT or request.kind in ASKING:
            continue
        if answered_well and request.code >= 400:
            continue
        what = (request.verb, request.group, request.resource)
        rights.add(AccessRule(*what, request.namespace, request.name))
    return rights


def covers(granted, wanted):
    """Whether a granted rule allows what was used; of a cluster's rule neither namespace nor name matter."""
    same = (granted.verb, granted.group, granted.resource) == (
        wanted.verb,
        wanted.group,
        wanted.resource,
    )
    where = granted.namespace in ("", wanted.namespace)
    return same and where and granted.name in ("", wanted.name)


def granted(installed, *, acting):
    api, name = installed.api, f"{NAMESPACE}-{installed.name}"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    roles = [
        (api.get(f"{rbac}/clusterroles/{name}{'' if acting else '-observe'}"), ""),
        (api.get(f"{rbac}/namespaces/{NAMESPACE}/roles/{installed.name}"), NAMESPACE),
    ]
    return {
        AccessRule(verb, group, resource, namespace, name)
        for role, namespace in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in (*rule.get("resources", ()), *rule.get("nonResourceURLs", ()))
        for name in rule.get("resourceNames", [""])
    }


def missing(rules, wanted):
    return [rule for rule in wanted if not any(covers(has, rule) for has in rules)]


def unused(rules, wanted):
    return [has for has in rules if not any(covers(has, rule) for rule in wanted)]


def check_all_runs(plane, folder):
    """Check that no run on ``plane``, since it was started, has asked for more than the chart can grant.

    It installs a release with all that the chart grants on request, and runs it once.
    """
    log = audit.AuditLog(plane.audit_log, whole=True)
    plane.reset()
    # The chart grants these where the policy asks for what needs them, as its own tests show.
    installed = Installed(plane, folder, rbac=OPTIONAL)
    rules = granted(installed, acting=True)
    assert {*USAGE_RULES, *RESTART_RULES, *AUTOSCALER_RULES, *AUTOSCALER_FOLLOW_RULES} <= rules
    assert set(SCALE_OUT_RULES) <= rules
    # And these to the account of drains, of which tests/e2e/test_emptying_nodes.py has one, and to runs that act on machines.
    rules |= {*DRAIN_RULES, *lease_rules("default", "turns")}
    rules |= {*config_map_rules("default", "machines")}
    # And this to what says on nodes that they are emptied (tests/e2e/test_node_conditions.py).
    rules |= set(CONDITION_RULES)
    # And this to what ends machines.
    rules |= set(ATTACHMENT_RULES)
    # And these to pipelines whose steps keep apart what they have to give back.
    rules |= {*config_map_rules("default", "kept")}
    # And this to what may escalate, by a policy of tests/e2e/test_interruption_kills.py.
    rules |= {DELETE}
    # And these people have themselves: a comparison as a Job runs with their rights (tests/e2e/test_compare_jobs.py).
    rules |= {AccessRule("get", "batch", "cronjobs")}
    # Likewise who asks why a pod moved: history, explain, doctor and advise look for the memory of a release and read it,
    # and doctor its Lease, and programs that CronJobs start. No account of the chart has these for another release.
    rules |= {*config_map_rules("default", "mover-memory"), *lease_rules("default", "mover")}
    rules |= {AccessRule("list", "", "configmaps"), AccessRule("list", "batch", "cronjobs")}
    rules |= {AccessRule(verb, "batch", "jobs") for verb in ("create", "get", "delete")}
    # And these have the pods of a fleet where they run (tests/e2e/test_fleet.py, which checks that they ask for nothing else).
    rules |= {AccessRule(verb, "", "configmaps", NAMESPACE) for verb in ("get", "patch")}
    # And these has who records a cluster: rbac.podGroups and rbac.devices; a server that does not serve them answers with what it serves.
    rules |= {*POD_GROUP_RULES, *CLAIM_RULES, *DEVICE_RULES}
    rules |= {
        AccessRule("get", "", f"/apis/{version}")
        for version in (
            "scheduling.k8s.io/v1alpha2",
            *(one.api_version for one in ALL_POD_GROUPS if one is not POD_GROUPS),
            KARPENTER[0].api_version,
            OF_DEVICES[0].api_version,
        )
    }
    assert installed.run().code == 0
    assert any(request.agent == USER_AGENT for request in log.requests())
    lacking = missing(rules, asked(log))
    assert lacking == [], lacking
