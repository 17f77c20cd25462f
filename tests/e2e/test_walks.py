"""Pages that are walks say what their commands print: each is run from its first line to its last."""

import pytest

from tests.docs.pages import ROOT
from tests.docs.walk import WALKS, mask, steps_of, terminal, walk


@pytest.mark.parametrize("page", WALKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_walk_prints_what_its_page_says(cluster, tmp_path, page):
    steps = steps_of(page.read_text(encoding="utf-8"))
    with terminal(cluster, tmp_path) as environ:
        printed = list(walk(steps, environ))
    for step, text in zip(steps, printed, strict=True):
        said = mask(step, text)
        assert said == mask(step, step.shown), f"out of date: make docs-walk\n{text}"
