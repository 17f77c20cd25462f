"""List the features of a class that the model cannot predict. It never guesses and never raises."""

from __future__ import annotations

from collections.abc import Iterator

from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import PodClass
from rebalancer.wire import objects as o
from rebalancer.wire.objects import DEFAULT_SCHEDULER

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS = (*_LABEL_OPERATORS, "Gt", "Lt")


def unmodelled(of_class: PodClass, profile: SchedulerProfile) -> Iterator[str]:
    """Yield why pods of a class cannot be predicted with a profile, in any state of the cluster."""
    spec = of_class.spec
    if of_class.unreadable is not None:
        yield of_class.unreadable
    if (spec.scheduler_name or DEFAULT_SCHEDULER) != profile.scheduler_name:
        yield f"scheduled by {spec.scheduler_name}"
    else:
        yield from profile.unmodelled
    if spec.resource_claims:
        yield "resource claims (dynamic resource allocation)"
    if spec.scheduling_group is not None or spec.workload_ref is not None:
        yield f"the scheduler places the pods of {of_class.gang or 'its PodGroup'} together"
    for selector in _selectors(spec):
        yield from _wrong(selector.match_expressions or (), _LABEL_OPERATORS, "label selector")
    for term in _node_terms(spec):
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
    affinity = spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is None:
            continue
        preferred = (weighted.pod_affinity_term for weighted in part.preferred or ())
        for term in (*(part.required or ()), *preferred):
            for selector in (term.label_selector, term.namespace_selector):
                if selector is not None:
                    yield selector


def _node_terms(spec: o.SchedulingSpec) -> Iterator[o.NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return
    if affinity.required is not None:
        yield from affinity.required.node_selector_terms
    for preferred in affinity.preferred or ():
        yield preferred.preference
