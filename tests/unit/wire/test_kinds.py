"""The table of kinds, against what is printed of it."""

from pathlib import Path

from rebalancer.wire.kinds import KUBECTL_GET

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"


def test_the_line_for_kubectl_on_the_page_asks_for_all_that_a_plan_needs():
    assert f"\n{KUBECTL_GET} > cluster.json\n" in PAGE.read_text()
