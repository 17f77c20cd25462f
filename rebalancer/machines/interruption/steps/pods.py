"""Leave and escalate: move the pods off a node whose machine will end, and delete those that could not leave in time."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import msgspec
import numpy as np
from pydantic import Field

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.plain_text import and_more
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, status_of
from rebalancer.kube.node_pods import read_node_pods
from rebalancer.kube.nodes import NodeChange, NodeView, read_node
from rebalancer.kube.resources import AccessRule
from rebalancer.machines.drain.triage import EVERY, Fate, Triaged, triage_pods
from rebalancer.machines.interruption.model import (
    DONE,
    StepContext,
    fail_step,
    skip_step,
    time_out_step,
)
from rebalancer.machines.reasons import FateReason
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.policy.values import GracePeriod, PositiveDuration
from rebalancer.snapshot.leaving import LEAVE, NOW
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import PODS

_VERSION = (1, 36)
"""Pods are read for what they are, and not for where they would land: any version does."""


@dataclass(frozen=True, slots=True)
class PodToLeave:
    """A pod that has to leave."""

    namespace: str
    name: str
    uid: str
    terminating: bool
    grace: int
    """Its own grace period in seconds."""

    @property
    def ref(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def pods_to_leave(context: StepContext) -> list[PodToLeave]:
    """Return the pods of the node that have to leave: no DaemonSet, static or finished pods.

    Empty if another Node has its name now: that Node's pods are not on the machine that ends.

    Raises:
        ClusterReadError: the pods could not be read.
    """
    pods = read_node_pods(context.client, [context.node], clock=context.unix, version=_VERSION)
    node = read_node(context.client, context.node)
    if node is not None and node.uid != context.interruption.uid:
        return []
    snapshot = pods.living
    every = triage_pods(snapshot, np.ones(len(snapshot.nodes), bool), EVERY)
    return [_pod(snapshot, one) for one in every if one.fate is not Fate.STAY]


def _pod(snapshot: Snapshot, one: Triaged) -> PodToLeave:
    namespace, _, name = snapshot.pod_ref(one.pod).partition("/")
    spec = snapshot.classes[int(snapshot.pods.cls[one.pod])].spec
    return PodToLeave(
        namespace,
        name,
        snapshot.pods.uid[one.pod],
        terminating=one.why is FateReason.TERMINATING,
        grace=_grace(spec.termination_grace_period_seconds),
    )


def _grace(seconds: int | None) -> int:
    # What the API server writes where a pod says nothing.
    return 30 if seconds is None else seconds


def format_pods(pods: Sequence[PodToLeave]) -> str:
    """Return the pods as text."""
    refs = [f"{pod.ref}{' (terminating)' if pod.terminating else ''}" for pod in pods]
    return f"{len(pods)} on the node: {and_more(refs, 5)}"


_OURS = f"{NOW} (interruption)"
"""The value of the step's own annotation: other values were written by people, and are kept."""
_NONE = "none"
"""Stored if there was no annotation before ours; else its value is stored."""
_POLL_INTERVAL, _MAX_POLL_INTERVAL = 1.0, 10.0
"""Seconds between two reads of the node's pods; without a deadline, the reads become less frequent."""


class LeaveParams(StepParams):
    """The step leave has no options: how pods leave is the policy's, and the strategy leaving's."""

    strategy: ClassVar[str | None] = "leaving"
    changes_node: ClassVar[bool] = True

    def part(self) -> timedelta | float | None:
        """Return None: all the time that the other steps leave."""
        return None


class Leave:
    """Annotates the node rebalancer/leave, so that the strategy leaving moves its pods, and waits for them."""

    Params = LeaveParams

    def act(self, context: StepContext, params: LeaveParams) -> StepOutcome:  # noqa: ARG002  # the contract's
        """Annotate the node and wait until its pods have left."""
        kept = context.left or None
        before = _NONE

        def change(node: NodeView) -> NodeChange | None:
            return (
                None
                if node.annotations.get(LEAVE) in (NOW, _OURS)
                else NodeChange(annotations={LEAVE: _OURS})
            )

        if kept is None:
            there = context.change(lambda _: None, "")
            before = _NONE if there is None else there.annotations.get(LEAVE, _NONE)
        view = context.change(change, kept or before)
        if view is None:
            return skip_step("the node is gone")
        # Where others have uncordoned it they had their reasons; but pods that land on it again cannot leave.
        open_ = "" if view.unschedulable else "; it is not cordoned, and takes new pods"
        context.plan()
        trouble = self._await_emptied(context)
        return time_out_step(f"{trouble}{open_}") if trouble else DONE

    @staticmethod
    def _await_emptied(context: StepContext) -> str:
        """Wait until all pods have left; return what remains or is unknown when the time is over, else empty."""
        look, trouble = _POLL_INTERVAL, ""
        while True:
            try:
                left = pods_to_leave(context)
            except ForbiddenError:
                raise
            except ClusterReadError as error:
                # A look that is cut off, since the time is over, says less than the one before.
                if context.stop.reason() is None or not trouble:
                    trouble = str(error)
            else:
                if not left:
                    return ""
                trouble = format_pods(left)
            if context.stop.wait(look) is not None:
                return trouble
            if context.deadline is None:
                look = min(1.1 * look, _MAX_POLL_INTERVAL)

    def undo(self, context: StepContext, params: LeaveParams) -> None:  # noqa: ARG002  # the contract's
        """Restore the annotation; a value that people have written since is kept."""
        if not context.left:
            return
        before = None if context.left == _NONE else context.left

        def change(node: NodeView) -> NodeChange | None:
            ours = node.annotations.get(LEAVE) == _OURS
            return NodeChange(annotations={LEAVE: before}) if ours else None

        context.change(change, "")


class Means(enum.StrEnum):
    """The action on pods that could not leave in time."""

    NONE = "none"
    """The pods end with their machine."""
    DELETE = "delete"
    """The pods are deleted, even against their PodDisruptionBudgets."""


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
    """Deletes the remaining pods of the node, a grace period and a margin before the machine ends; off by default."""

    Params = EscalateParams

    def rules(self, params: EscalateParams) -> tuple[AccessRule, ...]:
        """Return the rights to delete pods, if the option requires them."""
        return (DELETE,) if params.means is Means.DELETE else ()

    def act(self, context: StepContext, params: EscalateParams) -> StepOutcome:
        """Delete the remaining pods."""
        if params.means is Means.NONE:
            return skip_step("the policy says none")
        if context.deadline is None:
            return skip_step("it is not known when the machine goes")
        if context.interruption.is_over(context.unix()):
            return skip_step("the machine was to have gone, and is still here")
        last = params.grace + params.margin
        wait = context.deadline - last.total_seconds() - context.unix()
        if not pods_to_leave(context):
            return skip_step("no pod is left")
        if wait > 0 and context.stop.wait(wait) is not None:
            return time_out_step("it was not time yet")
        return self._delete(context, int(params.grace.total_seconds()))

    def _delete(self, context: StepContext, longest: int) -> StepOutcome:
        asked: set[str] = set()
        refused: dict[str, str] = {}
        left: Sequence[PodToLeave] = ()
        while left := self._list_remaining(context, left):
            if context.interruption.is_over(context.unix()):
                return time_out_step(
                    f"{format_pods(left)}; the machine was to have gone, and is still here"
                )
            for pod in left:
                if pod.uid not in asked and not pod.terminating:
                    self._one(context, pod, longest, asked, refused)
            if context.stop.wait(_POLL_INTERVAL) is not None:
                why = "".join(f"; {ref}: {reply}" for ref, reply in refused.items())
                return (
                    time_out_step(f"{format_pods(left)}{why}")
                    if not refused
                    else fail_step(f"{format_pods(left)}{why}")
                )
        return DONE

    @staticmethod
    def _list_remaining(context: StepContext, known: Sequence[PodToLeave]) -> Sequence[PodToLeave]:
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


DELETE = AccessRule.of("delete", PODS)
_TIMEOUT = 10.0


def delete_pod(client: Client, namespace: str, name: str, uid: str, *, grace: int) -> str | None:
    """Delete the pod if it still has this ``uid``; return None, or why it was not deleted.

    A pod that is gone counts as deleted, also if another pod has its name now. ``grace``: grace period in seconds.
    """
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": grace,
        "preconditions": {"uid": uid},
    }
    try:
        response = client.delete(
            PODS.path(namespace, name), msgspec.json.encode(options), seconds=_TIMEOUT
        )
        if response.status in (404, 409) and status_of(response.body).code == response.status:
            return None
        client.expect(response, DELETE)
    except ClusterReadError as error:
        return error.lines[0]
    return None
