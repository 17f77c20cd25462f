"""Trials on a state: pods leave, replacements are placed elsewhere, and at the end the state is restored."""

from __future__ import annotations

from typing import Self

from rebalancer.snapshot.state import ClusterState


class Trial:
    """Changes of a state that are undone in reverse order at the end of a ``with`` block, whichever method made them."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._snapshot = state, state.snapshot
        self._keeps, self._start = state.keeps_inverses, state.mark()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._state.rewind(self._start)
        if not self._keeps:
            self._state.forget_inverses()

    def here(self) -> int:
        """Return where the trial is now, for :meth:`undo`."""
        return self._state.mark()

    def undo(self, to: int) -> None:
        """Undo the changes since :meth:`here` returned ``to``."""
        self._state.rewind(to)

    def keep(self) -> None:
        """Keep all changes so far at the end."""
        self._start = self._state.mark()

    def evict(self, pod: int, *, gone: bool) -> None:
        """Evict a pod. Unless it is ``gone`` at once it terminates, and occupies its room until :meth:`hide`."""
        self._state.evict(pod)
        if gone:
            self.hide()

    def hide(self, victims: int = 1) -> None:
        """Let the newest victims that terminate be gone."""
        for _ in range(victims):
            self._state.hide_newest_victim()

    def place(self, pod: int, node: int, cls: int = -1) -> None:
        """Place the replacement of a pod on a node; or, with ``cls``, a pod of that class."""
        replacement = self._snapshot.classes[int(self._snapshot.pods.cls[pod])].replacement
        self._state.place(pod, replacement if cls < 0 else cls, node)

    def move(self, pod: int, node: int) -> None:
        """Let a pod be gone, and place its replacement on a node."""
        self.evict(pod, gone=True)
        self.place(pod, node)
