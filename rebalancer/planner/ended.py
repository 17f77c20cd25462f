"""Finished pods that are deleted. They use no resources and are not replaced, so no landing is predicted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from rebalancer.plan.plan import Cause, Code, Move, Skip
from rebalancer.planner.allowance import Allowance
from rebalancer.planner.problem import Contribution, Problem
from rebalancer.planner.rendering import cost_of_entries
from rebalancer.snapshot.protect import LEFT_OUT, names_of, text_of


@dataclass(frozen=True, slots=True)
class Removals:
    """The finished pods to delete, and the reasons why others are not deleted."""

    moves: tuple[Move, ...] = ()
    skips: tuple[Skip, ...] = ()
    waiting: int = 0
    """Number of pods that budgets leave to further runs, for strategies that do not only observe."""

    def __add__(self, other: Removals) -> Removals:
        return Removals(
            self.moves + other.moves, self.skips + other.skips, self.waiting + other.waiting
        )

    def in_wave(self, wave: int) -> Removals:
        """Return a copy with all deletions in ``wave``."""
        return replace(self, moves=tuple(replace(move, wave=wave) for move in self.moves))


class EndedPods:
    """The finished pods that strategies want to delete; each pod belongs to one strategy."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._finished = problem, problem.snapshot.finished
        by_pod: dict[int, Contribution] = {}
        # What a strategy carries out is not only shown by another.
        for of in sorted(problem.contributions, key=lambda of: of.observed):
            for pod in of.ended.pods.tolist() if of.ended is not None else ():
                by_pod.setdefault(pod, of)
        self._left = by_pod
        uids = self._finished.pods.uid if self._finished is not None else ()
        self._by_uid = {uids[pod]: pod for pod in by_pod}

    def has(self, uid: str) -> bool:
        """Return whether a strategy wants to delete the pod ``uid``."""
        return uid in self._by_uid

    def left(self, strategy: str) -> int:
        """Return the number of remaining pods that a strategy wants to delete, and that no flag leaves out."""
        return sum(
            of.strategy == strategy and not self._protected(pod) & LEFT_OUT
            for pod, of in self._left.items()
        )

    def stays(self, uid: str) -> str | None:
        """Return why the pod ``uid`` must not be deleted; None if it may be."""
        pod = self._by_uid.get(uid)
        if pod is None:
            return "no strategy removes it any more"
        if bits := self._protected(pod):
            return f"protected now: {', '.join(names_of(bits))}"
        of = self._left.get(pod)
        return "its strategy only observes" if of is not None and of.observed else None

    def remove(
        self,
        allowance: Allowance,
        *,
        observed: bool | None = None,
        only: Collection[str] | None = None,
    ) -> Removals:
        """Return the pods that protections and the budgets of a run allow to delete.

        ``observed``: only pods of strategies that only observe (True) or of the others (False); None: of both.
        ``only``: limit to these uids.
        """
        snapshot = self._finished
        if snapshot is None:
            return Removals()
        moves: list[Move] = []
        skips: list[Skip] = []
        waiting = 0
        for pod, of in list(self._left.items()):
            if observed not in (None, of.observed):
                continue
            if only is not None and snapshot.pods.uid[pod] not in only:
                continue
            if self._protected(pod) & LEFT_OUT:
                continue
            namespace = snapshot.classes[snapshot.pods.cls[pod]].namespace
            node = self._problem.snapshot.nodes.index.get(self._names(pod)[2], -1)
            if bits := self._protected(pod):
                name = names_of(bits)[0]
                text = f"{name}: {text_of(snapshot, pod, name)}"
                skips.append(self._skip(pod, of, Code.PROTECTED, text, (name,)))
            elif (limit := allowance.over_in(of.strategy, namespace, node)) is not None:
                skips.append(self._skip(pod, of, Code.BUDGET, limit))
                waiting += not of.observed
            else:
                allowance.remove(of.strategy, namespace, node)
                del self._left[pod]
                moves.append(self._move(pod, of))
        return Removals(tuple(moves), tuple(skips), waiting)

    def _protected(self, pod: int) -> int:
        return int(self._problem.ended_protected[pod])

    def _skip(
        self, pod: int, of: Contribution, code: Code, message: str, holders: tuple[str, ...] = ()
    ) -> Skip:
        namespace, name, node = self._names(pod)
        return Skip(namespace, name, node, of.strategy, code, message, holders)

    def _move(self, pod: int, of: Contribution) -> Move:
        if self._finished is None or of.ended is None:
            raise ValueError("only pods that have ended are removed")
        namespace, name, node = self._names(pod)
        owner = self._finished.owner_of(int(self._finished.pods.cls[pod]))
        return Move(
            namespace=namespace,
            pod=name,
            uid=self._finished.pods.uid[pod],
            owner="" if owner is None else owner.ref,
            node=node,
            landings=(),
            strategy=of.strategy,
            reason=of.ended.reason(pod),
            gain=cost_of_entries((0.0, of.weight, 0.0)),
            cost=0.0,
            wave=1,
            observed=of.observed,
            cause=Cause.ENDED,
        )

    def _names(self, pod: int) -> tuple[str, str, str]:
        if self._finished is None:
            raise ValueError("no pod has ended")
        pods, nodes = self._finished.pods, self._finished.nodes
        node = int(pods.node[pod])
        namespace = self._finished.classes[pods.cls[pod]].namespace
        return namespace, pods.name[pod], nodes.names[node] if node >= 0 else ""
