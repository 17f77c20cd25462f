"""Admission of pods, which writes what no template says, as VPA does, and of evictions, which denies or is out of order."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rebalancer.kube.access import config_map_rules
from tests.controlplane import ControlPlane, drift, objects, operations, wait_until
from tests.controlplane.api import ApiError
from tests.controlplane.managers import WebhookServer
from tests.e2e.product import Product

GROUP = "/apis/admissionregistration.k8s.io/v1"
WEB = {"app": "web"}
ENLARGE = """[JSONPatch{op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "1500m"}]"""
POLICY: dict[str, Any] = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ]
    },
    "matchConditions": [
        {"name": "web", "expression": "object.metadata.?labels['app'].orValue('') == 'web'"}
    ],
    "reinvocationPolicy": "Never",
    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": ENLARGE}}],
}


@pytest.fixture
def enlarging(cluster):
    """The API server makes each pod of web ask for 1.5 processors when it is created."""
    kinds = {"policies": POLICY, "policybindings": {"policyName": "enlarge"}}
    for kind, spec in kinds.items():
        name = {"metadata": {"name": "enlarge"}}
        cluster.api.post(f"{GROUP}/mutatingadmission{kind}", {**name, "spec": spec})
    yield cluster
    for kind in kinds:
        cluster.api.delete(f"{GROUP}/mutatingadmission{kind}/enlarge")


def _is_in_force(cluster: ControlPlane) -> bool:
    """Ask by a pod that is not stored, since the API server takes a moment to load a policy."""
    tried = objects.pod("tried", labels=WEB)
    path = "/api/v1/namespaces/default/pods"
    made = cluster.api.post(f"{path}?dryRun=All", tried)
    return made["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu") == "1500m"


def _list_requests(cluster: ControlPlane) -> dict[str, set[str]]:
    """Return node -> what its pods of web ask for."""
    asked: dict[str, set[str]] = {}
    for pod in operations.pods(cluster.api, selector="app=web"):
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        asked.setdefault(pod["spec"]["nodeName"], set()).add(requests["cpu"])
    return asked


def test_no_pod_is_moved_to_where_only_its_template_fits(enlarging, tmp_path):
    enlarging.apply([objects.node(n, zone=n) for n in ("a", "b")])
    operations.wait_nodes_ready(enlarging.api, 2)
    wait_until(lambda: _is_in_force(enlarging), 30, "the policy is in force")
    spec = {"topologySpreadConstraints": [objects.spread(WEB, hard=False)]}
    enlarging.apply([objects.deployment("web", 4, labels=WEB, **spec)])
    operations.wait_pods_ready(enlarging.api, 4, 60, selector="app=web")
    enlarging.apply([objects.node("small", zone="c", cpu="1")])
    operations.wait_nodes_ready(enlarging.api, 3)
    done = Product(enlarging, tmp_path).run()
    assert (done.code, done.evicted) == (0, []), done.err
    (why,) = done.report["before"]["topology-spread"]["unsatisfiable"]
    assert why.endswith("no node of c takes another of its pods")
    # What would have become of it.
    name = operations.pods(enlarging.api, selector="app=web")[0]["metadata"]["name"]
    operations.evict(enlarging.api, "default", name)
    operations.wait_pods_ready(enlarging.api, 4, 60, selector="app=web")
    assert _list_requests(enlarging) == {"a": {"1500m"}, "b": {"1500m"}}


MEMORY = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "default", "name": "mover-memory"},
}


class _Freeze(BaseHTTPRequestHandler):
    """A webhook that denies whatever it is asked."""

    def do_POST(self) -> None:
        """Answer an AdmissionReview."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        denial = {
            "uid": review["request"]["uid"],
            "allowed": False,
            "status": {"code": 403, "message": "frozen until Monday"},
        }
        body = json.dumps({**review, "response": denial}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _guard_evictions(cluster: ControlPlane, folder: Path, *, answers: bool) -> Iterator[None]:
    """Evictions are admitted by a webhook that denies all of them, or, once it is closed, does not answer."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Freeze)
    webhook = WebhookServer.on(server.server_port, folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(webhook.keys / "tls.crt", webhook.keys / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = {
        "name": "freeze.example.com",
        "clientConfig": {"url": f"{webhook.url}/evictions", **webhook.client},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods/eviction"],
            }
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    path = f"{GROUP}/validatingwebhookconfigurations"
    cluster.api.post(path, {"metadata": {"name": "freeze"}, "webhooks": [hook]})
    try:
        wait_until(lambda: _refuses(cluster), 30, "the webhook is in force")
        if not answers:
            server.shutdown()
            server.server_close()
        yield
    finally:
        cluster.api.delete(f"{path}/freeze")
        server.shutdown()
        server.server_close()


def _refuses(cluster: ControlPlane) -> bool:
    """Ask by an eviction that is not carried out."""
    name = _names(cluster)[0]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    try:
        cluster.api.post(f"/api/v1/namespaces/default/pods/{name}/eviction?dryRun=All", eviction)
    except ApiError as error:
        return "frozen" in str(error)
    return False


def _names(cluster: ControlPlane) -> list[str]:
    return sorted(one["metadata"]["name"] for one in operations.pods(cluster.api))


@pytest.mark.parametrize(
    ("answers", "said"),
    [(True, "frozen until Monday"), (False, "failed calling webhook")],
    ids=["denies", "does not answer"],
)
def test_evictions_that_admission_stops_are_refused_and_never_lost(
    cluster, tmp_path, answers, said
):
    drift.article(cluster)
    before = _names(cluster)
    cluster.apply([MEMORY])
    product = Product(cluster, tmp_path, more_rules=config_map_rules("default", "mover-memory"))
    with _guard_evictions(cluster, tmp_path / "keys", answers=answers):
        first, second = (product.run("--memory=default/mover-memory") for _ in range(2))
    assert first.code == 4, first.err
    (move,) = first.report["moves"]
    assert (move["outcome"], said in move["message"]) == ("failed", True)
    # The workload rests: the second run does not ask again.
    assert (second.code, second.report["moves"]) == (0, []), second.err
    assert _names(cluster) == before
