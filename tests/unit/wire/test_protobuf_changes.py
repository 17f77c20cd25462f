"""Changes of a watch in protobuf: cut in any pieces, decoded as lists are."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.kube.client import JSON
from rebalancer.kube.failures import status_of
from rebalancer.kube.watch import BOOKMARK, ERROR, object_changes, pod_changes
from rebalancer.wire.protobuf import PROTOBUF, BrokenListError
from rebalancer.wire.protobuf.frames import ChangeFrames, unwrap
from tests.unit.wire.protobuf_bytes import MAGIC, encoded, field, pod


def enveloped(own: bytes) -> bytes:
    """An object as the server sends it by itself."""
    return MAGIC + field(1, field(1, b"v1") + field(2, b"Thing")) + field(2, own) + field(3, b"")


def framed(kind: str, own: bytes) -> bytes:
    event = field(1, kind.encode()) + field(2, field(1, enveloped(own)))
    return len(event).to_bytes(4, "big") + event


def versioned(own: bytes, version: str) -> bytes:
    """Fields of a message may come in parts: the same object with a version."""
    return own + field(1, field(6, version.encode()))


REFUSAL = encoded("Status", message="too old resource version", reason="Expired", code=410)
TEXT = (
    framed("ADDED", versioned(pod("a"), "11"))
    + framed("BOOKMARK", versioned(b"", "12"))
    + framed("DELETED", versioned(pod("b" * 300, node="n2"), "13"))
    + framed("ERROR", REFUSAL)
)


@given(st.lists(st.integers(0, len(TEXT)), max_size=6))
def test_pieces_may_end_anywhere(cuts):
    decoder = pod_changes(PROTOBUF)
    ends = sorted({0, *cuts, len(TEXT)})
    changes = [
        one for start, end in itertools.pairwise(ends) for one in decoder.feed(TEXT[start:end])
    ]
    assert [(one.type, one.version) for one in changes] == [
        ("ADDED", "11"),
        (BOOKMARK, "12"),
        ("DELETED", "13"),
        (ERROR, ""),
    ]
    first, gone = changes[0].object, changes[2].object
    assert first is not None
    assert gone is not None
    assert (first.name, first.uid, first.node) == ("a", "uid-a", "n1")
    assert (gone.name, gone.node) == ("b" * 300, "n2")
    status = changes[3].status
    assert status is not None
    assert (status.code, status.reason) == (410, "Expired")


def test_other_kinds_are_decoded_as_in_lists():
    own = encoded(
        "Node", metadata={"name": "n1", "resourceVersion": "9"}, spec={"unschedulable": True}
    )
    (change,) = object_changes("Node", PROTOBUF).feed(framed("MODIFIED", own))
    line = {
        "type": "MODIFIED",
        "object": {
            "metadata": {"name": "n1", "resourceVersion": "9"},
            "spec": {"unschedulable": True},
        },
    }
    (in_json,) = object_changes("Node", JSON).feed(json.dumps(line).encode() + b"\n")
    assert change == in_json
    assert change.object is not None
    assert change.object.spec.unschedulable


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02\xff\xff",
        (5).to_bytes(4, "big") + field(2, field(1, b"{")),
    ],
    ids=["too long", "no event", "no envelope"],
)
def test_what_is_no_change_is_an_error(text):
    with pytest.raises(ValueError, match=r"change|envelope|protobuf"):
        [change.object for change in ChangeFrames().feed(text)]


def test_a_refusal_in_protobuf_is_understood():
    status = status_of(enveloped(encoded("Status", message="no", reason="Forbidden", code=403)))
    assert (status.message, status.reason, status.code) == ("no", "Forbidden", 403)
    assert status_of(MAGIC + b"\xff\xff").message
    with pytest.raises(BrokenListError):
        unwrap(b"{}")
