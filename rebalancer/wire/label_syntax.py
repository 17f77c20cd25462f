"""The syntax of label keys and values in Kubernetes.

Source: ``k8s.io/apimachinery/pkg/util/validation`` (``IsQualifiedName``, ``IsValidLabelValue``).
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z", re.ASCII)
_MAX_PREFIX = 253


def is_label_key(text: str) -> bool:
    """Return whether ``text`` is a valid label key: ``name`` or ``prefix.example/name``."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > _MAX_PREFIX or not _PREFIX.match(prefix)):
        return False
    return _NAME.match(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether ``text`` is a valid label value; it may be empty."""
    return not text or _NAME.match(text) is not None
