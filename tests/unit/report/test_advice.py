import itertools
import re
from dataclasses import replace

import pytest

from rebalancer.plan.plan import NEVER_ALLOWS, Code, UnmetRule
from rebalancer.policy.model import Eagerness, Steer
from rebalancer.report.plan_file import ReviewedPlan
from rebalancer.report.skips import next_steps
from rebalancer.snapshot.protect import NAMES
from tests.unit.report.report_examples import move, skip

WITH_CODES_OF_THEIR_OWN = {"notRecreated", "justScaled", "gang", "resizeDeferred"}
YOUNG = "young: younger than protect.minPodAge"


def test_young_pods_are_named_with_the_key_that_shows_the_plan(report):
    skips = [skip(f"web-{i}", Code.PROTECTED, YOUNG, holders=("young",)) for i in range(93)]
    (step,) = next_steps(report(skips=skips, outcomes=[]))
    assert step.startswith("93 pods are younger than protect.minPodAge 5m: wait, or")
    assert step.endswith("`rebalancer plan --set protect.minPodAge=0s` shows the plan now.")


def test_what_holds_a_young_pod_besides_is_what_is_named(report):
    text = "young, volumes: younger than protect.minPodAge; uses"
    skips = [skip("web-0", Code.PROTECTED, text, holders=("young", "volumes"))]
    (step,) = next_steps(report(skips=skips, outcomes=[]))
    assert step == "1 pod (volumes): `protect: {volumes: false}` lets them move."


def test_the_most_frequent_causes_come_first_and_four_at_most(report):
    codes = [Code.NO_ROOM, Code.PDB, Code.BUDGET, Code.QUOTA, Code.WINDOW]
    skips = [
        skip(f"p{number}-{i}", code) for number, code in enumerate(codes) for i in range(number + 1)
    ]
    steps = next_steps(report(skips=skips, outcomes=[]))
    assert [step.partition(" (")[0] for step in steps] == ["5 pods", "4 pods", "3 pods", "2 pods"]


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITH_CODES_OF_THEIR_OWN))
def test_every_protection_has_its_own_advice(report, name):
    held = skip("a", Code.PROTECTED, f"{name}: why", holders=(name,))
    (step,) = next_steps(report(skips=[held], outcomes=[]))
    assert "protection's key" not in step


@pytest.mark.parametrize("code", Code)
def test_every_code_has_its_advice_under_every_policy(report, code):
    given = report(skips=[skip("a", code)], outcomes=[])
    for eagerness, steer in itertools.product(Eagerness, Steer):
        policy = given.loaded.policy.model_copy(update={"eagerness": eagerness, "steer": steer})
        (step,) = next_steps(replace(given, loaded=replace(given.loaded, policy=policy)))
        assert re.fullmatch(r"1 pod \(.+?\): .{20,}\.", step)
        assert "{" not in step or "protect: {" in step
        assert not (steer is Steer.MARKS and "`steer: marks`" in step)
        assert f"eagerness={eagerness}" not in step


def test_what_the_eagerness_declines_is_followed_by_the_next_level_and_by_marks(report):
    (step,) = next_steps(report(skips=[skip("a", Code.UNSURE)], outcomes=[]))
    assert "`rebalancer plan --set eagerness=steady` shows it" in step
    assert "`steer: marks` can make the right node win" in step


def test_where_nothing_would_improve_marks_are_named_and_where_to_look(report):
    given = report(skips=[skip("a", Code.NO_GAIN)], outcomes=[])
    (step,) = next_steps(given)
    assert step.startswith("1 pod (NoGain): `steer: marks` can make the right node win, for rules")
    assert "; `rebalancer explain pod NAMESPACE/NAME` shows" in step


def test_rules_without_pods_that_stay_have_advice_too(report):
    rule = UnmetRule("x", "Deployment/shop/web", "Deployment/shop/web", {"MovedNow": 0}, "why")
    (step,) = next_steps(report(unmet=(rule,), outcomes=[]))
    assert step == "1 rule (MovedNow): the next run looks at them where they have landed."


def test_where_the_scheduler_would_put_pods_back_marks_are_named_unless_they_are_on(report):
    given = report(skips=[skip("a", Code.COMES_BACK)], outcomes=[])
    (step,) = next_steps(given)
    assert step.startswith(
        "1 pod (ComesBack): `steer: marks` can make the right node win, for rules"
    )
    steered = given.loaded.policy.model_copy(update={"steer": Steer.MARKS})
    (step,) = next_steps(replace(given, loaded=replace(given.loaded, policy=steered)))
    assert "steer" not in step


@pytest.mark.parametrize(
    ("mode", "more", "says"),
    [
        ("enforce", {}, "On the cluster, `rebalancer run` carries the plan out"),
        ("observe", {}, "`mode: enforce` in the policy"),
        (
            "enforce",
            {"standstill": ("x",)},
            "Nothing is moved until the cluster is as it should be",
        ),
    ],
)
def test_a_plan_is_followed_by_how_to_carry_it_out(report, mode, more, says):
    (step,) = next_steps(report(moves=[move()], mode=mode, **more))
    assert step.startswith(says)


@pytest.mark.parametrize(("standstill", "steps"), [((), 0), (("x",), 1)])
def test_before_the_question_no_step_names_the_command_that_asks_it(report, standstill, steps):
    given = report(moves=[move()], mode="enforce", standstill=standstill)
    said = next_steps(replace(given, asks=True))
    assert len(said) == steps
    assert not any("carries" in step for step in said)


def test_a_reviewed_plan_is_carried_out_by_apply(report):
    reviewed = ReviewedPlan(
        name="plan.json",
        captured_at=0.0,
        source="https://api",
        policy_hash="hash",
        policy_source="policy.yaml",
        moves=(move(),),
    )
    (step,) = next_steps(replace(report(moves=[move()], mode="enforce"), reviewed=reviewed))
    assert step == "`rebalancer apply` without `--dry-run` carries out what is left of the plan."


def test_a_run_that_has_acted_does_not_say_how_to_act(report):
    assert next_steps(report(moves=[move()], dry_run=False)) == ()


def test_a_disruption_budget_that_never_allows_anything_is_named_as_such(report):
    never = f"default/pdb {NEVER_ALLOWS}: of 3 pods 3 have to be healthy"
    skips = [skip(f"web-{i}", Code.PDB, never, holders=("default/pdb",)) for i in range(3)]
    skips.append(skip("api-0", Code.PDB, "default/api allows no disruption (2 healthy, 2 desired)"))
    first, second = next_steps(report(skips=skips, outcomes=[]))
    assert first == (
        "3 pods (never-satisfiable): PodDisruptionBudget default/pdb can never allow an eviction:"
        " change it, add replicas, or see `method: {unevictable: restart}`."
    )
    assert second.startswith("1 pod (PodDisruptionBudget): they can move once")


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (["rebalancer/evict"], "`rebalancer/evict`"),
        (["descheduler.alpha.kubernetes.io/evict"], "`descheduler.alpha.kubernetes.io/evict`"),
        (
            ["rebalancer/evict", "descheduler.alpha.kubernetes.io/evict"],
            "`rebalancer/evict` or `descheduler.alpha.kubernetes.io/evict`",
        ),
    ],
)
def test_the_annotation_is_named_that_is_there(report, keys, named):
    skips = [
        skip(
            f"web-{i}", Code.PROTECTED, f'optedOut: annotated {key}: "false"', holders=("optedOut",)
        )
        for i, key in enumerate(keys)
    ]
    (step,) = next_steps(report(skips=skips, outcomes=[]))
    assert f"the annotation {named} on them" in step
