"""Single replicas that can be moved without downtime, by restarting the rollout of their Deployment.

A rolling update of one replica starts the new pod first, if it may surge, and deletes the old one once the new one
is Ready. The new pod has another template with its own hash, and is scheduled while the old one runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Int32s, freeze
from rebalancer.snapshot.model import Owner, PodClass, Snapshot
from rebalancer.wire import objects as o
from rebalancer.wire.quantity import share_of

HASH = "pod-template-hash"
"""Label by which a Deployment keeps the pods of its templates apart."""
_DEFAULT = "25%"
_OF_MANY = ("ReadWriteMany", "ReadOnlyMany")
_PER_NODE = ("DaemonSet", "Node")


def why_no_surge(deployment: o.Workload) -> str:
    """Return why a Deployment of one replica would not stay Ready during a rollout; empty if it would.

    Source: ``k8s.io/kubernetes/pkg/controller/deployment/util: ResolveFenceposts``: shares of maxSurge are rounded
    up, those of maxUnavailable down.
    """
    if deployment.spec.paused:
        return "it is paused"
    strategy = deployment.spec.strategy or o.UpdateStrategy()
    if strategy.type not in ("", "RollingUpdate"):
        return f"its strategy is {strategy.type}"
    rolling = strategy.rolling_update or o.RollingUpdate()
    surge = _DEFAULT if rolling.max_surge is None else rolling.max_surge
    unavailable = _DEFAULT if rolling.max_unavailable is None else rolling.max_unavailable
    try:
        more, fewer = share_of(surge, 1, up=True), share_of(unavailable, 1, up=False)
    except ValueError:
        return f"maxSurge {surge} and maxUnavailable {unavailable} are not understood"
    if more < 1:
        return f"its maxSurge is {surge}"
    if fewer > 0:
        return f"its maxUnavailable of {unavailable} lets the old pod go first"
    for reference in deployment.metadata.owner_references or ():
        if reference.controller:
            return f"{reference.kind} {reference.name} manages it, and may undo a restart"
    return ""


def with_restarts(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which single replicas move by restarts if possible (``PodClass.restarts``).

    Their replacements have a class of their own, equal to the template except for the hash. If a restart is not
    possible, ``PodClass.cannot_surge`` says why.
    """
    classes = list(snapshot.classes)
    next_of: dict[int, int] = {}
    """Class of a template -> the class of the pods that a restart creates."""
    for index, of_class in enumerate(snapshot.classes):
        owner = snapshot.owner_of(index)
        if owner is None or owner.replicas != 1 or of_class.controller_kind in _PER_NODE:
            continue
        why = _why_not(snapshot, of_class, owner)
        if why or of_class.restarts:
            classes[index] = replace(of_class, restarts=not why, cannot_surge=why)
            continue
        template = of_class.replacement
        if template not in next_of:
            next_of[template] = len(classes)
            classes.append(_of_next_template(snapshot.classes[template], len(classes)))
        classes[index] = replace(of_class, restarts=True, replacement=next_of[template])
    return _with_classes(snapshot, classes, next_of)


def _why_not(snapshot: Snapshot, of_class: PodClass, owner: Owner) -> str:
    if owner.kind != "Deployment" or of_class.controller != "ReplicaSet.apps":
        return f"{owner.ref} is not a Deployment"
    why = owner.cannot_surge or owner.unsettled or ""
    if not why and HASH not in of_class.labels:
        why = f"its pods have no label {HASH}"
    return f"{owner.ref}: {why}" if why else next(_volumes_of_one(snapshot, of_class), "")


def _volumes_of_one(snapshot: Snapshot, of_class: PodClass) -> Iterator[str]:
    """Yield the volumes that only one node may use at a time.

    Source: ``k8s.io/kubernetes/pkg/controller/volume/attachdetach/util: isMultiAttachForbidden``.
    """
    claims, volumes = snapshot.volumes.claims, snapshot.volumes.volumes
    for volume in of_class.spec.volumes or ():
        if volume.disk is not None:
            yield f"its disk {volume.name} can be attached to one node only"
        source = volume.persistent_volume_claim
        if source is None:
            continue
        claim = claims.get((of_class.namespace, source.claim_name))
        if claim is None:
            yield f"its claim {source.claim_name} is not known"
            continue
        bound = volumes.get(claim.spec.volume_name)
        modes = (bound.spec.access_modes if bound is not None else None) or claim.spec.access_modes
        if not set(modes or ()) & set(_OF_MANY):
            yield f"its claim {source.claim_name} is {', '.join(modes or ('of no access mode',))}"


def _of_next_template(template: PodClass, index: int) -> PodClass:
    """Return the class of the pods that a restart creates; it is its own replacement."""
    old = template.labels.get(HASH, "")
    new = f"{old}r"  # any value that no other pod has
    hashes = {old: new}
    return replace(
        template,
        labels={**template.labels, HASH: new},
        spec=msgspec.structs.replace(
            template.spec,
            affinity=_affinity(template.spec.affinity, hashes),
            topology_spread_constraints=_spread(template.spec, hashes),
        ),
        replacement=index,
        restarts=True,
        cannot_surge="",
    )


def _with_classes(
    snapshot: Snapshot, classes: Sequence[PodClass], next_of: Mapping[int, int]
) -> Snapshot:
    """Return the snapshot with ``classes``; added classes have the requests of the classes they derive from."""
    if tuple(classes) == snapshot.classes:
        return snapshot
    columns = [*range(len(snapshot.classes)), *next_of]
    usage = snapshot.usage
    return replace(
        snapshot,
        classes=tuple(classes),
        requests=freeze(snapshot.requests[:, columns]),
        scored=freeze(snapshot.scored[:, columns]),
        usage=usage and replace(usage, classes=freeze(usage.classes[:, columns])),
        budgets=tuple(
            replace(budget, classes=_with_next(budget.classes, next_of))
            for budget in snapshot.budgets
        ),
    )


def _with_next(classes: Int32s, next_of: Mapping[int, int]) -> Int32s:
    more = [next_of[cls] for cls in classes.tolist() if cls in next_of]
    return freeze(np.array([*classes.tolist(), *more], np.int32))


# -- selectors that name the hash ------------------------------------------------------------------


def _selector(
    selector: o.LabelSelector | None, hashes: Mapping[str, str]
) -> o.LabelSelector | None:
    """Return a selector in which the hash from matchLabelKeys is that of the next template."""
    if selector is None or not selector.match_expressions:
        return selector
    return msgspec.structs.replace(
        selector,
        match_expressions=tuple(
            msgspec.structs.replace(
                one, values=tuple(hashes.get(value, value) for value in one.values or ())
            )
            if one.key == HASH
            else one
            for one in selector.match_expressions
        ),
    )


def _spread(
    spec: o.SchedulingSpec, hashes: Mapping[str, str]
) -> tuple[o.TopologySpreadConstraint, ...] | None:
    return spec.topology_spread_constraints and tuple(
        msgspec.structs.replace(one, label_selector=_selector(one.label_selector, hashes))
        for one in spec.topology_spread_constraints
    )


def _affinity(affinity: o.Affinity | None, hashes: Mapping[str, str]) -> o.Affinity | None:
    return affinity and msgspec.structs.replace(
        affinity,
        pod_affinity=_of_pods(affinity.pod_affinity, hashes),
        pod_anti_affinity=_of_pods(affinity.pod_anti_affinity, hashes),
    )


def _of_pods(affinity: o.PodAffinity | None, hashes: Mapping[str, str]) -> o.PodAffinity | None:
    def term(of: o.PodAffinityTerm) -> o.PodAffinityTerm:
        return msgspec.structs.replace(of, label_selector=_selector(of.label_selector, hashes))

    return affinity and msgspec.structs.replace(
        affinity,
        required=affinity.required and tuple(map(term, affinity.required)),
        preferred=affinity.preferred
        and tuple(
            msgspec.structs.replace(one, pod_affinity_term=term(one.pod_affinity_term))
            for one in affinity.preferred
        ),
    )
