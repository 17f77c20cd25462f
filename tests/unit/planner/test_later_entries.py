"""Entries of the cost are compared left to right: what a later one gains is no success in an earlier one."""

from rebalancer.plan.plan import Code
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Eagerness
from rebalancer.testing.snapshots import ZONE, node, spread, workload

PINNED = {"rebalancer/evict": "false"}


def web(*nodes):
    # Its own constraint switches the default spreading over hosts off: only load decides.
    return workload("web", nodes, cpu="400m", spec=spread("web", ZONE))


def heavy(name, on, cpu):
    return workload(name, [on, on], cpu=cpu, annotations=PINNED)


def test_evenness_is_not_bought_with_a_duplicate(plan):
    # n0 is over-used, n1 nearly empty, and holds web's other replica: nothing was wrong with web so far.
    nodes = [node(f"n{i}", "a") for i in range(3)]
    objects = [*nodes, *web("n0", "n1"), *heavy("db", "n0", "1200m"), *heavy("ml", "n2", "900m")]
    alone = plan(objects, strategies=["low-utilisation"])
    assert [(m.pod, m.landings[0].node) for m in alone.moves] == [("web-0", "n1")]
    assert plan(objects, strategies=["low-utilisation", "duplicates"]).moves == ()


def test_a_landing_that_is_only_more_even_does_not_make_fixing_a_rule_surer(plan):
    # Of two equally empty nodes one holds a replica: half of the landings fix nothing.
    nodes = [node(f"n{i}", "a") for i in range(3)]
    rest = [*heavy("db", "n0", "600m"), *workload("side", ["n2"], cpu="400m", annotations=PINNED)]
    objects = [*nodes, *web("n0", "n0", "n1"), *rest]
    result = plan(
        objects,
        strategies=["low-utilisation", "duplicates"],
        settings=Settings(eagerness=Eagerness.TIMID),
    )
    assert result.moves == ()
    skips = [skip for skip in result.skips if skip.pod.startswith("web")]
    assert {skip.code for skip in skips} == {Code.UNSURE}
    assert "better in 50% of its landings" in skips[0].message
