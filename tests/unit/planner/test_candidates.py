"""The candidates: which pods stand behind a pair, in which order, and what is asked again after a move."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from rebalancer.cost.term import Candidates as Rows
from rebalancer.cost.term import Entry
from rebalancer.plan.plan import Cause
from rebalancer.planner import candidates as module
from rebalancer.planner.candidates import CandidateList
from rebalancer.planner.problem import WeightedTerm
from rebalancer.planner.promises import Pair
from rebalancer.planner.settings import Settings
from rebalancer.testing.workloads import node, workload
from tests.unit.planner.conftest import draft_of

N1, N2 = 1, 2
# web: three pods on n0, one on n1; api: one on each.
OBJECTS = [
    node("n0"),
    node("n1"),
    node("n2"),
    *workload("web", ["n0", "n0", "n0", "n1"]),
    *workload("api", ["n0", "n1"]),
]


@dataclass
class Naming:
    """A term that names pairs with a gain, and says which classes are related."""

    entry: Entry
    gains: dict[Pair, float]
    others: tuple[int, ...] = ()
    asked: list[list[int] | None] = field(default_factory=list)

    def candidates(self, classes=None):
        wanted = None if classes is None else classes.tolist()
        self.asked.append(wanted)
        rows = [
            (*pair, gain)
            for pair, gain in self.gains.items()
            if wanted is None or pair[0] in wanted
        ]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        return Rows(
            np.array(columns[0], int), np.array(columns[1], int), np.array(columns[2], float)
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


def named(draft, *terms):
    """Candidates of terms by (strategy, weight, term)."""
    return CandidateList(draft, [WeightedTerm(name, term, weight) for name, weight, term in terms])


def row(draft, name):
    return list(draft.snapshot.pods.name).index(name)


def pair_of(draft, name):
    pod = row(draft, name)
    return int(draft.snapshot.pods.cls[pod]), int(draft.snapshot.pods.node[pod])


def rows(draft, names):
    return [row(draft, name) for name in names]


def test_the_pods_of_a_pair_are_those_on_the_node_until_they_have_moved(draft):
    web = pair_of(draft, "web-0")
    candidates = named(draft, ("a", 1.0, Naming(Entry.SOFT, {web: 1.0})))
    assert candidates.pods(web) == rows(draft, ["web-0", "web-1", "web-2"])
    assert candidates.pods((web[0], N1)) == rows(draft, ["web-3"])
    candidates.take(row(draft, "web-1"), web)
    assert candidates.pods(web) == rows(draft, ["web-0", "web-2"])
    assert candidates.pods((web[0], N2)) == []


def test_kept_verdictsd_pods_go_first_in_their_order_then_the_others(draft):
    web = pair_of(draft, "web-0")
    term = Aging(Entry.SOFT, {web: 1.0}, pods=tuple(rows(draft, ["web-2", "web-1"])))
    assert named(draft, ("old", 1.0, term)).pods(web) == rows(draft, ["web-2", "web-1", "web-0"])


def test_pods_that_may_not_move_are_left_out():
    kept = workload("kept", ["n0"], annotations={"rebalancer/evict": "false"})
    draft = draft_of([*OBJECTS, *kept], strategies=[])
    pair = pair_of(draft, "kept-0")
    candidates = named(draft, ("a", 1.0, Naming(Entry.SOFT, {pair: 1.0})))
    assert candidates.pods(pair) == []
    assert candidates.entry(pair) is None


def test_owners_in_a_cool_down_are_named_and_have_no_pods_to_move():
    settings = replace(Settings(), cooling={"Deployment/default/web": "moved a minute ago"})
    draft = draft_of(OBJECTS, strategies=[], settings=settings)
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    candidates = named(draft, ("a", 1.0, Naming(Entry.SOFT, {web: 1.0, api: 1.0})))
    assert (candidates.is_cooling(web[0]), candidates.is_cooling(api[0])) == (True, False)
    assert [pair for _, pair in candidates.entries()] == [api]
    assert candidates.seen == {web, api}


def test_an_entry_is_the_gain_per_cost_entry_by_entry_negative(draft):
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    candidates = named(
        draft,
        ("hard", 2.0, Naming(Entry.HARD, {web: 1.0})),
        ("soft", 1.0, Naming(Entry.SOFT, {web: 0.5, api: 3.0})),
    )
    (of_web, _), (of_api, _) = candidates.entry(web), candidates.entry(api)
    assert of_web[0] / of_web[1] == pytest.approx(2.0 / 0.5)
    assert (of_api[0], of_api[2]) == (0.0, 0.0)
    assert min(candidates.entries())[1] == web, "a hard rule comes before any soft one"
    candidates.lower(web, (0.0, 0.5, 0.0))
    assert candidates.entry(web)[0][0] == 0.0


def test_after_a_move_only_what_it_concerns_is_asked_again(draft):
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    term = Naming(Entry.SOFT, {web: 1.0, api: 1.0})
    candidates = named(draft, ("a", 1.0, term))
    term.asked.clear()
    term.gains = {web: 0.25, api: 9.0}
    assert candidates.refresh(web) == [web]
    assert term.asked == [[web[0]]]
    assert candidates.promise(web).gains == [0.0, 0.25, 0.0]
    assert candidates.promise(api).gains == [0.0, 1.0, 0.0]


def test_where_a_move_concerns_very_many_classes_the_others_are_asked_when_their_turn_comes(
    draft, monkeypatch
):
    monkeypatch.setattr(module, "_MANY", 1)
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    term = Naming(Entry.SOFT, {web: 1.0, api: 1.0}, others=(web[0], api[0]))
    candidates = named(draft, ("a", 1.0, term))
    term.asked.clear()
    assert candidates.refresh(web) == [web]
    assert candidates.refresh_stale(web) is None
    assert candidates.refresh_stale(api) == [api]
    assert candidates.refresh_stale(api) is None
    assert term.asked == [[web[0]], [api[0]]]
    candidates.refresh(web)
    term.asked.clear()
    candidates.entries()
    assert term.asked == [[api[0]]], "before the next wave all of it is current"


def test_balance_is_asked_again_once_after_each_move(draft):
    web, api = pair_of(draft, "web-0"), pair_of(draft, "api-0")
    balance = Naming(Entry.IMBALANCE, {web: 1.0, api: 0.5})
    candidates = named(draft, ("even", 1.0, balance))
    assert not candidates.renew(web), "no move since it was asked"
    candidates.take(row(draft, "web-0"), web)
    balance.gains = {web: 1.0}
    assert candidates.renew(api)
    assert candidates.promise(api) is None
    assert candidates.renew(web)
    assert not candidates.renew(web)


def test_rules_are_not_asked_again_for_balance_s_sake(draft):
    web = pair_of(draft, "web-0")
    candidates = named(draft, ("a", 1.0, Naming(Entry.SOFT, {web: 1.0})))
    candidates.take(row(draft, "web-0"), web)
    assert not candidates.renew(web)
