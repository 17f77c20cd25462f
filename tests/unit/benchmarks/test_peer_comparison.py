"""The comparison with the descheduler: what it counts, and that what must not be is seen."""

import json
from random import Random

import pytest

from benchmarks.peer.differences import compared
from benchmarks.peer.policies import STRATEGY_OF, random_policy, scope_policy
from rebalancer.migrate.merge import as_file, convert_policy
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import node, snapshot_of, workload

KNOWN = Registry.installed()
SNAPSHOT = snapshot_of(
    [
        node("n0"),
        node("n1"),
        *workload("web", ["n0", "n0", "n1"]),
        *workload("db", ["n0"]),
        *workload("api", ["n0", "n1"]),
    ]
)
POLICY = load_text(
    b"apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {duplicates: {}}\n", "p", KNOWN
).policy


def report(*moved, skipped=()):
    def of(name):
        return {"namespace": "default", "pod": name}

    return {
        "moves": [{**of(name), "strategy": "duplicates", "observed": False} for name in moved],
        "skipped": [{**of(name), "code": code} for name, code in skipped],
    }


def comparison(ours, theirs, scope=("web-0", "web-1", "api-0"), plugin="RemoveDuplicates"):
    evicted = {f"default/{name}": plugin for name in theirs}
    could = [f"default/{name}" for name in scope]
    return compared(SNAPSHOT, POLICY, ours, evicted, could, limited=False)


def test_a_pod_outside_the_scope_is_seen():
    assert comparison(report("web-2"), []).outside == ["default/web-2"]
    assert comparison(report("web-0"), []).outside == []


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        (report("web-0"), ["web-0"], None),
        (report("web-0"), [], "only ours: fixed here, left alone there: duplicates"),
        (report(), ["db-0"], "only there: protected here: singleReplica"),
        (report(skipped=[("api-0", "NoRoom")]), ["api-0"], "only there: stays here: NoRoom"),
        (
            report(),
            ["api-0"],
            "only there: fewer moves: no rule of duplicates is left unmet by it here",
        ),
    ],
)
def test_each_difference_has_its_kind(ours, theirs, kind):
    result = comparison(ours, theirs)
    assert result.kinds == ({} if kind is None else {kind: 1})
    assert result.unnamed == []


def test_another_pod_of_the_workload_is_counted_on_both_sides():
    kinds = comparison(report("web-0"), ["web-1"]).kinds
    text = "another pod of the same workload"
    assert kinds == {f"only ours: {text}": 1, f"only there: {text}": 1}


def test_a_plug_in_that_has_no_strategy_in_the_policy_leaves_a_difference_without_a_name():
    result = comparison(report(), ["api-0"], plugin="PodLifeTime")
    assert result.unnamed == ["default/api-0 by PodLifeTime"]


def test_random_policies_are_of_every_plug_in_and_can_be_migrated():
    seen = set()
    for seed in range(60):
        for policy in (random_policy(Random(seed)), scope_policy(random_policy(Random(seed)))):
            migration = convert_policy(json.dumps(policy).encode(), "p", KNOWN)
            load_text(as_file(migration.data, migration.head, KNOWN).encode(), "p", KNOWN)
        seen |= {c["name"] for c in random_policy(Random(seed))["profiles"][0]["pluginConfig"]}
    assert seen == {*STRATEGY_OF, "DefaultEvictor"}
