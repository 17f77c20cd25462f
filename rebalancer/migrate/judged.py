"""Options of the strategies that judge single pods, from the plug-ins of the descheduler that do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from rebalancer.base.durations import format_duration
from rebalancer.migrate.notes import KeyFate, Notes
from rebalancer.migrate.plugins import FailedArgs, LifeTimeArgs, PodCondition, RestartArgs
from rebalancer.migrate.uses import Options, Use, Written

_FINISHED = ("Failed", "Succeeded")
_OF_ENDED = (
    "NodeAffinity",
    "Shutdown",
    "UnexpectedAdmissionError",
    "DeadlineExceeded",
    "Evicted",
)
"""Reasons that only pods in the phase Failed have: the kubelet, or the Job controller, has ended them."""
_OF_CONTAINERS = ("OOMKilled", "Error", "Completed", "ContainerCannotRun", "StartError")
"""Reasons for which containers have ended, also those of pods that run on."""
_STATUSES = ("", "True", "False", "Unknown")
_OF_EVERY_POD = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled")
_LONGEST = 999_999 * 3600
"""Seconds of the longest duration that a policy can write: no pod is as old."""


def restarts(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    """Return the options of restarts for RemovePodsHavingTooManyRestarts."""
    args: Written[RestartArgs] = use.args
    _backs_off(use, notes)
    return {
        "podRestartThreshold": min(args.value.pod_restart_threshold, 2**31 - 1),
        "includingInitContainers": args.value.including_init_containers,
        "states": list(args.value.states),
    }


def failed_pods(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options:
    """Return the options of failed-pods for RemoveFailedPods."""
    args: Written[FailedArgs] = use.args
    given = args.value
    _are_read(use, notes)
    least = given.min_pod_lifetime_seconds
    return {
        **({} if least is None else {"minPodLifetime": _duration(least)}),
        "reasons": list(given.reasons),
        "exitCodes": list(given.exit_codes),
        "includingInitContainers": given.including_init_containers,
        "excludeOwnerKinds": list(given.exclude_owner_kinds),
    }


def lifetime(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options | None:
    """Return the options of lifetime for PodLifeTime; None if no pod that it is about is moved here."""
    args: Written[LifeTimeArgs] = use.args
    given = args.value
    states = _states(args, notes)
    conditions = list(_conditions(args, notes))
    if (given.states and not states) or (given.conditions and not conditions):
        return None
    _backs_off(use, notes)
    if not given.states:
        text = "pods that have ended stay; failed-pods, with phases, removes them"
        notes.add(args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")
    options: Options = {
        "states": states,
        "conditions": conditions,
        "exitCodes": list(given.exit_codes),
        "includingInitContainers": given.including_init_containers,
        "includingEphemeralContainers": given.including_ephemeral_containers,
    }
    if given.max_pod_life_time_seconds is not None:
        options = {"maxPodLifeTime": _duration(given.max_pod_life_time_seconds), **options}
    return options


def only_ended(use: Use) -> bool:
    """Return whether PodLifeTime is about nothing but pods that have ended, and failed-pods can say of which."""
    states, reasons = set(use.args.value.states), set(_OF_ENDED)
    # Its phases and reasons must both be true of a pod, and of the states there one is enough.
    mixed = "Succeeded" in states and "Failed" not in states and bool(states & reasons)
    return bool(states) and states <= {*_FINISHED, *reasons} and not mixed


def ended_lifetime(use: Use, _default: Mapping[str, Any], notes: Notes) -> Options | None:
    """Return the options of failed-pods for PodLifeTime of such pods; None where a condition cannot be asked for."""
    args: Written[LifeTimeArgs] = use.args
    given = args.value
    conditions = list(_conditions(args, notes))
    if given.conditions and not conditions:
        return None
    _are_read(use, notes)
    return {
        "phases": [phase for phase in _FINISHED if phase in given.states] or ["Failed"],
        # Pods of these reasons are Failed: where that phase is asked for, they are in it.
        "reasons": [] if "Failed" in given.states else [s for s in given.states if s in _OF_ENDED],
        "minPodLifetime": _duration(given.max_pod_life_time_seconds or 0),
        "exitCodes": list(given.exit_codes),
        "conditions": conditions,
        "includingInitContainers": given.including_init_containers,
    }


def _are_read(use: Use, notes: Notes) -> None:
    text = "pods of a Job stay until it has ended, and those of custom controllers and without one stay"
    notes.add(
        use.args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}: their results may still be read"
    )


def _backs_off(use: Use, notes: Notes) -> None:
    text = "a pod goes where its replacement has a place; owners whose replacements do no better cool down"
    notes.add(use.args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")


def _duration(seconds: int) -> str:
    return format_duration(timedelta(seconds=min(seconds, _LONGEST)))


def _states(args: Written[LifeTimeArgs], notes: Notes) -> list[str]:
    """Return the states that a pod that has not ended can have."""
    given = list(dict.fromkeys(args.value.states))
    if finished := [state for state in given if state in (*_FINISHED, *_OF_ENDED)]:
        text = f"{' and '.join(finished)}: lifetime is about pods that run; failed-pods, with phases and reasons, removes what has ended"
        notes.add(args.at("states"), KeyFate.LOST, text)
    if either := [state for state in given if state in _OF_CONTAINERS]:
        text = f"{' and '.join(either)}: of pods that run; failed-pods, with reasons, removes those that have ended"
        notes.add(args.at("states"), KeyFate.DIFFERS, text)
    if "Pending" in given:
        text = "Pending: a pod without a node stays, it would only wait again"
        notes.add(args.at("states"), KeyFate.DIFFERS, text)
    return [state for state in given if state not in finished]


def _conditions(args: Written[LifeTimeArgs], notes: Notes) -> Iterator[dict[str, Any]]:
    for index, condition in enumerate(args.value.conditions):
        path = (*args.at("conditions"), index)
        if (why := _inexpressible(condition)) is not None:
            notes.add(path, *why)
            continue
        least = condition.min_time_since_last_transition_seconds
        written = {"type": condition.type, "status": condition.status, "reason": condition.reason}
        yield {
            **{key: value for key, value in written.items() if value},
            **({} if least is None else {"minTimeSinceLastTransition": _duration(least)}),
        }


def _inexpressible(condition: PodCondition) -> tuple[KeyFate, str] | None:
    """Return why a condition cannot be carried over, if it cannot."""
    if condition.status not in _STATUSES:
        return KeyFate.IDLE, "no condition has such a status"
    if not (condition.type or condition.status or condition.reason):
        return KeyFate.LOST, "a condition needs type, status or reason here"
    if condition.status == "True" and condition.type in _OF_EVERY_POD and not condition.reason:
        return KeyFate.LOST, f"every healthy pod has {condition.type} True"
    return None
