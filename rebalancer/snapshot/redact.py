"""Replace the names in objects by pseudonyms: the HMAC of the name with a key that only the user has.

The same name has the same pseudonym in all objects and snapshots, so that owners, selectors, volumes and images still
match and plans stay the same; without the key a name can be neither read nor guessed. All text is redacted, except
for what is listed here: kinds, phases and other enumerated values of the API, numbers, quantities and times, keys of
labels, annotations and taints, and names that exist in every cluster.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from rebalancer.base.errors import PolicyError

MIN_KEY = 16
"""Bytes of a key, at least."""

_LENGTH = 13
"""Characters of a pseudonym after its first letter, 5 bits each: two of a million names are equal once in 70 million keys."""
_CACHE = 1 << 17


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENUMERATED = _words(
    "accessModes action apiGroup apiVersion architecture disruptionMode driver effect externalTrafficPolicy imagePullPolicy key kind kubeletVersion matchLabelKeys maxSurge"
    " maxUnavailable medium minAvailable mismatchLabelKeys nodeAffinityPolicy nodeTaintsPolicy operatingSystem operator"
    " persistentVolumeReclaimPolicy phase podReplacementPolicy preemptionPolicy protocol provisioner provisioningStrategy qosClass reclaimPolicy"
    " resourceVersion restartPolicy scopeName scopes status topologyKey topologyKeys type uid unhealthyPodEvictionPolicy"
    " volumeBindingMode volumeMode whenUnsatisfiable"
)
"""Fields whose text the API or a public program defines."""
_DROPPED = _words(
    "addresses args bootID command containerID data env envFrom imageID lifecycle livenessProbe machineID managedFields message"
    " mountOptions note parameters podIP podIPs readinessProbe securityContext selfLink startupProbe systemUUID volumeAttributes"
)
"""Fields that nothing reads and that are longer than they are useful."""
_EVERYWHERE = _words(
    "default kube-system kube-public kube-node-lease default-scheduler system-cluster-critical system-node-critical 0.0.0.0"
    " 127.0.0.1 :: linux windows"
)
"""Names that every cluster has."""
_PUBLIC_LABELS = _words(
    "kubernetes.io/os kubernetes.io/arch beta.kubernetes.io/os beta.kubernetes.io/arch node.kubernetes.io/instance-type"
    " beta.kubernetes.io/instance-type karpenter.sh/capacity-type eks.amazonaws.com/capacityType kubernetes.io/config.source"
    " gang.scheduling.koordinator.sh/match-policy pod-group.scheduling.sigs.k8s.io/match-policy"
    " leaderworkerset.sigs.k8s.io/exclusive-topology alpha.jobset.sigs.k8s.io/exclusive-topology"
)
"""Labels and annotations whose values are no names of the user."""
_PUBLIC_DOMAINS = (
    "kubernetes.io",
    "k8s.io",
    "karpenter.sh",
    "volcano.sh",
    "koordinator.sh",
    "pod-group-name",
)
"""Of annotations whose values say what a pod may do, or of which gang it is; KAI's has no domain."""
_OURS = "rebalancer/"
_ORDINAL = re.compile(r"(.+)(-\d{1,6})", re.ASCII)
"""As at the end of the names of StatefulSets' pods, whose order counts; it stays."""
_ATTACHED = re.compile(r"(kubernetes\.io/csi/[^^]+\^)(.+)", re.ASCII)
"""A volume of a node's status, by its driver."""
_PLAIN = re.compile(
    r"-?\d+(\.\d+)?(e-?\d+|[EPTGMk]i?|[mnu]|Ki|%|[smhd])?|true|false|now|(true|false) (for|until) \S+"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    re.ASCII,
)
"""Numbers, quantities, shares, durations, times, booleans."""
_REASON = re.compile(r"[A-Z][A-Za-z]{1,60}", re.ASCII)


class Redactor:
    """Redacts objects with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.pseudonym = lru_cache(_CACHE)(self._pseudonym)

    def __repr__(self) -> str:
        return "Redactor(...)"

    @classmethod
    def of_file(cls, path: str) -> Redactor:
        """Return the redactor with the key in a file; trailing white space is ignored.

        Raises:
            PolicyError: the file cannot be read, or the key is too short to be one.
        """
        try:
            key = Path(path).read_bytes().rstrip()
        except OSError as error:
            raise PolicyError([f"{path}: cannot be read: {error.strerror or error}"]) from None
        if len(key) < MIN_KEY:
            raise PolicyError(
                [f"{path}: a key has {MIN_KEY} bytes or more; make one: openssl rand -hex 32"]
            )
        return cls(key)

    def _pseudonym(self, name: str) -> str:
        """Return the pseudonym of a name: a valid object name and label value; "" for ""."""
        if not name or name in _EVERYWHERE or _PLAIN.fullmatch(name):
            return name
        if match := _ORDINAL.fullmatch(name):
            return self.pseudonym(match[1]) + match[2]
        if match := _ATTACHED.fullmatch(name):
            return match[1] + self.pseudonym(match[2])
        return self._hash(name)

    def _hash(self, name: str) -> str:
        digest = hmac.new(self._key, name.encode(), hashlib.sha256).digest()
        return "x" + base64.b32hexencode(digest).decode()[:_LENGTH].lower()

    def redact(self, kind: str, item: bytes | Raw) -> bytes:
        """Return an object in JSON without its names."""
        fields = msgspec.json.decode(item)
        redacted = self._fields(fields)
        meta, given = redacted.get("metadata"), fields.get("metadata")
        if isinstance(meta, dict) and isinstance(meta.get("name"), str):
            meta["name"] = self._object_name(kind, given)
        return msgspec.json.encode(redacted)

    def _object_name(self, kind: str, meta: Mapping[str, Any]) -> str:
        """Return the pseudonym of an object's name."""
        name: str = meta["name"]
        owner: Mapping[str, Any] = next(
            (one for one in meta.get("ownerReferences") or () if one.get("controller")), {}
        )
        prefix = f"{owner.get('name')}-"
        if (
            kind == "PersistentVolumeClaim"
            and owner.get("kind") == "Pod"
            and name.startswith(prefix)
        ):
            # The claim of an ephemeral volume: POD-VOLUME.
            return f"{self.pseudonym(prefix[:-1])}-{self.pseudonym(name[len(prefix) :])}"
        return self.pseudonym(name)

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: self._field(key, value) for key, value in fields.items() if key not in _DROPPED
        }

    def _field(self, key: str, value: Any) -> Any:
        if key == "annotations" and isinstance(value, dict):
            return self._annotations(value)
        if key in ("labels", "matchLabels", "nodeSelector") and isinstance(value, dict):
            return {label: self._label(label, text) for label, text in value.items()}
        if key in ("hard", "used") and isinstance(value, dict):
            # Quotas of a storage class have its name in their keys.
            return {
                of: self._value(number)
                for of, number in value.items()
                if ".storageclass." not in of
            }
        if key in ("matchExpressions", "matchFields") and isinstance(value, list):
            return [self._expression(one) for one in value]
        if key == "drivers" and isinstance(value, list):
            # Of a CSINode: names of programs, as of StorageClasses and volumes.
            return [
                {**self._fields(one), "name": one.get("name", "")}
                for one in value
                if isinstance(one, dict)
            ]
        if key in ("image", "names", "reference"):
            return self._images(value)
        return value if _is_enumerated(key, value) else self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.pseudonym(value)
        if isinstance(value, list):
            return [self._value(one) for one in value]
        return self._fields(value) if isinstance(value, dict) else value

    def _label(self, label: str, text: Any) -> Any:
        return text if label in _PUBLIC_LABELS and isinstance(text, str) else self._value(text)

    def _expression(self, one: Any) -> Any:
        if not isinstance(one, dict):
            return self._value(one)
        label, values = one.get("key", ""), one.get("values")
        redacted = self._fields(one)
        if isinstance(values, list):
            redacted["values"] = [self._label(label, text) for text in values]
        return redacted

    def _annotations(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the annotations of public keys; ours may hold text about objects, and stay only as plain values."""
        kept: dict[str, Any] = {}
        for key, text in given.items():
            domain = key.partition("/")[0]
            if key.startswith(_OURS):
                if isinstance(text, str) and _PLAIN.fullmatch(text):
                    kept[key] = text
            elif any(domain == of or domain.endswith(f".{of}") for of in _PUBLIC_DOMAINS):
                kept[key] = self._label(key, text)
        return kept

    def _images(self, value: Any) -> Any:
        """Add the tag that kube-scheduler adds to images without one, so that pods still match nodes."""
        if isinstance(value, list):
            return [self._images(one) for one in value]
        if not isinstance(value, str) or not value:
            return self._value(value)
        # normalizedImageName of pkg/scheduler/framework/plugins/imagelocality.
        tagged = value if value.rfind(":") > value.rfind("/") else f"{value}:latest"
        return f"{self.pseudonym(tagged)}:x"


def _is_enumerated(key: str, value: Any) -> bool:
    if key == "reason":
        return isinstance(value, str) and _REASON.fullmatch(value) is not None
    texts = value if isinstance(value, list) else [value]
    return key in _ENUMERATED and all(isinstance(text, str) for text in texts)
