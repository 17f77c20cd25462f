"""What is left out of snapshot files, and how they come to be."""

import io
import json

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.snapshot.store import SnapshotWriter, open_for_writing, slim
from rebalancer.wire.kinds import WORKLOADS

HIDDEN = {"any": ["hidden"]}
CONTAINER = {
    "name": "main",
    "image": "web:1",
    "ports": [{"containerPort": 80}],
    "env": [{"name": "K", "value": "hidden"}],
    "envFrom": [HIDDEN],
    "command": ["sh", "-c", "hidden"],
    "args": ["--token=hidden"],
    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "hidden"}]}},
    "readinessProbe": {"exec": {"command": ["hidden"]}},
    "startupProbe": HIDDEN,
    "lifecycle": {"preStop": {"exec": {"command": ["hidden"]}}},
    "whatTheNextVersionAdds": HIDDEN,
}
KEPT = {"name": "main", "image": "web:1", "ports": [{"containerPort": 80}]}
META = {
    "name": "a",
    "managedFields": [HIDDEN],
    "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": "hidden",
        "kubernetes.io/change-cause": "hidden",
        "vault.example/token": "hidden",
        "rebalancer/evict": "false",
    },
}
KEPT_META = {"name": "a", "annotations": {"rebalancer/evict": "false"}}
TEMPLATE = {
    "metadata": META,
    "spec": {
        "containers": [CONTAINER, CONTAINER],
        "initContainers": [CONTAINER],
        "ephemeralContainers": [CONTAINER | {"targetContainerName": "main"}],
        "volumes": [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": META}}},
            {"name": "c", "csi": {"driver": "d", "volumeAttributes": HIDDEN}},
            {"name": "f", "flexVolume": {"driver": "d", "options": HIDDEN}},
            {"name": "h", "hostPath": {"path": "/data"}},
        ],
        "nodeName": "n1",
    },
}
KEPT_TEMPLATE = {
    "metadata": KEPT_META,
    "spec": {
        "containers": [KEPT, KEPT],
        "initContainers": [KEPT],
        "ephemeralContainers": [KEPT | {"targetContainerName": "main"}],
        "volumes": [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": KEPT_META}}},
            {"name": "c"},
            {"name": "f"},
            {"name": "h", "hostPath": {"path": "/data"}},
        ],
        "nodeName": "n1",
    },
}
ENDED = {"terminated": {"exitCode": 3, "reason": "Error", "message": "hidden"}}
STATUS = {"name": "main", "state": ENDED, "lastState": ENDED, "restartCount": 2}
WAITING = {"name": "main", "state": {"waiting": {"reason": "BackOff", "message": "hidden"}}}
KEPT_STATUSES = [
    {
        "name": "main",
        "state": {"terminated": {"exitCode": 3, "reason": "Error"}},
        "restartCount": 2,
    },
    {"name": "main", "state": {"waiting": {"reason": "BackOff"}}},
]
OF_STATUS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@pytest.mark.parametrize(
    ("kind", "item", "expected"),
    [
        (
            "Pod",
            TEMPLATE
            | {"status": {"phase": "Running"} | {key: [STATUS, WAITING] for key in OF_STATUS}},
            KEPT_TEMPLATE
            | {"status": {"phase": "Running"} | dict.fromkeys(OF_STATUS, KEPT_STATUSES)},
        ),
        *(
            (
                kind,
                {"metadata": META, "spec": {"replicas": 2, "template": TEMPLATE}},
                {"metadata": KEPT_META, "spec": {"replicas": 2, "template": KEPT_TEMPLATE}},
            )
            for kind in WORKLOADS
        ),
        (
            "StatefulSet",
            {"metadata": META, "spec": {"volumeClaimTemplates": [{"metadata": META}]}},
            {"metadata": KEPT_META, "spec": {"volumeClaimTemplates": [{"metadata": KEPT_META}]}},
        ),
        (
            "PodTemplate",
            {"metadata": META, "template": TEMPLATE},
            {"metadata": KEPT_META, "template": KEPT_TEMPLATE},
        ),
        *((kind, {"metadata": META}, {"metadata": KEPT_META}) for kind in ("Node", "Service")),
        (
            "StorageClass",
            {
                "metadata": META,
                "provisioner": "d",
                "parameters": {"restuserkey": "hidden"},
                "mountOptions": ["password=hidden"],
            },
            {"metadata": KEPT_META, "provisioner": "d"},
        ),
        (
            "PersistentVolume",
            {
                "metadata": META,
                "spec": {
                    "storageClassName": "fast",
                    "mountOptions": ["password=hidden"],
                    "flexVolume": {"options": HIDDEN},
                    "nfs": {"path": "hidden"},
                    "csi": {"driver": "d", "volumeHandle": "v", "volumeAttributes": HIDDEN},
                },
            },
            {
                "metadata": KEPT_META,
                "spec": {"storageClassName": "fast", "csi": {"driver": "d", "volumeHandle": "v"}},
            },
        ),
        (
            "Event",
            {"metadata": META, "reason": "Unhealthy", "note": "hidden", "message": "hidden"},
            {"metadata": KEPT_META, "reason": "Unhealthy"},
        ),
    ],
)
def test_what_may_be_secret_and_what_is_only_bulk_is_left_out(kind, item, expected):
    text = slim(kind, json.dumps(item).encode())
    assert b"hidden" not in text
    kept = json.loads(text)
    assert list(kept)[:2] == ["kind", "apiVersion"]
    assert {name: kept[name] for name in item if name in kept} == expected
    line = slim(kind, json.dumps(item, indent=4).encode())
    assert b"\n" not in line
    assert json.loads(line) == kept


def test_what_is_absent_or_null_stays_so():
    specs: list[dict[str, object]] = [
        {},
        {"containers": None},
        {"containers": []},
        {"volumes": None},
    ]
    for spec in specs:
        item = {"spec": spec, "status": {"containerStatuses": [{"state": None}]}, "metadata": None}
        assert json.loads(slim("Pod", json.dumps(item).encode())) == {
            "kind": "Pod",
            "apiVersion": "v1",
            **item,
        }
    assert json.loads(slim("Pod", b'{"spec":null,"metadata":{}}')) == {
        "kind": "Pod",
        "apiVersion": "v1",
        "spec": None,
        "metadata": {},
    }


def test_a_writer_that_is_left_early_writes_no_end():
    stream = io.BytesIO()
    with SnapshotWriter(stream) as writer:
        writer.write_json("Pod", [b'{"metadata":{"name":"a"}}'])
    assert b"PK\x05\x06" not in stream.getvalue()


def test_an_output_that_is_full_is_named():
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    with (
        pytest.raises(PolicyError, match="standard output: cannot be written: No space left"),
        open_for_writing(Full()) as stream,
        SnapshotWriter(stream) as writer,
    ):
        writer.write_json("Pod", [])
