"""Many predictions made at once are, to the last bit, those made one by one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.phases.families import cluster_of
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import POD_TOPOLOGY_SPREAD, SchedulerProfile
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.state import ClusterState
from tests.unit.scheduler.journeys import Step, go, steps
from tests.unit.scheduler.random_worlds import clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

Cluster = tuple[list[Json], list[Json], Json]


class _Narrow(SchedulerProfile):
    """Samples three nodes, so that small clusters are sampled, too."""

    def nodes_to_find(self, nodes: int) -> int:
        return min(3, nodes)


def _agree(
    state: ClusterState, snapshot: Snapshot, profile: SchedulerProfile, pods: list[int]
) -> None:
    """Assert that all at once are as each alone, by models that were never asked before."""
    together = SchedulerModel(snapshot, profile)
    many = together.predict_replacements(state, np.array(pods, np.int32))
    alone = SchedulerModel(snapshot, profile)
    for pod, one in zip(pods, many, strict=True):
        expected = alone.predict_replacement(state, pod)
        assert one.nodes.tolist() == expected.nodes.tolist()
        assert one.probability.tolist() == expected.probability.tolist()
        assert one.unmodelled == expected.unmodelled
        # What was kept of them is found again, and says the same.
        assert together.predict_replacement(state, pod).nodes.tolist() == expected.nodes.tolist()


@settings(max_examples=20, deadline=None)
@given(
    clusters(least=2, most=9),
    steps(),
    st.sampled_from((0, 2, 7_000_000_000)),
    st.booleans(),
    st.sets(st.integers(0, 7)),
)
def test_many_predictions_are_those_of_one_pod_each(
    made: Cluster, way: list[Step], weight: int, sampled: bool, at_once: set[int]
) -> None:
    nodes, standing, new = made
    for index, one in enumerate(standing):
        if index in at_once:
            one["spec"]["terminationGracePeriodSeconds"] = 0
    world = World(nodes, [*standing, new], namespaces=namespaces())
    profile = (_Narrow if sampled else SchedulerProfile).for_version(
        (1, 36), weights={POD_TOPOLOGY_SPREAD: weight}
    )

    def look() -> None:
        pods = np.flatnonzero(world.state.node_of >= 0).tolist()
        _agree(world.state, world.snapshot, profile, pods)

    go(world.state, way, look)


@pytest.mark.parametrize(("seed", "kinds"), [(0, 48), (1, 48), (2, 48), (2, 1), (3, 48)])
def test_many_predictions_are_those_of_one_pod_each_where_nodes_are_sampled(
    seed: int, kinds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebalancer.scheduler.sampling.MAX_KINDS", kinds)
    monkeypatch.setattr("rebalancer.scheduler.many_landings.MAX_KINDS", kinds)
    file = tmp_path / "cluster.json"
    file.write_bytes(cluster_of(seed, 120, 1200))
    snapshot = load_snapshot(file)
    state, draw = ClusterState(snapshot), random.Random(seed)
    profile = SchedulerProfile.for_version((1, 36))
    for _ in range(2):
        pods = draw.sample(np.flatnonzero(state.node_of >= 0).tolist(), 40)
        _agree(state, snapshot, profile, pods)
        for pod in pods[:20]:
            replacement = snapshot.classes[int(state.cls_of[pod])].replacement
            state.evict(pod)
            state.place(pod, replacement, draw.randrange(len(snapshot.nodes)))
