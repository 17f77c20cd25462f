"""Compiled, the core says to the last bit what its source says."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass
from importlib import import_module
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
from tests.unit.core.interpreted import SOURCE, SOURCE_PENDING, Narrow, assert_same, on_source
from tests.unit.scheduler.journeys import go, steps
from tests.unit.scheduler.random_worlds import clusters, namespaces
from tests.unit.scheduler.test_pending import crowded
from tests.unit.scheduler.worlds import Json, World, node, pod

Cluster = tuple[list[Json], list[Json], Json]
pytestmark = pytest.mark.skipif(not core.is_compiled(), reason="the core is not compiled here")
STRATEGIES = (
    ScoringStrategy(),
    ScoringStrategy("MostAllocated", (("cpu", 3), ("memory", 1))),
    ScoringStrategy("RequestedToCapacityRatio", shape=((0, 0), (40, 9), (100, 2))),
)


def test_what_is_compared_are_an_extension_and_its_source():
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
def test_drawn_clusters(made, way, sampled, scoring, balanced, version):
    nodes, standing, new = made
    world = World(nodes, [*standing, new], namespaces=namespaces())
    kind = Narrow if sampled else SchedulerProfile
    profile = kind.for_version(version, scoring=scoring, balanced=balanced)
    model = SchedulerModel(world.snapshot, profile)
    classes = set(range(len(world.snapshot.classes)))
    go(world.state, way, lambda: assert_same(model, world.state, classes))


@pytest.mark.parametrize("seed", range(4))
def test_clusters_of_which_the_scheduler_samples_the_nodes(seed, tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(cluster_of(seed, 110, 400))
    snapshot = load_snapshot(file)
    state, draw = ClusterState(snapshot), random.Random(seed)
    model = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36)))
    for _ in range(2):
        pods = draw.sample(np.flatnonzero(state.node_of >= 0).tolist(), 6)
        assert_same(model, state, {int(state.cls_of[row]) for row in pods})
        for row in pods:
            state.evict(row)
            state.place(row, int(state.cls_of[row]), draw.randrange(len(snapshot.nodes)))


def drawn_pod(draw: random.Random, name: str, on: str = "") -> Json:
    """Return a pod that may use a host port, a disk, and claims of volumes that a driver attaches."""
    ports = [{"hostPort": draw.choice((80, 81))}] if draw.random() < 0.4 else []
    used = draw.sample(range(5), draw.randrange(3))
    volumes: list[Json] = [
        {"name": f"c{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in used
    ]
    if draw.random() < 0.4:
        volumes.append({"name": "disk", "gcePersistentDisk": {"pdName": draw.choice("xy")}})
    return pod(name, on=on, containers=[{"name": "main", "ports": ports}], volumes=volumes)


@pytest.mark.parametrize("seed", range(8))
def test_ports_disks_volumes_and_supposed_changes_of_nodes(seed):
    draw = random.Random(seed)
    driver = {"name": "d", "allocatable": {"count": draw.randint(1, 3)}}
    modes = ["ReadWriteOnce", "ReadWriteOncePod"]
    world = World(
        [node(name) for name in "abcd"],
        [
            *(drawn_pod(draw, f"old-{n}", draw.choice("abcd")) for n in range(8)),
            *(drawn_pod(draw, f"new-{n}") for n in range(4)),
        ],
        claims=[
            {
                "metadata": {"name": f"c{n}", "namespace": "default"},
                "spec": {"volumeName": f"v{n}", "accessModes": [draw.choice(modes)]},
            }
            for n in range(5)
        ],
        volumes=[
            {
                "metadata": {"name": f"v{n}"},
                "spec": {"csi": {"driver": "d", "volumeHandle": f"h{n}"}},
            }
            for n in range(5)
        ],
        csi_nodes=[{"metadata": {"name": name}, "spec": {"drivers": [driver]}} for name in "ab"],
    )
    classes = set(range(len(world.snapshot.classes)))
    assert_same(world.model, world.state, classes)
    world.state.evict(world.row("old-0"))
    with world.model.marking(world.rows("ab")), world.model.removing(world.rows("c")):
        assert_same(world.model, world.state, classes)
    assert_same(world.model, world.state, classes)


@settings(max_examples=15, deadline=None)
@given(crowded())
def test_pods_that_wait_for_room(made):
    world = World(*made, namespaces=namespaces())
    compiled = world.model.pending
    source = SOURCE_PENDING.Pending(world.snapshot, world.model)
    assert compiled.takers(world.state) == source.takers(world.state)
    for row in np.flatnonzero(world.state.node_of >= 0).tolist():
        of_each = [each.foresee(world.state, row) for each in (compiled, source)]
        first, second = ((of.nodes.tolist(), of.probability.tolist(), of.takers) for of in of_each)
        assert first == second


def test_compiled_classes_take_their_arguments_in_the_order_of_the_source():
    folder = Path(core.__file__).parent
    sources = on_source(*(f"rebalancer.core.{path.stem}" for path in folder.glob("*.pxd")))
    for source in sources:
        compiled = import_module(source.__name__)
        for name, of in vars(source).items():
            if is_dataclass(of) and of.__module__ == source.__name__:
                names = [
                    [one.name for one in fields(each) if one.init]
                    for each in (of, getattr(compiled, name))
                ]
                assert names[0] == names[1], name
