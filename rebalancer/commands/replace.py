"""``replace``: cordon old nodes, empty them one after the other, and have their machines removed."""

from __future__ import annotations

from typing import Any

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.commands.drain import (
    EMPTYING,
    NOT_OF_A_RUN,
    exit_codes,
)
from rebalancer.commands.flags import (
    KubectlFlags,
    examples,
    takes,
)
from rebalancer.kube.access import read_cluster_uid
from rebalancer.machines.capacity.of_run import open_provider
from rebalancer.machines.capacity.packing import Missing, missing_nodes
from rebalancer.machines.drain.command import NodeCommand
from rebalancer.machines.drain.cordon import NodeChoice, version_of
from rebalancer.machines.drain.replacing import (
    NodeReplacement,
    ReplaceHook,
    ReplacementPace,
    ReplaceOptions,
)
from rebalancer.machines.surge.choice import MachineChoice
from rebalancer.machines.surge.note import GroupNotes
from rebalancer.machines.surge.replacement import SurgeReplacement
from rebalancer.node_record.tasks import Course
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.providers.contract import Outdated, ReplacingMachines
from rebalancer.registry import Registry


def replace_nodes(options: ReplaceOptions, environment: Environment) -> ExitCode:
    """Check, replace old nodes one after the other, report; return the exit code.

    Raises:
        RebalancerError: nothing was changed, or the cluster can no longer be read.
    """
    nodes = _choice(options)
    hook = None if options.then is None else ReplaceHook.parse(options.then)
    ordered = NodeCommand.of(options, environment)
    choice = _machine_choice(options, nodes, ordered) if _has_surge(options) else nodes
    preflight = ordered.preflight(choice)
    of_groups = choice if isinstance(choice, MachineChoice) else None
    ordered.note(*[] if of_groups is None else of_groups.notes)
    profile = scheduler_profile(ordered.base.loaded.policy, preflight.snapshot)
    missing = missing_nodes(preflight.snapshot, profile, preflight.checks, preflight.names)
    if missing is not None:
        ordered.note(text_of_missing(missing))
    is_needed = bool(preflight.names or (of_groups and of_groups.old))
    if not is_needed:
        text = "no replacement is under way" if options.take_back else "no node is old"
        ordered.note(f"{text}: there is nothing to replace")

    def replace() -> Course[str | None]:
        if not is_needed:
            return None
        if of_groups is not None:
            replacement: NodeReplacement = SurgeReplacement(ordered, of_groups, options)
        else:
            wait = options.wait_batch
            replacement = NodeReplacement(ordered, nodes, preflight.uids, hook, wait)
        pace = ReplacementPace(options.max_unavailable, options.pause, 0.0, options.pause_after)
        return (yield from replacement.run(pace))

    left = None if of_groups is None else of_groups.without_node or None
    return ordered.carry_out(preflight, replace, left)


def text_of_missing(missing: Missing) -> str:
    """Return a sentence on the missing nodes."""
    pods = "1 pod has" if missing.pods == 1 else f"{missing.pods} pods have"
    if missing.nodes:
        return f"{pods} no room on the nodes that stay: {missing.nodes} more like {missing.like} would do"
    return f"{pods} no room, and one of them fits on no node like {missing.like}"


def _has_surge(options: ReplaceOptions) -> bool:
    return options.surge is not None or options.take_back


def _choice(options: ReplaceOptions) -> NodeChoice:
    """Return the conditions on nodes.

    Raises:
        PolicyError: flags are missing, or exclude each other.
    """
    conditions = (options.selector, options.kubelet_below, options.older_than, options.outdated)
    if options.take_back:
        if any(one is not None for one in conditions):
            raise PolicyError(
                ["--take-back is about all groups under replacement: leave -l and the like out"]
            )
    elif all(one is None for one in conditions):
        raise PolicyError(
            [
                "say which nodes are old: -l, --kubelet-below, --older-than, or --outdated with --surge"
            ]
        )
    if _has_surge(options) and options.then is not None:
        raise PolicyError(
            ["--then removes machines, and so does the provider with --surge: give one of the two"]
        )
    if options.outdated is not None and options.surge is None:
        raise PolicyError(["--outdated asks the policy's provider: give --surge, too"])
    if options.kubelet_below is not None:
        version_of(options.kubelet_below)
    return NodeChoice((), options.selector, options.kubelet_below, options.older_than)


def _machine_choice(
    options: ReplaceOptions, nodes: NodeChoice, ordered: NodeCommand
) -> MachineChoice:
    """Return the choice of nodes by the groups of the policy's provider.

    Raises:
        PolicyError: the policy names no provider that replaces machines.
        ProviderError: a prerequisite is missing.
        ClusterReadError: the cluster cannot be identified.
    """
    name, machines = open_provider(ordered.base, Registry.installed().providers, ordered.client)
    if not isinstance(machines, ReplacingMachines):
        raise PolicyError(
            [
                f"the provider {name} replaces no machines; name one that does in the policy (--policy), such as aws or cluster-api"
            ]
        )
    notes = GroupNotes(read_cluster_uid(ordered.client))
    return MachineChoice(
        nodes,
        machines,
        notes,
        ordered.base.loaded.policy.capacity,
        None if options.outdated is None else Outdated(options.outdated),
        all_of_notes=options.take_back,
    )


@click.command(
    "replace",
    cls=KubectlFlags,
    epilog=exit_codes("all are replaced, or would be, or none is old", "not all are replaced")
    + examples(
        "rebalancer replace --kubelet-below 1.36 --ignore-daemonsets --dry-run=client",
        "rebalancer replace -l pool=old --ignore-daemonsets --then ./remove-machine",
        "rebalancer replace --outdated template --surge 1 --policy policy.yaml --ignore-daemonsets",
    ),
)
@takes(
    ReplaceOptions,
    f"selector kubelet_below older_than outdated {EMPTYING} max_unavailable pause pause_after surge ready_within take_back then",
    **NOT_OF_A_RUN,
)
def command(**flags: Any) -> int:
    """Replace old nodes, one after the other.

    All are cordoned, then emptied one by one, and the machine of each is removed by your hook. With --surge the
    policy's provider adds machines first and ends old ones, and each node is cordoned when its turn comes. A node
    is old if all that is given of -l, --kubelet-below, --older-than and --outdated is true of it. Nothing is
    changed if the other nodes do not hold what leaves; how many are missing is said. Nodes without batch work come
    first. A workload's only pod leaves as by drain. New nodes are begun within the policy's windows only. How far each node is stands on it, and on its
    group: called again after it was killed, it goes on from there.
    """
    return int(replace_nodes(ReplaceOptions.of(**flags), system_environment()))
