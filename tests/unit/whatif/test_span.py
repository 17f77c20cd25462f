"""Times from the least to the most."""

import numpy as np

from rebalancer.whatif.world import Span


def test_draws_stay_within_the_span_and_the_middle_is_no_draw():
    span = Span(2, 6)
    random = np.random.default_rng(0)
    drawn = [span.draw(random) for _ in range(200)]
    assert min(drawn) >= 2
    assert max(drawn) <= 6
    assert max(drawn) - min(drawn) > 3
    assert span.draw(None) == 4
    assert Span(3, 3).draw(random) == 3
