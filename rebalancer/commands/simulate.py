"""The command ``rebalancer simulate``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, BinaryIO

import click
import numpy as np

from rebalancer.base.environment import Environment, Timings, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.plain_text import FEW, and_more, did_you_mean
from rebalancer.commands.flags import examples, takes
from rebalancer.commands.panels import PanelCommand
from rebalancer.machines.capacity.scaling import scaling_strategies
from rebalancer.planner.rules import finished_phases
from rebalancer.policy.model import Policy
from rebalancer.registry import Registry
from rebalancer.report.document import FORMS, ReportDocument
from rebalancer.run.options import Grouped, PolicyFlags, flag
from rebalancer.scheduler.topology import ZONE
from rebalancer.snapshot.columns import freeze
from rebalancer.snapshot.load import load_judgeable
from rebalancer.snapshot.measured import with_usage_of
from rebalancer.snapshot.model import Snapshot
from rebalancer.whatif.cycles import Conditions, play
from rebalancer.whatif.edits import (
    NodeToAdd,
    add_node,
    cordon_node,
    lose_zone,
    read_data,
    read_objects,
    remove_node,
    renew_budgets,
)
from rebalancer.whatif.report import (
    SimulatedSteps,
    as_data,
    format_simulation,
    format_steps,
    what_if,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions(Grouped):
    """The flags of ``simulate``."""

    policy: PolicyFlags = field(default_factory=PolicyFlags)
    snapshot_path: str = flag(
        "Snapshot file to begin with ('-': standard input).",
        "--snapshot",
        path="any",
        argument=True,
    )
    cycles: int = flag(
        "Runs to play, two minutes apart or when there is something to do again; it ends earlier when nothing more will be done.",
        default=20,
        least=1,
        metavar="N",
    )
    add_node: tuple[str, ...] = flag(
        "A node joins; more keys: like=NODE, cpu, memory, pods, or labels.",
        default=(),
        metavar="NAME[:zone=Z,...]",
    )
    remove_node: tuple[str, ...] = flag(
        "A node is gone; its pods are recreated and wait for another.",
        default=(),
        metavar="NAME",
        parse="nodes",
        complete="nodes",
    )
    lose_zone: tuple[str, ...] = flag(
        "All nodes of a zone are gone, as --remove-node.", default=(), metavar="ZONE"
    )
    cordon: tuple[str, ...] = flag(
        "A node takes no new pods; its own stay.",
        default=(),
        metavar="NAME",
        parse="nodes",
        complete="nodes",
    )
    lift_budgets: bool = flag("No limit per run and per hour.", default=False)
    no_memory: bool = flag("Every run is the first: no cool-downs.", default=False)
    seed: int | None = flag(
        "Draw landings from their distribution. Default: the most probable.",
        default=None,
        least=0,
        metavar="N",
    )
    output: str = flag("Form of the report.", "-o", "--output", default="table", choices=FORMS)

    def edits(self) -> tuple[str, ...]:
        """Return the what-if changes in words, in the order in which they are made."""
        return (
            *(f"{zone} is lost" for zone in self.lose_zone),
            *(f"{text} joins" for text in self.add_node),
            *(f"{name} is gone" for name in self.remove_node),
            *(f"{name} is cordoned" for name in self.cordon),
        )


def simulate(
    options: SimulateOptions,
    environment: Environment,
    stdin: BinaryIO,
    conditions: Conditions = Conditions(),  # noqa: B008  # it cannot be changed
) -> ExitCode:
    """Play the cycles and print what happened; ``conditions``: how fast pods start, end and are evicted.

    Raises:
        RebalancerError: the policy, the snapshot or an edit is wrong.
    """
    registry = Registry.installed()
    loaded = options.policy.load(registry)
    in_file, snapshot = snapshots(options, stdin, finished_phases(loaded.policy, registry))
    conditions = replace(
        conditions,
        cycles=options.cycles,
        memory=not options.no_memory,
        lifted=options.lift_budgets,
    )
    timings = Timings(environment.clock)
    played = play(snapshot, loaded, registry, conditions, timings, seed=options.seed)
    simulation = played.simulation
    simulation = replace(
        simulation,
        warnings=(
            *_new_zones(options.add_node, in_file),
            *_not_simulated(loaded.policy),
            *simulation.warnings,
        ),
    )
    steps = SimulatedSteps(in_file, snapshot, played.settled, played.last)
    change, named = what_if(steps, options.edits()), f"policy {loaded.source}"
    source, form = options.snapshot_path, options.output
    blocks = format_simulation(simulation, change, source=source, policy=named)
    if form in ("html", "markdown"):
        blocks += ["", *format_steps(steps, simulation)]
    data = as_data(simulation, change, source=source, policy=named)
    edits = options.edits()
    title = f"What if {and_more(edits, 3)}?" if edits else "What the next runs would do"
    ReportDocument(blocks, data, title=title).print_to(environment, form)
    return ExitCode.DONE


def snapshots(
    options: SimulateOptions, stdin: BinaryIO, finished: frozenset[str] = frozenset()
) -> tuple[Snapshot, Snapshot]:
    """Return the snapshot of the file, and the same with the edits: first lost zones, then nodes.

    A zone is lost first, so that a new node may join in it. ``finished``: the phases of finished pods to keep.

    Raises:
        PolicyError: the file cannot be read, or an edit cannot be applied.
    """
    new_nodes = [NodeToAdd.parse(text) for text in options.add_node]
    path = options.snapshot_path
    if not (new_nodes or options.remove_node or options.lose_zone or options.cordon):
        unchanged = load_judgeable(path, stdin=stdin, finished=finished)
        return unchanged, unchanged
    data = read_data(path, stdin)
    # Read as it is first: what is wrong with the file is said in its own name.
    first = load_judgeable(path, stdin=BytesIO(data), finished=finished)
    objects = read_objects(data)
    gone: dict[str, str] = {}
    for zone in options.lose_zone:
        gone |= dict.fromkeys(lose_zone(objects, zone), f"--lose-zone {zone}")
    for new in new_nodes:
        add_node(objects, new)
        gone.pop(new.name, None)
    for name in options.remove_node:
        _require_left(f"--remove-node {name}", gone.get(name))
        remove_node(objects, name)
        gone[name] = f"--remove-node {name}"
    for name in options.cordon:
        _require_left(f"--cordon {name}", gone.get(name))
        cordon_node(objects, name)
    renew_budgets(objects)
    # What was measured in the file was measured before the edits; nodes that join will be.
    return first, _with_new_nodes(first, with_usage_of(first, objects.snapshot(finished)))


def _require_left(flag: str, gone: str | None) -> None:
    """Raise PolicyError if the node of ``flag`` is gone by another flag, ``gone``."""
    if gone is not None:
        raise PolicyError([f"{flag}: the node is gone by {gone}: leave one of the two out"])


def _with_new_nodes(first: Snapshot, later: Snapshot) -> Snapshot:
    usage = later.usage
    if usage is None:
        return later
    new = [name not in first.nodes.index for name in later.nodes.names]
    return replace(later, usage=replace(usage, known=freeze(usage.known | np.array(new, bool))))


def _new_zones(added: Sequence[str], in_file: Snapshot) -> Iterator[str]:
    """Yield a sentence on each zone of an added node in which the file has no node: it may be a slip of the pen."""
    known = sorted(in_file.nodes.labels.values(ZONE))
    for zone in dict.fromkeys(NodeToAdd.parse(text).zone for text in added):
        if zone is not None and zone not in known:
            yield f"--add-node: {zone} is a new zone{did_you_mean(zone, known, listed=FEW)}"


def _not_simulated(policy: Policy) -> Iterator[str]:
    """Yield sentences on what the policy would do to machines, which is not simulated."""
    for name, scales in scaling_strategies(policy):
        flag = "--add-node adds one" if scales == "out" else "--remove-node removes one"
        yield f"{name} is not simulated: the nodes stay as they are; {flag}, and rebalancer capacity judges them"


@click.command(
    "simulate",
    cls=PanelCommand,
    epilog=examples(
        "rebalancer simulate cluster.zip --cycles 5",
        "rebalancer simulate cluster.zip --remove-node node-a1",
        "rebalancer simulate cluster.zip --lose-zone zone-a --cordon node-b1",
        "rebalancer simulate cluster.zip --lose-zone zone-a -o html > what-if.html",
    ),
)
@takes(SimulateOptions)
def command(**flags: Any) -> int:
    """Play run after run offline, with what-if changes.

    On a snapshot file, with the scheduler model in the place of kube-scheduler. Nodes come and go by flags only: scale-in and
    scale-out are not simulated.
    """
    return int(simulate(SimulateOptions.of(**flags), system_environment(), sys.stdin.buffer))
