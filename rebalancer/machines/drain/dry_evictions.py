"""``--dry-run=server``: ask the API server about every eviction without evicting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind, evict
from rebalancer.machines.drain.preflight import DrainVerdict, NodeCheck, PodCheck
from rebalancer.machines.drain.triage import Fate
from rebalancer.plan.plan import Code
from rebalancer.snapshot.model import Snapshot

_VERDICTS = {
    AnswerKind.BLOCKED: (DrainVerdict.BLOCKED, Code.PDB.value),
    AnswerKind.MISCONFIGURED: (DrainVerdict.MISCONFIGURED, Code.PDB_CONFLICT.value),
}
_FINE = (AnswerKind.EVICTED, AnswerKind.GONE)


def asked(client: Client, snapshot: Snapshot, checks: Sequence[NodeCheck]) -> list[NodeCheck]:
    """Return the checks with the API server's answer for each pod that would be evicted."""
    return [
        replace(check, pods=pods, verdict=NodeCheck.worst_of(pods))
        for check in checks
        for pods in [tuple(_asked(client, snapshot, one) for one in check.pods)]
    ]


def _asked(client: Client, snapshot: Snapshot, one: PodCheck) -> PodCheck:
    if one.fate is not Fate.EVICT or one.verdict is not DrainVerdict.DRAINABLE:
        return one
    namespace = snapshot.classes[int(snapshot.pods.cls[one.pod])].namespace
    pods = snapshot.pods
    answer = evict(client, namespace, pods.name[one.pod], pods.uid[one.pod], dry_run=True)
    if answer.kind in _FINE:
        return one
    verdict, code = _VERDICTS.get(answer.kind, (DrainVerdict.REFUSED, answer.kind.value))
    return replace(one, verdict=verdict, code=code, message=answer.message)
