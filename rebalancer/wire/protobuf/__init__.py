"""Lists as the API server sends them in protobuf: cut while they arrive, decoded in runs of whole items.

The wire form is the magic ``k8s`` and a zero byte, then a ``runtime.Unknown`` whose ``raw`` is the list
(``k8s.io/apimachinery/pkg/runtime/serializer/protobuf``). It takes the server and us less work than JSON.
"""

from __future__ import annotations

PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Content type of it all."""


class BrokenListError(ValueError):
    """The bytes are no list in protobuf, or not a whole one."""
