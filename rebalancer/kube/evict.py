"""Send one eviction, or restart the rollout of a Deployment, and interpret the API server's answer. No pod is deleted here."""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import (
    ApiStatus,
    ForbiddenError,
    TransportError,
    refusal,
    says_missing,
    status_of,
)
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.snapshot.owners import why_no_surge
from rebalancer.wire import objects as o
from rebalancer.wire.kinds import (
    BUDGETS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    PODS,
    REPLICA_SETS,
    Resource,
)
from rebalancer.wire.objects import Condition
from rebalancer.wire.opt_outs import evict_opt_out, opt_outs
from rebalancer.wire.pods import NO_ANNOTATIONS, PodAnnotations
from rebalancer.wire.times import unix_seconds

__all__ = ["EVICT", "AnswerKind", "EvictionAnswer", "evict", "explain_refusal", "read_pod"]

EVICT = AccessRule("create", "", "pods/eviction")
GET_POD = AccessRule("get", "", "pods")


class AnswerKind(enum.Enum):
    """The result of a request to move a pod: an eviction, or a restart of its rollout."""

    EVICTED = "evicted"
    """The pod is terminating now (with ``dry_run``: it would be)."""
    RESTARTED = "restarted"
    """The rollout has been restarted."""
    REQUESTED = "requested"
    """An EvictionRequest asks the responders of the pod to end it."""
    DROPPED = "dropped"
    """Not requested: with the present Deployment a restart would leave a gap."""
    BLOCKED = "blocked"
    """429 with cause DisruptionBudget: the PodDisruptionBudget allows none now.

    From 1.37 on also 403 with it: too many evictions wait to be counted, or the budget's status is negative.
    """
    THROTTLED = "throttled"
    """Any other 429: the server is busy; nothing happened."""
    CHANGED = "changed"
    """409: another pod has the name now, or something changed at the same moment; read it again."""
    GONE = "gone"
    """Answer 404: the pod no longer exists."""
    MISCONFIGURED = "misconfigured"
    """500: more than one PodDisruptionBudget selects the pod; no eviction of it will ever succeed."""
    FORBIDDEN = "forbidden"
    """401, or 403 by the authorizer: no other eviction will be allowed either."""
    FAILED = "failed"
    """Refused in another way (an admission webhook denied it or did not answer, say), or the server could not be reached at all."""
    LOST = "lost"
    """The result is unknown: the connection broke, a 5xx, or an answer of something else than an API server.
    Whether the pod was evicted must be read from the pod."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """The answer to a request to move a pod."""

    kind: AnswerKind
    message: str
    """The server's own words, or the remedy."""
    retry_after: float | None = None
    """Seconds that the server requests to wait before another attempt."""


class _Preconditions(msgspec.Struct):
    uid: str


class _DeleteOptions(msgspec.Struct, rename="camel", omit_defaults=True):
    preconditions: _Preconditions
    dry_run: tuple[str, ...] = ()
    grace_period_seconds: int | None = None


class _Meta(msgspec.Struct):
    name: str
    namespace: str


class _Eviction(msgspec.Struct, rename="camel"):
    metadata: _Meta
    delete_options: _DeleteOptions
    api_version: str = "policy/v1"
    kind: str = "Eviction"


def evict(
    client: Client,
    namespace: str,
    name: str,
    uid: str,
    *,
    dry_run: bool = False,
    grace_period_seconds: int | None = None,
) -> EvictionAnswer:
    """Request the eviction of the pod if it still has this ``uid``.

    Never raises for errors of the server or the network, and never repeats a request that may have been received:
    every result is an :class:`EvictionAnswer`. ``grace_period_seconds``: None keeps the pod's own.
    """
    options = _DeleteOptions(_Preconditions(uid), ("All",) if dry_run else (), grace_period_seconds)
    body = msgspec.json.encode(_Eviction(_Meta(name, namespace), options))
    query = {"dryRun": "All"} if dry_run else None
    path = PODS.path(namespace, name, "eviction")
    try:
        response = client.post(path, body, query=query, retry_throttled=False)
    except TransportError as error:
        return EvictionAnswer(AnswerKind.LOST if error.sent else AnswerKind.FAILED, str(error))
    except ClusterReadError as error:
        # Credentials that can no longer be renewed, say.
        return EvictionAnswer(AnswerKind.FORBIDDEN, str(error))
    return _answer(response, client.server)


def read_pod(
    client: Client, namespace: str, name: str, *, seconds: float | None = None
) -> PodView | None:
    """Return the current pod of this name; None if there is none. Within ``seconds`` if given.

    Raises:
        ClusterReadError: it could not be read.
    """
    response = client.get(PODS.path(namespace, name), seconds=seconds)
    if says_missing(response.status, response.body):
        return None
    return decode_pod(client.expect(response, GET_POD).body, response.date)


class _Budgets(msgspec.Struct):
    # Required: of an answer without them, no budget is known to be gone.
    items: tuple[o.PodDisruptionBudget, ...] | None


def read_disruptions_allowed(client: Client, ref: str, *, seconds: float) -> int | None:
    """Return how many disruptions the PodDisruptionBudget ``namespace/name`` allows now; None if there is none.

    It is read by a list, which runs have the right to.

    Raises:
        ClusterReadError: it could not be read within ``seconds``.
    """
    namespace, _, name = ref.partition("/")
    query = {"fieldSelector": f"metadata.name={name}"}
    response = client.get(BUDGETS.path(namespace), query=query, seconds=seconds)
    rule = AccessRule.of("list", BUDGETS)
    listed = _decode(client.expect(response, rule).body, _Budgets, "PodDisruptionBudgetList")
    found = (one for one in listed.items or () if one.metadata.name == name)
    return next((one.status.disruptions_allowed for one in found), None)


class _WorkerTemplate(msgspec.Struct, rename="camel"):
    restart_policy: str = ""


class _GroupSpec(msgspec.Struct, rename="camel"):
    leader_worker_template: _WorkerTemplate = msgspec.field(default_factory=_WorkerTemplate)


class _LeaderWorkerSet(msgspec.Struct):
    spec: _GroupSpec = msgspec.field(default_factory=_GroupSpec)


def recreates_group(client: Client, namespace: str, name: str, *, seconds: float) -> bool:
    """Return whether a LeaderWorkerSet starts all of a group again once one pod of it has gone.

    It does by default, and so it is taken to be where the object may not be read.

    Raises:
        ClusterReadError: no answer within ``seconds``.
    """
    response = client.get(LEADER_WORKER_SETS.path(namespace, name), seconds=seconds)
    if not response.ok:
        return True
    read = _decode(response.body, _LeaderWorkerSet, "LeaderWorkerSet")
    return read.spec.leader_worker_template.restart_policy != "None"


_UNANSWERED_WEBHOOK = "failed calling webhook "
_NAMES_POD = re.compile(r'^pods "[^"]*" is forbidden: ')


def _answer(response: Response, server: str) -> EvictionAnswer:
    if response.ok and status_of(response.body).status == "Success":
        return EvictionAnswer(AnswerKind.EVICTED, "evicted")
    return explain_refusal(response, EVICT, server)


def explain_refusal(response: Response, rule: AccessRule, server: str) -> EvictionAnswer:
    """Interpret an unsuccessful response to a request that needs the right ``rule``.

    With a status of 500 or more, a server or proxy may have timed out although the request was executed.
    """
    status = response.status
    said = status_of(response.body)
    text = said.message or f"HTTP {status} without a text"
    wait = _retry_after(response, said)
    if status in (403, 429) and said.has_cause("DisruptionBudget"):
        causes = (said.details.causes if said.details else None) or ()
        details = "; ".join(cause.message for cause in causes if cause.message)
        return EvictionAnswer(AnswerKind.BLOCKED, f"{text} {details}".strip(), wait)
    if status == 429:
        return EvictionAnswer(AnswerKind.THROTTLED, text, wait if wait is not None else 1.0)
    if status == 500 and "more than one PodDisruptionBudget" in text:
        return EvictionAnswer(AnswerKind.MISCONFIGURED, text)
    if status == 403 and said.has_cause("NamespaceTerminating"):
        return EvictionAnswer(AnswerKind.GONE, text)
    # What the authorizer writes (apiserver's responsewriters.Forbidden); admission says 403 in other words,
    # and means this one pod only.
    by_rbac = f"cannot {rule.verb} resource" in text or not said.code
    if status == 401 or (status == 403 and by_rbac):
        return EvictionAnswer(
            AnswerKind.FORBIDDEN, str(refusal(status, response.body, rule, server))
        )
    # Admission comes before anything is stored (apiserver's webhookutil.ErrCallingWebhook).
    by_webhook = status == 500 and _UNANSWERED_WEBHOOK in text
    if (status >= 500 and not by_webhook) or not said.code:
        return EvictionAnswer(
            AnswerKind.LOST, f"HTTP {status} does not say what happened: {text}", wait
        )
    # Without the pod's name equal refusals of many pods are one reason.
    kind, text = _REFUSALS.get(status, AnswerKind.FAILED), _NAMES_POD.sub("", text)
    return EvictionAnswer(kind, f"HTTP {status}: {text}")


_REFUSALS = {404: AnswerKind.GONE, 409: AnswerKind.CHANGED}


def _retry_after(response: Response, said: ApiStatus) -> float | None:
    if response.retry_after is not None:
        return response.retry_after
    seconds = said.details.retry_after_seconds if said.details else 0
    return float(seconds) if seconds else None


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod at one moment."""

    uid: str
    node: str
    """Empty while it has none."""
    deleting: bool
    ready: bool = True
    """Whether its condition Ready is True."""
    phase: str = "Running"
    opted_out: str | None = None
    """Why its annotations forbid the eviction, in the words of the protections; None if they allow it."""


class _PodMeta(msgspec.Struct, rename="camel", gc=False):
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    annotations: PodAnnotations | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, gc=False):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None


class _Pod(msgspec.Struct, gc=False):
    metadata: _PodMeta = msgspec.field(default_factory=_PodMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Pod)


def decode_pod(body: bytes, now: float | None = None) -> PodView:
    """Parse the pod in ``body``. ``now``: Unix seconds for opt-outs with an end; None: they all apply.

    Raises:
        ClusterReadError: ``body`` is not a pod.
    """
    try:
        pod = _decoder.decode(body)
    except (ValueError, RecursionError) as error:  # msgspec's DecodeError is a ValueError
        raise ClusterReadError(f"the API server's answer is not a pod: {error}") from None
    if not pod.metadata.uid:
        raise ClusterReadError("the API server's answer is not a pod: it has no uid")
    conditions = pod.status.conditions or ()
    return PodView(
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        deleting=pod.metadata.deletion_timestamp is not None,
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        phase=pod.status.phase,
        opted_out=_find_opt_out(pod, now),
    )


def _find_opt_out(pod: _Pod, now: float | None) -> str | None:
    # Without a time, nothing has ended yet.
    age, at = (0.0, -math.inf) if now is None else (now - _since(pod), now)
    annotations = pod.metadata.annotations or NO_ANNOTATIONS
    return next((own.text for own in opt_outs(annotations) if own.protects(age, at)), None)


def _since(pod: _Pod) -> float:
    """Return when the pod became Ready, else when it was created (Unix seconds), as protections measure its age."""
    ready = [c for c in pod.status.conditions or () if c.type == "Ready" and c.status == "True"]
    return unix_seconds(ready[0].last_transition_time if ready else None) or unix_seconds(
        pod.metadata.creation_timestamp
    )


RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""Annotation of a pod template that ``kubectl rollout restart`` sets."""
RESTART = AccessRule.of("patch", DEPLOYMENTS)
RESTART_RULES = (
    AccessRule.of("get", REPLICA_SETS),
    AccessRule.of("get", DEPLOYMENTS),
    RESTART,
)

_Object = TypeVar(
    "_Object", "_OwnedPod", "o.Workload", "_ReplicaSets", "_Budgets", "_LeaderWorkerSet"
)


class _OwnedPod(msgspec.Struct):
    metadata: o.ObjectMeta = o.ObjectMeta()


class _ReplicaSets(msgspec.Struct):
    items: tuple[o.Workload, ...] | None


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
    """Time limit of each read, in seconds."""
    replicas: int = 1
    """How many the Deployment had when it was planned on: with others, another number of pods would move."""
    ordered: bool = False
    """A user ordered the eviction: an annotation of the Deployment that forbids it does not apply."""
    dry_run: bool = False
    """The server returns the answer that it would give, and changes nothing."""
    _selector: dict[str, str] = field(default_factory=dict)
    """Labels of the Deployment's ReplicaSets."""

    def ask(self) -> EvictionAnswer:
        """Request the restart if the pod still belongs to the Deployment, which must be settled and able to surge.

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
        if why := why_no_surge(deployment) or _explain_unsettled(deployment, self.replicas):
            return EvictionAnswer(
                AnswerKind.DROPPED, f"CannotSurge: {deployment.metadata.name}: {why}"
            )
        why = "" if self.ordered else _find_restart_opt_out(deployment, unix_seconds(self.at))
        if why:
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
        rule = AccessRule.of("list", REPLICA_SETS)
        sets = _decode(self.client.expect(response, rule).body, _ReplicaSets, "ReplicaSetList")
        for one in sets.items or ():
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
        pod = self._read(PODS, self.pod, _OwnedPod)
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
        if says_missing(response.status, response.body):
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
            response = self.client.patch(
                DEPLOYMENTS.path(self.namespace, meta.name),
                body,
                query={"dryRun": "All"} if self.dry_run else None,
            )
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


def _find_restart_opt_out(deployment: o.Workload, now: float) -> str:
    """Return the annotation that forbids to move the Deployment's pods; empty if there is none.

    An opt-out for young pods was evaluated with the pod's age when the plan was made.
    """
    own = evict_opt_out(deployment.metadata.annotations)
    stays = own is not None and math.isinf(own.seconds) and now < own.until
    return own.text if own is not None and stays else ""


def _explain_unsettled(deployment: o.Workload, replicas: int) -> str:
    """Return why the status of a Deployment does not show exactly so many settled replicas; empty if it does."""
    meta, spec, status = deployment.metadata, deployment.spec, deployment.status
    if meta.deletion_timestamp is not None:
        return "it is being deleted"
    if (wanted := 1 if spec.replicas is None else spec.replicas) != replicas:
        return f"it has {wanted} replicas now"
    if status.observed_generation < meta.generation:
        return "its controller has not seen the newest spec"
    counts = (status.replicas, status.updated_replicas or 0, status.available_replicas)
    if counts != (replicas,) * 3:
        return "rollout: {} pods, {} updated, {} available, {} wanted".format(*counts, replicas)
    return ""
