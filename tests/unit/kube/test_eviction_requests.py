"""EvictionRequests: what is sent, what the server says, and what is made of the list."""

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.evict import AnswerKind
from rebalancer.kube.eviction_requests import ASKED_AT, ask, list_requests, withdraw
from rebalancer.snapshot.requests import REQUESTER
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, list_body, status_body

UID = "0b7e7c0e-7a3c-4a35-9a3e-2f0f6b0f7a11"
NAME = f"rebalancer-{UID}"
PATH = f"/apis/lifecycle.k8s.io/v1alpha1/namespaces/shop/evictionrequests/{NAME}"
LIST = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests"
AT, UNIX = "2027-01-15T08:00:00Z", 1_800_000_000.0


def listed(*, intent="Eviction", requester=REQUESTER, annotations=None, target=None, conditions=()):
    return {
        "metadata": {
            "name": NAME,
            "namespace": "shop",
            "creationTimestamp": "2027-01-15T07:00:00Z",
            "annotations": annotations or {},
        },
        "spec": {
            "target": {"pod": {"name": "web-1", "uid": UID}} if target is None else target,
            "requester": requester,
            "intent": intent,
        },
        "status": {"conditions": list(conditions)},
    }


def condition(kind, reason="", message="", status="True"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def said_to(tmp_path, act, answer):
    with ScriptedServer() as server:
        server.on("PATCH", PATH, answer)
        return act(client_of(server.url, tmp_path)), server.asked[-1]


def test_a_request_belongs_to_its_pod_and_asking_again_is_the_same(tmp_path):
    said, sent = said_to(
        tmp_path, lambda client: ask(client, "shop", "web-1", UID, AT), Say(listed())
    )
    assert said.kind is AnswerKind.REQUESTED
    assert (sent.method, sent.query) == (
        "PATCH",
        {"fieldManager": "kube-rebalancer", "force": "true"},
    )
    assert sent.headers["Content-Type"] == "application/apply-patch+yaml"
    assert sent.body == {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": {
            "name": NAME,
            "annotations": {ASKED_AT: AT},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": UID}],
        },
        "spec": {
            "target": {"pod": {"name": "web-1", "uid": UID}},
            "requester": REQUESTER,
            "intent": "Eviction",
        },
    }


@pytest.mark.parametrize(("at", "noted"), [(AT, {ASKED_AT: AT}), (None, {})])
def test_a_withdrawal_says_whether_the_request_had_its_time(tmp_path, at, noted):
    said, sent = said_to(
        tmp_path,
        lambda client: withdraw(client, "shop", "web-1", UID, at),
        Say(listed(intent="Withdrawn")),
    )
    assert said.kind is AnswerKind.REQUESTED
    assert sent.body["spec"]["intent"] == "Withdrawn"
    assert sent.body["metadata"]["annotations"] == noted


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Say(listed(intent="Withdrawn")), AnswerKind.FAILED),
        (Say(listed(target={"pod": {"name": "web-1", "uid": "another"}})), AnswerKind.FAILED),
        (Say(b"<html>Welcome</html>"), AnswerKind.LOST),
        (
            Say(status_body(404, "the server could not find the requested resource"), 404),
            AnswerKind.FAILED,
        ),
        (
            Say(status_body(403, 'cannot patch resource "evictionrequests"'), 403),
            AnswerKind.FORBIDDEN,
        ),
        (Say(status_body(422, "spec.requester: Invalid value"), 422), AnswerKind.FAILED),
        (Say(status_body(503, "etcd is away"), 503), AnswerKind.LOST),
        (Say(hang_up=True), AnswerKind.LOST),
    ],
)
def test_each_answer_is_what_happened(tmp_path, answer, kind):
    said, _ = said_to(tmp_path, lambda client: ask(client, "shop", "web-1", UID, AT), answer)
    assert said.kind is kind


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (listed(requester="acme.example/drains"), AnswerKind.DROPPED),
        (listed(target={"pod": {"name": "db-0", "uid": "another"}}), AnswerKind.DROPPED),
        (listed(), AnswerKind.FAILED),
        (None, AnswerKind.FAILED),
    ],
    ids=["of-others", "for-another-pod", "ours", "none"],
)
def test_an_object_of_others_with_the_name_of_ours_keeps_its_pod_alone(tmp_path, other, kind):
    with ScriptedServer() as server:
        server.on("PATCH", PATH, Say(status_body(422, "spec: Invalid value: is immutable"), 422))
        server.on("GET", PATH.rpartition("/")[0], Say(list_body([other] if other else [])))
        said = ask(client_of(server.url, tmp_path), "shop", "web-1", UID, AT)
    assert said.kind is kind
    assert ("has the name of ours for it: delete it" in said.message) is (
        kind is AnswerKind.DROPPED
    )


NOTED = {ASKED_AT: AT}


@pytest.mark.parametrize(
    ("one", "open_", "asked_at", "failed"),
    [
        (listed(annotations=NOTED), True, UNIX, ""),
        (listed(requester="acme.example/drains"), True, UNIX - 3600, ""),
        (listed(annotations={ASKED_AT: "yesterday"}), True, UNIX - 3600, ""),
        (
            listed(conditions=[condition("Failed", "AwaitingEviction", status="False")]),
            True,
            UNIX - 3600,
            "",
        ),
        # So it is for a moment after it was asked for again.
        (
            listed(conditions=[condition("Failed", "CanceledDueToNoRequesters")]),
            True,
            UNIX - 3600,
            "",
        ),
        (listed(intent="Withdrawn", annotations=NOTED), False, UNIX, ""),
        (listed(intent="Withdrawn"), False, 0.0, ""),
        (listed(conditions=[condition("TargetEvicted", "PodDeleted")]), False, UNIX - 3600, ""),
        (
            listed(conditions=[condition("Failed", "EvictionInvalid", "Target pod not found.")]),
            False,
            UNIX - 3600,
            "the API refuses it: Target pod not found.",
        ),
        (
            listed(conditions=[condition("Failed", "NoFurtherResponder")]),
            False,
            UNIX - 3600,
            "no responder is left to end the pod",
        ),
    ],
)
def test_the_state_of_a_request_is_read_from_the_list(tmp_path, one, open_, asked_at, failed):
    other = listed(target={"somethingElse": {}})
    page = {"metadata": {"resourceVersion": "7"}, "items": [one, other]}
    with ScriptedServer() as server:
        server.on("GET", LIST, Say(page))
        listed_requests = list_requests(client_of(server.url, tmp_path))
    assert listed_requests is not None
    (found,) = listed_requests
    assert (found.open, found.asked_at, found.failed) == (open_, asked_at, failed)
    assert (found.namespace, found.pod, found.pod_uid) == ("shop", "web-1", UID)


@pytest.mark.parametrize(
    ("body", "status"), [("404 page not found\n", 404), (status_body(404, "not found"), 404)]
)
def test_a_server_without_the_api_has_none(tmp_path, body, status):
    answer = Say(body.encode() if isinstance(body, str) else body, status)
    with ScriptedServer() as server:
        server.on("GET", LIST, answer)
        assert list_requests(client_of(server.url, tmp_path)) is None


def test_what_may_not_be_listed_is_an_error_with_the_right(tmp_path):
    answer = Say(status_body(403, 'cannot list resource "evictionrequests"'), 403)
    with ScriptedServer() as server:
        server.on("GET", LIST, answer)
        with pytest.raises(ClusterReadError) as raised:
            list_requests(client_of(server.url, tmp_path))
    assert "rbac.evictionRequests: true" in str(raised.value)


@pytest.mark.parametrize(("seen", "failed"), [(None, True), (2, False), (3, True)])
def test_what_was_said_of_an_earlier_ask_does_not_count(tmp_path, seen, failed):
    one = listed(conditions=[condition("Failed", "NoFurtherResponder")])
    one["metadata"]["generation"] = 3
    one["status"] |= {} if seen is None else {"observedGeneration": seen}
    with ScriptedServer() as server:
        server.on("GET", LIST, Say({"items": [one], "metadata": {"resourceVersion": "1"}}))
        (read,) = list_requests(client_of(server.url, tmp_path)) or []
    assert (bool(read.failed), read.open) == (failed, not failed)
