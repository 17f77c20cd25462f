"""Pods in protobuf become the same records as in JSON."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.wire import objects as o
from rebalancer.wire.pods import NO_ANNOTATIONS, RUNNING, PodRecord, decode_page
from rebalancer.wire.protobuf import BrokenListError
from rebalancer.wire.protobuf.frames import ListFrames
from rebalancer.wire.protobuf.pods import pod_records
from rebalancer.wire.protobuf.schema import message
from rebalancer.wire.times import rfc3339
from tests.unit.wire.protobuf_bytes import encoded, entries, field, listed, pod


def records(*items: bytes, unread: bytes = b"") -> list[PodRecord]:
    return [
        record
        for run in ListFrames().feed(listed(list(items), unread=unread))
        for record in pod_records(run)
    ]


def from_json(**pod_fields: Any) -> PodRecord:
    pods, _ = decode_page(json.dumps({"items": [pod_fields]}).encode())
    return next(pods)


def selector(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


FULL_JSON: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "default",
        "uid": "uid-a",
        "creationTimestamp": "2026-09-21T13:33:20Z",
        "labels": {"app": "web", "tier": "front"},
        "annotations": {"rebalancer/evict": "true", "made-by": "us"},
        "ownerReferences": [
            {
                "kind": "ReplicaSet",
                "apiVersion": "apps/v1",
                "name": "web-1",
                "uid": "rs-1",
                "controller": True,
            }
        ],
    },
    "spec": {
        "nodeName": "n1",
        "schedulerName": "default-scheduler",
        "priority": 5,
        "priorityClassName": "high",
        "hostNetwork": True,
        "hostUsers": False,
        "os": {"name": "windows"},
        "terminationGracePeriodSeconds": 30,
        "restartPolicy": "OnFailure",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": selector("web"),
                "minDomains": 3,
            }
        ],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": selector("web"), "topologyKey": "host"}
                ]
            }
        },
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "ports": [{"hostPort": 80, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
            }
        ],
        "initContainers": [
            {
                "name": "side",
                "image": "mesh",
                "restartPolicy": "Always",
                "restartPolicyRules": [{"action": "RestartAllContainers"}],
                "resources": {},
            }
        ],
        "overhead": {"cpu": "10m"},
        "schedulingGates": [{"name": "wait"}],
        "schedulingGroup": {"podGroupName": "train-0"},
        "evictionResponders": [{"name": "acme.example/mover", "priority": 10000}],
        "workloadRef": {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "1"},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            {"name": "own", "ephemeral": {}},
            {"name": "img", "image": {"reference": "models:1"}},
            {"name": "gce", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"name": "aws", "awsElasticBlockStore": {"volumeID": "v"}},
            {"name": "iscsi", "iscsi": {"iqn": "i", "readOnly": True}},
            {"name": "rbd", "rbd": {"monitors": ["m1", "m2"], "image": "i", "pool": "p"}},
            {"name": "azure", "azureDisk": {"diskURI": "u"}},
            {"name": "cinder", "cinder": {"volumeID": "v"}},
            {"name": "vsphere", "vsphereVolume": {"volumePath": "p"}},
            {"name": "portworx", "portworxVolume": {"volumeID": "v"}},
            {"name": "config", "configMap": {"name": "x"}},
        ],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-09-21T13:34:20Z"}
        ],
    },
}


def full_protobuf() -> bytes:
    spec = FULL_JSON["spec"]
    parts: dict[str, Any] = {
        "tolerations": [encoded("Toleration", **t) for t in spec["tolerations"]],
        "topologySpreadConstraints": [
            encoded("TopologySpreadConstraint", **c) for c in spec["topologySpreadConstraints"]
        ],
        "affinity": encoded("Affinity", **spec["affinity"]),
        "nodeSelector": entries(spec["nodeSelector"]),
        "containers": [
            {
                "name": "main",
                "image": "nginx",
                "ports": [encoded("ContainerPort", hostPort=80, protocol="TCP")],
                "resources": encoded(
                    "ResourceRequirements",
                    requests={
                        "cpu": message("Quantity")(string="100m"),
                        "memory": message("Quantity")(string="1Gi"),
                    },
                ),
            }
        ],
        "initContainers": [
            {
                "name": "side",
                "image": "mesh",
                "restartPolicy": "Always",
                "restartPolicyRules": [encoded("RestartRule", action="RestartAllContainers")],
                "resources": b"",
            }
        ],
        "overhead": [field(1, b"cpu") + field(2, field(1, b"10m"))],
        "schedulingGates": [field(1, b"wait")],
        "volumes": [
            {
                "name": "data",
                "volumeSource": {"persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
            },
            {"name": "scratch", "volumeSource": {"emptyDir": {}}},
            {
                "name": "shm",
                "volumeSource": {"emptyDir": {"medium": "Memory", "sizeLimit": {"string": "64Mi"}}},
            },
            {"name": "own", "volumeSource": {"ephemeral": b""}},
            {"name": "img", "volumeSource": {"image": {"reference": "models:1"}}},
            {
                "name": "gce",
                "volumeSource": {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            },
            {"name": "aws", "volumeSource": {"awsElasticBlockStore": {"volumeID": "v"}}},
            {"name": "iscsi", "volumeSource": {"iscsi": {"iqn": "i", "readOnly": True}}},
            {
                "name": "rbd",
                "volumeSource": {"rbd": {"monitors": ["m1", "m2"], "image": "i", "pool": "p"}},
            },
            {"name": "azure", "volumeSource": {"azureDisk": {"diskURI": "u"}}},
            {"name": "cinder", "volumeSource": {"cinder": {"volumeID": "v"}}},
            {"name": "vsphere", "volumeSource": {"vsphereVolume": {"volumePath": "p"}}},
            {"name": "portworx", "volumeSource": {"portworxVolume": {"volumeID": "v"}}},
            {"name": "config", "volumeSource": {}},
        ],
    }
    scalars = (
        "priority",
        "priorityClassName",
        "hostNetwork",
        "restartPolicy",
        "hostUsers",
        "os",
        "terminationGracePeriodSeconds",
        "schedulingGroup",
        "evictionResponders",
        "workloadRef",
    )
    meta = FULL_JSON["metadata"]
    return pod(
        "a",
        spec={**{name: spec[name] for name in scalars}, **parts},
        labels=meta["labels"],
        annotations=meta["annotations"],
        ownerReferences=meta["ownerReferences"],
        creationTimestamp={"seconds": 1_789_997_600},
    )


def test_a_full_pod_is_the_same_from_protobuf_and_from_json():
    mine, theirs = records(full_protobuf())[0], from_json(**FULL_JSON)
    decoded = {"key", "spec", "ready_since"}
    assert {n: v for n, v in mine._asdict().items() if n not in decoded} == {
        n: v for n, v in theirs._asdict().items() if n not in decoded
    }
    assert mine.ready_since == 1_790_000_060.0
    (labels, spec), (labels_there, spec_there) = mine.spec(), theirs.spec()
    assert labels == labels_there
    assert spec == spec_there


def test_fields_that_are_not_declared_change_nothing():
    plain, more = records(pod())[0], records(pod(), unread=field(99, b"x" * 500))[0]
    assert plain.key == more.key
    assert plain.name == more.name


def test_pods_that_differ_in_name_and_node_only_are_of_one_class():
    first, second = records(pod("a", node="n1"), pod("b", node="n2"))
    assert first.key == second.key


@pytest.mark.parametrize(
    "other",
    [
        {"spec": {"affinity": b"\x0a\x00"}},
        {"spec": {"tolerations": [b"\x0a\x01k"]}},
        {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
        {"spec": {"workloadRef": {"name": "w"}}},
        {"spec": {"evictionResponders": [{"name": "acme.example/mover", "priority": 1}]}},
        {"spec": {"containers": [{"name": "main"}]}},
        {"labels": {"app": "b"}},
        {"ownerReferences": [{"kind": "ReplicaSet", "uid": "rs-2", "controller": True}]},
    ],
)
def test_pods_that_differ_in_what_matters_are_of_two_classes(other):
    first, second = records(pod("a"), pod("b", **other))
    assert first.key != second.key


def with_parts(name: str, *, env: bytes, volume: bytes, source: bytes) -> bytes:
    """A pod whose container has something undeclared in it, and a volume of this name and source."""
    container = message("Container")(name="main", image="nginx").SerializeToString() + field(7, env)
    return pod(name) + field(2, field(2, container) + field(1, field(1, volume) + field(2, source)))


def test_pods_that_differ_in_environment_and_names_of_volumes_are_of_one_class():
    projected = field(26, b"token")
    first, second = records(
        with_parts("a", env=b"x=1", volume=b"kube-api-access-4xk2p", source=projected),
        with_parts("b", env=b"x=2", volume=b"kube-api-access-9qzlv", source=projected),
    )
    assert first.key == second.key
    assert first.node == second.node == "n1"
    assert first.spec()[1].volumes == ()
    assert [one.image for one in first.spec()[1].containers] == ["nginx"]


def test_pods_that_differ_in_their_claims_are_of_two_classes_and_keep_them():
    first, second = records(
        *(
            with_parts(
                name,
                env=b"",
                volume=b"data",
                source=encoded("VolumeSource", persistentVolumeClaim={"claimName": f"data-{name}"}),
            )
            for name in ("a", "b")
        )
    )
    assert first.key != second.key
    (volume,) = second.spec()[1].volumes or ()
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.claim_name == "data-b"


def test_pods_that_differ_in_the_limit_of_an_empty_dir_are_of_two_classes():
    first, second = records(
        *(
            with_parts(
                name,
                env=b"",
                volume=b"scratch",
                source=encoded("VolumeSource", emptyDir={"sizeLimit": {"string": limit}}),
            )
            for name, limit in (("a", "1Gi"), ("b", "2Gi"))
        )
    )
    assert first.key != second.key


def test_labels_that_binding_copied_from_the_node_do_not_make_a_class():
    zone = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}
    first, second = records(pod("a", labels={"app": "x"}), pod("b", labels={"app": "x", **zone}))
    assert first.key == second.key
    assert second.spec()[0] == {"app": "x"}


def _pinned(name: str, node: str = "") -> bytes:
    field_of_name = {"key": "metadata.name", "operator": "In", "values": [name]}
    term = {"nodeSelectorTerms": [{"matchFields": [field_of_name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": term}
    owner = {"kind": "DaemonSet", "name": "d", "uid": "ds", "controller": True}
    affinity = encoded("Affinity", nodeAffinity=required)
    return pod(name, spec={"affinity": affinity, "nodeName": node}, ownerReferences=[owner])


def test_pods_of_one_daemon_set_are_of_one_class_although_each_names_its_node():
    first, second = records(_pinned("a", "a"), _pinned("b", "b"))
    assert first.key == second.key
    assert first.spec()[1].affinity is None


def test_a_daemon_set_s_pod_that_waits_keeps_its_node():
    first, second = records(_pinned("a"), _pinned("b"))
    assert first.key != second.key
    assert first.spec()[1].affinity is not None


def test_only_annotations_that_matter_are_taken():
    long_name = "example.com/" + "x" * 130
    (plain,) = records(pod(annotations={"a": "b", long_name: "c", "": ""}))
    assert plain.annotations is NO_ANNOTATIONS
    (record,) = records(pod(annotations={"karpenter.sh/do-not-disrupt": "true", "a": "b"}))
    assert record.annotations.do_not_disrupt == "true"


def test_a_terminating_pod_is_one_although_its_time_is_the_zero_time():
    assert records(pod(deletionTimestamp={"seconds": 5}))[0].deleting
    assert not records(pod())[0].deleting


def test_absent_fields_have_the_defaults_of_json():
    bare = encoded("Pod", metadata={"name": "a", "namespace": "default"})
    (mine,) = records(bare)
    theirs = from_json(metadata={"name": "a", "namespace": "default"})
    assert mine.spec() == theirs.spec()
    assert mine.spec()[1] == o.SchedulingSpec(init_containers=(), volumes=())


def test_bytes_that_are_no_pods_are_said_to_be_none():
    with pytest.raises(BrokenListError, match="no pods"):
        list(pod_records(field(2, b"\x0a\xff\xff\x01")))


def test_text_that_is_no_utf_8_is_replaced_as_in_json():
    hostile = {"name": "main", "image": "a"}
    whole = pod("a", spec={"containers": [hostile]}).replace(field(2, b"a"), field(2, b"\xff"))
    (record,) = records(whole)
    _, spec = record.spec()
    assert spec.containers[0].image == "\ufffd"


def test_a_ready_container_that_was_never_restarted_says_nothing():
    (mine,) = records(pod())
    assert mine.state is RUNNING
    done = {"ready": True, "state": {"terminated": {"reason": "Completed"}}}
    record = from_json(status={"phase": "Running", "initContainerStatuses": [done]})
    assert record.state is RUNNING


_TEXTS = st.sampled_from(["", "Error", "CrashLoopBackOff", "\u00fc"])
_STATES = st.one_of(
    st.none(),
    st.just({"running": {"startedAt": "2026-09-21T13:33:20Z"}}),
    st.builds(lambda reason: {"waiting": {"reason": reason, "message": "m"}}, _TEXTS),
    st.builds(
        lambda reason, code: {"terminated": {"reason": reason, "exitCode": code}},
        _TEXTS,
        st.integers(-(2**31), 2**31 - 1),
    ),
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"ready": st.booleans(), "restartCount": st.integers(0, 3), "state": _STATES}
    ),
    max_size=2,
)
_CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "PodScheduled", "Bad"]),
            "status": st.sampled_from(["True", "False"]),
            "reason": _TEXTS,
            "lastTransitionTime": st.sampled_from([None, 1_790_000_060]),
        }
    ),
    max_size=3,
)


@given(
    st.fixed_dictionaries(
        {
            "phase": st.sampled_from(["Running", "Pending", "Failed"]),
            "reason": _TEXTS,
            "nominatedNodeName": st.sampled_from(["", "n1"]),
            "conditions": _CONDITIONS,
            "containerStatuses": _CONTAINERS,
            "initContainerStatuses": _CONTAINERS,
            "ephemeralContainerStatuses": _CONTAINERS,
        }
    )
)
def test_how_a_pod_fares_is_the_same_in_both_forms(status):
    meta = {"name": "a", "namespace": "default", "uid": "uid-a"}
    timed = [
        {
            **each,
            "lastTransitionTime": each["lastTransitionTime"]
            and rfc3339(each["lastTransitionTime"]),
        }
        for each in status["conditions"]
    ]
    theirs = from_json(metadata=meta, status={**status, "conditions": timed})
    (mine,) = records(encoded("Pod", metadata=meta, status=_in_protobuf(status)))
    assert mine.state == theirs.state
    assert (mine.ready, mine.ready_since) == (theirs.ready, theirs.ready_since)


def _in_protobuf(status: dict[str, Any]) -> dict[str, Any]:
    """The fields that are declared; times as messages, and what is absent left out."""
    lists = [name for name in status if name.endswith("Statuses")]
    return {
        **{name: [_container(each) for each in status[name]] for name in lists},
        "phase": status["phase"],
        "reason": status["reason"],
        "nominatedNodeName": status["nominatedNodeName"],
        "conditions": [
            {
                **{key: each[key] for key in ("type", "status", "reason")},
                **(
                    {"lastTransitionTime": {"seconds": at}}
                    if (at := each["lastTransitionTime"])
                    else {}
                ),
            }
            for each in status["conditions"]
        ],
    }


def _container(given: dict[str, Any]) -> dict[str, Any]:
    state = given["state"] or {}
    kept = {
        kind: {key: state[kind][key] for key in ("reason", "exitCode") if key in state[kind]}
        for kind in ("waiting", "terminated")
        if kind in state
    }
    return (
        {**given, "state": kept}
        if given["state"]
        else {k: given[k] for k in ("ready", "restartCount")}
    )


def test_annotations_that_are_not_read_take_no_memory():
    """A tenant may write 256 KiB of them on each pod."""
    items = [pod(f"p{number}", annotations={"bulk": "x" * 250_000}) for number in range(40)]
    body = listed(items)
    tracemalloc.start()
    try:
        kept = [record for run in ListFrames().feed(body) for record in pod_records(run)]
        assert tracemalloc.get_traced_memory()[0] < len(body) / 10
    finally:
        tracemalloc.stop()
    assert len(kept) == 40
