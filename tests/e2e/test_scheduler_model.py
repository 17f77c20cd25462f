"""The scheduler model against the real kube-scheduler: a short, fixed-seed form of the benchmark.

Random clusters, random pods of every feature: feasible sets, reasons and every score of every plug-in
must be equal as integers. ``python -m benchmarks.scheduler.decisions`` is the long form.
"""

from __future__ import annotations

import random

from benchmarks.scheduler.compare import Tally
from benchmarks.scheduler.decisions import run_cluster
from benchmarks.scheduler.generate import Pairs
from benchmarks.scheduler.ground import Ground, options
from rebalancer.scheduler.profile import SchedulerProfile
from tests.controlplane import ControlPlane

VERSION = "1.36.3"


def test_every_decision_of_the_real_scheduler_is_the_models() -> None:
    rng = random.Random(5)
    pairs, tally = Pairs(rng), Tally()
    profile = SchedulerProfile.for_version((1, 36))
    with ControlPlane(options(VERSION)) as plane:
        ground = Ground(plane)
        for nodes, decisions in ((5, 30), (12, 30), (30, 30), (150, 20)):
            run_cluster(
                ground, rng, pairs, tally, nodes=nodes, decisions=decisions, profile=profile
            )
            ground.clear()
    assert tally.differences == []
    # What was compared was enough to mean something.
    assert tally.decisions >= 80
    assert tally.scored >= 60
    assert tally.failed >= 3
    assert sum(tally.varying.values()) >= 3_000
    assert tally.node_predicted == tally.decisions
    assert sum(tally.unmodelled.values()) <= 0.02 * tally.decisions
