"""Data shared by all parts of one run: flags, policy, stop, timings and notes."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import TYPE_CHECKING, TextIO

from rebalancer.base.environment import Environment, Timings
from rebalancer.base.errors import PolicyError
from rebalancer.base.output import write
from rebalancer.base.plain_text import WIDTH, Paint, dress
from rebalancer.base.stop import Stop
from rebalancer.plan.machines import InterruptedMachine, MachineAct
from rebalancer.plan.plan import Method
from rebalancer.planner.rules import NO_HISTORY, History, RunRules
from rebalancer.policy.cluster import ConfigMapKey
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode, Steer
from rebalancer.policy.select import Select
from rebalancer.registry import Registry
from rebalancer.report.progress import Progress
from rebalancer.run.options import ClusterFlags, ProgressFlags, RunOptions, ScopeFlags, StateFlags
from rebalancer.snapshot.protect import Scope

if TYPE_CHECKING:
    from rebalancer.kube.resources import AccessRule
    from rebalancer.report.bars import Bars
    from rebalancer.report.plan_file import ReviewedPlan


def instance(environment: Environment) -> str:
    """Return the name of this process in events."""
    pod = environment.environ.get("POD_NAME")
    return pod or f"{os.uname().nodename}-{os.getpid()}"


def identity(environment: Environment) -> str:
    """Return a unique name for the holder of a Lease."""
    # A pod's name is not unique over the containers of hosts' networks, and a process's number is 1 in most.
    return f"{instance(environment)}_{environment.random(4).hex()}"


def own_pod(environment: Environment) -> tuple[str, str] | None:
    """Return (namespace, name) of the pod of this process; None outside of a pod."""
    environ = environment.environ
    own = (environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return own if all(own) else None


def name_in_lasting_marks(lease: tuple[str, str] | None) -> str:
    """Return the name in marks that outlast a run: that of its Lease. Runs without a Lease share one name."""
    if lease is None:
        return "nolease"
    return hashlib.sha256("/".join(lease).encode()).hexdigest()[:8]


def name_in_marks(lease: tuple[str, str] | None, environment: Environment) -> str:
    """Return the name in the marks of one run: that of its Lease, else a unique name.

    With it the holder of the Lease recognises marks left over by an earlier holder.
    """
    return environment.random(4).hex() if lease is None else name_in_lasting_marks(lease)


_NARROWEST, _HEIGHT = 40, 24


@dataclass(frozen=True, slots=True)
class Look:
    """The size and colours for which a table is laid out."""

    width: int
    height: int
    color: bool


def terminal_look(environment: Environment, color: str) -> Look:
    """Return the size of the terminal (80 columns without one), and whether to use colours.

    ``color`` is ``always``, ``never`` or ``auto``: on a terminal, unless the environment forbids it (``NO_COLOR``,
    see no-color.org, or ``TERM=dumb``), or asks for it elsewhere, too (``FORCE_COLOR``). Without a terminal,
    ``COLUMNS`` is the width.
    """
    environ = environment.environ
    terminal = environment.out.isatty()
    columns, height = (
        _size(environment.out) if terminal else (_whole(environ.get("COLUMNS")) or WIDTH, _HEIGHT)
    )
    forced = environ.get("FORCE_COLOR", "0") != "0"
    wanted = not environ.get("NO_COLOR") and (
        forced or (terminal and environ.get("TERM") != "dumb")
    )
    return Look(max(_NARROWEST, columns), height, wanted if color == "auto" else color == "always")


def print_text(environment: Environment, text: str, form: str = "table") -> None:
    """Write a finished text; one for people is fitted to the terminal, see :func:`rebalancer.base.plain_text.dress`."""
    if form not in ("table", "text"):
        write(environment.out, [text])
        return
    look = terminal_look(environment, "auto")
    bound = environment.out.isatty() or "COLUMNS" in environment.environ
    width = look.width if bound else sys.maxsize
    write(environment.out, [dress(text, width, Paint(look.color))])


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0


def _size(terminal: TextIO) -> tuple[int, int]:
    """Return (columns, lines) from the environment, else of standard output, else of ``terminal``."""
    try:
        own = tuple(os.get_terminal_size(terminal.fileno()))
    except (OSError, ValueError):
        own = (WIDTH, _HEIGHT)
    return shutil.get_terminal_size((own[0] or WIDTH, own[1] or _HEIGHT))


def bars_on(environment: Environment, flags: ProgressFlags, color: str) -> Bars | None:
    """Return progress bars on standard error; None without a suitable terminal, or if flags forbid them."""
    environ = environment.environ
    drawn = environment.err.isatty() and environ.get("TERM") != "dumb"
    if flags.quiet or flags.log_format != "text" or not drawn:
        return None
    from rebalancer.report.bars import Bars  # noqa: PLC0415

    colored = color != "never" and not environ.get("NO_COLOR")
    return Bars(environment.err, color=colored)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run of ``run`` or ``apply``, or the dry run behind an explanation."""

    acts: bool
    """Whether the run may evict."""
    environment: Environment
    rules: RunRules
    history: History = NO_HISTORY
    """What earlier runs left, once it is read."""
    reviewed: ReviewedPlan | None
    """The plan to apply; None: make one."""
    state: StateFlags
    """What it shares with other runs."""
    measured: bool = False
    """Whether metrics of the run are sent or written."""
    stop: Stop
    name_in_marks: str
    """Name in the marks that do not outlast this run, see :func:`rebalancer.run.context.name_in_marks`."""
    rights: tuple[AccessRule, ...] = ()
    """Rights that it needs beside those of a run."""
    granted: set[AccessRule] = field(default_factory=set)
    """Rights that were asked for and are there: a drain asks once, not in each of its rounds."""
    timings: Timings
    progress: Progress
    """Says on standard error what the run does."""
    interruptions: tuple[InterruptedMachine, ...] = ()
    """Machines that go, for the report."""
    machines: tuple[MachineAct, ...] = ()
    """What was done to machines, for the report."""
    notes: list[str] = field(default_factory=list)
    """What the reader of the report should know of the policy, the reading and the memory."""

    @property
    def loaded(self) -> LoadedPolicy:
        """The policy, including configuration from the cluster once that is read."""
        return self.rules.loaded

    @property
    def steers(self) -> bool:
        """Whether the run may mark nodes."""
        return self.loaded.policy.steer is Steer.MARKS

    @property
    def closes(self) -> bool:
        """Whether the run may cordon nodes whose machines will be removed."""
        policy = self.loaded.policy
        return any(
            of.params.scales == "in" and policy.mode_of(name) is Mode.ENFORCE
            for name, of in policy.strategies.items()
        )

    @property
    def restarts(self) -> bool:
        """Whether the run may restart rollouts."""
        return self.loaded.policy.method.single_replicas is Method.RESTART


def run_context(
    options: RunOptions,
    environment: Environment,
    *,
    registry: Registry | None = None,
    loaded: LoadedPolicy | None = None,
) -> RunContext:
    """Load the policy, and the reviewed plan if there is one.

    ``registry`` and ``loaded``: loaded before by a long-lived process.

    Raises:
        PolicyError: a flag, the policy or the plan is invalid.
    """
    state, publishing = options.state, options.publishing
    if options.whole and not options.dry_run and options.cluster.snapshot_path is None:
        raise PolicyError(["--whole needs --dry-run: a run carries out what its time allows"])
    if options.policy.policy_path == options.cluster.snapshot_path == "-":
        raise PolicyError(["--policy and --snapshot cannot both be standard input"])
    _refuse_cluster_flags(options.cluster, state)
    registry = Registry.installed() if registry is None else registry
    loaded = options.policy.load(registry) if loaded is None else loaded
    reviewed = _read_reviewed_plan(options, loaded)
    offline = options.cluster.snapshot_path is not None
    acts = not (options.dry_run or offline) and loaded.policy.mode is Mode.ENFORCE
    if acts and not options.yes and options.confirmed_plan is None:
        raise PolicyError([_UNASKED])
    if acts and state.capacity_status is None:
        _require_status(loaded, of_fleet=state.of_fleet)
    # A dry run that is given no Lease is asked by people about a release whose Lease they may not know.
    knows_its_marks = not offline and (acts or state.lease is not None)
    passing = name_in_marks(state.lease, environment)
    clock, bars = environment.clock, bars_on(environment, options.progress, options.ending.color)
    return RunContext(
        acts=acts,
        environment=environment,
        rules=RunRules(
            loaded,
            registry,
            _scope(options.scope, environment),
            lifted=options.lift_budgets,
            seconds=math.inf if options.whole else options.deadline,
            runs=frozenset({name_in_lasting_marks(state.lease), passing})
            if knows_its_marks
            else None,
        ),
        reviewed=reviewed,
        state=state,
        name_in_marks=passing,
        measured=publishing.metrics_push is not None or publishing.metrics_file is not None,
        stop=Stop(clock, clock.now() + options.deadline, environment.stop),
        timings=Timings(
            clock, shown=nullcontext if bars is None else bars.phase, spans=environment.spans
        ),
        progress=Progress(
            environment.err,
            clock=clock.now,
            form="quiet" if options.progress.quiet else options.progress.log_format,
            bars=bars,
            pictured=options.progress.pictured,
            unix=clock.unix,
        ),
        notes=[
            *loaded.warnings,
            *([_YES_OFFLINE] if offline and options.yes else []),
        ],
    )


def _scope(flags: ScopeFlags, environment: Environment) -> Scope:
    """Return which pods the run may move; never its own pod."""
    select = Select() if flags.select is None else flags.select
    return Scope(flags.namespace, flags.selector, select, own_pod=own_pod(environment))


_YES_OFFLINE = "--yes has no effect: nothing is evicted from a file"
_UNASKED = (
    "an eviction needs a yes, and there is no terminal to ask on: add --yes; to look only,"
    " --mode observe"
)


def _require_status(loaded: LoadedPolicy, *, of_fleet: bool) -> None:
    """Raise PolicyError if the policy scales groups up without a stored status: back-offs would be lost."""
    policy = loaded.policy
    for name, strategy in policy.strategies.items():
        if strategy.params.scales == "out" and policy.mode_of(name) is Mode.ENFORCE:
            needs = (
                "keeps in a ConfigMap which groups failed to grow, which a fleet has not: scale in the cluster itself."
                if of_fleet
                else "needs --capacity-status NAMESPACE/NAME: a ConfigMap, made before, that keeps which groups failed to grow."
            )
            message = f"{name} {needs} Or set strategies.{name}.mode to observe."
            raise PolicyError([message])


def _read_reviewed_plan(options: RunOptions, loaded: LoadedPolicy) -> ReviewedPlan | None:
    if options.plan_path is None and options.confirmed_plan is None:
        return None
    from rebalancer.report.plan_file import read_plan  # noqa: PLC0415

    if options.confirmed_plan is not None:
        plan = read_plan("-", BytesIO(options.confirmed_plan))
        return replace(plan, name="shown above", max_age=options.max_age)
    if options.plan_path == options.policy.policy_path == "-":
        raise PolicyError(["plan and --policy cannot both be standard input"])
    if options.plan_path == options.cluster.snapshot_path == "-":
        raise PolicyError(["plan and --snapshot cannot both be standard input"])
    plan = read_plan(options.plan_path or "", sys.stdin.buffer)
    if not isinstance(loaded.policy.scheduler.from_config, ConfigMapKey):
        plan.check_policy(loaded)
    return replace(plan, max_age=options.max_age)


def _refuse_cluster_flags(cluster: ClusterFlags, state: StateFlags) -> None:
    """Raise PolicyError for flags that need a cluster although a snapshot file is read."""
    if cluster.snapshot_path is None:
        return
    of_cluster = {
        "--kubeconfig": cluster.kubeconfig,
        "--context": cluster.context_name,
        "--lease": state.lease,
        "--memory": state.memory,
        "--capacity-status": state.capacity_status,
    }
    given = [flag for flag, value in of_cluster.items() if value is not None]
    if given:
        are = "is" if len(given) == 1 else "are"
        it = "it" if len(given) == 1 else "them"
        raise PolicyError(
            [f"{', '.join(given)} {are} of the cluster; leave {it} out with a snapshot file"]
        )
