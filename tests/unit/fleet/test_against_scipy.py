"""Verdicts on planted data, beside scipy's permutation test."""

from importlib import import_module

import numpy as np
import pytest

from rebalancer.fleet.comparison import LEVEL, compare_pairs, compare_rows
from rebalancer.fleet.simulation import MEASURES, Row

DATA = {
    "normal": lambda random, n: random.normal(0.4, 1, n),
    "counts": lambda random, n: random.integers(-2, 4, n).astype(float),
    "mostly equal": lambda random, n: random.integers(-1, 2, n) * (random.random(n) < 0.4) * 1.0,
    "skewed": lambda random, n: random.exponential(1, n) - 0.7,
    "one far away": lambda random, n: np.append(random.normal(0.2, 0.1, n - 1), 50.0),
}


def p_of_scipy(differences):
    stats = import_module("scipy.stats")  # not for all who only collect: half a second
    few = len(differences) <= 14
    result = stats.permutation_test(
        (differences,),
        np.sum,
        permutation_type="samples",
        n_resamples=np.inf if few else 20_000,
        rng=np.random.default_rng(1),
    )
    return float(result.pvalue)


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("number", [3, 6, 10, 13, 20, 60])
def test_p_is_that_of_scipy(data, number):
    differences = data(np.random.default_rng(number), number)
    ours = compare_pairs(differences)
    if ours.blocks:
        pytest.skip("neighbours are alike by chance: these are not the pairs that are tested")
    # Of many, scipy draws signs at random: 0.02 are more than five standard deviations.
    assert ours.p == pytest.approx(p_of_scipy(differences), abs=1e-9 if number <= 14 else 0.02)


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_on_planted_data_are_those_of_scipy_and_holm(seed):
    random = np.random.default_rng(seed)
    planted = {of.key: random.choice([0.0, 0.5, 2.0, 20.0]) for of in MEASURES}
    rows = []
    for at in range(12):
        state = random.normal(0, 5)
        for number, policy in enumerate(("a", "b")):
            measures = {
                key: state + random.normal(0, 1) + number * by for key, by in planted.items()
            }
            rows.append(Row(2 * at + number, policy, f"s{at}", 0, 1, 1, True, measures, {}))
    comparison = compare_rows(["a", "b"], rows, [])
    values = {
        key: np.array(
            [a.measures[key] - b.measures[key] for a, b in zip(*[iter(rows)] * 2, strict=True)]
        )
        for key in planted
    }
    ps = {key: p_of_scipy(of) for key, of in values.items()}
    alone, named = {of.measure.key for of in comparison.verdicts if not of.difference.blocks}, set()
    for rank, key in enumerate(sorted(ps, key=ps.__getitem__)):
        if ps[key] * (len(ps) - rank) > LEVEL:
            break
        named.add(key)
    assert {of.measure.key for of in comparison.verdicts if of.better} & alone == named & alone
    for of in comparison.verdicts:
        if of.better and not of.measure.more_is_better:
            assert of.better == ("a" if values[of.measure.key].mean() < 0 else "b")
