"""Redacted objects have no names, and make the same plans."""

import io
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.phases.families import cluster_of
from rebalancer.base.errors import PolicyError
from rebalancer.cli import command
from rebalancer.snapshot.load import SnapshotArchive, split_lines
from rebalancer.snapshot.redact import Redactor
from rebalancer.snapshot.store import JSON_END, slim
from rebalancer.wire import kinds, pods
from rebalancer.wire import objects as o
from rebalancer.wire.lists import DECODED

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
    assert pod["status"] == {"phase": "Running"}  # nothing reads the other fields
    assert "s3cret" not in json.dumps(pod)


class Planted:
    """An object of a kind in which every field that is read, and others, hold a text of their own."""

    def __init__(self, kind):
        self.places: dict[str, str] = {}
        self.object = self.of_struct(DECODED.get(kind, pods.Pod), kind)
        self.object |= {"kind": kind, "apiVersion": "v1"}

    def text(self, place):
        name = f"canary{len(self.places)}q"
        self.places[name] = place
        return name

    def of_struct(self, struct, place):
        fields = {
            field.encode_name: self.of_type(
                RAW.get(field.name, field.type), f"{place}.{field.encode_name}"
            )
            for field in msgspec.structs.fields(struct)
        }
        return fields | {
            "unknownField": self.text(f"{place}.unknownField"),
            self.text(f"{place}{{key}}"): {"name": self.text(f"{place}.unknown.name")},
            # Beside a field that is read there may be anything in a version to come.
            "items": [{"key": self.text(f"{place}.items.key"), "path": self.text(f"{place}.path")}],
        }

    def of_type(self, kind, place):
        origin, of = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            kinds = [one for one in of if one is not type(None)]
            return self.of_type(next((one for one in kinds if one is str), kinds[0]), place)
        if origin is tuple:
            return [self.of_type(of[0], f"{place}[]"), self.of_type(of[0], f"{place}[]")]
        if origin is dict:
            kind_of_value = of[1] if of[1] is not Any else dict[str, str]
            return {
                self.text(f"{place}{{key}}"): self.of_type(kind_of_value, f"{place}{{}}"),
                f"{self.text(f'{place}{{key}}')}.example/{self.text(f'{place}{{key}}')}": 3
                if kind_of_value in (int, o.Int32)
                else "4711990",
            }
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.of_struct(kind, place)
        if kind in (int, float, o.Int32, o.Int64):
            return 5
        if kind is bool:
            return True
        if kind in (Any, msgspec.Raw):
            return {"names": [self.text(f"{place}.any")], self.text(f"{place}{{key}}"): "4711990"}
        assert kind is str, kind
        return self.text(place)


RAW = {
    field.name: field.type
    for one in (o.Container, o.SchedulingSpec)
    for field in msgspec.structs.fields(one)
    if field.name not in ("containers", "init_containers", "volumes")
} | {"labels": o.Labels, "annotations": o.Labels}
"""What pods have in the place of text that is decoded later."""
DOCUMENTED = re.compile(
    r"\.uid$|\.(labels|matchLabels|nodeSelector)\{key\}$|\.selector\{key\}$"
    r"|\.(key|topologyKey)$|\.(mismatchLabelKeys|matchLabelKeys)\[\]$"
    r"|\.driver$|\.provisioner$|\.drivers\[\]\.name$"
)
"""What docs/compare.md says that stays: keys of labels and taints, uids, drivers of volumes."""


@pytest.mark.parametrize("kind", [one.kind for one in kinds.IN_SNAPSHOTS])
def test_no_text_that_is_planted_in_any_field_of_any_kind_stays(kind):
    planted = Planted(kind)
    assert len(planted.places) > 5
    text = slim(kind, REDACTOR.redact(kind, json.dumps(planted.object).encode())).decode()
    stay = {planted.places[name] for name in re.findall(r"canary\d+q", text)}
    assert not [place for place in stay if not DOCUMENTED.search(place)]
    # A number may be a customer's: those of labels on nodes are compared as numbers, and stay.
    numbers = json.dumps(json.loads(text)).count("4711990")
    assert not numbers or kind == "Node" or planted_amounts(json.loads(text)) == numbers


def planted_amounts(value):
    """How often the number is a quantity, or what nodes are selected by."""
    if not isinstance(value, dict | list):
        return 0
    pairs = value.items() if isinstance(value, dict) else [("", one) for one in value]
    found = 0
    for key, one in pairs:
        amounts = isinstance(one, dict) and key in AMOUNTS
        found += json.dumps(one).count("4711990") if amounts else planted_amounts(one)
    return found


AMOUNTS = [
    "requests",
    "limits",
    "capacity",
    "allocatable",
    "overhead",
    "hard",
    "used",
    "usage",
    "nodeSelector",
    "allocatedResources",
]


@pytest.mark.parametrize(
    ("kind", "part", "expected"),
    [
        ("Pod", {"metadata": {"labels": {"customer": "4711990"}}}, False),
        ("Pod", {"metadata": {"name": "4711990", "namespace": "4711990"}}, False),
        ("Pod", {"spec": {"nodeSelector": {"cores": "4711990"}}}, True),
        ("Node", {"metadata": {"labels": {"cores": "4711990"}}}, True),
        ("Node", {"metadata": {"name": "4711990"}}, False),
        ("Node", {"metadata": {"labels": {"kubernetes.io/hostname": "4711990"}}}, False),
        ("Node", {"status": {"capacity": {"cpu": "4711990"}}}, True),
        ("Node", {"status": {"capacity": {"4711990": "1"}}}, False),
        ("PodDisruptionBudget", {"status": {"disruptedPods": {"4711990": "now"}}}, False),
        ("ResourceQuota", {"spec": {"hard": {"count/4711990.acme.example": "2"}}}, False),
        ("Event", {"action": "4711990", "reason": "4711990"}, False),
    ],
)
def test_numbers_stay_where_they_are_amounts_or_are_compared(kind, part, expected):
    assert ("4711990" in json.dumps(redact(REDACTOR, {"kind": kind, **part}))) is expected


def test_kinds_versions_and_resources_of_others_are_hidden_and_stay_equal():
    name = REDACTOR.pseudonym
    owners = [
        {"kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1", "name": "a", "controller": True},
        {"kind": "AcmeApp", "apiVersion": "acme.example/v2beta1", "name": "a"},
        {"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "a"},
    ]
    pod = redact(REDACTOR, {"kind": "Pod", "metadata": {"ownerReferences": owners}})
    shown = [(one["kind"], one["apiVersion"]) for one in pod["metadata"]["ownerReferences"]]
    assert shown == [
        ("Rollout", "argoproj.io/v1alpha1"),
        (name("AcmeApp"), f"{name('acme.example')}/v2beta1"),
        ("ReplicaSet", "apps/v1"),
    ]
    fpga = f"{name('acme.example')}/{name('fpga')}"
    amounts = {"acme.example/fpga": "1", "nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"}
    container = {"name": "c", "resources": {"requests": amounts}}
    pod = redact(REDACTOR, {"kind": "Pod", "spec": {"containers": [container]}})
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {fpga: "1", "nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"}
    node = redact(REDACTOR, {"kind": "Node", "status": {"allocatable": amounts}})
    assert node["status"]["allocatable"] == requests
    quota = redact(
        REDACTOR, {"kind": "ResourceQuota", "spec": {"hard": {"requests.acme.example/fpga": "1"}}}
    )
    hard = {f"requests.{fpga}": "1"}
    assert quota["spec"]["hard"] == hard
    node = redact(
        REDACTOR, {"kind": "Node", "status": {"nodeInfo": {"kubeletVersion": "v1.36.2-acme.7"}}}
    )
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.2"


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
