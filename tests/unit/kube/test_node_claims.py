"""Karpenter's NodeClaims: what is asked for, what becomes of answers, and what a file holds of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rebalancer.kube.capture import write_cluster_snapshot
from rebalancer.kube.read import read_cluster
from rebalancer.kube.seldom_read import read_node_claims
from rebalancer.snapshot.karpenter import Takes
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.redact import Redactor
from rebalancer.testing.snapshots import node, snapshot_of
from tests.unit.kube import scripted
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, list_body, status_body

CLAIMS, POOLS = (f"/apis/karpenter.sh/v1/{plural}" for plural in ("nodeclaims", "nodepools"))
POOL = "karpenter.sh/nodepool"
FORBIDDEN = Say(status_body(403, "may not"), 403)
NOT_SERVED = Say(status_body(404, "the server could not find the requested resource"), 404)
OF_KARPENTER = [node("n1", labels={POOL: "batch"})]
CLAIM: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {
        "name": "batch-x7",
        "labels": {POOL: "batch"},
        "creationTimestamp": "2026-11-20T09:00:00Z",
    },
    "spec": {"expireAfter": "720h", "terminationGracePeriod": "1h"},
    "status": {
        "lastPodEventTime": "2026-11-20T09:31:00Z",
        "nodeName": "n1",
        "providerID": "kwok://n1",
        "allocatable": {"cpu": "4"},
        "conditions": [
            {
                "type": one,
                "status": "True",
                "reason": one,
                "lastTransitionTime": "2026-11-20T09:30:00Z",
            }
            for one in ("Initialized", "Consolidatable", "Drifted")
        ],
    },
}
BATCH = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "batch"},
    "spec": {
        "disruption": {
            "consolidationPolicy": "Balanced",
            "consolidateAfter": "1m",
            "budgets": [
                {"nodes": "0", "reasons": ["Underutilized"]},
                {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"},
            ],
        }
    },
    "status": {"conditions": [{"type": "NodeRegistrationHealthy", "status": "False"}]},
}


def served(server: ScriptedServer, claims: Say, pools: Say) -> None:
    server.on("GET", CLAIMS, claims)
    server.on("GET", POOLS, pools)


def test_nothing_is_asked_where_no_node_is_karpenter_s(server, tmp_path):
    claims, notes = read_node_claims(client_of(server.url, tmp_path), snapshot_of([node("n1")]))
    assert (claims, notes, server.asked) == (None, (), [])


def test_claims_are_read_with_what_their_pool_allows(server, tmp_path):
    served(server, Say(list_body([CLAIM])), Say(list_body([BATCH])))
    claims, notes = read_node_claims(client_of(server.url, tmp_path), snapshot_of(OF_KARPENTER))
    assert claims is not None
    assert notes == ()
    (claim,) = claims
    assert (claim.node, claim.ready, claim.drifted_since > 0) == ("n1", True, True)
    assert claim.takes == Takes.EMPTY | Takes.DRIFTED
    assert (claim.waits_for_pods, claim.consolidatable_from - claim.created) == (False, 32 * 60)
    assert not claim.pool.registers
    assert claim.pool.held_until % 86_400 == 17 * 3600


@pytest.mark.parametrize(
    ("claims", "pools", "group", "notes"),
    [
        (FORBIDDEN, FORBIDDEN, Say({"resources": []}), 1),
        (Say(list_body([CLAIM])), FORBIDDEN, Say({"resources": []}), 1),
        # A right is missing on what is not there.
        (FORBIDDEN, FORBIDDEN, Say(b"404 page not found", 404), 0),
        (NOT_SERVED, NOT_SERVED, NOT_SERVED, 0),
        (Say([]), Say([]), Say({"resources": []}), 1),
    ],
)
def test_a_run_does_without_what_it_may_not_or_cannot_read(
    server, tmp_path, claims, pools, group, notes
):
    served(server, claims, pools)
    server.on("GET", "/apis/karpenter.sh/v1", group)
    read, said = read_node_claims(client_of(server.url, tmp_path), snapshot_of(OF_KARPENTER))
    assert read is None
    assert len(said) == notes
    assert all("nodes that Karpenter may take next are not known" in one for one in said)


def test_a_file_knows_the_same_as_a_run(server, tmp_path):
    scripted.empty_cluster(server)
    server.on("GET", "/api/v1/pods", Say(list_body([scripted.owned_pod("a")])))
    labelled = scripted.node("n1")
    labelled["metadata"]["labels"][POOL] = "batch"
    server.on("GET", "/api/v1/nodes", Say(list_body([labelled])))
    served(server, Say(list_body([CLAIM])), Say(list_body([BATCH])))
    client, path = client_of(server.url, tmp_path), tmp_path / "cluster.zip"
    live, _ = read_node_claims(client, read_cluster(client, clock=lambda: 0.0).snapshot)
    assert live is not None
    assert write_cluster_snapshot(client, path, clock=lambda: 0.0).counts["NodeClaim"] == 1
    assert load_snapshot(path).node_claims == live
    write_cluster_snapshot(client, path, clock=lambda: 0.0, redactor=Redactor(b"0123456789abcdef"))
    redacted = load_snapshot(path)
    assert redacted.node_claims is not None
    (claim,) = redacted.node_claims
    assert claim.node == redacted.nodes.names[0] != "n1"
    kept = {"name": "", "node": "", "machine": "", "labels": None}
    assert replace(claim, **kept) == replace(live[0], **kept)  # type: ignore[arg-type]
    assert b"batch" not in path.read_bytes()


@pytest.mark.parametrize(("group", "read"), [("karpenter.sh/v1", 1), ("hypershift.io/v1", 0)])
def test_a_kind_of_that_name_of_another_project_is_left_out(tmp_path, group, read):
    path = tmp_path / "cluster.json"
    items = [*OF_KARPENTER, {**CLAIM, "apiVersion": group}, {**BATCH, "apiVersion": group}]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert len(load_snapshot(path).node_claims or ()) == read
