"""The installed release: what starts its runs, its policy, and whether its last run came to an end."""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TextIO

from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.base.output import say
from rebalancer.base.plain_text import count
from rebalancer.doctor.report import Check, Finding, Grade, check, finding_of, not_judged
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import LABEL, ConfigMapStore, Reference, lease_of
from rebalancer.kube.failures import ForbiddenError, NotServedError
from rebalancer.kube.releases import (
    PodObject,
    StarterObject,
    WarningEvent,
    list_named_memories,
    list_of_release,
)
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.run.context import RunContext
from rebalancer.run.options import PolicyFlags, StateFlags
from rebalancer.run.source import UnknownState, explain_several, find_state
from rebalancer.wire.kinds import CRON_JOBS, DEPLOYMENTS, EVENTS, PODS
from rebalancer.wire.objects import Labels, ObjectMeta


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
                "`suspend: false` of the chart lets runs start again; if kubectl has stopped it:",
                (_how_to_resume(self.name),),
            )
        yield from self.findings
        if self.loaded is not None and judged.policy_hash != self.loaded.policy_hash:
            yield Finding(
                Grade.NOTE,
                f"what follows is judged by {judged.source}, which is not the policy of the release",
                "without --policy and flags that change it, the policy of the release is judged",
            )


def _how_to_resume(name: str) -> str:
    """Return the command that undoes a stop by kubectl; ``name``: ``Kind namespace/name``."""
    kind, _, where = name.partition(" ")
    namespace, _, named = where.partition("/")
    if kind == DEPLOYMENTS.kind:
        return f"kubectl --namespace {namespace} scale deployment {named} --replicas=1"
    patch = '{"spec":{"suspend":false}}'
    return f"kubectl --namespace {namespace} patch cronjob {named} -p '{patch}'"


def read_release(
    client: Client, memory: Reference, registry: Registry, *, runs: bool = True
) -> Release:
    """Return the release that has this memory; ``runs``: with what its last run shows.

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
    known = _describe(starter, namespace)
    if runs:
        labels = starter.template.metadata.labels or {}
        known = replace(known, findings=_judge_runs(client, namespace, name, labels))
    return _with_policy(client, known, registry) if known.policy_map else known


def _find_starter(
    client: Client, namespace: str, name: str, unread: list[str]
) -> StarterObject | None:
    for kind in (CRON_JOBS, DEPLOYMENTS):
        try:
            for one in list_of_release(client, kind, namespace, StarterObject):
                if one.metadata.name == name:
                    return one
        except NotServedError:
            continue
        except ForbiddenError:
            unread.append(f"{kind.kind}s")
    return None


def _describe(starter: StarterObject, namespace: str) -> Release:
    """Return what a CronJob or a Deployment says of the runs that it starts."""
    spec = starter.spec
    maps = (
        f"{namespace}/{one.config_map.name}"
        for one in starter.template.spec.volumes or ()
        if one.name == "policy" and one.config_map
    )
    zone = f" {spec.time_zone}" if spec.time_zone else ""
    kind = DEPLOYMENTS if spec.job_template is None else CRON_JOBS
    account = starter.template.spec.service_account_name or "default"
    return Release(
        f"{kind.kind} {namespace}/{starter.metadata.name}",
        spec.suspend or spec.replicas == 0,
        f"schedule {spec.schedule}{zone}" if spec.schedule else "",
        next(maps, ""),
        flags=_flags_of(starter.args),
        account=f"system:serviceaccount:{namespace}:{account}",
        namespace=next(reversed(_values_of(starter.args, "--namespace")), None),
    )


def _with_policy(client: Client, known: Release, registry: Registry) -> Release:
    """Return the release with its policy, or with why that is not known."""
    where = known.policy_map
    namespace, _, name = where.partition("/")
    try:
        stored = ConfigMapStore(client, namespace, name).read()
    except ForbiddenError:
        why = f"its policy is not judged: our account may not get ConfigMap {where}"
        return replace(known, findings=(Finding(Grade.NOT_JUDGED, why), *known.findings))
    if stored is None:
        why = f"its policy, ConfigMap {where}, does not exist: pods of its runs cannot start"
        of_chart = known.name.endswith(f" {where.removesuffix(_OF_POLICY)}")
        advice = (
            HELM_MAKES_IT if of_chart else "create it, or correct `existingPolicy` of the chart"
        )
        return replace(known, findings=(Finding(Grade.PROBLEM, why, advice), *known.findings))
    try:
        loaded = _load(stored.data, f"ConfigMap {where}", known.flags, registry)
    except PolicyError as error:
        why = f"its policy is invalid, so that each run ends with exit code 2 ({count(len(error.problems), 'problem')})"
        advice = "correct the ConfigMap, or the values that it is made from:"
        return replace(
            known, findings=(Finding(Grade.PROBLEM, why, advice, error.problems), *known.findings)
        )
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


def name_other_policy(
    loaded: LoadedPolicy, client: Client, memory: Reference | None, err: TextIO
) -> None:
    """Print how to export the policy of the release with this memory, if ``loaded`` is the built-in one and that is another.

    It is not used: any tenant may have made what looks like a release, and its policy may name a file and a server to send it to.
    """
    if memory is None or not loaded.is_built_in:
        return
    with suppress(ClusterReadError):
        release = read_release(client, memory, Registry.installed(), runs=False)
        if release.loaded is None or release.loaded.policy_hash == loaded.policy_hash:
            return
        namespace, _, name = release.policy_map.partition("/")
        key = max(release.data, key=lambda one: (one == _MAIN, one)).replace(".", "\\.")
        path = shlex.quote(f"jsonpath={{.data.{key}}}")
        export = f"kubectl --namespace {namespace} get configmap {name} -o {path} > policy.yaml"
        said = "has a policy of its own, which is not used here; if you trust it, give --policy policy.yaml after"
        say(err, f"rebalancer: {release.name} {said}: {export}")


_MAIN = "rebalancer.yaml"


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
        state, unknown = _find_by_starter(state, client)
    if unknown is not None and not unknown.installed:
        none = Finding(Grade.OK, "no release is installed here")
        return Known(state, unknown, None, Check("release", (none,)))
    if state.memory is None:
        return Known(state, unknown, None, not_known("release", unknown))
    try:
        release = read_release(client, state.memory, run.rules.registry)
    except ClusterReadError as error:
        failed = Check("release", (finding_of(Grade.PROBLEM, str(error)),))
        return Known(state, unknown, None, failed)
    return Known(state, unknown, release, not_known("release", unknown))


def _find_by_starter(state: StateFlags, client: Client) -> tuple[StateFlags, UnknownState | None]:
    """Return the state that CronJobs and Deployments name, where no memory exists: somebody may have deleted it."""
    try:
        named = list_named_memories(client)
    except ClusterReadError as error:
        cause = str(error).splitlines()[0]
        return state, UnknownState(
            "no memory of a release is here; what starts its runs was not seen", cause
        )
    if not named:
        return state, UnknownState("no release is installed", installed=False)
    if len(named) > 1:
        return state, explain_several(named)
    return replace(state, memory=named[0], lease=state.lease or lease_of(named[0])), None


def not_known(name: str, unknown: UnknownState | None, after: str = "") -> Check:
    """Return the check ``name``, which the Lease or the memory of the release would need."""
    if unknown is None or not unknown.cause:
        return not_judged(name, f"{unknown or ''}{after}")
    finding = finding_of(Grade.NOT_JUDGED, unknown.cause, before=unknown.why, after=after)
    return Check(name, (finding,))


# -- the last run --------------------------------------------------------------------------------------


def _judge_runs(client: Client, namespace: str, name: str, labels: Labels) -> tuple[Finding, ...]:
    try:
        pods = list_of_release(client, PODS, namespace, PodObject)
        query = {"fieldSelector": "type=Warning"}
        warnings = list_of_release(client, EVENTS, namespace, WarningEvent, query)
    except ClusterReadError as error:
        why = f"whether its last run failed is not known: {str(error).splitlines()[0]}"
        return (Finding(Grade.NOT_JUDGED, why),)
    return tuple(judge_runs(namespace, name, labels, pods, warnings))


def judge_runs(
    namespace: str,
    name: str,
    labels: Labels,
    pods: Sequence[PodObject],
    warnings: Sequence[WarningEvent],
) -> Iterator[Finding]:
    """Yield why the newest pod of a release's runs failed or has not started.

    A Job that is past its deadline has no pod any more: a newer Event about it then says why. ``name``, ``labels``: of the
    CronJob or the Deployment, and of its pods.
    """
    ours = [
        one
        for one in pods
        if all((one.metadata.labels or {}).get(key) == labels.get(key) for key in _OF_RUNS)
        and not one.metadata.name.startswith(f"{name}-record-")
    ]
    newest = max(ours, key=_age, default=PodObject(ObjectMeta()))
    pod, kubectl = newest.metadata.name, f"kubectl --namespace {namespace}"
    for of in newest.status.container_statuses or ():
        waits, ended = of.state.waiting, of.state.terminated
        if waits is not None and waits.reason not in _STARTING:
            before = of.last_state.terminated
            code = f"; before, it ended with {_meaning(before.exit_code)}" if before else ""
            text = (
                f"its pod {pod} does not start: {waits.reason}: {waits.message[:_MAX_TEXT]}{code}"
            )
            yield Finding(Grade.PROBLEM, text, "all of it:", (f"{kubectl} describe pod {pod}",))
            return
        if ended is not None and ended.exit_code:
            grade = Grade.WARNING if ended.exit_code == ExitCode.PARTIAL else Grade.PROBLEM
            text = f"its last run failed: pod {pod}, begun {_age(newest)}, ended with {_meaning(ended.exit_code)}"
            yield Finding(grade, text, "what it said:", (f"{kubectl} logs {pod}",))
            return
    about = [
        one
        for one in warnings
        if one.reason not in _ENDS
        and one.regarding.name.startswith(f"{name}-")
        and (
            one.regarding.name == pod
            if newest.status.phase == "Pending"
            else _age(one) > _age(newest)
        )
    ]
    if about and newest.status.phase != "Running":
        last = max(about, key=_age)
        text = f"{last.regarding.name} did not start at {_age(last)}: {last.reason}: {last.note[:_MAX_TEXT]}"
        yield Finding(Grade.PROBLEM, text, "all of it:", (f"{kubectl} events --types=Warning",))


def _age(one: PodObject | WarningEvent) -> str:
    return one.metadata.creation_timestamp or ""


def _meaning(code: int) -> str:
    return f"exit code {code}{_MEANING.get(code, '')}"


_MEANING: dict[int, str] = {
    ExitCode.BUG: " (a defect of this program)",
    ExitCode.USAGE: " (its policy or a flag is wrong)",
    ExitCode.UNREADABLE: " (it could not read what it needs, or has not the right)",
    ExitCode.PARTIAL: " (something planned failed, or was cut off)",
}
_OF_RUNS = tuple(f"app.kubernetes.io/{of}" for of in ("name", "instance", "component"))
_STARTING = ("", "ContainerCreating", "PodInitializing")
_ENDS = ("DeadlineExceeded", "BackoffLimitExceeded")
"""Reasons of Events that say that a Job ended, and not why."""
_MAX_TEXT = 300
_OF_POLICY = "-policy"
HELM_MAKES_IT = "`helm upgrade` with `--reuse-values` makes it again"
