"""Rules over a whole namespace: the terms are asked about each class only when its turn comes."""

import pytest

from rebalancer.planner.effort import Effort
from rebalancer.planner.settings import Settings
from rebalancer.testing.snapshots import ZONE, node, workload


def all_apart(owners):
    """Owners of four pods whose pods all repel each other over zones, none of them in the third zone."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"tier": "web"}}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    rule = {
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        }
    }
    nodes = [node(f"n{i}", "abc"[i % 3]) for i in range(9)]
    labels = [{"app": f"w{i}", "tier": "web"} for i in range(owners)]
    pods = [
        workload(f"w{i}", ["n0", "n1", "n3", "n4"], spec=rule, labels=labels[i])
        for i in range(owners)
    ]
    return [*nodes, *(o for part in pods for o in part)]


@pytest.mark.parametrize("many", [0, 10_000])
def test_what_is_asked_later_is_fixed_as_well(plan, monkeypatch, many):
    monkeypatch.setattr(Effort, "of", staticmethod(lambda _: Effort(related=many)))
    result = plan(all_apart(12), strategies=["anti-affinity"], settings=Settings(lifted=True))
    # 48 pods over three zones: 16 have to go to the third, and every move fixes one.
    assert len(result.moves) == result.lower_bound == 16
    assert result.after["anti-affinity"].cost.soft == 0
