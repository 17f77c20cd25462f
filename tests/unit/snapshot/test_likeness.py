"""Objects recognised by their likeness are read as their decoder would read them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.snapshot.items import ItemScanner
from rebalancer.snapshot.likeness import Likenesses, PodLikeness, Run
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.pattern import Match, Pattern
from rebalancer.snapshot.siblings import Loose, Siblings
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
            if isinstance(item.like, Run):
                assert isinstance(item.like.like, PodLikeness)
                texts = [
                    item.like.buffer[m.start : m.end]
                    for first in item.like.matches
                    for m in (first, *first.siblings)
                ]
                wanted = [without_spec(record_of(text)) for text in texts]
                assert [without_spec(record) for record in records_of(item.like)] == wanted
            else:
                texts = [item.text]
                likenesses.remember("Pod", item.text)
            assert text[item.offset :].startswith(texts[0])
            found += texts
    assert [json.loads(item) for item in found] == items
    assert scanner.complete
    assert json.loads(scanner.envelope)["items"] == []


def records_of(run: Run) -> list[PodRecord]:
    """Return a run's pods as records, one by one."""
    assert isinstance(run.like, PodLikeness)
    return [
        pods.first._replace(
            name=name.decode(),
            uid=uid.decode(),
            node=node.decode(),
            created=created,
            ready_since=ready,
        )
        for pods in run.like.alike(run)
        for name, uid, node, created, ready in zip(*pods[1:], strict=True)
    ]


def pods_of_one_owner(count: int) -> list[bytes]:
    return [
        json.dumps({"kind": "Pod", "metadata": {"name": f"web-{n}", "uid": f"u{n}"}}).encode()
        for n in range(count)
    ]


def test_pods_of_one_owner_are_recognised_from_the_second_on_all_at_once() -> None:
    texts = pods_of_one_owner(12)
    likenesses = Likenesses()
    likenesses.remember("Pod", texts[0])
    text = b",".join(texts[1:])
    found = likenesses.recognise(text + b" " * 5000, 0, b",")
    assert found is not None
    end, run = found
    assert end == len(text)
    assert [(r.name, r.uid) for r in records_of(run)] == [
        (f"web-{n}", f"u{n}") for n in range(1, 12)
    ]


def owned_pod(owner: str, name: str, node: str) -> bytes:
    reference = {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    meta = {"name": name, "uid": f"u-{name}", "ownerReferences": [reference]}
    return json.dumps({"kind": "Pod", "spec": {"nodeName": node}, "metadata": meta}).encode()


def test_where_pods_of_later_owners_differ_does_not_change_what_earlier_ones_said() -> None:
    # All in one run from the second owner on: of the first three only names differ, of the fourth nodes, too.
    texts = [
        *(owned_pod(f"o{n}", f"o{n}-{k}", f"n{n}") for n in range(3) for k in range(6)),
        *(owned_pod("p", f"p-{k}", f"n{k}") for k in range(6)),
        *(owned_pod(f"q{k}", f"q-{k}", "n2") for k in range(5)),
    ]
    buffer = b",".join(texts) + b" " * 5000
    likenesses = Likenesses()
    found: list[PodRecord] = []
    families = 0
    while len(found) < len(texts):
        start = sum(len(text) + 1 for text in texts[: len(found)])
        recognised = likenesses.recognise(buffer, start, b",")
        if recognised is None:
            likenesses.remember("Pod", texts[len(found)])
            found.append(record_of(texts[len(found)]))
        else:
            families = max(families, len(recognised[1].matches))
            found += records_of(recognised[1])
    assert families > 2
    assert [without_spec(r) for r in found] == [without_spec(record_of(t)) for t in texts]


@pytest.mark.parametrize(
    ("odd", "recognised"),
    [
        (b'{"kind": "Pod", "metadata": {"name": "web-\\u0031", "uid": "u1"}}', 3),
        (b'{"kind": "Pod", "metadata": {"name": "web-1", "uid": "u1", "more": 1}}', 3),
        (b'{"kind": "Pod", "metadata": {"name": "w", "uid": "quite long"}}', 7),
        (b'{"kind": "Pod", "metadata": {"name": "", "uid": ""}}', 7),
        (b'{"kind": "Pod", "metadata": {"name": "web-1", "uid": "u1"', 3),
    ],
)
def test_a_run_ends_where_an_object_is_not_like_the_others(odd: bytes, recognised: int) -> None:
    texts = pods_of_one_owner(4)
    likenesses = Likenesses()
    likenesses.remember("Pod", texts[0])
    text = b",\n".join([*texts[1:], odd, *texts[1:]]) + b" " * 5000
    found = likenesses.recognise(text, 0, b",\n")
    assert found is not None
    assert len(records_of(found[1])) == recognised


def test_a_pattern_takes_values_out_at_known_places_only_if_the_rest_is_its_own_text() -> None:
    pattern = Pattern(b'{"kind":"Pod","a":"11","metadata":{"b":"22"}}')
    at = pattern.text.index(b"22")
    pattern.restore([(at, at + 2)])
    one, other = (
        b'{"kind":"Pod","a":"11","metadata":{"b":"%s"}}' % value for value in (b"33", b"44")
    )
    for _ in range(3):  # the third is taken apart by its lengths
        found = pattern.match(one, 0)
        assert isinstance(found, Match)
        assert (found.start, found.end, list(found.values)) == (0, len(one), [b"33"])
    for text in (other.replace(b"11", b"12"), other.replace(b"44", b'4"'), other[:-1]):
        assert not isinstance(pattern.match(text, 0), Match)
    longer = pattern.match(other.replace(b"44", b"444"), 0)
    assert isinstance(longer, Match)
    assert list(longer.values) == [b"444"]


def siblings_of(first: bytes, loose: list[bytes]) -> Siblings:
    """Return the siblings of the only object of a pattern that differ where these values stand in it."""
    pattern = Pattern(first)
    pattern.restore([(first.index(b), first.index(b) + len(b)) for b in loose])
    found = pattern.match(first, 0)
    assert isinstance(found, Match)
    return Siblings(Loose(pattern, range(len(loose))), first, found)


@pytest.mark.parametrize(
    ("name", "number", "recognised"),
    [
        (b"web-2", b"7", True),
        (b"a-longer-name", b"1234", True),
        (b"", b"7", True),
        (b'w","b":', b"7", False),  # as long as what it stands for, but not one string
        (b"we\\u0041", b"7", False),
        (b"podA0", b"7", False),
        (b"web-2", b"x", False),
        (b"web-2", b"-", False),
    ],
)
def test_siblings_differ_in_loose_places_and_in_nothing_else(
    name: bytes, number: bytes, recognised: bool
) -> None:
    text = b'{"kind":"Pod","metadata":{"name":"%s","port":%s,"b":"yes"}}'
    siblings = siblings_of(text % (b"web-1", b"8"), [b"web-1", b"8"])
    other = text % (name, number)
    found = siblings.match(b"," + other + b",", 1)
    assert (found is not None) is recognised
    if found is not None:
        assert (found.start, found.end, list(found.values)) == (1, 1 + len(other), [name, number])
    for odd in (other.replace(b"yes", b"no"), other[:-1], other.replace(b"name", b"nome")):
        assert siblings.match(odd, 0) is None


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
