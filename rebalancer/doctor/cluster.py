"""Checks of a snapshot against a policy. They send no requests, so they work on snapshot files, too."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from rebalancer.base.plain_text import and_more, count
from rebalancer.core import INTERPRETED, is_compiled
from rebalancer.doctor.report import Check, Finding, Grade, check
from rebalancer.doctor.report import not_judged as not_made
from rebalancer.kube.access import list_pod_groups
from rebalancer.planner.allowance import STARTING_SECONDS, find_starting
from rebalancer.planner.findings import (
    against_autoscalers,
    closed_disruption_budgets,
    policy_warnings,
)
from rebalancer.planner.quota import QuotaClaims
from rebalancer.planner.safety import lost_pods, not_judged, standstill
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.cluster import Safety
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Budgets, Mode, Policy
from rebalancer.registry import Registry
from rebalancer.run.memory.document import Document
from rebalancer.run.memory.remember import count_in_use, describe_fall, see_nodes
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.topology import ZONE
from rebalancer.snapshot.autoscalers import autoscalers
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.model import PodFlag, Snapshot
from rebalancer.snapshot.pod_groups import groups_of_use
from rebalancer.snapshot.protect import NAMES, Scope, bits_of, not_understood, protect
from rebalancer.snapshot.zones import ZoneState, closed_zones, list_zones
from rebalancer.wire.kinds import ALL_POD_GROUPS, BUDGETS, POD_GROUPS, QUOTAS, Resource
from rebalancer.wire.objects import ObjectMeta
from rebalancer.wire.times import rfc3339

_NAME, _INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
_OURS, _PEER = "kube-rebalancer", "descheduler"
_PEER_LABELS = (_NAME, "k8s-app", "app")
_OF_PEER = re.compile(r"descheduler(-cronjob)?-\d+")
"""Jobs of the descheduler's CronJobs: that of its chart, and that of its manifests, which has no labels."""
_IMAGE = re.compile(r"(.*/)?descheduler([:@][^/]*)?")
"""Its image, from whatever registry, by tag or digest."""


class Started(NamedTuple):
    """The namespace, labels and images by which pods, a Job or a CronJob show their program."""

    namespace: str
    labels: Mapping[str, str]
    images: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The objects besides pods by which programs are seen; None: not known."""

    jobs: Sequence[ObjectMeta] | None = None
    cron_jobs: Sequence[Started] | None = None
    """The CronJobs that are not suspended."""

    @property
    def words(self) -> str:
        """The kinds that were examined, for a cluster without another program."""
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
            "let them share Lease and memory (`sharedState` of the chart) and keep their pods apart by `select`, or remove all but one",
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


_SHOWN = 3


def check_cluster(
    snapshot: Snapshot,
    loaded: LoadedPolicy,
    registry: Registry,
    clock_skew: float | None,
    seen: Seen | None = None,
    memory: Document | None = None,
) -> tuple[Check, ...]:
    """Return the checks of ``snapshot``, the most urgent first.

    ``clock_skew``: seconds by which the server's clock is ahead of ours; None for a file. ``seen``: Jobs, of
    which a snapshot keeps those with pods only, and CronJobs, of which it has none. ``memory``: what earlier runs left.
    """
    policy, seen = loaded.policy, seen or Seen()
    protected = protect(snapshot, policy.protect, Scope(policy_select=policy.select))
    movable = int(np.count_nonzero(protected == 0))
    nodes = f"{count(len(snapshot.nodes), 'node')}, nothing that makes a run stand still"
    return (
        check("nodes", _nodes(snapshot, loaded, clock_skew, memory), nodes),
        check("scheduler", _scheduler(snapshot, loaded), _version_text(snapshot)),
        check(
            "policy",
            _policy(snapshot, loaded, registry, movable),
            f"{loaded.source}: mode {policy.mode.value}, {', '.join(sorted(policy.strategies))}",
        ),
        check(
            "pods",
            _pods(snapshot, protected, policy.budgets),
            f"{movable:,} of {count(len(snapshot.pods), 'pod')} may move",
        ),
        _unless_missing(snapshot, BUDGETS, "podDisruptionBudgets")
        or check(
            "podDisruptionBudgets",
            _budgets(snapshot),
            f"{count(len(snapshot.budgets), 'PodDisruptionBudget')}, each can allow an eviction"
            if snapshot.budgets
            else "there is no PodDisruptionBudget",
        ),
        _unless_missing(snapshot, QUOTAS, "quotas")
        or check(
            "quotas",
            _quotas(snapshot),
            "every ResourceQuota has room for a replacement beside its victim",
        ),
        check(
            "otherMovers",
            find_movers(snapshot, loaded.policy, seen),
            seen.words,
        ),
    )


def _unless_missing(snapshot: Snapshot, kind: Resource, name: str) -> Check | None:
    """Return a finding that the check was not made, if the file has no object of the kind: the cluster may have some."""
    if not snapshot.lacks(kind.kind):
        return None
    why = f"the file has no {kind.kind}: the cluster may have some; `rebalancer snapshot` reads all that is needed"
    return not_made(name, why)


def _nodes(
    snapshot: Snapshot, loaded: LoadedPolicy, clock_skew: float | None, memory: Document | None
) -> Iterator[Finding]:
    for why in not_judged(snapshot):
        yield Finding(Grade.PROBLEM, why, "look at another cluster, or read it with more rights")
    profile = partial(scheduler_profile, loaded.policy, snapshot)
    still = standstill(snapshot, loaded.policy.safety, clock_skew or 0.0, profile)
    for why in (*still, *_fall(snapshot, loaded.policy.safety, memory)):
        yield Finding(
            Grade.PROBLEM,
            why,
            "runs stand still until that is mended; `safety` in the policy sets the limits",
        )
    yield from _not_ready(snapshot, loaded.policy.safety)
    yield from _younger(snapshot, loaded.policy.safety)
    if why := closed_zones(snapshot):
        yield Finding(
            Grade.PROBLEM, why, "that ends once its nodes are open again, or have no pods any more"
        )
    zones_known = (*snapshot.earlier_zones, *loaded.policy.zones)
    yield from _zones(replace(snapshot, earlier_zones=zones_known))
    nodes = snapshot.nodes
    for node, why in sorted(nodes.unreadable.items()):
        yield Finding(Grade.WARNING, f"node {nodes.names[node]} is unreadable: {why}")
    zones = nodes.labels.column(ZONE)
    without = [nodes.names[node] for node in np.flatnonzero(zones < 0).tolist()]
    if without and len(without) < len(nodes):
        yield Finding(
            Grade.WARNING,
            f"{count(len(without), 'node')} without the label {ZONE}: {and_more(without, _SHOWN)}",
            "the scheduler does not count them for rules over zones; label them",
        )
    elif len(np.unique(zones)) < 2:
        yield Finding(Grade.NOTE, "all nodes are in one zone: rules over zones have nothing to do")


def _fall(snapshot: Snapshot, safety: Safety, memory: Document | None) -> Iterator[str]:
    """Yield that the number of nodes fell at once, as the next run will see it."""
    if memory is None:
        return
    nodes, now = len(snapshot.nodes), snapshot.captured_at
    seen = see_nodes(memory.nodes, nodes, count_in_use(snapshot), safety, now)
    if (why := describe_fall(seen, nodes, safety, now)) is not None:
        yield why


def _not_ready(snapshot: Snapshot, safety: Safety) -> Iterator[Finding]:
    """Yield the nodes that are NotReady, if they are too few to hold a run."""
    nodes = snapshot.nodes
    names = [nodes.names[node] for node in np.flatnonzero(~nodes.ready & ~nodes.leaving).tolist()]
    most = safety.not_ready_nodes_of(len(nodes) + len(snapshot.pods.lost_nodes))
    if names and len(names) <= most:
        yield Finding(
            Grade.NOTE,
            f"{count(len(names), 'node')} NotReady (safety.maxNotReadyNodes allows {most}): {and_more(names, _SHOWN)}",
        )


def _younger(snapshot: Snapshot, safety: Safety) -> Iterator[Finding]:
    """Yield that pods are younger than the moment at which they were read: the clocks that wrote both differ."""
    newest = float(snapshot.pods.created.max(initial=-math.inf))
    ahead = newest - snapshot.captured_at
    if ahead > safety.max_clock_skew.total_seconds():
        yield Finding(
            Grade.WARNING,
            f"the newest pod was created {ahead:,.0f} s after the state was read, {rfc3339(snapshot.captured_at)}:"
            " ages of pods, and what depends on them, are not right",
            "take a new snapshot where the clock is right, or correct `capturedAt`",
        )


_OF_STATE = {
    ZoneState.EMPTY: ("has no node", "rules over zones that need it cannot hold until it has one"),
    ZoneState.BACK: ("takes new pods, and has none yet", "runs refill it, within the budgets"),
}


def _zones(snapshot: Snapshot) -> Iterator[Finding]:
    for zone in list_zones(snapshot):
        if (said := _OF_STATE.get(zone.state)) is not None:
            yield Finding(Grade.NOTE, f"zone {zone.name} {said[0]}", said[1])


def _version_text(snapshot: Snapshot) -> str:
    return f"{snapshot.version_words}, of which the scheduler is modelled"


def _scheduler(snapshot: Snapshot, loaded: LoadedPolicy) -> Iterator[Finding]:
    profile = scheduler_profile(loaded.policy, snapshot)
    if profile.note:
        yield Finding(
            Grade.WARNING, profile.note, "predictions may be wrong: begin with `mode: observe`"
        )
    if not is_compiled():
        yield Finding(Grade.WARNING, INTERPRETED)
    if loaded.policy.scheduler.configuration is None:
        yield Finding(
            Grade.NOTE,
            "kube-scheduler is taken to have its default configuration, which no API shows",
            "if it has another one, name it in `scheduler.fromConfig`",
        )
    model = SchedulerModel(snapshot, profile)
    unpredicted: Counter[str] = Counter()
    pods_of = np.bincount(snapshot.pods.cls, minlength=len(snapshot.classes))
    for cls in np.flatnonzero(pods_of).tolist():
        if not snapshot.classes[cls].per_node and (why := model.find_unmodelled(cls)):
            unpredicted["; ".join(why)] += int(pods_of[cls])
    for reasons, pods in sorted(unpredicted.items()):
        yield Finding(
            Grade.WARNING,
            f"{count(pods, 'pod')}: landings are not predicted, so that they stay: {reasons}",
        )


def _policy(
    snapshot: Snapshot, loaded: LoadedPolicy, registry: Registry, movable: int
) -> Iterator[Finding]:
    policy = loaded.policy
    acting = [name for name in policy.strategies if policy.mode_of(name) is Mode.ENFORCE]
    if not acting:
        yield Finding(
            Grade.NOTE,
            "no strategy is enforced: runs report and move nothing",
            "`mode: enforce` in the policy, or `--set mode=enforce` of the chart, lets them act",
        )
    yield from (Finding(Grade.NOTE, text) for text in (*loaded.warnings, *loaded.of_strategies))
    for text in policy_warnings(policy, snapshot, registry, movable):
        yield Finding(Grade.WARNING, text)


def _pod_groups(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings on the PodGroups that pods name and that are not known.

    No landing is predicted for pods of those of Kubernetes, and of others all pods are taken to be needed.
    """
    unknown = sorted(groups_of_use(snapshot) - snapshot.pod_groups.keys())
    for resource in ALL_POD_GROUPS:
        missing = [f"{where}/{name}" for where, group, name in unknown if group == resource.group]
        if not missing:
            continue
        ours = resource is POD_GROUPS
        number = count(len(missing), "PodGroup") + f" of {resource.group}" * (not ours)
        follows = "the pods stay" if ours else "their pods move together or not at all"
        yield Finding(
            Grade.WARNING if ours else Grade.NOTE,
            f"{number} that pods name could not be read, so that {follows}: {and_more(missing, _SHOWN)}",
            "let the account read them (`rbac.podGroups: true` of the chart), or take a new snapshot with it; by hand, add to a role:",
            (list_pod_groups(resource).as_yaml(),),
        )


def _in_flight(snapshot: Snapshot, budgets: Budgets, movable: int) -> Iterator[Finding]:
    """Yield that pods that start use up ``budgets.inFlight``, whoever created them, and until when they do."""
    starting = np.flatnonzero(find_starting(snapshot)).tolist()
    most, pods = budgets.in_flight_of(movable), snapshot.pods
    if not starting or len(starting) < most:
        return
    of = Counter(
        snapshot.owners[snapshot.classes[int(pods.cls[pod])].owner].ref for pod in starting
    )
    names = [
        f"{ref} ({number})" for ref, number in sorted(of.items(), key=lambda it: (-it[1], it[0]))
    ]
    until = max(float(pods.created[pod]) for pod in starting) + STARTING_SECONDS
    yield Finding(
        Grade.WARNING,
        f"{count(len(starting), 'pod')} that {'starts or waits' if len(starting) == 1 else 'start or wait'} for a node"
        f" count as moves in flight (budgets.inFlight {most}), until they are Ready or {rfc3339(until)}:"
        f" {and_more(names, _SHOWN)}; they hold back moves",
        "`rebalancer capacity` says what they wait for; a larger `budgets.inFlight` lets others move",
    )


def _pods(snapshot: Snapshot, protected: Int32s, budgets: Budgets) -> Iterator[Finding]:
    young = int(np.count_nonzero(protected == bits_of("young")))
    if young and not (protected == 0).any():
        yield Finding(
            Grade.WARNING,
            f"no pod may move yet: {count(young, 'pod')} of {len(snapshot.pods):,} need only be older",
            "wait, or lower `protect.minPodAge` in the policy",
        )
    elif len(snapshot.pods) and not (protected == 0).any():
        yield Finding(
            Grade.PROBLEM,
            f"none of {count(len(snapshot.pods), 'pod')} may move",
            "see what keeps them, below; `rebalancer explain pod NAMESPACE/NAME` says it of one",
        )
    counts = Counter(
        {name: int(np.count_nonzero(protected & (1 << place))) for place, name in enumerate(NAMES)}
    )
    # They have a node, which is not known; what follows says so of them.
    counts["unscheduled"] -= int(np.count_nonzero(snapshot.pods.flags & PodFlag.LOST_NODE))
    kept = [f"{name} {number:,}" for name, number in counts.most_common() if number]
    if kept:
        yield Finding(
            Grade.NOTE,
            f"protections, each with its pods: {', '.join(kept)}",
            "`protect` in the policy lifts some of them: docs/policy.md",
        )
    yield from _pod_groups(snapshot)
    waiting = int(snapshot.awaiting_a_node().sum())
    if waiting:
        yield Finding(
            Grade.NOTE,
            f"{count(waiting, 'pod')} without a node",
            "`rebalancer capacity` says why, and which machines would help",
        )
    yield from _in_flight(snapshot, budgets, movable=int(np.count_nonzero(protected == 0)))
    if lost := lost_pods(snapshot):
        yield Finding(Grade.WARNING, f"{lost}: they stay", "read the nodes again, with these")
    for text in not_understood(snapshot):
        yield Finding(Grade.WARNING, text, "correct the annotation, or remove it")


def _budgets(snapshot: Snapshot) -> Iterator[Finding]:
    for text, selects_none in closed_disruption_budgets(snapshot):
        remedy = (
            "its pods never move, and drains of their nodes do not end: change it, or add replicas"
        )
        if selects_none:
            remedy = "it protects nothing: correct its selector, or delete it"
        yield Finding(Grade.WARNING, text, remedy)


def _quotas(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the quotas without room. Pods that are protected count, too: most are so for a time only."""
    quotas = QuotaClaims(snapshot)
    held: dict[str, int] = {}
    living = snapshot.pods.living & ~snapshot.per_node
    pods_of = np.bincount(snapshot.pods.cls[living], minlength=len(snapshot.classes))
    for cls in np.flatnonzero(pods_of).tolist():
        full = (one.quota for one in quotas.claims(cls) if one.need > one.most)
        if not snapshot.waits(cls) and (quota := next(full, None)) is not None:
            name = f"ResourceQuota {quota.namespace}/{quota.name}"
            held[name] = held.get(name, 0) + int(pods_of[cls])
    for name, pods in sorted(held.items()):
        yield Finding(
            Grade.WARNING,
            f"{name} has no room for a replacement: {count(pods, 'pod')} cannot move",
            "a larger quota lets them move",
        )
