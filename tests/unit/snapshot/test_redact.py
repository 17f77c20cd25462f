"""Redacted objects have no names, and make the same plans."""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.phases.families import cluster_of
from rebalancer.base.errors import PolicyError
from rebalancer.cli import command
from rebalancer.snapshot.load import SnapshotArchive, split_lines
from rebalancer.snapshot.redact import Redactor
from rebalancer.snapshot.store import JSON_END

REDACTOR = Redactor(b"0123456789abcdef")
EXAMPLES = Path(__file__).parents[3] / "docs/examples"


def objects_of(text):
    """The objects of a snapshot file, in the order of its lists."""
    if not text.startswith(b"PK"):
        return json.loads(text)["items"], json.loads(text).get("metadata", {})
    archive = SnapshotArchive(io.BytesIO(text))
    items = []
    for stored in archive.manifest.lists:
        assert not stored.in_protobuf
        lines = split_lines(archive.pieces(stored))
        next(lines)
        items += [json.loads(line.removesuffix(b",")) for line in lines if line != JSON_END]
    return items, archive.manifest.as_metadata()


def write(path, items, metadata):
    path.write_text(json.dumps({"kind": "List", "metadata": metadata, "items": items}))
    return str(path)


def moves_of(path, policy, capsys):
    args = ["--policy", str(policy)] if policy.exists() else []
    assert command(["run", "--snapshot", path, "-o", "json", *args]) in (0, 10)
    report = json.loads(capsys.readouterr().out)
    return [
        (
            move["namespace"],
            move["pod"],
            move["from"],
            sorted((one["node"], one["probability"]) for one in move["landings"]),
        )
        for move in report["moves"]
    ]


class InOrder(Redactor):
    """A redactor whose pseudonyms have the order of the names: plans break ties by it, and nothing else of a name may count."""

    def __init__(self, items):
        super().__init__(b"0" * 16)
        self.ranks: dict[str, str] = {}
        for item in items:
            self.redact(item["kind"], json.dumps(item).encode())
        self.ranks = {name: f"x{rank:07d}" for rank, name in enumerate(sorted(self.ranks))}
        self.pseudonym.cache_clear()

    def _hash(self, name):
        return self.ranks.setdefault(name, "x")


CLUSTERS: dict[str, Callable[[], bytes]] = {
    **{path.stem: path.read_bytes for path in sorted(EXAMPLES.glob("*.zip"))},
    **{f"family-{seed}": partial(cluster_of, seed, 12, 150) for seed in range(6)},
}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_plans_are_the_same_but_for_the_names(cluster, tmp_path, capsys):
    items, metadata = objects_of(CLUSTERS[cluster]())
    redactor = InOrder(items)
    redacted = [redact(redactor, item) for item in items]
    policy, name = EXAMPLES / f"{cluster}.yaml", redactor.pseudonym
    expected = moves_of(write(tmp_path / "a.json", items, metadata), policy, capsys)
    if cluster == "placement":
        # Its policy names the value of a label.
        text = policy.read_text().replace("spot", name("spot"))
        policy = tmp_path / "policy.yaml"
        policy.write_text(text)
    moves = moves_of(write(tmp_path / "b.json", redacted, metadata), policy, capsys)
    assert moves == [
        (
            name(space),
            name(pod),
            name(source),
            sorted((name(node), share) for node, share in landings),
        )
        for space, pod, source, landings in expected
    ]


def redact(redactor, item):
    return json.loads(redactor.redact(item["kind"], json.dumps(item).encode()))


KEYS = ["name", "namespace", "x", "labels", "spec", "metadata", "template", "values", "annotations"]
OBJECTS = st.recursive(
    st.just("acme-billing") | st.integers(),
    lambda of: st.lists(of, max_size=3) | st.dictionaries(st.sampled_from(KEYS), of, max_size=4),
    max_leaves=20,
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), OBJECTS, max_size=5))
def test_no_text_stays_that_is_not_known_to_be_public(fields):
    fields["metadata"] = {"name": "acme-billing", "uid": "1"}
    assert b"acme" not in REDACTOR.redact("Pod", json.dumps(fields).encode())


POD: dict[str, Any] = {
    "metadata": {
        "name": "web-12",
        "namespace": "acme",
        "labels": {"app": "web", "kubernetes.io/os": "linux"},
        "annotations": {
            "acme.example/owner": "jo",
            "rebalancer/evict": "false for 4h",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
        },
        "ownerReferences": [{"kind": "StatefulSet", "name": "web", "controller": True}],
    },
    "spec": {
        "nodeName": "node-a",
        "priorityClassName": "system-node-critical",
        "containers": [
            {
                "name": "c",
                "image": "acme.example/web",
                "args": ["--token=s3cret"],
                "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}},
            }
        ],
        "tolerations": [
            {"key": "team", "operator": "Equal", "value": "acme", "effect": "NoSchedule"}
        ],
        "os": {"name": "windows"},
    },
    "status": {"phase": "Running", "startTime": "2026-11-20T10:00:00Z", "message": "of acme"},
}


def test_what_plans_need_stays_and_equal_names_stay_equal():
    pod = redact(REDACTOR, {"kind": "Pod", **POD})
    web, acme = REDACTOR.pseudonym("web"), REDACTOR.pseudonym("acme")
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["name"], meta["namespace"]) == (f"{web}-12", acme)
    assert meta["ownerReferences"][0] == {"kind": "StatefulSet", "name": web, "controller": True}
    assert meta["labels"] == {"app": web, "kubernetes.io/os": "linux"}
    assert meta["annotations"] == {
        "rebalancer/evict": "false for 4h",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
    }
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["os"] == {"name": "windows"}
    assert spec["tolerations"][0] == {**POD["spec"]["tolerations"][0], "value": acme}
    container = spec["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "250m", "memory": "1Gi"}}
    node = {"kind": "Node", "status": {"images": [{"names": ["acme.example/web:latest"]}]}}
    assert redact(REDACTOR, node)["status"]["images"][0]["names"] == [container["image"]]
    assert pod["status"] == {"phase": "Running", "startTime": "2026-11-20T10:00:00Z"}
    assert "s3cret" not in json.dumps(pod)


def test_the_same_key_gives_the_same_pseudonyms_and_another_key_others():
    same, other = Redactor(b"0123456789abcdef"), Redactor(b"0123456789abcdeg")
    assert same.pseudonym("web") == REDACTOR.pseudonym("web") == "xpb60im8g9ffp7"
    assert other.pseudonym("web") != REDACTOR.pseudonym("web")


def test_a_key_that_is_none_is_refused_and_not_shown(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(b"too-short\n")
    with pytest.raises(PolicyError, match="16 bytes or more") as caught:
        Redactor.of_file(str(file))
    assert "too-short" not in str(caught.value)
    with pytest.raises(PolicyError, match="cannot be read"):
        Redactor.of_file(str(tmp_path / "none"))
    assert "0123456789abcdef" not in repr(REDACTOR)
