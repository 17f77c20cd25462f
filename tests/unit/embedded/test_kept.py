"""A kept cluster: what kubectl asks for, drifts on request, and only there."""

import json
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rebalancer.cli import command
from rebalancer.commands.demo import drift
from rebalancer.embedded import demo
from rebalancer.embedded.cluster import TOKEN, EmbeddedCluster
from rebalancer.embedded.demo import KeptError, keep_cluster
from rebalancer.embedded.manifests import ZONE
from rebalancer.kube.client import connect
from tests.controlplane import ApiClient, ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    file = tmp_path_factory.mktemp("kept") / "demo.kubeconfig"
    with keep_cluster(time.time, file) as cluster:
        yield cluster, file


@pytest.fixture
def client(playground):
    made = connect(kubeconfig=str(playground[1]), context=None, environ={})
    yield made
    made.close()


def used(cluster: EmbeddedCluster) -> set[str]:
    """Return the nodes that have pods."""
    return {pod["spec"]["nodeName"] for pod in cluster.objects("Pod")}


def by_zone(cluster: EmbeddedCluster) -> Counter[str]:
    """Return how many pods each zone has."""
    zones = {
        node["metadata"]["name"]: node["metadata"]["labels"][ZONE]
        for node in cluster.objects("Node")
    }
    return Counter(zones[pod["spec"]["nodeName"]] for pod in cluster.objects("Pod"))


def test_it_drifts_on_request_and_settles(playground, client):
    cluster, _ = playground
    old, all_zones = {"zone-a", "zone-b"}, set(demo.ZONES)
    nodes = 12
    for name, zones, there in (
        ("zone-lost", old, 8),
        ("zone-back", old, nodes),
        ("zone-back", old, nodes),
        ("new-nodes", old, nodes + 3),
        ("drained-return", all_zones, nodes + 3),
    ):
        assert drift(client, name) == demo.LIVE[name][0]
        assert set(by_zone(cluster)) == zones, name
        assert all(pod["status"]["phase"] == "Running" for pod in cluster.objects("Pod")), name
        alive = cluster.objects("Node")
        assert len(alive) == there, name
        assert not any(node["spec"].get("unschedulable") for node in alive), name
    emptied = {node["metadata"]["name"] for node in alive} - used(cluster)
    assert emptied >= {"node-a1", "node-b1", "node-c1"}


@pytest.mark.parametrize("before", [True, False], ids=["demo --kubeconfig", "drift --kubeconfig"])
def test_the_command_takes_the_file_before_or_after_its_name(playground, capsys, before):
    file, name = ["--kubeconfig", str(playground[1])], ["drift", "zone-back"]
    assert command(["demo", *(file + name if before else name + file)]) == 0
    assert capsys.readouterr().out == "zone-c was lost and is back, empty.\n"


def test_flags_of_the_story_are_refused_with_a_drift(capsys):
    assert command(["demo", "--keep", "--speed", "2", "drift", "zone-back"]) == 2
    assert "drift takes no --keep, --speed" in capsys.readouterr().err


def test_every_drift_has_a_name_that_the_server_takes(client):
    assert client.post("/embedded/drifts/nonsense", b"{}").status == 404


def test_no_other_server_is_asked_to_drift(cluster):
    client = connect(kubeconfig=str(cluster.kubeconfig), context=None, environ={})
    with pytest.raises(KeptError, match="does not drift on request"):
        drift(client, "zone-lost")
    client.close()


def test_another_s_kubeconfig_is_left_alone(tmp_path):
    file = tmp_path / "config"
    file.write_text("current-context: production\n")
    with pytest.raises(KeptError, match="is there already"), keep_cluster(time.time, file):
        pass
    assert file.read_text() == "current-context: production\n"
    with (
        pytest.raises(KeptError, match="cannot be written"),
        keep_cluster(time.time, tmp_path / "no" / "x"),
    ):
        pass


def test_the_file_goes_with_the_cluster(tmp_path):
    file = tmp_path / "demo.kubeconfig"
    file.write_text("current-context: embedded\n")
    with keep_cluster(time.time, file) as cluster:
        assert cluster.url in file.read_text()
        assert file.stat().st_mode & 0o077 == 0
    assert not file.exists()


def test_requests_without_a_token_are_let_in_and_wrong_tokens_are_not(playground):
    url = playground[0].url
    for token in (None, TOKEN):
        http = ApiClient(url, Path("unused"), token)
        assert http.get("/api/v1/nodes")["items"]
        http.close()
    http = ApiClient(url, Path("unused"), "wrong")
    with pytest.raises(ApiError, match="401"):
        http.get("/api/v1/nodes")
    http.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:{port}"}, 200),
        # What a page of another site sends, and what it sends once its own name leads to this machine.
        ({"Origin": "https://site.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "site.example:{port}"}, 403),
        ({"Host": "[::1"}, 403),
    ],
)
def test_pages_of_other_sites_in_a_browser_are_refused(playground, headers, status):
    port = playground[0].url.rpartition(":")[2]
    http = HTTPConnection("127.0.0.1", int(port), timeout=600)
    http.request(
        "GET", "/api/v1/nodes", None, {name: v.format(port=port) for name, v in headers.items()}
    )
    assert http.getresponse().status == status
    http.close()


def test_tables_have_the_columns_that_kubectl_prints(three):
    three.cordon(["node-b"])
    three.advance(400)
    client = connect(kubeconfig=str(three.kubeconfig), context=None, environ={})
    table = json.loads(client.get("/api/v1/nodes", accept=TABLE).body)
    assert [each["name"] for each in table["columnDefinitions"]] == [
        "Name",
        "Status",
        "Age",
        "Zone",
    ]
    assert [row["cells"] for row in table["rows"]] == [
        ["node-a", "Ready", "6m", "zone-a"],
        ["node-b", "Ready,SchedulingDisabled", "6m", "zone-b"],
        ["node-c", "Ready", "6m", "zone-c"],
    ]
    assert table["rows"][0]["object"]["metadata"]["name"] == "node-a"
    # Kinds without columns here are lists: kubectl prints name and age itself.
    listed = json.loads(client.get("/api/v1/namespaces", accept=TABLE).body)
    assert listed["kind"] == "NamespaceList"
    client.close()
