"""Why a pod stays although a rule names it: the strongest reason, with its text."""

import numpy as np
import pytest

from rebalancer.plan.plan import Code
from rebalancer.planner.draft import Draft
from rebalancer.planner.problem import Problem
from rebalancer.planner.reasons import RefusedMove, skips_of
from rebalancer.planner.refusal import Refusal, Why, protection_code
from rebalancer.planner.settings import Settings
from rebalancer.policy.protect import Protect
from rebalancer.snapshot.protect import (
    GANG,
    JUST_SCALED,
    NOT_RECREATED,
    RESIZE_DEFERRED,
    Scope,
    protect,
)
from rebalancer.testing.snapshots import HOSTNAME, ZONE, disruption_budget, node, spread, workload
from tests.unit.planner.conftest import draft_of, plan_of, problem_of

N0 = 0
NODES = [node("n0"), node("n1")]
FULL = RefusedMove("duplicates", Refusal.of(Why.BUDGET, limit="n1 is full"))


EVEN_ZONES = spread("web", ZONE)["topologySpreadConstraints"]
EVEN_HOSTS = spread("web", HOSTNAME)["topologySpreadConstraints"]


def crowded(**more):
    """Two pods of web on n0, of which one has to go."""
    return [*NODES, *workload("web", ["n0", "n0"], **more)]


def skips(draft, refusal=FULL, pairs=None):
    """(pod, code, message) of each skip, all pairs on n0 being refused alike."""
    cls = int(draft.snapshot.pods.cls[0])
    skips = skips_of(draft, {(cls, N0): refusal}.get, {(cls, N0)} if pairs is None else pairs)
    return [(skip.pod, skip.code, skip.message) for skip in skips]


def test_a_refusal_is_said_of_each_pod_that_is_still_named():
    draft = draft_of(crowded(), strategies=["duplicates"])
    assert skips(draft) == [
        ("web-0", Code.BUDGET, "n1 is full"),
        ("web-1", Code.BUDGET, "n1 is full"),
    ]


def test_what_no_term_names_any_more_needs_no_reason():
    draft = draft_of([*NODES, *workload("web", ["n0", "n1"])], strategies=["duplicates"])
    assert skips(draft) == []


def test_what_was_not_looked_at_has_no_reason_yet():
    assert skips(draft_of(crowded(), strategies=["duplicates"]), pairs=set()) == []


def test_a_protection_is_a_stronger_reason_and_has_its_text():
    no = {"rebalancer/evict": "false"}
    draft = draft_of(crowded(annotations=no), strategies=["duplicates"])
    for _, code, message in skips(draft):
        assert code is Code.PROTECTED
        assert message.startswith("optedOut: ")


def test_so_are_two_disruption_budgets():
    both = [disruption_budget(name, "web", allowed=1) for name in ("one", "two")]
    draft = draft_of([*crowded(), *both], strategies=["duplicates"])
    assert {code for _, code, _ in skips(draft)} == {Code.PDB_CONFLICT}


def test_a_cool_down_says_until_when():
    problem = problem_of(crowded(), strategies=["duplicates"])
    cooling = {"Deployment/default/web": "until noon: it came back twice"}
    protected = protect(problem.snapshot, Protect(), Scope(cooling=cooling))
    cooled = Problem(problem.snapshot, problem.scheduler, problem.contributions, protected)
    draft = Draft(cooled, Settings(cooling=cooling))
    assert draft.protection_texts(0) == {"coolDown": "until noon: it came back twice"}
    assert not draft_of(crowded(), strategies=["duplicates"]).protection_texts(0)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["optedOut"], Code.PROTECTED),
        (["optedOut", NOT_RECREATED], Code.NOT_RECREATED),
        ([NOT_RECREATED], Code.NOT_RECREATED),
        (["young", JUST_SCALED], Code.JUST_SCALED),
        ([JUST_SCALED, NOT_RECREATED], Code.NOT_RECREATED),
        (["young", GANG], Code.GANG),
        ([RESIZE_DEFERRED, "optedOut"], Code.RESIZE_DEFERRED),
    ],
)
def test_some_protections_are_codes_of_their_own(names, code):
    assert protection_code(names) is code


def test_skips_are_in_the_order_of_names():
    draft = draft_of([*crowded(), *workload("app", ["n0", "n0"])], strategies=["duplicates"])
    pairs = {(cls, N0) for cls in np.unique(draft.snapshot.pods.cls).tolist()}
    skips = skips_of(draft, dict.fromkeys(pairs, FULL).get, pairs)
    assert [skip.pod for skip in skips] == ["app-0", "app-1", "web-0", "web-1"]


@pytest.mark.parametrize(
    ("spec", "better", "worse"),
    [
        (
            {"topologySpreadConstraints": [*EVEN_ZONES, *EVEN_HOSTS]},
            "Deployment/default/web over topology.kubernetes.io/zone (soft) (1 soft)",
            "Deployment/default/web over kubernetes.io/hostname (soft) (1 soft)",
        ),
        ({"topologySpreadConstraints": EVEN_HOSTS}, "", ""),
    ],
)
@pytest.mark.parametrize("steer", [False, True])
def test_a_trade_between_rules_of_one_strategy_names_both(spec, better, worse, steer):
    """Only n3 has room for one more: zone b would be even then, and n3 would have two."""
    nodes = [*(node(f"n{i}", "a", cpu="1") for i in range(3)), node("n3", "b")]
    pods = workload("web", ["n0", "n1", "n2", "n3"], cpu="1", spec=spec)
    plan = plan_of([*nodes, *pods], strategies=["topology-spread"], settings=Settings(steer=steer))
    assert plan.moves == ()
    said = {skip.message.removesuffix("; no marks would change that") for skip in plan.skips}
    trade = f"would land on n3 100%: better for {better}, worse for {worse}"
    assert said == ({trade} if better else set())
