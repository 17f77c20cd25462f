"""Spread: the counts of pods per domain should be equal, by the rule of topologySpreadConstraints.

For a floor L with D * L <= n <= D * (L + skew), ``sum max(0, c - L - skew)`` pods have to leave domains, and ``sum max(0,
L - c)`` have to enter some. One move can do both, so the larger number counts; the best floor wins. With fewer domains
than ``minDomains`` the scheduler counts the emptiest one as empty, which leaves L = 0 (KEP-3022).

Pods that cannot be moved cannot leave, and none can enter a domain that is not open. If that makes the rule
unsatisfiable, its value is the number of moves that bring the counts as near as possible.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.core.counts import PodNodes
from rebalancer.core.rules import PodMove, Rule
from rebalancer.core.tallies import ClassSet, DomainMap, Tally, add, clear, count_role, has_class
from rebalancer.core.views import ints

_ROLES = 4
_PODS, _IMMOBILE = 0, 1
"""The roles in the tally."""
_NEVER = 1 << 40
_SUMS = 4
_EXCESS, _DEFICIT, _STUCK, _LACKING = 0, 1, 2, 3
_FEW_FLOORS = 16
_UNKNOWN = -2
"""A number of pods that there never is: of a rule without pods, -1 are left when one is supposed to leave."""
_EMPTY = -2
"""An open domain without any pod."""


@dataclass(eq=False, repr=False)
class OpenDomains:
    """Which domains have a node that could take a pod. Rules share it."""

    flags: memoryview
    """(D,) 1 for each such domain."""
    number: int
    """The number of such domains."""


class FloorSums:
    """Sums over all domains for each possible floor, for a given total of pods; the floors from the highest down."""

    def __init__(self) -> None:
        self.pods = _UNKNOWN
        """So many are in all."""
        self.highest = 0
        self.floors = 0
        """How many floors there are."""
        self.values = ints(_SUMS * _FEW_FLOORS)
        """(floors * 4,) pods too many, too few, those that cannot leave, and what the movable ones lack; more room does no harm."""


class EvenRule(Rule):
    """One constraint of one workload."""

    def __init__(
        self,
        movers: ClassSet,
        classes: ClassSet,
        pods: PodNodes,
        domains: DomainMap,
        tally: Tally,
        open_: OpenDomains,
        immobile: memoryview | None,
        max_skew: int,
        sums: tuple[FloorSums, FloorSums],
        *,
        too_few: bool,
    ) -> None:
        super().__init__(movers)
        self.classes, self.pods, self.domains, self.tally = classes, pods, domains, tally
        self.open = open_
        self.immobile = immobile
        """(I * 2,) domain and number of the pods that cannot be moved; None: all can."""
        self.max_skew, self.too_few = max_skew, too_few
        self.now, self.other = sums
        """Of as many pods as there are, and of one more or less. Rules share both."""
        self.total = 0
        """The pods that are in domains."""
        self.counting = 0
        """The domains that count: all but closed, empty ones."""
        self.empty = 0
        """The open domains without any pod."""
        self.minimum = 0
        self.first = self.second = -1
        """The emptiest open domains, see :meth:`find_emptiest`."""

    def read(self) -> None:
        """Count the pods per domain."""
        tally = self.tally
        clear(tally)
        self.total = count_role(tally, _PODS, self.classes, self.pods, self.domains)
        if self.immobile is not None:
            for index in range(len(self.immobile) // 2):
                add(tally, self.immobile[2 * index], _IMMOBILE, self.immobile[2 * index + 1])
        open_ = some = 0
        for index in range(tally.used):
            domain = tally.touched[index]
            open_ += self.open.flags[domain]
            some += self.matters(domain)
        self.empty = self.open.number - open_
        self.counting = some + self.empty
        _fill(self, self.now, self.total)
        self.other.pods = _UNKNOWN
        self.minimum = _find_best(self, self.now, -1, -1)
        self.value = float(self.minimum)
        if self.minimum > 0:
            self.find_emptiest()

    def matters(self, domain: int) -> bool:
        """Return whether a domain counts; the scheduler cannot fill a closed one that is empty."""
        return self.tally.counts[_ROLES * domain] > 0 or self.open.flags[domain] != 0

    def find_emptiest(self) -> None:
        """Find the emptiest open domain and the second emptiest, for pods of the emptiest itself; -1: one without pods.

        If no other domain is open, it is the first domain.
        """
        tally = self.tally
        self.first = self.second = -1
        if self.empty > 0:
            return
        for index in range(tally.used):
            domain = tally.touched[index]
            if not self.open.flags[domain]:
                continue
            if self.first < 0 or self.is_emptier(domain, self.first):
                self.second = self.first
                self.first = domain
            elif self.second < 0 or self.is_emptier(domain, self.second):
                self.second = domain
        self.first, self.second = max(0, self.first), max(0, self.second)

    def is_emptier(self, domain: int, other: int) -> bool:
        """Return whether a domain has fewer pods than another one, or as many and a smaller number."""
        mine, others = self.tally.counts[_ROLES * domain], self.tally.counts[_ROLES * other]
        return mine < others or (mine == others and domain < other)

    def gain_at(self, node: int) -> float:
        """Return the gain of moving a pod from the node's domain to the emptiest other one."""
        domain = self.domains.of_node[node]
        if self.minimum <= 0 or domain < 0 or self.tally.counts[_ROLES * domain] == 0:
            return 0.0
        entered = self.first
        if self.empty > 0:
            entered = _EMPTY
        elif domain == self.first:
            entered = self.second
        if entered == domain:
            return 0.0
        return float(max(0, self.minimum - self.find_minimum(domain, entered)))

    def find_minimum(self, left: int, entered: int) -> int:
        """Return the value after a pod has left a domain (-1: none) and entered another one (-1: none)."""
        if left >= 0 and not self.matters(left):
            left = -1
        if entered >= 0 and not self.matters(entered):
            entered = -1
        pods = self.total - (1 if left != -1 else 0) + (1 if entered != -1 else 0)
        if pods == self.total:
            return _find_best(self, self.now, left, entered)
        if self.other.pods != pods:
            _fill(self, self.other, pods)
        return _find_best(self, self.other, left, entered)

    def change(self, move: PodMove, out: memoryview[float]) -> None:
        """Write the change of the value at each landing."""
        of_node = self.domains.of_node
        source = -1
        if has_class(self.classes, move.cls):
            source = of_node[move.node]
        enters = has_class(self.classes, move.replacement)
        outside, into_empty = _NEVER, _NEVER
        last, change = -1, 0
        for place in range(len(move.nodes)):
            domain = of_node[move.nodes[place]] if enters else -1
            if domain >= 0 and domain == source:
                change = 0
            elif domain < 0 or not self.matters(domain):
                if outside == _NEVER:
                    outside = self.find_minimum(source, -1) - self.minimum
                change = outside
            elif self.tally.counts[_ROLES * domain] + self.tally.counts[_ROLES * domain + 1] == 0:
                if into_empty == _NEVER:
                    into_empty = self.find_minimum(source, domain) - self.minimum
                change = into_empty
            elif domain != last:
                change = self.find_minimum(source, domain) - self.minimum
            last = domain
            out[place] = float(change)


def _fill(rule: EvenRule, sums: FloorSums, total: int) -> None:
    """Compute the sums for each floor that so many pods allow."""
    sums.pods, sums.floors = total, 0
    if rule.counting == 0:
        return
    lowest = 0
    sums.highest = 0
    if not rule.too_few:
        sums.highest = total // rule.counting
        lowest = max(0, -((rule.counting * rule.max_skew - total) // rule.counting))
    sums.floors = max(0, sums.highest - lowest + 1)
    if _SUMS * sums.floors > len(sums.values):
        sums.values = ints(2 * _SUMS * sums.floors)
    for index in range(_SUMS * sums.floors):
        sums.values[index] = 0
    counts, flags = rule.tally.counts, rule.open.flags
    for index in range(rule.tally.used):
        domain = rule.tally.touched[index]
        if rule.matters(domain):
            first = _ROLES * domain
            pods, immobile = counts[first + _PODS], counts[first + _IMMOBILE]
            _add_domain(rule, sums, pods, immobile, flags[domain], 1)
    if rule.empty > 0:
        _add_domain(rule, sums, 0, 0, 1, rule.empty)


def _add_domain(
    rule: EvenRule, sums: FloorSums, pods: int, immobile: int, open_: int, times: int
) -> None:
    """Add ``times`` domains with this number of pods to the sums of each floor; negative: remove them."""
    values, fixed = sums.values, min(pods, immobile)
    for index in range(sums.floors):
        floor = sums.highest - index
        ceiling = floor + rule.max_skew
        at = _SUMS * index
        if pods > ceiling:
            values[at + _EXCESS] += min(pods - ceiling, pods - fixed) * times
        elif open_ and pods < floor:
            values[at + _DEFICIT] += (floor - pods) * times
        # Where immobile pods keep domains above the ceiling, the others may be too few to reach the floor.
        if fixed > ceiling:
            values[at + _STUCK] += (fixed - ceiling) * times
            values[at + _LACKING] -= (pods - fixed) * times
        else:
            values[at + _LACKING] += (floor - pods) * times


def _find_best(rule: EvenRule, sums: FloorSums, left: int, entered: int) -> int:
    """Return the fewest moves over all floors, if a pod leaves and enters these domains (-1: none)."""
    if sums.floors == 0:
        return 0
    _replace(rule, sums, left, 0, -1)
    _replace(rule, sums, entered, 0, 1)
    best, least_stuck = _NEVER, _NEVER
    for index in range(sums.floors):
        at = _SUMS * index
        lacking = max(0, sums.values[at + _LACKING])
        moves = max(sums.values[at + _EXCESS], sums.values[at + _DEFICIT] - lacking)
        stuck = sums.values[at + _STUCK]
        if stuck < least_stuck or (stuck == least_stuck and moves < best):
            best, least_stuck = moves, stuck
    _replace(rule, sums, left, -1, 0)
    _replace(rule, sums, entered, 1, 0)
    return best


def _replace(rule: EvenRule, sums: FloorSums, domain: int, before: int, after: int) -> None:
    """Replace in the sums a domain counted with ``before`` extra pods by the same domain with ``after`` extra pods; -1: none."""
    if domain == -1:
        return
    pods, immobile, open_ = 0, 0, 1
    if domain != _EMPTY:
        first = _ROLES * domain
        pods = rule.tally.counts[first + _PODS]
        immobile = rule.tally.counts[first + _IMMOBILE]
        open_ = rule.open.flags[domain]
    _add_domain(rule, sums, pods + before, immobile, open_, -1)
    _add_domain(rule, sums, pods + after, immobile, open_, 1)
