"""Restart a Deployment's rollout, as ``kubectl rollout restart`` does, and interpret the server's answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, explain_refusal
from rebalancer.kube.failures import ForbiddenError, TransportError, status_of
from rebalancer.kube.resources import AccessRule
from rebalancer.snapshot.owners import why_no_surge
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import DEPLOYMENTS, PODS, REPLICA_SETS, Resource
from rebalancer.wire.opt_outs import evict_opt_out
from rebalancer.wire.times import unix_seconds

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""Annotation of a pod template that ``kubectl rollout restart`` sets."""
RESTART = AccessRule("patch", DEPLOYMENTS.group, DEPLOYMENTS.plural)
RESTART_RULES = (
    AccessRule("get", REPLICA_SETS.group, REPLICA_SETS.plural),
    AccessRule("get", DEPLOYMENTS.group, DEPLOYMENTS.plural),
    RESTART,
)

_Object = TypeVar("_Object", "_Pod", "o.Workload", "_ReplicaSets")


class _Pod(msgspec.Struct):
    metadata: o.ObjectMeta = o.ObjectMeta()


class _ReplicaSets(msgspec.Struct):
    items: tuple[o.Workload, ...] = ()


@dataclass(slots=True)
class Restart:
    """The restart of the rollout that replaces one pod. Asking again repeats the same restart."""

    client: Client
    namespace: str
    pod: str
    uid: str
    deployment: str
    """uid of the Deployment that was planned on."""
    at: str
    """Value of the annotation: a time (RFC 3339)."""
    seconds: float
    """For each read."""
    _selector: dict[str, str] = field(default_factory=dict)
    """Labels of the Deployment's ReplicaSets."""

    def ask(self) -> EvictionAnswer:
        """Ask for the restart if the pod still belongs to the Deployment, which must be settled and able to surge.

        Never raises for errors of the server or the network. The resourceVersion that was read is a precondition:
        concurrent changes of other clients are never overwritten.
        """
        try:
            deployment = self._deployment()
        except ForbiddenError as error:
            return EvictionAnswer(AnswerKind.FORBIDDEN, str(error))
        except ClusterReadError as error:
            return EvictionAnswer(
                AnswerKind.FAILED, f"the pod's Deployment could not be read: {error}"
            )
        if isinstance(deployment, EvictionAnswer):
            return deployment
        self._selector = _match_labels(deployment)
        if _read_restart_time(deployment) == self.at:
            return EvictionAnswer(AnswerKind.RESTARTED, "restarted")
        if why := why_no_surge(deployment) or _explain_unsettled(deployment):
            return EvictionAnswer(
                AnswerKind.DROPPED, f"CannotSurge: {deployment.metadata.name}: {why}"
            )
        if why := _find_opt_out(deployment, unix_seconds(self.at)):
            return EvictionAnswer(AnswerKind.DROPPED, f"protected now: its Deployment is {why}")
        return self._patch(deployment)

    def replica_set(self) -> str | None:
        """Return the uid of the ReplicaSet that the restart created; None if there is none yet.

        Raises:
            ClusterReadError: ReplicaSets could not be read.
        """
        labels = ",".join(f"{key}={value}" for key, value in sorted(self._selector.items()))
        response = self.client.get(
            REPLICA_SETS.path(self.namespace),
            query={"labelSelector": labels} if labels else None,
            seconds=self.seconds,
        )
        rule = AccessRule("list", REPLICA_SETS.group, REPLICA_SETS.plural)
        sets = _decode(self.client.expect(response, rule).body, _ReplicaSets, "ReplicaSetList")
        for one in sets.items:
            of = _controller(one.metadata)
            if of is not None and of.uid == self.deployment and _read_restart_time(one) == self.at:
                return one.metadata.uid
        return None

    # -- from the pod to its Deployment ------------------------------------------------------------

    def _deployment(self) -> o.Workload | EvictionAnswer:
        """Return the current Deployment, or why it no longer owns the pod.

        Raises:
            ClusterReadError: an object could not be read.
        """
        pod = self._read(PODS, self.pod, _Pod)
        if pod is None:
            return EvictionAnswer(AnswerKind.GONE, "the pod is gone")
        if pod.metadata.uid != self.uid:
            return EvictionAnswer(AnswerKind.CHANGED, "another pod has its name now")
        owned = self._owner(pod.metadata, REPLICA_SETS)
        owner = (
            owned if isinstance(owned, EvictionAnswer) else self._owner(owned.metadata, DEPLOYMENTS)
        )
        if isinstance(owner, o.Workload) and owner.metadata.uid != self.deployment:
            return EvictionAnswer(AnswerKind.CHANGED, "the pod is of another Deployment now")
        return owner

    def _owner(self, owned: o.ObjectMeta, resource: Resource) -> o.Workload | EvictionAnswer:
        reference = _controller(owned)
        if reference is None or reference.kind != resource.kind:
            return EvictionAnswer(AnswerKind.CHANGED, f"no {resource.kind} controls the pod now")
        owner = self._read(resource, reference.name, o.Workload)
        if owner is None or owner.metadata.uid != reference.uid:
            return EvictionAnswer(AnswerKind.CHANGED, f"{resource.kind} {reference.name} is gone")
        return owner

    def _read(self, resource: Resource, name: str, kind: type[_Object]) -> _Object | None:
        path = resource.path(self.namespace, name)
        response = self.client.get(path, seconds=self.seconds)
        if response.status == 404 and status_of(response.body).code == 404:
            return None
        rule = AccessRule("get", resource.group, resource.plural)
        return _decode(self.client.expect(response, rule).body, kind, resource.kind)

    # -- the change --------------------------------------------------------------------------------

    def _patch(self, deployment: o.Workload) -> EvictionAnswer:
        meta = deployment.metadata
        template = {"metadata": {"annotations": {RESTARTED_AT: self.at}}}
        body = msgspec.json.encode(
            {
                "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
                "spec": {"template": template},
            }
        )
        try:
            response = self.client.patch(DEPLOYMENTS.path(self.namespace, meta.name), body)
        except TransportError as error:
            return EvictionAnswer(AnswerKind.LOST if error.sent else AnswerKind.FAILED, str(error))
        except ClusterReadError as error:
            return EvictionAnswer(AnswerKind.FORBIDDEN, str(error))
        if not response.ok:
            return explain_refusal(response, RESTART, self.client.server)
        try:
            patched = _decode(response.body, o.Workload, DEPLOYMENTS.kind)
        except ClusterReadError as error:
            return EvictionAnswer(AnswerKind.LOST, str(error))
        if _read_restart_time(patched) != self.at:
            return EvictionAnswer(
                AnswerKind.LOST, "the answer to the patch is not of the Deployment"
            )
        return EvictionAnswer(AnswerKind.RESTARTED, "restarted")


def _decode(body: bytes, kind: type[_Object], name: str) -> _Object:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise ClusterReadError(f"the API server's answer is no {name}: {error}") from None


def _controller(meta: o.ObjectMeta) -> o.OwnerReference | None:
    return next((one for one in meta.owner_references or () if one.controller), None)


def _read_restart_time(workload: o.Workload) -> str | None:
    template = workload.spec.template
    return None if template is None else (template.metadata.annotations or {}).get(RESTARTED_AT)


def _match_labels(deployment: o.Workload) -> dict[str, str]:
    selector = deployment.spec.selector
    labels = selector.get("matchLabels") if isinstance(selector, dict) else None
    return {str(key): str(value) for key, value in (labels or {}).items()}


def _find_opt_out(deployment: o.Workload, now: float) -> str:
    """Return the annotation that forbids to move the Deployment's pods; empty if there is none.

    An opt-out for young pods was evaluated with the pod's age when the plan was made.
    """
    own = evict_opt_out(deployment.metadata.annotations)
    stays = own is not None and math.isinf(own.seconds) and now < own.until
    return own.text if own is not None and stays else ""


def _explain_unsettled(deployment: o.Workload) -> str:
    """Return why a Deployment is not one settled replica, by its own status; empty if it is."""
    meta, spec, status = deployment.metadata, deployment.spec, deployment.status
    if meta.deletion_timestamp is not None:
        return "it is being deleted"
    if (wanted := 1 if spec.replicas is None else spec.replicas) != 1:
        return f"it has {wanted} replicas now"
    if status.observed_generation < meta.generation:
        return "its controller has not seen the newest spec"
    counts = (status.replicas, status.updated_replicas or 0, status.available_replicas)
    if counts != (1, 1, 1):
        return "rollout: {} pods, {} updated, {} available, 1 wanted".format(*counts)
    return ""
