"""The restart of a rollout: what is read before it, what is sent, and what each answer means."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.evict import RESTARTED_AT, AnswerKind, EvictionAnswer, Restart
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, status_body

AT = "2026-11-22T12:00:00Z"
POD = "/api/v1/namespaces/shop/pods/web-1"
SETS = "/apis/apps/v1/namespaces/shop/replicasets"
WEB = "/apis/apps/v1/namespaces/shop/deployments/web"


def owned(name: str, uid: str, kind: str, owner: str, of: str) -> dict[str, Any]:
    reference = {"kind": kind, "name": owner, "uid": of, "controller": True}
    return {"metadata": {"name": name, "uid": uid, "ownerReferences": [reference]}}


POD_OF_SET = owned("web-1", "p", "ReplicaSet", "web-a", "r")
SET = owned("web-a", "r", "Deployment", "web", "d")


def deployment(at: str | None = None, uid: str = "d", **more: Any) -> dict[str, Any]:
    """One replica at rest, as the server sends it."""
    status = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return {
        "metadata": {"name": "web", "uid": uid, "resourceVersion": "7", "generation": 2},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"annotations": {RESTARTED_AT: at} if at else {}}},
            **more.get("spec", {}),
        },
        "status": {**status, **more.get("status", {})},
    }


def opted_out(value: str) -> dict[str, Any]:
    """One replica at rest, whose Deployment says since the plan that it stays."""
    web = deployment()
    return {**web, "metadata": {**web["metadata"], "annotations": {"rebalancer/evict": value}}}


def restart(
    server: ScriptedServer,
    folder: Path,
    *answers: Say,
    pod: dict[str, Any] = POD_OF_SET,
    replica_set: dict[str, Any] = SET,
    web: dict[str, Any] | None = None,
    ordered: bool = False,
    dry_run: bool = False,
) -> EvictionAnswer:
    """The answer where the server has these objects, and says ``answers`` to patches."""
    server.on("GET", POD, Say(pod))
    server.on("GET", f"{SETS}/web-a", Say(replica_set))
    server.on("GET", WEB, Say(web or deployment()))
    server.on("PATCH", WEB, *(answers or (Say(deployment(AT)),)))
    return replace(of(server, folder), ordered=ordered, dry_run=dry_run).ask()


def of(server: ScriptedServer, folder: Path) -> Restart:
    return Restart(client_of(server.url, folder), "shop", "web-1", "p", "d", AT, 5.0)


def test_one_patch_sets_the_annotation_on_the_version_that_was_read(server, tmp_path):
    assert restart(server, tmp_path).kind is AnswerKind.RESTARTED
    (asked,) = server.to(WEB, "PATCH")
    assert asked.body == {
        "metadata": {"uid": "d", "resourceVersion": "7"},
        "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: AT}}}},
    }


@pytest.mark.parametrize(
    ("objects", "kind", "says"),
    [
        ({"pod": owned("web-1", "q", "ReplicaSet", "web-a", "r")}, "CHANGED", "another pod"),
        ({"pod": owned("web-1", "p", "Job", "web-a", "r")}, "CHANGED", "no ReplicaSet controls"),
        ({"pod": owned("web-1", "p", "ReplicaSet", "web-a", "x")}, "CHANGED", "web-a is gone"),
        (
            {"replica_set": owned("web-a", "r", "Rollout", "web", "d")},
            "CHANGED",
            "no Deployment controls",
        ),
        ({"web": deployment(uid="e")}, "CHANGED", "web is gone"),
        (
            {
                "replica_set": owned("web-a", "r", "Deployment", "web", "e"),
                "web": deployment(uid="e"),
            },
            "CHANGED",
            "another Deployment",
        ),
        ({"web": deployment(spec={"paused": True})}, "DROPPED", "it is paused"),
        ({"web": deployment(spec={"replicas": 2})}, "DROPPED", "it has 2 replicas now"),
        (
            {"web": deployment(spec={"strategy": {"type": "Recreate"}})},
            "DROPPED",
            "its strategy is Recreate",
        ),
        ({"web": deployment(status={"updatedReplicas": 0})}, "DROPPED", "rollout: 1 pods, 0"),
        ({"web": deployment(status={"observedGeneration": 1})}, "DROPPED", "newest spec"),
        ({"web": opted_out("false")}, "DROPPED", "protected now: its Deployment is annotated"),
        ({"web": opted_out("false until 2099-01-01")}, "DROPPED", "protected now"),
    ],
)
def test_nothing_is_sent_where_the_deployment_is_not_as_planned(
    server, tmp_path, objects, kind, says
):
    answer = restart(server, tmp_path, **objects)
    assert answer.kind is AnswerKind[kind]
    assert says in answer.message
    assert server.to(WEB, "PATCH") == []


@pytest.mark.parametrize("value", ["true", "false until 2020-01-01", "false for 4h"])
def test_an_opt_out_that_has_ended_or_is_of_young_pods_holds_nothing_back(server, tmp_path, value):
    assert restart(server, tmp_path, web=opted_out(value)).kind is AnswerKind.RESTARTED


@pytest.mark.parametrize("value", ["false", "false until 2099-01-01"])
def test_an_order_is_not_held_back_by_an_opt_out(server, tmp_path, value):
    answer = restart(server, tmp_path, web=opted_out(value), ordered=True)
    assert answer.kind is AnswerKind.RESTARTED
    assert len(server.to(WEB, "PATCH")) == 1


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_dry_run_says_so_to_the_server(server, tmp_path, dry_run):
    assert restart(server, tmp_path, dry_run=dry_run).kind is AnswerKind.RESTARTED
    (asked,) = server.to(WEB, "PATCH")
    assert asked.query == ({"dryRun": "All"} if dry_run else {})


def test_a_restart_that_was_carried_out_is_not_asked_for_again(server, tmp_path):
    # A reply was lost: the rollout is under way, and is ours.
    web = deployment(AT, status={"updatedReplicas": 0})
    assert restart(server, tmp_path, web=web).kind is AnswerKind.RESTARTED
    assert server.to(WEB, "PATCH") == []


@pytest.mark.parametrize(
    ("say", "kind"),
    [
        (Say(status_body(409, "the object has been modified"), 409), AnswerKind.CHANGED),
        (Say(status_body(404, "not found"), 404), AnswerKind.GONE),
        (Say(status_body(403, 'cannot patch resource "deployments"'), 403), AnswerKind.FORBIDDEN),
        (Say(status_body(403, "admission webhook says no"), 403), AnswerKind.FAILED),
        (Say(status_body(500, "etcd is slow"), 500), AnswerKind.LOST),
        (Say(b"<html>", 200), AnswerKind.LOST),
        (Say(deployment(), 200), AnswerKind.LOST),
        (Say(hang_up=True), AnswerKind.LOST),
    ],
)
def test_each_answer_has_its_meaning(server, tmp_path, say, kind):
    assert restart(server, tmp_path, say).kind is kind


def test_the_new_replica_set_is_the_deployments_with_the_annotation(server, tmp_path):
    def made(uid: str, owner: str, at: str | None) -> dict[str, Any]:
        one = owned(uid, uid, "Deployment", "web", owner)
        template = {"metadata": {"annotations": {RESTARTED_AT: at} if at else {}}}
        return {**one, "spec": {"template": template}}

    restart(server, tmp_path)
    one = of(server, tmp_path)
    one.ask()
    old, foreign, new = made("r", "d", None), made("x", "e", AT), made("n", "d", AT)
    server.on("GET", SETS, Say({"items": [old, foreign]}), Say({"items": [old, foreign, new]}))
    assert one.replica_set() is None
    assert one.replica_set() == "n"
    assert server.to(SETS)[0].query == {"labelSelector": "app=web"}
