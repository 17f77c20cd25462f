"""The pods that have to leave nodes which are to be empty, and those among them that cannot."""

from __future__ import annotations

import numpy as np

from rebalancer.plan.plan import NodeCode, NodeVerdict
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Contribution
from rebalancer.snapshot.columns import Bools, Floats, Int32s, sum_by_node
from rebalancer.snapshot.protect import PASSING


class LeavingPods:
    """The pods on each node that have to leave it, and those among them that cannot."""

    def __init__(self, draft: Draft, of: Contribution) -> None:
        snapshot, problem = draft.snapshot, draft.problem
        self._draft, pods = draft, snapshot.pods
        per_node = np.array([cls.per_node for cls in snapshot.classes] or [False], bool)
        here = draft.state.unmoved()
        here = here[~per_node[pods.cls[here]]]
        most = np.maximum(1, snapshot.nodes.allocatable.max(axis=1, initial=1))
        size = (snapshot.requests / most[:, None]).max(axis=0, initial=0.0)
        # The largest first: they fit into few places.
        self._pods = here[np.lexsort((here, -size[pods.cls[here]], pods.node[here]))]
        self._starts = np.searchsorted(pods.node[self._pods], np.arange(len(snapshot.nodes) + 1))
        self._mine = np.ones(len(pods), bool) if of.selected is None else of.selected.pods(snapshot)
        forbidden = problem.disruptions.forbidden_pods()
        self._stays = ~self._mine | (problem.protected != 0) | forbidden
        self._stays_for_good = ~self._mine | ((problem.protected & ~PASSING) != 0)
        self._stays_for_good |= forbidden & ~_lets_go_later(draft)
        costs = np.bincount(pods.node[here], problem.costs[here], minlength=len(snapshot.nodes))
        self.costs: Floats = costs.astype(np.float64)
        """(N,) what it costs to evict the pods of each node."""
        used = sum_by_node(snapshot.requests, pods.cls[here], pods.node[here], len(snapshot.nodes))
        total = np.maximum(1, snapshot.nodes.allocatable.sum(axis=1, keepdims=True))
        self.load: Floats = (used / total).max(axis=0, initial=0.0)
        """(N,) the largest share of all nodes' resources that the pods of each node request."""

    def on(self, node: int) -> Int32s:
        """Return the pods that have to leave ``node``, the largest first."""
        return self._pods[self._starts[node] : self._starts[node + 1]]

    def staying(self, node: int, *, for_good: bool = False) -> Int32s:
        """Return the pods that cannot leave ``node``, the largest first; ``for_good`` as below."""
        pods = self.on(node)
        return pods[(self._stays_for_good if for_good else self._stays)[pods]]

    def blocked(self, node: int, *, for_good: bool = False) -> NodeVerdict | None:
        """Return why a pod cannot leave ``node``; ``for_good``: what ends by itself is waited for."""
        staying = self.staying(node, for_good=for_good)
        if not len(staying):
            return None
        others = f", and {len(staying) - 1} more" if len(staying) > 1 else ""
        text = (
            f"{self._draft.snapshot.pod_ref(int(staying[0]))}{others}: {self.why(int(staying[0]))}"
        )
        return NodeVerdict(NodeCode.POD_STAYS, text)

    def why(self, pod: int) -> str:
        """Return why a pod cannot leave its node."""
        draft = self._draft
        if protections := draft.protection_texts(pod):
            return "; ".join(f"{name}: {text}" for name, text in protections.items())
        if (
            forbidden := draft.problem.disruptions.forbidden(int(draft.snapshot.pods.cls[pod]))
        ) is not None:
            return forbidden[1]
        return "the select of the strategy does not match it"


def _lets_go_later(draft: Draft) -> Bools:
    """Return the pods (P,) that a single PodDisruptionBudget keeps in place, and not for ever."""
    snapshot, disruptions = draft.snapshot, draft.problem.disruptions
    of_class = np.zeros(max(1, len(snapshot.classes)), bool)
    for cls in range(len(snapshot.classes)):
        budgets = disruptions.of(cls)
        of_class[cls] = len(budgets) == 1 and not snapshot.budgets[budgets[0]].never_allows
    later: Bools = of_class[snapshot.pods.cls]
    return later
