"""A file without Namespaces: whom a namespaceSelector selects is known by names alone."""

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.snapshots import HOSTNAME, node, snapshot_of, workload
from rebalancer.wire import objects as o

UNREAD = ("Namespace: none in the file",)
NAMED = {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}


def apart(selector: dict[str, Any] | None, how: str) -> dict[str, Any]:
    term: dict[str, Any] = {"topologyKey": HOSTNAME, "labelSelector": {}}
    if selector is not None:
        term["namespaceSelector"] = selector
    if how.startswith("preferred"):
        return {"podAntiAffinity": {how: [{"weight": 1, "podAffinityTerm": term}]}}
    return {"podAntiAffinity": {how: [term]}}


@pytest.mark.parametrize(
    "how",
    [
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    ],
)
@pytest.mark.parametrize(
    ("selector", "missing", "known"),
    [
        (None, UNREAD, True),
        ({}, UNREAD, True),
        (NAMED, UNREAD, True),
        ({"matchLabels": {"team": "b"}}, UNREAD, False),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, UNREAD, False),
        ({"matchLabels": {"team": "b"}}, (), True),
    ],
)
def test_a_pod_that_selects_namespaces_by_labels_is_not_predicted_without_them(
    how, selector, missing, known
):
    web = workload("web", ["a"], spec={"affinity": apart(selector, how)})
    snapshot = replace(snapshot_of([node("a"), node("b"), *web]), missing=missing)
    reasons = SchedulerModel(snapshot, SchedulerProfile.for_version((1, 36))).find_unmodelled(
        int(snapshot.pods.cls[0])
    )
    expected = () if known else ("it selects namespaces by labels, and no Namespace was read",)
    assert reasons == expected


def test_a_namespace_that_was_not_read_has_its_name():
    web, shop = workload("web", ["a"]), workload("till", ["b"], namespace="shop")
    snapshot = replace(snapshot_of([node("a"), node("b"), node("c"), *web, *shop]), missing=UNREAD)
    rows = {snapshot.pod_ref(row): row for row in range(2)}
    cls = int(snapshot.pods.cls[rows["default/web-0"]])
    term = o.PodAffinityTerm(
        label_selector=o.LabelSelector(),
        namespace_selector=o.LabelSelector(match_labels={"kubernetes.io/metadata.name": "shop"}),
    )
    assert snapshot.affinity_classes(cls, term).tolist() == [snapshot.pods.cls[rows["shop/till-0"]]]
