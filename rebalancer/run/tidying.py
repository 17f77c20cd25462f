"""Clean up after earlier processes: node conditions, labels of drains, and late EvictionRequests."""

from __future__ import annotations

from rebalancer.base.durations import format_duration
from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind
from rebalancer.kube.eviction_requests import withdraw
from rebalancer.node_record.conditions import NodeConditions
from rebalancer.node_record.records import take_back_label
from rebalancer.run.context import RunContext
from rebalancer.snapshot.leaving import DRAIN, NoticeKind
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339

_OF_RECORDS = frozenset({NoticeKind.SAID, NoticeKind.DRAIN, NoticeKind.SCALE_IN})
"""Kinds of notices on nodes that have conditions of ours, or should have some."""


def conditions_of(run: RunContext) -> NodeConditions:
    """Return the writer of node conditions. It writes nothing in a dry run, or if the policy does not enable conditions."""

    def warn(text: str) -> None:
        if text not in run.notes:
            run.notes.append(text)

    on = run.acts and run.loaded.policy.node_conditions
    return NodeConditions(on, run.environment.clock.unix, warn)


def tidy_nodes(run: RunContext, client: Client, snapshot: Snapshot) -> None:
    """Remove the labels of drains that are over, and set the conditions of nodes according to their records.

    A process may have been killed after it wrote a record and before it set the conditions. People may have uncordoned
    a node since. A failure adds a note to the report; the run continues.
    """
    nodes, conditions = snapshot.nodes, conditions_of(run)
    for node, notices in sorted(nodes.notices.items()):
        name = nodes.names[node]
        left = any((one.kind, one.name) == (NoticeKind.SAID, DRAIN) for one in notices)
        if left and not nodes.unschedulable[node]:
            _take_back_label(run, client, name)
        if any(one.kind in _OF_RECORDS for one in notices):
            conditions.show(client, name)


def _take_back_label(run: RunContext, client: Client, name: str) -> None:
    try:
        take_back_label(client, name)
    except ClusterReadError as error:
        run.notes.append(f"the label of a drain on node {name} is not taken back: {error}")


def withdraw_late(run: RunContext, client: Client, snapshot: Snapshot) -> None:
    """Withdraw the requests of runs that are open for longer than the policy allows responders, with a note for each.

    A run of one namespace withdraws those there. A failure is a note, and ends nothing.
    """
    most = run.loaded.policy.method.eviction_requests
    if most is None:
        return
    for one in (snapshot.eviction_requests or {}).values():
        elsewhere = run.rules.namespace not in (None, one.namespace)
        if elsewhere or not (one.ours and one.late):
            continue
        said = withdraw(client, one.namespace, one.pod, one.pod_uid, rfc3339(one.asked_at))
        ref = f"EvictionRequest {one.namespace}/{one.name}"
        done = said.kind is AnswerKind.REQUESTED
        why = f"withdrawn: open for more than {format_duration(most)}"
        run.notes.append(f"{ref} is {why if done else f'not withdrawn: {said.message}'}")
