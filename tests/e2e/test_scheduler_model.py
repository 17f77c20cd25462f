"""The scheduler model against the real kube-scheduler: a short, fixed-seed form of the benchmark.

Random clusters, random pods of every feature: feasible sets, reasons and every score of every plug-in
must be equal as integers. ``python -m benchmarks.scheduler.decisions`` is the long form.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import yaml

from benchmarks.scheduler.compare import Tally
from benchmarks.scheduler.decisions import run_cluster
from benchmarks.scheduler.generate import Pairs, WantedPod
from benchmarks.scheduler.ground import Ground, options
from benchmarks.scheduler.settings import PROFILES, scoring
from benchmarks.scheduler.vocabulary import HOSTNAME, Manifest
from rebalancer.policy.kube_scheduler import read_configuration
from rebalancer.scheduler.configured import not_followed, profiles_of
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import NODE_RESOURCES_FIT, SchedulerProfile, ScoringStrategy
from tests.controlplane import ControlPlane

GPU = "example.com/gpu"


@pytest.fixture(scope="module")
def ground(kubernetes):
    """A scheduler with the default configuration."""
    with ControlPlane(options(kubernetes)) as plane:
        yield Ground(plane)


def test_every_decision_of_the_real_scheduler_is_the_models(ground):
    rng = random.Random(5)
    pairs, tally = Pairs(rng), Tally()
    profile = SchedulerProfile.for_version(ground.version)
    for nodes, decisions in ((5, 30), (12, 30), (30, 30), (150, 20)):
        run_cluster(ground, rng, pairs, tally, nodes=nodes, decisions=decisions, profile=profile)
        ground.clear()
    assert tally.differences == []
    # What was compared was enough to mean something.
    assert tally.decisions >= 80
    assert tally.scored >= 60
    assert tally.failed >= 3
    assert sum(tally.varying.values()) >= 3_000
    assert tally.node_predicted == tally.decisions
    assert sum(tally.unmodelled.values()) <= 0.02 * tally.decisions


SCORINGS = {
    "least": ScoringStrategy("LeastAllocated", (("cpu", 5), ("memory", 2), (GPU, 7))),
    "most": ScoringStrategy("MostAllocated", (("memory", 3), (GPU, 4))),
    "ratio": ScoringStrategy(
        "RequestedToCapacityRatio",
        (("cpu", 3), ("memory", 1), (GPU, 2)),
        ((0, 10), (33, 7), (70, 0), (90, 9)),
    ),
}
"""Name of the profile -> how it scores resources."""


@pytest.mark.long
def test_every_way_to_score_resources_is_that_of_the_real_scheduler(kubernetes):
    rng = random.Random(11)
    pairs, tally = Pairs(rng), Tally()
    config = {"profiles": [scoring(name, one) for name, one in SCORINGS.items()]}
    with ControlPlane(options(kubernetes, config)) as plane:
        ground = Ground(plane)
        first, *others = [
            SchedulerProfile.for_version(ground.version, scoring=one, scheduler_name=name)
            for name, one in SCORINGS.items()
        ]
        profile = replace(first, others=tuple(others))
        # The profiles take turns.
        for nodes, decisions in ((5, 24), (20, 36), (20, 54), (40, 54)):
            run_cluster(
                ground, rng, pairs, tally, nodes=nodes, decisions=decisions, profile=profile
            )
            ground.clear()
    assert tally.differences == []
    assert min(tally.schedulers[name] for name in SCORINGS) >= 50
    assert tally.scored >= 90
    # Nodes differ by this score.
    assert tally.varying[NODE_RESOURCES_FIT] >= 600


def test_every_profile_of_a_configuration_decides_as_the_real_scheduler(kubernetes):
    rng = random.Random(3)
    pairs, tally = Pairs(rng), Tally()
    file = yaml.safe_dump(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **PROFILES,
        }
    )
    configuration, problems = read_configuration(file.encode(), "scheduler.yaml")
    assert configuration is not None, problems
    assert list(not_followed(configuration)) == []
    with ControlPlane(options(kubernetes, PROFILES)) as plane:
        ground = Ground(plane)
        profile = profiles_of(configuration).at(ground.version)
        for nodes, decisions in ((6, 45), (20, 45), (220, 35)):
            run_cluster(
                ground, rng, pairs, tally, nodes=nodes, decisions=decisions, profile=profile
            )
            ground.clear()
    assert tally.differences == []
    assert tally.sampled >= 4
    assert min(tally.schedulers[one["schedulerName"]] for one in PROFILES["profiles"]) >= 15
    assert tally.scored >= 60
    assert sum(tally.unmodelled.values()) <= 0.1 * tally.decisions


def test_what_a_device_class_stands_behind_is_named_as_unpredicted(ground):
    name = "node-0000"
    fixtures: list[Manifest] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "default"},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "fpga"},
            "spec": {
                "extendedResourceName": "example.com/fpga",
                "selectors": [{"cel": {"expression": 'device.driver == "fpga.example.com"'}}],
            },
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": "fpga.example.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "one"}],
            },
        },
    ]
    room = {"cpu": "4", "memory": "16Gi", "pods": "10"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name}},
        "status": {"capacity": room, "allocatable": room},
    }
    asked = {"example.com/fpga": "1"}
    container = {"name": "main", "image": "x", "resources": {"requests": asked, "limits": asked}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {}},
        "spec": {"containers": [container]},
    }
    ground.load([node], fixtures)
    ground.settle()
    decided = ground.decide(WantedPod(pod, ()))
    assert decided is not None
    snapshot, _, decision = decided
    assert decision.node == name
    model = SchedulerModel(snapshot, SchedulerProfile.for_version(ground.version))
    assert model.find_unmodelled(int(snapshot.pods.cls[0])) == (
        "a DeviceClass may stand behind example.com/fpga (dynamic resource allocation)",
    )
