"""What groups keep while pods move says the same as what rebuilt groups say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.cost.groups import Domains
from rebalancer.cost.separable_groups import AttractionGroup, CapGroup, ConflictGroup
from rebalancer.cost.spread_group import SpreadGroup
from rebalancer.cost.term import Group, gains_at
from rebalancer.cost.view import View
from tests.unit.scheduler.journeys import go, steps
from tests.unit.scheduler.random_worlds import KEYS, clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

Cluster = tuple[list[Json], list[Json], Json]


def _groups(view: View, key: str, some: list[int], others: list[int]) -> Iterator[Group]:
    domains = Domains.of(view, key, np.ones(len(view.snapshot.nodes), bool))
    mine, theirs = (np.array(sorted(set(of)), np.int32) for of in (some, others))
    spread = partial(SpreadGroup, view, label="even", domains=domains, counted=mine)
    yield spread(movers=mine, max_skew=1)
    yield spread(movers=theirs, max_skew=2, min_domains=3)
    yield CapGroup(view, label="few", domains=domains, counted=mine, cap=1)
    yield ConflictGroup(view, label="apart", domains=domains, owners=mine, matched=theirs)
    yield ConflictGroup(view, label="apart", domains=domains, owners=mine, matched=mine)
    yield AttractionGroup(view, label="together", domains=domains, owners=mine, matched=theirs)


@settings(max_examples=30, deadline=None)
@given(clusters(least=2, most=9), steps(), st.sampled_from(KEYS), st.data())
def test_groups_agree_with_fresh_ones(made, way, key, data):
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    classes = st.integers(0, len(world.snapshot.classes) - 1)
    some, others = (data.draw(st.lists(classes, min_size=1, max_size=4)) for _ in range(2))
    movable = np.arange(len(world.snapshot.pods)) % 4 > 0
    view = View(world.snapshot, world.state, world.model, movable)
    kept = list(_groups(view, key, some, others))
    every = np.arange(len(nodes), dtype=np.int32)

    def look() -> None:
        afresh = replace(view, made={})  # groups alike share what is made
        for mine, fresh in zip(kept, _groups(afresh, key, some, others), strict=True):
            assert mine.potential() == fresh.potential()
            assert mine.minimum() == fresh.minimum()
            assert mine.unsatisfiable() == fresh.unsatisfiable()
            assert mine.gains().tolist() == fresh.gains().tolist()
            assert gains_at(mine, every[::-1]).tolist() == fresh.gains()[::-1].tolist()
            for cls, replacement in ((some[0], some[-1]), (some[0], others[0])):
                for node in (0, len(nodes) - 1):
                    actual = mine.delta(cls, node, replacement, every)
                    assert actual.tolist() == fresh.delta(cls, node, replacement, every).tolist()
                    assert mine.describe(node) == fresh.describe(node)

    go(world.state, way, look)
