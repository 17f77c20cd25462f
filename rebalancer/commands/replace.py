"""``replace``: cordon old nodes, empty them one after the other, and have their machines removed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.commands.drain import (
    EMPTYING,
    Drain,
    KubectlFlags,
    end_report,
    exit_codes,
    orders_of,
)
from rebalancer.commands.flags import (
    CLUSTER,
    POLICY,
    SET,
    Whole,
    duration,
    examples,
    parse_named,
    with_flags,
)
from rebalancer.kube.nodes import NodeView, read_node
from rebalancer.machines.drain.cordon import NodeChoice, finish, version_of
from rebalancer.machines.drain.preflight import Missing, missing_nodes, refuses
from rebalancer.machines.drain.replacing import ReplaceHook, ReplacementPace, enter, stage_of
from rebalancer.machines.drain.replacing import replace as replace_all
from rebalancer.machines.drain.rounds import EmptyingOptions, EmptyingRounds
from rebalancer.node_record.records import ReplacePhase, Stage
from rebalancer.policy.windows import is_open
from rebalancer.run.context import instance


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceOptions(EmptyingOptions):
    """The flags of ``replace``."""

    selector: str | None = None
    kubelet_below: str | None = None
    older_than: float | None = None
    """Seconds."""
    max_unavailable: int = 1
    pause: float = 30.0
    """Seconds."""
    then: str | None = None


def replace_nodes(options: ReplaceOptions, environment: Environment) -> ExitCode:
    """Check, cordon all old nodes, replace them, report; return the exit code.

    Raises:
        RebalancerError: nothing was changed, or the cluster can no longer be read.
    """
    choice = _choice(options)
    hook = None if options.then is None else ReplaceHook.parse(options.then)
    emptying = EmptyingRounds.of(options, environment, orders_of(options, environment))
    preflight = emptying.preflight(choice)
    if not preflight.names:
        emptying.base.notes.append("no node is old: there is nothing to replace")
        return end_report(emptying, preflight, options, ExitCode.DONE, kind="ReplaceReport")
    missing = missing_nodes(preflight.snapshot, preflight.checks, preflight.names)
    if missing is not None:
        emptying.base.notes.append(text_of_missing(missing))
    refused = refuses(preflight.checks)
    if options.dry or refused:
        code = ExitCode.UNREADABLE if refused else ExitCode.DONE
        return end_report(emptying, preflight, options, code, kind="ReplaceReport")
    environment.committed.set()
    replacing = _Replacing(emptying, choice, preflight.uids, hook, options.wait_batch)
    why = replacing.run(ReplacementPace(options.max_unavailable, options.pause, 0.0))
    code = ExitCode.DONE if why is None else ExitCode.PARTIAL
    return end_report(emptying, preflight, options, code, why, kind="ReplaceReport")


def text_of_missing(missing: Missing) -> str:
    """Return a sentence on the missing nodes."""
    pods = "1 pod has" if missing.pods == 1 else f"{missing.pods} pods have"
    if missing.nodes:
        return f"{pods} no room on the nodes that stay: {missing.nodes} more like {missing.like} would do"
    return f"{pods} no room, and one of them fits on no node like {missing.like}"


def _choice(options: ReplaceOptions) -> NodeChoice:
    if options.selector is None and options.kubelet_below is None and options.older_than is None:
        raise PolicyError(["say which nodes are old: -l, --kubelet-below or --older-than"])
    if options.kubelet_below is not None:
        version_of(options.kubelet_below)
    return NodeChoice((), options.selector, options.kubelet_below, options.older_than)


class _Replacing:
    """A replacement in progress: see ``rebalancer.machines.drain.replacing.Replacing``."""

    def __init__(
        self,
        emptying: EmptyingRounds,
        choice: NodeChoice,
        uids: Mapping[str, str],
        hook: ReplaceHook | None,
        wait_batch: float,
    ) -> None:
        self._emptying, self._choice, self._uids, self._hook = emptying, choice, uids, hook
        self._wait_batch = wait_batch
        self._client = emptying.client()
        self._by = instance(emptying.base.environment)
        self._drain = Drain(emptying, self._client, uids, uncordon_on_failure=False)
        self._batch_until = math.inf
        self._said: str | None = None
        self._reached: Callable[[int, int], None] = lambda _done, _total: None

    def run(self, pace: ReplacementPace) -> str | None:
        """Cordon all nodes, then replace them; return None when done, else why not."""
        stop, clock = self._emptying.stop, self._emptying.environment.clock
        why: str | None = "it was cut off"
        try:
            begun = self._drain.cordon_all()
            self._batch_until = begun + self._wait_batch
            pace = replace(pace, batch_until=self._batch_until)
            with self._emptying.progress.course("replacing", "nodes") as self._reached:
                why = replace_all(self, pace, stop, self._by, clock.unix)
        except ClusterReadError as error:
            why = stop.reason() or str(error)
        finally:
            if why is not None:
                self._drain.end(empty=False)
        return why

    def stages(self) -> Mapping[str, Stage | None]:
        """Return name -> stage, for each old node that still exists."""
        nodes = {name: self._read(name) for name in self._uids}
        stages = {name: stage_of(node) for name, node in nodes.items() if node is not None}
        for name, stage in list(stages.items()):
            done = stage is not None and stage.phase is ReplacePhase.DONE
            node = nodes[name]
            if node is not None and not done and not self._choice.still_has(node):
                self._leave_out(name)
                del stages[name]
        left = sum(
            stage is None or stage.phase is not ReplacePhase.DONE for stage in stages.values()
        )
        self._reached(len(nodes) - left, len(nodes))
        return stages

    def stage(self, name: str) -> Stage | None:
        """Return the stage of one node; None if it has none or is gone."""
        node = self._read(name)
        return None if node is None else stage_of(node)

    def _read(self, name: str) -> NodeView | None:
        """Return the chosen node; None if it is gone. Another Node with its name is a new machine."""
        node = read_node(self._client, name)
        return node if node is not None and node.uid == self._uids[name] else None

    def _leave_out(self, name: str) -> None:
        """Give back a node that is no longer old: its labels changed, or its kubelet was updated in place."""
        if finish(self._client, name, self._by, uncordon=True):
            said = f"node {name} is not chosen any more: it was given back"
            self._emptying.base.notes.append(said)
            self._emptying.progress.note("left out", f"left out {name}", node=name)

    def enter(self, name: str, phase: ReplacePhase, after: Sequence[Stage | None]) -> bool:
        """Write a phase if the node is still at one of the stages ``after``; return whether it is in the phase."""
        now, acts = (
            self._emptying.environment.clock.unix(),
            (ReplacePhase.EMPTYING, ReplacePhase.REMOVING),
        )
        stage = Stage(phase, self._by, now, self._uids[name])

        def may(node: NodeView, before: Stage | None) -> bool:
            return before in after and (phase not in acts or self._choice.still_has(node))

        entered = enter(self._client, name, stage, may=may)
        if entered:
            self._emptying.progress.note(phase.value, f"{phase.value:<8} {name}", node=name)
        return entered

    def works(self, name: str) -> str | None:
        """Return the batch work on a node; None if there is none."""
        emptying = self._emptying
        if emptying.stop.now() >= self._batch_until and emptying.options.evict_batch:
            emptying.evict_batch()
            return None
        left = self._drain.of([name]).look()
        return f"{name}: {left.text()}" if left.batch or left.unread else None

    def empty(self, names: Sequence[str]) -> str | None:
        """Empty these nodes; return None once they are empty, else why they are not."""
        return self._drain.of(names).run(self._wait_batch)

    def remove(self, name: str) -> str | None:
        """Remove the machine of a node; return why that failed, or None."""
        node = self._read(name)
        if self._hook is None or node is None:
            return None
        return self._hook.call(name, node.provider_id, self._emptying.environment.environ)

    def why_closed(self) -> str | None:
        """Return why no further node may be started now (a closed window of the policy), or None."""
        now = self._emptying.environment.clock.unix()
        open_ = is_open(self._emptying.base.loaded.policy.windows, now)
        return None if open_ else "the policy's window is closed"

    def waits(self, why: str) -> None:
        """Report what is awaited when it changes."""
        if why != self._said:
            self._said = why
            self._emptying.progress.note("waiting", f"waiting  for {why}")


@click.command(
    "replace",
    cls=KubectlFlags,
    epilog=exit_codes("all are replaced, or would be, or none is old", "not all are replaced")
    + examples(
        "rebalancer replace --kubelet-below 1.36 --ignore-daemonsets --dry-run=client",
        "rebalancer replace -l pool=old --ignore-daemonsets --then ./remove-machine",
    ),
)
@click.option(
    "-l",
    "--selector",
    metavar="LABELS",
    help="Old nodes: with these labels, as kubectl takes them: pool=old.",
)
@click.option(
    "--kubelet-below",
    metavar="VERSION",
    help="Old nodes: their kubelet is older than this version, such as 1.36.",
)
@click.option(
    "--older-than",
    callback=parse_named(duration),
    metavar="DURATION",
    help="Old nodes: they were created longer ago than this, such as 30d.",
)
@with_flags([POLICY, SET, *CLUSTER])
@with_flags(EMPTYING)
@click.option(
    "--max-unavailable",
    type=Whole(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Most nodes at once that are being emptied, or are empty and not removed yet.",
)
@click.option(
    "--pause",
    callback=parse_named(duration),
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="Between one node (or --max-unavailable of them) and the next.",
)
@click.option(
    "--then",
    metavar="COMMAND|URL",
    help="What removes the machine of an empty node: a command, without a shell, with the node's name as its last "
    "argument and PROVIDER_ID set, or an http(s) address that gets a POST of both. It may be called again after a kill.",
)
def command(**flags: Any) -> int:
    """Replace old nodes, one after the other.

    All are cordoned, then emptied one by one, and the machine of each is removed by your hook. A node is old if
    all that is given of -l, --kubelet-below and --older-than is true of it. Nothing is changed if the other nodes
    do not hold what leaves; how many are missing is said. Nodes without batch work come first. New nodes are
    begun within the policy's windows only. How far each node is stands on it: called again after it was killed,
    it goes on from there.
    """
    return int(replace_nodes(ReplaceOptions.of(**flags), system_environment()))
