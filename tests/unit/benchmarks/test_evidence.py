"""The page of evidence: what it reads, its intervals, and that what was not run says so."""

import json

import pytest

from benchmarks.evidence.experiments import EXPERIMENTS
from benchmarks.evidence.intervals import of_median, of_share
from benchmarks.evidence.page import PAGE, results_of, written

READERS = {one.name: one.read for one in EXPERIMENTS}


def rows_of(name, *outputs):
    return {row.what: row.number for row in READERS[name](outputs)}


def test_the_page_is_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == written(), (
        "python -m benchmarks.evidence --minutes 0"
    )


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.name)
def test_a_number_stands_only_where_it_was_measured(one):
    of_it = written().partition(f"### {one.name}\n")[2].partition("\n### ")[0]
    assert ("not run" in of_it) == (len(results_of(one)) < len(one.parts))
    assert "Where it loses: " in of_it


def test_the_interval_of_a_median_is_of_its_values_and_narrows():
    few, many = [float(n) for n in range(9)], [n / 10 for n in range(90)]
    middle, low, high = of_median(few)
    # By the tables of the binomial distribution: the second and the eighth of nine.
    assert (middle, low, high) == (4.0, 1.0, 7.0)
    assert of_median(many)[2] - of_median(many)[1] < high - low
    assert of_median([3.0]) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(98, 100, 0.930, 0.994), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0)],
)
def test_the_interval_of_a_share_is_wilson_s(hits, of, low, high):
    _, least, most = of_share(hits, of)
    assert least == pytest.approx(low, abs=0.001)
    assert most == pytest.approx(high, abs=0.001)


def test_parts_of_room_are_added_up():
    text = (
        "clusters 12, something can be let in 12, proven 12\n"
        "let in as the optimum: 11 (91.7%); pods 18 of 19\n"
        "evictions where as many: 29 of 29 (1.000); where nothing can be let in: 0; of gangs 0\n"
    )
    rows = rows_of("room", text, text)
    assert rows["clusters"] == "24"
    assert rows["pods let in, of those that can be"] == "36 of 38"


def test_parts_beside_a_solver_are_added_up_by_what_it_was_asked():
    text = (
        "5000\t(2,)\t2\t\n"
        "5001\t(2,)\t2\tweb-0 does not fit on n1\n"
        "beside 1 s of CP-SAT, clusters 10: the same 2, better 2; pods 18 of 27; evictions where the same 4 of 8\n"
        "beside 1 s of CP-SAT with what is kept, clusters 10: the same 7, better 0; pods 18 of 24;"
        " evictions where the same 11 of 11\n"
    )
    rows = rows_of("cp-sat", text, text)
    wrong = "plans of ours whose end has no place for each pod, by the ruler of the benchmark"
    assert list(rows) == ["beside 1 s of CP-SAT", "beside 1 s of CP-SAT with what is kept", wrong]
    assert rows[wrong] == "2"
    assert rows["beside 1 s of CP-SAT"].startswith("of 20 clusters as many let in: 20.0%")
    assert "more: 4; pods 36 of 54; evictions where as many 8 of 16" in rows["beside 1 s of CP-SAT"]


def test_rows_of_consolidation_are_read():
    text = "| seed | nodes |\n|---|\n| 20 | 28 | 100 | 0 | 19 | 22 | 22 | 66 | 4 | 0 | yes | 0 |\n"
    rows = rows_of("consolidation", text)
    assert rows["nodes without pods, of those that can be"] == "19 of 22"
    assert rows["falls silent"] == "1 of 1"


def drift(name, evictions, **end):
    """A line of one drift: both evict the same, of which three are the fewest."""
    kept = {"after_silence": 0, "silent": True, "twice": 0, "hard": 0.0, "soft": 1.0, "breaches": 0}
    ends = {who: {**kept, "evictions": evictions} for who in ("ours", "peer")}
    ends["peer"].update(end)
    best = {"moves": 3, "hard": 0.0, "soft": 0.0}
    return json.dumps({"cluster": name, "contenders": ends, "optimum": best, "proven": True})


def test_drifts_are_medians_of_clusters_and_sums_of_pods():
    lines = [
        drift("new-nodes/0", 3),
        drift("new-nodes/1", 6, after_silence=2, twice=4),
        drift("new-nodes/2", 12, silent=False, hard=2.0),
    ]
    rows = rows_of("decisions", "new-nodes/0: 90 pods\n" + lines[0], "\n".join(lines[1:]))
    assert rows["clusters"] == "3, the optimum is proven on 3"
    ours, peer = "kube-rebalancer: ", "descheduler: "
    assert rows[ours + "evictions by the optimum's, median"].startswith("2.000 (1.000 to 4.000)")
    assert rows[ours + "evictions, and rules left"] == "21, hard 0, soft 3"
    assert rows[peer + "evictions, and rules left"] == "23, hard 2, soft 3"
    assert rows[peer + "of its evictions, pods moved twice"].startswith("17.4%")
    # One goes on after a silent run, one is never silent.
    assert rows[peer + "falls silent, and stays so"].startswith("33.3%")


def test_days_on_which_nothing_is_even_again_have_no_time():
    day = {"contender": "ours", "evictions": 5, "below": 0, "closed": 0, "loud": 0, "uneven": 0}
    days = [{**day, "back": [6.4, 20.0]}, {**day, "back": [8.0]}]
    never = {**day, "contender": "peer", "below": 1, "closed": 3, "uneven": 2, "back": []}
    rows = rows_of("zones", *map(json.dumps, [*days, never]), "ours: {'evictions': 10}")
    ours, peer = rows["kube-rebalancer: 2 days"], rows["descheduler: 1 day"]
    assert ours.startswith(
        "a zone that is back until all is even: median 8 (6 to 20) s, worst 20 s (3 returns); 10"
    )
    assert peer.startswith(
        "a zone that is back until all is even: never (0 returns); 5 evictions, 3 of them"
    )
    assert "below minAvailable: 1; " in peer


def test_what_is_saved_is_a_share_of_the_price_of_each_cluster():
    ended = {"nodes": 10, "freed": 3, "possible": 5.0, "evictions": 7, "twice": 0, "silent": True}
    lines = [
        json.dumps({**ended, "contender": "Karpenter", "price": price, "saved": 4.0})
        for price in (8.0, 16.0, 40.0)
    ]
    rows = rows_of("openb", *lines)
    assert rows["clusters"].startswith("3 with 30 machines of 64.00")
    assert rows["Karpenter"].startswith("price saved, median: 25.0% (10.0% to 50.0%); 9 machines")
