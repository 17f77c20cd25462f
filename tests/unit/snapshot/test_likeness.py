"""Objects recognised by their likeness are read as their decoder would read them."""

import json
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.snapshot.items import ItemScanner
from rebalancer.snapshot.likeness import Alike, Likenesses, PodLikeness
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.pattern import Match, Pattern
from rebalancer.wire.pods import Pod, PodRecord

words = st.sampled_from(["", "a", "b", "node-1", 'say "x"', "back\\slash", "é", "podA", "{", "12"])
times = st.sampled_from(["2026-01-01T00:00:00Z", "2026-02-03T04:05:06Z", "no time"])


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Return a pod that differs from its likes in values, now and then in structure."""
    kind = draw(st.sampled_from(["ReplicaSet", "DaemonSet"]))
    owner = {"kind": kind, "name": draw(words), "uid": draw(words), "controller": True}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [draw(words)]}]}
    meta: dict[str, Any] = {
        "name": draw(words),
        "namespace": draw(st.sampled_from(["one", "two"])),
        "uid": draw(words),
        "creationTimestamp": draw(times),
        "labels": {"app": draw(words), "topology.kubernetes.io/zone": draw(words)},
        "annotations": {draw(st.sampled_from(["rebalancer/evict", "note"])): draw(words)},
        "ownerReferences": [owner],
        "managedFields": [{"time": draw(times), "fieldsV1": {f'k:{{"ip":"{draw(words)}"}}': {}}}],
    }
    spec: dict[str, Any] = {
        "nodeName": draw(words),
        "priority": draw(st.integers(0, 12)),
        "containers": [{"name": "main", "image": draw(words)}],
        "affinity": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    }
    if draw(st.booleans()):
        spec["hostNetwork"] = True
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": draw(times)}
    status = {"phase": draw(st.sampled_from(["Running", "Failed"])), "conditions": [ready]}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def record_of(text: bytes) -> PodRecord:
    return msgspec.json.decode(text, type=Pod).record()


def without_spec(record: PodRecord) -> dict[str, Any]:
    return {name: value for name, value in record._asdict().items() if name != "spec"}


@given(
    items=st.lists(pods(), max_size=12),
    size=st.integers(50, 9000),
    indent=st.sampled_from([None, 1]),
)
@settings(deadline=None, max_examples=150)
def test_a_recognised_pod_is_the_decoded_one(
    items: list[dict[str, Any]], size: int, indent: int | None
) -> None:
    # The last of many, so that the pattern is tried: near the end of a text it is not.
    text = json.dumps({"items": items, "padding": "x" * 9000}, indent=indent).encode()
    likenesses = Likenesses()
    scanner = ItemScanner(likenesses.recognise)
    found: list[bytes] = []
    for start in range(0, len(text), size):
        for item in scanner.feed(text[start : start + size]):
            found.append(item.text)
            assert text[item.offset :].startswith(item.text)
            wanted = record_of(item.text)
            if isinstance(item.like, Alike):
                assert isinstance(item.like.like, PodLikeness)
                record = item.like.like.record(item.like.values, item.text)
                assert without_spec(record) == without_spec(wanted)
            else:
                likenesses.remember("Pod", item.text)
    assert [json.loads(item) for item in found] == items
    assert scanner.complete
    assert json.loads(scanner.envelope)["items"] == []


def test_pods_of_one_owner_are_recognised_from_the_second_on() -> None:
    texts = [
        json.dumps({"kind": "Pod", "metadata": {"name": f"web-{n}", "uid": f"u{n}"}}).encode()
        for n in range(5)
    ]
    likenesses = Likenesses()
    likenesses.remember("Pod", texts[0])
    for number, text in enumerate(texts[1:], start=1):
        found = likenesses.recognise(text + b" " * 5000, 0)
        assert found is not None
        end, alike = found
        assert end == len(text)
        assert isinstance(alike.like, PodLikeness)
        record = alike.like.record(alike.values, text)
        assert (record.name, record.uid) == (f"web-{number}", f"u{number}")


def test_keys_and_the_own_kind_never_become_places() -> None:
    pattern = Pattern(b'{"kind":"Pod","metadata":{"labels":{"a":"1"}}}')
    for other in (
        b'{"kind":"Node","metadata":{"labels":{"a":"1"}}}',
        b'{"kind":"Pod","metadata":{"labels":{"b":"1"}}}',
        b'{"kind":"Pod","metadata":{"labels":{"a":null}}}',
    ):
        assert not pattern.learn(other, 0)
    assert pattern.learn(b'{"kind":"Pod","metadata":{"labels":{"a":"2"}}}', 0)
    found = pattern.match(b'{"kind":"Pod","metadata":{"labels":{"a":"33"}}}', 0)
    assert isinstance(found, Match)
    assert found.values == [b"33"]


def replica_set(number: int) -> dict[str, Any]:
    owner = {"kind": "Deployment", "name": f"d{number}", "uid": f"d{number}", "controller": True}
    meta = {"name": f"rs{number}", "namespace": "one", "uid": f"rs{number}"}
    return {"kind": "ReplicaSet", "metadata": {**meta, "ownerReferences": [owner]}}


def pod_of(number: int) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": f"rs{number}", "uid": f"rs{number}", "controller": True}
    meta = {"name": f"p{number}", "namespace": "one", "uid": f"p{number}"}
    return {"kind": "Pod", "metadata": {**meta, "ownerReferences": [owner]}}


def test_a_replica_set_passed_over_is_read_again_if_a_later_pod_names_it(tmp_path: Path) -> None:
    many = [replica_set(number) for number in range(30)]
    file = tmp_path / "cluster.json"
    owners = []
    for items in ([pod_of(0), *many, pod_of(29)], [pod_of(0), pod_of(29), *many]):
        file.write_text(json.dumps({"kind": "List", "items": items, "padding": "x" * 5000}))
        owners.append([owner.ref for owner in load_snapshot(file).owners])
    assert owners[0] == owners[1] == ["Deployment/one/d0", "Deployment/one/d29"]
