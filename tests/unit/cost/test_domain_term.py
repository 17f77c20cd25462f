"""A term of groups: their weighted sum, its candidates, and the groups that are made when a move concerns them."""

from dataclasses import replace

import numpy as np
import pytest

from rebalancer.cost.domain_term import DomainTerm
from rebalancer.cost.term import Entry
from rebalancer.snapshot.selected import Selected
from rebalancer.testing.snapshots import node, workload
from tests.unit.cost.small import cap, class_of, classes, move, view_on

N0, N1, N2 = range(3)


@pytest.fixture
def view():
    """Of web one pod too many on n0, of db two; cache is as it should be."""
    nodes = [node(name) for name in ("n0", "n1", "n2")]
    pods = [
        *workload("web", ["n0", "n0", "n1"]),
        *workload("db", ["n0", "n0", "n0"]),
        *workload("cache", ["n1"]),
    ]
    return view_on([*nodes, *pods])


@pytest.fixture
def term(view):
    groups = [cap(view, "web-0", 1), cap(view, "db-0", 1, weight=0.5), cap(view, "cache-0", 1)]
    return DomainTerm(view, Entry.SOFT, groups)


def test_the_potential_is_the_weighted_sum(term):
    assert term.potential() == 1 + 0.5 * 2
    assert term.violated() == 2


def test_a_move_changes_only_the_groups_that_it_concerns(view, term):
    web = class_of(view, "web-0")
    assert term.delta(web, N0, web, classes(N0, N1, N2)).tolist() == [0, 0, -1]
    move(view, "web-0", "n2")
    assert term.potential() == 0.5 * 2
    assert term.violated() == 1


def test_candidates_are_pods_of_groups_with_something_to_fix(view, term):
    rows = term.candidates()
    gain = dict(
        zip(zip(rows.cls.tolist(), rows.node.tolist(), strict=True), rows.gain, strict=True)
    )
    assert gain == {(class_of(view, "web-0"), N0): 1.0, (class_of(view, "db-0"), N0): 0.5}
    only = term.candidates(classes(class_of(view, "db-0")))
    assert only.cls.tolist() == [class_of(view, "db-0")]
    assert not len(term.candidates(classes(class_of(view, "cache-0"))).cls)


def test_bounds_are_of_groups_that_some_move_can_fix(view, term):
    assert [(bound.moves, bound.weight) for bound in term.bounds()] == [(1, 1.0), (2, 0.5)]
    fixed = replace(view, movable=np.zeros(len(view.snapshot.pods), bool))
    assert not list(DomainTerm(fixed, Entry.SOFT, [cap(fixed, "web-0", 1)]).bounds())


def test_groups_of_pods_that_are_not_selected_are_left_out(view):
    mine = np.zeros(len(view.snapshot.classes), bool)
    mine[class_of(view, "db-0")] = True
    chosen = replace(view, selected=Selected(mine, np.ones(3, bool)))
    term = DomainTerm(chosen, Entry.SOFT, [cap(chosen, "web-0", 1), cap(chosen, "db-0", 1)])
    assert term.potential() == 2


def test_a_group_is_made_when_a_move_first_concerns_its_class(view):
    asked = []

    def later(cls):
        asked.append(cls)
        return cap(view, "cache-0", 1) if cls == class_of(view, "cache-0") else None

    term = DomainTerm(view, Entry.SOFT, [cap(view, "web-0", 1)], later)
    cache, db = class_of(view, "cache-0"), class_of(view, "db-0")
    assert (term.potential(), asked) == (1, [])
    assert term.concerns(cache, cache)
    assert not term.concerns(db, db)
    move(view, "cache-0", "n0")
    assert term.potential() == 1
    assert term.delta(cache, N0, cache, classes(N1)).tolist() == [0]
    assert asked == [cache, db], "each class once"


def test_it_describes_the_group_with_the_most_to_gain(view, term):
    assert term.describe(class_of(view, "web-0"), N0).startswith("web-0")
    assert term.describe(class_of(view, "web-0") + 99, N0) == ""


def test_classes_of_one_group_are_related(view, term):
    web = class_of(view, "web-0")
    assert term.related(web).tolist() == [web]
