"""The signal source ``kubernetes``: taints, conditions and an annotation on Nodes that announce an interruption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from rebalancer.base.stop import Stop
from rebalancer.plan.machines import PipelineOutcome
from rebalancer.policy.interruption import IGNORED_KINDS, IgnoredKinds
from rebalancer.policy.values import Params
from rebalancer.signals.model import Interruption, SourceContext
from rebalancer.signals.notice import NOTICE, NodeNotice, read
from rebalancer.signals.state import state_in
from rebalancer.snapshot.leaving import LEAVING
from rebalancer.wire.marks import is_ours
from rebalancer.wire.objects import Node

_KINDS = (
    ("spot-itn", "spot"),
    ("rebalance-recommendation", "rebalance"),
    ("asg-lifecycle-termination", "scale-in"),
    ("scheduled-maintenance", "maintenance"),
    ("Autoscaler", "scale-in"),
    ("karpenter", "scale-in"),
    ("shutdown", "shutdown"),
    ("termination", "shutdown"),
    ("Shutdown", "shutdown"),
    ("Maintenance", "maintenance"),
)
"""Part of the key of a taint, or of the type of a condition -> the kind."""
_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
"""The autoscaler sets and removes it at each look, long before it decides."""


class KubernetesParams(Params):
    """Options of the source kubernetes: which taints and conditions announce an interruption."""

    taints: tuple[str, ...] = Field(
        default=tuple(sorted(LEAVING.taints - {_CANDIDATE})),
        description="Keys of taints, whatever their value and effect.",
    )
    conditions: tuple[str, ...] = Field(
        default=tuple(sorted(LEAVING.conditions)),
        description="Types of node conditions that are True.",
    )
    annotation: bool = Field(
        default=True,
        description="The annotation rebalancer/notice, which rebalancer node-agent writes.",
    )
    ignore_kinds: IgnoredKinds = IGNORED_KINDS


class KubernetesSource:
    """Nodes that taints, conditions or the annotation rebalancer/notice announce to be interrupted."""

    Params = KubernetesParams

    def open(self, params: KubernetesParams, surroundings: SourceContext) -> KubernetesReceiver:
        """Return a receiver that watches the nodes."""
        return KubernetesReceiver(params, surroundings)


class KubernetesReceiver:
    """Compares the announcements on nodes with the previous ones; it sends no requests."""

    def __init__(self, params: KubernetesParams, surroundings: SourceContext) -> None:
        self._params, self._around = params, surroundings
        self._said: dict[str, dict[str, Interruption]] = {}
        """Name of the node -> id -> the last announcement that is still in force."""

    def receive(self, stop: Stop) -> Sequence[Interruption]:
        """Return new, changed and cancelled interruptions, see :meth:`Receiver.receive`."""
        changed = self._around.nodes.news(stop)
        return [one for name, node in changed.items() for one in self._news(name, node)]

    def heartbeat(self, interruption: Interruption) -> None:
        """Do nothing: no service waits for a heartbeat."""

    def done(self, interruption: Interruption, outcome: PipelineOutcome) -> None:
        """Do nothing: there is no message to delete."""

    def close(self) -> None:
        """Do nothing: there is no open connection."""

    def _news(self, name: str, node: Node | None) -> Iterator[Interruption]:
        if node is None:
            self._said.pop(name, None)
            return
        before = self._said.get(name)
        if before is None:
            before = self._recall_known(node)
        # What was said of another Node of this name holds for its machine, and is not withdrawn by this one.
        before = {key: one for key, one in before.items() if one.uid == node.metadata.uid}
        ignored = self._params.ignore_kinds
        now = {one.id: one for one in self._list_announced(node) if one.kind not in ignored}
        self._said[name] = now
        for one in now.values():
            if one != before.get(one.id):
                yield one
        for one in before.values():
            if one.id not in now:
                yield self._interruption(node, one.id, one.kind, reason="withdrawn", cancelled=True)

    def _recall_known(self, node: Node) -> dict[str, Interruption]:
        """Return the interruptions that an earlier process handled; they may have been cancelled since."""
        ours, state = self._around.name, state_in(node.metadata.annotations, node.metadata.uid)
        return {
            cause.id: self._interruption(node, cause.id, cause.kind, reason="attended to before")
            for cause in (() if state is None else state.causes)
            if cause.source == ours
        }

    def _list_announced(self, node: Node) -> Iterator[Interruption]:
        uid = node.metadata.uid
        for taint in node.spec.taints or ():
            if taint.key in self._params.taints:
                value = f"={taint.value}" if taint.value else ""
                yield self._interruption(
                    node, f"{uid}/{taint.key}{value}", _kind(taint.key), f"tainted {taint.key}"
                )
        for condition in node.status.conditions or ():
            if is_ours(condition.type, condition.reason):
                continue  # it shows what is done already: the pipeline would hold itself for ever
            if condition.status == "True" and condition.type in self._params.conditions:
                yield self._interruption(
                    node,
                    f"{uid}/{condition.type}",
                    _kind(condition.type),
                    f"condition {condition.type}",
                )
        notice = self._notice(node)
        if notice is not None:
            yield self._interruption(
                node,
                f"{uid}/{notice.id}",
                notice.kind,
                " ".join(notice.reason.split()) or f"annotated {NOTICE}",
                deadline=notice.at,
                until=notice.latest,
            )

    def _notice(self, node: Node) -> NodeNotice | None:
        text = (node.metadata.annotations or {}).get(NOTICE)
        return read(text) if text is not None and self._params.annotation else None

    def _interruption(
        self,
        node: Node,
        id: str,  # noqa: A002  # the field's name
        kind: str,
        reason: str,
        *,
        deadline: float | None = None,
        until: float | None = None,
        cancelled: bool = False,
    ) -> Interruption:
        return Interruption(
            id=id,
            kind=kind,
            source=self._around.name,
            node=node.metadata.name,
            uid=node.metadata.uid,
            provider_id=node.spec.provider_id,
            deadline=deadline,
            until=until,
            reason=reason,
            cancelled=cancelled,
        )


def _kind(name: str) -> str:
    return next((kind for part, kind in _KINDS if part in name), "announced")
