"""Low utilisation by measured use: who gives, and after how many runs, as clusters a person can check."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rebalancer.cost.streaks import Streaks
from rebalancer.plan.plan import Code
from rebalancer.planner.plan import plan as plan_on
from rebalancer.planner.settings import Settings
from rebalancer.policy.protect import Protect
from rebalancer.testing.snapshots import node, snapshot_of, with_usage, workload
from strategies.utilisation import LowUtilisationParams
from tests.unit.planner.conftest import planned_draft, problem_of

GIB = 2**30
AT = 1_800_000_000.0


def cluster(*uses, requested=(), unknown=(), at=AT):
    """One node of 4 cpu and 64 GiB for each of ``uses``: what its pods, one per entry, use in tenths of its cpu.

    ``requested``: the same for what they request, a quarter of a tenth if it is not given.
    """
    objects = [node(f"n{i}", memory="64Gi") for i in range(len(uses))]
    used = {}
    for i, tenths in enumerate(uses):
        asked = requested[i] if requested else [0.25] * len(tenths)
        for k, (share, request) in enumerate(zip(tenths, asked, strict=True)):
            name = f"w{i}-{k}"
            objects += workload(name, [f"n{i}"], cpu=f"{round(400 * request)}m", memory="16Mi")
            used[name] = (round(400 * share), GIB)
    return with_usage(snapshot_of(objects), used, unknown=unknown, at=at)


def even(*counts, **options):
    """So many pods on each node that use a tenth of it each."""
    return cluster(*([1.0] * count for count in counts), **options)


def decided(snapshot, streaks=None, **params):
    """The decision on a snapshot: plan and streaks."""
    problem = problem_of(snapshot, **options_of(streaks, **params))
    return plan_on(problem, Settings())


def planned(snapshot, streaks=None, **params):
    """The plan on a snapshot."""
    return decided(snapshot, streaks, **params).plan


def options_of(streaks=None, **params):
    chosen = LowUtilisationParams(**{"signal": "usage", "runs": 1, **params})
    return {
        "strategies": ["low-utilisation"],
        "params": {"low-utilisation": chosen},
        "protections": Protect(single_replicas=False),
        "streaks": streaks,
    }


def ends(snapshot, streaks=None, **params):
    """Pods per node, once the plan is carried out as predicted."""
    return planned_draft(snapshot, **options_of(streaks, **params)).state.lasting_count.tolist()


# -- what counts -------------------------------------------------------------------------------------------


def test_a_node_that_is_over_used_gives_however_little_is_requested_there():
    assert ends(even(8, 8, 0), signal="requests") == [8, 8, 0]
    assert sorted(ends(even(8, 8, 0))) == [4, 6, 6]
    assert sorted(ends(even(8, 8, 0), signal="larger")) == [4, 6, 6]


def test_a_node_of_which_only_much_is_requested_gives_by_requests_alone():
    tenths = [1.0] * 8
    idle = cluster([0.01] * 8, [0.01] * 8, [], requested=(tenths, tenths, ()))
    assert ends(idle) == [8, 8, 0]
    assert sorted(ends(idle, signal="larger")) == [4, 6, 6]
    assert ends(idle, signal="requests") == ends(idle, signal="larger")


def test_by_the_larger_a_node_invites_only_if_it_is_low_in_both():
    # n1 is used, n2 is asked for: neither is a place for what n0 has too much of.
    snapshot = cluster(
        [1.0] * 8, [1.0] * 7, [0.01] * 7, requested=([0.25] * 8, [0.01] * 7, [1.0] * 7)
    )
    assert ends(snapshot, signal="larger") == [8, 7, 7]


def test_pods_count_whatever_the_signal():
    crowded = with_usage(
        snapshot_of(
            [
                *(node(f"n{i}", pods=10) for i in range(2)),
                *(o for k in range(8) for o in workload(f"w{k}", ["n0"], cpu="1m")),
            ]
        )
    )
    assert sorted(ends(crowded, runs=1)) == [3, 5]
    # What is no measurement need not last, and is seen in one run.
    assert sorted(ends(crowded, Streaks(), runs=3)) == [3, 5]


def test_an_overload_is_not_carried_to_where_the_scheduler_sees_room_but_work_is_done():
    # It places by requests: n1, which is as busy as n0, looks emptier to it than n2.
    busy = cluster([1.0] * 8, [8.0], [0.01], requested=([0.25] * 8, [0.01], [1.5]))
    plan = planned(busy)
    assert plan.moves == ()
    of_first = [skip for skip in plan.skips if skip.node == "n0"]
    assert {skip.code for skip in of_first} == {Code.OVERLOAD_MOVES}
    assert "would land on n1 100%: that only moves the overload" in of_first[0].message


def test_the_reason_names_what_was_measured_and_what_is_requested():
    def reasons(snapshot, **params):
        return {move.reason for move in planned(snapshot, **params).moves[:1]}

    assert reasons(even(8, 0)) == {"node n0: cpu 80% used (over 50%)"}
    full = cluster([1.0] * 8, [], requested=([1.2] * 8, ()))
    assert reasons(full, signal="larger") == {"node n0: cpu 96% requested (over 50%)"}
    assert reasons(full, signal="requests") == {"node n0: cpu 96% requested (over 50%)"}


# -- what is not known -------------------------------------------------------------------------------------


def test_a_node_that_is_not_measured_neither_gives_nor_invites():
    assert ends(even(8, 0, unknown=["n0"])) == [8, 0]
    assert ends(even(8, 0, unknown=["n1"])) == [8, 0]
    assert ends(even(8, 0, 8, 0, unknown=["n2"]))[2] == 8


def test_nodes_that_are_not_measured_are_named():
    def warnings(signal, unknown):
        snapshot = even(1, 1, 1, 1, 1, 1, unknown=unknown)
        return planned(snapshot, signal=signal).warnings

    assert warnings("usage", ()) == ()
    (line,) = warnings("usage", ["n2"])
    assert line.endswith(
        "1 of 6 nodes are not measured (n2): they neither give pods nor invite them"
    )
    (line,) = warnings("larger", ["n0", "n1", "n2", "n3", "n4"])
    assert line.endswith(
        "5 of 6 nodes are not measured (n0, n1, n2 and 2 more): they count by requests"
    )


def as_measured(snapshot, **columns):
    return replace(snapshot, usage=replace(snapshot.usage, **columns))


def test_a_node_that_is_not_measured_is_named_with_the_reason_if_there_is_one():
    some = even(1, 1, 1, unknown=["n1", "n2"])
    (line,) = planned(as_measured(some, why_unknown={"n1": "cpu is NaN"})).warnings
    assert "2 of 3 nodes are not measured (n1: cpu is NaN, n2): they neither give" in line


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"why_unknown": {"n1": "2 samples of cpu", "n0": "cpu is NaN"}}, "known: n0: cpu is NaN"),
        ({"others": ("10.0.0.1:9100",)}, "what was measured is of others (10.0.0.1:9100)"),
        ({}, "metrics.k8s.io (metrics-server serves it), or the policy's usage.prometheus"),
    ],
)
def test_where_no_node_is_known_the_report_says_why(columns, why):
    plan = planned(as_measured(even(8, 0, unknown=["n0", "n1"]), **columns))
    assert plan.moves == ()
    assert any(why in line for line in plan.warnings), plan.warnings


def test_what_no_query_asks_for_counts_by_requests():
    tenths = [1.0] * 8
    idle = cluster([0.01] * 8, [], requested=(tenths, ()))
    assert ends(idle) == [8, 0]
    memory_only = as_measured(idle, measured=(False, True))
    assert ends(memory_only) == [5, 3]
    (line,) = planned(memory_only, under={"cpu": 0.2}, over={"cpu": 0.5}).warnings
    assert line.endswith("cpu: not measured, counts by requests")


def test_by_the_larger_a_node_that_is_not_measured_counts_by_requests():
    asked = ([1.0] * 8, ())
    assert ends(cluster([1.0] * 8, [], requested=asked, unknown=["n0"]), signal="larger") == [5, 3]
    assert ends(even(8, 0, unknown=["n0"]), signal="larger") == [8, 0]


def test_the_mean_is_of_the_nodes_that_were_measured():
    # 80 % and 20 %: 50 % in the mean, the third node being unknown rather than empty.
    snapshot = even(8, 2, 0, unknown=["n2"])
    assert ends(snapshot, deviation=True, under={"cpu": 0.2}, over={"cpu": 0.2})[0] == 7


@pytest.mark.parametrize("signal", ["usage", "larger"])
@pytest.mark.parametrize("unknown", [("n0", "n1"), None])
def test_where_nothing_is_measured_nothing_is_moved_and_one_line_says_why(signal, unknown):
    asked = ([1.0] * 8, ())
    snapshot = cluster([1.0] * 8, [], requested=asked, unknown=unknown or ())
    if unknown is None:
        snapshot = replace(snapshot, usage=None)
    made = decided(snapshot, Streaks(1.0, {"n0": 3}), signal=signal)
    plan = made.plan
    assert (plan.moves, plan.skips) == ((), ())
    (line,) = plan.warnings
    assert line.startswith(f"low-utilisation: with signal: {signal} nothing is moved")
    assert "metrics.k8s.io" in line
    # What was seen before is neither counted nor forgotten.
    assert made.streaks == {}


# -- for how many runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "gives"), [(0, False), (1, False), (2, True), (3, True), (50, True)]
)
def test_it_gives_in_the_third_run_in_a_row(earlier, gives):
    streaks = Streaks(AT - 120, {"n0": earlier} if earlier else {})
    made = decided(even(8, 0), streaks, runs=3)
    plan = made.plan
    assert bool(plan.moves) is gives
    assert made.streaks == {"low-utilisation": Streaks(AT, {"n0": min(3, earlier + 1)})}
    if not gives:
        assert {skip.code for skip in plan.skips} == {Code.TOO_FEW_RUNS}
        text = f"node n0: cpu 80% used (over 50%), so far in {earlier + 1} of 3 runs in a row"
        assert {skip.message for skip in plan.skips} == {text}
        assert plan.before["low-utilisation"].violated == 1
        assert plan.stopped == "Nothing can be gained yet: 1 rule stays unmet (1 TooFewRuns)."
        assert plan.warnings == ()


def test_only_those_that_have_lasted_give():
    made = decided(even(8, 8, 0), Streaks(AT - 120, {"n0": 2}), runs=3)
    plan = made.plan
    assert {move.node for move in plan.moves} == {"n0"}
    assert {(skip.node, skip.code) for skip in plan.skips} == {("n1", Code.TOO_FEW_RUNS)}


def test_a_node_that_was_not_over_used_once_starts_again():
    made = decided(even(5, 0), Streaks(AT - 120, {"n0": 2}), runs=3)
    assert made.plan.moves == ()
    assert made.streaks == {"low-utilisation": Streaks(AT, {})}


@pytest.mark.parametrize(
    ("runs", "recent", "used", "gives"),
    [
        ({"n0": 1}, {"n0": 0b101}, 8, True),  # with this run three of the last four
        ({}, {"n0": 0b1010}, 8, True),
        ({}, {"n0": 0b10}, 8, False),
        ({}, {"n0": 0b110000}, 8, False),  # too long ago
        ({"n0": 3}, {}, 5, False),  # not over-used now
    ],
)
def test_it_gives_where_it_was_over_used_in_three_of_the_last_five_runs(runs, recent, used, gives):
    made = decided(even(used, 0), Streaks(AT - 120, runs, recent), runs="3 of 5")
    assert bool(made.plan.moves) is gives
    if not gives and used == 8:
        (text,) = {skip.message for skip in made.plan.skips}
        assert text.startswith("node n0: cpu 80% used (over 50%), so far in ")
        assert text.endswith(" of the last 5 runs, 3 are needed")


@pytest.mark.parametrize(
    "text", ["3", "3 of 2", "0 of 5", "3 of 50", "3 of", "three of five", 0, 101, True]
)
def test_what_is_no_number_of_runs_is_refused(text):
    with pytest.raises(ValidationError):
        LowUtilisationParams(signal="usage", runs=text)


def test_the_same_measurement_is_not_another_run():
    made = decided(even(8, 0), Streaks(AT, {"n0": 2}), runs=3)
    assert made.plan.moves == ()
    assert made.streaks == {"low-utilisation": Streaks(AT, {"n0": 2})}


@pytest.mark.parametrize("runs", [1, 3])
def test_what_was_measured_before_the_last_moves_moves_nothing_more(runs):
    made = decided(even(8, 0), Streaks(AT + 20, {"n0": 3}), runs=runs)
    plan = made.plan
    assert plan.moves == ()
    assert made.streaks == {"low-utilisation": Streaks(AT + 20, {"n0": 3})}
    (line,) = plan.warnings
    assert "until the next measurement" in line


def test_without_memory_nothing_is_moved_and_one_line_says_what_to_do():
    made = decided(even(8, 0), None, runs=3)
    plan = made.plan
    assert plan.moves == ()
    (line,) = plan.warnings
    assert "give --memory NAMESPACE/NAME" in line
    assert "or set runs: 1" in line
    assert planned(even(8, 0), None, runs=1).moves


def test_by_the_larger_only_what_is_used_has_to_last():
    snapshot = cluster([1.0] * 8, [], [1.0] * 8, [], requested=([1.0] * 8, (), [0.25] * 8, ()))
    plan = planned(snapshot, Streaks(), signal="larger", runs=3)
    assert {move.node for move in plan.moves} == {"n0"}
    assert {skip.node for skip in plan.skips if skip.code is Code.TOO_FEW_RUNS} == {"n2"}


# -- as by requests ----------------------------------------------------------------------------------------

placements = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from([100, 250, 400, 800]), st.sampled_from([1, 4, 12])
    ),
    min_size=1,
    max_size=14,
)


@given(placements, st.sampled_from(["usage", "larger"]), st.booleans())
def test_with_all_used_that_is_requested_the_plan_is_that_of_requests(pods, signal, deviation):
    objects = [node(f"n{i}", memory="64Gi") for i in range(5)]
    for k, (on, cpu, memory) in enumerate(pods):
        objects += workload(f"w{k}", [f"n{on}"], cpu=f"{cpu}m", memory=f"{memory}Gi")
    snapshot = with_usage(snapshot_of(objects))

    def moves(**params):
        plan = planned(snapshot, deviation=deviation, **params)
        return [replace(move, reason="") for move in plan.moves], plan.before, plan.after

    assert moves(signal=signal) == moves(signal="requests")
