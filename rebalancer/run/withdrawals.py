"""Withdraw EvictionRequests of earlier runs whose responders have had their time."""

from __future__ import annotations

from rebalancer.base.durations import format_duration
from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind
from rebalancer.kube.eviction_requests import withdraw
from rebalancer.run.context import RunContext
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339


def withdraw_late(run: RunContext, client: Client, snapshot: Snapshot) -> None:
    """Withdraw the requests of runs that are open for longer than the policy lets responders take, with a note for each.

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
