"""The table of rights in docs/operating.md: which feature needs which right, from the rules that the code itself checks."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rebalancer.kube import access
from rebalancer.kube.deletion_costs import CHANGE_POD
from rebalancer.kube.evict import RESTART_RULES
from rebalancer.kube.eviction_requests import LIST_REQUESTS, REQUEST_RULES
from rebalancer.kube.nodes import CHANGE_NODE, READ_NODE
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.seldom_read import (
    DEVICE_RULES,
    GET_TEMPLATES,
    LIST_BUFFERS,
    NAMESPACE_POLICY_RULES,
)
from rebalancer.machines.interruption.steps.pods import DELETE

ROWS: Sequence[tuple[str, Iterable[AccessRule], str]] = (
    ("each run, also a dry run", access.READ_RULES, "always"),
    ("a run that moves pods; `drain`, `replace`", access.ACT_RULES, "`mode: enforce`"),
    ("the same, to follow the cluster (else it is listed again)", access.FOLLOW_RULES, "`mode: enforce`, `kind: Deployment`"),
    ("the same, to write Events on pods (optional)", access.EVENT_RULES, "`mode: enforce`"),
    ("`--lease`", access.lease_rules("", ""), "`mode: enforce`, on its own Lease"),
    ("`--memory`; `--machine-state` of `serve`", access.config_map_rules("", ""), "always, on its own ConfigMaps; `update` with `mode: enforce`"),
    ("`method: {singleReplicas: restart}`, `{unevictable: restart}`", RESTART_RULES, "that policy; `rbac.restarts`"),
    ("[`method.evictionRequests`](requests.md), also a dry run", LIST_REQUESTS, "that policy; `rbac.evictionRequests`"),
    ("the same, to send them", REQUEST_RULES, "that policy; `rbac.evictionRequests`"),
    ("`steer: marks`; `scale-in` and `signals` of `serve`; removing marks", access.MARK_RULES, "that policy; `rbac.marks`"),
    ("`deletion-cost`, also with `mode: off`", (CHANGE_POD,), "that policy; `rbac.deletionCosts`"),
    ("`drain`, `replace`", access.DRAIN_RULES, "`drain.enabled`"),
    ("`nodeConditions: true`, `--node-conditions` (else a warning)", access.CONDITION_RULES, "that policy; `rbac.nodeConditions`"),
    ("`scale-in` of `serve`, `replace`: wait for volumes (else the node's status)", access.ATTACHMENT_RULES, "that policy; `rbac.volumeAttachments`; `drain.enabled`"),
    ("the step `escalate` with `means: delete`", (DELETE,), "that policy; `rbac.deletePods`"),
    ("`signal` other than `requests`, without Prometheus; `snapshot --usage`", access.USAGE_RULES, "that policy; `rbac.usage`"),
    ("`protect.afterScaling`; `snapshot --autoscalers`", access.AUTOSCALER_RULES, "that policy; `rbac.autoscalers`"),
    ("the same, to follow them", access.AUTOSCALER_FOLLOW_RULES, "that policy; `rbac.autoscalers`"),
    ("`make-room`; `snapshot --events`", access.SCALE_OUT_RULES, "that policy; `rbac.events`"),
    ("`capacity.buffers: true`; `snapshot --buffers`", (LIST_BUFFERS, GET_TEMPLATES), "that policy; `rbac.capacityBuffers`"),
    ("`namespacePolicies`; `policy show -n`", NAMESPACE_POLICY_RULES, "that policy; `rbac.namespacePolicies`"),
    ("[gangs](gangs.md) of PodGroups (else such pods stay, or move as a whole)", access.POD_GROUP_RULES, "`rbac.podGroups`"),
    ("[resource claims](limits.md#resource-claims) (else such pods stay)", DEVICE_RULES, "`rbac.devices`"),
    ("nodes of Karpenter's (else what it may remove next is not known, with a warning); `snapshot`", access.CLAIM_RULES, "`rbac.karpenter`; by itself where the cluster serves them"),
    ("`node-agent`", (READ_NODE, CHANGE_NODE), "`nodeAgent.enabled`"),
)  # fmt: skip
"""Feature -> what it needs -> when the chart grants it."""


def needs() -> str:
    """Return the table in Markdown."""
    lines = ["| for | rights | the chart grants it with |", "| --- | --- | --- |"]
    lines += [f"| {use} | {_listed(rules)} | {given} |" for use, rules, given in ROWS]
    return "\n".join(lines)


def _listed(rules: Iterable[AccessRule]) -> str:
    """Return rules by their verbs; what several verbs are for stands once."""
    verbs = defaultdict[str, list[str]](list)
    for rule in rules:
        group = f".{rule.group}" if rule.group else ""
        verbs[f"{rule.resource}{group}"].append(rule.verb)
    resources = defaultdict[tuple[str, ...], list[str]](list)
    for resource, of in verbs.items():
        resources[tuple(dict.fromkeys(of))].append(resource)
    return "; ".join(
        f"{', '.join(f'`{verb}`' for verb in of)} {', '.join(sorted(every))}"
        for of, every in resources.items()
    )
