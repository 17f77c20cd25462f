"""The arrays against the plain loops, on random clusters."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.scheduler.profile import DEFAULT_WEIGHTS, KNOWN_VERSIONS, SchedulerProfile
from rebalancer.scheduler.search_order import search_order
from tests.unit.scheduler import reference
from tests.unit.scheduler.random_worlds import NAMESPACES, clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

Cluster = tuple[list[Json], list[Json], Json]


@settings(max_examples=25, deadline=None)
@given(clusters())
def test_feasible_sets_and_scores_are_those_of_the_reference(made):
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    cluster = reference.Cluster(nodes, standing, NAMESPACES)
    feasible = reference.feasible(cluster, new)
    names = [node["metadata"]["name"] for node in feasible]
    assert world.feasible("new") == names
    evaluation = world.evaluate("new")
    assert evaluation.feasible.nonzero()[0].tolist() == world.rows(names).tolist()
    for plugin, expected in reference.scores(cluster, new, feasible).items():
        actual = evaluation.scores.get(plugin, np.zeros(len(nodes), np.int64))[world.rows(names)]
        assert (actual // DEFAULT_WEIGHTS[plugin]).tolist() == expected, plugin


@settings(max_examples=20, deadline=None)
@given(clusters())
def test_an_eviction_counts_as_a_terminating_pod_until_it_is_reaped(made):
    nodes, standing, new = made
    living = [pod for pod in standing if "deletionTimestamp" not in pod["metadata"]]
    if not living:
        return
    name = living[0]["metadata"]["name"]
    world = World(nodes, [*standing, new], namespaces=namespaces())
    world.state.evict(world.row(name))
    rest = [pod for pod in standing if pod["metadata"]["name"] != name]
    stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    victim = {**living[0], "metadata": {**living[0]["metadata"], **stamp}}
    for others in ([*rest, victim], rest):
        fresh = World(nodes, [*others, new], namespaces=namespaces())
        assert world.feasible("new") == fresh.feasible("new")
        assert (world.evaluate("new").total == fresh.evaluate("new").total).all()
        world.state.reap()


class _Narrow(SchedulerProfile):
    """Samples three nodes, so that small clusters are sampled, too."""

    def nodes_to_find(self, nodes: int) -> int:
        return min(3, nodes)


@settings(max_examples=60, deadline=None)
@given(
    clusters(least=2, most=9),
    st.booleans(),
    st.sampled_from(({}, {"PodTopologySpread": 7_000_000_000}, {"InterPodAffinity": 0})),
    st.sampled_from(KNOWN_VERSIONS),
)
def test_predictions_are_what_evaluating_every_start_of_the_search_gives(
    made, sampled, weights, version
):
    nodes, standing, new = made
    profile = (_Narrow if sampled else SchedulerProfile).for_version(version, weights=weights)
    world = World(nodes, [*standing, new], profile=profile, namespaces=namespaces())
    cls = world.cls("new")
    feasible = world.model.feasible(world.state, cls)
    actual, prediction = np.zeros(len(nodes)), world.model.predict(world.state, cls)
    actual[prediction.nodes] = prediction.probability
    if prediction.unmodelled:
        assert not len(prediction.nodes) or (actual > 0).tolist() == feasible.tolist()
        return
    expected = np.zeros(len(nodes))
    order, size = search_order(world.snapshot.nodes), profile.nodes_to_find(len(nodes))
    for start in range(len(nodes)) if feasible.any() else ():
        searched = np.roll(order, -start)
        sample = np.sort(searched[feasible[searched]][:size])
        total = world.model.evaluate(world.state, cls, among=sample).total
        best = sample[total[sample] == total[sample].max()]
        expected[best] += 1 / len(best) / len(nodes)
    assert np.abs(actual - expected).max() < 1e-9
