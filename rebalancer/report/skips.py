"""Pods that stay, grouped by reason, and the funnel from all pods to the moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rebalancer.plan.plan import Code, Skip

WHY_LEFT: Mapping[Code, str] = {
    Code.PROTECTED: "a protection forbids it",
    Code.NOT_RECREATED: "its controller is not known to recreate it",
    Code.CANNOT_SURGE: "no rollout would keep the single replica Ready",
    Code.JUST_SCALED: "a HorizontalPodAutoscaler has just scaled its workload",
    Code.GANG: "it is a member of a gang, which is not moved in part",
    Code.RESIZE_DEFERRED: "it waits for room to be resized on its node",
    Code.NOT_SELECTED: "the strategy's select does not match it",
    Code.NO_ROOM: "no node would take the replacement",
    Code.COMES_BACK: "the scheduler would put the replacement back",
    Code.NO_GAIN: "nothing would improve, or something would get worse",
    Code.LOW_GAIN: "too little would improve for an eviction",
    Code.UNSURE: "it would improve in too few of the likely landings",
    Code.UNPREDICTED: "the landing cannot be predicted",
    Code.LEAVING_NODE: "it would land on nodes that are about to go",
    Code.AVOIDED_NODE: "it would land on nodes that the policy's landings leaves out",
    Code.PDB: "a PodDisruptionBudget allows no disruption now",
    Code.PDB_CONFLICT: "the API refuses evictions of pods with two PodDisruptionBudgets",
    Code.BUDGET: "a budget of the policy is used up",
    Code.QUOTA: "a ResourceQuota has no room for the replacement",
    Code.UNSATISFIABLE: "no placement can satisfy the constraint",
    Code.OVERLOAD_MOVES: "it would only carry the overload elsewhere",
    Code.TOO_FEW_RUNS: "what was measured has not been so for enough runs in a row",
    Code.OBSERVED: "the strategy only observes",
    Code.WINDOW: "the strategy's window is closed",
    Code.MOVED_NOW: "it moves in this run already",
    Code.NOT_EXAMINED: "planning ended before it was looked at",
}
"""What each code means, as a heading over its examples."""

_OF_PROTECTIONS = (
    Code.PROTECTED,
    Code.NOT_RECREATED,
    Code.CANNOT_SURGE,
    Code.JUST_SCALED,
    Code.GANG,
    Code.RESIZE_DEFERRED,
)


@dataclass(frozen=True, slots=True)
class SkipGroup:
    """Pods that stay for the same reason with the same message."""

    message: str
    pods: tuple[str, ...]
    """``namespace/name``."""


def group_skips(skips: Iterable[Skip]) -> list[tuple[Code, list[SkipGroup]]]:
    """Group skipped pods by code, then by message, the largest groups first."""
    by_code: dict[Code, dict[str, list[str]]] = {}
    for skip in skips:
        by_message = by_code.setdefault(skip.code, {})
        by_message.setdefault(skip.message, []).append(f"{skip.namespace}/{skip.pod}")
    result = []
    for code, by_message in by_code.items():
        groups = [SkipGroup(message, tuple(sorted(pods))) for message, pods in by_message.items()]
        groups.sort(key=lambda group: (-len(group.pods), group.pods, group.message))
        result.append((code, groups))
    result.sort(key=lambda entry: (-total(entry[1]), entry[0].value))
    return result


def total(groups: Iterable[SkipGroup]) -> int:
    """Return the number of entries in ``groups``."""
    return sum(len(group.pods) for group in groups)


def funnel_stages(funnel: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the stages of the funnel from all pods to the moves; each number is part of the one before.

    A reviewed plan has no stage of candidates: some of its moves may be done already.
    """
    if (planned := funnel.get("planned")) is not None:
        moves = ("moves planned", planned), ("left when judged again", funnel.get("moves", 0))
        return ("pods", funnel.get("pods", 0)), *moves
    return (
        ("pods", funnel.get("pods", 0)),
        ("where a rule is unmet", funnel.get("candidates", 0)),
        ("of them free to move", free_to_move(funnel)),
        ("moves", funnel.get("moves", 0)),
    )


def funnel_words(funnel: Mapping[str, int]) -> str:
    """Return the funnel as ``412 pods > 17 where a rule is unmet > 9 of them free to move > 3 moves``."""
    return " > ".join(
        f"{n:,} {stage.replace('moves', 'move').removesuffix('s') if n == 1 else stage}"
        for stage, n in funnel_stages(funnel)
    )


def free_to_move(funnel: Mapping[str, int]) -> int:
    """Return the number of candidates that no protection forbids to move."""
    kept = sum(funnel.get(code.value, 0) for code in (*_OF_PROTECTIONS, Code.NOT_SELECTED))
    return funnel.get("candidates", 0) - kept
