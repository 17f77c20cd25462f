"""Pods that leave a state together, as a plan tries them: a gang, or one pod of a node that is to be empty."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Self

from rebalancer.planner.draft import Draft
from rebalancer.scheduler.prediction import Prediction, Taker


class Evicted:
    """Pods that are evicted from the state of a draft at once; their replacements are placed one after the other.

    What was evicted last has to be undone first.
    """

    def __init__(self, draft: Draft, pods: Sequence[int], *, gone: bool = False) -> None:
        """Evict ``pods``. ``gone``: none of them holds its room any more when the replacements come.

        Without it, victims whose owners wait are gone at once; the others terminate, and hold their room until a replacement needs it.
        """
        self._draft, self._state = draft, draft.state
        waits = {
            pod: gone or draft.snapshot.waits(int(draft.snapshot.pods.cls[pod])) for pod in pods
        }
        self.pods: Collection[int] = frozenset(pods)
        self._pods = sorted(pods, key=waits.__getitem__)
        self._placed: list[int] = []
        self._hidden = 0
        for pod in self._pods:
            self._state.evict(pod)
        self._hide(sum(waits.values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.undo()

    def place(self, pod: int, wanted: int = -1) -> Prediction:
        """Place the replacement of ``pod``, and return its landing; without a node if none takes it.

        It is placed on ``wanted`` where it may land there, else on its most probable node.
        """
        cls = self._replacement(pod)
        prediction = self._draft.scheduler.predict(self._state, cls)
        if not len(prediction.nodes) and self._hidden < len(self._pods):
            self._hide(len(self._pods) - self._hidden)
            prediction = self._draft.scheduler.predict(self._state, cls)
        if len(prediction.nodes):
            self.put(pod, wanted if wanted in prediction.nodes else int(prediction.nodes[0]))
        return prediction

    def put_as(self, pod: int, prediction: Prediction) -> Prediction:
        """Place the replacement of ``pod`` as it was foreseen, and return that."""
        self.put(pod, int(prediction.nodes[0]))
        return prediction

    def takers(self) -> tuple[Taker, ...]:
        """Return the pending pods that get a node once none of the pods holds its room any more."""
        self._hide(len(self._pods) - self._hidden)
        return self._draft.scheduler.pending.takers(self._state)

    def put(self, pod: int, node: int) -> None:
        """Place the replacement of ``pod`` on a node."""
        self._state.place(pod, self._replacement(pod), node)
        self._placed.append(pod)

    def take_back(self) -> None:
        """Take back the replacement that was placed last."""
        self._state.unplace(self._placed.pop())

    def undo(self) -> None:
        """Take all of it back."""
        while self._placed:
            self.take_back()
        while self._hidden:
            self._state.show_newest_victim()
            self._hidden -= 1
        while self._pods:
            self._state.unevict(self._pods.pop())

    def _replacement(self, pod: int) -> int:
        snapshot = self._draft.snapshot
        return snapshot.classes[int(snapshot.pods.cls[pod])].replacement

    def _hide(self, victims: int) -> None:
        for _ in range(victims):
            self._state.hide_newest_victim()
        self._hidden += victims
