"""The page of evidence: what it reads, its intervals, and that what was not run says so."""

import pytest

from benchmarks.evidence.experiments import EXPERIMENTS
from benchmarks.evidence.intervals import of_median, of_share
from benchmarks.evidence.page import PAGE, results_of, written

READERS = {one.name: one.read for one in EXPERIMENTS}


def test_the_page_is_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == written(), (
        "python -m benchmarks.evidence --minutes 0"
    )


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.name)
def test_a_number_stands_only_where_it_was_measured(one):
    of_it = written().partition(f"### {one.name}\n")[2].partition("\n### ")[0]
    assert ("not run" in of_it) == (len(results_of(one)) < len(one.parts) or not one.parts)
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
    read = READERS["room"]
    assert read is not None
    rows = {row.what: row.number for row in read([text, text])}
    assert rows["clusters"] == "24"
    assert rows["pods let in, of those that can be"] == "36 of 38"


def test_parts_beside_a_solver_are_added_up_by_what_it_was_asked():
    text = (
        "5000\t(2,)\t2\n"
        "beside 1 s of CP-SAT, clusters 10: the same 2, better 2; pods 18 of 27; evictions where the same 4 of 8\n"
        "beside 1 s of CP-SAT with what is kept, clusters 10: the same 7, better 0; pods 18 of 24;"
        " evictions where the same 11 of 11\n"
    )
    read = READERS["cp-sat"]
    assert read is not None
    rows = {row.what: row.number for row in read([text, text])}
    assert list(rows) == ["beside 1 s of CP-SAT", "beside 1 s of CP-SAT with what is kept"]
    assert rows["beside 1 s of CP-SAT"].startswith("of 20 clusters as many let in: 20.0%")
    assert "more: 4; pods 36 of 54; evictions where as many 8 of 16" in rows["beside 1 s of CP-SAT"]


def test_rows_of_consolidation_are_read():
    text = "| seed | nodes |\n|---|\n| 20 | 28 | 100 | 0 | 19 | 22 | 22 | 66 | 4 | 0 | yes | 0 |\n"
    read = READERS["consolidation"]
    assert read is not None
    rows = {row.what: row.number for row in read([text])}
    assert rows["nodes without pods, of those that can be"] == "19 of 22"
    assert rows["falls silent"] == "1 of 1"
