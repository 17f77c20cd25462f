"""Checks that need the API server: the installed release and its policy, rights, metrics, the Lease, and the memory."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.base.plain_text import and_more, count
from rebalancer.doctor.cluster import Started
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
from rebalancer.kube.config_map import LABEL, ConfigMapStore, Reference
from rebalancer.kube.eviction_requests import LIST_REQUESTS
from rebalancer.kube.failures import ForbiddenError, NotServedError, name_values
from rebalancer.kube.lease import Lease, holder_of
from rebalancer.kube.metrics import UsageSource, read_metrics
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.seldom_read import BUFFER_RULES, NAMESPACE_POLICY_RULES
from rebalancer.plan.plan import Status
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.run.context import RunContext
from rebalancer.run.memory.document import ActingRun, Document, decode
from rebalancer.run.memory.remember import group_failures, is_refusal, list_resting
from rebalancer.run.options import PolicyFlags, StateFlags
from rebalancer.run.source import UnknownState, find_state
from rebalancer.wire.kinds import CRON_JOBS, DEPLOYMENTS, METRICS, Resource
from rebalancer.wire.objects import ListMeta, ObjectMeta
from rebalancer.wire.times import rfc3339


@dataclass(frozen=True, slots=True)
class Release:
    """What is known of a release."""

    name: str
    """``namespace/name`` of the object that starts its runs, with its kind; empty if that is not known."""
    suspended: bool = False
    schedule: str = ""
    policy_map: str = ""
    """``namespace/name`` of the ConfigMap with its policy."""
    data: Mapping[str, str] = field(default_factory=dict)
    """The data of that ConfigMap."""
    flags: PolicyFlags = field(default_factory=PolicyFlags)
    """The policy flags of its runs."""
    account: str = ""
    """The user name of its ServiceAccount; empty if that is not known."""
    namespace: str | None = None
    """The only namespace in which its runs move pods."""
    loaded: LoadedPolicy | None = None
    """Its policy, as its runs have it; None: it is not known, or not valid."""
    findings: tuple[Finding, ...] = ()
    """The problems of the release, and the checks that were not possible."""

    def load(self, flags: PolicyFlags, registry: Registry) -> LoadedPolicy | None:
        """Return its policy as changed by ``flags``; None if it is not known, or not valid.

        Raises:
            PolicyError: a flag is wrong.
        """
        if self.loaded is None or flags == PolicyFlags():
            return self.loaded
        both = replace(
            flags,
            settings=(*self.flags.settings, *flags.settings),
            only=(*self.flags.only, *flags.only),
            mode=flags.mode or self.flags.mode,
        )
        return _load(self.data, self.loaded.source, both, registry)

    def judge(self, judged: LoadedPolicy) -> Check:
        """Return the check of the release; ``judged``: the policy of the other checks."""
        return check("release", self._findings(judged), "")

    def _findings(self, judged: LoadedPolicy) -> Iterator[Finding]:
        if self.name:
            schedule = f", {self.schedule}" if self.schedule else ""
            mode = f", mode {self.loaded.policy.mode.value}" if self.loaded else ""
            policy = f", policy ConfigMap {self.policy_map}" if self.policy_map else ""
            yield Finding(Grade.OK, f"{self.name}{schedule}{mode}{policy}")
        if self.suspended:
            yield Finding(
                Grade.WARNING,
                f"{self.name} is suspended: no run starts",
                "`suspend: false` of the chart lets runs start again; after `kubectl patch` or `kubectl scale`, undo that by kubectl",
            )
        yield from self.findings
        if self.loaded is not None and judged.policy_hash != self.loaded.policy_hash:
            yield Finding(
                Grade.NOTE,
                f"what follows is judged by {judged.source}, which is not the policy of the release",
                "without --policy and flags that change it, the policy of the release is judged",
            )


def read_release(client: Client, memory: Reference, registry: Registry) -> Release:
    """Return the release that has this memory.

    Raises:
        ClusterReadError: the API server gave no answer.
    """
    namespace, name = memory[0], memory[1].removesuffix("-memory")
    unread: list[str] = []
    starter = _find_starter(client, namespace, name, unread)
    if starter is None:
        why = (
            f"{' and '.join(unread)} may not be listed in namespace {namespace}: whether it is suspended, and its policy, are not known"
            if unread
            else f"no CronJob and no Deployment {namespace}/{name} with the label {LABEL}"
        )
        return Release("", findings=(Finding(Grade.NOT_JUDGED, why),))
    known = Release(
        f"{starter.kind} {namespace}/{name}",
        starter.suspended,
        starter.schedule,
        starter.policy_map and f"{namespace}/{starter.policy_map}",
        flags=starter.flags,
        account=f"system:serviceaccount:{namespace}:{starter.account}",
        namespace=starter.namespace,
    )
    return _with_policy(client, known, registry) if known.policy_map else known


@dataclass(frozen=True, slots=True)
class _Starter:
    kind: str
    suspended: bool
    schedule: str
    policy_map: str
    flags: PolicyFlags
    account: str
    namespace: str | None


def _find_starter(client: Client, namespace: str, name: str, unread: list[str]) -> _Starter | None:
    for kind in (CRON_JOBS, DEPLOYMENTS):
        try:
            for one in _list(client, kind, namespace):
                if one.metadata.name == name:
                    return one.describe(kind.kind)
        except NotServedError:
            continue
        except ForbiddenError:
            unread.append(f"{kind.kind}s")
    return None


def _list(client: Client, kind: Resource, namespace: str) -> list[StarterObject]:
    response = client.get(kind.path(namespace), query={"labelSelector": LABEL})
    body = client.expect(response, AccessRule.of("list", kind, namespace)).body
    try:
        return msgspec.json.decode(body, type=StarterObjects).items or []
    except (ValueError, RecursionError):
        raise ClusterReadError(f"what was answered for a list of {kind.plural} is none") from None


class _Container(msgspec.Struct):
    image: str = ""
    args: tuple[str, ...] | None = None


class _Source(msgspec.Struct):
    name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    name: str
    config_map: _Source | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    service_account_name: str | None = None
    containers: tuple[_Container, ...] | None = None
    volumes: tuple[_Volume, ...] | None = None


class _Template(msgspec.Struct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _JobSpec(msgspec.Struct):
    template: _Template = msgspec.field(default_factory=_Template)


class _JobTemplate(msgspec.Struct):
    spec: _JobSpec = msgspec.field(default_factory=_JobSpec)


class _Spec(msgspec.Struct, rename="camel"):
    suspend: bool = False
    schedule: str = ""
    time_zone: str | None = None
    job_template: _JobTemplate | None = None
    replicas: int = 1
    template: _Template = msgspec.field(default_factory=_Template)


class StarterObject(msgspec.Struct):
    """A CronJob or a Deployment, which may start runs."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def template(self) -> _Template:
        """The template of its pods."""
        of_jobs = self.spec.job_template
        return self.spec.template if of_jobs is None else of_jobs.spec.template

    def describe(self, kind: str) -> _Starter:
        """Return the properties of the runs that it starts."""
        spec, template = self.spec, self.template
        args = tuple(arg for one in template.spec.containers or () for arg in one.args or ())
        maps = (
            one.config_map.name
            for one in template.spec.volumes or ()
            if one.name == "policy" and one.config_map
        )
        zone = f" {spec.time_zone}" if spec.time_zone else ""
        schedule = f"schedule {spec.schedule}{zone}" if spec.schedule else ""
        given = _values_of(args, "--namespace")
        return _Starter(
            kind,
            spec.suspend or spec.replicas == 0,
            schedule,
            next(maps, ""),
            _flags_of(args),
            template.spec.service_account_name or "default",
            given[-1] if given else None,
        )


class StarterObjects(msgspec.Struct):
    """A page of a list of them."""

    items: list[StarterObject] | None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


def _with_policy(client: Client, known: Release, registry: Registry) -> Release:
    """Return the release with its policy, or with why that is not known."""
    where = known.policy_map
    namespace, _, name = where.partition("/")
    try:
        stored = ConfigMapStore(client, namespace, name).read()
    except ForbiddenError:
        why = f"its policy is not judged: our account may not get ConfigMap {where}"
        return replace(known, findings=(Finding(Grade.NOT_JUDGED, why),))
    if stored is None:
        why = f"its policy, ConfigMap {where}, does not exist: pods of its runs cannot start"
        advice = "create it, or correct `existingPolicy` of the chart"
        return replace(known, findings=(Finding(Grade.PROBLEM, why, advice),))
    try:
        loaded = _load(stored.data, f"ConfigMap {where}", known.flags, registry)
    except PolicyError as error:
        why = f"its policy is invalid, so that each run ends with exit code 2 ({count(len(error.problems), 'problem')})"
        advice = "correct the ConfigMap, or the values that it is made from:"
        return replace(known, findings=(Finding(Grade.PROBLEM, why, advice, error.problems),))
    return replace(known, loaded=loaded, data=stored.data)


def _values_of(args: tuple[str, ...], flag: str) -> tuple[str, ...]:
    given = (arg.partition("=") for arg in args)
    return tuple(value for key, _, value in given if key == flag)


def _flags_of(args: tuple[str, ...]) -> PolicyFlags:
    mode = next(reversed(_values_of(args, "--mode")), None)
    return PolicyFlags(
        settings=_values_of(args, "--set"), only=_values_of(args, "--strategy"), mode=mode
    )


def _load(
    data: Mapping[str, str], label: str, flags: PolicyFlags, registry: Registry
) -> LoadedPolicy:
    """Load a policy from the files that a pod has of its ConfigMap; messages name these ``label/KEY``.

    Whoever may make a ConfigMap with a public label may have written it: no other file is read for it.
    """
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for key, text in data.items():
            if Path(key).name == key:
                archive.writestr(key, text)
    with zipfile.ZipFile(stream) as archive:
        named = replace(flags, policy_path=label)
        return named.load(registry, directory=zipfile.Path(archive))


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


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the release in a cluster before its state is read."""

    state: StateFlags
    """The Lease and the memory of the release."""
    unknown: UnknownState | None
    """Why these are not known; None if they are."""
    release: Release | None
    failed: Check
    """The check of the release where it is not known."""

    def check_release(self, run: RunContext) -> Check:
        """Return the check of the release, of which ``run`` has the policy that is judged."""
        return self.failed if self.release is None else self.release.judge(run.loaded)

    def without_policy(self, checks: tuple[Check, ...], *, built_in: bool) -> tuple[Check, ...]:
        """Return the checks without that of the policy, if there is a release and its policy is not the one that was judged."""
        if self.release is None or self.release.loaded is not None or not built_in:
            return checks
        why = "the policy of the release is not known; the other checks go by the built-in default"
        return tuple(not_judged(of.name, why) if of.name == "policy" else of for of in checks)


def read_known(run: RunContext, client: Client) -> Known:
    """Return what is known of the release."""
    state, unknown = find_state(run.state, client)
    if unknown is not None and not unknown.installed:
        none = Finding(Grade.OK, "no release is installed here")
        return Known(state, unknown, None, Check("release", (none,)))
    if state.memory is None:
        return Known(state, unknown, None, _not_known("release", unknown))
    try:
        release = read_release(client, state.memory, run.rules.registry)
    except ClusterReadError as error:
        failed = Check("release", (finding_of(Grade.PROBLEM, str(error)),))
        return Known(state, unknown, None, failed)
    return Known(state, unknown, release, _not_known("release", unknown))


def _not_known(name: str, unknown: UnknownState | None, after: str = "") -> Check:
    """Return the check ``name``, which the Lease or the memory of the release would need."""
    if unknown is None or not unknown.cause:
        return not_judged(name, f"{unknown or ''}{after}")
    found = finding_of(Grade.NOT_JUDGED, unknown.cause, before=unknown.why, after=after)
    return Check(name, (found,))


def check_server(
    run: RunContext, client: Client, usage: UsageSource | None, known: Known
) -> tuple[tuple[Check, ...], Document | None]:
    """Return the checks that need the server, and the memory if it can be read. A check without an answer does not prevent the others.

    ``usage``: the source of measured usage; None if no strategy needs it, or it must not be queried.
    """
    rights = _ask("rights", lambda: _rights(run, client, usage, known), "")
    if usage is None and run.rules.needs_usage:
        metrics = not_judged("metrics", _NOT_ASKED)
    else:
        metrics = _ask("metrics", lambda: _metrics(usage), _describe_source(run, usage))
    where, kept, unknown = known.state.lease, known.state.memory, known.unknown
    if where is None:
        why = unknown or UnknownState("only the memory is named")
        lease = _not_known("lease", why, "; --lease NAMESPACE/NAME names one")
    else:
        lease = _ask("lease", lambda: _lease(run, client, where), "")
    document = None
    if kept is None:
        memory = _not_known("memory", unknown, "; --memory NAMESPACE/NAME names one")
    else:
        ok = f"ConfigMap {'/'.join(kept)} is there and can be read"
        document, findings = _read_memory(client, kept)
        now = run.environment.clock.unix()
        memory = check("memory", (*findings, *_judge_memory(document, now)), ok)
    return (known.check_release(run), rights, metrics, lease, memory), document


def _ask(name: str, findings: Callable[[], Iterator[Finding]], ok: str) -> Check:
    try:
        return check(name, findings(), ok)
    except ClusterReadError as error:
        return Check(name, (finding_of(Grade.PROBLEM, str(error)),))


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
        why = f"there is no ConfigMap {'/'.join(where)}"
        advice = "create it, as the chart does: `kubectl create configmap`; runs never create it"
        return None, (Finding(Grade.PROBLEM, why, advice),)
    document, flaw = decode(stored.data)
    if flaw is None:
        return document, ()
    advice = "the next run writes it anew, or remove its data"
    return document, (Finding(Grade.WARNING, flaw.message, advice),)


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
