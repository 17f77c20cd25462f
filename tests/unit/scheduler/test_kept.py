"""What is kept while pods move says the same as what is computed again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import PodFlag
from rebalancer.snapshot.state import ClusterState
from tests.unit.scheduler.journeys import go, steps
from tests.unit.scheduler.random_worlds import clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

Cluster = tuple[list[Json], list[Json], Json]


class _Narrow(SchedulerProfile):
    """Samples three nodes, so that small clusters are sampled, too."""

    def nodes_to_find(self, nodes: int) -> int:
        return min(3, nodes)


@settings(max_examples=15, deadline=None)
@given(clusters(least=4, most=9), steps(), st.booleans())
def test_predictions_are_those_of_a_model_that_was_never_asked(made, way, sampled):
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    profile = (_Narrow if sampled else SchedulerProfile).for_version((1, 36))
    kept = SchedulerModel(world.snapshot, profile)

    def look() -> None:
        fresh = SchedulerModel(world.snapshot, profile)
        for cls in range(len(world.snapshot.classes)):
            actual, expected = kept.predict(world.state, cls), fresh.predict(world.state, cls)
            assert actual.nodes.tolist() == expected.nodes.tolist()
            assert actual.probability.tolist() == expected.probability.tolist()
            assert (kept.static_mask(cls) == fresh.static_mask(cls)).all()

    go(world.state, way, look)


@settings(max_examples=20, deadline=None)
@given(clusters(least=4, most=9), steps(), st.booleans())
def test_predictions_of_replacements_are_those_of_a_model_that_was_never_asked(made, way, sampled):
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    profile = (_Narrow if sampled else SchedulerProfile).for_version((1, 36))
    kept = SchedulerModel(world.snapshot, profile)

    def look() -> None:
        state = world.state
        for pod in np.flatnonzero(state.node_of >= 0).tolist():
            fresh = SchedulerModel(world.snapshot, profile)
            cls = int(state.cls_of[pod])
            with state.evicted(pod, gone=world.snapshot.waits(cls)):
                expected = fresh.predict(state, world.snapshot.classes[cls].replacement)
            actual = kept.predict_replacement(state, pod)
            assert actual.nodes.tolist() == expected.nodes.tolist()
            assert actual.probability.tolist() == expected.probability.tolist()

    go(world.state, way, look)


@settings(max_examples=15, deadline=None)
@given(clusters(least=2, most=6), steps())
def test_pods_are_where_they_were_put(made, way):
    nodes, standing, new = made
    state = World(nodes, [*standing, new], namespaces=namespaces()).state
    every = np.arange(len(state.snapshot.classes), dtype=np.int32)

    def look() -> None:
        for classes in (*(every[[cls]] for cls in every), every):
            for terminating in (False, True):
                actual = state.nodes_of(classes, terminating=terminating)
                assert actual is not None
                expected = sorted(_standing(state, classes.tolist(), terminating=terminating))
                assert sorted(actual.tolist()) == expected
                counts = np.bincount(expected, minlength=len(nodes))
                assert (state.counts(classes, terminating=terminating) == counts).all()
            living = sorted(_standing(state, classes.tolist(), terminating=False))
            assert state.occupied_nodes(classes).tolist() == sorted(set(living))
            assert state.count_on(classes, 0) == living.count(0)
        for cls in every.tolist():
            homes = state.snapshot.pods.node[state.unmoved(every[[cls]])]
            assert state.home_nodes(cls).tolist() == sorted(set(homes.tolist()))

    go(state, way, look)


def _standing(state: ClusterState, classes: list[int], *, terminating: bool) -> Iterator[int]:
    """Yield the node of each pod of ``classes``, one by one."""
    for pod, flags in enumerate(state.snapshot.pods.flags.tolist()):
        counts = terminating or not flags & PodFlag.TERMINATING
        if counts and state.cls_of[pod] in classes and state.node_of[pod] >= 0:
            yield int(state.node_of[pod])
    fixed = state.pod_count - np.bincount(
        state.node_of[state.node_of >= 0], minlength=len(state.pod_count)
    )
    for victim in state.terminating_pods if terminating else ():
        if fixed[victim.node] > 0:  # else it is the newest, and hidden
            fixed[victim.node] -= 1
            if victim.cls in classes:
                yield victim.node


def test_what_the_scheduler_is_shown_for_a_moment_is_taken_back():
    nodes: list[Json] = [{"metadata": {"name": name, "labels": {}}} for name in "ab"]
    standing: Json = {
        "metadata": {"name": "p", "namespace": "default", "uid": "1"},
        "spec": {"nodeName": "a", "containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }
    state = World(nodes, [standing]).state
    cls = state.snapshot.pods.cls[:1]
    with state.evicted(0, gone=True):
        assert not state.counts(cls, terminating=True).any()
        assert not state.home_nodes(int(cls[0])).size
    assert state.counts(cls, terminating=True).tolist() == [1, 0]
    assert state.home_nodes(int(cls[0])).tolist() == [0]
    assert state.count_on(cls, 0) == 1
