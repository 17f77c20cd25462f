import pytest

from rebalancer.policy.document import FileProblem, closest, did_you_mean, list_keys
from rebalancer.policy.model import Policy


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


@pytest.mark.parametrize(
    ("path", "key"),
    [((), "eagerness"), (("safety",), "maxClockSkew"), (("windows", 0), "timeZone")],
)
def test_known_keys_are_those_of_the_model_at_a_path(path, key):
    assert key in list_keys(Policy, path)
    assert "nothing" not in list_keys(Policy, path)


@pytest.mark.parametrize(
    ("problem", "place", "text"),
    [
        (
            FileProblem("p.yaml", 3, ("a", 0), "is wrong"),
            "p.yaml:3: a[0]",
            "p.yaml:3: a[0]: is wrong",
        ),
        (FileProblem("p.yaml", 0, (), "is wrong"), "p.yaml", "p.yaml: is wrong"),
    ],
)
def test_a_problem_names_its_place(problem, place, text):
    assert (problem.place, str(problem)) == (place, text)
