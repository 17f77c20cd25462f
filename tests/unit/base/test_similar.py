import pytest

from rebalancer.base.plain_text import closest, did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "name"),
    [
        ("budget", ["budgets", "mode"], "budgets"),
        ("MODE", ["budgets", "mode"], "mode"),
        ("zzz", ["budgets", "mode"], None),
        ("mode", [], None),
        (7, ["mode"], None),
    ],
)
def test_the_most_similar_name_is_suggested(word, known, name):
    assert closest(word, known) == name


@pytest.mark.parametrize(
    ("word", "known", "text"),
    [
        ("budget", ["mode", "budgets"], "; did you mean budgets?"),
        ("zzz", ["mode", "budgets"], "; known here: budgets, mode"),
        ("zzz", [], ""),
    ],
)
def test_without_a_similar_name_all_are_listed(word, known, text):
    assert did_you_mean(word, known) == text


def test_names_of_objects_are_listed_only_if_they_are_few():
    assert did_you_mean("zzz", ["a", "b"], listed=2) == "; known here: a, b"
    assert did_you_mean("zzz", ["a", "b", "c"], listed=2) == ""
    assert did_you_mean("worker-0001", [f"worker-{n:04}x" for n in range(3000)]) == (
        "; did you mean worker-0001x?"
    )
