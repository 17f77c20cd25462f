"""Random ways to change a state and to take changes back, as plans and chains do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from rebalancer.snapshot.model import PodFlag
from rebalancer.snapshot.state import ClusterState

Step = tuple[str, int, int]
"""What to do, with which pod (modulo those that can) and which node (modulo all)."""


def steps(most: int = 6) -> st.SearchStrategy[list[Step]]:
    """Return ways of a few steps."""
    what = st.sampled_from(("move", "move gone", "lift", "lift gone", "try", "reap"))
    return st.lists(st.tuples(what, st.integers(0, 20), st.integers(0, 20)), max_size=most)


def go(state: ClusterState, way: Sequence[Step], look: Callable[[], None]) -> None:
    """Go all steps, and look before the first, after each, and in the middle of what is taken back."""
    look()
    for what, pod, node in way:
        _step(state, what, pod, node % len(state.snapshot.nodes), look)
        look()


def _step(state: ClusterState, what: str, which: int, node: int, look: Callable[[], None]) -> None:
    going = state.snapshot.pods.flags & PodFlag.TERMINATING
    able = [pod for pod in range(len(going)) if state.node_of[pod] >= 0 and not going[pod]]
    if what == "reap":
        state.reap()
    elif able:
        pod = able[which % len(able)]
        cls = int(state.cls_of[pod])
        if what.startswith("lift"):
            with state.evicted(pod, gone=what == "lift gone"):
                look()
            return
        if what == "try" and not _is_home(state, pod):
            return
        if what == "try":
            _try(state, pod, cls, node, look)
            return
        state.evict(pod)
        if what == "move gone":
            state.reap(state.terminating_pods[-1])
        state.place(pod, cls, node)


def _is_home(state: ClusterState, pod: int) -> bool:
    """Whether a pod was never moved: only such a one can be put back where it came from."""
    return bool(pod in state.unmoved().tolist())


def _try(state: ClusterState, pod: int, cls: int, node: int, look: Callable[[], None]) -> None:
    before = state.mark()
    state.evict(pod)
    state.hide_newest_victim()
    state.place(pod, cls, node)
    look()
    state.rewind(before)
