"""Volumes on nodes."""

from typing import Any


def attachment(node: str) -> dict[str, Any]:
    """A volume on a node, which the attach-detach controller has not detached yet."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "detaching"},
        "spec": {
            "attacher": "csi.example.com",
            "nodeName": node,
            "source": {"persistentVolumeName": "data"},
        },
    }
