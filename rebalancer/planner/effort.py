"""The limits of a plan's work, in one place. They are counts, not seconds, so equal input gives equal plans."""

from __future__ import annotations

from dataclasses import dataclass

# From so many nodes on, what one move changes is little of where the next pods land.
_MANY_NODES = 100
# Share of the largest wave on many nodes: each wave ends with looks at all that is refused, for a few moves at last.
_FEW = 0.5


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of the search, and of the choice of nodes to empty."""

    in_a_row: int = 4
    """Pairs of a class are ordered by their promises, and have similar landings: after this number of refusals in a row,
    the others wait until a move concerns the class."""
    in_vain: int = 100
    """Pairs for balance alone are judged in the order of their promises. After this number without a good move between
    them, the others wait for the next wave."""
    closely: int = 300
    """Number of pairs that are judged although they promise too little, to show people where they would land."""
    few: float = 0.05
    """A wave with fewer moves than this share of the largest wave continues with gambles."""
    related: int = 64
    """Classes whose candidates are read again directly after a move, at most. With a rule over a whole namespace, those of
    other classes are read when it is their turn."""
    looks: int = 30
    """Up to this number of pairs in a class, their judgements are forgotten once a pod of the class has moved."""
    steered: int = 20
    """Moves in a wave with marks, at most: they are executed one after the other, each once its marks are visible."""
    landings: int = 3
    """Landings of one pod that are tried with marks, at most; the best first."""
    steered_pods: int = 3000
    """Pods of one plan for which a landing is looked for."""
    chain: int = 48
    """Judgements for one pod that cannot be moved alone."""
    chains: int = 600
    """Judgements for all pods of one plan that cannot be moved alone."""
    chain_nodes: int = 8
    """Nodes from which some pod may move first."""
    exchange: int = 48
    """Exchanges that are judged for one pod that fits on no node."""
    exchanges: int = 600
    """Exchanges that are judged for all pods of one plan."""
    scenarios: int = 3
    """Scenarios at most in which the moves of a plan are made again, to say how sure its landings are."""
    scenario_moves: int = 300
    """Moves of all scenarios together; there is at least one scenario."""
    emptying: int = 6000
    """Judgements of one choice of nodes to be emptied."""
    emptied_pods: int = 1000
    """Pods on the nodes of one choice."""
    room: int = 4_000
    """Most steps of one search for room for one pod that waits."""
    room_together: int = 6_000
    """Most steps of one search for room for several pods at once."""
    room_in_all: int = 40_000
    """Most steps of all searches for room in one plan."""
    room_moves: int = 10
    """Evictions for one waiting pod, at most."""
    room_victims: int = 5
    """Pods that leave one node for it."""
    room_nodes: int = 24
    """Nodes that are tried for each pod of it."""
    room_repair: int = 2_000
    """Steps of one repair with the pod in the cluster, where a quarter of the steps of the search did not suffice."""
    room_repair_together: int = 6_000
    """Steps of one with several pods."""
    room_orders: int = 3
    """Further orders of the pods that wait, where not all can be let in one after the other."""
    room_tries: int = 30
    """Ways for one pod that are checked for an order in which they can be executed."""
    room_walks: int = 400
    """The same for all searches of one plan: with many waiting pods, each check takes tens of milliseconds."""

    left_out: int = 4
    """Number of attempts to exclude nodes that the plan itself would empty by half."""

    @staticmethod
    def of(nodes: int) -> Effort:
        """Return the limits for a cluster with this number of nodes."""
        # On few nodes each move makes the next landings more certain: gambles wait until hardly any other move is left.
        return Effort() if nodes < _MANY_NODES else Effort(few=_FEW)
