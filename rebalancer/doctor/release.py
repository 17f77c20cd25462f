"""The installed release: what starts its runs, and the policy that they have."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.base.plain_text import count
from rebalancer.doctor.report import Check, Finding, Grade, check
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import LABEL, ConfigMapStore, Reference
from rebalancer.kube.failures import ForbiddenError, NotServedError
from rebalancer.kube.resources import AccessRule
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.run.options import PolicyFlags
from rebalancer.wire.kinds import CRON_JOBS, DEPLOYMENTS, Resource
from rebalancer.wire.objects import ListMeta, ObjectMeta


@dataclass(frozen=True, slots=True)
class Release:
    """What is known of a release."""

    name: str
    """``namespace/name`` of what starts its runs, with its kind; empty if that is not known."""
    suspended: bool = False
    schedule: str = ""
    policy_map: str = ""
    """``namespace/name`` of the ConfigMap with its policy."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Of that ConfigMap."""
    flags: PolicyFlags = field(default_factory=PolicyFlags)
    """Those that its runs have."""
    loaded: LoadedPolicy | None = None
    """Its policy, as its runs have it; None: it is not known, or not valid."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with it, and what could not be judged."""

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
    )
    return _with_policy(client, known, registry) if known.policy_map else known


@dataclass(frozen=True, slots=True)
class _Starter:
    kind: str
    suspended: bool
    schedule: str
    policy_map: str
    flags: PolicyFlags


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


class _PodSpec(msgspec.Struct):
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
    """Of a CronJob or a Deployment."""

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
        """What its pods are made from."""
        of_jobs = self.spec.job_template
        return self.spec.template if of_jobs is None else of_jobs.spec.template

    def describe(self, kind: str) -> _Starter:
        """Return what it says of the runs that it starts."""
        spec, template = self.spec, self.template
        args = tuple(arg for one in template.spec.containers or () for arg in one.args or ())
        maps = (
            one.config_map.name
            for one in template.spec.volumes or ()
            if one.name == "policy" and one.config_map
        )
        zone = f" {spec.time_zone}" if spec.time_zone else ""
        schedule = f"schedule {spec.schedule}{zone}" if spec.schedule else ""
        return _Starter(
            kind, spec.suspend or spec.replicas == 0, schedule, next(maps, ""), _flags_of(args)
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


def _flags_of(args: tuple[str, ...]) -> PolicyFlags:
    """Return the flags of a run that change its policy."""
    given = [arg.partition("=") for arg in args]
    values = {
        name: [value for key, _, value in given if key == name]
        for name in ("--set", "--strategy", "--mode")
    }
    mode = next(reversed(values["--mode"]), None)
    return PolicyFlags(settings=tuple(values["--set"]), only=tuple(values["--strategy"]), mode=mode)


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
