"""``rebalancer capacity`` from the command line."""

import json

import pytest

from rebalancer.testing.snapshots import node, workload
from tests.unit.commands.called import called

_EXAMPLE = "docs/examples/capacity.zip"


def test_says_as_data_what_the_table_says():
    done = called("capacity", "--snapshot", _EXAMPLE, "-o", "json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["apiVersion"], data["kind"]) == (0, "rebalancer/v1", "Capacity")
    codes = {one["name"]: one["code"] for one in data["nodes"]}
    assert codes == {
        "node-a1": "Removable",
        "node-b1": "BlockedByPod",
        "node-c1": "PolicyRuleWouldBreak",
        "node-d1": "NotUnderutilized",
    }
    assert [(one["group"], one["nodes"], one["pods"]) for one in data["increases"]] == [
        ("batch", 2, 3)
    ]
    assert sorted(one["code"] for one in data["pending"]) == ["GroupGrows"] * 3 + ["NoGroupFits"]
    table = called("capacity", "--snapshot", _EXAMPLE).stdout
    assert all(f"{name} " in table and code in table for name, code in codes.items())


def test_says_how_many_moves_would_do_instead_of_a_machine():
    files = (
        "--snapshot",
        "docs/examples/make-room.zip",
        "--policy",
        "docs/examples/make-room.yaml",
    )
    (one,) = json.loads(called("capacity", *files, "-o", "json").stdout)["pending"]
    assert (one["pod"].partition("-")[0], one["moves"]) == ("model", 1)
    assert "1 move instead of a machine" in called("capacity", *files).stdout
    # Without a strategy that makes room none is planned.
    (other,) = json.loads(called("capacity", *files[:2], "-o", "json").stdout)["pending"]
    assert other["moves"] is None


def test_says_the_same_twice():
    once = called("capacity", "--snapshot", _EXAMPLE, "-o", "yaml")
    assert once == called("capacity", "--snapshot", _EXAMPLE, "-o", "yaml")


def test_the_threshold_is_the_policy_s():
    done = called("capacity", "--snapshot", _EXAMPLE, "--set", "capacity.under=4%", "-o", "json")
    assert not any(one["removable"] for one in json.loads(done.stdout)["nodes"])


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ("provider: {azure: {}}", "policy.yaml:3: provider.azure: unknown provider"),
        ("provider: {none: {tags: []}}", "policy.yaml:3: provider.none.tags: unknown key"),
        ("provider: {none: {}, other: {}}", "policy.yaml:3: provider"),
        ("capacity: {expander: priority}", "expander: priority and priorities go together"),
        ("capacity: {expander: priority, priorities: ['(']}", "is no regular expression"),
    ],
)
def test_a_policy_that_is_wrong_names_file_line_and_key(tmp_path, policy, text):
    path = tmp_path / "policy.yaml"
    path.write_text(f"apiVersion: rebalancer/v1\nkind: Policy\n{policy}\n")
    done = called("capacity", "--snapshot", _EXAMPLE, "--policy", str(path))
    assert done.returncode == 2
    assert text in done.stderr


def test_a_named_provider_is_asked(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("apiVersion: rebalancer/v1\nkind: Policy\nprovider: {none: }\n")
    done = called("capacity", "--snapshot", _EXAMPLE, "--policy", str(path), "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["provider"]) == (0, "none")


def test_says_which_pods_hold_nodes_and_on_how_few_they_fit():
    files = ("--snapshot", "docs/examples/pins.zip")
    text = called("capacity", *files).stdout
    assert "4 nodes are held by 4 pods (safe-to-evict false 4): together they fit on 1\n" in text
    pins = json.loads(called("capacity", *files, "-o", "json").stdout)["pins"]
    assert (len(pins["nodes"]), len(pins["pods"]), len(pins["together"])) == (4, 4, 1)
    assert (pins["proven"], pins["savedPerHour"]) == (True, None)
    assert [(one["name"], one["pods"]) for one in pins["causes"]] == [("safeToEvict", 4)]
    # One node for one pod: the node says it.
    assert "held by" not in called("capacity", "--snapshot", _EXAMPLE).stdout


def test_an_outage_stands_before_all_else(tmp_path):
    """Two of three nodes are silent: neither what could be removed, nor a drain, reads as if nothing were wrong."""
    objects = [node("n0", "a"), node("n1", "b", ready=False), node("n2", "c", ready=False)]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [*objects, *workload("web", ["n0"])]}))
    first = called("capacity", "--snapshot", str(path)).stdout.partition("\n")[0]
    assert first.startswith("Note: a run stands still now, and no machine is removed: 2 of 3 nodes")
    drained = called("drain", "n1", "--dry-run", "--snapshot", str(path))
    assert "Note: n1 not Ready: evicted pods stay Terminating" in drained.stdout
