"""Times from the least to the most."""

import numpy as np
import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.whatif.world import Span


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1", Span(1, 1)),
        ("0-20", Span(0, 20)),
        ("0.5-1.5", Span(0.5, 1.5)),
        ("5s-1m", Span(5, 60)),
        ("1m30s", Span(90, 90)),
    ],
)
def test_a_time_or_a_span_is_read(text, span):
    assert Span.parse(text, "--gone-after") == span


@pytest.mark.parametrize("text", ["", "x", "-1", "2-1", "1-", "0-3601", "nan", "1-2-3"])
def test_what_is_no_time_is_said_with_the_flag(text):
    with pytest.raises(PolicyError, match="--gone-after"):
        Span.parse(text, "--gone-after")


def test_draws_stay_within_the_span_and_the_middle_is_no_draw():
    span = Span(2, 6)
    random = np.random.default_rng(0)
    drawn = [span.draw(random) for _ in range(200)]
    assert min(drawn) >= 2
    assert max(drawn) <= 6
    assert max(drawn) - min(drawn) > 3
    assert span.draw(None) == 4
    assert Span(3, 3).draw(random) == 3
