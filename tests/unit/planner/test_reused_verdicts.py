"""What a wave has judged is used again only in the same state: on clusters of random shapes, with pods that wait."""

import io
import json
import random

import numpy as np
import pytest

from benchmarks.phases.drift import planned
from benchmarks.phases.families import cluster_of
from rebalancer.planner.rounds import Rounds
from rebalancer.snapshot.load import load_snapshot
from tests.unit.planner.conftest import said


def world(seed):
    """A cluster some of whose nodes are gone; their pods wait."""
    draw = random.Random(seed)
    nodes = draw.choice((20, 30, 45))
    data = json.loads(cluster_of(seed, nodes, nodes * draw.choice((9, 14, 20))))
    names = [one["metadata"]["name"] for one in data["items"] if one["kind"] == "Node"]
    gone = set(draw.sample(names, max(1, int(len(names) * draw.uniform(0.03, 0.12)))))
    data["items"] = [
        one for one in data["items"] if one["kind"] != "Node" or one["metadata"]["name"] not in gone
    ]
    for one in data["items"]:
        if one["kind"] == "Pod" and one["spec"].get("nodeName") in gone:
            del one["spec"]["nodeName"]
            one["status"] = {"phase": "Pending", "conditions": []}
    return load_snapshot("-", stdin=io.BytesIO(json.dumps(data).encode()))


def essence(snapshot, verdict):
    prediction = verdict.prediction
    return (
        prediction.nodes.tolist(),
        np.round(prediction.probability, 9).tolist(),
        prediction.takers,
        np.round(verdict.gain, 9).tolist(),
        said(verdict.refused, snapshot),
    )


@pytest.fixture
def reused(monkeypatch):
    """(as it was known, as it is judged now) of each verdict that is used again."""
    seen, verdicts = [], Rounds._verdicts

    def compared(rounds, picks):
        known = [
            pick for pick in picks if rounds._judged.get(pick.pair, (None,))[0] == pick.promise.pod
        ]
        for pick in known:
            pod = pick.promise.pod
            now = rounds._examination.judge.judge(pod, pick.pair[1], float(rounds._costs[pod]))
            snapshot = rounds._state.snapshot
            seen.append((essence(snapshot, rounds._judged[pick.pair][1]), essence(snapshot, now)))
        return verdicts(rounds, picks)

    monkeypatch.setattr(Rounds, "_verdicts", compared)
    return seen


def test_a_verdict_that_is_used_again_is_that_of_a_fresh_look(reused):
    # Where a verdict that a move has outdated would show.
    for seed in (105, 114, 129, 130):
        planned(world(seed), lifted=True)
    assert len(reused) > 20
    assert all(known == now for known, now in reused)
