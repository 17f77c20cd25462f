"""Escalate: delete pods that could not leave in time, while they can still terminate gracefully."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.delete import DELETE, delete_pod
from rebalancer.kube.resources import AccessRule
from rebalancer.machines.interruption.model import DONE, StepContext, failed, skipped, timed_out
from rebalancer.machines.interruption.steps.pods import PodToLeave, pods_to_leave, shown
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.policy.values import GracePeriod, PositiveDuration

_LOOK = 1.0


class Means(enum.StrEnum):
    """What to do with pods that could not leave in time."""

    NONE = "none"
    """They end with their machine."""
    DELETE = "delete"
    """They are deleted, whatever their PodDisruptionBudgets say."""


class EscalateParams(StepParams):
    """Options of the step escalate."""

    waits: ClassVar[bool] = True

    means: Means = Field(
        default=Means.NONE,
        description="none, or delete: pods that are left are deleted, PodDisruptionBudgets notwithstanding. Needs delete"
        " on pods.",
    )
    grace: GracePeriod = Field(
        default=timedelta(seconds=30),
        description="The longest grace period that a pod gets; one with a shorter of its own keeps that.",
    )
    margin: PositiveDuration = Field(
        default=timedelta(seconds=5), description="Seconds to spare beyond the grace period."
    )

    def part(self) -> timedelta | float | None:
        """Return the default part: with ``delete``, the grace period and the margin at the end of the time."""
        return self.grace + self.margin if self.means is Means.DELETE else timedelta(seconds=1)


class Escalate:
    """Deletes the pods that are left on the node, a grace period and a margin before it goes; off by default."""

    Params = EscalateParams

    def rules(self, params: EscalateParams) -> tuple[AccessRule, ...]:
        """Return the rights to delete pods, if the option asks for it."""
        return (DELETE,) if params.means is Means.DELETE else ()

    def act(self, context: StepContext, params: EscalateParams) -> StepOutcome:
        """Delete the remaining pods."""
        if params.means is Means.NONE:
            return skipped("the policy says none")
        if context.deadline is None:
            return skipped("it is not known when the machine goes")
        if context.interruption.is_over(context.unix()):
            return skipped("the machine was to have gone, and is still here")
        last = params.grace + params.margin
        wait = context.deadline - last.total_seconds() - context.unix()
        if not pods_to_leave(context):
            return skipped("no pod is left")
        if wait > 0 and context.stop.wait(wait) is not None:
            return timed_out("it was not time yet")
        return self._delete(context, int(params.grace.total_seconds()))

    def _delete(self, context: StepContext, longest: int) -> StepOutcome:
        asked: set[str] = set()
        refused: dict[str, str] = {}
        left: Sequence[PodToLeave] = ()
        while left := self._left(context, left):
            if context.interruption.is_over(context.unix()):
                return timed_out(f"{shown(left)}; the machine was to have gone, and is still here")
            for pod in left:
                if pod.uid not in asked and not pod.terminating:
                    self._one(context, pod, longest, asked, refused)
            if context.stop.wait(_LOOK) is not None:
                why = "".join(f"; {ref}: {reply}" for ref, reply in refused.items())
                return (
                    timed_out(f"{shown(left)}{why}")
                    if not refused
                    else failed(f"{shown(left)}{why}")
                )
        return DONE

    @staticmethod
    def _left(context: StepContext, known: Sequence[PodToLeave]) -> Sequence[PodToLeave]:
        """Return the pods that have to leave; those ``known`` if reading is cut off because the time is over."""
        try:
            return pods_to_leave(context)
        except ClusterReadError:
            if known and context.stop.reason() is not None:
                return known
            raise

    def _one(
        self,
        context: StepContext,
        pod: PodToLeave,
        longest: int,
        asked: set[str],
        refused: dict[str, str],
    ) -> None:
        why = delete_pod(
            context.client, pod.namespace, pod.name, pod.uid, grace=min(pod.grace, longest)
        )
        if why is not None and pod.ref in refused and context.stop.reason() is not None:
            return  # cut off, since the time is over: the reply before says more
        refused.pop(pod.ref, None)
        if why is None:
            asked.add(pod.uid)
        else:
            refused[pod.ref] = why
