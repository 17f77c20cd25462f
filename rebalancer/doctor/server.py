"""Checks that need the API server: rights, metrics, the Lease, and the memory."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import and_more, count
from rebalancer.doctor.cluster import Started
from rebalancer.doctor.release import HELM_MAKES_IT, Known, not_known
from rebalancer.doctor.report import Check, Finding, Grade, check, finding_of, not_judged
from rebalancer.kube.access import (
    ATTACHMENT_RULES,
    AUTOSCALER_RULES,
    CONDITION_RULES,
    EVENT_RULES,
    FOLLOW_RULES,
    MARK_RULES,
    READ_RULES,
    SCALE_OUT_RULES,
    USAGE_RULES,
    act_rules,
    config_map_rules,
    lease_rules,
    missing_rules,
    read_user,
)
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.kube.eviction_requests import LIST_REQUESTS
from rebalancer.kube.failures import name_values
from rebalancer.kube.lease import Lease, holder_of
from rebalancer.kube.metrics import UsageSource, read_metrics
from rebalancer.kube.releases import StarterObject, StarterObjects
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.seldom_read import BUFFER_RULES, NAMESPACE_POLICY_RULES
from rebalancer.plan.plan import Status
from rebalancer.policy.model import Mode
from rebalancer.run.context import RunContext
from rebalancer.run.memory.document import KEY, ActingRun, Document, decode
from rebalancer.run.memory.remember import group_failures, is_refusal, list_resting
from rebalancer.run.source import UnknownState
from rebalancer.wire.kinds import CRON_JOBS, METRICS
from rebalancer.wire.times import rfc3339

_SHOWN = 3
_NOT_ASKED = "the release's Prometheus is not asked from here; --policy FILE names a policy whose Prometheus is asked"
_GRANT = "the chart grants what its values ask for{values}; by hand, add to a role:"


def list_cron_jobs(client: Client) -> Sequence[Started] | None:
    """Return the data of the CronJobs that are not suspended; None if they may not be listed."""
    path, query, found = CRON_JOBS.path(), {"limit": str(_PAGE)}, list[Started]()
    try:
        while True:
            page = _cron_jobs.decode(client.get(path, query=query).body)
            found += [_describe_pods(one) for one in page.items or () if not one.spec.suspend]
            if not page.metadata.continue_:
                return found
            query["continue"] = page.metadata.continue_
    except (ClusterReadError, msgspec.DecodeError):
        return None


def _describe_pods(one: StarterObject) -> Started:
    """Return the data of a CronJob: its own labels, and those of its pods' template."""
    template = one.template
    labels = {**(one.metadata.labels or {}), **(template.metadata.labels or {})}
    images = tuple(container.image for container in template.spec.containers or ())
    return Started(one.metadata.namespace, labels, images)


_cron_jobs = msgspec.json.Decoder(StarterObjects)
_PAGE = 500


def check_server(
    run: RunContext, client: Client, usage: UsageSource | None, known: Known
) -> tuple[tuple[Check, ...], Document | None]:
    """Return the checks that need the server, and the memory if it can be read. A check without an answer does not prevent the others.

    ``usage``: the source of measured usage; None if no strategy needs it, or it must not be queried.
    """
    rights = _ask("rights", lambda: _rights(run, client, usage, known), "", failed=Grade.NOT_JUDGED)
    if usage is None and run.rules.needs_usage:
        metrics = not_judged("metrics", _NOT_ASKED)
    else:
        metrics = _ask("metrics", lambda: _metrics(usage), _describe_source(run, usage))
    where, kept, unknown = known.state.lease, known.state.memory, known.unknown
    if where is None:
        why = unknown or UnknownState("only the memory is named")
        lease = not_known("lease", why, "; --lease NAMESPACE/NAME names one")
    else:
        lease = _ask("lease", lambda: _lease(run, client, where), "")
    document = None
    if kept is None:
        memory = not_known("memory", unknown, "; --memory NAMESPACE/NAME names one")
    else:
        ok = f"ConfigMap {'/'.join(kept)} is there and can be read"
        document, findings = _read_memory(client, kept)
        now = run.environment.clock.unix()
        memory = check("memory", (*findings, *_judge_memory(document, now)), ok)
    return (known.check_release(run), rights, metrics, lease, memory), document


def _ask(
    name: str, findings: Callable[[], Iterator[Finding]], ok: str, *, failed: Grade = Grade.PROBLEM
) -> Check:
    try:
        return check(name, findings(), ok)
    except ClusterReadError as error:
        return Check(name, (finding_of(failed, str(error)),))


def _rights(
    run: RunContext, client: Client, usage: UsageSource | None, known: Known
) -> Iterator[Finding]:
    """Yield what is missing to us, and to the ServiceAccount of the release."""
    whom = f" (as {client.impersonated})" if client.impersonated.user else ""
    ok = f"all that the policy needs{whom}"
    yield from check("rights", _missing(run, client, usage), ok).findings
    release = known.release
    if release is None or not release.account or release.account == read_user(client):
        return
    scope = replace(run.rules.scope, namespace=release.namespace)
    its = replace(run, state=known.state, rules=replace(run.rules, scope=scope))
    who = f"the release's account {release.account}"
    if release.loaded is None and run.loaded.is_built_in:
        yield Finding(Grade.NOT_JUDGED, f"{who}: the policy of the release is not known")
        return
    try:
        missing = tuple(_missing(its, client, usage, release.account))
    except ClusterReadError as error:
        yield Finding(Grade.NOT_JUDGED, f"{who}: {str(error).splitlines()[0]}")
        return
    yield from check("rights", missing, f"{who}: all that the policy needs").findings


def _missing(
    run: RunContext, client: Client, usage: UsageSource | None, account: str = ""
) -> Iterator[Finding]:
    """Yield a finding for each feature of which rights are missing; ``account``: see ``missing_rules``."""
    who = f"the release's account {account} " if account else f"{client.impersonated} ".lstrip()
    for feature, grade, rules in _features(run, usage):
        if missing := missing_rules(client, rules, account=account):
            lacking = and_more([str(rule) for rule in missing], _SHOWN)
            rules_to_add = tuple(rule.as_yaml() for rule in missing)
            values = ", ".join(name_values(missing))
            cure = _GRANT.format(values=f" ({values})" if values else "")
            yield Finding(grade, f"{who}may not {feature}: {lacking}", cure, rules_to_add)


def _reads(
    run: RunContext, usage: UsageSource | None
) -> Iterator[tuple[str, Sequence[AccessRule]]]:
    """Yield (feature, the rights) for what the policy has runs read."""
    yield "read the cluster", READ_RULES
    if usage is not None:
        yield "read what is really used", usage.rules
    if run.rules.autoscalers:
        yield "read autoscalers (protect.afterScaling)", AUTOSCALER_RULES
    if run.loaded.policy.capacity.buffers:
        yield "read CapacityBuffers (capacity.buffers)", BUFFER_RULES
    if run.loaded.policy.namespace_policies:
        yield "read policies of namespaces (namespacePolicies)", NAMESPACE_POLICY_RULES
    if run.requests:
        yield "see what EvictionRequests ask for (method.evictionRequests)", LIST_REQUESTS
    if run.rules.makes_room:
        yield "see for which pods a machine is coming (make-room)", SCALE_OUT_RULES


def _features(
    run: RunContext, usage: UsageSource | None
) -> Iterator[tuple[str, Grade, Sequence[AccessRule]]]:
    """Yield (feature, severity without its rights, the rights) for what the policy and the flags use."""
    for feature, rules in _reads(run, usage):
        yield feature, Grade.PROBLEM, rules
    if run.loaded.policy.mode is not Mode.ENFORCE:
        return
    moves = act_rules(
        run.rules.namespace,
        restarts=run.restarts,
        requests=run.requests,
        writes_costs=run.writes_costs,
    )
    yield "evict pods (mode: enforce)", Grade.PROBLEM, moves
    yield "follow the cluster between waves", Grade.NOTE, FOLLOW_RULES
    yield "write events", Grade.NOTE, EVENT_RULES
    if run.steers or run.closes:
        yield "mark and cordon nodes", Grade.PROBLEM, MARK_RULES
    if run.closes:
        yield "wait until volumes are detached from empty nodes", Grade.NOTE, ATTACHMENT_RULES
    if run.loaded.policy.node_conditions:
        yield "set conditions on nodes (nodeConditions)", Grade.NOTE, CONDITION_RULES
    if run.state.lease is not None:
        yield "keep runs apart (--lease)", Grade.PROBLEM, lease_rules(*run.state.lease)
    if run.state.memory is not None:
        yield "remember earlier runs (--memory)", Grade.PROBLEM, config_map_rules(*run.state.memory)


def list_chart_values(run: RunContext) -> tuple[str, ...]:
    """Return the values of the chart, as ``rbac.marks=true``, that grant what the policy of a run needs.

    An ``existingPolicy`` needs them: the chart does not read it.
    """
    measured = run.rules.needs_usage and run.loaded.policy.usage.prometheus is None
    rules = [
        *(USAGE_RULES if measured else ()),
        *(r for *_, of in _features(run, None) for r in of),
    ]
    granting = (value.replace(": ", "=") for value in name_values(rules))
    return tuple(value for value in granting if value.startswith("rbac."))


def _describe_source(run: RunContext, usage: UsageSource | None) -> str:
    if usage is None:
        return "no strategy of the policy judges by measured usage"
    prometheus = run.loaded.policy.usage.prometheus
    source = "the metrics API" if prometheus is None else f"Prometheus at {prometheus.url}"
    return f"{source} answers, as `signal: usage` of the policy needs it"


def _metrics(usage: UsageSource | None) -> Iterator[Finding]:
    """Yield a finding for each list of measurements that the policy needs and does not get."""
    if usage is None:
        return
    nothing_ends_it = threading.Event()
    for resource in METRICS:
        if (trouble := read_metrics(usage, resource, nothing_ends_it).trouble) is not None:
            text = f"{usage.name(resource)}: {trouble}: nothing is moved by usage"
            yield Finding(Grade.PROBLEM, text, usage.advice)


def _lease(run: RunContext, client: Client, where: tuple[str, str]) -> Iterator[Finding]:
    lease = Lease(client, *where, identity="", clock=run.environment.clock.unix)
    holder, name = holder_of(lease.read(client)[0]), f"Lease {'/'.join(where)}"
    yield Finding(Grade.OK, f"{name} is there" if holder else f"{name} is there and free")
    if holder:
        yield Finding(
            Grade.NOTE,
            f"{holder} holds it: a run is under way, or was killed less than a minute ago",
        )


def _read_memory(
    client: Client, where: tuple[str, str]
) -> tuple[Document | None, tuple[Finding, ...]]:
    """Return the memory, and what is wrong with it; None if it cannot be read."""
    try:
        stored = ConfigMapStore(client, *where).read()
    except ClusterReadError as error:
        return None, (finding_of(Grade.PROBLEM, str(error)),)
    if stored is None:
        why = f"there is no ConfigMap {'/'.join(where)}: each run ends with exit code 3, for runs never create it"
        advice = f"{HELM_MAKES_IT}; if Helm did not make it:"
        # A tenant may have written these names, in what looks like a release.
        namespace, name = map(shlex.quote, where)
        create = f"kubectl --namespace {namespace} create configmap {name}"
        return None, (Finding(Grade.PROBLEM, why, advice, (create,)),)
    document, flaw = decode(stored.data)
    if flaw is None:
        return document, ()
    if not flaw.hour_unknown:
        advice = "the next run that has something to write writes it without them"
        return document, (Finding(Grade.WARNING, flaw.message, advice),)
    text = f"{flaw.message}: each run stands still, since what budgets.perHour allows is not known"
    patch = json.dumps([{"op": "remove", "path": f"/data/{KEY}"}])
    remove = f"kubectl --namespace {where[0]} patch configmap {where[1]} --type=json -p '{patch}'"
    advice = f"to start afresh remove {KEY} from it: the last hour and all cool-downs are forgotten"
    return None, (Finding(Grade.PROBLEM, text, advice, (remove,)),)


def _judge_memory(document: Document | None, now: float) -> Iterator[Finding]:
    """Yield what the memory shows about the last run, and about future ones."""
    if document is None:
        return
    if document.history:
        yield from _judge_failures(document.history[-1], now)
    if resting := list_resting(document, now):
        yield Finding(
            Grade.NOTE,
            f"{count(len(resting), 'workload')} in a cool-down: {and_more(resting, _SHOWN)}",
            "`rebalancer history` says why, and until when",
        )


def _judge_failures(run: ActingRun, now: float) -> Iterator[Finding]:
    """Yield the failures of the last run that tried moves, by the API server's answers; if it is long ago, only as notes."""
    grade = Grade.WARNING if now - run.at <= _RECENT else Grade.NOTE
    for (outcome, message), moves in group_failures(run.moves).items():
        pods = and_more([move.pod for move in moves], _SHOWN)
        if is_refusal(outcome, message):
            what, advice = "refused", _REFUSED_BY.get(outcome, _BY_ADMISSION)
        else:
            what, advice = "answered with errors", _NO_REFUSAL
        yield Finding(
            grade,
            f"{count(len(moves), 'eviction')} {what} in the last run that tried some, at {rfc3339(run.at)}: {message} ({pods})",
            advice,
        )


_RECENT = 86_400
"""Seconds in which a run shows how things are now; a schedule by night is one."""
_REFUSED_BY: dict[str, str] = {
    Status.REFUSED: "a right or valid credentials are missing; each run is refused until that is mended",
    Status.MISCONFIGURED: "let one PodDisruptionBudget alone select each of these pods; until then no run can evict them",
}
_BY_ADMISSION = "an admission policy or webhook refuses them to each run until that is mended"
_NO_REFUSAL = "the API server was too busy, failing or not reached; later runs try again what is still to be moved"
