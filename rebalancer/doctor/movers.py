"""Other programs that move pods in a cluster: autoscalers, the descheduler, other releases of this one.

One that a CronJob starts has pods for seconds only, so its Jobs are looked at, too: a Job carries the labels of its template
(``pkg/apis/batch/v1/defaults.go``: ``SetDefaults_Job``), and the name of its CronJob before a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rebalancer.base.plain_text import count
from rebalancer.doctor.report import Finding, Grade
from rebalancer.planner.findings import against_autoscalers
from rebalancer.policy.model import Policy
from rebalancer.snapshot.autoscalers import autoscalers
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.objects import ObjectMeta

_NAME, _INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
_OURS, _PEER = "kube-rebalancer", "descheduler"
_PEER_LABELS = (_NAME, "k8s-app", "app")
_OF_PEER = re.compile(r"descheduler(-cronjob)?-\d+")
"""Jobs of the descheduler's CronJobs: that of its chart, and that of its manifests, which has no labels."""


def find_movers(
    snapshot: Snapshot, policy: Policy, jobs: Sequence[ObjectMeta] | None
) -> Iterator[Finding]:
    """Yield a finding for each other program that moves pods.

    ``jobs``: all Jobs; None if they are not known.
    """
    for one in autoscalers(snapshot):
        yield Finding(Grade.NOTE, f"{one.name} removes and adds nodes here ({one.sign})")
    for text in against_autoscalers(policy, snapshot):
        yield Finding(Grade.WARNING, text)
    labelled = [*_of_pods(snapshot), *((job.namespace, job.labels or {}) for job in jobs or ())]
    peers = {namespace for namespace, labels in labelled if _is_peer(labels)}
    peers |= {job.namespace for job in jobs or () if _OF_PEER.fullmatch(job.name)}
    if peers:
        yield Finding(
            Grade.WARNING,
            f"the descheduler runs here, too (namespace {', '.join(sorted(peers))})",
            "each may undo what the other does: switch it off (`rebalancer policy migrate` takes its policy over)",
        )
    releases = {
        f"{namespace}/{labels[_INSTANCE]}"
        for namespace, labels in labelled
        if labels.get(_NAME) == _OURS and _INSTANCE in labels
    }
    if len(releases) > 1:
        yield Finding(
            Grade.WARNING,
            f"pods of {count(len(releases), 'release')} of this program: {', '.join(sorted(releases))}",
            "keep their pods apart by `select`, or remove all but one",
        )


def no_movers(jobs: Sequence[ObjectMeta] | None) -> str:
    """Return the message for a cluster in which no other mover was found."""
    unseen = "" if jobs is not None else "; Jobs that have ended are not in the file"
    return f"no other program that moves pods is seen{unseen}"


def _of_pods(snapshot: Snapshot) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield (namespace, labels) of the classes with living pods."""
    running = np.bincount(snapshot.pods.cls[snapshot.pods.living], minlength=len(snapshot.classes))
    for cls, pods in zip(snapshot.classes, running.tolist(), strict=True):
        if pods:
            yield cls.namespace, cls.labels


def _is_peer(labels: Mapping[str, str]) -> bool:
    return any(labels.get(label) == _PEER for label in _PEER_LABELS)
