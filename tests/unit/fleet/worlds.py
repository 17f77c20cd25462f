"""Snapshot files and policies for tests of comparisons."""

import json

from rebalancer.testing.snapshots import node, spread, workload

SPREAD = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {topology-spread: {}}\n"
IDLE = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {taints: {}}\n"


def skewed(path, workloads=2):
    """Write a cluster of three zones whose workloads are in two of them; each wants one pod moved."""
    nodes = [node(f"n-{zone}", zone) for zone in "abc"]
    apps = [
        workload(f"web-{number}", ["n-a", "n-b", "n-a"], spec=spread(f"web-{number}"))
        for number in range(workloads)
    ]
    items = [*nodes, *(each for app in apps for each in app)]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def write_policies(folder):
    """Write two policies: one that repairs the spread, and one that has nothing to do with it."""
    for name, text in (("spread.yaml", SPREAD), ("idle.yaml", IDLE)):
        (folder / name).write_text(text)
    return [str(folder / "spread.yaml"), str(folder / "idle.yaml")]
