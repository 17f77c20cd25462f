"""The tables of the decisions benchmark, on figures that a person can check."""

import pytest

from benchmarks.decisions.rules import KINDS
from benchmarks.decisions.simulated import Compared, End, markdown
from benchmarks.decisions.summary import summary


def run(evictions, **left):
    return {
        "evictions": evictions,
        "violations": dict.fromkeys(KINDS, 0.0) | left,
        "cpu_deviation": 0.1,
        "memory_deviation": 0.2,
        "lower_bound": 8,
        "pending": 0,
    }


def contender(*runs, silent):
    return {
        "runs": list(runs),
        "evictions": sum(one["evictions"] for one in runs),
        "first_silent": len(runs) - 1 if silent else None,
        "after_silence": 0,
        "twice": 3,
        "breaches": [],
    }


def duel(ours, *, scenario="zone-back", optimum=10):
    return {
        "plan": {"scenario": scenario, "seed": 1},
        "optimum": {"moves": optimum, "hard": 0, "soft": 1},
        "unbanded": {"moves": 10},
        "contenders": {
            "peer": contender(run(20, duplicates=2.0), silent=False),
            "ours": contender(run(ours, duplicates=1.0), run(0, duplicates=1.0), silent=True),
        },
    }


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_summary_has_medians_and_the_worst_with_its_name():
    text = summary({"small": [duel(12), duel(15, scenario="mutual")], "big": [duel(30)]})
    rows = [cells(line) for line in text.splitlines()[2:]]
    assert [row[:2] for row in rows[:3]] == [["small (2)", "peer"], ["", "ours"], ["", "optimum"]]
    assert rows[1][2:5] == ["1.35, 1.50 (mutual, 1)", "0.68, 0.75 (mutual, 1)", "0.83 (mutual, 1)"]
    assert rows[1][5:] == [
        *("0, 2", "0.100 / 0.200", "0 of 2", "0.80 in total, at most 0.80"),
        *("22.2%", "2 of 2", "0", "0"),
    ]
    assert rows[0][10] == "0 of 2"
    assert rows[6][0] == "**all** (3)"
    assert rows[7][2] == "1.50, 3.00 (zone-back, 1)"


def end(duplicates):
    left = dict.fromkeys(KINDS, 0.0) | {"duplicates": duplicates}
    return End(evictions=3, silent=True, violations=left, deviations=(0.1, 0.2))


@pytest.mark.parametrize(
    ("drawn", "lives", "both", "draws"),
    [([1, 1], "33%", "67%", "100%"), ([1, 2], "33%", "50%", "0%")],
)
def test_live_ends_are_compared_with_each_other_as_with_drawn_ones(drawn, lives, both, draws):
    one = Compared(
        scenario="zone-back",
        seed=0,
        contender="ours",
        commit="abc",
        live=end(1),
        probable=end(1),
        drawn=tuple(map(end, drawn)),
        repeated=(end(1), end(2)),
    )
    lines = markdown([one]).splitlines()[-3:]
    assert [line.split(": ")[1].split()[0] for line in lines] == [lives, both, draws]
