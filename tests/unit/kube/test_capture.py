"""The cluster into a snapshot file of ours."""

import io
import json
import zipfile
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.cli import command
from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.read import read_cluster, read_scale_outs
from rebalancer.kube.seldom_read import read_buffers, read_pod_groups
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.model import PodGroup, Snapshot
from rebalancer.snapshot.redact import Redactor
from rebalancer.wire.kinds import AUTOSCALERS, EVENTS
from rebalancer.wire.protobuf import PROTOBUF
from tests.unit.kube.scripted import (
    REPLICA_SET,
    Asked,
    Say,
    ScriptedServer,
    client_of,
    empty_cluster,
    list_body,
    node,
    owned_pod,
    pod,
    status_body,
)
from tests.unit.wire import protobuf_bytes

TEN = 1795168800.0
"""2026-11-20T10:00:00Z."""


def cluster(server: ScriptedServer) -> None:
    empty_cluster(server)
    server.on("GET", "/api/v1/pods", Say(list_body([owned_pod("a"), owned_pod("b", "n2")])))
    server.on("GET", "/api/v1/nodes", Say(list_body([node("n1"), node("n2")])))
    server.on("GET", "/apis/apps/v1/replicasets", Say(list_body([REPLICA_SET])))


def essence(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.captured_at,
        snapshot.version,
        snapshot.resource_version,
        snapshot.missing,
        list(snapshot.pods.name),
        snapshot.pods.node.tolist(),
        snapshot.nodes.names,
        snapshot.classes,
        snapshot.owners,
    )


OWNER = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
IN_PROTOBUF = {"Content-Type": PROTOBUF}


def cluster_in_protobuf(server: ScriptedServer) -> None:
    """The same cluster from a server that sends protobuf where it is asked to, pods in two pages."""
    cluster(server)
    names = {"": ("a", "n1", "next"), "next": ("b", "n2", "")}

    def pods(asked: Asked) -> Say:
        assert PROTOBUF in asked.headers["Accept"]
        if "limit" not in asked.query:
            both = [
                protobuf_bytes.pod(n, node=on, ownerReferences=[OWNER])
                for n, on, _ in names.values()
            ]
            return Say(protobuf_bytes.listed(both), headers=IN_PROTOBUF)
        name, on, token = names[asked.query.get("continue", "")]
        one = protobuf_bytes.pod(name, node=on, ownerReferences=[OWNER])
        return Say(protobuf_bytes.listed([one], token=token), headers=IN_PROTOBUF)

    server.handle("GET", "/api/v1/pods", pods)
    nodes = [protobuf_bytes.encoded("Node", metadata={"name": name}) for name in ("n1", "n2")]
    server.on("GET", "/api/v1/nodes", Say(protobuf_bytes.listed(nodes), headers=IN_PROTOBUF))


@pytest.mark.parametrize("form", ["json", "pb"])
def test_a_file_holds_what_the_cluster_was(server, tmp_path, form):
    (cluster if form == "json" else cluster_in_protobuf)(server)
    client = client_of(server.url, tmp_path)
    path = tmp_path / "cluster.zip"
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0, page_size=1)
    assert captured.counts["Pod"] == 2
    assert path.stat().st_mode & 0o077 == 0
    live = read_cluster(client, clock=lambda: 0.0).snapshot
    assert live.captured_at == TEN
    assert [owner.ref for owner in live.owners] == ["Deployment/default/web"]
    assert essence(load_snapshot(path)) == essence(live)
    assert essence(load_snapshot("-", stdin=io.BytesIO(path.read_bytes()))) == essence(live)


def test_the_manifest_says_what_is_in_the_file(server, tmp_path):
    cluster_in_protobuf(server)
    path = tmp_path / "cluster.zip"
    write_cluster_snapshot(client_of(server.url, tmp_path), path, clock=lambda: 0.0)
    with zipfile.ZipFile(path) as file:
        manifest = json.loads(file.read("manifest.json"))
        sizes = {info.filename: info.file_size for info in file.infolist()}
    assert manifest["kind"] == "Snapshot"
    assert manifest["format"] == 2
    assert manifest["capturedAt"] == "2026-11-20T10:00:00Z"
    assert manifest["source"] == server.url
    assert manifest["serverVersion"] == "1.36"
    lists = {one["kind"]: one for one in manifest["lists"]}
    assert (lists["Pod"]["file"], lists["Pod"]["objects"]) == ("PodList.pb", 2)
    assert (lists["Service"]["file"], lists["Service"]["objects"]) == ("ServiceList.json", 0)
    assert all(one["bytes"] == sizes[one["file"]] for one in manifest["lists"])
    assert sizes.keys() == {"manifest.json", *(one["file"] for one in manifest["lists"])}


@pytest.mark.parametrize("autoscaled", [False, True])
def test_autoscalers_are_in_the_file_where_they_are_asked_for(server, tmp_path, autoscaled):
    cluster(server)
    scaled = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": {"kind": "ReplicaSet", "name": "web-1"}},
        "status": {"lastScaleTime": "2026-11-20T09:59:00Z"},
    }
    server.on("GET", AUTOSCALERS.path(), Say(list_body([scaled] if autoscaled else [])))
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    write_cluster_snapshot(client, path, clock=lambda: 0.0, autoscalers=True)
    of_file = load_snapshot(path)
    assert of_file.missing == ()
    live = read_cluster(client, clock=lambda: 0.0, autoscalers=True).snapshot
    assert of_file.autoscalers == live.autoscalers
    assert [each.scaled_at for each in live.autoscalers or ()] == [TEN - 60] * autoscaled
    write_cluster_snapshot(client, path, clock=lambda: 0.0)
    assert load_snapshot(path).autoscalers is None
    server.on("GET", AUTOSCALERS.path(), Say(status_body(403, "may not"), 403))
    for asks in (
        lambda: read_cluster(client, clock=lambda: 0.0, autoscalers=True),
        lambda: write_cluster_snapshot(client, path, clock=lambda: 0.0, autoscalers=True),
    ):
        with pytest.raises(ForbiddenError, match="list horizontalpodautoscalers"):
            asks()


def test_events_on_machines_to_come_are_in_the_file_where_they_are_asked_for(server, tmp_path):
    cluster(server)
    waits = pod("big", "")
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waits["status"] = {"phase": "Pending", "conditions": [said]}
    server.on("GET", "/api/v1/pods", Say(list_body([owned_pod("a"), waits])))
    uid = waits["metadata"]["uid"]

    def events(asked: Asked) -> Say:
        kind, reason = (part.partition("=")[2] for part in asked.query["fieldSelector"].split(","))
        assert kind == "Pod"
        about = {"TriggeredScaleUp": uid, "Nominated": "of another pod"}[reason]
        meta = {"name": reason, "namespace": "default"}
        return Say(list_body([{"metadata": meta, "reason": reason, "regarding": {"uid": about}}]))

    for namespace in ("", "default"):
        server.handle("GET", EVENTS.path(namespace), events)
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    write_cluster_snapshot(client, path, clock=lambda: 0.0, events=True)
    of_file = load_snapshot(path)
    assert of_file.missing == ()
    assert of_file.machines_coming == {uid: "TriggeredScaleUp", "of another pod": "Nominated"}
    live = read_cluster(client, clock=lambda: 0.0).snapshot
    assert live.machines_coming is None
    assert read_scale_outs(client, live) == {uid: "TriggeredScaleUp"}
    write_cluster_snapshot(client, path, clock=lambda: 0.0)
    assert load_snapshot(path).machines_coming is None
    refused = Say(status_body(403, "may not"), 403)
    for namespace in ("", "default"):
        server.on("GET", EVENTS.path(namespace), refused)
    for asks in (
        lambda: read_scale_outs(client, live),
        lambda: write_cluster_snapshot(client, path, clock=lambda: 0.0, events=True),
    ):
        with pytest.raises(ForbiddenError, match="list events"):
            asks()


def test_events_are_not_asked_for_where_no_pod_waits(server, tmp_path):
    cluster(server)
    client = client_of(server.url, tmp_path)
    assert read_scale_outs(client, read_cluster(client, clock=lambda: 0.0).snapshot) == {}


@pytest.mark.parametrize("form", ["json", "pb"])
def test_the_same_cluster_makes_the_same_bytes_in_a_file_and_in_a_pipe(server, tmp_path, form):
    (cluster if form == "json" else cluster_in_protobuf)(server)
    client = client_of(server.url, tmp_path)
    pipe = io.BytesIO()
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    for target in (one, two, pipe):
        write_cluster_snapshot(client, target, clock=lambda: 0.0, page_size=1)
    assert one.read_bytes() == two.read_bytes() == pipe.getvalue()


def test_a_list_that_changes_its_form_is_not_taken(server, tmp_path, sleeps):
    cluster(server)
    first = protobuf_bytes.listed([protobuf_bytes.pod("a")], token="next")
    server.on("GET", "/api/v1/pods", Say(first, headers=IN_PROTOBUF), Say(list_body([pod("b")])))
    with pytest.raises(ClusterReadError, match="pods broke off"):
        write_cluster_snapshot(
            client_of(server.url, tmp_path, sleeps), tmp_path / "x.zip", clock=lambda: 0.0
        )
    assert not (tmp_path / "x.zip").exists()


def test_what_went_down_a_pipe_before_a_failure_is_no_snapshot(server, tmp_path, sleeps):
    cluster(server)
    server.on("GET", "/apis/batch/v1/jobs", Say(list_body([{}]), cut=10))
    pipe = io.BytesIO()
    with pytest.raises(ClusterReadError, match="broke"):
        write_cluster_snapshot(client_of(server.url, tmp_path, sleeps), pipe, clock=lambda: 0.0)
    with pytest.raises(PolicyError, match="standard input: damaged or cut off"):
        load_snapshot("-", stdin=io.BytesIO(pipe.getvalue()))


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz", "out/cluster.yaml"])
def test_a_name_that_promises_text_is_refused(name, capsys):
    assert command(["snapshot", "-o", name]) == 2
    assert f"{name}: a snapshot is a zip archive" in capsys.readouterr().err


def test_nothing_is_left_behind_when_a_list_breaks_off(server, tmp_path, sleeps):
    cluster(server)
    client = client_of(server.url, tmp_path, sleeps)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "old.zip").write_text("old")
    server.on("GET", "/apis/batch/v1/jobs", Say(list_body([{}]), cut=10))
    with pytest.raises(ClusterReadError, match="broke"):
        write_cluster_snapshot(client, folder / "old.zip", clock=lambda: 0.0)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("old.zip", "old")]


def test_forbidden_lists_are_all_named(server, tmp_path):
    cluster(server)
    for path in ("/api/v1/nodes", "/api/v1/services"):
        server.on("GET", path, Say(status_body(403, "no"), 403))
    with pytest.raises(ClusterReadError, match="may not list nodes; list services"):
        write_cluster_snapshot(
            client_of(server.url, tmp_path), tmp_path / "x.zip", clock=lambda: 0.0
        )


def test_a_file_that_cannot_be_written_is_named(server, tmp_path):
    cluster(server)
    with pytest.raises(PolicyError, match=r"none/x\.zip: cannot be written: No such file"):
        write_cluster_snapshot(
            client_of(server.url, tmp_path), tmp_path / "none" / "x.zip", clock=lambda: 0.0
        )


GROUPS = "/apis/scheduling.k8s.io/v1alpha2/podgroups"
GANG = {
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "PodGroup"},
}


def with_gang(server: ScriptedServer, groups: Say) -> None:
    cluster(server)
    members = [owned_pod("a"), owned_pod("b", "n2")]
    for one in members:
        one["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    server.on("GET", "/api/v1/pods", Say(list_body(members)))
    server.on("GET", GROUPS, groups)
    server.on("GET", GROUPS.replace("podgroups", "namespaces/default/podgroups"), groups)


def test_a_plan_from_a_file_knows_the_same_of_pod_groups_as_a_run(server, tmp_path):
    with_gang(server, Say(list_body([GANG])))
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0)
    live, notes = read_pod_groups(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    of_kubernetes = PodGroup(2, False, False, together=True)
    assert live == {("default", "scheduling.k8s.io", "train"): of_kubernetes}
    assert notes == ()
    assert load_snapshot(path).pod_groups == live
    assert (captured.counts["PodGroup"], captured.notes) == (1, ())
    redacted = Redactor(b"0123456789abcdef")
    write_cluster_snapshot(client, path, clock=lambda: 0.0, redactor=redacted)
    assert list(load_snapshot(path).pod_groups.values()) == list(live.values())


def test_a_404_of_a_proxy_does_not_mean_that_there_are_no_pod_groups(server, tmp_path):
    with_gang(server, Say(b"<html>404 Not Found</html>", 404))
    client = client_of(server.url, tmp_path)
    with pytest.raises(ClusterReadError, match=r"could not list podgroups.*HTTP 404: <html>"):
        read_pod_groups(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    with pytest.raises(ClusterReadError, match=r"could not list podgroups.*HTTP 404: <html>"):
        write_cluster_snapshot(client, tmp_path / "cluster.zip", clock=lambda: 0.0)


@pytest.mark.parametrize(("served", "notes"), [(True, 1), (False, 0)])
def test_pod_groups_that_may_not_be_read_are_said_where_there_are_any(
    server, tmp_path, served, notes
):
    with_gang(server, Say(status_body(403, "may not"), 403))
    version = Say({"resources": []}) if served else Say(b"404 page not found", 404)
    server.on("GET", "/apis/scheduling.k8s.io/v1alpha2", version)
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0)
    assert len(captured.notes) == notes
    assert all("may not list podgroups" in note for note in captured.notes)
    assert load_snapshot(path).pod_groups == {}


VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
OF_VOLCANO = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"minMember": 2, "queue": "team-a"},
}


def with_gang_of_volcano(server: ScriptedServer, groups: Say) -> None:
    cluster(server)
    members = [owned_pod("a"), owned_pod("b", "n2")]
    for one in members:
        one["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
    server.on("GET", "/api/v1/pods", Say(list_body(members)))
    for path in ("podgroups", "namespaces/default/podgroups"):
        server.on("GET", f"{VOLCANO}/{path}", groups)


def test_pod_groups_of_several_projects_are_one_list_of_a_file(server, tmp_path):
    with_gang_of_volcano(server, Say(list_body([OF_VOLCANO])))
    server.on("GET", GROUPS, Say(list_body([GANG])))
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0)
    live, _ = read_pod_groups(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    of_volcano = PodGroup(2, alone=False, constrained=False)
    assert live == {("default", "scheduling.volcano.sh", "train"): of_volcano}
    assert (captured.counts["PodGroup"], captured.notes) == (2, ())
    snapshot = load_snapshot(path)
    assert snapshot.pod_groups == live
    assert snapshot.gang_least == {("default", "PodGroup train"): 2}
    redacted = Redactor(b"0123456789abcdef")
    write_cluster_snapshot(client, path, clock=lambda: 0.0, redactor=redacted)
    assert list(load_snapshot(path).gang_least.values()) == [2]
    assert b"team-a" not in path.read_bytes()


@pytest.mark.parametrize(
    ("answer", "served", "said"),
    [
        (Say(status_body(403, "may not"), 403), True, "may not list podgroups"),
        (Say(status_body(403, "may not"), 403), False, ""),
        (Say(status_body(404, "the server could not find the requested resource"), 404), False, ""),
        # What is wrong with the API of another project stops no run, which does without it.
        (Say({"kind": "Other"}), True, "is no list of them"),
    ],
)
def test_gangs_move_as_a_whole_where_the_pod_groups_of_their_project_cannot_be_read(
    server, tmp_path, answer, served, said
):
    with_gang_of_volcano(server, answer)
    server.on("GET", VOLCANO, Say({"resources": []}) if served else Say(b"404 page not found", 404))
    client = client_of(server.url, tmp_path)
    groups, notes = read_pod_groups(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    assert groups == {}
    assert len(notes) == bool(said)
    assert all(said in one and "scheduling.volcano.sh move as a whole" in one for one in notes)


BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"
TEMPLATE = "/api/v1/namespaces/default/podtemplates/chunk"


def with_buffers(server: ScriptedServer) -> None:
    """A buffer of three chunks by a template, one of half a workload, and one that names nothing that is there."""
    cluster(server)
    specs: dict[str, Any] = {
        "by-template": {"podTemplateRef": {"name": "chunk"}, "replicas": 3},
        "of-web": {"scalableRef": {"kind": "Deployment", "name": "web"}, "percentage": 50},
        "astray": {"podTemplateRef": {"name": "gone"}, "replicas": 1},
    }
    meta = {"namespace": "default"}
    server.on(
        "GET",
        BUFFERS,
        Say(
            list_body(
                [
                    {"metadata": {**meta, "name": n, "uid": "1-2"}, "spec": s}
                    for n, s in specs.items()
                ]
            )
        ),
    )
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": "2"}},
        "env": [{"name": "PASSWORD", "value": "hush"}],
    }
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
    server.on("GET", TEMPLATE, Say({"metadata": {**meta, "name": "chunk"}, "template": template}))
    gone = TEMPLATE.replace("chunk", "gone")
    server.on("GET", gone, Say(status_body(404, "no"), 404))


def test_buffers_are_in_the_file_where_they_are_asked_for(server, tmp_path):
    with_buffers(server)
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    captured = write_cluster_snapshot(client, path, clock=lambda: 0.0, buffers=True)
    assert (captured.counts["CapacityBuffer"], captured.counts["PodTemplate"]) == (3, 1)
    of_file = load_snapshot(path)
    live = read_buffers(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    assert (of_file.missing, of_file.buffers) == ((), live)
    assert [(one.name, one.chunks) for one in live] == [
        ("astray", 0),
        ("by-template", 3),
        ("of-web", 1),
    ]
    with zipfile.ZipFile(path) as file:
        assert b"hush" not in file.read("PodTemplateList.json")
    # Where they are not asked for nothing is known of them, and nothing is asked.
    server.on("GET", BUFFERS, Say(status_body(403, "may not"), 403))
    write_cluster_snapshot(client, path, clock=lambda: 0.0)
    assert load_snapshot(path).buffers is None
    with pytest.raises(ForbiddenError, match="list capacitybuffers"):
        write_cluster_snapshot(client, path, clock=lambda: 0.0, buffers=True)


def test_a_cluster_without_that_kind_has_no_buffers(server, tmp_path):
    cluster(server)
    for version in ("v1beta1", "v1alpha1"):
        path = BUFFERS.replace("v1beta1", version)
        server.on("GET", path, Say(status_body(404, "no"), 404))
    client, file = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    write_cluster_snapshot(client, file, clock=lambda: 0.0, buffers=True)
    assert load_snapshot(file).buffers == ()


def test_a_redacted_file_says_as_much_of_buffers(server, tmp_path):
    with_buffers(server)
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    redactor = Redactor(b"0123456789abcdef")
    write_cluster_snapshot(client, path, clock=lambda: 0.0, buffers=True, redactor=redactor)
    buffers = load_snapshot(path).buffers or ()
    assert sorted((one.chunks, bool(one.problem)) for one in buffers) == [
        (0, True),
        (1, False),
        (3, False),
    ]
    with zipfile.ZipFile(path) as file:
        for name in ("CapacityBufferList.json", "PodTemplateList.json"):
            text = file.read(name)
            assert not any(word in text for word in (b"by-template", b"chunk", b"hush", b"of-web"))
