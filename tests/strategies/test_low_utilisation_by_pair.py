"""What one pair gains in balance is what the term says of it among all candidates, after every move."""

import random

import pytest

from rebalancer.registry import Registry
from rebalancer.testing.snapshots import snapshot_of, with_usage
from rebalancer.testing.workloads import node, workload
from tests.unit.planner.conftest import draft_of


@pytest.mark.parametrize("signal", ["requests", "larger"])
@pytest.mark.parametrize("deviation", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_pair_gains_what_the_candidates_say(seed, deviation, signal):
    rng = random.Random(seed)
    objects = [node(f"n{i}", f"zone-{i % 3}") for i in range(6)]
    for i in range(10):
        stand = [f"n{rng.randrange(3)}" for _ in range(3)]
        objects += workload(f"w{i}", stand, cpu=rng.choice(("50m", "300m", "700m")))
    limit = 0.1 if deviation else None
    given = {"deviation": deviation, "signal": signal, "runs": 1}
    if limit is not None:
        given |= {name: {"cpu": limit, "memory": limit} for name in ("under", "over")}
    params = Registry.installed().strategy("low-utilisation").Params(**given)
    used = {f"w{i}": (rng.choice((50, 400, 900)), 2**28) for i in range(10)}
    draft = draft_of(
        with_usage(snapshot_of(objects), used),
        strategies=["low-utilisation"],
        params={"low-utilisation": params},
    )
    (weighted,) = draft.terms
    term, state = weighted.term, draft.state
    named = 0
    for _ in range(8):
        rows = term.candidates()
        gains = dict(
            zip(zip(rows.cls.tolist(), rows.node.tolist(), strict=True), rows.gain, strict=True)
        )
        named += len(gains)
        for pod in state.unmoved().tolist():
            pair = int(state.cls_of[pod]), int(state.node_of[pod])
            assert term.gain_of(*pair) == pytest.approx(gains.get(pair, 0.0), abs=1e-12)
        pod = rng.choice(state.unmoved().tolist())
        cls = int(state.cls_of[pod])
        state.evict(pod)
        state.place(pod, cls, rng.randrange(6))
    assert named
