"""The rights that a run needs, and a check that finds all missing rights at once.

A forbidden list fails when it is read. Rights to write are checked in advance, because the first eviction would be
too late to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.deletion_costs import CHANGE_POD
from rebalancer.kube.evict import RESTART_RULES
from rebalancer.kube.eviction_requests import REQUEST_RULES
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.lists import list_whole
from rebalancer.kube.node_pods import READ_DAEMON_SET
from rebalancer.kube.nodes import CHANGE_CONDITIONS, CHANGE_NODE, READ_NODE
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import (
    ALL_POD_GROUPS,
    ASKED_FOR,
    CONFIG_MAPS,
    EVENTS,
    KARPENTER,
    LEADER_WORKER_SETS,
    LEASES,
    LISTED,
    METRICS,
    NAMESPACES,
    PODS,
    VOLUME_ATTACHMENTS,
    Resource,
)

READ_RULES = (
    AccessRule("get", "", "/version"),
    *(AccessRule.of("list", resource) for resource in LISTED),
)
"""Rights for a dry run."""

USAGE_RULES = tuple(AccessRule.of("list", resource) for resource in METRICS)
"""Rights for a run, dry or not, whose policy judges nodes by measured usage."""

AUTOSCALER_RULES = tuple(AccessRule.of("list", resource) for resource in ASKED_FOR)
"""Rights for a run, dry or not, whose policy has ``protect.afterScaling``."""

AUTOSCALER_FOLLOW_RULES = tuple(replace(rule, verb="watch") for rule in AUTOSCALER_RULES)
"""Rights to follow what AUTOSCALER_RULES lists, by watches; see FOLLOW_RULES."""

SCALE_OUT_RULES = (AccessRule.of("list", EVENTS),)
"""Rights for a run, dry or not, whose policy makes room for pods that wait, see ``rebalancer.kube.read.read_scale_outs``."""

ACT_RULES = (
    AccessRule.of("get", PODS),
    AccessRule.of("watch", PODS),
    AccessRule("create", "", f"{PODS.plural}/eviction"),
)
"""Rights for a run that evicts, in addition to READ_RULES."""


def act_rules(
    namespace: str | None,
    *,
    restarts: bool = False,
    requests: bool = False,
    writes_costs: bool = False,
) -> tuple[AccessRule, ...]:
    """Return ACT_RULES, plus RESTART_RULES for a run that ``restarts``, REQUEST_RULES for one that ``requests`` evictions, and CHANGE_POD for one that ``writes_costs``.

    If the run is limited to ``namespace``, the right to move and change pods is needed only there.
    """
    costs = (CHANGE_POD,) if writes_costs else ()
    methods = (*(RESTART_RULES if restarts else ()), *(REQUEST_RULES if requests else ()))
    rules = (*ACT_RULES, *methods, *costs)
    if namespace is None:
        return rules
    return tuple(
        replace(rule, namespace=namespace)
        if rule.resource.endswith("/eviction") or rule in (*methods, CHANGE_POD)
        else rule
        for rule in rules
    )


FOLLOW_RULES = tuple(
    AccessRule.of("watch", resource) for resource in LISTED if resource is not PODS
)
"""Rights to watch, from wave to wave, the objects that were read. Without them a run lists them again, and its report notes that."""


def list_pod_groups(groups: Resource) -> AccessRule:
    """Return the right to list PodGroups of one project.

    Without it pods that name a PodGroup of Kubernetes are not moved, and other gangs move as a whole or not at all.
    """
    return AccessRule.of("list", groups)


POD_GROUP_RULES = (
    *map(list_pod_groups, ALL_POD_GROUPS),
    AccessRule.of("get", LEADER_WORKER_SETS),
)
"""Rights to read PodGroups. Runs use them for the kinds that pods name, ``snapshot`` for all kinds that are served."""

CLAIM_RULES = tuple(AccessRule.of("list", resource) for resource in KARPENTER)
"""Rights to read what Karpenter does with its nodes. Runs use them if nodes are Karpenter's; without them a note names what is not known."""

MARK_RULES = (READ_NODE, CHANGE_NODE)
"""Rights for a run whose policy steers, and for ``rebalancer marks --clear``."""

CONDITION_RULES = (READ_NODE, CHANGE_CONDITIONS)
"""Rights to set conditions on nodes that are being emptied. Without them nodes are emptied all the same, with a warning."""

ATTACHMENT_RULES = (AccessRule.of("list", VOLUME_ATTACHMENTS),)
"""Rights to wait until volumes are detached from an empty node. Its machine is ended then. Without them the node's status has to do."""

EVENT_RULES = (AccessRule.of("create", EVENTS),)
"""Rights to report evictions in Events. Without them a run continues, and its report warns."""

DRAIN_RULES = (READ_NODE, CHANGE_NODE, READ_DAEMON_SET)
"""Rights to empty nodes, in addition to those of a run."""


def config_map_rules(namespace: str, name: str) -> tuple[AccessRule, ...]:
    """Return the rights on the ConfigMap of the memory or of the machine status; the chart creates it."""
    plural = CONFIG_MAPS.plural
    return tuple(AccessRule(verb, "", plural, namespace, name) for verb in ("get", "update"))


def lease_rules(namespace: str, name: str) -> tuple[AccessRule, ...]:
    """Return the rights on the Lease that prevents concurrent runs; the chart creates it."""
    return tuple(AccessRule.of(verb, LEASES, namespace, name) for verb in ("get", "update"))


def read_user(client: Client) -> str:
    """Return our user name, that of the impersonated user if there is one; empty if the API server does not say it.

    Raises:
        ClusterReadError: no answer at all.
    """
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = client.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", msgspec.json.encode(review)
    )
    try:
        return str(msgspec.json.decode(response.body)["status"]["userInfo"]["username"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def missing_rules(
    client: Client, rules: Iterable[AccessRule], *, account: str = "", threads: int = 4
) -> tuple[AccessRule, ...]:
    """Return the ``rules`` that the API server denies us, or the ServiceAccount with the user name ``account``.

    If the server refuses to answer about ourselves, no rule counts as missing: the request itself will show it.

    Raises:
        ForbiddenError: we may not ask about ``account``.
        ClusterReadError: no answer at all.
    """
    wanted = tuple(rules)
    # The first alone: a server that never answers is waited for once, not once for each that a thread takes next.
    allowed = [_is_allowed(client, rule, account) for rule in wanted[:1]]
    with ThreadPoolExecutor(threads, "access") as pool:
        allowed += pool.map(lambda rule: _is_allowed(client, rule, account), wanted[1:])
    return tuple(rule for rule, yes in zip(wanted, allowed, strict=True) if not yes)


def require(client: Client, rules: Iterable[AccessRule]) -> None:
    """Check ``rules`` before the first write.

    Raises:
        ForbiddenError: at least one is missing; the message names all, with the YAML to add.
        ClusterReadError: no answer at all.
    """
    missing = missing_rules(client, rules)
    if missing:
        raise ForbiddenError(missing, account=client.impersonated.user)


def missing_lists(
    client: Client,
    resources: Sequence[Resource],
    *,
    threads: int = 4,
    also: Sequence[AccessRule] = (),
) -> tuple[AccessRule, ...]:
    """Return the rules for those ``resources`` that we may not list, found by listing one item of each.

    The rules ``also`` are checked without a list: the metrics API cannot return a single item, and may be the server
    that does not answer.
    """

    def probe(resource: Resource) -> AccessRule | None:
        rule = AccessRule.of("list", resource)
        try:
            client.expect(client.get(resource.path(), query={"limit": 1}), rule)
        except ForbiddenError:
            return rule
        except ClusterReadError:
            return None  # another trouble, which has its own message
        return None

    with ThreadPoolExecutor(threads, "access") as pool:
        missing = tuple(rule for rule in pool.map(probe, resources) if rule is not None)
    return (*missing, *missing_rules(client, also, threads=threads))


class _Attributes(msgspec.Struct, omit_defaults=True):
    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _NonResource(msgspec.Struct):
    path: str
    verb: str


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus


_reviews = msgspec.json.Decoder(_Review)


def _is_allowed(client: Client, rule: AccessRule, account: str) -> bool:
    spec: dict[str, Any]
    if rule.resource.startswith("/"):
        spec = {"nonResourceAttributes": _NonResource(rule.resource, rule.verb)}
    else:
        resource, _, sub = rule.resource.partition("/")
        spec = {
            "resourceAttributes": _Attributes(
                rule.verb, rule.group, resource, sub, rule.namespace, rule.name
            )
        }
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    if account:
        namespace = account.split(":")[2]
        # As the API server has them for each token of a ServiceAccount.
        of_account = ("serviceaccounts", f"serviceaccounts:{namespace}", "authenticated")
        spec |= {"user": account, "groups": [f"system:{group}" for group in of_account]}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    plural = f"{kind.lower()}s"
    response = client.post(f"/apis/authorization.k8s.io/v1/{plural}", msgspec.json.encode(review))
    try:
        client.expect(response, AccessRule("create", "authorization.k8s.io", plural))
    except ClusterReadError as error:
        if account or not (isinstance(error, ForbiddenError) or response.status == 404):
            raise
        return True
    try:
        return _reviews.decode(response.body).status.allowed
    except (ValueError, RecursionError):
        return True


_SYSTEM = "kube-system"


def read_cluster_uid(client: Client) -> str:
    """Return the uid of the namespace ``kube-system``: it is unique to the cluster, and no client can set it.

    The namespace is listed, which each run may do.

    Raises:
        ForbiddenError: RBAC denied it; names the rule.
        ClusterReadError: it could not be read.
    """
    found = list_whole(client, NAMESPACES, selector=f"metadata.name={_SYSTEM}")
    uid = next((one.metadata.uid for one in found if one.metadata.name == _SYSTEM), "")
    if not uid:
        raise ClusterReadError(f"the cluster has no namespace {_SYSTEM}")
    return uid
