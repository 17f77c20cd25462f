"""Lists in the API server's protobuf form: split while they arrive, decoded in runs of whole items.

The wire form is the magic ``k8s`` and a zero byte, then a ``runtime.Unknown`` whose ``raw`` is the list
(``k8s.io/apimachinery/pkg/runtime/serializer/protobuf``). It costs the server and this program less than JSON.
"""

from __future__ import annotations

PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Content type of it all."""


class BrokenListError(ValueError):
    """The bytes are not a protobuf list, or the list is incomplete."""
