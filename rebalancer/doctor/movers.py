"""Other programs that move pods in a cluster: autoscalers, the descheduler, other releases of this one.

One that a CronJob starts has pods for seconds only, so CronJobs and their Jobs are looked at, too: a Job carries the labels of its
template (``pkg/apis/batch/v1/defaults.go``: ``SetDefaults_Job``), and the name of its CronJob before a number. Whatever the labels
are, an image has a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
_IMAGE = re.compile(r"(.*/)?descheduler([:@][^/]*)?")
"""Its image, from whatever registry, by tag or digest."""


class Started(NamedTuple):
    """What pods, a Job or a CronJob say of the program in them."""

    namespace: str
    labels: Mapping[str, str]
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The objects besides pods by which programs are seen; None: not known."""

    jobs: Sequence[ObjectMeta] | None = None
    cron_jobs: Sequence[Started] | None = None
    """Those that are not suspended."""

    @property
    def words(self) -> str:
        """What was looked at, for a cluster in which no other program was seen."""
        looked = ["pods", *["Jobs"] * (self.jobs is not None)]
        looked += ["CronJobs"] * (self.cron_jobs is not None)
        left = ["Jobs that have ended"] * (self.jobs is None)
        left += ["CronJobs"] * (self.cron_jobs is None)
        seen = f"no other program that moves pods is seen by labels, names and images of {', '.join(looked)}"
        return f"{seen}; not looked at: {' and '.join(left)}" if left else seen


def find_movers(snapshot: Snapshot, policy: Policy, seen: Seen) -> Iterator[Finding]:
    """Yield a finding for each other program that moves pods."""
    for one in autoscalers(snapshot):
        yield Finding(Grade.NOTE, f"{one.name} removes and adds nodes here ({one.sign})")
    for text in against_autoscalers(policy, snapshot):
        yield Finding(Grade.WARNING, text)
    jobs = [Started(job.namespace, job.labels or {}, ()) for job in seen.jobs or ()]
    started = [*_of_pods(snapshot), *jobs, *(seen.cron_jobs or ())]
    peers = {one.namespace for one in started if _is_peer(one)}
    peers |= {job.namespace for job in seen.jobs or () if _OF_PEER.fullmatch(job.name)}
    if peers:
        yield Finding(
            Grade.WARNING,
            f"the descheduler runs here, too (namespace {', '.join(sorted(peers))})",
            "each may undo what the other does: switch it off (`rebalancer policy migrate` takes its policy over)",
        )
    releases = {
        f"{one.namespace}/{one.labels[_INSTANCE]}"
        for one in started
        if one.labels.get(_NAME) == _OURS and _INSTANCE in one.labels
    }
    if len(releases) > 1:
        yield Finding(
            Grade.WARNING,
            f"pods of {count(len(releases), 'release')} of this program: {', '.join(sorted(releases))}",
            "keep their pods apart by `select`, or remove all but one",
        )


def _of_pods(snapshot: Snapshot) -> Iterator[Started]:
    """Yield what the classes with living pods say."""
    running = np.bincount(snapshot.pods.cls[snapshot.pods.living], minlength=len(snapshot.classes))
    for cls, pods in zip(snapshot.classes, running.tolist(), strict=True):
        if pods:
            images = tuple(one.image for one in cls.spec.containers or ())
            yield Started(cls.namespace, cls.labels, images)


def _is_peer(one: Started) -> bool:
    by_image = any(_IMAGE.fullmatch(image) for image in one.images)
    return by_image or any(one.labels.get(label) == _PEER for label in _PEER_LABELS)
