import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Backlog, Cause, Code, Cost, Score, Status, UnmetRule
from rebalancer.report.as_text import as_table
from rebalancer.report.words import gain_words
from tests.unit.report.report_examples import landing, move, outcome, skip

DRY = """\
1 eviction to fix all of 1 unmet rule; it cannot be done with fewer than 1.
zone-c has no pod of 1 workload that this run moves, and zone-a too many.
After these moves every rule holds.

Dry run with policy policy.yaml (mode enforce, eagerness careful)
https://cluster.example:6443, Kubernetes 1.36, 8 nodes, 3 pods,
  2027-01-15T08:00:00Z

  RULE                       UNMET   SOFT
  anti-affinity              1 -> 0  1 -> 0
  low-utilisation (observe)  holds   -
  (`rebalancer explain code soft` says what a word or a code means)

By workload
  WORKLOAD             MOVES  PODS IN zone-a/zone-b/zone-c
  Deployment/shop/web  1      2/1/0 -> 1/1/1

Moves
  shop/web-0
      node-a1 -> node-c1 (zone-c); anti-affinity, 1 soft

Stays: 3 pods

  2 NoRoom: no node would take the replacement
      shop/api-0, shop/api-1: no node has 4 cpu left

  1 PodDisruptionBudget: a PodDisruptionBudget allows no disruption now
      shop/db-0: shop/db allows no disruption (2 healthy, 2 desired)

3 pods > 4 where a rule is unmet > 4 of them movable > 1 move

Next
  - On the cluster, `rebalancer run` carries the plan out; `rebalancer plan
    --out FILE` keeps it for review, and for `rebalancer apply`.
  - 2 pods (NoRoom): `rebalancer explain pod NAMESPACE/NAME` says why each node
    refuses them: no room, a cordon, a taint or a rule.
  - 1 pod (PodDisruptionBudget): they can move once their PodDisruptionBudgets
    allow a disruption.

Plan: 1 move; unmet rules 1 -> 0; 3 pods left that should move.
"""


def lines_with(text, words):
    return [line.strip() for line in text.splitlines() if words in line]


def test_a_dry_run_reads_like_this(report):
    skips = [
        skip("api-1"),
        skip("api-0"),
        skip("db-0", Code.PDB, "shop/db allows no disruption (2 healthy, 2 desired)"),
    ]
    assert as_table(report(moves=[move()], skips=skips)) == DRY


def test_a_run_reports_what_happened_and_where_the_pod_landed(report):
    done = outcome(
        move(), Status.EVICTED, "replaced by web-9", landed="node-c1", predicted=True, seconds=2.14
    )
    now = {"anti-affinity": Score(Cost(), 0), "low-utilisation": Score(Cost(), 0)}
    text = as_table(report(moves=[move()], outcomes=[done], now=now))
    assert text.startswith(
        "1 pod evicted of 1 planned: 1 of 1 unmet rule fixed.\n"
        "zone-c had no pod of 1 workload that this run moved, and zone-a too many.\n"
        "1 evicted, 1 of 1 landed on the predicted node.\n"
        "Every rule holds now.\n\n"
        "Run with policy"
    )
    assert "\n  shop/web-0" + "evicted".rjust(68) + "\n" in text
    assert "node-a1 -> node-c1 (zone-c); anti-affinity, 1 soft\n" in text
    assert text.endswith("\nDone: 1 of 1 move; unmet rules 1 -> 0; 0 pods left that should move.\n")
    wide = as_table(report(moves=[move()], outcomes=[done], now=now), wide=True)
    assert "  node-a1 (zone-a)  node-c1 (zone-c) after 2.1 s, as predicted  evicted" in wide


def test_a_landing_elsewhere_stands_beside_its_prediction(report):
    one = move("web-0", landing("node-c1", 0.7), landing("node-b1", 0.3))
    done = outcome(one, Status.EVICTED, landed="node-a2", predicted=False, seconds=1.0)
    given = report(moves=[one], outcomes=[done])
    text = as_table(given)
    assert "node-a1 -> node-a2 (zone-a), predicted zone-c 70%, one of 2 nodes;" in text
    assert "node-a2 (zone-a) after 1.0 s, predicted node-c1 (zone-c)" in as_table(given, wide=True)
    assert "\n1 evicted, 0 of 1 landed on one of several likely nodes.\n" in text


@pytest.mark.parametrize(
    ("landings", "wanted", "brief"),
    [
        ([], "unpredicted", "unpredicted"),
        ([("node-c1", 1.0)], "node-c1 (zone-c)", "node-c1 (zone-c)"),
        (
            [("node-c1", 0.62), ("node-b1", 0.38)],
            "node-c1 (zone-c) 62%, node-b1 (zone-b) 38%",
            "zone-c 62%, one of 2 nodes",
        ),
        (
            [("node-c1", 0.5), ("node-c2", 0.5)],
            "zone-c: node-c1 50%, node-c2 50%",
            "zone-c, one of 2 nodes",
        ),
        (
            [(f"node-c{i}", 0.2) for i in range(1, 6)],
            "zone-c: node-c1 20%, node-c2 20%, node-c3 20%, node-c4 20% and 1 more node",
            "zone-c, one of 5 nodes",
        ),
        (
            [*((f"node-c{i}", 0.19) for i in range(1, 6)), ("node-b1", 0.05)],
            "zone-c 95%, zone-b 5% (node-c1 19% and 5 more nodes)",
            "zone-c 95%, one of 6 nodes",
        ),
        (
            [("node-c1", 0.996), ("node-b1", 0.004)],
            "node-c1 (zone-c) >99%, node-b1 (zone-b) <1%",
            "node-c1 (zone-c)",
        ),
    ],
)
def test_predicted_landings_are_reported_by_node_if_few_else_by_zone(
    report, landings, wanted, brief
):
    one = replace(move(), landings=tuple(landing(*given) for given in landings))
    given = report(moves=[one])
    assert f"node-a1 (zone-a)  {wanted}  1 soft  anti-affinity" in as_table(given, wide=True)
    assert f"\n      node-a1 -> {brief}; anti-affinity, 1 soft\n" in as_table(given)
    assert f"  node-a1  {brief}  1 soft  anti-affinity  zone-a 2" in as_table(given, width=160)


def test_from_120_columns_on_a_move_is_one_line_and_wide_cuts_nothing_off(report):
    long = "because " * 40
    given = report(moves=[move(f"web-{i}", wave=1 + i // 2, reason=long) for i in range(4)])
    narrow, broad, wide = as_table(given), as_table(given, width=120), as_table(given, wide=True)
    assert [len(lines_with(text, "web-")) for text in (narrow, broad, wide)] == [4, 4, 4]
    assert not lines_with(narrow, "because")
    head, *rows = [line for line in broad.splitlines() if re.match(r"  (WAVE|\d  +shop)", line)]
    assert head.split() == ["WAVE", "POD", "FROM", "TO", "GAIN", "STRATEGY", "WHY"]
    assert [row.split()[0] for row in rows] == ["1", "1", "2", "2"]
    assert {len(row) for row in rows} == {120}
    assert all(row.endswith("...") for row in rows)
    assert sum(line.endswith(long.strip()) for line in wide.splitlines()) == 4


def test_every_status_has_its_word_and_its_reason(report):
    moves = [move(f"web-{status}") for status in Status]
    ends = [
        outcome(m, status, f"because {status}") for m, status in zip(moves, Status, strict=True)
    ]
    text = as_table(report(moves=moves, outcomes=ends))
    for status in set(Status) - {Status.EVICTED, Status.PLANNED}:
        assert re.search(rf"shop/web-{status} +{status}$", text, re.MULTILINE)
        assert f"because {status}" in text
    done = " ".join(text.partition("\n\n")[0].split())
    assert "1 blocked by a PodDisruptionBudget" in done
    assert "1 evicted" in done
    assert "3 not landed yet" in done


def test_a_run_with_nothing_to_do_says_so_in_one_line(report):
    text = as_table(report(outcomes=[], stopped="Nothing to do: every rule holds."))
    assert text.splitlines()[0] == "Nothing to do: every rule holds."
    assert text.count("Nothing to do") == 1
    assert "By workload" not in text
    assert "Moves" not in text
    assert "Every rule that can hold holds: anti-affinity, low-utilisation." in text


def test_a_run_that_stands_still_says_why_and_tries_nothing(report):
    why = "3 of 8 nodes are NotReady, safety.maxNotReadyNodes allows 1"
    ends = [outcome(move(), Status.NOT_ATTEMPTED, why)]
    text = as_table(report(moves=[move()], outcomes=ends, standstill=(why,)))
    assert text.startswith(f"Standing still: {why}.\n\n")


def test_a_run_that_was_cut_off_says_by_what(report):
    ends = [outcome(move(), Status.NOT_ATTEMPTED, "stopped by a signal")]
    text = as_table(report(moves=[move()], outcomes=ends, cut="stopped by a signal", exit_code=4))
    assert "\n1 not attempted.\nStopped early: stopped by a signal.\n\n" in text


@pytest.mark.parametrize(
    ("mode", "first"),
    [("enforce", "Dry run with"), ("observe", "Observing run with"), ("off", "Idle run with")],
)
def test_the_first_line_says_what_kind_of_run_it_is(report, mode, first):
    given = report(moves=[move()] if mode != "off" else [], mode=mode)
    text = as_table(replace(given, dry_run=True))
    assert f"\n\n{first} policy policy.yaml (mode {mode}" in text


def test_waves_are_distinguished(report):
    text = as_table(report(moves=[move("a", wave=1), move("b", wave=1), move("c", wave=2)]))
    heads = [line for line in text.splitlines() if line.startswith(("Moves", "  Wave", "  shop/"))]
    assert heads == ["Moves", "  Wave 1 of 2", "  shop/a", "  shop/b", "  Wave 2 of 2", "  shop/c"]
    assert text.startswith("3 evictions in 2 waves to fix all of 1 unmet rule;")


def test_long_lists_are_cut_and_say_by_how_much(report):
    moves = [move(f"web-{i:02}", owner=f"Deployment/shop/web-{i // 2:02}") for i in range(50)]
    skips = [skip(f"p{i:02}", message=f"reason {i % 5}") for i in range(50)]
    given = report(moves=moves, skips=skips, warnings=[f"w{i}" for i in range(10)])
    text = as_table(given)
    assert lines_with(text, "-o wide") == [
        "... and 2 more warnings (-o wide shows all)",
        "... and 5 more with 10 moves (-o wide shows all)",
        "(-o wide lists all 50 moves)",
        "... and 20 more (-o wide shows all)",
    ]
    assert "Deployment/shop/web-19 " in text
    assert "shop/web-19\n" not in text
    assert "shop/p00, shop/p05 and 8 more: reason 0" in text
    wide = as_table(given, wide=True)
    assert "-o wide" not in wide
    for i in range(50):
        assert f"\n  shop/web-{i:02}  Deployment/shop/web-{i // 2:02}  " in wide
        assert re.search(rf"\bshop/p{i:02}\b", wide)


def test_of_many_moves_those_that_went_wrong_are_shown_one_by_one(report):
    moves = [move(f"web-{i:02}") for i in range(30)]
    ends = [outcome(one, Status.EVICTED, landed="node-c1", predicted=True) for one in moves]
    ends[3] = outcome(moves[3], Status.FAILED, "the server gave up")
    ends[7] = outcome(moves[7], Status.EVICTED, landed="node-a2", predicted=False)
    text = as_table(report(moves=moves, outcomes=ends))
    assert [line.split()[0] for line in lines_with(text, "shop/web-")] == [
        "shop/web-03",
        "shop/web-07",
        "shop/web-03:",
    ]
    assert "Moves that went wrong\n" in text
    assert "the server gave up" in text


@pytest.mark.parametrize("width", [40, 80, 132, 200])
def test_the_text_is_as_wide_as_asked_for(report, width):
    moves = [move(f"web-{i}", reason="because of this and that " * 9) for i in range(3)]
    lines = as_table(report(moves=moves, warnings=["careful " * 60]), width=width).splitlines()
    longest = max(len(line) for line in lines)
    assert width - 12 <= longest <= max(width, 51)  # the name of a workload is never broken


def test_skipped_pods_stand_by_code_the_most_frequent_first(report):
    skips = [
        skip("a", Code.BUDGET, "perRun 10"),
        skip("b", Code.PROTECTED, "volumes: uses persistent volumes"),
        skip("c", Code.PROTECTED, "young: younger than protect.minPodAge", holders=("young",)),
        skip(
            "c",
            Code.PROTECTED,
            "young: younger than protect.minPodAge",
            holders=("young",),
            strategy="low-utilisation",
        ),
    ]
    text = as_table(report(skips=skips, outcomes=[]))
    assert "Stays: 3 pods" in text
    assert text.index("3 Protected") < text.index("1 Budget")


@pytest.mark.parametrize(
    ("backlog", "says"),
    [
        (
            Backlog(2, 1, more=True),
            "3 Budget: a budget of the policy is used up; what waits takes at least 2 moves in further runs, if all of it can be fixed",
        ),
        (
            Backlog(1, 1),
            "3 Budget: a budget of the policy is used up; what waits takes 1 move in further runs, if all of it can be fixed",
        ),
        (Backlog(3, 1, more=True), "3 Budget: a budget of the policy is used up"),
        (Backlog(), "3 Budget: a budget of the policy is used up"),
    ],
)
def test_of_pods_that_a_budget_keeps_it_says_how_many_moves_wait_for_them(report, backlog, says):
    skips = [skip(pod, Code.BUDGET, "perRun 10") for pod in "abc"]
    skips += [
        skip(pod, Code.PROTECTED, "young: younger than protect.minPodAge", holders=("young",))
        for pod in "def"
    ]
    lines = as_table(report(skips=skips, outcomes=[], backlog=backlog), width=200).splitlines()
    assert f"  {says}" in lines
    assert "  3 Protected: a protection forbids it" in lines


def test_what_observing_strategies_would_do_is_counted_apart(report):
    moves = [move("a"), move("b", observed=True, wave=2, strategy="low-utilisation")]
    assert as_table(report(moves=moves)).startswith("2 evictions (1 observed only) in 2 waves")


def test_what_no_placement_can_fix_is_listed(report):
    score = Score(
        Cost(hard=2.0), 1, ("Deployment/shop/db over zones: 5 pods, 3 domains: 2 must share",)
    )
    before = {"anti-affinity": score}
    text = as_table(report(outcomes=[], before=before, after=before))
    assert "Cannot hold: Deployment/shop/db over zones: 5 pods, 3 domains: 2 must share" in text


def test_scores_stand_as_before_and_after_and_equal_ones_once(report):
    before = {"x": Score(Cost(5.0, 8.0, 47.04), 6), "y": Score(Cost(0.0, 31.0, 0.0), 8)}
    after = {"x": Score(Cost(1.0, 4.5, 25.26), 6), "y": Score(Cost(0.0, 31.0, 0.0), 8)}
    text = as_table(report(moves=[move()], before=before, after=after))
    rows = [line.split("  ") for line in text.splitlines() if line.startswith(("  x", "  y"))]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [["x", "6", "5 -> 1", "8 -> 4.5", "47 -> 25.3"], ["y", "8", "-", "31", "-"]]


def test_a_gain_reports_what_decides_and_what_gets_worse(report):
    text = as_table(report(moves=[move(gain=Cost(1.0, 2.0, -0.5), cost=3.0)]))
    assert "anti-affinity, 1 hard, 2 soft, -0.5 imbalance, cost 3 " in " ".join(text.split())


def test_what_gets_worse_by_next_to_nothing_is_not_worth_a_word(report):
    text = as_table(report(moves=[move(gain=Cost(0.0, 1.0, -0.0000022))]))
    assert "anti-affinity, 1 soft\n" in text


def test_colour_is_only_added_if_asked_for_and_changes_no_word(report):
    given = report(
        moves=[move()],
        outcomes=[outcome(move(), Status.FAILED, "no")],
        skips=[skip("a")],
        warnings=["careful"],
    )
    plain, colored = as_table(given), as_table(given, color=True)
    assert "\x1b" not in plain
    assert "\x1b[31mfailed\x1b[0m" in colored
    assert re.sub(r"\x1b\[[\d;]+m", "", colored) == plain


def test_control_characters_of_foreign_names_never_reach_the_terminal(report):
    evil = "\x1b[2Jgone\r\nFAKE LINE"
    text = as_table(
        report(
            moves=[move(evil, reason=evil, node=evil, owner=evil)],
            skips=[skip(evil, message=evil)],
            warnings=[evil],
            source=evil,
            stopped=evil,
            before={evil: Score(Cost(1.0), 1, (evil,))},
        )
    )
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\nFAKE" not in text


_NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,38}[a-z]", fullmatch=True)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(_NAMES, st.sampled_from(list(Status)), st.integers(1, 3)), max_size=30),
    st.lists(st.tuples(_NAMES, st.sampled_from(list(Code)), st.text(max_size=60)), max_size=30),
)
def test_no_line_is_wider_than_80_columns_and_counts_add_up(report, moved, left):
    moves = [move(name, wave=wave) for name, _, wave in sorted(moved, key=lambda one: one[2])]
    ends = [
        outcome(m, status, "some words why") for m, (_, status, _) in zip(moves, moved, strict=True)
    ]
    skips = [skip(name, code, message) for name, code, message in left]
    text = as_table(report(moves=moves, outcomes=ends, skips=skips))
    # One word may be wider: it is a name, to be copied.
    assert [line for line in text.splitlines()[1:] if len(line) > 80 and " " in line.strip()] == []
    heads = re.findall(r"^  (\d+) (\w+): ", text, re.MULTILINE)
    assert sum(int(number) for number, code in heads if code in set(Code)) == len(skips)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (Score(Cost(2.0), 2), Score(Cost(), 0), " to fix all of 2 unmet rules;"),
        (Score(Cost(2.0), 2), Score(Cost(1.0), 1), " to fix 1 of 2 unmet rules (hard 2 -> 1);"),
        (
            Score(Cost(4.0), 2),
            Score(Cost(2.0), 2),
            " to fix a part of 2 unmet rules (hard 4 -> 2);",
        ),
        (Score(Cost(0, 0, 4.0), 0), Score(Cost(0, 0, 1.0), 0), " to even nodes out;"),
        (Score(Cost(), 0), Score(Cost(), 0), ";"),
    ],
)
def test_the_sentence_says_what_the_moves_are_for(report, before, after, says):
    given = report(moves=[move()], before={"x": before}, after={"x": after})
    assert " ".join(as_table(given).split()).startswith(f"1 eviction{says} it cannot be done")


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (Cost(1.0, 1.0, 0.2), "1 hard, 1 soft"),
        (Cost(0.0, 2.0, 0.2), "2 soft"),
        (Cost(1.0, -1.0, 0.2), "1 hard, -1 soft"),
        (Cost(0.0, 1.0, -0.2), "1 soft, -0.2 imbalance"),
        (Cost(1.0, 0.0004), "1 hard"),
        (Cost(), "0"),
    ],
)
def test_what_a_move_gains_in_hard_and_soft_rules_adds_up_with_the_rules(gain, words):
    assert gain_words(gain) == words


def test_a_run_in_which_something_failed_does_not_say_that_every_rule_holds(report):
    ends = [outcome(move(), Status.FAILED, "no")]
    text = as_table(report(moves=[move()], outcomes=ends))
    assert "\nHad all gone as planned: after these moves every rule holds.\n" in text


def test_the_removal_of_a_pod_that_has_ended_awaits_no_landing(report):
    ended = replace(move("web-9"), landings=(), cause=Cause.ENDED)
    removed = outcome(ended, Status.EVICTED)
    text = as_table(report(moves=[ended], outcomes=[removed]))
    assert text.splitlines()[2:4] == ["1 evicted.", "After these moves every rule holds."]
    assert "By workload" not in text
    landed = outcome(move(), Status.EVICTED, landed="node-c1", predicted=True)
    text = as_table(report(moves=[ended, move()], outcomes=[removed, landed]))
    assert (
        "\n2 evicted, 1 of 1 landed on the predicted node.\nAfter these moves every rule holds.\n"
        in text
    )


def test_what_is_unmet_only_after_a_run_is_no_reason_to_call_nothing_fixed(report):
    scores = {"x": Score(Cost(2.0), 2), "y": Score(Cost(), 0)}
    now = {"x": Score(Cost(1.0), 1), "y": Score(Cost(1.0), 1)}
    given = report(moves=[move()], before=scores, dry_run=False, now=now)
    assert "1 of 2 unmet rules fixed, 1 other unmet now." in " ".join(as_table(given).split())


def test_a_move_for_another_one_says_for_which(report):
    reason = "goes first for shop/web-1: Deployment/shop/web (2 pods): 2 on one node"
    helper = move(reason=reason, makes_way_for="uid-web-1", gain=Cost(imbalance=0.2))
    text = " ".join(as_table(report(moves=[helper])).split())
    assert "anti-affinity, 0.2 imbalance; goes first for shop/web-1 " in text


def test_wide_names_each_pod_and_each_rule_on_a_line_of_its_own(report):
    pods = [skip(f"api-{i:05}") for i in range(3_000)]
    rules = [
        UnmetRule("x", f"Deployment/shop/w{i:05}", f"Deployment/shop/w{i:05}") for i in range(500)
    ]
    lines = as_table(report(skips=pods, unmet=rules, outcomes=[]), wide=True).splitlines()
    assert max(map(len, lines)) < 500
    assert sum("shop/api-" in line for line in lines) == 3_000
    assert sum("Deployment/shop/w" in line for line in lines) == 500
