"""The effect of a move on the cost: its changes, its expected gain, and whether that is enough.

The cost is a tuple, compared from the left: hard, soft, imbalance. A term is what one strategy adds to one entry: the
weighted sum of some rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rebalancer.core.rules import PodMove, Rule, moves_for, write_changes, write_gains
from rebalancer.core.views import flags, ints, reals

_ENTRIES = 3
_IMBALANCE = 2
_TOLERANCE = 1e-9
"""Differences below this are rounding, not gain."""
_ROOM = 16
_UNNAMED, _NAMED, _HARMED = 0, 1, 2
_UNWANTED_SHARE = 0.05
"""A move is refused if more than this share of its landings is on nodes about to be removed, or on nodes that the policy excludes."""
_BACK_SHARE = 0.5
_VAIN = 2
_LESS = 0.05
"""The expected loss, in pods, against the best landing, from which on a move is a gamble. A move that fixes so much less than
was hoped for breaks one rule as it fixes another."""
_LESS_BESIDE_HARD = 0.5
"""The same for soft rules, of a move that fixes a hard rule: it is not put off for less than half a pod."""

REFUSALS = (
    "",
    "other system",
    "leaving node",
    "avoided node",
    "comes back",
    "no gain",
    "breaks a rule",
    "too rarely better",
    "too often worse",
    "too little",
    "nothing expected",
    "no node",
    "limited",
    "not predicted",
)
"""Why a move is refused, by numbers; the first is that it is not."""
_GOOD, _OTHER_SYSTEM, _LEAVING, _AVOIDED, _BACK, _NO_GAIN = 0, 1, 2, 3, 4, 5
_BREAKS, _RARELY, _OFTEN, _LITTLE, _NOTHING = 6, 7, 8, 9, 10


@dataclass(eq=False, repr=False)
class Terms:
    """The T terms of all strategies."""

    entry: memoryview
    """(T,) the entry of the cost to which each adds."""
    weight: memoryview[float]
    """(T,) the weight of each term."""
    strategy: memoryview
    """(T,) the number of its strategy."""
    strategies: int
    """The number of strategies."""
    nodes: list[memoryview | None]
    """Of each term the nodes (N,) whose pods its strategy may move; None: all."""


@dataclass(eq=False, repr=False)
class RulesOfMove:
    """The rules that a move between two classes may change, term by term."""

    rules: list[Rule]
    term: memoryview
    """(G,) the term of each, ascending."""
    weight: memoryview[float]
    """(G,) the weight of each in its term."""


class MoveEffect:
    """The effect of one move with K landings, and room for the next."""

    def __init__(self, terms: int, strategies: int) -> None:
        self.landings = 0
        """K."""
        self.changes = reals(_ENTRIES * _ROOM)
        """(3 * K,) the change of each entry at each landing, entry by entry; negative is better."""
        self.broken = reals(_ROOM)
        """(K,) how much more satisfied hard rules are violated."""
        self.gain = reals(_ENTRIES)
        """(3,) the expected gain of each entry."""
        self.best = reals(_ENTRIES)
        """(3,) the gain of each entry at the landing that is best for it."""
        self.shares = reals(_ENTRIES * max(1, strategies))
        """(3 * S,) the expected gain of each strategy in each entry; of what it may not move only the harm."""
        self.named = flags(_ENTRIES * max(1, strategies))
        """(3 * S,) 1: the strategy may move the pod, and has a term in the entry; 2: only its harm counts."""
        self.sure = self.risk = 0.0
        """The probability that the cost gets better, and that it gets worse."""
        self.back = self.leaving = self.avoided = self.foreign = 0.0
        """The probabilities of the old node, of nodes about to be removed, of nodes that the policy excludes, and of nodes of another system."""
        self.vain = ints(_VAIN)
        """A few of its landings where no rule is fixed."""
        self.vain_count = 0
        """How many these are."""
        self.of_rule = reals(_ROOM)
        self.of_term = reals(_ROOM)
        self.mine = flags(terms)
        """(T,) whether the strategy of each term may move the pod."""


@dataclass(eq=False, repr=False)
class Demands:
    """What the policy requires of a move."""

    better: float
    """The least probability that the cost gets better."""
    worse: float
    """The greatest probability that the cost gets worse."""
    harmless: float
    """The least probability that the cost gets better, if it never gets worse."""
    pods: float
    """The least gain per cost in hard or soft rules."""
    imbalance: float
    """The least gain per cost in balance."""
    leaving: memoryview
    """(N,) nodes about to be removed."""
    avoided: memoryview
    """(N,) nodes that the policy leaves out."""


def find_effect(
    terms: Terms,
    rules: RulesOfMove,
    move: PodMove,
    chance: memoryview[float],
    mine: memoryview,
    added: memoryview[float],
    effect: MoveEffect,
) -> None:
    """Write the effect on the cost of a move with landings of probability ``chance`` (K,).

    ``mine`` (T,): whether the strategy of each term may move the class. Where it may not move the pod, only harm to the
    term counts, and no gain. ``added`` (T,): what pending pods add to each term when they take the room of the pod.
    """
    for term in range(len(terms.entry)):
        effect.mine[term] = mine[term] and _may_leave(terms, term, move.node)
    _begin(terms, effect, len(move.nodes))
    first = 0
    for term in range(len(terms.entry)):
        last = first
        while last < len(rules.rules) and rules.term[last] == term:
            last += 1
        if last > first or added[term] != 0.0:
            _add_rules(rules, first, last, move, effect, added[term])
            _add_term(terms, term, chance, effect)
        first = last
    _sum_up(chance, effect)


def _begin(terms: Terms, effect: MoveEffect, landings: int) -> None:
    """Make room for so many landings, all without a change."""
    effect.landings = landings
    _make_room(effect, landings)
    for place in range(_ENTRIES * landings):
        effect.changes[place] = 0.0
    for key in range(_ENTRIES * terms.strategies):
        effect.shares[key] = 0.0
        effect.named[key] = _UNNAMED
    for term in range(len(terms.entry)):
        if effect.mine[term]:
            effect.named[terms.entry[term] * terms.strategies + terms.strategy[term]] = _NAMED


def _make_room(effect: MoveEffect, landings: int) -> None:
    """Make room for the numbers of so many landings; what stood there is lost if there was too little."""
    if landings > len(effect.broken):
        effect.changes = reals(2 * _ENTRIES * landings)
        effect.broken, effect.of_rule = reals(2 * landings), reals(2 * landings)
        effect.of_term = reals(2 * landings)


def _add_rules(
    rules: RulesOfMove, first: int, last: int, move: PodMove, effect: MoveEffect, added: float
) -> None:
    """Write the weighted sum of the changes of some rules into ``MoveEffect.of_term``."""
    for place in range(effect.landings):
        effect.of_term[place] = 0.0
    for index in range(first, last):
        write_changes(rules.rules[index], move, effect.of_rule)
        for place in range(effect.landings):
            effect.of_term[place] += rules.weight[index] * effect.of_rule[place]
    for place in range(effect.landings):
        effect.of_term[place] += added


def _add_term(terms: Terms, term: int, chance: memoryview[float], effect: MoveEffect) -> None:
    """Add a term to its entry, and to the share of its strategy."""
    entry = terms.entry[term]
    key, first = entry * terms.strategies + terms.strategy[term], entry * effect.landings
    expected = 0.0
    for place in range(effect.landings):
        change = terms.weight[term] * effect.of_term[place]
        if not effect.mine[term]:
            change = max(0.0, change)
        effect.changes[first + place] += change
        expected += change * chance[place]
    effect.shares[key] -= expected
    if not effect.mine[term]:
        effect.named[key] = _HARMED


def _sum_up(chance: memoryview[float], effect: MoveEffect) -> None:
    """Round the changes, and find the expected and the best gain of each entry."""
    for entry in range(_ENTRIES):
        mean, least = 0.0, 0.0
        for place in range(effect.landings):
            at = entry * effect.landings + place
            if abs(effect.changes[at]) < _TOLERANCE:
                effect.changes[at] = 0.0
            mean += effect.changes[at] * chance[place]
            least = effect.changes[at] if place == 0 else min(least, effect.changes[at])
        effect.gain[entry], effect.best[entry] = -mean, -least


def find_broken(guards: RulesOfMove, move: PodMove, effect: MoveEffect) -> bool:
    """Write into ``MoveEffect.broken`` by how much each landing violates satisfied hard rules more; return whether any does.

    What it mends in one makes up for nothing that it breaks in another.
    """
    landings, breaks = len(move.nodes), False
    _make_room(effect, landings)
    for place in range(landings):
        effect.broken[place] = 0.0
    for index in range(len(guards.rules)):
        write_changes(guards.rules[index], move, effect.of_rule)
        for place in range(landings):
            effect.broken[place] += guards.weight[index] * max(0.0, effect.of_rule[place])
    for place in range(landings):
        breaks = breaks or effect.broken[place] > _TOLERANCE
    return breaks


# -- whether it is enough --------------------------------------------------------------------------------


def sign_at(effect: MoveEffect, place: int, entries: int) -> int:
    """Return whether a landing is worse (1), better (-1) or equal (0) by the first entries."""
    for entry in range(entries):
        change = effect.changes[entry * effect.landings + place]
        if change != 0.0:
            return 1 if change > 0.0 else -1
    return 0


def judge(
    demands: Demands,
    guards: RulesOfMove,
    move: PodMove,
    chance: memoryview[float],
    foreign: memoryview | None,
    effect: MoveEffect,
    cost: float,
    in_place: int,
) -> int:
    """Return why a move is refused, as a number of ``REFUSALS``; 0: it is good. ``effect`` is the one of this move.

    ``foreign`` (N,): nodes of another operating system. ``in_place``: it may come back to its node.
    """
    _find_vain(move, effect)
    unwanted = find_unwanted(demands, move, chance, foreign, effect)
    if unwanted:
        return unwanted
    decides = _IMBALANCE
    for entry in range(_ENTRIES - 1, -1, -1):
        if abs(effect.gain[entry]) > _TOLERANCE:
            decides = entry
    better = _weigh(effect, chance, decides + 1)
    if effect.back >= _BACK_SHARE and not in_place:
        return _BACK
    if not better or _is_loss(effect):
        return _NO_GAIN
    if _breaks_hard(effect) or find_broken(guards, move, effect):
        return _BREAKS
    least = demands.harmless if effect.risk <= _TOLERANCE else demands.better
    if effect.sure < least - _TOLERANCE:
        return _RARELY
    if effect.risk > demands.worse + _TOLERANCE:
        return _OFTEN
    return _compare(demands, effect, cost)


def find_unwanted(
    demands: Demands,
    move: PodMove,
    chance: memoryview[float],
    foreign: memoryview | None,
    effect: MoveEffect,
) -> int:
    """Add up the probability of nodes that are not wanted; return the refusal, or 0."""
    effect.back = effect.leaving = effect.avoided = effect.foreign = 0.0
    for place in range(len(move.nodes)):
        node = move.nodes[place]
        if node == move.node:
            effect.back += chance[place]
        if demands.leaving[node]:
            effect.leaving += chance[place]
        if demands.avoided[node]:
            effect.avoided += chance[place]
        if foreign is not None and foreign[node]:
            effect.foreign += chance[place]
    if effect.foreign > 0.0:
        return _OTHER_SYSTEM
    if effect.leaving > _UNWANTED_SHARE:
        return _LEAVING
    return _AVOIDED if effect.avoided > _UNWANTED_SHARE else _GOOD


def _find_vain(move: PodMove, effect: MoveEffect) -> None:
    """Note a few landings where no rule is fixed."""
    effect.vain_count = 0
    for place in range(effect.landings):
        if effect.vain_count == _VAIN:
            return
        if sign_at(effect, place, _IMBALANCE) >= 0:
            effect.vain[effect.vain_count] = move.nodes[place]
            effect.vain_count += 1


def _weigh(effect: MoveEffect, chance: memoryview[float], entries: int) -> bool:
    """Find how probable it is that the cost gets better, or worse; return whether it ever gets better."""
    effect.sure = effect.risk = 0.0
    better = False
    for place in range(effect.landings):
        sign = sign_at(effect, place, entries)
        if sign < 0:
            effect.sure += chance[place]
            better = True
        elif sign > 0:
            effect.risk += chance[place]
    return better


def _breaks_hard(effect: MoveEffect) -> bool:
    """Return whether some landing makes the hard entry worse."""
    for place in range(effect.landings):
        if effect.changes[place] > 0.0:
            return True
    return False


def _is_loss(effect: MoveEffect) -> bool:
    """Return whether the first expected gain that is not 0 is a loss."""
    for entry in range(_ENTRIES):
        if effect.gain[entry] != 0.0:
            return effect.gain[entry] < 0.0
    return False


def _compare(demands: Demands, effect: MoveEffect, cost: float) -> int:
    """Return whether the gain is worth what the eviction costs."""
    for entry in range(_ENTRIES):
        gain = effect.gain[entry]
        if abs(gain) <= _TOLERANCE:
            continue
        least = demands.imbalance if entry == _IMBALANCE else demands.pods
        return _GOOD if gain / cost + _TOLERANCE >= least else _LITTLE
    return _NOTHING


def gains_less(hard: float, soft: float, most_hard: float, most_soft: float) -> bool:
    """Return whether an expected gain in hard and soft rules is clearly below the other one."""
    if most_hard - hard > _LESS:
        return True
    return most_soft - soft > (_LESS_BESIDE_HARD if hard > 1.0 - _LESS else _LESS)


def is_gamble(gain: memoryview[float], best: memoryview[float]) -> bool:
    """Return whether some of the landings are clearly worse than the best one in a hard or soft rule, given gains (3,)."""
    return gains_less(gain[0], gain[1], best[0], best[1]) or gains_less(gain[0], gain[1], 0.0, 0.0)


# -- promises --------------------------------------------------------------------------------------------


def find_promises(
    terms: Terms,
    rules: RulesOfMove,
    cls: int,
    nodes: memoryview,
    mine: memoryview,
    gains: Any,
    leading: memoryview,
    shares: memoryview[float],
    of_rule: memoryview[float],
) -> None:
    """Write the largest gain of moving one pod of a class off each of ``nodes`` (M,).

    ``rules`` are those of a move of this class. ``mine`` (T,): whether the strategy of each term may move the class.
    ``gains`` (3, M): per entry. ``leading`` (M,): the term with the largest share in the first entry at stake, of
    several the first; -1: nothing can be gained. ``shares`` and ``of_rule`` (M,): room.
    The last four may be longer.
    """
    count = len(nodes)
    for place in range(count):
        leading[place] = -1
        for entry in range(_ENTRIES):
            gains[entry, place] = 0.0
    for index in range(len(rules.rules)):
        term = rules.term[index]
        if not mine[term] or not moves_for(rules.rules[index], cls):
            continue
        write_gains(rules.rules[index], cls, nodes, of_rule)
        for place in range(count):
            gain = of_rule[place] * rules.weight[index]
            if gain > 0.0 and _may_leave(terms, term, nodes[place]):
                gain *= terms.weight[term]
                gains[terms.entry[term], place] += gain
                _let_lead(terms, term, place, gain, leading, shares)


def _may_leave(terms: Terms, term: int, node: int) -> bool:
    """Return whether the strategy of a term may move pods off a node."""
    allowed = terms.nodes[term]
    return allowed is None or _is_set(allowed, node)


def _is_set(some: memoryview, node: int) -> bool:
    return some[node] != 0


def _let_lead(
    terms: Terms, term: int, place: int, gain: float, leading: memoryview, shares: memoryview[float]
) -> None:
    """Let a term lead at a place if it is of an earlier entry than the one that leads, or has a larger share in the same."""
    leader = leading[place]
    before = leader >= 0 and terms.entry[leader] < terms.entry[term]
    same = leader >= 0 and terms.entry[leader] == terms.entry[term]
    if before or (same and shares[place] >= gain):
        return
    leading[place] = term
    shares[place] = gain
