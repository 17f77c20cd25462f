"""One possible move, from the pod to the verdict: its landings, its changes of the cost, and whether these suffice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from rebalancer.core.effects import (
    Demands,
    MoveEffect,
    RulesOfMove,
    Terms,
    find_broken,
    find_effect,
    find_promises,
    find_unwanted,
    judge,
)
from rebalancer.core.prediction import foresee
from rebalancer.core.rows import Book, promise, skip_moved
from rebalancer.core.rules import PodMove
from rebalancer.core.views import flags, nodes_of_pods, reals

_NO_GAIN = 5
_NO_NODE, _UNPREDICTED = 11, 13
_GOOD, _BACK, _BREAKS = 0, 4, 6
_SOFT = 2
"""The entries of the cost that count rules."""


@dataclass(eq=False, repr=False)
class Mover:
    """A class of pods that may move, with the data that all of its moves share."""

    cls: int
    replacement: int
    """The class of the replacement."""
    rules: RulesOfMove
    """The rules of the cost that its moves may change."""
    guards: RulesOfMove
    """The hard rules that its moves must not violate."""
    mine: memoryview
    """(T,) the terms whose strategy may move the class."""
    foreign: memoryview | None
    """(N,) nodes of another operating system; None: there are none."""
    leaves: bool
    """Whether a pod leaves before its replacement is scheduled; with a restart it does not."""
    gone: bool
    """Whether it is gone by then; else it terminates."""
    pod: Any = field(init=False, default=None)
    """The replacement (``PodArrays``), once :class:`MoveCallbacks` has lowered it."""
    cluster: Any = field(init=False, default=None)
    """The nodes where it may land (``ClusterArrays``)."""


class MoveCallbacks(Protocol):
    """The functions of Python that the core calls while it judges a move."""

    def mover(self, cls: int) -> Mover:
        """Lower a class."""

    def lower(self, cls: int) -> Mover:
        """Lower a class with its replacement."""

    def judge_feeding(
        self, mover: Mover, pod: int, node: int, cost: float, in_place: bool, for_gain: bool
    ) -> int:
        """If pending pods may take the room of a pod, predict with them, and return what :func:`judge_landings` does; else -1."""


class Bench:
    """The data for judging moves, and the newest judgement."""

    def __init__(
        self,
        terms: Terms,
        demands: Demands,
        classes: int,
        python: MoveCallbacks,
        *,
        has_pending: bool,
    ) -> None:
        self.terms = terms
        self.demands = demands
        self.python = python
        self.has_pending = has_pending
        """Whether any pods are pending."""
        self.feeding = False
        """Whether pending pods may use the room of the newest move: then Python has predicted it, which is slow."""
        self.takers: tuple[Any, ...] = ()
        """Those that do."""
        self.movers: list[Mover | None] = [None] * classes
        """(C,) the classes that were lowered."""
        self.effect = MoveEffect(len(terms.entry), terms.strategies)
        self.move = PodMove(-1, -1, -1, -1, nodes_of_pods(0))
        """The move that :func:`judge_pod` judges."""
        self.nothing = reals(max(1, len(terms.entry)))
        """(T,) zeros."""


class RefusedRow:
    """Why a move was refused when it was looked at, with the numbers of then."""

    def __init__(self, code: int, term: int) -> None:
        self.code = code
        """A number of ``REFUSALS``."""
        self.term = term
        """The term that promised most of the move."""
        self.limit = -1
        """The limit that has kept it back, if one has."""
        self.left = 0
        """How much more that limit allowed."""
        self.cost = 0.0
        """What the eviction costs."""
        self.count = 0
        """K."""
        self.nodes = nodes_of_pods(0)
        """(K,) the landings, most probable first."""
        self.probability = reals(0)
        """(K,) of each."""
        self.takers: tuple[Any, ...] = ()
        """The pending pods that take its room."""
        self.gain = self.shares = reals(0)
        self.named = flags(0)
        self.sure = self.risk = self.leaving = self.avoided = self.foreign = 0.0
        """These are as in ``MoveEffect``; the shares only where nothing is gained."""


def note(bench: Bench, mover: Mover, code: int, term: int, cost: float) -> RefusedRow:
    """Return the details of the newest judgement, which refused a move with this code."""
    look, effect, landings = RefusedRow(code, term), bench.effect, mover.cluster.landings
    look.cost, look.takers = cost, bench.takers
    if code in (_NO_NODE, _UNPREDICTED):
        return look
    look.count = landings.count
    look.nodes, look.probability = nodes_of_pods(look.count), reals(look.count)
    for place in range(landings.count):
        look.nodes[place] = landings.nodes[place]
        look.probability[place] = landings.probability[place]
    look.sure, look.risk, look.foreign = effect.sure, effect.risk, effect.foreign
    look.leaving, look.avoided = effect.leaving, effect.avoided
    look.gain = reals(len(effect.gain))
    for entry in range(len(effect.gain)):
        look.gain[entry] = effect.gain[entry]
    if code == _NO_GAIN:
        look.shares, look.named = reals(len(effect.shares)), flags(len(effect.shares))
        for key in range(len(effect.shares)):
            look.shares[key], look.named[key] = effect.shares[key], effect.named[key]
    return look


def judge_pod(
    bench: Bench,
    mover: Mover,
    pod: int,
    node: int,
    cost: float,
    lives: bool,
    in_place: bool,
    for_gain: bool,
) -> int:
    """Predict the landing of a pod's replacement, which is lowered, and judge it; see :func:`judge_landings`.

    ``lives``: the pod does not terminate already.
    """
    bench.takers, bench.feeding = (), False
    if mover.pod.unknown:
        mover.cluster.landings.count = 0
        return _UNPREDICTED
    if bench.has_pending:
        code = bench.python.judge_feeding(mover, pod, node, cost, in_place, for_gain)
        if code >= 0:
            bench.feeding = True
            return code
    foresee(mover.cluster, mover.pod, mover.cls, node, mover.leaves and lives, mover.gone)
    if mover.pod.fails_to_score and mover.cluster.ring.count > 1:
        mover.cluster.landings.count = 0
        return _UNPREDICTED
    return judge_landings(bench, mover, pod, node, bench.nothing, cost, in_place, for_gain)


def judge_landings(
    bench: Bench,
    mover: Mover,
    pod: int,
    node: int,
    added: memoryview[float],
    cost: float,
    in_place: bool,
    for_gain: bool,
) -> int:
    """Return why a move whose landings are in ``mover.cluster`` is refused, as a number of ``REFUSALS``; 0: it is good.

    What it changes is in ``bench.effect``. ``added``: see :func:`find_effect`. ``cost``: what the eviction costs.
    ``in_place``: the pod may come back to its node. ``for_gain``: the move has to pay by itself; else it must do no harm.
    """
    landings, move = mover.cluster.landings, bench.move
    count = landings.count
    if count == 0:
        return _NO_NODE
    move.pod, move.cls, move.replacement, move.node = pod, mover.cls, mover.replacement, node
    move.nodes = landings.nodes[:count]
    chance = landings.probability[:count]
    find_effect(bench.terms, mover.rules, move, chance, mover.mine, added, bench.effect)
    if not for_gain:
        return _judge_harm(bench, mover, move, chance)
    return judge(
        bench.demands, mover.guards, move, chance, mover.foreign, bench.effect, cost, in_place
    )


def _judge_harm(bench: Bench, mover: Mover, move: PodMove, chance: memoryview[float]) -> int:
    """Return why a move that has to gain nothing is refused: no rule may get worse by it, and the pod must not come back."""
    effect = bench.effect
    unwanted = find_unwanted(bench.demands, move, chance, mover.foreign, effect)
    if unwanted:
        return unwanted
    for place in range(len(move.nodes)):
        if move.nodes[place] == move.node:
            return _BACK
    for place in range(_SOFT * effect.landings):
        if effect.changes[place] > 0.0:
            return _BREAKS
    return _BREAKS if find_broken(mover.guards, move, effect) else _GOOD


def ask(book: Book, terms: Terms, mover: Mover, moved: memoryview, most_lowered: int) -> None:
    """Write the present promises of a class's rows into the book, see :func:`promise`; ``moved`` (P,): pods that have moved."""
    rows = book.rows
    first, end = rows.start[mover.cls], rows.start[mover.cls + 1]
    book.stale[mover.cls] = 0
    book.asked[mover.cls] = book.moves
    if first == end:
        return
    skip_moved(rows, mover.cls, moved)
    nodes = rows.node[first:end]
    leading = book.leading[first:end]
    find_promises(
        terms,
        mover.rules,
        mover.cls,
        nodes,
        mover.mine,
        book.gains,
        leading,
        book.shares,
        book.of_rule,
    )
    for row in range(first, end):
        if book.leading[row] >= 0:
            book.named[row] = 1
    promise(book, mover.cls, book.gains, most_lowered)
