"""Why a plan ends where it does, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rebalancer.base.plain_text import count
from rebalancer.plan.plan import Backlog, Code, Move, Score, Skip, UnmetRule
from rebalancer.policy.model import Eagerness

DECLINED = frozenset({Code.LOW_GAIN, Code.UNSURE})
"""Something would get better, by too little or not surely enough for the policy's eagerness."""


def stopped(
    moves: Sequence[Move],
    skips: Sequence[Skip],
    after: Mapping[str, Score],
    backlog: Backlog,
    cut: str | None = None,
    in_flight: str | None = None,
    eagerness: Eagerness = Eagerness.CAREFUL,
    unmet: Sequence[UnmetRule] = (),
    rest: float | None = None,
) -> str:
    """Return in one line why the plan ends where it does.

    ``cut``: why planning was ended early, if so. ``in_flight``: the budget that is used up by moves which
    earlier runs have in flight, if so. ``eagerness``: the policy's; what it alone declines could be gained.
    ``unmet``: the rules that stay so, as many as ``after`` counts.
    ``rest``: the share of the gain that the last wave fell short of, if that ends the plan.
    """
    left = sum(score.violated for score in after.values())
    codes = Counter(skip.code.value for skip in skips)
    codes = codes or Counter(code for rule in unmet for code in rule.codes)
    reasons = ", ".join(f"{count} {code}" for code, count in sorted(codes.items(), key=_most_first))
    impossible = sum(len(score.unsatisfiable) for score in after.values())
    end = f" {count(impossible, 'constraint')} cannot hold as things are." if impossible else ""
    if not after:
        return "Nothing was judged: no strategy is on."
    if left == 0 and (unjudged := _unjudged(after)) is not None:
        return unjudged + end
    if left == 0:
        rules = "every rule that can hold holds" if impossible else "every rule holds"
        return (f"Nothing to do: {rules}." if not moves else f"After these moves {rules}.") + end
    still = (
        f"{count(left, 'rule')} {'is' if left == 1 else 'are'} unmet.{_backlog_words(backlog)}{end}"
    )
    if cut is not None:
        return f"Planning was ended early: {cut}. {still}"
    if in_flight is not None:
        return f"Moves in flight use up a budget ({in_flight}): {still}"
    if backlog.moves:
        return f"This run can do no more: {still}"
    if rest is not None:
        least = f"{100 * rest:g} %"
        return f"The last wave brought less than {least} of the plan's gain: the rest is left to later runs. {still}"
    nothing = "Nothing more" if moves else "Nothing"
    declined = any(skip.code in DECLINED for skip in skips)
    gained = f"is worth an eviction at eagerness {eagerness}" if declined else "can be gained"
    head = f"{nothing} {gained}"
    head += " yet" if any(map(_waits, skips)) or Code.MOVED_NOW.value in codes else ""
    stay = "stays" if left == 1 else "stay"
    return (
        f"{head}: {count(left, 'rule')} {stay} unmet ({reasons or 'no move would fix more'}).{end}"
    )


def _waits(skip: Skip) -> bool:
    """Return whether a pod stays only until some time has passed."""
    return skip.code is Code.TOO_FEW_RUNS or skip.message.startswith("young:")


def _unjudged(after: Mapping[str, Score]) -> str | None:
    """Return a sentence that names what could not be judged; None if all could."""
    unjudged = {name: score.not_judged for name, score in sorted(after.items()) if score.not_judged}
    if not unjudged:
        return None
    reasons = "; ".join(dict.fromkeys(why for texts in unjudged.values() for why in texts))
    if len(unjudged) == len(after):
        return f"Nothing could be judged: {reasons}."
    return f"Every rule that could be judged holds. Not judged: {', '.join(unjudged)} ({reasons})."


def _backlog_words(backlog: Backlog) -> str:
    """Return what is left to further runs: `` At least 12 moves wait for 2 further runs.``"""
    if not backlog.moves:
        return ""
    least = " At least" if backlog.more else ""
    moves = "1 move waits" if backlog.moves == 1 else f"{backlog.moves:,} moves wait"
    runs = "1 further run" if backlog.runs == 1 else f"{backlog.runs} further runs"
    return f"{least} {moves} for {runs}."


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
