"""Lists in protobuf are cut into whole items wherever the pieces end, and never end too early unnoticed."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.frames import ListFrames
from tests.unit.wire.protobuf_bytes import MAGIC, field, listed


def items_of(run: bytes) -> list[bytes]:
    """Take a run apart by the book: tag, length, value."""
    items, position = [], 0
    while position < len(run):
        tag, length, shift = run[position], 0, 0
        position += 1
        while True:
            byte = run[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if tag == 0x12:
            items.append(run[position : position + length])
        position += length
    return items


def read(pieces: list[bytes], run_bytes: int = 1 << 20) -> tuple[list[bytes], ListFrames]:
    frames = ListFrames(run_bytes)
    return [
        item for piece in pieces for run in frames.feed(piece) for item in items_of(run)
    ], frames


def test_a_list_in_one_piece_is_its_items_and_its_version():
    items, frames = read([listed([b"\x0a\x01a", b"\x0a\x01b"], version="99", token="more")])
    assert items == [b"\x0a\x01a", b"\x0a\x01b"]
    meta = frames.close()
    assert (meta.resource_version, meta.continue_) == ("99", "more")


def test_an_empty_list_is_whole():
    items, frames = read([listed([])])
    assert items == []
    assert frames.close().resource_version == "7"


@given(
    st.lists(st.binary(max_size=300).map(lambda value: field(1, value)), max_size=12),
    st.lists(st.integers(min_value=0, max_value=4000), max_size=8),
    st.integers(min_value=1, max_value=500),
)
def test_it_does_not_matter_where_the_pieces_end(items, cuts, run_bytes):
    body = listed(items)
    ends = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(ends)]
    decoded, frames = read(pieces, run_bytes)
    assert decoded == items
    assert frames.close().resource_version == "7"


def test_a_list_that_is_cut_off_anywhere_is_broken():
    body = listed([b"\x0a\x01a", b"\x0a\x01b"])
    end_of_the_list = len(body) - len(field(3, b"") + field(4, b""))
    for length in range(end_of_the_list):
        _, frames = read([body[:length]])
        with pytest.raises(BrokenListError, match="inside the list"):
            frames.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"kind": "PodList"}', "does not begin"),
        (MAGIC + b"\x08\x01", "wire type 0"),
        (MAGIC + field(2, b"\x12\x7fab"), "longer than its list"),
        (MAGIC + field(2, b"\x08\x01"), "wire type 0"),
        (MAGIC + b"\x12" + b"\xff" * 11, "no number"),
    ],
)
def test_other_bytes_are_no_list(body, said):
    with pytest.raises(BrokenListError, match=said):
        read([body])


def test_no_more_than_a_run_and_an_item_is_kept():
    item = field(1, b"x" * 1000)
    frames = ListFrames(run_bytes=4096)
    body = listed([item] * 100)
    longest = 0
    for start in range(0, len(body), 512):
        for run in frames.feed(body[start : start + 512]):
            longest = max(longest, len(run))
    assert 0 < longest <= 4096 + 512
