"""Inter-pod anti-affinity, required and preferred, over any topology key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rebalancer.api import (
    ConflictGroup,
    Domains,
    DomainTerm,
    Entry,
    Group,
    Params,
    SpreadGroup,
    Strategy,
    Term,
    View,
)


class AntiAffinityParams(Params):
    """Options of anti-affinity."""

    required: bool = Field(default=True, description="Fix required anti-affinity (hard).")
    preferred: bool = Field(
        default=True, description="Fix preferred anti-affinity (soft, by its weight)."
    )
    cross_namespace: bool = Field(
        default=False,
        description="Across namespaces, also move the pods that another namespace's pods declare to repel; else only"
        " pods that declare it move.",
    )


_NONE = np.zeros(0, np.int32)


@dataclass
class _Gathered:
    """Equal anti-affinity terms: the classes that declare them and the classes that they match."""

    entry: Entry
    key: str
    weight: float
    matched: NDArray[np.int32]
    kind: str
    """Required, or preferred with its weight."""
    owners: list[int] = field(default_factory=list)
    staying: list[int] = field(default_factory=list)
    """Classes that declare them, too, and never move: without a controller, or belonging to their node."""


class AntiAffinity(Strategy):
    """Moves pods away from pods they repel, by required and preferred anti-affinity.

    Within a namespace both directions count: the pod that declares a term and the pod that it matches repel each
    other, and the smallest set of pods is moved. Across namespaces only pods that declare a term are moved, unless
    ``crossNamespace`` says otherwise: else any tenant could have the pods of another tenant evicted. DaemonSets'
    pods and pods without a controller never move; if such a pod declares a required term, the pods that it matches
    are moved. A preferred term weighs weight / 100. Semantics: ``pkg/scheduler/framework/plugins/interpodaffinity``.
    """

    Params = AntiAffinityParams

    def terms(self, view: View, params: AntiAffinityParams) -> Sequence[Term]:
        """Return a hard term (required) and a soft one (preferred)."""
        gathered: dict[tuple[object, ...], _Gathered] = {}
        replaceable = {cls for cls, _ in view.comparable()}
        for cls in range(len(view.snapshot.classes)):
            for declared in _list_declared(view, cls, params):
                moves = cls in replaceable
                if not moves and declared.entry is Entry.SOFT:
                    continue
                identity = (
                    declared.entry,
                    declared.key,
                    declared.weight,
                    declared.matched.tobytes(),
                )
                same = gathered.setdefault(identity, declared)
                (same.owners if moves else same.staying).append(cls)
        groups: dict[Entry, list[Group]] = {Entry.HARD: [], Entry.SOFT: []}
        for declared in gathered.values():
            groups[declared.entry] += _beside_staying(view, declared, params)
            if not declared.owners:
                continue
            owners = np.array(declared.owners, np.int32)
            parts = [(owners, _NONE)] if params.cross_namespace else _parts(view, owners, declared)
            groups[declared.entry] += [_group(view, declared, *part) for part in parts]
        return [DomainTerm(view, entry, of_entry) for entry, of_entry in groups.items()]


def _list_declared(view: View, cls: int, params: AntiAffinityParams) -> Iterator[_Gathered]:
    of_class = view.snapshot.classes[cls]
    affinity = of_class.spec.affinity
    declared = affinity.pod_anti_affinity if affinity is not None else None
    if declared is None:
        return
    for term in (declared.required or ()) if params.required else ():
        matched = view.snapshot.affinity_classes(cls, term)
        yield _Gathered(Entry.HARD, term.topology_key, 1.0, matched, "required")
    for weighted in (declared.preferred or ()) if params.preferred else ():
        term = weighted.pod_affinity_term
        yield _Gathered(
            Entry.SOFT,
            term.topology_key,
            weighted.weight / 100,
            view.snapshot.affinity_classes(cls, term),
            f"preferred, weight {weighted.weight}",
        )


def _parts(
    view: View, owners: NDArray[np.int32], declared: _Gathered
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Yield (owners, fixed classes): the declaring owners in parts, each with the classes that must not move for it.

    Fixed are the matched classes of other namespaces. Owners that match each other all declare the term and form one
    part, whatever their namespaces; any other part has owners of one namespace.
    """
    of_class = view.snapshot.classes
    homes_of = [of_class[cls].namespace for cls in owners.tolist()]
    theirs_of = [of_class[cls].namespace for cls in declared.matched.tolist()]
    if len({*homes_of, *theirs_of}) == 1:
        yield owners, _NONE  # as nearly all are: thousands of declarations in a large cluster
        return
    home, theirs = np.array(homes_of), np.array(theirs_of)
    mutual = np.isin(owners, declared.matched)
    homes = np.unique(home[mutual])
    core = mutual | (home == homes[0]) if len(homes) == 1 else mutual
    parts = [core, *(~core & (home == each) for each in np.unique(home[~core]))]
    for part in parts:
        if not part.any():
            continue
        homes = np.unique(home[part])
        at_home = theirs == homes[0] if len(homes) == 1 else np.zeros(len(theirs), bool)
        yield owners[part], np.setdiff1d(declared.matched[~at_home], owners[part])


def _beside_staying(view: View, declared: _Gathered, params: AntiAffinityParams) -> Iterator[Group]:
    """Yield groups of pods that must leave the domain of an immovable pod that declares the term.

    Pods that declare the term themselves are in them only if their own groups do not count the immovable pod, since the
    term does not match it.
    """
    namespace_of = [of.namespace for of in view.snapshot.classes]
    staying = np.array(declared.staying, np.int32)
    counted = np.isin(staying, declared.matched)
    for home in dict.fromkeys(namespace_of[cls] for cls in declared.staying):
        here = np.array([namespace_of[cls] == home for cls in declared.staying], bool)
        for of, judged in ((here & ~counted, []), (here & counted, declared.owners)):
            movers = [
                cls
                for cls in np.setdiff1d(declared.matched, [*declared.staying, *judged]).tolist()
                if params.cross_namespace or namespace_of[cls] == home
            ]
            if movers and of.any():
                first = int(staying[of][0])
                yield ConflictGroup(
                    view,
                    label=f"{_ref(view, first)} apart over {declared.key} ({declared.kind})",
                    domains=Domains.of(view, declared.key, np.ones(len(view.snapshot.nodes), bool)),
                    owners=np.array(movers, np.int32),
                    matched=staying[of],
                    fixed=staying[of],
                )


def _ref(view: View, cls: int) -> str:
    """Return the owner of a class; if it has none, the first pod of the class."""
    snapshot = view.snapshot
    if (owner := snapshot.owner_of(cls)) is not None:
        return owner.ref
    return f"Pod/{snapshot.pod_ref(int(np.flatnonzero(snapshot.pods.cls == cls)[0]))}"


def _group(
    view: View, declared: _Gathered, owners: NDArray[np.int32], fixed: NDArray[np.int32]
) -> Group:
    first = int(owners[0])
    owner = view.snapshot.owners[view.snapshot.classes[first].owner].ref
    label = f"{owner} apart over {declared.key} ({declared.kind})"
    itself = np.array_equal(owners, declared.matched)
    members = owners if itself else np.union1d(owners, declared.matched).astype(np.int32)
    # Where the pods may go, and where they are: a pod on a cordoned node still repels.
    masks = {id(of): of for of in map(view.eligible, owners.tolist())}
    eligible = view.eligible(first)
    if len(masks) > 1:
        eligible = view.shared(np.any(list(masks.values()), axis=0))
    if not eligible.all():
        occupied = view.state.occupied_nodes(members)
        if not eligible[occupied].all():
            eligible = eligible.copy()
            eligible[occupied] = True
    domains = Domains.of(view, declared.key, eligible)
    if declared.entry is Entry.SOFT and itself:
        # Pods that would rather not meet their own kind: with more pods than domains some must, and
        # the fewest meetings are the most even spread.
        return SpreadGroup(
            view,
            label=label,
            domains=domains,
            counted=declared.matched,
            movers=owners,
            max_skew=1,
            weight=declared.weight,
        )
    return ConflictGroup(
        view,
        label=label,
        domains=domains,
        owners=owners,
        matched=declared.matched,
        fixed=fixed,
        weight=declared.weight,
    )
