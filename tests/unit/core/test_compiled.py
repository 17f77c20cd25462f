"""Compiled, the core says to the last bit what its source says."""

from __future__ import annotations

import random
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.phases.families import cluster_of
from rebalancer import core
from rebalancer.core.prediction import predict
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile, ScoringStrategy
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.state import ClusterState
from tests.unit.core.interpreted import SOURCE, Narrow, assert_same
from tests.unit.scheduler.journeys import Step, go, steps
from tests.unit.scheduler.random_worlds import clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

Cluster = tuple[list[Json], list[Json], Json]
pytestmark = pytest.mark.skipif(not core.is_compiled(), reason="the core is not compiled here")
STRATEGIES = (
    ScoringStrategy(),
    ScoringStrategy("MostAllocated", (("cpu", 3), ("memory", 1))),
    ScoringStrategy("RequestedToCapacityRatio", shape=((0, 0), (40, 9), (100, 2))),
)


def test_what_is_compared_are_an_extension_and_its_source() -> None:
    assert not isinstance(predict, FunctionType)
    assert isinstance(SOURCE.predict, FunctionType)


@settings(max_examples=30, deadline=None)
@given(
    clusters(least=2, most=9),
    steps(),
    st.booleans(),
    st.sampled_from(STRATEGIES),
    st.sampled_from((("cpu", "memory"), ("cpu",), ("cpu", "memory", "ephemeral-storage"))),
    st.sampled_from(((1, 35), (1, 36))),
)
def test_drawn_clusters(
    made: Cluster,
    way: list[Step],
    sampled: bool,
    scoring: ScoringStrategy,
    balanced: tuple[str, ...],
    version: tuple[int, int],
) -> None:
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    kind = Narrow if sampled else SchedulerProfile
    profile = kind.for_version(version, scoring=scoring, balanced=balanced)
    model = SchedulerModel(world.snapshot, profile)
    classes = set(range(len(world.snapshot.classes)))
    go(world.state, way, lambda: assert_same(model, world.state, classes))


@pytest.mark.parametrize("seed", range(4))
def test_clusters_of_which_the_scheduler_samples_the_nodes(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_bytes(cluster_of(seed, 110, 400))
    snapshot = load_snapshot(file)
    state, draw = ClusterState(snapshot), random.Random(seed)
    model = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36)))
    for _ in range(2):
        pods = draw.sample(np.flatnonzero(state.node_of >= 0).tolist(), 6)
        assert_same(model, state, {int(state.cls_of[pod]) for pod in pods})
        for pod in pods:
            state.evict(pod)
            state.place(pod, int(state.cls_of[pod]), draw.randrange(len(snapshot.nodes)))
