"""What a report says of landings, against what the real scheduler does: of those shown at a share, that share lands there."""

import random

import numpy as np
import pytest

from tests.controlplane import objects, operations
from tests.e2e.product import NO_WAIT, Product

POLICY = NO_WAIT + "budgets: {inFlight: 30%, perRun: 100%, perHour: 100%, perOwner: 100%}\n"
"""Large waves: within one, no move is judged again."""
CLUSTERS = 8
_BINS = ((0, 0.3), (0.3, 0.45), (0.45, 0.6), (0.6, 0.99), (0.99, 1.01))


def come_back(plane, seed):
    """Workloads in two zones, drawn by seed, and a third zone that comes back with one to three equal, empty nodes."""
    rng = random.Random(seed)
    each = rng.randint(1, 3)
    names = [(zone, f"{zone}-{n}") for zone in "abc" for n in range(each)]
    plane.apply([objects.node(name, zone=zone) for zone, name in names if zone != "c"])
    operations.wait_nodes_ready(plane.api, 2 * each)
    pods = 0
    for n in range(rng.randint(4, 7)):
        replicas = rng.randint(2, 5)
        rule = objects.spread({"app": f"w{n}"}, hard=rng.random() < 0.6)
        plane.apply(
            [
                objects.deployment(
                    f"w{n}",
                    replicas,
                    labels={"app": f"w{n}"},
                    cpu=rng.choice(("100m", "200m", "400m")),
                    memory=rng.choice(("128Mi", "512Mi")),
                    topologySpreadConstraints=[rule],
                )
            ]
        )
        pods += replicas
    operations.wait_pods_ready(plane.api, pods, 180)
    plane.apply([objects.node(name, zone=zone) for zone, name in names if zone == "c"])
    operations.wait_nodes_ready(plane.api, 3 * each)


@pytest.mark.long
def test_of_the_landings_that_are_shown_at_a_share_that_share_lands_there(cluster, tmp_path):
    given: list[float] = []
    became: list[bool] = []
    unlisted: list[str] = []
    moves = 0
    for seed in range(CLUSTERS):
        cluster.reset()
        come_back(cluster, seed)
        ran = Product(cluster, tmp_path, POLICY).run()
        assert ran.code == 0, ran.err
        for move in ran.evicted:
            moves += 1
            for landing in move["landings"]:
                given.append(landing["probability"])
                became.append(landing["node"] == move["landed"])
            if move["landed"] not in {landing["node"] for landing in move["landings"]}:
                unlisted.append(f"{move['pod']}: {move['landed']}, of {move['landings']}")
    shares, hits = np.array(given), np.array(became)
    bins = {
        high: (int(inside.sum()), float(shares[inside].mean()), float(hits[inside].mean()))
        for low, high in _BINS
        if (inside := (shares > low) & (shares <= high)).any()
    }
    sure = shares > 0.99
    assert moves >= 20
    assert sure.sum() >= 5
    assert hits[sure].all(), bins
    assert len(unlisted) <= 0.1 * moves, unlisted
    for number, mean, share in bins.values():
        assert abs(mean - share) < 0.1 + 1.0 / number**0.5, bins
