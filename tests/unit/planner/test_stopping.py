"""Why a plan ends where it does, in one line."""

import pytest

from rebalancer.plan.plan import Backlog, Code, Cost, Explanation, Score, Skip, UnmetRule
from rebalancer.planner.reasons import PlanEnd, stopped
from rebalancer.policy.model import Eagerness

UNJUDGED = {"spread": Score(Cost(), 0), "room": Score(Cost(), 0, not_judged=("no usage",))}


def rules(*codes):
    return [UnmetRule("spread", f"r{i}", "", {code: 9}) for i, code in enumerate(codes)]


def after(violated, *unsatisfiable):
    return {"spread": Score(Cost(), violated, unsatisfiable)}


def skips(*codes):
    return [Skip("default", f"p{i}", "n", "spread", code, "") for i, code in enumerate(codes)]


def line_of(moves, skips, after, backlog, end=PlanEnd(), unmet=()):  # noqa: B008  # it is frozen
    explained = Explanation(
        skips=tuple(skips),
        before={},
        after=after,
        lower_bound=0,
        stopped="",
        backlog=backlog,
        unmet=tuple(unmet),
    )
    return stopped(explained, end, moves=moves)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ((False, [], {}, Backlog()), "Nothing was judged: no strategy is on."),
        ((False, [], after(0), Backlog()), "Nothing to do: every rule holds."),
        ((True, [], after(0), Backlog()), "After these moves every rule holds."),
        # --strategy leaves out what may be unmet.
        (
            (True, [], after(0), Backlog(), PlanEnd(left_out=["duplicates"])),
            "After these moves every rule of spread holds.",
        ),
        (
            (False, [], after(0, "too few zones"), Backlog()),
            (
                "Nothing to do: every rule that can hold holds. "
                "1 constraint cannot hold as things are."
            ),
        ),
        (
            (False, skips(Code.NO_GAIN, Code.PDB, Code.NO_GAIN), after(2), Backlog()),
            "Nothing can be gained: 2 rules stay unmet (2 NoGain, 1 PodDisruptionBudget).",
        ),
        (
            (True, [], after(1), Backlog()),
            "Nothing more can be gained: 1 rule stays unmet (no move would fix more).",
        ),
        (
            (False, skips(Code.PROTECTED, Code.UNSURE), after(1), Backlog()),
            (
                "Nothing is worth an eviction at eagerness careful: 1 rule stays unmet "
                "(1 Protected, 1 Unsure)."
            ),
        ),
        (
            (True, skips(Code.LOW_GAIN), after(1), Backlog(), PlanEnd(eagerness=Eagerness.TIMID)),
            (
                "Nothing more is worth an eviction at eagerness timid: 1 rule stays unmet "
                "(1 LowGain)."
            ),
        ),
        (
            (False, skips(Code.TOO_FEW_RUNS), after(1), Backlog()),
            "Nothing can be gained yet: 1 rule stays unmet (1 TooFewRuns).",
        ),
        (
            (True, [], after(3), Backlog(4, 2, more=True)),
            (
                "This run can do no more: 3 rules are unmet. "
                "What waits takes at least 4 moves in 2 further runs, if all of it can be fixed."
            ),
        ),
        (
            (False, [], after(3), Backlog(1, 1), PlanEnd(cut="time is up")),
            (
                "Planning was ended early: time is up. 3 rules are unmet. "
                "What waits takes 1 move in 1 further run, if all of it can be fixed."
            ),
        ),
        (
            (False, [], after(1), Backlog(1, 1), PlanEnd(in_flight="perNode 1")),
            (
                "Moves in flight, or pods that are not Ready yet, use up a budget (perNode 1): 1 rule is unmet. "
                "What waits takes 1 move in 1 further run, if all of it can be fixed."
            ),
        ),
        (
            (True, [], UNJUDGED, Backlog()),
            "After these moves every rule that could be judged holds. Not judged: room (no usage).",
        ),
        # Rules are counted, not the pods that stay for them.
        (
            (
                True,
                skips(Code.PDB, Code.PDB),
                after(2),
                Backlog(),
                PlanEnd(),
                rules("PodDisruptionBudget", "MovedNow"),
            ),
            (
                "Nothing more can be gained yet: 2 rules stay unmet "
                "(1 MovedNow, 1 PodDisruptionBudget)."
            ),
        ),
        (
            (
                True,
                skips(Code.BUDGET),
                after(1),
                Backlog(),
                PlanEnd(),
                rules("Budget"),
            ),
            (
                "Nothing more can be moved within the budgets of one run: 1 rule stays unmet "
                "(1 Budget)."
            ),
        ),
        # One of three rules waits for a budget: it is not why the plan ends.
        (
            (
                True,
                skips(Code.BUDGET),
                after(3),
                Backlog(),
                PlanEnd(),
                rules("NoRoom", "Budget", "NoRoom"),
            ),
            "Nothing more can be gained: 3 rules stay unmet (2 NoRoom, 1 Budget).",
        ),
        (
            (True, [], after(2), Backlog(), PlanEnd(rest=0.001)),
            (
                "The last wave brought less than 0.1% of the plan's gain: "
                "the rest is left to later runs. 2 rules are unmet."
            ),
        ),
    ],
)
def test_the_line(given, line):
    assert line_of(*given) == line
