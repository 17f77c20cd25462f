"""The scheduler model: predicts where kube-scheduler would place a pod of a class in a state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from rebalancer.core.prediction import ClusterArrays, PodArrays
from rebalancer.scheduler.filters import FILTERS, FilterCheck, Filters
from rebalancer.scheduler.interpod import InterPod
from rebalancer.scheduler.lowering import Lowering
from rebalancer.scheduler.pending import Pending
from rebalancer.scheduler.placement import NodePlacement, Supposed, tolerates
from rebalancer.scheduler.prediction import Prediction, uniform
from rebalancer.scheduler.profile import (
    DYNAMIC_RESOURCES,
    NODE_AFFINITY,
    NODE_RESOURCES_FIT,
    VOLUME_BINDING,
    SchedulerProfile,
)
from rebalancer.scheduler.resources import Resources, UnofferedResources
from rebalancer.scheduler.scores import Scorer
from rebalancer.scheduler.spread import Spread
from rebalancer.scheduler.steering import Steering
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.model import PodClass, PodGroup, Snapshot
from rebalancer.snapshot.state import ClusterState
from rebalancer.wire import objects as o
from rebalancer.wire.objects import DEFAULT_SCHEDULER

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_SAY_ALL = (NODE_RESOURCES_FIT, VOLUME_BINDING)
"""The filters that say all that they refuse a node for; of others the first reason counts."""
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")


def find_unmodelled(
    of_class: PodClass, profile: SchedulerProfile, group: PodGroup | None = None
) -> Iterator[str]:
    """Yield why pods of a class cannot be predicted with a profile, in any state of the cluster.

    ``group``: their PodGroup, if it is known. The scheduler places its pods one after the other by the usual filters and scores, and binds
    them if enough of them have nodes (KEP-4671); it is otherwise only with constraints of the group.
    """
    spec = of_class.spec
    if of_class.unreadable is not None:
        yield of_class.unreadable
    if (spec.scheduler_name or DEFAULT_SCHEDULER) != profile.scheduler_name:
        yield f"scheduled by {spec.scheduler_name}"
    else:
        yield from profile.unmodelled
    constrained = spec.scheduling_group is not None if group is None else group.constrained
    if spec.workload_ref is not None or constrained:
        yield f"the scheduler places the pods of {of_class.gang or 'its PodGroup'} together"
    for selector in _selectors(spec):
        yield from _wrong(selector.match_expressions or (), _LABEL_OPERATORS, "label selector")
    required = spec.required_nodes
    preferred = (one.preference for one in spec.preferred_nodes)
    for term in (*(required.node_selector_terms if required else ()), *preferred):
        yield from _wrong(term.match_expressions or (), _NODE_OPERATORS, "node affinity")
        yield from _wrong(term.match_fields or (), ("In", "NotIn"), "node affinity field")
    for constraint in spec.topology_spread_constraints or ():
        if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            yield f"topology spread: whenUnsatisfiable {constraint.when_unsatisfiable!r} is unknown"


def _wrong(
    requirements: tuple[o.LabelSelectorRequirement, ...], known: tuple[str, ...], what: str
) -> Iterator[str]:
    for requirement in requirements:
        if requirement.operator not in known:
            yield f"{what}: operator {requirement.operator!r} is unknown"
        elif requirement.operator in ("In", "NotIn") and not requirement.values:
            yield f"{what}: {requirement.operator} without values"


def _selectors(spec: o.SchedulingSpec) -> Iterator[o.LabelSelector]:
    for constraint in spec.topology_spread_constraints or ():
        if constraint.label_selector is not None:
            yield constraint.label_selector
    for term in spec.pod_terms():
        for selector in (term.label_selector, term.namespace_selector):
            if selector is not None:
                yield selector


__all__ = ["FILTERS", "Evaluation", "SchedulerModel"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The filters and scores of every node for one pod."""

    feasible: Bools
    """(N,) the feasible nodes."""
    filtered_by: NDArray[np.uint8]
    """(N,) index into FILTERS of the first filter that fails, 0 for feasible nodes."""
    checks: Sequence[FilterCheck]
    """The checks on nodes, in order."""
    scores: dict[str, Ints]
    """Plug-in -> weighted score (N,), 0 for nodes that were not scored; plug-ins that skip are missing."""
    total: Ints
    """(N,) sum of the weighted scores, -1 for nodes that were not scored."""

    def reasons(self, node: int) -> tuple[str, ...]:
        """Return the messages of the first filter that a node fails; none for a feasible node."""
        name = FILTERS[self.filtered_by[node]]
        failed = (of.say(node) for of in self.checks if of.filter == name and not of.passes[node])
        return tuple(failed) if name in _SAY_ALL else tuple(islice(failed, 1))


class SchedulerModel:
    """Predictions for all classes of one snapshot; results that do not depend on the state are cached.

    The given state must belong to the same snapshot. The given class is the class of the pod to be scheduled: for a
    move, that of the replacement, with the victim already evicted in the state.
    """

    def __init__(
        self, snapshot: Snapshot, profile: SchedulerProfile, supposed: Supposed | None = None
    ) -> None:
        self.snapshot = snapshot
        self.profile = profile
        self.supposed = supposed or Supposed(len(snapshot.nodes))
        """What predictions assume of nodes beside the snapshot."""
        self._others = {
            other.scheduler_name: SchedulerModel(snapshot, other, self.supposed)
            for other in profile.others
        }
        self.placement = NodePlacement(snapshot, self.supposed, profile.added_affinity)
        self.resources = Resources(snapshot, profile)
        self.spread = Spread(snapshot, profile, self.placement)
        self.interpod = InterPod(snapshot, profile)
        parts = (self.resources, self.spread, self.interpod)
        self.filters = Filters(snapshot, self.placement, *parts, profile)
        self._allocated = UnofferedResources(snapshot, self.resources, profile.offered)
        scorer = Scorer(snapshot, profile, self.filters.volumes)
        self.lowering = Lowering(snapshot, profile, self.placement, *parts, self.filters, scorer)
        self._unmodelled: dict[int, tuple[str, ...]] = {}

    @cached_property
    def pending(self) -> Pending:
        """The pending pods of the snapshot."""
        return Pending(self.snapshot, self)

    def of(self, cls: int) -> SchedulerModel:
        """Return the model of the profile that pods of a class name; this model if there is no such profile."""
        if not self._others:
            return self
        name = self.snapshot.classes[cls].spec.scheduler_name or DEFAULT_SCHEDULER
        return self._others.get(name, self)

    def has_profile(self, of_class: PodClass) -> bool:
        """Return whether there is a profile of the scheduler that pods of a class name."""
        name = of_class.spec.scheduler_name or DEFAULT_SCHEDULER
        return name == self.profile.scheduler_name or name in self._others

    def filters_of(self, cls: int) -> Filters:
        """Return the filters that apply to pods of a class."""
        return self.of(cls).filters

    def node_affinity_mask(self, cls: int) -> Bools:
        """Return the nodes (N,) that nodeSelector and required node affinity allow. Cached."""
        return self.placement.affinity_mask(cls)

    def taint_mask(self, cls: int) -> Bools:
        """Return the nodes (N,) whose NoSchedule and NoExecute taints the class tolerates. Cached."""
        return self.placement.taint_mask(cls)

    def lasting_taint_mask(self, cls: int) -> Bools:
        """Return :meth:`taint_mask` once the taints that show a node's state have passed. Cached."""
        return self.placement.lasting_taint_mask(cls)

    def tolerates(self, cls: int, taint: o.Taint) -> bool:
        """Return whether pods of the class tolerate a taint."""
        return tolerates(self.snapshot.classes[cls].spec.tolerations or (), taint)

    def node_preference(self, cls: int) -> Ints | None:
        """Return per node (N,) the summed weights of the matching preferred node affinity terms.

        None if the class has no such term. Cached; read-only.
        """
        return self.placement.preferred_affinity(cls)

    def static_mask(self, cls: int) -> Bools:
        """Return the nodes (N,) that pass all filters independent of other pods. Cached.

        These are node affinity, taints, cordons, volumes, topology keys that the pod needs, and requests for which an
        empty node has room. The node object must be readable, too.
        """
        return self.filters_of(cls).static(cls)

    def lasting_mask(self, cls: int) -> Bools:
        """Return :meth:`static_mask` once cordons, and taints that show a node's state, have passed. Cached."""
        return self.filters_of(cls).lasting(cls)

    def feasible(self, state: ClusterState, cls: int) -> Bools:
        """Return the nodes (N,) that pass all filters."""
        return self.feasible_but(state, cls)

    def feasible_but(self, state: ClusterState, cls: int, left_out: Sequence[str] = ()) -> Bools:
        """Return the nodes (N,) that pass all filters except ``left_out``."""
        return self.of(cls).lowering.find_passing(state, cls, left_out)

    def full(self, state: ClusterState, cls: int) -> Bools:
        """Return the nodes (N,) that fail only because of other pods' requests: if empty, they would take the pod."""
        return self.feasible_but(state, cls, (NODE_RESOURCES_FIT,)) & ~self._roomy(state, cls)

    def _roomy(self, state: ClusterState, cls: int) -> Bools:
        return self.of(cls).lowering.find_roomy(state, cls)

    def evaluate(self, state: ClusterState, cls: int, *, among: Int32s | None = None) -> Evaluation:
        """Return filters and scores of every node.

        Scores are normalised over the feasible nodes, or over ``among`` if given: the nodes that the scheduler
        sampled.
        """
        if (model := self.of(cls)) is not self:
            return model.evaluate(state, cls, among=among)
        checks = self.filters.list_checks(cls, self.lowering.find_checks(state, cls))
        filtered_by = np.zeros(len(self.snapshot.nodes), np.uint8)
        for check in reversed(checks):
            filtered_by[~check.passes] = FILTERS.index(check.filter)
        feasible = filtered_by == 0
        scored = np.flatnonzero(feasible).astype(np.int32) if among is None else among
        scores: dict[str, Ints] = {}
        total = np.full(len(feasible), -1, np.int64)
        total[scored] = 0
        for name, score in self.lowering.score_each(state, cls, scored).items():
            scores[name] = np.zeros(len(feasible), np.int64)
            scores[name][scored] = score
            total[scored] += score
        return Evaluation(feasible, filtered_by, checks, scores, total)

    def predict(self, state: ClusterState, cls: int) -> Prediction:
        """Return the distribution of landings of a pod of the class if it is scheduled now."""
        return self.of(cls)._predict(state, cls)  # noqa: SLF001

    def predict_replacement(self, state: ClusterState, pod: int) -> Prediction:
        """Return the distribution of landings of the replacement if ``pod`` is evicted now.

        The victim is terminating, or gone if its owner waits for that; with a restart it still runs. The state is the
        same afterwards.
        """
        cls = int(state.cls_of[pod])
        replacement = self.snapshot.classes[cls].replacement
        if (model := self.of(replacement)) is not self:
            return model.predict_replacement(state, pod)
        if self.snapshot.classes[cls].restarts:
            return self.predict(state, replacement)
        with state.evicted(pod, gone=self.snapshot.waits(cls)):
            return self._predict(state, replacement)

    def lower(self, state: ClusterState, cls: int) -> tuple[PodArrays, ClusterArrays]:
        """Return a class, and the nodes, for predictions by the core alone."""
        if (model := self.of(cls)) is not self:
            return model.lower(state, cls)
        pod = self.lowering.lower(state, cls)
        pod.unknown = bool(self.find_unmodelled(cls))
        pod.fails_to_score = self._fails_to_score(cls) is not None
        return pod, self.lowering.cluster

    def why_unpredicted(self, cls: int) -> tuple[str, ...]:
        """Return why the landing of a class cannot be predicted, by the core's result."""
        model = self.of(cls)
        return model.find_unmodelled(cls) or tuple(filter(None, [model._fails_to_score(cls)]))  # noqa: SLF001

    def marking(self, nodes: Int32s) -> AbstractContextManager[None]:
        """Treat ``nodes`` as marked inside the ``with`` block, for pods scheduled while the marks exist."""
        return self.supposed.only(nodes, self.supposed.marked)

    def removing(self, nodes: Int32s) -> AbstractContextManager[None]:
        """Treat ``nodes`` as cordoned and tainted by scale-in inside the ``with`` block."""
        return self.supposed.only(nodes, self.supposed.removed)

    def without(self, absent: Bools) -> None:
        """Treat nodes (N,) as absent from now on; they may be added later. A domain that has only such nodes does not exist.

        Callers exclude these nodes from feasible nodes themselves.
        """
        self.supposed.renew()
        self.pending.forget()
        for model in (self, *self._others.values()):
            model.spread.without(absent)
            model.lowering.forget()

    def steering(self, state: ClusterState, cls: int) -> Steering | None:
        """Return the marks needed to make a pod of the class land on each feasible node; None if unpredictable.

        The result is exact if all nodes are scored. If the scheduler samples nodes, check it by :meth:`predict` with
        :meth:`marking`.
        """
        if (model := self.of(cls)) is not self:
            return model.steering(state, cls)
        nodes = self.feasible(state, cls).nonzero()[0].astype(np.int32)
        if self.find_unmodelled(cls) or (len(nodes) > 1 and self._fails_to_score(cls) is not None):
            return None
        scores = self.lowering.score_each(state, cls, nodes).values()
        return Steering(
            nodes,
            sum(scores, np.zeros(len(nodes), np.int64)),
            self.placement.preferred_taints(cls)[nodes] + self.placement.find_marked(cls)[nodes],
            self.profile.weights,
            tolerated=self.placement.tolerates_marks(cls),
        )

    def _predict(self, state: ClusterState, cls: int) -> Prediction:
        if reasons := self.find_unmodelled(cls):
            return uniform(self.lowering.find_feasible(state, cls), reasons)
        if (why := self._fails_to_score(cls)) is not None:
            nodes = self.lowering.find_feasible(state, cls)
            return uniform(nodes) if len(nodes) <= 1 else uniform(nodes[:0], (why,))
        return self.lowering.predict(state, cls)

    def _fails_to_score(self, cls: int) -> str | None:
        """Return why the scheduler fails with an error if several nodes are feasible; None if it does not.

        With a single feasible node nothing is scored, so a term that cannot be parsed has no effect
        (``schedulePod``; ``nodeaffinity.PreScore``).
        """
        if NODE_AFFINITY in self.profile.off:
            return None
        why = self.placement.unparsable_preference(cls)
        return f"{why}: pending for as long as two nodes are feasible" if why is not None else None

    def rejection(self, cls: int) -> str:
        """Return why pods of the class are rejected before any node is evaluated; empty if they are not."""
        rejection = self.filters_of(cls).find_rejection(cls)
        return "" if rejection is None else rejection[1]

    def find_unmodelled(self, cls: int) -> tuple[str, ...]:
        """Return why pods of a class cannot be predicted; empty if they can."""
        if (model := self.of(cls)) is not self:
            return model.find_unmodelled(cls)
        known = self._unmodelled.get(cls)
        if known is None:
            of_class = self.snapshot.classes[cls]
            group = self.snapshot.group_of(of_class)
            reasons = list(find_unmodelled(of_class, self.profile, group))
            reasons += [
                f"an extender of the scheduler decides about {name}"
                for row, name in enumerate(self.resources.names)
                if name in self.profile.managed_resources and self.snapshot.requests[row, cls]
            ]
            reasons += [
                f"the request for {name} is negative" for name in self.resources.negative(cls)
            ]
            if not all(map(self.snapshot.knows_namespaces_of, of_class.spec.pod_terms())):
                reasons.append("it selects namespaces by labels, and no Namespace was read")
            rules = self.filters.volumes.of(cls)
            reasons += rules.unmodelled if rules is not None else []
            reasons += self._explain_claims(cls)
            devices = self.snapshot.devices
            judged = devices is not None and cls < devices.classes
            if self.profile.allocates_extended_resources and not judged:
                reasons += [
                    f"a DeviceClass may stand behind {name} (dynamic resource allocation)"
                    for name in self._allocated.of(cls)
                ]
            known = self._unmodelled[cls] = tuple(dict.fromkeys(reasons))
        return known

    def _explain_claims(self, cls: int) -> Iterator[str]:
        """Yield why the resource claims of a class, and those that it gets for extended resources, are not modelled."""
        devices = self.snapshot.devices
        claims = bool(self.snapshot.classes[cls].spec.resource_claims)
        if not claims and (devices is None or cls not in devices.unmodelled):
            return
        why = ("they were not read",) if devices is None else devices.unmodelled.get(cls, ("",))
        if not claims and not self.profile.allocates_extended_resources:
            why = (*why, "this scheduler allocates none for extended resources")
        if DYNAMIC_RESOURCES in self.profile.off:
            why = (*why, f"the scheduler runs without {DYNAMIC_RESOURCES}")
        scores = devices is not None and cls in devices.preferred
        if scores and self.profile.scores_alternatives:
            why = (*why, *self._explain_alternatives(cls))
        for one in why:
            yield f"resource claims (dynamic resource allocation){': ' * bool(one)}{one}"

    def _explain_alternatives(self, cls: int) -> Iterator[str]:
        """Yield why alternatives are not scored: the core has one place for them and for preferred node affinity."""
        weights = self.profile.weights
        if self.placement.preferred_affinity(cls) is not None:
            yield "it has alternatives (firstAvailable) beside preferred node affinity"
        if weights.get(DYNAMIC_RESOURCES) != weights.get(NODE_AFFINITY):
            yield f"alternatives (firstAvailable), and {DYNAMIC_RESOURCES} has another weight than {NODE_AFFINITY}"
