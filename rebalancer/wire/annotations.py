"""The annotations of objects that are read. Snapshot files keep only these: the content of others may be secret."""

from rebalancer.wire.pods import ANNOTATION_NAMES

OURS = "rebalancer/"
"""Prefix of the names of our annotations."""
REBOOTING = "weave.works/kured-reboot-in-progress"
"""Annotation of a node that kured drains, reboots and opens again (``--annotate-nodes``)."""
STAYS = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""Annotation of a node that Cluster Autoscaler is not to remove."""
STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""Annotation of a claim, from before the field ``storageClassName``."""

READ = frozenset({*ANNOTATION_NAMES.values(), REBOOTING, STAYS, STORAGE_CLASS})
"""The annotations that are read, beside our own."""


def is_read(name: str) -> bool:
    """Return whether the annotation of this name is read of some kind of object."""
    return name in READ or name.startswith(OURS)
