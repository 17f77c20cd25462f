"""A zone that storage names and that has no node: no rule over zones is said to hold there without a word."""

import pytest

from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.support.worlds import require_nodes
from tests.unit.planner.conftest import plan_of

NODES = [node("a1", "a"), node("b1", "b")]


def volume(zone, key=ZONE):
    asked = {"key": key, "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{zone}"},
        "spec": {"nodeAffinity": {"required": terms}},
    }


def storage_class(*zones):
    asked = {"key": "topology.gke.io/zone", "values": list(zones)}
    return {
        "kind": "StorageClass",
        "metadata": {"name": "zonal"},
        "provisioner": "x",
        "allowedTopologies": [{"matchLabelExpressions": [asked]}],
    }


def web(**more):
    return workload("web", ["a1", "b1"], spec={**spread("web", hard=True), **more})


LACKS = "Deployment/default/web over topology.kubernetes.io/zone (hard): a 1, b 1: c has no node"


@pytest.mark.parametrize(
    ("objects", "cannot"),
    [
        (web(), []),
        ([volume("a"), *web()], []),
        ([volume("c"), *web()], [LACKS]),
        ([volume("c", "topology.ebs.csi.aws.com/zone"), *web()], [LACKS]),
        ([storage_class("a", "b", "c"), *web()], [LACKS]),
        (
            [
                node("c1", "c"),
                volume("c"),
                *workload("web", ["a1", "b1", "c1"], spec=spread("web", hard=True)),
            ],
            [],
        ),
        # Its pods want nothing of that zone.
        ([volume("c"), *web(nodeSelector={ZONE: "a"})], []),
        ([volume("c"), *web(**require_nodes(ZONE, "a", "b"))], []),
        ([volume("c"), *web(**require_nodes(ZONE, "c", operator="NotIn"))], []),
        ([volume("c"), *web(**require_nodes(ZONE, "b", "c"))], None),
        # Rules over other domains, and workloads without any.
        (
            [
                volume("c"),
                *workload("web", ["a1", "b1"], spec=spread("web", "kubernetes.io/hostname")),
            ],
            [],
        ),
        ([volume("c"), *workload("web", ["a1", "b1"])], []),
    ],
)
def test_a_zone_without_nodes_is_named_where_a_rule_spreads_over_it(objects, cannot):
    made = plan_of([*NODES, *objects], strategies=["topology-spread"])
    lacking = list(made.after["topology-spread"].unsatisfiable)
    if cannot is None:
        assert any("c has no node" in text for text in lacking)
        return
    assert lacking == cannot
    assert ("every rule holds" in made.stopped) == (not cannot)


def test_too_few_domains_are_the_reason_and_no_mark_is_recommended():
    rule = spread("web", hard=True, minDomains=3)
    made = plan_of(
        [*NODES, *workload("web", ["a1", "a1", "b1", "b1"], spec=rule)],
        strategies=["topology-spread"],
    )
    (unmet,) = made.unmet
    assert dict(unmet.codes) == {"Unsatisfiable": 0}
    assert unmet.why == "2 domains of minDomains 3 have nodes"
    made = plan_of(
        [*NODES, volume("c"), *workload("web", ["a1", "a1", "b1", "b1"], spec=rule)],
        strategies=["topology-spread"],
    )
    (unmet,) = made.unmet
    assert unmet.why == "2 domains of minDomains 3 have nodes, c has none"
