"""Ask the API server, by dry runs that change nothing, whether the pods of a drain could leave now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, Restart, evict
from rebalancer.machines.drain.preflight import DrainVerdict, NodeCheck, PodCheck
from rebalancer.machines.drain.triage import Fate
from rebalancer.plan.plan import Code, Method
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import rfc3339

_READ = 10.0
"""Seconds for each read before a restart."""
_VERDICTS = {
    AnswerKind.BLOCKED: (DrainVerdict.BLOCKED, Code.PDB.value),
    AnswerKind.MISCONFIGURED: (DrainVerdict.MISCONFIGURED, Code.PDB_CONFLICT.value),
    # The Deployment has changed since it was read.
    AnswerKind.DROPPED: (DrainVerdict.BLOCKED, Code.CANNOT_SURGE.value),
}
_FINE = (AnswerKind.EVICTED, AnswerKind.RESTARTED, AnswerKind.GONE)


def ask_server(client: Client, snapshot: Snapshot, checks: Sequence[NodeCheck]) -> list[NodeCheck]:
    """Return the checks with the API server's answer for each pod that would be evicted, or restarted."""
    return [
        replace(check, pods=pods, verdict=NodeCheck.worst_of(pods))
        for check in checks
        for pods in [tuple(_ask(client, snapshot, one) for one in check.pods)]
    ]


def _ask(client: Client, snapshot: Snapshot, one: PodCheck) -> PodCheck:
    if one.fate is not Fate.EVICT or one.verdict is not DrainVerdict.DRAINABLE:
        return one
    rehearse = _rehearse_restart if one.method is Method.RESTART else _rehearse_eviction
    answer = rehearse(client, snapshot, one.pod)
    if answer.kind in _FINE:
        return one
    verdict, code = _VERDICTS.get(answer.kind, (DrainVerdict.REFUSED, answer.kind.value))
    return replace(one, verdict=verdict, code=code, message=answer.message)


def _rehearse_eviction(client: Client, snapshot: Snapshot, pod: int) -> EvictionAnswer:
    pods = snapshot.pods
    namespace = snapshot.classes[int(pods.cls[pod])].namespace
    return evict(client, namespace, pods.name[pod], pods.uid[pod], dry_run=True)


def _rehearse_restart(client: Client, snapshot: Snapshot, pod: int) -> EvictionAnswer:
    pods, cls = snapshot.pods, int(snapshot.pods.cls[pod])
    owner = snapshot.owner_of(cls)
    return Restart(
        client,
        snapshot.classes[cls].namespace,
        pods.name[pod],
        pods.uid[pod],
        deployment="" if owner is None else owner.uid,
        at=rfc3339(int(snapshot.captured_at)),
        seconds=_READ,
        replicas=1 if owner is None else owner.replicas,
        ordered=True,
        dry_run=True,
    ).ask()
