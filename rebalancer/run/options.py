"""The flags of commands that plan and act, in groups: each part of a run receives only its group.

The node agent, a process on each node, imports this too; so modules for policies or clusters are imported on use.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from rebalancer.base.environment import Environment
    from rebalancer.base.stop import Stop
    from rebalancer.kube.client import Client
    from rebalancer.policy.load import LoadedPolicy
    from rebalancer.policy.select import Select
    from rebalancer.registry import Registry
    from rebalancer.wire.objects import LabelSelector

FAIL_ON = ("standstill", "unmet", "held")
"""The values of ``--fail-on``."""


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag that sets a field of options; the commands make the flags of the command line from these."""

    help: str
    names: tuple[str, ...] = ()
    """The flag's names as written; none: ``--`` and the name of the field."""
    metavar: str | None = None
    parse: str = ""
    """Who parses the text and who completes it: keys of ``PARSERS`` and ``COMPLETERS`` in ``rebalancer.commands.flags``."""
    complete: str = ""
    choices: tuple[str, ...] = ()
    path: str = ""
    """``any`` path, or one of a ``file``, of one that is ``written``, or of a ``directory``."""
    argument: bool = False
    """Whether the argument FILE means the same."""
    least: int | None = None
    """The smallest value of a whole number."""
    bare: str | None = None
    """The value of the flag where it is given without a value."""
    env: str | None = None
    """The environment variable that sets it."""
    default: str | None = None
    """The default as a text, where that is not the field's."""
    shows_default: bool = True
    required: bool = False
    hidden: bool = False


def flag(help: str, *names: str, default: Any = MISSING, **more: Any) -> Any:  # noqa: A002  # as click has it
    """Return a field of options that a :class:`Flag` sets; without a default the flag must be given."""
    return field(default=default, metadata={"flag": Flag(help, names, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFlags:
    """The flags that choose the policy."""

    policy_path: str | None = flag(
        "Policy file ('-': standard input), or directory with one file per strategy. Default: the built-in policy.",
        "--policy",
        default=None,
        path="any",
    )
    settings: tuple[str, ...] = flag(
        "Change a key of the policy: protect.minPodAge=0s, strategies.duplicates.mode=observe; may be repeated.",
        "--set",
        default=(),
        metavar="KEY=VALUE",
        complete="settings",
    )
    only: tuple[str, ...] = flag(
        "Use only this strategy; may be repeated.",
        "--strategy",
        default=(),
        metavar="NAME",
        complete="strategies",
    )
    mode: str | None = flag(
        "Change the policy's mode.", default=None, choices=("off", "observe", "enforce")
    )

    def load(self, registry: Registry, *, directory: Traversable | None = None) -> LoadedPolicy:
        """Return the policy. ``directory``: used instead of that of ``policy_path``, see ``load_policy``.

        Raises:
            PolicyError: the policy or a flag is invalid.
        """
        from rebalancer.planner.rules import reads_usage  # noqa: PLC0415
        from rebalancer.policy.load import load_policy  # noqa: PLC0415
        from rebalancer.policy.sources import PolicyChanges  # noqa: PLC0415

        loaded = load_policy(
            self.policy_path,
            registry,
            PolicyChanges(self.settings, self.only, self.mode),
            sys.stdin.buffer,
            signals=registry.signals,
            steps=registry.steps,
            providers=registry.providers,
            directory=directory,
        )
        if (configuration := loaded.policy.scheduler.configuration) is not None:
            from rebalancer.scheduler.configured import not_followed  # noqa: PLC0415

            warnings = (*loaded.warnings, *not_followed(configuration))
            loaded = replace(loaded, warnings=warnings)
        if loaded.policy.usage.prometheus is None or reads_usage(loaded.policy, registry):
            return loaded
        warning = "usage.prometheus has no effect: no strategy judges by usage (signal: usage)"
        return replace(loaded, warnings=(*loaded.warnings, warning))


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """The flags that choose the input, a snapshot file or a cluster, and the access to the API server."""

    snapshot_path: str | None = flag(
        "Plan on a snapshot file ('-': standard input), without a cluster. Implies --dry-run.",
        "--snapshot",
        default=None,
        path="any",
        argument=True,
    )
    kubeconfig: str | None = flag(
        "Path to the kubeconfig file. Default: as kubectl; in a pod its ServiceAccount.",
        default=None,
        path="any",
    )
    context_name: str | None = flag(
        "Context of the kubeconfig. Default: the current one.",
        "--context",
        default=None,
        metavar="NAME",
        complete="contexts",
    )
    as_user: str | None = flag(
        "Act as this user, as kubectl does: `system:serviceaccount:NS:NAME` or a name. Default: `as` of the kubeconfig.",
        "--as",
        default=None,
        metavar="USER",
    )
    as_groups: tuple[str, ...] = flag(
        "Act as a member of this group, with --as; may be repeated.",
        "--as-group",
        default=(),
        metavar="GROUP",
    )
    as_uid: str | None = flag("Act with this uid, with --as.", default=None, metavar="UID")
    request_timeout: float | None = flag(
        "Give up a request to the API server after this time (30s, 2m; a plain number is seconds); watches have no limit."
        " Default, and for 0: 15s until the server has answered once, 2m from then on.",
        default=None,
        metavar="DURATION",
        parse="request timeout",
    )
    max_requests: int = flag(
        "Most requests to the API server at once; watches do not count.",
        default=8,
        least=1,
        metavar="N",
    )
    compress: bool = flag(
        "Ask for compressed lists: for slow or metered connections. Costs the API server more CPU.",
        default=False,
    )

    def client(self, environment: Environment, stop: Stop) -> Client:
        """Return a client of the cluster, valid until ``stop``.

        Raises:
            ClusterReadError: no cluster is configured.
        """
        from rebalancer.kube.client import connect  # noqa: PLC0415
        from rebalancer.kube.impersonation import Impersonation  # noqa: PLC0415
        from rebalancer.kube.transport import Limits  # noqa: PLC0415

        limits = Limits(in_flight=self.max_requests, compressed=self.compress)
        return connect(
            kubeconfig=self.kubeconfig,
            context=self.context_name,
            environ=environment.environ,
            impersonate=Impersonation(self.as_user or "", self.as_uid or "", self.as_groups),
            stop=stop,
            limits=limits if self.request_timeout is None else limits.within(self.request_timeout),
        )


@dataclass(frozen=True, slots=True)
class ScopeFlags:
    """The flags that limit which pods may move."""

    namespace: str | None = flag(
        "Move pods of this namespace only.",
        "-n",
        "--namespace",
        default=None,
        metavar="NAME",
        complete="namespaces",
    )
    selector: LabelSelector | None = flag(
        "Move pods with these labels only, as kubectl takes them: app=web,tier!=batch.",
        "-l",
        "--selector",
        default=None,
        metavar="LABELS",
        parse="labels",
    )
    select: Select | None = flag(
        "Move these pods only, in the words of a policy's select: '{namespaces: [shop-*], minReplicas: 3}'.",
        default=None,
        metavar="YAML",
        parse="select",
    )


@dataclass(frozen=True, slots=True)
class StateFlags:
    """The objects that runs share, as (namespace, name)."""

    lease: tuple[str, str] | None = flag(
        "Lease that keeps two runs apart. It must exist.",
        default=None,
        metavar="NS/NAME",
        parse="reference",
    )
    memory: tuple[str, str] | None = flag(
        "ConfigMap that remembers what earlier runs moved and measured. It must exist.",
        default=None,
        metavar="NS/NAME",
        parse="reference",
    )
    machine_state: tuple[str, str] | None = flag(
        "ConfigMap with what must be known after a restart: sizes and back-offs of groups, and what steps have to give back. It"
        " must exist; scale-out, quarantine and deregister need it.",
        default=None,
        metavar="NS/NAME",
        parse="reference",
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """The flags for the output at the end of a run, and for its exit code."""

    output: str = flag(
        "Form of the report.",
        "-o",
        "--output",
        default="table",
        choices=("table", "wide", "json", "yaml", "html", "markdown", "csv"),
    )
    color: str = flag(
        "Colour the table; auto: on a terminal, unless NO_COLOR or TERM=dumb is set.",
        default="auto",
        choices=("auto", "always", "never"),
        bare="always",
    )
    plan_out: str | None = flag(
        "Also write the plan to FILE, as JSON: for review, and for `rebalancer apply FILE`.",
        "--out",
        default=None,
        metavar="FILE",
        path="written",
    )
    detailed_exitcode: bool = flag("A dry run that finds moves exits with code 10.", default=False)
    fail_on: tuple[str, ...] = flag(
        "Exit with code 11 if the run stood still, left rules unmet or not judged, or was held back by a budget or another run.",
        default=(),
        metavar=",".join(FAIL_ON),
        parse="states",
        complete="states",
    )
    asks: bool = False
    """Whether the user is asked, after the report of a dry run, to carry out the plan."""
    prints_idle: bool = True
    """Whether the report of a run is printed that had nothing to do, else one line."""


@dataclass(frozen=True, slots=True)
class Publishing:
    """The flags for the metrics and notices of a run."""

    metrics_push: str | None = flag(
        "Push metrics to a Pushgateway; http://HOST:9091 or with a group, /metrics/job/NAME/LABEL/VALUE.",
        default=None,
        metavar="URL",
        env="REBALANCER_METRICS_PUSH",
    )
    metrics_file: str | None = flag(
        "Write metrics for a textfile collector; name it *.prom.",
        default=None,
        metavar="FILE",
        path="written",
    )
    notify: str | None = flag(
        "One HTTP POST after a run that acted, failed or stood still. Better in $REBALANCER_NOTIFY, since a webhook's address"
        " is a secret.",
        default=None,
        metavar="URL",
        env="REBALANCER_NOTIFY",
    )
    notify_template: str = flag(
        "Body of the notice: JSON with placeholders such as $summary.",
        default="plain",
        metavar="plain|slack|teams|FILE",
    )
    cluster: str = ""
    """Name of the cluster among others, in metrics and notices; empty: there is one only."""


@dataclass(frozen=True, slots=True)
class ProgressFlags:
    """The flags for progress messages on standard error."""

    quiet: bool = flag("No progress on standard error.", "-q", "--quiet", default=False)
    log_format: str = flag("Form of the progress lines.", default="text", choices=("text", "json"))


class Grouped:
    """Options of which some fields are groups of flags; the default of such a field is the group's class."""

    __slots__ = ()

    @classmethod
    def of(cls, **flags: Any) -> Self:
        """Return the options with these flags; each flag is set in the group that has a field of its name.

        Raises:
            TypeError: there is no such flag.
        """
        groups: dict[str, Any] = {}
        for one in fields(cls):  # type: ignore[arg-type]  # what derives from this is a dataclass
            if is_dataclass(group := one.default_factory):
                names = [each.name for each in fields(group) if each.name in flags]
                groups[one.name] = group(**{name: flags.pop(name) for name in names})
        return cls(**groups, **flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Grouped):
    """The flags of ``run`` and ``apply``, and of commands that show a dry run."""

    policy: PolicyFlags = field(default_factory=PolicyFlags)
    cluster: ClusterFlags = field(default_factory=ClusterFlags)
    scope: ScopeFlags = field(default_factory=ScopeFlags)
    state: StateFlags = field(default_factory=StateFlags)
    ending: Ending = field(default_factory=Ending)
    publishing: Publishing = field(default_factory=Publishing)
    progress: ProgressFlags = field(default_factory=ProgressFlags)
    plan_path: str | None = None
    """The reviewed plan to apply; None: make one."""
    max_age: float = flag(
        "Refuse a plan that was made on an older picture of the cluster: 90s, 5m, 1h30m.",
        default=3600.0,
        metavar="DURATION",
        parse="duration",
    )
    confirmed_plan: bytes | None = None
    """The plan that was shown and agreed to, as ``plan_out`` has it."""
    dry_run: bool = flag("Report only. The plan is the same as a real run's.", default=False)
    yes: bool = flag(
        "Evict without asking. Needed where no terminal is, as in a CronJob or a script.",
        default=False,
    )
    lift_budgets: bool = flag(
        "Lift the budgets perRun and perHour; all others hold.", default=False
    )
    whole: bool = flag(
        "In a dry run: plan all there is to do, not only what one run can carry out in its time.",
        default=False,
    )
    deadline: float = flag(
        "End the run cleanly after this time: 90s, 5m; a plain number is seconds.",
        default=600.0,
        metavar="DURATION",
        parse="time",
    )
    """Seconds that a run has, sending included."""
