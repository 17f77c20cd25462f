"""Low utilisation: who gives, until when, as clusters whose answer a person can check."""

import pytest

from rebalancer.policy.protect import Protect
from rebalancer.testing.snapshots import node, workload
from strategies.utilisation import LowUtilisationParams
from tests.unit.planner.conftest import planned_draft

ONLY = {"strategies": ["low-utilisation"]}


def loaded(*tenths):
    """One node of 4 cpu per number, holding so many pods of a tenth of it, each of its own workload."""
    nodes = [node(f"n{i}", memory="64Gi") for i in range(len(tenths))]
    pods = [
        workload(f"w{i}-{k}", [f"n{i}"], cpu="400m")
        for i, count in enumerate(tenths)
        for k in range(count)
    ]
    return [*nodes, *(o for part in pods for o in part)]


def ends(objects, **params):
    """Pods of a tenth per node, once the plan is carried out as predicted."""
    draft = planned_draft(
        objects,
        **ONLY,
        params={"low-utilisation": LowUtilisationParams(**params)},
        protections=Protect(single_replicas=False),
    )
    return draft.state.lasting_count.tolist()


def test_a_node_that_joined_is_filled_until_it_is_not_far_below_the_others():
    # 30 points, 20 % to 50 %, are the most apart that the default leaves; the fullest gives first.
    assert sorted(ends(loaded(8, 8, 0))) == [4, 6, 6]


def test_with_a_gap_of_everything_it_is_filled_until_it_is_not_under_used():
    assert sorted(ends(loaded(8, 8, 0), gap=1.0)) == [3, 6, 7]


@pytest.mark.parametrize("tenths", [(7, 6, 5), (4, 4, 0), (5, 5, 2)])
def test_nothing_is_moved_where_no_node_is_over_used_or_none_far_below(tenths):
    assert ends(loaded(*tenths)) == list(tenths)


def test_an_over_used_node_gives_to_one_that_is_so_far_below():
    assert ends(loaded(8, 4), gap=0.4) == [7, 5]
    assert ends(loaded(8, 4), gap=0.41) == [8, 4]
