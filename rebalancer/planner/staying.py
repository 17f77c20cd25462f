"""What stays although a rule would rather see it elsewhere, and why: a code, and a sentence with numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalancer.cost.term import Signalling, View
from rebalancer.plan.plan import Code, Skip
from rebalancer.planner.allowance import Allowance
from rebalancer.planner.judge import Weighted
from rebalancer.planner.pool import Pair
from rebalancer.planner.search import Refusal
from rebalancer.snapshot.columns import Int32s
from rebalancer.snapshot.protect import TEXTS, names_of


class Staying:
    """Knows what holds each pod, and tells what the state at the end of a plan still leaves to be wished."""

    def __init__(
        self,
        view: View,
        terms: Sequence[Weighted],
        allowance: Allowance,
        protected: Int32s,
        cooling: Mapping[str, str],
    ) -> None:
        """``protected`` (P,) are bits of protections; ``cooling`` says of owners why they rest."""
        self._view, self._terms, self._allowance = view, terms, allowance
        self._protected, self._cooling = protected, cooling

    def skips(self, refusals: Mapping[Pair, Refusal], pairs: set[Pair]) -> list[Skip]:
        """Return the pods that some term would rather see gone, among the ``pairs`` that were looked at, and why not.

        ``refusals`` are the search's.
        """
        final = self._remaining()
        why = self._waiting()
        why |= {pair: refusals[pair] for pair in pairs & final.keys() & refusals.keys()}
        skips: list[Skip] = []
        for pair in sorted((pairs & final.keys()) | why.keys()):
            refusal = why.get(pair)
            strategy = final[pair] if pair in final or refusal is None else refusal.strategy
            for pod in self._view.state.pods_on(*pair).tolist():
                found = self._why(pod, pair, refusal, strategy)
                if found is not None:
                    skips.append(found)
        return sorted(skips, key=lambda skip: (skip.namespace, skip.pod, skip.strategy))

    def _remaining(self) -> dict[Pair, str]:
        """Return the pairs that terms still would rather see gone, with the first strategy to say so."""
        found: dict[Pair, str] = {}
        for weighted in self._terms:
            rows = weighted.term.candidates()
            for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
                found.setdefault(pair, weighted.strategy)
        return found

    def _waiting(self) -> dict[Pair, Refusal]:
        """Return the pairs that wait for what is seen of them to last."""
        found: dict[Pair, Refusal] = {}
        for weighted in self._terms:
            if not isinstance(weighted.term, Signalling):
                continue
            rows = weighted.term.waiting()
            for pair in zip(rows.cls.tolist(), rows.node.tolist(), strict=True):
                text = weighted.term.describe(*pair)
                found.setdefault(pair, Refusal(weighted.strategy, Code.TOO_FEW_RUNS, text))
        return found

    def _why(self, pod: int, pair: Pair, refusal: Refusal | None, strategy: str) -> Skip | None:
        if held := self.protections(pod):
            code, text = Code.PROTECTED, f"{', '.join(held)}: {'; '.join(held.values())}"
        elif (forbidden := self.forbidden(pair[0])) is not None:
            code, text = forbidden
        elif refusal is not None:
            strategy, code, text = refusal.strategy, refusal.code, refusal.message
        else:
            return None
        return Skip(
            namespace=self._view.snapshot.classes[pair[0]].namespace,
            pod=self._view.snapshot.pods.name[pod],
            node=self._view.snapshot.nodes.names[pair[1]],
            strategy=strategy,
            code=code,
            message=text,
        )

    def protections(self, pod: int) -> dict[str, str]:
        """Return name -> text of each protection that holds a pod."""
        cls = int(self._view.snapshot.pods.cls[pod])
        names = names_of(int(self._protected[pod]))
        return {name: self._protection_text(cls, name) for name in names}

    def forbidden(self, cls: int) -> tuple[Code, str] | None:
        """Say why no pod of ``cls`` can be evicted now, if a PodDisruptionBudget forbids it."""
        return self._allowance.forbidden(cls)

    def _protection_text(self, cls: int, name: str) -> str:
        owner = self._view.snapshot.classes[cls].owner
        if name == "ownerUnsettled" and owner >= 0:
            return f"{self._view.snapshot.owners[owner].ref}: {self._view.snapshot.owners[owner].unsettled}"
        if name == "coolDown" and owner >= 0:
            return self._cooling.get(self._view.snapshot.owners[owner].ref, TEXTS[name])
        return TEXTS[name]
