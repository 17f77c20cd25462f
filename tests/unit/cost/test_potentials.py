"""Closed forms against breadth-first search over all moves."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.counts import PodNodes
from rebalancer.core.rules import ConflictRule, read
from rebalancer.core.spread import EvenRule, FloorSums, OpenDomains
from rebalancer.core.tallies import DomainMap, Tally
from rebalancer.core.views import view_of
from rebalancer.cost.groups import set_of


def _ints(values):
    return np.array(values, np.int64)


def _class_set(*classes):
    return set_of(np.array(classes, np.int32))


def _places(*nodes_of_class):
    """Pods class by class, each by its node."""
    size = _ints([len(nodes) for nodes in nodes_of_class])
    nodes = np.array([node for nodes in nodes_of_class for node in nodes], np.int32)
    start = np.cumsum(size) - size
    return PodNodes(view_of(start), view_of(size), view_of(size.copy()), view_of(nodes))


def _each_its_domain(number):
    return DomainMap(view_of(np.arange(number, dtype=np.int32)), number)


def _fewest_moves(start, good, can_move=lambda state, source, target: True):
    """Breadth-first search: the fewest single moves from ``start`` to a state that is ``good``."""
    seen, edge, steps = {start}, [start], 0
    while edge:
        if any(good(state) for state in edge):
            return steps
        following = []
        for state in edge:
            for source, target in itertools.permutations(range(len(state)), 2):
                if state[source] == 0 or not can_move(state, source, target):
                    continue
                after = list(state)
                after[source] -= 1
                after[target] += 1
                if (moved := tuple(after)) not in seen:
                    seen.add(moved)
                    following.append(moved)
        edge, steps = following, steps + 1
    return None


def _spread(counts, max_skew, immobile=None, open_=None, *, too_few=False):
    number, web = len(counts), _class_set(0)
    fixed = list(enumerate(immobile or [0] * number))
    takes = np.array(open_ or [True] * number, bool)
    rule = EvenRule(
        web,
        web,
        _places([domain for domain, pods in enumerate(counts) for _ in range(pods)]),
        _each_its_domain(number),
        Tally(number),
        OpenDomains(view_of(takes), int(np.count_nonzero(takes))),
        view_of(_ints([value for pair in fixed if pair[1] for value in pair])),
        max_skew,
        (FloorSums(), FloorSums()),
        too_few=too_few,
    )
    return read(rule)


def test_spread_minimum_of_the_cases_a_person_can_check():
    for counts, skew, expected in [
        ([2, 1, 0], 1, 1),
        ([3, 1], 1, 1),
        ([1, 1, 1], 1, 0),
        ([2, 5, 3, 8, 5, 7], 1, 5),
        ([2, 5, 3, 8, 5, 7], 2, 3),
        ([6, 0, 0], 1, 4),
        ([4, 4, 3], 1, 0),
        ([5], 1, 0),
        ([], 1, 0),
    ]:
        assert _spread(counts, skew) == expected, (counts, skew)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=4), st.integers(1, 3))
def test_spread_minimum_is_what_search_finds(counts, skew):
    fewest = _fewest_moves(tuple(counts), lambda state: max(state) - min(state) <= skew)
    assert _spread(counts, skew) == fewest


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=4),
    st.integers(1, 2),
)
def test_spread_minimum_with_immobile_pods_is_exact_where_the_rule_can_be_met(pods, skew):
    fixed = [min(count, immobile) for count, immobile in pods]
    counts = [count for count, _ in pods]
    fewest = _fewest_moves(
        tuple(counts),
        lambda state: max(state) - min(state) <= skew,
        lambda state, source, _: state[source] > fixed[source],
    )
    if fewest is not None:
        assert _spread(counts, skew, fixed) == fewest


def test_spread_minimum_moves_what_it_can_when_immobile_pods_forbid_the_rest():
    # Zone a holds five that cannot move; the best is 5/3/2, one move from 5/4/1.
    assert _spread([5, 4, 1], 1, [5, 0, 0]) == 1
    assert _spread([5, 3, 2], 1, [5, 0, 0]) == 0


def test_spread_minimum_below_min_domains_takes_the_floor_as_zero():
    assert _spread([3, 2], 2, too_few=True) == 1
    assert _spread([2, 2], 2, too_few=True) == 0


def test_spread_minimum_takes_nothing_into_a_closed_domain():
    assert _spread([3, 3, 1], 1, open_=[True, True, False]) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 9), st.booleans(), st.integers(1, 3)),
        max_size=6,
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_domains_of_a_kind_count_as_so_many_domains(kinds, skew, too_few):
    """By the definition, domain by domain and floor by floor."""
    some = [(kind, times) for *kind, times in kinds if kind[0] or kind[2]]
    domains = [kind for kind, times in some for _ in range(times)]
    counts = [count for count, _, _ in domains]
    fixed = [min(count, immobile) for count, immobile, _ in domains]
    open_ = [is_open for _, _, is_open in domains]
    ways = []
    for floor in [0] if too_few else range(max(counts, default=0) + 1):
        lowest, highest = len(domains) * floor, len(domains) * (floor + skew)
        if not (too_few or lowest <= sum(counts) <= highest):
            continue
        over = [max(0, f - floor - skew) for f in fixed]
        leave = sum(
            min(max(0, c - floor - skew), c - f) for c, f in zip(counts, fixed, strict=True)
        )
        enter = sum(max(0, floor - c) for c, o in zip(counts, open_, strict=True) if o)
        lack = sum(f - c if o else floor - c for c, f, o in zip(counts, fixed, over, strict=True))
        ways.append((sum(over), max(leave, enter - max(0, lack))))
    assert _spread(counts, skew, fixed, open_, too_few=too_few) == (min(ways)[1] if domains else 0)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=4), st.integers(1, 3))
def test_each_useful_move_lowers_the_spread_minimum_by_exactly_one(counts, skew):
    now = _spread(counts, skew)
    after = [
        _spread([c - (i == a) + (i == b) for i, c in enumerate(counts)], skew)
        for a, b in itertools.permutations(range(len(counts)), 2)
        if counts[a] > 0
    ]
    assert all(abs(value - now) <= 1 for value in after)
    assert now == 0 or min(after) == now - 1


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_conflict_minimum_is_the_smallest_cover(both, owners, matched):
    pods = ["b"] * both + ["o"] * owners + ["m"] * matched
    repels = {("b", "b"), ("b", "o"), ("b", "m"), ("o", "m")}
    clash = [
        (i, j)
        for i, j in itertools.combinations(range(len(pods)), 2)
        if (pods[i], pods[j]) in repels or (pods[j], pods[i]) in repels
    ]
    smallest = next(
        size
        for size in range(len(pods) + 1)
        for gone in itertools.combinations(range(len(pods)), size)
        if all(i in gone or j in gone for i, j in clash)
    )
    roles = [[0] * both, [0] * owners, [0] * matched]
    of_roles = [_class_set(role) for role in range(3)]
    everyone = _class_set(0, 1, 2)
    rule = ConflictRule(
        everyone, of_roles, _places(*roles), _each_its_domain(1), Tally(1), mutual=False
    )
    assert read(rule) == smallest
