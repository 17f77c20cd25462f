"""What counts as a strike, how long an owner rests, and what starts it afresh."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Cause, Cost, Method, Status
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import History
from rebalancer.run.memory.document import FORGOTTEN_AFTER, Document, count_last_hour
from rebalancer.run.memory.remember import (
    FIRST_COOL_DOWN,
    STRIKES,
    describe_cooling,
    describe_resting,
    forget_stale,
    list_resting,
    remember,
    term_of,
    zones_of,
)
from rebalancer.testing.snapshots import node, snapshot_of, spread, workload
from tests.support.worlds import read_rules
from tests.unit.run.memory.outcomes import (
    NOW,
    TERM,
    WEB,
    badly,
    cluster,
    move,
    outcome,
    rests,
    well,
)

SNAPSHOT = cluster()


def after(*runs, document=None, snapshot=SNAPSHOT):
    """The document after runs, one minute apart; each is a list of outcomes."""
    document = document or Document()
    for index, outcomes in enumerate(runs):
        document = remember(document, snapshot, outcomes, NOW + 60 * index)
    return document


def of_web(document):
    return document.owners[WEB].terms[TERM]


def test_a_move_that_went_as_predicted_leaves_no_cool_down():
    document = after([well()])
    assert of_web(document).moves == of_web(document).as_predicted == 1
    assert of_web(document).trail == (("n0", "n1"),)
    assert rests(document, NOW) == {}


@pytest.mark.parametrize(
    ("outcome_of_move", "why"),
    [
        (badly(), "web-0 came back to n0"),
        (outcome(landed="n9", predicted=False), "web-0 landed on n9 instead of, say, n1"),
        (outcome(Status.BLOCKED, message="db/keep allows none"), "web-0: db/keep allows none"),
        (outcome(Status.MISCONFIGURED, message="two of them"), "web-0: two of them"),
    ],
)
def test_what_did_not_do_as_predicted_rests_and_says_until_when_and_why(outcome_of_move, why):
    document = after([outcome_of_move])
    assert of_web(document).until == NOW + FIRST_COOL_DOWN
    said = rests(document, NOW + FIRST_COOL_DOWN - 1)
    assert said == {WEB: f"{TERM} cools down until 2027-01-15T08:10:00Z: {why}"}
    assert rests(document, NOW + FIRST_COOL_DOWN) == {}


@pytest.mark.parametrize(
    "said",
    [
        "HTTP 403: admission webhook freeze denied the request: no",
        "HTTP 500: Internal error occurred: failed calling webhook freeze: no route",
    ],
)
def test_what_admission_stops_is_tried_again_after_the_first_cool_down_and_never_given_up(said):
    document = Document()
    for run in range(2 * STRIKES):
        now = NOW + run * FIRST_COOL_DOWN
        assert rests(document, now) == {}
        document = remember(document, SNAPSHOT, [outcome(Status.FAILED, message=said)], now)
        assert rests(document, now + 60)[WEB].endswith(f"web-0: {said}")
    assert of_web(document).strikes == 0


DENIED = outcome(Status.FAILED, message="HTTP 422: policy p with binding b denied request: no")


def test_a_denial_changes_nothing_of_what_is_known_of_a_prediction():
    document = after([badly()], [badly()], [well(), DENIED])
    assert (of_web(document).strikes, of_web(document).as_predicted) == (0, 1)
    longer = after([badly()], [badly()], [badly()])
    denied = remember(longer, SNAPSHOT, [DENIED], NOW + 180)
    assert of_web(denied) == of_web(longer)
    given_up = after(*[[badly()]] * STRIKES)
    assert of_web(remember(given_up, SNAPSHOT, [DENIED], NOW + 400)) == of_web(given_up)


def test_other_refusals_are_no_denial():
    conflict = outcome(Status.FAILED, message="HTTP 409: the object has been modified")
    assert after([conflict]) == Document()


def test_a_landing_outside_an_incomplete_list_says_nothing_against_the_prediction():
    listed = (("n1", 0.3), ("n2", 0.3))
    document = after([outcome(landed="n9", predicted=False, landings=listed)])
    assert rests(document, NOW) == {}
    assert of_web(document).strikes == 0


def test_a_replica_that_goes_back_where_an_earlier_move_came_from_is_a_strike():
    there = well(source="n0")
    back = outcome(landed="n0", source="n1", pod="web-1", landings=(("n0", 1.0),))
    document = after([there], [back])
    assert of_web(document).came_back == 1
    assert "where an earlier move came from" in rests(document, NOW + 60)[WEB]


@pytest.mark.parametrize(
    "status",
    [
        Status.CHANGED,
        Status.GONE,
        Status.DROPPED,
        Status.NOT_ATTEMPTED,
        Status.OBSERVED,
        Status.PLANNED,
        Status.FAILED,
        Status.REFUSED,
    ],
)
def test_what_says_nothing_about_a_workload_is_not_remembered(status):
    assert after([outcome(status)]) == Document()


def test_a_landing_not_seen_is_an_eviction_and_no_strike():
    document = after([outcome(landed=None)])
    assert of_web(document).moves == 1
    assert of_web(document).strikes == 0
    assert count_last_hour(document, NOW) == 1


def test_cool_downs_double_and_end_in_giving_up_with_the_reason():
    document = Document()
    for strike in range(1, STRIKES):
        document = remember(document, SNAPSHOT, [badly()], NOW)
        assert of_web(document).until - NOW == FIRST_COOL_DOWN * 2 ** (strike - 1)
    document = remember(document, SNAPSHOT, [badly()], NOW)
    said = rests(document, NOW + 86_400)[WEB]
    assert "given up until its spec or the zones change" in said
    assert f"{STRIKES} runs in a row" in said
    assert "came back to n0" in said
    assert rests(document, NOW + FORGOTTEN_AFTER + 1) == {}


def test_one_run_is_one_try_however_many_moves_it_made():
    document = after([badly(pod=f"web-{i}") for i in range(10)])
    assert of_web(document).strikes == 1
    assert of_web(document).came_back == 10


def test_one_failure_among_successes_is_still_a_strike():
    assert of_web(after([well(), badly(pod="web-1"), well(pod="web-2")])).strikes == 1


def test_success_ends_the_back_off():
    document = after([badly()], [badly()], [well()], [badly()])
    assert of_web(document).strikes == 1


def test_terms_are_kept_apart_by_strategy_and_deciding_entry():
    hard = move(gain=Cost(1.0, 0.0, 0.0))
    assert term_of(hard) == "topology-spread/hard"
    assert term_of(move()) == "topology-spread/soft"
    document = after([badly(), replace(well(), move=hard)])
    terms = document.owners[WEB].terms
    assert {name: term.strikes for name, term in terms.items()} == {
        "topology-spread/hard": 0,
        "topology-spread/soft": 1,
    }


def renewed(snapshot, **changes):
    owners = [replace(owner, **changes) if owner.ref == WEB else owner for owner in snapshot.owners]
    return replace(snapshot, owners=tuple(owners))


@pytest.mark.parametrize(
    "changed",
    [renewed(SNAPSHOT, fingerprint="other/2"), cluster(zones="abc"), cluster(zones="aa")],
    ids=["spec", "a zone joins", "a zone is lost"],
)
def test_a_changed_spec_or_zone_set_starts_afresh(changed):
    document = after([badly()])
    assert rests(forget_stale(document, changed), NOW) == {}
    assert WEB in rests(forget_stale(document, SNAPSHOT), NOW)


def of_three(generation, replicas=3, **more):
    """Like SNAPSHOT, but ``web`` has its controller's next generation."""
    objects = [node(f"n{i}", zone) for i, zone in enumerate("ab")]
    web = workload("web", ["n0", "n1", "n1"][:replicas], **more)
    for item in web:
        item["metadata"]["generation"] = generation
    return snapshot_of([*objects, *web], now=NOW)


def test_a_workload_that_an_autoscaler_scales_keeps_its_memory():
    document = after([badly()], snapshot=of_three(1, replicas=2))
    assert WEB in rests(forget_stale(document, of_three(2)), NOW)


@pytest.mark.parametrize(
    "more",
    [{"cpu": "200m"}, {"spec": spread("web")}, {"labels": {"app": "web", "tier": "front"}}],
    ids=["requests", "a constraint", "a label"],
)
def test_a_workload_whose_pods_ask_for_something_else_starts_afresh(more):
    document = after([badly()], snapshot=of_three(1))
    assert rests(forget_stale(document, of_three(2, **more)), NOW) == {}


def test_only_the_changed_owner_is_forgotten_and_outcomes_start_again():
    document = after([badly(), badly(owner="Deployment/default/api")])
    changed = renewed(SNAPSHOT, fingerprint="other/2")
    assert set(forget_stale(document, changed).owners) == {"Deployment/default/api"}
    assert of_web(remember(document, changed, [badly()], NOW)).strikes == 1


def test_an_owner_scaled_to_nothing_is_kept_until_it_is_old():
    document = after([badly()])
    gone = cluster(names=("api",))
    assert WEB in forget_stale(document, gone).owners
    later = replace(gone, captured_at=NOW + FORGOTTEN_AFTER + 1)
    assert forget_stale(document, later).owners == {}


def test_the_zone_set_is_a_set():
    assert zones_of(cluster(zones="abab")) == zones_of(cluster(zones="ba"))
    assert zones_of(cluster(zones="ab")) != zones_of(cluster(zones="ac"))


def test_a_cool_down_written_under_a_wrong_clock_does_not_last():
    document = remember(Document(), SNAPSHOT, [badly()], NOW + 10 * 365 * 86_400)
    assert rests(document, NOW) == {}


def test_the_tally_is_of_one_rolling_hour():
    document = after([well(pod="web-0"), well(pod="web-1")])
    document = remember(document, SNAPSHOT, [outcome(Status.LOST)], NOW + 1800)
    assert count_last_hour(document, NOW + 1800) == 3
    assert count_last_hour(document, NOW + 3700) == 1
    assert count_last_hour(document, NOW + 7200) == 0


def test_a_tally_from_the_future_does_not_use_up_the_budget_for_ever():
    document = remember(Document(), SNAPSHOT, [well()], NOW + 86_400)
    assert count_last_hour(document, NOW) == 0


@given(st.lists(st.lists(st.sampled_from([well(), badly(), outcome(landed=None)]), max_size=3)))
def test_whatever_happens_patience_is_bounded_and_counts_add_up(runs):
    document = after(*runs)
    if WEB not in document.owners:
        return
    term = of_web(document)
    assert term.moves == sum(len(run) for run in runs)
    assert term.strikes >= 0
    assert bool(term.given_up) == (term.strikes >= STRIKES)
    assert term.until <= NOW + 60 * len(runs) + FIRST_COOL_DOWN * 2 ** (STRIKES - 2)
    assert len(term.trail) <= 4
    assert remember(document, SNAPSHOT, [], NOW).owners == document.owners


def sick(pod="web-0", **given):
    """A pod that went for its own state; its replacement landed on the same node."""
    landed = outcome(pod=pod, landings=(("n0", 0.6), ("n1", 0.4)), landed="n0", **given)
    return replace(landed, move=replace(landed.move, cause=Cause.STATE))


def of_age(seconds, at):
    """The snapshot at a time, with pods so old."""
    taken = replace(SNAPSHOT, captured_at=at)
    created = np.full(len(taken.pods), at - seconds)
    return replace(taken, pods=replace(taken.pods, created=created))


def test_a_pod_replaced_for_its_state_or_age_may_land_where_it_was():
    document = after([sick()])
    assert of_web(document).as_predicted == 1
    aged = outcome(landed="n0")
    document = after([replace(aged, move=replace(aged.move, cause=Cause.AGE))])
    assert rests(document, NOW) == {}


def test_replacements_that_fare_no_better_rest_longer_and_longer_and_are_given_up():
    document, at = Document(), NOW
    rests: list[float] = []
    for _ in range(STRIKES + 1):
        # Each pod is as old as the time since the last was evicted: it is its replacement.
        age = rests[-1] + 400 if rests else 86_400
        document = remember(document, of_age(age, at), [sick()], at)
        rests.append(max(0, of_web(document).until - at))
        at += rests[-1] + 400
    assert rests == [0, 600, 1200, 2400, 4800, 9600, 0]
    assert "fared no better" in describe_cooling(document, at)[WEB]
    assert of_web(document).given_up


@pytest.mark.parametrize(
    ("later", "method", "cause", "struck"),
    [
        (60, Method.RESTART, Cause.PLACE, True),
        (90_000, Method.RESTART, Cause.PLACE, False),
        (60, Method.RESTART, Cause.AGE, False),
        (60, Method.EVICT, Cause.PLACE, False),
    ],
)
def test_a_restart_that_was_undone_is_a_strike(later, method, cause, struck):
    """The only replica is where the first restart took it from: a tool has reset the Deployment's template, say."""
    status = Status.RESTARTED if method is Method.RESTART else Status.EVICTED
    first = replace(well(), status=status, move=replace(move(), method=method, cause=cause))
    document = remember(Document(), SNAPSHOT, [first], NOW)
    document = remember(document, SNAPSHOT, [first], NOW + later)
    why = "web-0 went from n0 to n1 once more: what undid the first restart may do so again"
    assert [said.partition("Z: ")[2] for said in rests(document, NOW + later).values()] == [
        why
    ] * struck


def test_pods_that_were_there_before_the_first_went_are_no_replacements():
    document = remember(Document(), of_age(7200, NOW), [sick()], NOW)
    document = remember(document, of_age(7320, NOW + 120), [sick("web-1")], NOW + 120)
    assert rests(document, NOW + 121) == {}


def test_a_replacement_that_fared_well_for_a_day_is_no_strike():
    document = remember(Document(), of_age(7200, NOW), [sick()], NOW)
    later = NOW + 90_000
    document = remember(document, of_age(89_000, later), [sick()], later)
    assert rests(document, later) == {}


def test_a_lifetime_of_minutes_is_no_reason_to_rest():
    document, at = Document(), NOW
    for _ in range(5):
        aged = outcome(landed="n0")
        aged = replace(aged, move=replace(aged.move, cause=Cause.AGE))
        document = remember(document, of_age(600, at), [aged], at)
        at += 600
    assert rests(document, at) == {}


def test_a_replacement_that_stayed_where_its_victim_was_holds_back_its_strategy_alone():
    document = after([badly()])
    assert describe_cooling(document, NOW + 1) == {}
    assert list(describe_resting(document, NOW + 1)) == ["topology-spread"]
    assert list_resting(document, NOW + 1) == [WEB]
    elsewhere = outcome(landed="n9", predicted=False, pod="web-1")
    # Something else went wrong in the same run, or in a later one.
    for mixed in (after([badly(), elsewhere]), after([badly()], [elsewhere])):
        assert list(describe_cooling(mixed, NOW + 61)) == [WEB]
        assert describe_resting(mixed, NOW + 61) == {}


@pytest.mark.parametrize(
    ("more", "lifted"),
    [
        ((), False),
        ((node("n2", "a"),), True),
        # It takes no pods of this workload.
        ((node("n2", "a", unschedulable=True),), False),
        ((node("n2", "a", cpu="1m"),), False),
    ],
)
def test_more_nodes_for_the_workload_lift_that(more, lifted):
    document = after([badly()])
    assert (rests(forget_stale(document, cluster(*more)), NOW + 1) == {}) is lifted
    # How often it went wrong is not forgotten.
    assert of_web(forget_stale(document, cluster(*more))).strikes == 1


def test_one_strategy_rests_and_the_others_go_on():
    nodes = [node("n0", "a"), node("n1", "a"), node("n2", "b")]
    web = workload("web", ["n0", "n0"], spec=spread("web"))
    text = "strategies: {duplicates: {}, topology-spread: {}}"
    rules = read_rules(text)
    for resting in ("duplicates", "topology-spread"):
        history = History(resting={resting: {WEB: "it came back"}})
        made = make_plan(
            rules, snapshot_of([*nodes, *web]), Timings(SystemClock()), history=history
        )
        assert resting not in {move.strategy for move in made.plan.moves}
        assert made.plan.moves
    both = History(resting={name: {WEB: "why"} for name in ("duplicates", "topology-spread")})
    made = make_plan(rules, snapshot_of([*nodes, *web]), Timings(SystemClock()), history=both)
    assert made.plan.moves == ()
    assert {skip.message for skip in made.plan.skips} == {"coolDown: why"}
