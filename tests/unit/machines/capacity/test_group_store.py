"""What is stored of groups: read back as it was written, in few bytes, by one process at a time."""

from contextlib import closing

import pytest

from rebalancer.kube.client import connect
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.machines.capacity.state import (
    KEY,
    TIMEOUT,
    GroupState,
    GroupStore,
    decode,
    encode,
    note_failure,
)
from rebalancer.machines.capacity.unhelped import NoHelp
from rebalancer.testing.objects import EmbeddedCluster

_NOW = 1_800_000_000.0
_FAILED = note_failure(
    GroupState(pods={"uid-1": "zone-a"}, no_help={"zone-b": NoHelp(2, _NOW, "came in zone-a")}),
    TIMEOUT,
    "no capacity",
    _NOW,
)


def test_it_is_read_back_and_the_same_states_are_the_same_bytes():
    groups = {"b": _FAILED, "a": GroupState(asked=3, asked_at=_NOW), "plain": GroupState()}
    text = encode(groups)
    assert decode({KEY: text}) == ({name: groups[name] for name in "ab"}, None)
    assert encode(dict(reversed(groups.items()))) == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"asked": -1}}', "\x00"])
def test_what_cannot_be_understood_is_nothing_and_named(text):
    groups, flaw = decode({KEY: text})
    assert groups == {}
    assert (flaw is None) == (text == "")


def test_where_it_would_be_too_long_back_offs_stay():
    many = {f"uid-{number:08}": "zone-a" for number in range(10_000)}
    groups, flaw = decode(
        {KEY: encode({"pool": note_failure(GroupState(pods=many), TIMEOUT, "", _NOW)})}
    )
    assert flaw is None
    assert (groups["pool"].pods, groups["pool"].failures) == ({}, 1)


def test_what_interruptions_store_beside_it_stays():
    with EmbeddedCluster() as cluster:
        beside = {"uid-of-node": "{}"}
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "machines"},
                "data": {**beside, KEY: "{"},
            }
        )
        with closing(connect(kubeconfig=cluster.kubeconfig, environ={})) as client:
            store = GroupStore(ConfigMapStore(client, "default", "machines"))
            groups, flaw = store.load()
            assert groups == {}
            assert "back-offs of groups start again" in str(flaw)
            store.keep({"pool": _FAILED})
            again = GroupStore(ConfigMapStore(client, "default", "machines"))
            assert again.load() == ({"pool": _FAILED}, None)
        assert cluster.get("ConfigMap", "machines")["data"].items() > beside.items()
