"""What pods of some classes gain in balance is what the term says of them among all, and no landing gains more."""

import random

import numpy as np
import pytest

from rebalancer.registry import Registry
from rebalancer.testing.snapshots import node, snapshot_of, with_usage, workload
from tests.unit.planner.conftest import draft_of


@pytest.mark.parametrize("signal", ["requests", "larger"])
@pytest.mark.parametrize("deviation", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_candidates_of_some_classes_are_those_among_all(seed, deviation, signal):
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
        classes = rng.sample(range(len(draft.snapshot.classes)), 6)
        some = term.candidates(np.array(sorted(classes), np.int32))
        pairs = zip(some.cls.tolist(), some.node.tolist(), strict=True)
        assert dict(zip(pairs, some.gain, strict=True)) == {
            pair: gain for pair, gain in gains.items() if pair[0] in classes
        }
        anywhere = np.arange(len(draft.snapshot.nodes), dtype=np.int32)
        for (cls, node_), gain in gains.items():
            landed = term.delta(cls, node_, draft.snapshot.classes[cls].replacement, anywhere)
            assert -landed.min() <= gain + 1e-12
        pod = rng.choice(state.unmoved().tolist())
        cls = int(state.cls_of[pod])
        state.evict(pod)
        state.place(pod, cls, rng.randrange(6))
    assert named
