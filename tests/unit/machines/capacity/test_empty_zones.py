"""Pods that wait for a zone without nodes: the zone is named, for pending pods and where pods keep their node."""

import pytest

from rebalancer.testing.snapshots import ZONE, node, spread, workload
from tests.support.worlds import require_nodes
from tests.unit.machines.capacity.conftest import group

NODES = [node("o1", "oslo"), node("r1", "riga")]


def claim_in(zone, key=ZONE):
    """Return a volume in a zone, and the claim that it is bound to."""
    asked = {"key": key, "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    bound = {"namespace": "default", "name": "data"}
    return [
        {
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {
                "claimRef": bound,
                "nodeAffinity": {"required": terms},
                "accessModes": ["ReadWriteOnce"],
            },
        },
        {
            "kind": "PersistentVolumeClaim",
            "metadata": bound,
            "spec": {"volumeName": "disk", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"},
        },
    ]


USES = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


CELL = "topology.disks.example/cell"


@pytest.mark.parametrize(
    ("cells", "is_zone"),
    [
        # Its nodes show what the label of a driver holds, whatever its name.
        (("oslo", "riga"), True),
        (("oslo", None), True),
        (("north", "north"), False),
        ((None, None), False),
    ],
)
def test_the_label_of_a_driver_holds_the_zone_if_it_does_on_the_nodes(machines, cells, is_zone):
    nodes = [
        node(f"{zone[0]}1", zone, labels={CELL: cell} if cell else {})
        for zone, cell in zip(("oslo", "riga"), cells, strict=True)
    ]
    pods = workload("till", ["o1", "r1", ""], spec=spread("till", hard=True), cpu="3")
    (pod,) = machines.look([*nodes, *claim_in("turku", CELL), *pods]).scale_out.pods
    assert ("turku has no node" in pod.message) is is_zone


@pytest.mark.parametrize(("zones", "lacks"), [((), []), (("oslo", "riga", "turku"), ["turku"])])
def test_a_zone_of_a_node_group_is_one_that_the_cluster_has(machines, zones, lacks):
    pods = workload("till", ["o1", "o1", "r1", "r1"], spec=spread("till", hard=True))
    policy = "strategies: {topology-spread: {}}\n"
    groups = [group("pool", "o1", "r1", zones=zones)]
    missing = machines.assess([*NODES, *pods], groups, policy).missing
    assert [name for one in missing for name in one.domains] == lacks


@pytest.mark.parametrize(
    ("spec", "others", "named"),
    [
        ({"nodeSelector": {ZONE: "turku"}}, [], "turku has no node"),
        (require_nodes(ZONE, "turku", "visby"), [], "turku, visby have no node"),
        (require_nodes(ZONE, "oslo", "turku"), [], ""),
        (USES, claim_in("turku"), "turku has no node"),
        (USES, claim_in("turku", "topology.ebs.csi.aws.com/zone"), "turku has no node"),
        (USES, claim_in("riga"), ""),
        (spread("till", hard=True, minDomains=3), [], "2 domains of minDomains 3 have nodes"),
        (
            spread("till", hard=True, minDomains=3),
            claim_in("turku"),
            "2 domains of minDomains 3 have nodes; turku has no node",
        ),
        (spread("till", hard=True), claim_in("turku"), "turku has no node"),
        (spread("till"), claim_in("turku"), ""),
        ({}, claim_in("turku"), ""),
    ],
)
def test_the_zone_that_a_pending_pod_waits_for_is_named(machines, spec, others, named):
    objects = [*NODES, *others, *workload("till", ["o1", "r1", ""], spec=spec, cpu="3")]
    (pod,) = machines.look(objects).scale_out.pods
    assert "0/2 nodes are available" in pod.message
    assert pod.message.partition("0/2")[0] == (f"{named}; " if named else "")


@pytest.mark.parametrize(
    ("pods", "more", "named"),
    [
        (["o1", "o1", "r1", "r1"], [], "2 domains of minDomains 3 have nodes; turku has no node"),
        # Where nothing is refused the zone is no reason.
        (["o1"], [node("o2", "oslo")], ""),
    ],
)
def test_the_zone_that_keeps_pods_on_their_node_is_named(machines, pods, more, named):
    rule = spread("till", hard=True, minDomains=3)
    objects = [*NODES, *more, *claim_in("turku"), *workload("till", pods, spec=rule)]
    policy = "protect: {singleReplicas: false}"
    judged = machines.judge(objects, policy=policy, has_provider=False)["o1"]
    refused = f"default/till-0: no node takes its replacement: {named}"
    assert (judged.message == refused) == bool(named)
    assert ("turku" in judged.message) == bool(named)
