"""Owners that a HorizontalPodAutoscaler has just scaled, or is scaling."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rebalancer.snapshot.model import Owner, PodAutoscaler, Snapshot
from rebalancer.snapshot.owners import Controller, Ownership
from rebalancer.wire import objects as o
from rebalancer.wire.times import unix_seconds

_ABILITIES = ("AbleToScale", "ScalingActive")
"""Conditions of an autoscaler (``pkg/controller/podautoscaler/horizontal.go``)."""
_Name = tuple[str, str, str]
"""Namespace, kind and name."""


def fold_autoscalers(
    autoscalers: Iterable[o.HorizontalPodAutoscaler],
    owners: Sequence[Owner],
    controllers: Mapping[int, Collection[Controller]],
    ownership: Ownership,
) -> tuple[PodAutoscaler, ...]:
    """Return the autoscalers of ``owners``, by namespace and name; other autoscalers are dropped.

    ``controllers``: owner -> the direct controllers of its pods. A target may be the top controller itself, one
    below it (a ReplicaSet), or the object from which an operator created it. Kinds are compared without their API
    group, because the target's version may differ from the version that is read.
    """
    owners_of: dict[_Name, dict[int, None]] = {}
    for index, owner in enumerate(owners):
        for kind, name in _names(owner, controllers.get(index, ()), ownership):
            owners_of.setdefault((owner.namespace, kind, name), {})[index] = None
    return tuple(
        PodAutoscaler(
            namespace=each.metadata.namespace,
            name=each.metadata.name,
            owner=owner,
            scaled_at=unix_seconds(each.status.last_scale_time),
            current=each.status.current_replicas,
            desired=each.status.desired_replicas,
            is_able=not any(
                condition.type in _ABILITIES and condition.status == "False"
                for condition in each.status.conditions or ()
            ),
        )
        for each in autoscalers
        for owner in owners_of.get(_target(each), ())
    )


def _target(autoscaler: o.HorizontalPodAutoscaler) -> _Name:
    target = autoscaler.spec.scale_target_ref
    return autoscaler.metadata.namespace, target.kind, target.name


def _names(
    owner: Owner, controllers: Collection[Controller], ownership: Ownership
) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) of an owner, and of the objects below and above it in the ownership."""
    yield owner.kind, owner.name
    for controller in sorted(controllers, key=lambda each: each.name):
        yield controller.kind, controller.name
    workload = ownership.workload(owner.uid)
    for reference in (workload.metadata.owner_references or ()) if workload is not None else ():
        if reference.controller:
            yield reference.kind, reference.name


def just_scaled(snapshot: Snapshot, seconds: float) -> set[int]:
    """Return the owners that an autoscaler is scaling now, or has scaled in the last ``seconds``."""
    return {
        each.owner
        for each in snapshot.autoscalers or ()
        if each.is_scaling or snapshot.captured_at - each.scaled_at < seconds
    }


def scaling_text(snapshot: Snapshot, owner: int) -> str:
    """Return a phrase on the autoscaler of an owner and the time of its last scaling."""
    mine = [each for each in snapshot.autoscalers or () if each.owner == owner]
    latest = max(mine, key=lambda each: (each.is_scaling, each.scaled_at))
    name = f"HorizontalPodAutoscaler {latest.ref}"
    if latest.is_scaling:
        return f"{name} wants {latest.desired} replicas, and counted {latest.current}"
    # Clocks differ by a little.
    ago = snapshot.time_since(min(latest.scaled_at, snapshot.captured_at))
    return f"{name} scaled it {ago} ago, within protect.afterScaling"
