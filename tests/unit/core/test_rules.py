"""Rules and effects: compiled they say to the last bit what their source says, and what happens when the move is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer import core
from rebalancer.cost import (
    balance,
    groups,
    near_group,
    pod_term,
    price_group,
    room_term,
    separable_groups,
    spread_group,
)
from rebalancer.cost.view import View
from tests.unit.core.interpreted import on_source
from tests.unit.scheduler.journeys import go, steps
from tests.unit.scheduler.random_worlds import KEYS, clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

Cluster = tuple[list[Json], list[Json], Json]
_PARTS = (
    "groups",
    "spread_group",
    "separable_groups",
    "price_group",
    "balance",
    "near_group",
    "pod_term",
    "room_term",
)
_CORE = ("counts", "tallies", "rules", "spread", "balance", "effects")
_PRICES = np.array([0.0, 0.1, 0.3, 1.0, 1.05])


@dataclass
class Build:
    """The modules that make rules, over one build of the core."""

    groups: ModuleType
    spread: ModuleType
    separable: ModuleType
    price: ModuleType
    balance: ModuleType
    near: ModuleType
    pods: ModuleType
    room: ModuleType
    effects: ModuleType
    rules: ModuleType

    @staticmethod
    def interpreted() -> Build:
        return Build(
            *on_source(
                *(f"rebalancer.cost.{name}" for name in _PARTS),
                "rebalancer.core.effects",
                "rebalancer.core.rules",
            )
        )

    @staticmethod
    def compiled() -> Build:
        from rebalancer.core import effects, rules  # noqa: PLC0415  # those of now

        parts = groups, spread_group, separable_groups, price_group, balance
        return Build(*parts, near_group, pod_term, room_term, effects, rules)


INTERPRETED, COMPILED = Build.interpreted(), Build.compiled()


@dataclass
class Drawn:
    """What a set of rules is made of."""

    key: str
    some: list[int]
    others: list[int]
    skew: int
    least: float


def rules_of(build: Build, view: View, drawn: Drawn) -> Iterator[Any]:
    """Yield rules of each kind."""
    view = replace(view, made={})
    domains = build.groups.Domains.of(view, drawn.key, np.ones(len(view.snapshot.nodes), bool))
    mine, theirs = (np.array(sorted(set(of)), np.int32) for of in (drawn.some, drawn.others))
    given = {"label": "x", "domains": domains}
    spread, separable = build.spread.SpreadGroup, build.separable
    yield spread(view, **given, counted=mine, movers=mine, max_skew=drawn.skew).rule
    yield spread(
        view, **given, counted=mine, movers=theirs, max_skew=drawn.skew, min_domains=3
    ).rule
    yield separable.CapGroup(view, **given, counted=mine, cap=1).rule
    for matched in (mine, theirs):
        yield separable.ConflictGroup(view, **given, owners=mine, matched=matched).rule
    fixed = np.setdiff1d(theirs, mine).astype(np.int32)
    yield separable.ConflictGroup(view, **given, owners=mine, matched=theirs, fixed=fixed).rule
    yield separable.AttractionGroup(view, **given, owners=mine, matched=theirs).rule
    yield build.price.PriceGroup(
        view,
        label="x",
        classes=mine,
        price=_PRICES[np.arange(len(view.snapshot.nodes)) % len(_PRICES)],
        least=drawn.least,
        describe=str,
    ).rule
    yield build.near.NearGroup(view, label="x", key=drawn.key, own=mine, matched=theirs).rule
    yield build.near.NearGroup(view, label="x", key=drawn.key, own=mine, matched=mine).rule
    yield from rooms_of(build, view, drawn)
    yield from pods_of(build, view, drawn)
    yield balance_of(build, view)


def rooms_of(build: Build, view: View, drawn: Drawn) -> Iterator[Any]:
    """Yield rules on rooms for pods like one that exists, and on what a pod lacks on its node."""
    size = len(view.snapshot.nodes)
    for counted, wanted in ((False, drawn.skew), (False, 100 * drawn.skew), (True, 1)):
        ask = build.room.Ask(
            pod=-1,
            cls=-1,
            nodes=np.arange(size) % 3 != 1,
            priority=0,
            requests=view.snapshot.requests[:, drawn.some[0]],
            counted=counted,
        )
        term = build.room.RoomTerm(view, [ask] * wanted)
        yield from (rule for rule, _ in term.rules_of_move(0, 0))


def pods_of(build: Build, view: View, drawn: Drawn) -> Iterator[Any]:
    """Yield rules on single pods, one of which wants them on other nodes."""
    pods = np.flatnonzero(np.isin(view.snapshot.pods.cls, drawn.some)).astype(np.int32)[::2]
    worth = np.ones(len(pods))
    for elsewhere in (False, True):
        term = build.pods.PodTerm(
            view, pods=pods, worth=worth, reason=str, by_state=True, elsewhere=elsewhere
        )
        for cls in sorted({*drawn.some}):
            yield from (rule for rule, _ in term.rules_of_move(cls, cls))


def balance_of(build: Build, view: View) -> Any:
    """Return a rule of balance over two resources and the number of pods."""
    nodes, requests = view.snapshot.nodes, view.snapshot.requests
    counts = np.ones((3, len(nodes)), bool)
    counts[1, 0] = False
    limits = build.balance.LoadBalance.Limits(
        resources=["cpu", "memory", "pods"],
        capacity=np.vstack([nodes.allocatable[:2], nodes.max_pods]).astype(float),
        counts=counts,
        over=np.array([0.2, 0.3, 0.01]),
        under=np.array([0.1, 0.2, 0.005]),
        mean=np.array([0.15, 0.2, 0.01]),
        gap=0.05,
        usable=np.arange(len(nodes)) % 3 > 0,
    )
    demands = np.vstack([requests[:2], np.ones((1, requests.shape[1]))])
    return build.balance.LoadBalance(view, demands, limits).rule


def say(build: Build, rule: Any, view: View, drawn: Drawn) -> list[Any]:
    """Return all that a rule says, for some moves."""
    every = np.arange(len(view.snapshot.nodes), dtype=np.int32)
    said: list[Any] = [build.rules.read(rule)]
    for cls in (drawn.some[0], drawn.others[0]):
        gains = np.zeros(len(every))
        build.rules.write_gains(rule, cls, every.data, gains.data)
        said.append(gains.tolist())
        for replacement in (drawn.some[-1], drawn.others[-1]):
            for node in every.tolist():
                changes = np.zeros(len(every))
                for pod in (-1, *np.flatnonzero(view.snapshot.pods.cls == cls)[:2].tolist()):
                    move = build.rules.PodMove(pod, cls, replacement, node, every.data)
                    build.rules.write_changes(rule, move, changes.data)
                    said.append(changes.tolist())
    return said


@st.composite
def what_is_asked(draw: st.DrawFn, classes: int) -> Drawn:
    cls = st.integers(0, classes - 1)
    some, others = (draw(st.lists(cls, min_size=1, max_size=4)) for _ in range(2))
    return Drawn(
        draw(st.sampled_from(KEYS)),
        some,
        others,
        draw(st.integers(1, 3)),
        draw(st.sampled_from((0.0, 0.1, 1.0, np.inf))),
    )


def world_of(made: Cluster) -> tuple[World, View]:
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    movable = np.arange(len(world.snapshot.pods)) % 4 > 0
    return world, View(world.snapshot, world.state, world.model, movable)


@pytest.mark.skipif(not core.is_compiled(), reason="the core is not compiled here")
@settings(max_examples=30, deadline=None)
@given(clusters(least=2, most=9), steps(), st.data())
def test_compiled_rules_say_what_their_source_says(made, way, data):
    world, view = world_of(made)
    drawn = data.draw(what_is_asked(len(world.snapshot.classes)))
    both = [(build, list(rules_of(build, view, drawn))) for build in (COMPILED, INTERPRETED)]

    def look() -> None:
        first, second = ([say(build, one, view, drawn) for one in made] for build, made in both)
        assert first == second

    go(world.state, way, look)


@settings(max_examples=40, deadline=None)
@given(clusters(least=2, most=9), st.data())
def test_what_a_rule_says_of_a_move_is_what_happens(made, data):
    world, view = world_of(made)
    state = world.state
    drawn = data.draw(what_is_asked(len(world.snapshot.classes)))
    living = state.unmoved()
    if not len(living):
        return
    pod = int(data.draw(st.sampled_from(living.tolist())))
    replacement = data.draw(st.integers(0, len(world.snapshot.classes) - 1))
    target = data.draw(st.integers(0, len(world.snapshot.nodes) - 1))
    cls, node = int(state.cls_of[pod]), int(state.node_of[pod])
    # Of balance, and of single pods, no value is kept.
    without = COMPILED.balance.LoadBalance.Rule, COMPILED.rules.PodRule
    rules = [one for one in rules_of(COMPILED, view, drawn) if not isinstance(one, without)]
    expected, given = [], []
    for rule in rules:
        nodes, change = np.array([target], np.int32), np.zeros(1)
        before = COMPILED.rules.read(rule)
        given.append(_given(rule))
        move = COMPILED.rules.PodMove(pod, cls, replacement, node, nodes.data)
        COMPILED.rules.write_changes(rule, move, change.data)
        expected.append(before + change[0])
    state.evict(pod)
    state.reap()
    state.place(pod, replacement, target)
    for rule, then, before in zip(rules, expected, given, strict=True):
        now = COMPILED.rules.read(rule)
        if _given(rule) == before:
            assert now == pytest.approx(then, abs=1e-9)


def _given(rule: Any) -> Any:
    """What no single move is taken to change: the domains that count."""
    return getattr(rule, "counting", None)
