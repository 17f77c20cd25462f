"""The commands ``explain pod``, ``explain node``, ``explain workload`` and ``explain code``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from rebalancer import API_VERSION
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError, ProviderError
from rebalancer.base.plain_text import WIDTH, closest, did_you_mean
from rebalancer.commands.flags import (
    ACCESS,
    POLICY,
    complete_namespaces,
    complete_nodes,
    complete_pods,
    complete_workloads,
    examples,
    output_flag,
    takes,
)
from rebalancer.commands.panels import PanelGroup
from rebalancer.explain.find import (
    KINDS,
    NODE,
    POD,
    WORKLOAD,
    find_ended,
    find_named,
    find_node,
    find_pod,
    find_workload,
    kind_of,
    node_name,
    within,
)
from rebalancer.explain.node import NodeRecorder, format_node, node_data, node_facts
from rebalancer.explain.pods import Recorder, decision_data, describe_ended, facts_of, format_ended
from rebalancer.explain.text import CodeMeaning, format_codes, format_nodes, format_pod, list_codes
from rebalancer.explain.workload import (
    MovedPod,
    WorkloadRecorder,
    find_moved,
    format_gone,
    format_workload,
    gone_data,
    workload_data,
    workload_facts,
)
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.kube.events import MoveEvent, list_ends, list_move_events
from rebalancer.plan.plan import Code, NodeCode, Status
from rebalancer.planner.plan import PlanObserver
from rebalancer.report.document import FORMS, Block, Passage, ReportDocument
from rebalancer.report.model import RunReport
from rebalancer.run.context import run_context
from rebalancer.run.ending import Results, run_report
from rebalancer.run.memory.document import Document, decode
from rebalancer.run.one_run import plan_run, recall
from rebalancer.run.options import RunOptions
from rebalancer.run.source import find_state, open_source
from rebalancer.scheduler.explain import explain_pod as explain_landing
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState

R = TypeVar("R", bound=Recorder)
_MAX_ENDS = 4


class Explaining:
    """A dry run that writes an explanation instead of a report."""

    def __init__(self, options: RunOptions, environment: Environment) -> None:
        """Read the cluster.

        Raises:
            ClusterReadError: it could not be read.
        """
        self._output = options.ending.output
        with open_source(run_context(options, environment), options.cluster) as source:
            reading = source.read()
            if source.client is not None:
                state, unknown = find_state(reading.run.state, source.client)
                if unknown is not None and unknown.installed:
                    reading = reading.noting(f"cool-downs are not known: {unknown}")
                reading = reading.remembering(state.memory)
                from rebalancer.doctor.release import name_other_policy  # noqa: PLC0415  # no file needs it

                name_other_policy(reading.run.loaded, source.client, state.memory, environment.err)
        self._reading = reading
        self._asked: dict[str, None] = {}
        """The records in which :meth:`find_moved` has looked."""
        self.snapshot = reading.snapshot
        self.profile = reading.run.rules.scheduler_profile(self.snapshot)

    def record_run(self, new: Callable[[], R]) -> tuple[RunReport, R]:
        """Return the report of the dry run, and the recorder that observed its plan."""
        recorders: list[R] = []

        def observe() -> R:
            recorders.append(new())
            return recorders[-1]

        report, observer = self.run_dry(observe)
        return report, next(one for one in recorders if one is observer)

    def run_dry(
        self, observe: Callable[[], PlanObserver] | None
    ) -> tuple[RunReport, PlanObserver | None]:
        """Return the report of the dry run, and the observer of its plan."""
        reading = recall(self._reading)
        planned, notes = plan_run(reading, observe)
        return run_report(reading, planned, Results(tuple(notes))), planned.observer

    def find_moved(self, ref: str) -> MovedPod | None:
        """Return what the memory and events know of a pod that a run has moved; None if that is nothing."""
        client, memory = self._reading.client, self._reading.run.state.memory
        if client is None:
            return None
        document, events = Document(), list[MoveEvent]()
        namespace, _, name = ref.rpartition("/")
        with suppress(ClusterReadError):
            events = list_move_events(client, namespace, name)
            self._asked["Events (kept for about an hour)"] = None
        with suppress(ClusterReadError):
            stored = None if memory is None else ConfigMapStore(client, *memory).read()
            document, flaw = (Document(), None) if stored is None else decode(stored.data)
            if stored is not None and flaw is None:
                self._asked[f"the memory in ConfigMap {'/'.join(memory or ())}"] = None
        return find_moved(ref, document, events)

    def add_who_ended(self, ref: str, error: PolicyError) -> PolicyError:
        """Return the error that there is no such pod, after :meth:`find_moved`, with that no run moved it, and who ended it."""
        client = self._reading.client
        if client is None:
            return error
        said = "whether a run of kube-rebalancer moved it is not known: neither Events nor a memory could be read"
        if self._asked:
            asked = " and ".join(self._asked)
            said = (
                f"no run of kube-rebalancer moved a pod of this name, as far as known from {asked}"
            )
        ends: list[str] = []
        namespace, _, name = ref.rpartition("/")
        with suppress(ClusterReadError):
            ends = list_ends(client, namespace, name)[-_MAX_ENDS:]
        return PolicyError([*error.problems, said, *(f"an Event says: {one}" for one in ends)])

    def machines(self, pod: int) -> tuple[list[Block], dict[str, Any]]:
        """Return the capacity report on a pending pod, as blocks and as data; for a file no provider is queried."""
        from rebalancer.machines.capacity.of_run import judge_machines  # noqa: PLC0415
        from rebalancer.machines.capacity.report import (  # noqa: PLC0415  # seldom needed
            helper_of,
            pending_data,
            pending_words,
        )

        asks = self._reading.client is not None
        try:
            report, _ = judge_machines(self._reading, asks=asks)
        except ProviderError as error:
            return [Passage(f"not judged: {error}", "  ", "    ", WIDTH)], {"notJudged": str(error)}
        one = next((of for of in report.scale_out.pods if of.pod == pod), None)
        if one is None:
            return ["  not judged: it is being deleted"], {"notJudged": "it is being deleted"}
        texts = [f"{one.code.value}: {helper_of(one) or 'no group helps'}", *pending_words(one)]
        lines: list[Block] = [Passage(text, "  ", "    ", WIDTH) for text in texts]
        if not report.groups.groups:
            lines.append("  there is no group of machines; see: rebalancer capacity")
        return lines, pending_data(self.snapshot, one)

    def write(
        self, kind: str, report: RunReport, data: Mapping[str, Any], blocks: Sequence[Block]
    ) -> ExitCode:
        """Write the explanation."""
        document = ReportDocument(blocks, {**_head(kind, report), **data})
        document.print_to(self._reading.run.environment, self._output)
        return ExitCode.DONE


def explain_pod(ref: str, node: str | None, explaining: Explaining) -> ExitCode:
    """Explain the landing of a pod's replacement (with ``node``, only on that node), and the plan for the pod.

    Raises:
        PolicyError: there is no such pod or node.
    """
    snapshot, profile = explaining.snapshot, explaining.profile
    if node is None and (ended := find_ended(snapshot, ref)) is not None:
        return _explain_ended(explaining, *ended)
    try:
        pod = find_pod(snapshot, ref)
    except PolicyError as error:
        if (moved := explaining.find_moved(ref)) is None:
            raise explaining.add_who_ended(ref, error) from None
        return _explain_moved(explaining, moved)
    node = None if node is None else node_name(node)
    if node is not None and node not in snapshot.nodes.index:
        raise PolicyError([f"--node {node}: there is no such node"])
    report, recorder = explaining.record_run(
        lambda: Recorder(snapshot.pods.cls[[pod]], int(snapshot.pods.node[pod]))
    )
    (facts,) = facts_of(report, recorder, [pod])
    # In a new model and state: those of the plan are changed by its moves.
    landing = explain_landing(
        snapshot, SchedulerModel(snapshot, profile), ClusterState(snapshot), pod
    )
    data = landing.as_json() | decision_data(facts)
    lines: list[Block] = []
    if landing.waits:
        lines, data["machines"] = explaining.machines(pod)
    table = (
        format_nodes(landing, node)
        if node is not None
        else format_pod(report, facts, landing, lines)
    )
    return explaining.write("PodExplanation", report, data, table)


def _explain_moved(explaining: Explaining, moved: MovedPod) -> ExitCode:
    snapshot = explaining.snapshot
    try:
        owner = find_workload(snapshot, moved.owner)
    except PolicyError:
        report, _ = explaining.run_dry(None)
        facts = None
    else:
        report, recorder = explaining.record_run(lambda: WorkloadRecorder(snapshot, owner))
        facts = workload_facts(report, recorder)
    data, text = gone_data(moved, facts), format_gone(moved, facts)
    return explaining.write("PodExplanation", report, data, text)


def _explain_ended(explaining: Explaining, ended: Snapshot, pod: int) -> ExitCode:
    report, _ = explaining.run_dry(None)
    data = describe_ended(report, ended, pod)
    uid = ended.pods.uid[pod]
    move = next((one for one in report.outcomes if one.move.uid == uid), None)
    return explaining.write("PodExplanation", report, data, format_ended(data, move))


def explain_node(name: str, explaining: Explaining) -> ExitCode:
    """Explain a node: its state, its pods, and the moves from and to it.

    Raises:
        PolicyError: there is no such node.
    """
    node = find_node(explaining.snapshot, name)
    report, recorder = explaining.record_run(lambda: NodeRecorder(explaining.snapshot, node))
    facts = node_facts(report, recorder)
    return explaining.write("NodeExplanation", report, node_data(facts), format_node(report, facts))


def explain_workload(ref: str, explaining: Explaining) -> ExitCode:
    """Explain a workload: its pods, its rules, and its moves.

    Raises:
        PolicyError: there is no such workload, or more than one of that name.
    """
    owner = find_workload(explaining.snapshot, ref)
    report, recorder = explaining.record_run(lambda: WorkloadRecorder(explaining.snapshot, owner))
    facts = workload_facts(report, recorder)
    table = format_workload(report, facts)
    return explaining.write("WorkloadExplanation", report, workload_data(facts), table)


def _head(kind: str, report: RunReport) -> dict[str, Any]:
    snapshot, loaded = report.snapshot, report.loaded
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "source": report.source,
        "capturedAt": snapshot.known_time,
        "serverVersion": snapshot.known_version,
        "mode": loaded.policy.mode.value,
        "policySource": loaded.source,
        "policyHash": loaded.policy_hash,
        "standstill": list(report.standstill),
        "warnings": list(report.warnings),
    }


class _Kinds(PanelGroup):
    """A group whose commands may be named as kubectl names objects: ``deploy/web``, ``po web-0``, a plain name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put flags that are before the object behind it, then parse the arguments."""
        flags, at = self.commands[POD].params, 0
        valued = {name for one in flags if not getattr(one, "is_flag", True) for name in one.opts}
        while args[at:] and args[at].startswith("-") and not args[at].startswith(("-h", "--help")):
            at += 1 + (args[at] in valued)
        if 0 < len(args) <= at:
            ctx.fail("Name what to explain: pod, node, workload or code")
        return super().parse_args(ctx, [*args[at:], *args[:at]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, _by_kind(ctx, self.commands, args))


def _by_kind(ctx: click.Context, commands: Collection[str], args: list[str]) -> list[str]:
    first, *rest = args
    kind, slash, name = first.partition("/")
    kind = kind_of(kind)
    if first in commands or first.startswith("-"):
        return args
    if kind in (POD, NODE, WORKLOAD, "code") and (name or not slash):
        return [kind, *([name] if slash else []), *rest]
    if slash or not rest or rest[0].startswith("-"):
        # No object has a name with capital letters, and most codes do.
        return [_ANY if slash or first == first.lower() else "code", *args]
    if kind not in KINDS and closest(first, [*commands, *KINDS]) is not None:
        ctx.fail(f"No such command {first!r}{did_you_mean(first, [*commands, *KINDS])}")
    return [WORKLOAD, f"{first}/{rest[0]}", *rest[1:]]


@click.group(
    "explain",
    cls=_Kinds,
    epilog=examples(
        "rebalancer explain deploy/web",
        "rebalancer explain -n shop pod web-0",
        "rebalancer explain --snapshot cluster.zip node node-a1",
        "rebalancer explain NoRoom",
    ),
)
def command() -> None:
    """Explain a pod, a node or a workload.

    What is seen in it, and what the plan of a dry run does with it; or what a code of a report means. Objects may be
    named as kubectl names them, or by a name that only one of them has. Flags of the commands below may be
    before the object or behind it: -n NAMESPACE, --snapshot FILE.
    """


_EXPLAINED = takes(
    RunOptions,
    f"{POLICY} {ACCESS} snapshot_path memory output quiet",
    snapshot_path={
        "help": "Explain on a snapshot file ('-': standard input), without a cluster.",
        "argument": False,
    },
    memory={
        "help": "ConfigMap of run --memory: which owners cool down, and which budgets are used up. Default: that of the chart's"
        " release in the cluster."
    },
    output={"choices": FORMS, "help": "Form of the explanation."},
)


_WITHIN = click.option(
    "-n",
    "--namespace",
    "of_namespace",
    metavar="NAME",
    shell_complete=complete_namespaces,
    help="Namespace of the object. Default: default, or that which alone has one of this name.",
)

_ANY = "named"
"""The command for an object whose kind is part of its name."""


@command.command(_ANY, hidden=True)
@click.argument("name", shell_complete=complete_pods)
@_WITHIN
@_EXPLAINED
def _explain_named(name: str, of_namespace: str | None, **options: Any) -> int:
    """Explain the pod, node or workload of this name."""
    given = RunOptions.of(dry_run=True, **options)
    explaining = Explaining(given, system_environment())
    name = within(name, of_namespace)
    try:
        named = find_named(explaining.snapshot, name)
    except PolicyError as error:
        if explaining.find_moved(name) is None:
            raise explaining.add_who_ended(name, error) from None
        named = "pod"
    match named:
        case "node":
            return int(explain_node(name, explaining))
        case "pod":
            return int(explain_pod(name, None, explaining))
    return int(explain_workload(name, explaining))


@command.command("pod", epilog=examples("rebalancer explain pod web-0 --node node-a1"))
@click.argument("pod", metavar="[NAMESPACE/]NAME", shell_complete=complete_pods)
@_WITHIN
@click.option(
    "--node",
    metavar="NAME",
    help="Only this node: why it would not take the replacement, or its scores.",
)
@_EXPLAINED
def _pod(pod: str, node: str | None, of_namespace: str | None, **options: Any) -> int:
    """Where its replacement would land, and its plan.

    Prints each node's filter or scores for the replacement, where it would land, which rules the pod breaks
    where it is, and what the plan of a dry run does with it. Of a pod that a run has moved: what, why, whether it
    was right, and how to stop it.
    """
    given = RunOptions.of(dry_run=True, **options)
    explaining = Explaining(given, system_environment())
    return int(explain_pod(within(pod, of_namespace), node, explaining))


@command.command("node", epilog=examples("rebalancer explain node node-a1"))
@click.argument("node", metavar="NAME", shell_complete=complete_nodes)
@_EXPLAINED
def _node(node: str, **options: Any) -> int:
    """How it stands, its pods, what leaves and lands.

    Prints whether replacements land on the node, how full it is beside the thresholds, each of its pods with
    what it breaks there and why it moves or stays, and the planned moves that may land on it.
    """
    given = RunOptions.of(dry_run=True, **options)
    return int(explain_node(node, Explaining(given, system_environment())))


@command.command(
    "workload",
    epilog=examples(
        "rebalancer explain workload web", "rebalancer explain workload Deployment/default/web"
    ),
)
@click.argument("workload", metavar="[KIND/][NAMESPACE/]NAME", shell_complete=complete_workloads)
@_WITHIN
@_EXPLAINED
def _workload(workload: str, of_namespace: str | None, **options: Any) -> int:
    """Where its pods stand, its rules, its plan.

    Prints how many of its pods stand where, what its rules ask for and the fewest moves that fix them, its
    PodDisruptionBudgets, which pods move where, which stay and why, and what cannot hold.
    """
    given = RunOptions.of(dry_run=True, **options)
    explaining = Explaining(given, system_environment())
    return int(explain_workload(within(workload, of_namespace), explaining))


def _complete_codes(
    _context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    codes = {one.code: one.meaning for one in _all_codes()}
    return [
        CompletionItem(code, help=meaning)
        for code, meaning in codes.items()
        if code.lower().startswith(begun.lower())
    ]


def _all_codes() -> list[CodeMeaning]:
    from rebalancer.machines.reasons import CODES  # noqa: PLC0415  # seldom needed

    enumerations: dict[str, type[enum.StrEnum]] = {
        "a pod that stays": Code,
        "a node that may be emptied": NodeCode,
        "the outcome of a move": Status,
        **CODES,
    }
    return list(list_codes(enumerations))


@command.command(
    "code",
    epilog=examples("rebalancer explain code Unsure", "rebalancer explain code"),
)
@click.argument("code", metavar="[CODE]", required=False, shell_complete=_complete_codes)
@output_flag(*FORMS, of="explanation")
def _code(code: str | None, output: str) -> None:
    """What a code of a report means, and what to do.

    Prints it for reason codes, outcomes, protections and the codes of machines; without CODE for all.
    """
    codes = _all_codes()
    if code is not None:
        chosen = [one for one in codes if one.code.lower() == code.lower()]
        if not chosen:
            meant = did_you_mean(code, {one.code for one in codes}, listed=0) or ";"
            text = f"there is no code {code!r}{meant} `rebalancer explain code` lists all"
            raise PolicyError([text])
        codes = chosen
    head = {"apiVersion": API_VERSION, "kind": "CodeExplanation"}
    document = ReportDocument(
        format_codes(codes), {**head, "codes": [asdict(one) for one in codes]}
    )
    document.print_to(system_environment(), output)
