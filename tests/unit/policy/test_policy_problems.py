import pytest

from rebalancer.policy.document import FileProblem, list_keys
from rebalancer.policy.model import Policy


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
