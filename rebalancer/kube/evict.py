"""Send one eviction, and interpret the API server's answer. This module never deletes a pod."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ApiStatus, TransportError, refusal, status_of
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.wire.kinds import PODS
from rebalancer.wire.objects import Condition
from rebalancer.wire.opt_outs import opt_outs
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
    DROPPED = "dropped"
    """Not asked for: as the Deployment is now, a restart would leave a gap."""
    BLOCKED = "blocked"
    """429 with cause DisruptionBudget: the PodDisruptionBudget allows none now.

    From 1.37 on also 403 with it: too many evictions wait to be counted, or the budget's status is negative.
    """
    THROTTLED = "throttled"
    """Any other 429: the server is busy; nothing happened."""
    CHANGED = "changed"
    """409: another pod has the name now, or something changed at the same moment; read it again."""
    GONE = "gone"
    """404."""
    MISCONFIGURED = "misconfigured"
    """500: more than one PodDisruptionBudget selects the pod; no eviction of it will ever succeed."""
    FORBIDDEN = "forbidden"
    """401, or 403 by the authorizer: no other eviction will be allowed either."""
    FAILED = "failed"
    """Refused in another way (an admission webhook, say), or the server could not be reached at all."""
    LOST = "lost"
    """No answer that says what happened: the connection broke, a 5xx, an answer of something else than an API server.
    Whether it happened must be read from the pod."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """The answer to a request to move a pod."""

    kind: AnswerKind
    message: str
    """The server's own words, or what is to be done."""
    retry_after: float | None = None
    """Seconds the server asks to wait before another attempt."""


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
    """Ask the API server to evict the pod if it still has this ``uid``.

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
    if response.status == 404 and status_of(response.body).code == 404:
        return None
    return decode_pod(client.expect(response, GET_POD).body, response.date)


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
    if status >= 500 or not said.code:
        return EvictionAnswer(
            AnswerKind.LOST, f"HTTP {status} does not say what happened: {text}", wait
        )
    return EvictionAnswer(_REFUSALS.get(status, AnswerKind.FAILED), f"HTTP {status}: {text}")


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
    """Parse the pod in ``body``. ``now``: Unix seconds for opt-outs with an end; None: they all hold.

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
