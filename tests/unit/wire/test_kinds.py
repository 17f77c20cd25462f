"""The table of kinds, against what is printed and made of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rebalancer.snapshot.build import Fold
from rebalancer.wire.kinds import IN_SNAPSHOTS, KUBECTL_GET, POD_METRICS, PODS

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"


def test_the_line_for_kubectl_on_the_page_asks_for_all_that_a_plan_needs():
    assert f"\n{KUBECTL_GET} > cluster.json\n" in PAGE.read_text()


class Asked(dict[str, tuple[Any, ...]]):
    """Objects by kind, which keep what was asked for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.kinds = {PODS.kind, POD_METRICS.kind}
        """Those that a fold keeps in columns of their own."""

    def get(self, kind: str, default: Any = None) -> Any:
        self.kinds.add(kind)
        return super().get(kind, default)


def test_a_snapshot_is_made_of_every_kind_that_it_may_hold():
    objects = Asked({one.kind: () for one in IN_SNAPSHOTS})
    replace(Fold().settle(), objects=objects).snapshot(captured_at=0.0, version=(1, 36))
    assert objects.kinds == {one.kind for one in IN_SNAPSHOTS}
