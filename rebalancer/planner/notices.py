"""Warnings for the reader of a plan: blocked rules, unreadable objects, selects without matches, closed windows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

import numpy as np

from rebalancer.base.plain_text import FEW, and_more, count, did_you_mean
from rebalancer.plan.plan import Move
from rebalancer.planner.draft import Draft
from rebalancer.planner.karpenter import describe_closed
from rebalancer.planner.safety import lost_pods
from rebalancer.policy.model import Mode, Policy
from rebalancer.policy.protect import Exempting
from rebalancer.policy.select import Select
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.labels import MISSING, matches_labels
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.prices import days_stale, node_prices
from rebalancer.snapshot.protect import Scope, in_scope, not_understood
from rebalancer.snapshot.selected import list_unresolved, select_pods
from rebalancer.wire.marks import NOT_BALANCED
from rebalancer.wire.times import rfc3339

_EVERYTHING = Scope()
_MAKE_ROOM = "make-room"
_SHOWN = 3
_ALIKE = 0.75
"""Of difflib's ratio: one or two letters of a short key."""


def scope_notes(policy: Policy, snapshot: Snapshot, scope: Scope = _EVERYTHING) -> list[str]:
    """Return warnings, one line each, about selects and labels; ``scope``: restrictions by the command line."""
    selects = [("--select", scope.select)] if scope.select else []
    return [
        *closed_windows(policy, snapshot.captured_at),
        *_without_effect(snapshot, [*selects, *selects_of(policy)]),
        *not_understood(snapshot),
        *_not_read(policy, snapshot),
        *_of_prices(policy, snapshot),
        *_mistyped_labels(policy, snapshot),
    ]


def list_flag_notes(snapshot: Snapshot, scope: Scope) -> Iterator[str]:
    """Yield warnings about flags that leave nothing to move: they come before all others."""
    if (missing := describe_missing_namespace(snapshot, scope.namespace)) is not None:
        yield missing
    yield from _unmatched_selector(snapshot, scope)


def describe_missing_namespace(
    snapshot: Snapshot, namespace: str | None, others: Iterable[str] = ()
) -> str | None:
    """Return a message on ``-n`` if no object shows that the namespace exists; ``others``: further existing namespaces."""
    known = {*snapshot.namespaces, *others}
    if namespace is None or namespace in known:
        return None
    meant = did_you_mean(namespace, known, listed=FEW)
    return f"-n {namespace}: there is no such namespace{meant}"


def _unmatched_selector(snapshot: Snapshot, scope: Scope) -> Iterator[str]:
    asked = [one for one in snapshot.classes if scope.namespace in (None, one.namespace)]
    if scope.selector is not None and asked and not any(map(partial(in_scope, scope), asked)):
        there = f" of {scope.namespace}" if scope.namespace else ""
        yield f"-l matches no pod{there}, so that nothing may move"


def _not_read(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    if policy.protect.after_scaling is not None and snapshot.autoscalers is None:
        yield (
            "protect.afterScaling protects no pod: the file has no HorizontalPodAutoscalers;"
            " `rebalancer snapshot --autoscalers` keeps them"
        )
    if policy.capacity.buffers and snapshot.buffers is None:
        yield (
            "capacity.buffers counts none: the file has no CapacityBuffers;"
            " `rebalancer snapshot --buffers` keeps them"
        )
    makes_room = any(policy.strategy_of(name) == _MAKE_ROOM for name in policy.strategies)
    if makes_room and snapshot.machines_coming is None and len(snapshot.unschedulable_pods()):
        yield (
            f"{_MAKE_ROOM} does not know for which pods a machine is on its way: the file has no Events;"
            " `rebalancer snapshot --events` keeps them"
        )


def _of_prices(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    """Yield that prices are old, or that nodes have none."""
    if (days := days_stale(policy.prices, snapshot.captured_at)) is not None:
        yield f"prices.asOf is {policy.prices.as_of}, {days} days ago: look the prices up again"
    prices = node_prices(policy.prices, snapshot)
    if prices is not None and (unknown := np.flatnonzero(np.isnan(prices.hourly)).tolist()):
        names = and_more([snapshot.nodes.names[node] for node in unknown], _SHOWN)
        yield f"prices says none of {count(len(unknown), 'node')}: {names}; what has pods is not emptied to save money"


def _mistyped_labels(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    """Yield node labels in the policy that no node has, if a similarly spelled label exists.

    A label that is only absent is no error: nodes with it may be added later.
    """
    known = snapshot.nodes.labels.keys
    for where, key in _labels_of_nodes(policy):
        if key not in known and (similar := difflib.get_close_matches(key, known, 1, _ALIKE)):
            yield f"{where}: no node has the label {key}; did you mean {similar[0]}?"


def _labels_of_nodes(policy: Policy) -> Iterator[tuple[str, str]]:
    if policy.prices.label is not None:
        yield "prices.label", policy.prices.label
    for where, select in selects_of(policy):
        for key in sorted(select.nodes.list_keys()) if select.nodes is not None else ():
            yield f"{where}.nodes", key
    if policy.landings.exclude is not None:
        for key in sorted(policy.landings.exclude.list_keys()):
            yield "landings.exclude", key
    for index, constraint in enumerate(policy.scheduler.default_constraints or ()):
        yield f"scheduler.defaultConstraints[{index}]", constraint.topology_key


def selects_of(policy: Policy) -> Iterator[tuple[str, Select]]:
    """Yield (key in the file, select) for every ``select`` of the policy that excludes pods."""
    if policy.select:
        yield "select", policy.select
    for index, one in enumerate(policy.protect.pods):
        yield f"protect.pods[{index}]", one
    for index, of in enumerate(policy.method.grace_periods):
        yield f"method.gracePeriods[{index}].select", of.select
    for name, field in type(policy.protect).model_fields.items():
        value = getattr(policy.protect, name)
        if isinstance(value, Exempting) and value.except_:
            yield f"protect.{field.alias}.except", value.except_
    for name, strategy in sorted(policy.strategies.items()):
        if strategy.select and policy.mode_of(name) is not Mode.OFF:
            yield f"strategies.{name}.select", strategy.select


def pods_selected(snapshot: Snapshot, select: Select) -> Bools:
    """Return the pods (P,) that a select matches, protected or not."""
    picked = select_pods(snapshot, select)
    return np.ones(len(snapshot.pods), bool) if picked is None else picked.pods(snapshot)


def _without_effect(snapshot: Snapshot, selects: Iterable[tuple[str, Select]]) -> Iterator[str]:
    for key, select in selects:
        if len(snapshot.pods) and not pods_selected(snapshot, select).any():
            yield f"{key} matches no pod"
        for name in list_unresolved(snapshot, [select]):
            yield f"{key}: no pod has the PriorityClass {name}, so its value is not known; write the value instead"


def closed_windows(policy: Policy, now: float) -> Iterator[str]:
    """Yield the strategies whose windows forbid moves at ``now`` (Unix seconds), with the next opening."""
    opens: dict[str, list[str]] = {}
    enforced = [n for n in sorted(policy.strategies) if policy.mode_of(n) is Mode.ENFORCE]
    for name in enforced:
        if not policy.allows(name, now):
            at = policy.next_allowed(name, now)
            when = f"the next one opens at {rfc3339(at)}" if at is not None else "none ever opens"
            opens.setdefault(when, []).append(name)
    for when, names in sorted(opens.items()):
        yield f"{_list_names(names, enforced)}: outside every window, {when}"


def _list_names(names: Iterable[str], all_names: list[str]) -> str:
    listed = list(names)
    return "all strategies" if listed == all_names else ", ".join(listed)


def notices(draft: Draft) -> tuple[str, ...]:
    """Return the warnings about a draft, one line each."""
    return (
        *(f"{of.strategy}: {note}" for of in draft.terms for note in of.term.notes()),
        *_conflicts(draft),
        *_unreadable(draft.snapshot),
        *filter(
            None,
            [
                draft.scheduler.profile.note,
                draft.problem.held,
                describe_closed(draft.snapshot.nodes),
            ],
        ),
    )


def landing_risks(snapshot: Snapshot, moves: Sequence[Move]) -> list[str]:
    """Return warnings on landings that kube-scheduler allows and that may not serve, one line for each workload and risk."""
    pods, nodes = snapshot.pods, snapshot.nodes
    rows = pods.uid.rows_of({move.uid for move in moves}).tolist() if moves else ()
    cls_of = {pods.uid[row]: snapshot.classes[pods.cls[row]].replacement for row in rows}
    risks = cache(lambda cls: list(_risks_of(snapshot, cls)))
    lines: dict[str, str] = {}
    for move in moves:
        for where, risk in risks(cls_of[move.uid]) if move.uid in cls_of else ():
            landing = next((of.node for of in move.landings if where[nodes.index[of.node]]), None)
            if landing is not None:
                lines.setdefault(
                    f"{move.owner}{risk}", f"{move.owner} may land on {landing}, {risk}"
                )
    return list(lines.values())


def _risks_of(snapshot: Snapshot, cls: int) -> Iterator[tuple[Bools, str]]:
    """Yield (nodes (N,), what may be wrong there) for pods of a class."""
    if (others := snapshot.other_architectures(cls)) is not None:
        text = "of another architecture than its Ready pods: is its image for that, too?"
        yield (
            others,
            f"{text} A nodeSelector kubernetes.io/arch, or landings.sameArchitecture, keeps it off",
        )
    of_class = snapshot.classes[cls]
    left_out = snapshot.nodes.labels.column(NOT_BALANCED) != MISSING
    for namespace, name, selector in snapshot.local_services if left_out.any() else ():
        if (
            selector
            and namespace == of_class.namespace
            and matches_labels(selector, of_class.labels)
        ):
            text = "which external load balancers leave out: from outside nothing reaches it there"
            yield left_out, f"{text} through Service {name} (externalTrafficPolicy: Local)"


def _conflicts(draft: Draft) -> list[str]:
    snapshot = draft.snapshot
    present = np.bincount(snapshot.pods.cls, minlength=len(snapshot.classes)) > 0
    lines = {
        f"misconfigured: {text} (pods of {_owner_ref(snapshot, cls)})"
        for cls, text in draft.problem.disruptions.conflicts()
        if present[cls]
    }
    return sorted(lines)


def _unreadable(snapshot: Snapshot) -> list[str]:
    lines = [
        f"node {snapshot.nodes.names[n]} is unreadable ({why}): taken as without room"
        for n, why in sorted(snapshot.nodes.unreadable.items())
    ]
    pods = {
        f"pods of {_owner_ref(snapshot, index)} are unreadable ({cls.unreadable}): not moved"
        for index, cls in enumerate(snapshot.classes)
        if cls.unreadable is not None
    }
    lines += sorted(pods)
    if lost := lost_pods(snapshot):
        lines.append(f"{lost} (they count nowhere, and stay)")
    if snapshot.missing:
        of_file = any(text.endswith(": none in the file") for text in snapshot.missing)
        more = "; `rebalancer snapshot` reads all kinds" if of_file else ""
        lines.append(f"not in the snapshot: {_by_reason(snapshot.missing)}{more}")
    return lines


def _owner_ref(snapshot: Snapshot, cls: int) -> str:
    owner = snapshot.owner_of(cls)
    return owner.ref if owner is not None else "no controller"


def _by_reason(missing: Sequence[str]) -> str:
    """Group texts such as ``Job: none in the file`` by reason: ``Job, Service (none in the file)``."""
    kinds: dict[str, list[str]] = {}
    for text in missing:
        kind, _, why = text.partition(": ")
        kinds.setdefault(why, []).append(kind)
    return "; ".join(
        f"{', '.join(of)} ({why})" if why else ", ".join(of) for why, of in kinds.items()
    )
