"""Guards: what a victim leaves behind must not break a hard rule of others."""

import numpy as np
import pytest

from rebalancer.cost.guards import attractions, guard_term
from rebalancer.cost.term import Entry
from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.unit.cost.small import class_of, classes, view_on

A1, A2, B1 = range(3)
NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b")]


def near(name):
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": name}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("spec", "worse"),
    [
        (spread("web", hard=True), True),
        # A soft rule is the business of its strategy.
        (spread("web"), False),
        ({}, False),
    ],
)
def test_a_hard_spread_that_holds_is_kept(spec, worse):
    view = view_on([*NODES, *workload("web", ["a1", "b1"], spec=spec)])
    web = class_of(view, "web-0")
    term = guard_term(view)
    assert (term.entry, term.potential()) == (Entry.HARD, 0)
    # From b to a: 2 in a, none in b.
    assert (term.delta(web, B1, web, classes(A2))[0] > 0) == worse
    assert term.delta(web, A1, web, classes(A2))[0] == 0


def test_equal_hard_constraints_are_one_guard():
    spec = spread("web", hard=True)
    labels = {"app": "web"}
    more = workload("shop", ["a1", "b1"], spec=spec, labels=labels)
    view = view_on([*NODES, *workload("web", ["a1", "b1"], spec=spec, labels=labels), *more])
    of = np.arange(len(view.snapshot.classes), dtype=np.int32)
    assert [group.label for group in guard_term(view).groups_of(of)] == [f"hard spread over {ZONE}"]


@pytest.mark.parametrize(("cache", "worse"), [(["a1"], True), (["a1", "a2"], False)])
def test_the_last_match_of_a_required_affinity_stays(cache, worse):
    view = view_on(
        [*NODES, *workload("web", ["a2"], spec=near("cache")), *workload("cache", cache)]
    )
    of = class_of(view, "cache-0")
    change = guard_term(view).delta(of, A1, of, classes(A2, B1))
    assert change[0] == 0, "still in zone a"
    assert (change[1] > 0) == worse


def test_a_spread_that_a_move_mends_makes_up_for_no_affinity_that_it_breaks():
    even = spread("web", hard=True)
    caches = workload("cache", ["a1"], spec=even, labels={"app": "web", "tier": "cache"})
    others = workload("other", ["a2"], spec=even, labels={"app": "web"})
    near_cache = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"tier": "cache"}}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near_cache]}}
    client = workload("client", ["a2"], spec={"affinity": beside})
    view = view_on([*NODES, *caches, *others, *client])
    cache, other = class_of(view, "cache-0"), class_of(view, "other-0")
    term = guard_term(view)
    assert term.potential() == 1
    changes = {
        cls: [of.delta(cls, node, cls, classes(B1))[0] for of in term.groups_of(np.array([cls]))]
        for cls, node in ((cache, A1), (other, A2))
    }
    assert changes == {cache: [-1, 1], other: [-1]}
    # So for pods that have moved together: the sum is as it was.
    before = term.of_each()
    (pod,) = view.state.pods_of(cache)
    view.state.evict(int(pod))
    view.state.place(int(pod), cache, B1)
    assert sum(term.of_each()) == sum(before)
    assert max(then - was for was, then in zip(before, term.of_each(), strict=True)) == 1


def test_attractions_are_of_the_classes_asked_for():
    view = view_on(
        [*NODES, *workload("web", ["a2"], spec=near("cache")), *workload("cache", ["a1"])]
    )
    assert not attractions(view, [class_of(view, "cache-0")])
    (group,) = attractions(view, [class_of(view, "web-0")])
    assert set(group.members.tolist()) == {class_of(view, "web-0"), class_of(view, "cache-0")}
