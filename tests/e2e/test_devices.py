"""Pods with resource claims: what is predicted of them is what the real kube-scheduler does, or it is named.

ResourceSlices are written by hand, as a driver would; ``python -m benchmarks.scheduler.devices`` is the long form.
"""

from __future__ import annotations

import pytest

from benchmarks.scheduler.devices import DeviceGround, Tally, options
from tests.controlplane import ControlPlane


def play(version: str, seeds: range, decisions: int) -> Tally:
    tally = Tally()
    with ControlPlane(options(version)) as plane:
        ground = DeviceGround(plane)
        for seed in seeds:
            ground.play(seed, decisions, tally)
    return tally


def test_pods_with_claims_go_where_they_are_predicted(kubernetes: str) -> None:
    tally = play(kubernetes, range(1, 5), 8)
    assert tally.differences == []
    # What was compared was enough to mean something.
    assert tally.decisions == 32
    assert tally.placed >= 12
    assert tally.chosen >= 8


@pytest.mark.long
def test_many_pods_with_claims_go_where_they_are_predicted(kubernetes: str) -> None:
    tally = play(kubernetes, range(1000, 1025), 12)
    assert tally.differences == []
    assert tally.decisions == 300
    assert tally.placed + tally.refused == 300
    assert min(tally.placed, tally.refused, tally.chosen) >= 40
    assert sum(tally.unmodelled.values()) <= 150
