"""The conditions on nodes, as a run sets them, and repairs what a killed process has left."""

from __future__ import annotations

from rebalancer.kube.client import Client
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.run.context import RunContext
from rebalancer.snapshot.leaving import NoticeKind
from rebalancer.snapshot.model import Snapshot

_OF_RECORDS = frozenset({NoticeKind.SAID, NoticeKind.DRAIN, NoticeKind.SCALE_IN})
"""Kinds of notices on nodes that have conditions of ours, or should have some."""


def conditions_of(run: RunContext) -> NodeConditions:
    """Return what writes the conditions of a run; it does nothing in a dry run, or if the policy does not ask for it."""

    def warn(text: str) -> None:
        if text not in run.notes:
            run.notes.append(text)

    on = run.acts and run.loaded.policy.node_conditions
    return NodeConditions(on, run.environment.clock.unix, warn)


def repair_conditions(run: RunContext, client: Client, snapshot: Snapshot) -> None:
    """Bring the conditions of all nodes in work to what their records say, and remove those that stayed on others.

    A process may have been killed between a record and the conditions; and of a node that people have uncordoned
    nothing is said any more.
    """
    conditions = conditions_of(run)
    if not conditions.on:
        return
    for node, notices in sorted(snapshot.nodes.notices.items()):
        if any(one.kind in _OF_RECORDS for one in notices):
            conditions.show(client, snapshot.nodes.names[node])
