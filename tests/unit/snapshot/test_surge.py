"""Which single replicas can be moved by a restart of their rollout, and what the new pods are like."""

import msgspec
import numpy as np
import pytest

from rebalancer.snapshot.owners import HASH, why_no_surge, with_restarts
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, workload
from rebalancer.wire import objects as o

ZONE = "topology.kubernetes.io/zone"


def deployment(**spec):
    return msgspec.convert({"kind": "Deployment", "spec": spec}, o.Workload)


def rolling(surge=None, unavailable=None):
    given = {"maxSurge": surge, "maxUnavailable": unavailable}
    of = {key: value for key, value in given.items() if value is not None}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": of}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        # One replica: 25 % rounds up to a surge of 1, and down to 0 unavailable.
        ({}, ""),
        (rolling(), ""),
        (rolling("25%", "25%"), ""),
        (rolling("1%", "99%"), ""),
        (rolling(1, 0), ""),
        (rolling("100%", "0%"), ""),
        (rolling(0, 1), "its maxSurge is 0"),
        (rolling("0%", 1), "its maxSurge is 0%"),
        (rolling(0, 0), "its maxSurge is 0"),
        (rolling(1, 1), "its maxUnavailable of 1 lets the old pod go first"),
        (rolling(1, "100%"), "its maxUnavailable of 100% lets the old pod go first"),
        (rolling("some", 0), "maxSurge some and maxUnavailable 0 are not understood"),
        ({"strategy": {"type": "Recreate"}}, "its strategy is Recreate"),
        ({"paused": True}, "it is paused"),
    ],
)
def test_a_deployment_of_one_replica_surges_as_its_strategy_says(spec, why):
    assert why_no_surge(deployment(replicas=1, **spec)) == why


def test_a_deployment_that_something_manages_is_left_to_it():
    managed = {"kind": "Tenant", "name": "one", "uid": "t", "controller": True}
    meta = {"metadata": {"ownerReferences": [managed]}}
    of = msgspec.convert({"kind": "Deployment", **meta}, o.Workload)
    assert why_no_surge(of) == "Tenant one manages it, and may undo a restart"


def single(name="web", *, kind="Deployment", change=None, spec=None, hashed=True):
    """One pod on n1, with the label that a Deployment's controller gives it."""
    objects = workload(name, ["n1"], kind=kind, spec=spec)
    for one in objects:
        if hashed and one["kind"] == "Pod":
            one["metadata"]["labels"] = {**one["metadata"]["labels"], HASH: "abc"}
        if hashed and one["kind"] == "ReplicaSet":
            template = one["spec"]["template"]["metadata"]
            template["labels"] = {**template["labels"], HASH: "abc"}
        if one["kind"] == kind and change is not None:
            change(one)
    return objects


def seen(objects, *more):
    nodes = [node("n1", "a"), node("n2", "b")]
    return with_restarts(snapshot_of([*nodes, *objects, *more]))


def of_pod(snapshot):
    return snapshot.classes[snapshot.pods.cls[0]]


def claimed(*modes):
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": list(modes), "volumeName": "pv"},
    }


WITH_CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def paused(one):
    one["spec"]["paused"] = True


def rolls_out(one):
    one["status"]["readyReplicas"] = one["status"]["updatedReplicas"] = 0


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        (single(), ""),
        (
            single(kind="StatefulSet"),
            "StatefulSet/default/web: the rolling update of a StatefulSet ends each pod before it creates the next",
        ),
        (single(kind="ReplicaSet"), "ReplicaSet/default/web is not a Deployment"),
        (single(change=paused), "Deployment/default/web: it is paused"),
        (single(hashed=False), "Deployment/default/web: its pods have no label pod-template-hash"),
        ([one for one in single() if one["kind"] != "Deployment"], "was not read"),
        ([*single(spec=WITH_CLAIM), claimed("ReadWriteOnce")], "its claim data is ReadWriteOnce"),
        (
            [*single(spec=WITH_CLAIM), claimed("ReadWriteOncePod")],
            "its claim data is ReadWriteOncePod",
        ),
        ([*single(spec=WITH_CLAIM), claimed("ReadWriteMany")], ""),
        ([*single(spec=WITH_CLAIM), claimed("ReadWriteOnce", "ReadOnlyMany")], ""),
        (single(spec=WITH_CLAIM), "its claim data is not known"),
    ],
)
def test_a_single_replica_restarts_or_says_why_it_cannot(objects, why):
    cls = of_pod(seen(objects))
    assert cls.restarts is (why == "")
    assert cls.cannot_surge.endswith(why)
    assert bool(cls.cannot_surge) is bool(why)


def test_two_replicas_and_daemon_pods_are_no_single_replicas():
    two = seen(workload("web", ["n1", "n2"]))
    assert not any(cls.restarts or cls.cannot_surge for cls in two.classes)


def test_an_unsettled_deployment_cannot_surge():
    objects = single(change=rolls_out)
    objects[-1]["status"]["conditions"][0]["status"] = "False"
    cls = of_pod(seen(objects))
    assert (cls.restarts, cls.cannot_surge) == (
        False,
        "Deployment/default/web: rollout: 0 of 1 updated",
    )
    assert cls.surges_once_settled


@pytest.mark.parametrize(
    "objects",
    [
        single(change=lambda one: (paused(one), rolls_out(one))),
        [*single(change=rolls_out, spec=WITH_CLAIM), claimed("ReadWriteOnce")],
        single(hashed=False, change=rolls_out),
    ],
)
def test_what_can_never_surge_is_not_waited_for_while_it_is_unsettled(objects):
    cls = of_pod(seen(objects))
    assert cls.cannot_surge
    assert not cls.restarts
    assert not cls.surges_once_settled


def test_the_new_pod_has_another_hash_wherever_its_rules_name_it():
    selector = {"matchLabels": {"app": "web"}}
    spec = {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
                "matchLabelKeys": [HASH],
            }
        ],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": ZONE, "labelSelector": selector, "matchLabelKeys": [HASH]}
                ]
            }
        },
    }
    snapshot = seen(single(spec=spec), disruption_budget("one", "web", allowed=0, healthy=1))
    old = of_pod(snapshot)
    new = snapshot.classes[old.replacement]
    assert (new.labels[HASH], new.replacement, new.restarts) == ("abcr", old.replacement, True)
    (spread,) = new.spec.topology_spread_constraints
    (term,) = new.spec.affinity.pod_anti_affinity.required
    for selector in (spread.label_selector, term.label_selector):
        assert [(e.key, e.values) for e in selector.match_expressions] == [(HASH, ("abcr",))]
    index = old.replacement
    assert np.array_equal(snapshot.requests[:, index], snapshot.requests[:, snapshot.pods.cls[0]])
    assert index in snapshot.budgets[0].classes
    assert with_restarts(snapshot) is snapshot
