"""EvictionRequests (KEP-4563): list them, create the request to end a pod, and withdraw it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, explain_refusal
from rebalancer.kube.failures import NotServedError, TransportError
from rebalancer.kube.lists import list_whole
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.snapshot.requests import REQUESTER, EvictionRequest, request_name
from rebalancer.wire.kinds import EVICTION_REQUESTS
from rebalancer.wire.objects import ListMeta, ObjectMeta
from rebalancer.wire.times import unix_seconds

_LIST = AccessRule.of("list", EVICTION_REQUESTS)
_PATCH = AccessRule.of("patch", EVICTION_REQUESTS)
LIST_REQUESTS = (_LIST,)
"""Right needed by a run, dry or not, whose policy has ``method.evictionRequests``."""
REQUEST_RULES = (
    AccessRule.of("create", EVICTION_REQUESTS),
    _PATCH,
)
"""Rights needed, beside LIST_REQUESTS, by a run that moves pods under such a policy."""
ASKED_AT = "rebalancer/asked-at"
"""Annotation of our requests: the time of the newest one. A request that was withdrawn because its run had to end has none."""
_FIELD_MANAGER = "kube-rebalancer"
_APPLY = "application/apply-patch+yaml"

_NO_RESPONDER = "NoFurtherResponder"
_FOR_GOOD = {
    "EvictionInvalid": "the API refuses it",
    _NO_RESPONDER: "no responder is left to end the pod",
}
"""Reason of the condition Failed -> its meaning. A request that its requesters have withdrawn is Failed, too."""


class _Target(msgspec.Struct):
    name: str
    uid: str


class _Targets(msgspec.Struct):
    pod: _Target | None = None


class _Spec(msgspec.Struct):
    target: _Targets
    requester: str
    intent: str


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, rename="camel"):
    conditions: tuple[_Condition, ...] | None = None
    observed_generation: int | None = None


class _Request(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _Page(msgspec.Struct):
    items: tuple[_Request, ...] | None
    metadata: ListMeta


def list_requests(
    client: Client, namespace: str = "", name: str = ""
) -> list[EvictionRequest] | None:
    """Return the EvictionRequests for pods, of one namespace or name if given; None where the API is not served.

    Raises:
        ClusterReadError: they could not be read, or may not be.
    """
    selector = f"metadata.name={name}" if name else ""
    try:
        found = list_whole(
            client, EVICTION_REQUESTS, _decode_page, selector=selector, namespace=namespace
        )
    except NotServedError:
        return None
    return [_fold(one, one.spec.target.pod) for one in found if one.spec.target.pod]


def _decode_page(response: Response) -> tuple[tuple[_Request, ...], ListMeta]:
    page = msgspec.json.decode(response.body, type=_Page)
    return page.items or (), page.metadata


def _fold(one: _Request, target: _Target) -> EvictionRequest:
    meta, withdrawn = one.metadata, one.spec.intent == "Withdrawn"
    seen = one.status.observed_generation
    stale = seen is not None and seen < meta.generation
    said = () if stale else one.status.conditions or ()
    true = [each for each in said if each.status == "True"]
    failed = (
        f"{_FOR_GOOD[each.reason]}{f': {each.message}' if each.message else ''}"
        for each in true
        if each.type == "Failed" and each.reason in _FOR_GOOD
    )
    made = EvictionRequest(
        namespace=meta.namespace,
        name=meta.name,
        pod=target.name,
        pod_uid=target.uid,
        requester=one.spec.requester,
        withdrawn=withdrawn,
        asked_at=0.0 if withdrawn else unix_seconds(meta.creation_timestamp),
        failed=next(failed, ""),
        evicted=any(each.type == "TargetEvicted" for each in true),
    )
    noted = unix_seconds((meta.annotations or {}).get(ASKED_AT)) if made.ours else 0.0
    return replace(made, asked_at=noted or made.asked_at)


def ask(client: Client, namespace: str, pod: str, uid: str, at: str) -> EvictionAnswer:
    """Request the end of a pod. ``at``: the time (RFC 3339).

    Never raises for errors of the server or the network. The request belongs to the pod, and is deleted with it.
    """
    return _apply(client, namespace, pod, uid, "Eviction", {ASKED_AT: at})


def withdraw(client: Client, namespace: str, pod: str, uid: str, at: str | None) -> EvictionAnswer:
    """Withdraw our request: responders that have not begun never do, and the active one should cancel.

    ``at``: the time of an unsuccessful request; None: the pod may be requested again at once.
    """
    return _apply(client, namespace, pod, uid, "Withdrawn", {} if at is None else {ASKED_AT: at})


def _find_other(client: Client, namespace: str, uid: str) -> str:
    """Return a message about another client's object with the name of our request; empty if there is none."""
    try:
        listed = list_requests(client, namespace, request_name(uid)) or ()
    except ClusterReadError:
        return ""
    others = (replace(one, has_our_name=True).text for one in listed if one.in_place_of == uid)
    return next(others, "")


def _apply(
    client: Client, namespace: str, pod: str, uid: str, intent: str, annotations: dict[str, str]
) -> EvictionAnswer:
    name = request_name(uid)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    body: dict[str, Any] = {
        "apiVersion": EVICTION_REQUESTS.api_version,
        "kind": EVICTION_REQUESTS.kind,
        "metadata": {"name": name, "annotations": annotations, "ownerReferences": [owner]},
        "spec": {
            "target": {"pod": {"name": pod, "uid": uid}},
            "requester": REQUESTER,
            "intent": intent,
        },
    }
    try:
        response = client.patch(
            EVICTION_REQUESTS.path(namespace, name),
            msgspec.json.encode(body),
            query={"fieldManager": _FIELD_MANAGER, "force": "true"},
            content_type=_APPLY,
        )
    except TransportError as error:
        return EvictionAnswer(AnswerKind.LOST if error.sent else AnswerKind.FAILED, str(error))
    except ClusterReadError as error:
        return EvictionAnswer(AnswerKind.FORBIDDEN, str(error))
    if response.status == 422 and (other := _find_other(client, namespace, uid)):
        # It was made after the requests were listed.
        return EvictionAnswer(AnswerKind.DROPPED, other)
    if not response.ok:
        answer = explain_refusal(response, _PATCH, client.server)
        # Of the API or the namespace, not of the pod.
        gone = answer.kind is AnswerKind.GONE
        return EvictionAnswer(AnswerKind.FAILED, answer.message) if gone else answer
    try:
        said = msgspec.json.decode(response.body, type=_Request).spec
    except (ValueError, RecursionError) as error:
        return EvictionAnswer(AnswerKind.LOST, f"the answer is no EvictionRequest: {error}")
    if said.target.pod is None or said.target.pod.uid != uid or said.intent != intent:
        return EvictionAnswer(AnswerKind.FAILED, f"{name} is not as it was asked for")
    return EvictionAnswer(AnswerKind.REQUESTED, f"asked by {name}")
