"""Jobs: how many pods they run, how many more may fail before they fail for good, and how long they make no new ones then."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rebalancer.wire import objects as o

_BACKOFF_LIMIT = 6
"""Default of ``backoffLimit``."""
_EXIT_CODES = (143, 137)
"""Of a container that is ended by a signal: SIGTERM, or SIGKILL after the grace period."""
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 600.0
"""Seconds (pkg/controller/job: DefaultJobPodFailureBackOff, MaxJobPodFailureBackOff)."""


class JobState(NamedTuple):
    """How many pods a Job runs, how many have failed, and how many it lets fail before it fails for good."""

    runs: int = 0
    """Number of its pods that should run now."""
    failed: int = 0
    """Number of its pods that have failed."""
    total: int | None = None
    """Number of its pods that may fail in all; None: an evicted pod does not count, or counts for its index only."""
    each: int | None = None
    """Number of pods that may fail of each index; None: indexes are not counted."""

    def allows(self, pods: int) -> bool:
        """Return whether the Job continues after ``pods`` more failed pods, each of another index."""
        # Of an index only is known that no more pods of it have failed than of the Job.
        of_each = self.each is None or self.failed + 1 <= self.each
        return of_each and (self.total is None or self.failed + pods <= self.total)

    @property
    def text(self) -> str:
        """The failures that the Job allows, as the end of a sentence."""
        if self.each is not None and (self.total is None or self.each <= self.total):
            return f"allows {self.each} failed of each index, and has {self.failed}"
        return f"allows {self.total or 0} failed, and has {self.failed}"

    def pause(self, pods: int) -> float:
        """Return for how many seconds at most the Job makes no pod again after ``pods`` more have failed."""
        doublings = min(self.failed + pods - 1, 10)
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**doublings)


class _Action(enum.IntEnum):
    """What a podFailurePolicy does with a failed pod, from the mildest on."""

    IGNORE = 0
    COUNT = 1
    FAIL_INDEX = 2
    FAIL_JOB = 3


_ACTIONS = {
    "Ignore": _Action.IGNORE,
    "FailIndex": _Action.FAIL_INDEX,
    "FailJob": _Action.FAIL_JOB,
}


def job_state(job: o.Workload) -> JobState:
    """Return the state of a Job."""
    spec, failed, runs = job.spec, job.status.failed, _count_running(job)
    # The worst of what the exit code of an evicted pod may lead to.
    action = max(_of_exit(spec.pod_failure_policy, code) for code in _EXIT_CODES)
    if action is _Action.IGNORE:
        return JobState(runs, failed)
    if action is not _Action.COUNT:
        return JobState(runs, failed, total=0)
    if spec.backoff_limit_per_index is not None:
        return JobState(runs, failed, spec.backoff_limit, spec.backoff_limit_per_index)
    total = _BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
    return JobState(runs, failed, total)


def _count_running(job: o.Workload) -> int:
    """Return how many pods of a Job are to run now: those of finished indexes are not made again."""
    spec, most = job.spec, 1 if job.spec.parallelism is None else job.spec.parallelism
    if spec.completions is None:
        return 0 if job.status.succeeded else most
    return max(0, min(most, spec.completions - job.status.succeeded))


def _of_exit(policy: Any, code: int) -> _Action:
    """Return the action of the first rule that matches an evicted pod whose containers end with ``code``."""
    for rule in _mappings(policy, "rules"):
        if _matches(rule, code):
            return _ACTIONS.get(str(rule.get("action")), _Action.COUNT)
    return _Action.COUNT


def _matches(rule: Mapping[str, Any], code: int) -> bool:
    codes = rule.get("onExitCodes")
    if isinstance(codes, Mapping):
        values = codes.get("values")
        listed = isinstance(values, list | tuple) and code in values
        return listed == (codes.get("operator") == "In")
    return any(
        condition.get("type") == "DisruptionTarget" and condition.get("status", "True") == "True"
        for condition in _mappings(rule, "onPodConditions")
    )


def _mappings(of: Any, key: str) -> Iterator[Mapping[str, Any]]:
    listed = of.get(key) if isinstance(of, Mapping) else None
    for one in listed if isinstance(listed, list | tuple) else ():
        if isinstance(one, Mapping):
            yield one
