"""What the API server says to an eviction, and what is made of it."""

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.evict import (
    AnswerKind,
    PodView,
    evict,
    read_disruptions_allowed,
    read_pod,
    recreates_group,
)
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, pod, status_body

PATH = "/api/v1/namespaces/shop/pods/web-1/eviction"
BLOCKED = status_body(
    429,
    "Cannot evict pod as it would violate the pod's disruption budget.",
    details={
        "causes": [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget web needs 3 healthy pods and has 3 currently",
            }
        ]
    },
)
STALE = status_body(
    429,
    "Cannot evict pod as it would violate the pod's disruption budget.",
    details={
        "retryAfterSeconds": 10,
        "causes": [{"reason": "DisruptionBudget", "message": "web is still being processed"}],
    },
)
UNCOUNTED = status_body(
    403,
    'poddisruptionbudgets "web" is forbidden: DisruptedPods map too big',
    details={"causes": [{"reason": "DisruptionBudget", "message": "too many pending evictions"}]},
)
RBAC = status_body(
    403, 'pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction"'
)
WEBHOOK = status_body(403, 'admission webhook "guard" denied the request: not on Fridays')
NO_WEBHOOK = status_body(
    500, 'Internal error occurred: failed calling webhook "guard": connection refused'
)
ENDING = status_body(
    403, "because it is being terminated", details={"causes": [{"reason": "NamespaceTerminating"}]}
)
TWO = status_body(500, "This pod has more than one PodDisruptionBudget, which the eviction ...")
SUCCESS = {"kind": "Status", "status": "Success", "code": 201}
RETRY = {"Retry-After": "3"}
SILENT = Say(after=600.0)


@pytest.mark.parametrize(
    ("answer", "kind", "retry_after", "said"),
    [
        (Say(SUCCESS, 201), AnswerKind.EVICTED, None, "evicted"),
        # From 1.38 on with the version at which the pod was deleted.
        (
            Say({**SUCCESS, "metadata": {"resourceVersion": "812"}}, 201),
            AnswerKind.EVICTED,
            None,
            "evicted",
        ),
        (Say({}, 201), AnswerKind.LOST, None, "HTTP 201 does not say what happened"),
        (Say(b"<html>Welcome</html>"), AnswerKind.LOST, None, "<html>Welcome</html>"),
        (Say(b"", 204), AnswerKind.LOST, None, "HTTP 204"),
        (Say(b"", 302, {"Location": "/"}), AnswerKind.LOST, None, "HTTP 302"),
        (Say(BLOCKED, 429), AnswerKind.BLOCKED, None, "web needs 3 healthy pods and has 3"),
        (Say(STALE, 429), AnswerKind.BLOCKED, 10.0, "still being processed"),
        (Say(UNCOUNTED, 403), AnswerKind.BLOCKED, None, "too many pending evictions"),
        (Say(b"too many requests", 429, RETRY), AnswerKind.THROTTLED, 3.0, "too many"),
        (Say(b"", 429), AnswerKind.THROTTLED, 1.0, "HTTP 429"),
        (Say(b"", 502), AnswerKind.LOST, None, "HTTP 502"),
        (Say(b"", 503, RETRY), AnswerKind.LOST, 3.0, "HTTP 503"),
        (Say(status_body(504, "timeout"), 504), AnswerKind.LOST, None, "timeout"),
        (Say(b"<html>nothing here</html>", 404), AnswerKind.LOST, None, "nothing here"),
        (Say(status_body(409, "Precondition failed: UID"), 409), AnswerKind.CHANGED, None, "UID"),
        (Say(status_body(404, "not found"), 404), AnswerKind.GONE, None, "not found"),
        (Say(TWO, 500), AnswerKind.MISCONFIGURED, None, "more than one"),
        (Say(status_body(500, "etcd"), 500), AnswerKind.LOST, None, "what happened: etcd"),
        (Say(status_body(422, "no name"), 422), AnswerKind.FAILED, None, "HTTP 422: no name"),
        (Say(RBAC, 403), AnswerKind.FORBIDDEN, None, 'resources: ["pods/eviction"]'),
        (Say(WEBHOOK, 403), AnswerKind.FAILED, None, "not on Fridays"),
        (Say(NO_WEBHOOK, 500), AnswerKind.FAILED, None, 'failed calling webhook "guard"'),
        (Say(ENDING, 403), AnswerKind.GONE, None, "terminated"),
        (Say(status_body(401, "Unauthorized"), 401), AnswerKind.FORBIDDEN, None, "credentials"),
        (Say(hang_up=True), AnswerKind.LOST, None, "broke"),
        (SILENT, AnswerKind.LOST, None, "fell silent"),
    ],
)
def test_each_answer_has_its_meaning_and_is_asked_for_once(
    server, tmp_path, answer, kind, retry_after, said
):
    server.on("POST", PATH, answer)
    patience = 0.2 if answer is SILENT else 60.0
    got = evict(client_of(server.url, tmp_path, read=patience), "shop", "web-1", "uid-1")
    assert (got.kind, got.retry_after) == (kind, retry_after)
    assert said in got.message
    assert len(server.asked) == 1


def test_the_request_is_guarded_by_the_uid(server, tmp_path):
    server.on("POST", PATH, Say(SUCCESS, 201))
    client = client_of(server.url, tmp_path)
    evict(client, "shop", "web-1", "uid-1")
    evict(client, "shop", "web-1", "uid-1", dry_run=True, grace_period_seconds=0)
    real, dry = server.asked
    assert real.query == {}
    assert real.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "uid-1"}},
    }
    assert dry.query == {"dryRun": "All"}
    assert dry.body["deleteOptions"] == {
        "preconditions": {"uid": "uid-1"},
        "dryRun": ["All"],
        "gracePeriodSeconds": 0,
    }


def test_an_eviction_that_was_never_sent_has_failed(tmp_path, sleeps):
    with ScriptedServer() as gone:
        url = gone.url
    got = evict(client_of(url, tmp_path, sleeps), "shop", "web-1", "uid-1")
    assert got.kind is AnswerKind.FAILED
    assert "unreachable" in got.message


POD = "/api/v1/namespaces/default/pods/a"


def test_a_pod_can_be_read_again(server, tmp_path):
    client = client_of(server.url, tmp_path)
    server.on("GET", POD, Say(pod("a")))
    assert read_pod(client, "default", "a") == PodView("uid-a", "n1", deleting=False, ready=True)
    server.on("GET", POD, Say(pod("a", deletionTimestamp="2026-11-20T09:00:00Z")))
    assert read_pod(client, "default", "a") == PodView("uid-a", "n1", deleting=True, ready=True)
    assert read_pod(client, "default", "gone") is None
    server.on("GET", POD, Say(b"<html>nothing here</html>", 404))
    with pytest.raises(ClusterReadError, match="nothing here"):
        read_pod(client, "default", "a")
    for body in ({"kind": "Status"}, b"<html>", b'{"metadata": {"uid": "\xff"}}', [1]):
        server.on("GET", POD, Say(body))
        with pytest.raises(ClusterReadError, match="not a pod"):
            read_pod(client, "default", "a")


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({}, None),
        ({"rebalancer/evict": "true", "example.com/evict": "false"}, None),
        ({"rebalancer/evict": "false"}, 'annotated rebalancer/evict: "false"'),
        (
            {"descheduler.alpha.kubernetes.io/evict": "false"},
            'annotated descheduler.alpha.kubernetes.io/evict: "false"',
        ),
        (
            {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            'annotated cluster-autoscaler.kubernetes.io/safe-to-evict: "false"',
        ),
        ({"karpenter.sh/do-not-disrupt": "true"}, 'annotated karpenter.sh/do-not-disrupt: "true"'),
        (
            {"karpenter.sh/do-not-disrupt": "876000h"},
            'annotated karpenter.sh/do-not-disrupt: "876000h"',
        ),
        ({"karpenter.sh/do-not-disrupt": "1s"}, None),
        ({"rebalancer/evict": "false until 2001-01-01"}, None),
        (
            {"rebalancer/evict": "false until 9001-01-01"},
            'annotated rebalancer/evict: "false until 9001-01-01"',
        ),
    ],
)
def test_the_same_read_says_whether_the_pod_has_opted_out(server, tmp_path, annotations, why):
    server.on("GET", POD, Say(pod("a", annotations=annotations)))
    read = read_pod(client_of(server.url, tmp_path), "default", "a")
    assert read is not None
    assert read.opted_out == why


@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_the_same_read_says_whether_the_pod_is_ready(server, tmp_path, status):
    unready = pod("a")
    conditions = [] if status is None else [{"type": "Ready", "status": status}]
    unready["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}, *conditions]
    server.on("GET", POD, Say(unready))
    read = read_pod(client_of(server.url, tmp_path), "default", "a")
    assert read is not None
    assert not read.ready


BUDGETS = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"


@pytest.mark.parametrize(("name", "allowed"), [("web", 2), ("gone", None)])
def test_what_a_budget_allows_is_read_by_a_list(server, tmp_path, name, allowed):
    web = {"metadata": {"name": "web"}, "spec": {}, "status": {"disruptionsAllowed": 2}}
    server.on("GET", BUDGETS, Say({"items": [web]}))
    client = client_of(server.url, tmp_path)
    assert read_disruptions_allowed(client, f"shop/{name}", seconds=5.0) == allowed
    assert server.asked[-1].query["fieldSelector"] == f"metadata.name={name}"


@pytest.mark.parametrize("body", [b"<html>", {}, {"items": [{"metadata": 1}]}])
def test_an_answer_that_is_no_list_of_budgets_is_an_error_of_the_read(server, tmp_path, body):
    server.on("GET", BUDGETS, Say(body))
    with pytest.raises(ClusterReadError, match="is no PodDisruptionBudgetList"):
        read_disruptions_allowed(client_of(server.url, tmp_path), "shop/web", seconds=5.0)


def group_policy(policy: str) -> dict[str, object]:
    return {"spec": {"leaderWorkerTemplate": {"restartPolicy": policy, "size": 3}}}


@pytest.mark.parametrize(
    ("answer", "recreates"),
    [
        (Say(group_policy("RecreateGroupOnPodRestart")), True),
        (Say(group_policy("Default")), True),
        (Say(group_policy("None")), False),
        (Say({"spec": {}}), True),
        (Say(status_body(403, "forbidden"), status=403), True),
        (Say(status_body(404, "not found"), status=404), True),
    ],
)
def test_a_leader_worker_set_starts_whole_groups_again_unless_it_says_otherwise(
    server, tmp_path, answer, recreates
):
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/shop/leaderworkersets/serve"
    server.on("GET", path, answer)
    client = client_of(server.url, tmp_path)
    assert recreates_group(client, "shop", "serve", seconds=5.0) is recreates
