"""Explanations are about the plan of a dry run, and looking on changes nothing in it."""

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rebalancer.explain.node import NodeRecorder
from rebalancer.explain.workload import WorkloadRecorder
from rebalancer.report.as_json import as_data
from rebalancer.testing.snapshots import (
    apart,
    disruption_budget,
    node,
    snapshot_of,
    spread,
    workload,
)

NODES = [f"n-{i}" for i in range(5)]
POLICY = """\
protect: {singleReplicas: false}
strategies:
  topology-spread: {}
  anti-affinity: {}
  duplicates: {}
  low-utilisation: {over: {cpu: 40%}, under: {cpu: 30%}}
  node-affinity: {mode: observe}
  taints: {}
"""
SPECS = {
    "none": {},
    "spread": spread("web"),
    "hard": spread("web", hard=True),
    "apart": apart("web", weight=60),
    "required": apart("db"),
    "ssd": {"nodeSelector": {"disk": "ssd"}},
}

clusters = st.builds(
    lambda web, db, api, spec, allowed: [
        *(
            node(name, "abc"[i % 3], cpu="2", labels={"disk": "ssd"} if i < 2 else {})
            for i, name in enumerate(NODES)
        ),
        *workload("web", web, spec=SPECS[spec]),
        *workload("db", db, kind="StatefulSet", cpu="300m"),
        *workload("api", api, cpu="200m"),
        disruption_budget("db", "db", allowed=allowed),
    ],
    web=st.lists(st.sampled_from(NODES), min_size=1, max_size=6),
    db=st.lists(st.sampled_from(NODES), min_size=1, max_size=4),
    api=st.lists(st.sampled_from(NODES), max_size=4),
    spec=st.sampled_from(sorted(SPECS)),
    allowed=st.sampled_from([0, 1]),
)


ONLY_OBSERVED = [
    *(
        node(name, "abc"[i % 3], cpu="2", labels={"disk": "ssd"} if i < 2 else {})
        for i, name in enumerate(NODES)
    ),
    *workload("web", ["n-0", "n-2"], spec=SPECS["ssd"]),
    *workload("db", ["n-0", "n-0"], kind="StatefulSet", cpu="300m"),
    *workload("api", ["n-0", "n-0"], cpu="200m"),
    disruption_budget("db", "db", allowed=0),
]
"""A move that is only observed fills a node again that the others have eased."""


def encoded(report):
    data = as_data(report)
    return msgspec.json.encode({key: data[key] for key in data if key != "timings"})


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(objects=clusters)
def test_one_that_looks_on_sees_the_plan_of_a_dry_run(explaining, objects):
    snapshot = snapshot_of(objects)
    plain, _ = explaining.plan(snapshot, policy=POLICY)
    for watched in (lambda of: NodeRecorder(of, 0), lambda of: WorkloadRecorder(of, 0)):
        report, _ = explaining.plan(snapshot, watched, policy=POLICY)
        assert encoded(report) == encoded(plain)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(objects=clusters)
@example(objects=ONLY_OBSERVED)
def test_all_nodes_and_all_workloads_together_report_the_whole_report_once(explaining, objects):
    snapshot = snapshot_of(objects)
    report, _ = explaining.plan(snapshot, policy=POLICY)
    data = as_data(report)
    nodes = [explaining.node(name, snapshot, policy=POLICY) for name in NODES]
    workloads = [
        explaining.workload(owner.ref, snapshot, policy=POLICY) for owner in snapshot.owners
    ]
    for explained in (nodes, workloads):
        pods = [pod for one in explained for pod in one.data["pods"]]
        assert len(pods) == len(snapshot.pods)
        moves = [pod["plan"]["move"] for pod in pods if pod["plan"]["move"]]
        assert sorted(moves, key=str) == sorted(data["moves"], key=str)
        stays = [
            (pod["pod"], pod["node"], pod["plan"]["code"], pod["plan"]["message"])
            for pod in pods
            if pod["plan"]["verdict"] == "stays"
        ]
        skips = [(s["pod"], s["node"], s["code"], s["message"]) for s in data["skipped"]]
        assert sorted(stays) == sorted(skips)
    landings: dict[str, float] = {}
    for one in nodes:
        for arrival in one.data["arrivals"]:
            share = landings.get(arrival["uid"], 0)
            landings[arrival["uid"]] = share + arrival["probability"]
    assert landings == {move["uid"]: pytest.approx(1) for move in data["moves"]}


def test_no_line_is_wider_than_a_terminal(explaining):
    name = "a-workload-of-a-rather-long-name-as-people-have-them"
    nodes = [node(f"gke-cluster-pool-of-nodes-{i}-0123456789", f"zone-{i}") for i in range(3)]
    on = ["gke-cluster-pool-of-nodes-0-0123456789"] * 4
    objects = [*nodes, *workload(name, on, namespace="a-namespace-of-a-team", spec=spread(name))]
    tables = [
        explaining.node("gke-cluster-pool-of-nodes-0-0123456789", objects).table,
        explaining.node("gke-cluster-pool-of-nodes-1-0123456789", objects).table,
        explaining.workload(f"a-namespace-of-a-team/{name}", objects).table,
    ]
    assert max(len(line) for table in tables for line in table.splitlines()) <= 120
