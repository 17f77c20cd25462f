"""Which nodes can go: those of little use, all of whose pods have landings elsewhere, together.

What the nodes themselves say follows Cluster Autoscaler's scale-down (``core/scaledown/eligibility``). Whether the pods can
leave is what consolidation asks, with the same code: the policy's protections, PodDisruptionBudgets, and the prediction.
It is asked twice, with the rules of the policy and without: Cluster Autoscaler knows the scheduler's only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.capacity.codes import GOES, RemovalCode
from rebalancer.capacity.groups import Groups
from rebalancer.cost.term import Emptiable
from rebalancer.plan.plan import NodeCode as EmptyingCode
from rebalancer.plan.plan import NodeVerdict
from rebalancer.planner.draft import Draft
from rebalancer.planner.emptying import Emptier, EmptyingChoice
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Eagerness
from rebalancer.snapshot.columns import Bools, Floats, Int32s
from rebalancer.snapshot.leaving import NoticeKind
from rebalancer.snapshot.marks import marked_by_others
from rebalancer.snapshot.model import Snapshot

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
_WEIGHED = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class StayingPod:
    """A pod that keeps its node."""

    pod: int
    message: str


@dataclass(frozen=True, slots=True)
class NodeRemoval:
    """Whether a node can go."""

    node: int
    code: RemovalCode
    message: str
    group: str | None
    used: Mapping[str, float]
    """Resource -> share of it that is requested: cpu and memory; of a node with GPUs, these."""
    pods: tuple[StayingPod, ...] = ()
    """Those that may not be moved, where that is why it stays."""

    @property
    def goes(self) -> bool:
        """Whether it can go."""
        return self.code in GOES


def removals(
    problem: Problem,
    settings: Settings,
    groups: Groups,
    under: float,
    *,
    asked: bool,
    needed: Mapping[str, int],
    begun: Bools | None = None,
    noted: Bools | None = None,
) -> list[NodeRemoval]:
    """Return what is to be said of each node, in the snapshot's order.

    ``under``: largest share requested. ``asked``: whether a provider was asked, so that nodes in no group stay.
    ``needed``: see Growth. ``begun`` (N,): nodes that are being emptied; the snapshot has them as if they were not. They go on
    before others go, and a pod that may not leave for the moment is waited for. ``noted`` (N,): nodes that could go when they were
    looked at before; where not all can, they come before others, so that the choice is not another one each time.
    """
    none = np.zeros(len(problem.snapshot.nodes), bool)
    noted = none if noted is None else noted
    removal = _Removal(problem, settings, groups, under, asked=asked, needed=needed, noted=noted)
    return removal.removals(none if begun is None else begun)


class _Removal:
    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        groups: Groups,
        under: float,
        *,
        asked: bool,
        needed: Mapping[str, int],
        noted: Bools,
    ) -> None:
        self._noted = noted
        relentless = replace(settings, eagerness=Eagerness.RELENTLESS)
        self._snapshot, self._groups = problem.snapshot, groups
        self._draft = Draft(problem, relentless)
        self._of_scheduler = Draft(replace(problem, contributions=()), relentless)
        """Without the rules of the policy: what is left are the scheduler's, and what its hard rules ask for."""
        self._used = _used(self._draft)
        self._kept = dict(self._kept_nodes(under, needed, asked=asked))
        self._of = Contribution("capacity", 1.0, observed=True, terms=lambda _: ())
        self._also: EmptyingChoice
        """What could go if only the scheduler's rules were kept."""

    def removals(self, begun: Bools) -> list[NodeRemoval]:
        emptier, choice = self._chosen(self._draft, begun)
        _, self._also = self._chosen(self._of_scheduler, choice.nodes)
        return [self._removal(node, emptier, choice) for node in range(len(self._snapshot.nodes))]

    def _chosen(self, draft: Draft, going: Bools) -> tuple[Emptier, EmptyingChoice]:
        """Return the nodes that can go by the rules of ``draft``: ``going`` (N,) and more."""
        while True:
            emptier = self._emptier(draft)
            still = emptier.still(going).nodes if going.any() else going
            choice = emptier.more(still, self._noted)
            choice = self._with_dead(choice)
            if not (surplus := self._surplus(choice, going)):
                return emptier, choice
            # More of the others may be able to go where these stay.
            self._kept |= surplus

    def _dead(self) -> Bools:
        """Return the nodes (N,) that are not Ready, hold no pods, and that nothing keeps: no pod needs a place for these."""
        dead: Bools = ~self._snapshot.nodes.ready
        dead[list(self._kept)] = False
        return dead

    def _with_dead(self, choice: EmptyingChoice) -> EmptyingChoice:
        dead = self._dead()
        text = "it is not Ready, and only pods that belong to it are on it"
        empty = NodeVerdict(EmptyingCode.EMPTY, text)
        more = dict.fromkeys(np.flatnonzero(dead).tolist(), empty)
        return EmptyingChoice(choice.nodes | dead, {**choice.verdicts, **more})

    def _emptier(self, draft: Draft) -> Emptier:
        nodes = self._snapshot.nodes
        eligible = ~self._dead()
        eligible[list(self._kept)] = False
        emptiable = Emptiable(
            nodes=eligible,
            kept={node: text for node, (_, text) in self._kept.items()},
            counted=nodes.ready & ~nodes.leaving,
            needed=0,
        )
        return Emptier(draft, self._of, emptiable, marked_by_others(self._snapshot))

    def _surplus(self, choice: EmptyingChoice, going: Bools) -> dict[int, tuple[RemovalCode, str]]:
        """Return the nodes that were chosen although their group would fall below its minimum."""
        left: Counter[str] = Counter()
        surplus: dict[int, tuple[RemovalCode, str]] = {}
        # Those that go already count first, then those that were noted before, then those whose pods are fewest.
        pods = self._draft.state.lasting_count
        chosen = np.flatnonzero(choice.nodes)
        for node in chosen[
            np.lexsort((chosen, pods[chosen], ~self._noted[chosen], ~going[chosen]))
        ].tolist():
            group = self._groups.group_of(node)
            if group is None or group.desired is None or group.minimum is None:
                continue
            if left[group.name] >= group.desired - group.minimum:
                surplus[node] = (
                    RemovalCode.MIN_SIZE,
                    _too_few(group.name, group.desired, group.minimum),
                )
            left[group.name] += 1
        return surplus

    def _removal(self, node: int, emptier: Emptier, choice: EmptyingChoice) -> NodeRemoval:
        code, text, pods = self._said(node, emptier, choice)
        group = self._groups.group_of(node)
        used = {name: float(share[node]) for name, share in self._used.items()}
        gpus = {name: share for name, share in used.items() if name in _GPUS and share >= 0}
        return NodeRemoval(
            node,
            code,
            text,
            None if group is None else group.name,
            gpus or {name: used[name] for name in _WEIGHED if used.get(name, -1) >= 0},
            pods,
        )

    def _said(
        self, node: int, emptier: Emptier, choice: EmptyingChoice
    ) -> tuple[RemovalCode, str, tuple[StayingPod, ...]]:
        if (kept := self._kept.get(node)) is not None:
            return *kept, ()
        verdict = choice.verdicts[node]
        match verdict.code:
            case EmptyingCode.EMPTY:
                ready = bool(self._snapshot.nodes.ready[node])
                text = "only pods that belong to it are on it" if ready else verdict.message
                return RemovalCode.EMPTY, text, ()
            case EmptyingCode.EMPTIED:
                return RemovalCode.REMOVABLE, verdict.message, ()
            case EmptyingCode.POD_STAYS:
                staying = tuple(StayingPod(*one) for one in emptier.staying(node))
                return RemovalCode.POD_STAYS, verdict.message, staying
            case EmptyingCode.NOT_ELIGIBLE:
                return RemovalCode.BEING_REMOVED, verdict.message, ()
            case _ if self._also.nodes[node]:
                return RemovalCode.RULE_BREAKS, verdict.message, ()
            case _:
                return RemovalCode.NO_PLACE, self._also.verdicts[node].message, ()

    # -- what nodes themselves say -------------------------------------------------------------------

    def _kept_nodes(
        self, under: float, needed: Mapping[str, int], *, asked: bool
    ) -> Iterator[tuple[int, tuple[RemovalCode, str]]]:
        """Yield the nodes that cannot go whatever is on them, each with the first reason."""
        taken = np.zeros(len(self._snapshot.nodes), bool)
        rules = (
            *self._states(),
            *self._memberships(asked=asked),
            *self._fullness(under),
            self._needed(needed),
        )
        for mask, code, texts in rules:
            for node in np.flatnonzero(mask & ~taken).tolist():
                yield node, (code, texts if isinstance(texts, str) else texts[node])
            taken |= mask

    def _states(self) -> Iterator[tuple[Bools, RemovalCode, str | Mapping[int, str]]]:
        nodes = self._snapshot.nodes
        unreadable = np.zeros(len(nodes), bool)
        unreadable[list(nodes.unreadable)] = True
        yield unreadable, RemovalCode.NOT_READY, nodes.unreadable
        yield nodes.leaving, RemovalCode.BEING_REMOVED, "it is being deleted, or announced to go"
        for key in _CONTROL_PLANE:
            carries = nodes.labels.column(key) >= 0
            yield carries, RemovalCode.CONTROL_PLANE, f"it is labelled {key}"
        says = {
            node: next(n.text for n in notices if n.kind is NoticeKind.KEEP)
            for node, notices in nodes.notices.items()
            if any(n.kind is NoticeKind.KEEP for n in notices)
        }
        yield (
            _mask(says, len(nodes)),
            RemovalCode.DISABLED,
            {n: f"it is {t}" for n, t in says.items()},
        )
        # Once its pods are given up, what is left of it can go.
        holding = np.zeros(len(nodes), bool)
        holding[self._snapshot.pods.node[_movers(self._draft)]] = True
        yield ~nodes.ready & holding, RemovalCode.NOT_READY, "it is not Ready, and pods are on it"

    def _memberships(
        self, *, asked: bool
    ) -> Iterator[tuple[Bools, RemovalCode, str | Mapping[int, str]]]:
        size = len(self._snapshot.nodes)
        if asked:
            alone = ~_mask(self._groups.of_node, size)
            yield alone, RemovalCode.NO_GROUP, "its machine is in no group of the provider"
        small = {
            node: _too_few(group.name, group.desired, group.minimum)
            for node in self._groups.of_node
            if (group := self._groups.group_of(node)) is not None
            and group.desired is not None
            and group.minimum is not None
            and group.desired <= group.minimum
        }
        yield _mask(small, size), RemovalCode.MIN_SIZE, small

    def _fullness(
        self, under: float
    ) -> Iterator[tuple[Bools, RemovalCode, str | Mapping[int, str]]]:
        size = len(self._snapshot.nodes)
        of_gpus = np.zeros(size, bool)
        for name in _GPUS:
            of_gpus |= self._used.get(name, np.full(size, -1.0)) >= 0
        for name, share in self._used.items():
            above = (share > under + 1e-9) & (of_gpus if name in _GPUS else ~of_gpus)
            texts = {
                node: f"{share[node]:.0%} of its {name} is requested, more than {under:.0%}"
                for node in np.flatnonzero(above).tolist()
            }
            yield above, RemovalCode.TOO_FULL, texts

    def _needed(self, needed: Mapping[str, int]) -> tuple[Bools, RemovalCode, Mapping[int, str]]:
        snapshot = self._snapshot
        texts = {
            snapshot.nodes.index[name]: f"{snapshot.pod_ref(pod)} waits, and fits on it"
            for name, pod in needed.items()
        }
        return _mask(texts, len(snapshot.nodes)), RemovalCode.NEEDED, texts


def _movers(draft: Draft) -> Int32s:
    """Return the living pods that do not belong to their node."""
    per_node = np.array([cls.per_node for cls in draft.snapshot.classes] or [False], bool)
    here = draft.state.unmoved()
    movers: Int32s = here[~per_node[draft.snapshot.pods.cls[here]]]
    return movers


def _mask(nodes: Mapping[int, object] | Sequence[int], size: int) -> Bools:
    mask = np.zeros(size, bool)
    mask[list(nodes)] = True
    return mask


def _too_few(group: str, desired: int, minimum: int) -> str:
    return f"{group} has {desired} nodes and needs {minimum}"


def _used(draft: Draft) -> dict[str, Floats]:
    """Return resource -> share of it (N,) that living pods request, -1 where a node has none of it.

    Pods of DaemonSets and static pods count; terminating ones do not.
    """
    snapshot: Snapshot = draft.snapshot
    shares: dict[str, Floats] = {}
    for name in (*_WEIGHED, *_GPUS):
        if name in snapshot.resources:
            row = snapshot.resources.index(name)
            room = snapshot.nodes.allocatable[row]
            share = draft.state.lasting[row] / np.maximum(1, room)
            shares[name] = np.where(room > 0, share, -1.0)
    return shares
