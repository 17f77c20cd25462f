from dataclasses import replace

import pytest
from pydantic import Field

from rebalancer.plan.plan import Backlog, Code, Cost, Explanation, Later, Plan, Score
from rebalancer.planner.planning import ClusterNow
from rebalancer.policy.load import load_policy
from rebalancer.policy.model import Mode
from rebalancer.policy.values import Params
from rebalancer.report.model import RunReport
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.unit.report.report_examples import outcome

POLICY = """\
apiVersion: rebalancer/v1
kind: Policy
mode: {mode}
strategies: {{anti-affinity: {{}}, low-utilisation: {{mode: observe}}}}
"""


class NoParams(Params):
    unused: bool = Field(default=False, description="Nothing.")


@pytest.fixture(scope="session")
def snapshot():
    zones = {"a1": "a", "a2": "a", "b1": "b", "c1": "c", "c2": "c", "c3": "c", "c4": "c", "c5": "c"}
    nodes = [node(f"node-{name}", f"zone-{zone}") for name, zone in zones.items()]
    return snapshot_of(
        [*nodes, *workload("web", ["node-a1", "node-a2", "node-b1"], namespace="shop")]
    )


@pytest.fixture(scope="session")
def policies(tmp_path_factory):
    """Mode -> loaded policy."""
    path = tmp_path_factory.mktemp("policies") / "policy.yaml"
    by_name = {}
    for mode in Mode:
        path.write_text(POLICY.format(mode=f"'{mode}'"))
        loaded = load_policy(path, {"anti-affinity": NoParams, "low-utilisation": NoParams})
        by_name[mode] = replace(loaded, source="policy.yaml")
    return by_name


@pytest.fixture(scope="session")
def report(snapshot, policies):
    """A report; moves and outcomes given or both empty, everything else with a default. ``now``: scores after a run."""

    def made(*, moves=(), outcomes=None, skips=(), mode="enforce", **more):
        left = Score(Cost(), 0)
        before = {
            "anti-affinity": Score(Cost(soft=1.0), 1) if moves else left,
            "low-utilisation": left,
        }
        explanation = Explanation(
            skips=tuple(skips),
            before=more.pop("before", before),
            after=more.pop("after", dict.fromkeys(before, left)),
            lower_bound=more.pop("lower_bound", len(moves)),
            unmet=more.pop("unmet", ()),
            stopped=more.pop("stopped", "After these moves every rule holds."),
            backlog=more.pop("backlog", Backlog()),
            funnel={
                "pods": 3,
                "movable": 3,
                "candidates": len(moves) + len(skips),
                "free": len(moves) + sum(skip.code is not Code.PROTECTED for skip in skips),
                **{skip.code.value: len(skips) for skip in skips},
                "moves": len(moves),
            },
        )
        plan = Plan(tuple(moves), Later(lambda: explanation))
        if (now := more.pop("now", None)) is not None:
            more["read_again"] = ClusterNow(
                more.pop("snapshot_now", snapshot), now, more.pop("unmet_now", ())
            )
        given = {
            "dry_run": outcomes is None,
            "source": "https://cluster.example:6443",
            "snapshot": snapshot,
            "loaded": policies[Mode(mode)],
            "plan": plan,
            "outcomes": tuple(map(outcome, moves)) if outcomes is None else tuple(outcomes),
        }
        return RunReport(**(given | more))

    return made
