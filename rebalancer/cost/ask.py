"""What strategies that make room want it for."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.snapshot.columns import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Room that is wanted on one node, and for which pods may have to leave it."""

    pod: int
    """The pod that waits for it, -1: none does yet."""
    cls: int
    """The class that is to be scheduled there; -1: no pod is, and only what follows counts."""
    nodes: Bools
    """(N,) the nodes on which it may be."""
    priority: int
    """Only pods of at most this priority leave for it."""
    requests: Ints
    """(R,) what must be free there; of a pod that is to be scheduled, what it asks."""
    places: int = 1
    """For how many pods."""
    text: str = ""
    """What it is for."""
    about: int = -1
    """The pod that it is for, where none waits for a node; -1: none yet."""
    counted: bool = False
    """Whether its node counts ``requests`` as taken already, and has too little: of a pod that is resized there."""
    held: str = ""
    """Why nothing is to leave for it now; empty: what is in the way may."""
    patient: bool = False
    """Whether nothing is to leave for it, either, where a node that starts will take it."""
