"""The book of candidates: what it promises, what goes next, and what is asked again after a move."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.cost.term import Candidates, Entry
from rebalancer.plan.plan import Cause
from rebalancer.planner.book import Book
from rebalancer.planner.effort import Effort
from rebalancer.planner.problem import Pair, WeightedTerm
from rebalancer.planner.settings import Settings
from rebalancer.scheduler.prediction import Prediction
from rebalancer.testing.snapshots import node, workload
from tests.support.terms import NeutralTerm
from tests.unit.planner.conftest import draft_of

N1, N2 = 1, 2
# web: three pods on n0, one on n1; api: one on each.
OBJECTS = [
    *(node(f"n{i}") for i in range(3)),
    *workload("web", ["n0", "n0", "n0", "n1"]),
    *workload("api", ["n0", "n1"]),
]


@dataclass
class Naming(NeutralTerm):
    """A term that names pairs with a gain, and says which classes are related."""

    entry: Entry
    gains: dict[Pair, float]
    others: tuple[int, ...] = ()
    asked: list[list[int] | None] = field(default_factory=list)

    def candidates(self, classes=None):
        wanted = None if classes is None else classes.tolist()
        self.asked.append(wanted)
        return Candidates.of(
            [(*p, gain) for p, gain in self.gains.items() if wanted is None or p[0] in wanted]
        )

    def related(self, cls):
        return np.array([cls, *self.others], np.int32)


@dataclass
class Aging(Naming):
    """One that judges pods by themselves, in this order."""

    pods: tuple[int, ...] = ()
    cause: Cause = Cause.AGE
    in_place: bool = True

    def judges(self, pod):
        return pod in self.pods

    def judged(self):
        return np.array(self.pods, np.int32)

    def reason(self, pod):
        return f"pod {pod} is old"

    def delta_of(self, pod, destinations):
        return np.zeros(len(destinations))


@pytest.fixture
def draft():
    return draft_of(OBJECTS, strategies=[])


def book_of(draft, *terms, effort=None):
    """A book of terms by (strategy, weight, term), open."""
    book = Book(
        draft,
        [WeightedTerm(name, term, weight) for name, weight, term in terms],
        effort or Effort(),
    )
    book.open()
    return book


def row(draft, name):
    return list(draft.snapshot.pods.name).index(name)


def pair_of(draft, name):
    pod = row(draft, name)
    return int(draft.snapshot.pods.cls[pod]), int(draft.snapshot.pods.node[pod])


def order(book):
    """The pairs as they come when each that comes is left out."""
    pairs = []
    while len(heads := book.heads()):
        pairs.append(book.pair_of(int(heads[0])))
        book.pass_over(int(heads[0]))
    return pairs


def move(draft, name, to):
    pod = row(draft, name)
    draft.move(pod, pair_of(draft, name)[0], Prediction(np.array([to], np.int32), np.ones(1)))


def test_gains_add_up_by_entry_and_the_earliest_entry_names_the_strategy(draft):
    web = pair_of(draft, "web-0")
    book = book_of(
        draft,
        ("balance", 1.0, Naming(Entry.IMBALANCE, {web: 9.0})),
        ("small", 1.0, Naming(Entry.SOFT, {web: 1.0})),
        ("large", 2.0, Naming(Entry.SOFT, {web: 1.0})),
    )
    promise = book.promise(web)
    assert promise is not None
    assert (promise.promised, promise.gains) == ((0.0, 3.0, 9.0), (0.0, 3.0, 9.0))
    assert promise.strategy == "large"
    assert book.seen == {web}


def test_a_pair_is_one_of_its_first_pod_until_none_is_left(draft):
    web = pair_of(draft, "web-0")
    book = book_of(draft, ("a", 1.0, Naming(Entry.SOFT, {web: 1.0, (web[0], N2): 1.0})))
    assert book.promise((web[0], N2)) is None, "no pod stands there"
    for name in ("web-0", "web-1", "web-2"):
        promise = book.promise(web)
        assert promise is not None
        assert promise.pod == row(draft, name)
        move(draft, name, N1)
        book.moved([web[0]])
    assert book.promise(web) is None


def test_pods_that_a_term_judges_go_first_in_their_order_then_the_others(draft):
    web = pair_of(draft, "web-0")
    judged = tuple(row(draft, name) for name in ("web-2", "web-1"))
    book = book_of(draft, ("old", 1.0, Aging(Entry.SOFT, {web: 1.0}, pods=judged)))
    pods = []
    for _ in range(3):
        promise = book.promise(web)
        assert promise is not None
        pods.append(promise.pod)
        draft.move(promise.pod, web[0], Prediction(np.array([N2], np.int32), np.ones(1)))
        book.moved([web[0]])
    assert pods == [*judged, row(draft, "web-0")]


def test_pods_that_may_not_move_and_owners_in_a_cool_down_are_named_and_have_no_row():
    kept = workload("kept", ["n0"], annotations={"rebalancer/evict": "false"})
    cooling = Settings(cooling={"Deployment/default/api": "until noon"})
    draft = draft_of([*OBJECTS, *kept], strategies=[], settings=cooling)
    pairs = [pair_of(draft, name) for name in ("kept-0", "api-0", "web-0")]
    book = book_of(draft, ("a", 1.0, Naming(Entry.SOFT, dict.fromkeys(pairs, 1.0))))
    assert book.seen == set(pairs)
    assert order(book) == [pairs[2]]
    assert [book.is_cooling(pair[0]) for pair in pairs] == [False, True, False]


gains_of_pairs = st.lists(
    st.tuples(*(st.sampled_from((0.0, 0.5, 1.0, 2.0)) for _ in range(3))), min_size=4, max_size=4
)


@given(gains_of_pairs, gains_of_pairs)
def test_the_most_gain_per_cost_comes_first_entry_by_entry_also_once_the_terms_say_otherwise(
    first, then
):
    draft = draft_of(OBJECTS, strategies=[])
    pairs = [pair_of(draft, name) for name in ("web-0", "web-3", "api-0", "api-1")]
    terms = [Naming(entry, {}) for entry in Entry]
    for gains in (first, then):
        for term in terms:
            term.gains.clear()
            term.gains.update({p: g[term.entry] for p, g in zip(pairs, gains, strict=True)})
        if gains is first:
            book = book_of(draft, *(("a", 1.0, term) for term in terms))
        else:
            book.renew(np.array(sorted({pair[0] for pair in pairs}), np.int32))
            book.open()
        by_hand = sorted((tuple(-g for g in of), p) for p, of in zip(pairs, gains, strict=True))
        assert order(book) == [pair for _, pair in by_hand]


def test_what_a_look_has_lowered_comes_at_its_place(draft):
    pairs = [pair_of(draft, name) for name in ("web-0", "web-3", "api-0")]
    gains = dict(zip(pairs, (3.0, 2.0, 1.0), strict=True))
    book = book_of(draft, ("a", 1.0, Naming(Entry.SOFT, gains)))
    head = int(book.heads()[0])
    assert book.pair_of(head) == pairs[0]
    assert [book.pair_of(row) for row in book.rows_left(pairs[0][0], 2)] == pairs[:2]
    book.lower(head, (0.0, 0.5, 0.0))
    assert order(book) == [pairs[1], pairs[2], pairs[0]]
    lowered = book.promise(pairs[0])
    assert lowered is not None
    assert (lowered.promised[1], lowered.gains[1]) == (3.0, 0.5)


def test_after_a_move_only_what_it_concerns_is_asked_again(draft):
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    term = Naming(Entry.SOFT, {web: 1.0, api: 1.0})
    book = book_of(draft, ("a", 1.0, term))
    term.asked.clear()
    assert book.moved([web[0]]).tolist() == [web[0]]
    term.others = (api[0],)
    assert book.moved([web[0]]).tolist() == sorted({web[0], api[0]})
    assert term.asked == [[web[0]], sorted({web[0], api[0]})]


def test_where_a_move_concerns_very_many_classes_the_others_are_asked_when_their_turn_comes(draft):
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    term = Naming(Entry.SOFT, {web: 1.0, api: 1.0}, others=(api[0],))
    book = book_of(draft, ("a", 1.0, term), effort=Effort(related=1))
    book.moved([web[0]])
    assert term.asked[-1] == [web[0]]
    assert book.outdated(book.heads()).tolist() == [api[0]]
    book.open()
    assert term.asked[-1] == [api[0]]
    assert not len(book.outdated(book.heads()))


def test_balance_alone_is_outdated_after_any_move_and_rules_are_not(draft):
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-1")
    book = book_of(
        draft,
        ("rule", 1.0, Naming(Entry.SOFT, {web: 1.0})),
        ("balance", 1.0, Naming(Entry.IMBALANCE, {web: 1.0, api: 1.0})),
    )
    assert not len(book.outdated(book.heads()))
    book.moved([web[0]])
    assert book.outdated(book.heads()).tolist() == [api[0]]
    book.renew(np.array([api[0]], np.int32))
    assert not len(book.outdated(book.heads()))


@pytest.mark.parametrize("retried", [False, True])
def test_what_was_refused_stays_left_out_once_its_class_was_retried_in_the_wave(draft, retried):
    pairs = [pair_of(draft, name) for name in ("web-0", "web-3")]
    book = book_of(draft, ("a", 1.0, Naming(Entry.SOFT, {pairs[0]: 2.0, pairs[1]: 1.0})))
    book.pass_over(int(book.heads()[0]), refused=True)
    book.moved([pairs[0][0]], {pairs[0][0]} if retried else ())
    assert order(book) == pairs[retried:]
    book.open()
    assert order(book) == pairs


@pytest.mark.parametrize(("looks", "kept"), [(1, True), (2, False)])
def test_a_closer_look_at_many_pairs_holds_until_rules_promise_something_else(draft, looks, kept):
    pairs = [pair_of(draft, name) for name in ("web-0", "web-3")]
    term = Naming(Entry.SOFT, dict.fromkeys(pairs, 2.0))
    book = book_of(draft, ("a", 1.0, term), effort=replace(Effort(), looks=looks))
    for row_ in [book.promise(pair) for pair in pairs]:
        assert row_ is not None
        book.lower(row_.row, (0.0, 0.5, 0.0))
    book.moved([pairs[0][0]])
    gains = [found.gains[1] for pair in pairs if (found := book.promise(pair)) is not None]
    assert gains == ([0.5, 0.5] if kept else [2.0, 2.0])
    term.gains = dict.fromkeys(pairs, 3.0)
    book.moved([pairs[0][0]])
    gains = [found.gains[1] for pair in pairs if (found := book.promise(pair)) is not None]
    assert gains == [3.0, 3.0]


def test_rows_that_were_replaced_make_room(draft):
    pairs = [pair_of(draft, name) for name in ("web-0", "web-3", "api-0")]
    gains = dict(zip(pairs, (3.0, 2.0, 1.0), strict=True))
    book = book_of(draft, ("a", 1.0, Naming(Entry.SOFT, gains)))
    for _ in range(2_000):
        book.moved([pairs[0][0]])
    assert order(book) == pairs
    assert len(book._row_at) < 3_000
