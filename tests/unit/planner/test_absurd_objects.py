"""Whatever the API admits of one tenant's pods, the pods of the others are still planned for."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.plan.plan import Code
from rebalancer.testing.snapshots import HOSTNAME, ZONE, node, snapshot_of, workload
from tests.unit.planner.conftest import plan_of

NODES = [node(f"n{i}", "ab"[i % 2]) for i in range(4)]
CROWDED = workload("web", ["n0", "n0"])
ALL = (
    "anti-affinity",
    "duplicates",
    "low-utilisation",
    "node-affinity",
    "taints",
    "topology-spread",
)


def asking(amounts, count=2):
    """Containers that each ask for this."""
    asked = {"requests": dict(amounts), "limits": dict(amounts)}
    return {"containers": [{"name": f"c{i}", "resources": asked} for i in range(count)]}


def moved(objects):
    made = plan_of([*NODES, *CROWDED, *objects], strategies=ALL)
    return {move.pod for move in made.moves}, made


@pytest.mark.parametrize("on", ["", "n1"])
@pytest.mark.parametrize(
    "amounts", [{"memory": "9E"}, {"cpu": "5P"}, {"example.com/x": "9223372036854775807"}]
)
def test_a_pod_that_asks_for_more_than_there_is_holds_up_no_other(amounts, on):
    vast = workload("vast", [on, on], namespace="other", spec=asking(amounts))
    pods, _ = moved(vast)
    assert pods & {"web-0", "web-1"}
    assert not pods & {"vast-0", "vast-1"}


def test_a_pod_that_cannot_be_read_is_named_and_stays():
    odd = workload("odd", ["n1", "n1"], namespace="other", spec=asking({"memory": "much"}))
    pods, made = moved(odd)
    assert pods & {"web-0", "web-1"}
    assert any("other/odd" in warning and "unreadable" in warning for warning in made.warnings)
    assert {skip.code for skip in made.skips if skip.pod.startswith("odd")} == {Code.UNPREDICTED}


def test_a_quota_that_cannot_be_read_leaves_no_room():
    hard = {"requests.memory": "much"}
    quota = {
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "other"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {}},
    }
    pods, made = moved([quota, *workload("held", ["n1", "n1"], namespace="other")])
    assert pods & {"web-0", "web-1"}
    assert {skip.code for skip in made.skips if skip.pod.startswith("held")} == {Code.QUOTA}


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"]),
    st.sampled_from(
        ["0", "1n", "0.1m", "9E", "8Ei", "5P", "1e19", "9223372036854775807", "1Ei", "4.5e15", 7]
    ),
    max_size=3,
)
keys = st.sampled_from([HOSTNAME, ZONE, "", "a", "x" * 63, "example.com/k"])
texts = st.sampled_from(["", "a", "9" * 40, "-1", "é", "x y", "not-a-number", "0x10"])
requirements = st.fixed_dictionaries(
    {
        "key": keys,
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"]),
    },
    optional={"values": st.lists(texts, max_size=3)},
)
selectors: st.SearchStrategy[dict[str, Any] | None] = st.one_of(
    st.none(),
    st.just({}),
    st.just({"matchLabels": {"app": "web"}}),
    st.fixed_dictionaries({"matchExpressions": st.lists(requirements, max_size=2)}),
)
terms = st.fixed_dictionaries(
    {"topologyKey": keys, "labelSelector": selectors},
    optional={
        "namespaceSelector": selectors,
        "namespaces": st.lists(st.sampled_from(["default", "gone", "other"]), max_size=2),
        "matchLabelKeys": st.lists(keys, max_size=2),
        "mismatchLabelKeys": st.lists(keys, max_size=2),
    },
)
weights = st.sampled_from([1, 100])
pod_rules = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.lists(terms, max_size=2),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": weights, "podAffinityTerm": terms}), max_size=2
        ),
    },
)
node_terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(requirements, max_size=2),
        "matchFields": st.lists(requirements, max_size=1),
    },
)
node_rules = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(node_terms, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": weights, "preference": node_terms}), max_size=2
        ),
    },
)
spreads = st.fixed_dictionaries(
    {
        "maxSkew": st.sampled_from([1, 2**31 - 1]),
        "topologyKey": keys,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selectors,
    },
    optional={
        "minDomains": st.sampled_from([1, 2**31 - 1]),
        "matchLabelKeys": st.lists(keys, max_size=2),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
    },
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.fixed_dictionaries(
            {},
            optional={
                "nodeAffinity": node_rules,
                "podAffinity": pod_rules,
                "podAntiAffinity": pod_rules,
            },
        ),
        "topologySpreadConstraints": st.lists(spreads, max_size=2),
        "nodeSelector": st.dictionaries(keys, texts, max_size=2),
        "overhead": amounts,
        "resources": st.fixed_dictionaries({"requests": amounts}),
        "priority": st.sampled_from([-(2**31), 0, 2**31 - 1]),
        "terminationGracePeriodSeconds": st.sampled_from([0, 1, 2**63 - 1]),
        "tolerations": st.lists(
            st.fixed_dictionaries(
                {"key": keys, "operator": st.sampled_from(["", "Exists", "Equal", "Gt", "Lt"])},
                optional={"value": texts, "tolerationSeconds": st.just(-(2**63))},
            ),
            max_size=2,
        ),
    },
)


@settings(max_examples=50, deadline=None)
@given(
    specs,
    amounts,
    st.lists(st.sampled_from(["", "n1", "n1", "n2"]), min_size=1, max_size=3),
    st.sampled_from(["Deployment", "StatefulSet"]),
    st.sampled_from(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2027-01-14T08:00:00Z"]),
    st.dictionaries(keys, texts, max_size=2),
)
def test_no_pod_that_the_api_admits_ends_a_run(spec, asked, on, kind, created, labels):
    odd = workload(
        "odd", on, namespace="other", kind=kind, labels=labels, spec={**asking(asked), **spec}
    )
    for item in odd:
        item["metadata"]["creationTimestamp"] = created
    spaces = [
        {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name in ("default", "other")
    ]
    snapshot = snapshot_of([*NODES, *spaces, *CROWDED, *odd])
    assert (snapshot.requests >= 0).all()
    plan_of(snapshot, strategies=ALL)
