"""Room that strategies of the policy ask machines for (``Ask.spec``), as buffers: scale-out sees each chunk as a pending pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from rebalancer.cost.room_term import RoomTerm
from rebalancer.machines.capacity.groups import Groups, ProviderTemplate
from rebalancer.planner.draft import Draft
from rebalancer.planner.rules import History, RunRules
from rebalancer.snapshot.model import Buffer, Snapshot
from rebalancer.wire import objects as o


def with_slots(
    rules: RunRules,
    history: History,
    snapshot: Snapshot,
    groups: Groups,
    template: ProviderTemplate,
) -> Snapshot:
    """Return ``snapshot`` with a buffer for the room that strategies ask machines for in each place.

    What it is for may tolerate taints: none that nodes keep hinders it.

    Raises:
        ProviderError: the provider cannot be asked.
    """
    draft = Draft(rules.problem(snapshot, history), rules.settings(history))
    rooms = [
        (one.strategy, ask, count)
        for one in draft.enforced
        if isinstance(one.term, RoomTerm)
        for ask, count in one.term.wanted()
        if ask.spec is not None
    ]
    if not rooms:
        return snapshot
    tolerations = _tolerate_lasting(snapshot, groups, template)
    buffers = tuple(
        Buffer(
            namespace="",
            name=name if number == 0 else f"{name}-place{number + 1}",
            # The next run knows by it for which of them a machine was requested.
            uid=f"{name}/{ask.text}",
            chunks=count,
            labels={},
            spec=msgspec.structs.replace(ask.spec, tolerations=tolerations),
        )
        for number, (name, ask, count) in enumerate(rooms)
        if ask.spec is not None
    )
    return replace(snapshot, buffers=(*(snapshot.buffers or ()), *buffers))


def _tolerate_lasting(
    snapshot: Snapshot, groups: Groups, template: ProviderTemplate
) -> tuple[o.Toleration, ...]:
    """Return a toleration of each taint that nodes of the cluster, or new ones, keep."""
    new = [groups.template_of(group, template) for group in groups.groups]
    taints: list[Iterable[o.Taint]] = [*snapshot.nodes.taint_sets]
    taints += [one.taints for one in new if one is not None]
    keys = {(one.key, one.effect) for of in taints for one in of if groups.keeps(one)}
    return tuple(
        o.Toleration(key=key, operator="Exists", effect=effect) for key, effect in sorted(keys)
    )
