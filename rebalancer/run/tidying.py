"""Clean up after earlier processes: node conditions, labels of drains, and late EvictionRequests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rebalancer.base.durations import format_duration
from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind
from rebalancer.kube.eviction_requests import withdraw
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.node_record.records import take_back_label
from rebalancer.run.context import RunContext
from rebalancer.run.source import Reading
from rebalancer.snapshot.leaving import DRAIN, NoticeKind
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339

_OF_RECORDS = frozenset({NoticeKind.SAID, NoticeKind.DRAIN, NoticeKind.SCALE_IN})
"""Kinds of notices on nodes that have conditions of ours, or should have some."""


def conditions_of(run: RunContext, warn: Callable[[str], None]) -> NodeConditions:
    """Return the writer of node conditions. It writes nothing in a dry run, or if the policy does not enable conditions."""
    on = run.acts and run.loaded.policy.node_conditions
    return NodeConditions(on, run.environment.clock.unix, warn)


def tidy(reading: Reading) -> Sequence[str]:
    """Put in order what earlier processes left in the cluster; return notes."""
    run, client, snapshot = reading.run, reading.client, reading.snapshot
    if client is None:
        return ()
    notes = _tidy_nodes(run, client, snapshot)
    if snapshot.eviction_requests:
        run.environment.committed.set()
        notes += withdraw_late(run, client, snapshot)
    return notes


def _tidy_nodes(run: RunContext, client: Client, snapshot: Snapshot) -> list[str]:
    """Remove the labels of drains that are over, and set the conditions of nodes to what their records say.

    A process may have been killed after it wrote a record and before it set the conditions. People may have uncordoned
    a node since. A failure is a note, which is returned; the run continues.
    """
    notes: list[str] = []
    nodes, conditions = snapshot.nodes, conditions_of(run, notes.append)
    for node, notices in sorted(nodes.notices.items()):
        name = nodes.names[node]
        left = any((one.kind, one.name) == (NoticeKind.SAID, DRAIN) for one in notices)
        if left and not nodes.unschedulable[node]:
            try:
                take_back_label(client, name)
            except ClusterReadError as error:
                notes.append(f"the label of a drain on node {name} is not taken back: {error}")
        if any(one.kind in _OF_RECORDS for one in notices):
            conditions.show(client, name)
    return notes


def withdraw_late(run: RunContext, client: Client, snapshot: Snapshot) -> Sequence[str]:
    """Withdraw the requests of runs that are open for longer than the policy lets responders take; return a note for each.

    A run of one namespace withdraws those there. A failure is a note, and ends nothing.
    """
    most = run.loaded.policy.method.eviction_requests
    if most is None:
        return ()
    notes = []
    for one in (snapshot.eviction_requests or {}).values():
        elsewhere = run.rules.namespace not in (None, one.namespace)
        if elsewhere or not (one.ours and one.late):
            continue
        said = withdraw(client, one.namespace, one.pod, one.pod_uid, rfc3339(one.asked_at))
        ref = f"EvictionRequest {one.namespace}/{one.name}"
        done = said.kind is AnswerKind.REQUESTED
        why = f"withdrawn: open for more than {format_duration(most)}"
        notes.append(f"{ref} is {why if done else f'not withdrawn: {said.message}'}")
    return notes
