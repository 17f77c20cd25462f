"""What each outcome means for the exit code and for the budgets over runs."""

import pytest

from rebalancer.plan.plan import Status


@pytest.mark.parametrize(
    ("status", "failure", "may_have_evicted"),
    [
        (Status.EVICTED, False, True),
        (Status.RESTARTED, False, True),
        (Status.REQUESTED, False, True),
        (Status.LOST, True, True),
        (Status.BLOCKED, False, False),
        (Status.CHANGED, False, False),
        (Status.GONE, False, False),
        (Status.MISCONFIGURED, True, False),
        (Status.REFUSED, True, False),
        (Status.FAILED, True, False),
        (Status.DROPPED, False, False),
        (Status.NOT_ATTEMPTED, False, False),
        (Status.OBSERVED, False, False),
        (Status.PLANNED, False, False),
    ],
)
def test_an_outcome_fails_a_run_or_uses_up_a_budget(status, failure, may_have_evicted):
    assert (status.is_failure, status.may_have_evicted) == (failure, may_have_evicted)


def test_the_words_are_stable():
    """Reports, metrics and the memory of earlier runs have them."""
    assert [status.value for status in Status] == [
        "evicted",
        "restarted",
        "requested",
        "blocked",
        "changed",
        "gone",
        "misconfigured",
        "refused",
        "failed",
        "lost",
        "dropped",
        "not-attempted",
        "observed",
        "planned",
    ]
