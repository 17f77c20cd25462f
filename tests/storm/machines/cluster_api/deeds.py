"""What was done to groups of Cluster API, from raw watches of its objects.

The product lowers a group by one for the machine that is to end, and Cluster API chooses it: a machine that ends belongs to the
last decrease of its group before.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.storm.machines.deeds import OTHERS, Deed
from tests.storm.witnesses import Change

POOL = "pool"
"""Label of groups and machines: the name of the group."""
OWNERS = ("MachineDeployment", "MachineSet")
MACHINE = "Machine"
NOTE = "rebalancer/replace"
"""Annotation of a group whose machines are being replaced."""
_MARK = "cluster.x-k8s.io/delete-machine"
_LIMITS = tuple(
    f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max")
)


def deeds_of_objects(
    changes: Sequence[Change], theirs: Collection[int], deleted: Collection[str], since: float
) -> list[Deed]:
    """Return what was done to groups from ``since`` (Unix seconds) on.

    ``theirs``: etcd's revisions of changes that others have made; ``deleted``: uids of Machines that others have deleted.
    """
    seen = _Seen(theirs, deleted)
    for change in changes:
        if change.kind in OWNERS:
            seen.see_owner(change)
        elif change.kind == MACHINE:
            seen.see_machine(change)
    return [deed for deed in seen.all() if deed.at >= since]


@dataclass
class _Seen:
    theirs: Collection[int]
    deleted: Collection[str]
    _owners: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _going: set[str] = field(default_factory=set)
    _lowered: dict[str, list[Deed]] = field(default_factory=lambda: defaultdict(list))
    """Group -> decreases to which no end belongs so far."""
    _deeds: list[Deed] = field(default_factory=list)

    def all(self) -> list[Deed]:
        """Return all deeds by time; a decrease that has ended nothing has only set a size."""
        left = [deed for deeds in self._lowered.values() for deed in deeds]
        return sorted([*self._deeds, *left], key=lambda deed: deed.at)

    def see_owner(self, change: Change) -> None:
        """Compare a group with what it was."""
        now, metadata = change.object, change.object["metadata"]
        if any(one.get("controller") for one in metadata.get("ownerReferences", ())):
            return
        before = self._owners.get(change.uid)
        self._owners[change.uid] = now
        if before is None or change.type == "DELETED":
            return
        name = metadata["name"]
        by = OTHERS if change.version in self.theirs else ""
        was, size = before["spec"].get("replicas", 0), now["spec"].get("replicas", 0)
        resized = Deed(change.at, "resizes", name, size=size, by=by)
        if size > was:
            self._deeds.append(resized)
        # One machine belongs to each.
        self._lowered[name] += [replace(resized, size=number) for number in range(size, was)]
        if _annotation(now, NOTE) and not _annotation(before, NOTE):
            self._deeds.append(Deed(change.at, "notes", name, by=by))
        if any(_annotation(now, key) != _annotation(before, key) for key in _LIMITS):
            self._deeds.append(Deed(change.at, "limits", name, by=by))

    def see_machine(self, change: Change) -> None:
        """Look for machines that begin to end, and for what has ended them."""
        machine, metadata = change.object, change.object["metadata"]
        going = change.type == "DELETED" or "deletionTimestamp" in metadata
        if not going or change.uid in self._going:
            return
        self._going.add(change.uid)
        if change.uid in self.deleted:
            # By people: Cluster API makes another one.
            return
        group = (metadata.get("labels") or {}).get(POOL, "")
        ends = Deed(change.at, "ends", group, metadata["name"])
        lowered = self._lowered[group]
        marked = str(_annotation(machine, _MARK)).startswith("rebalancer")
        # Of a decrease by others and one by the product, that which has chosen it.
        fits = [one for one in lowered if (one.by != OTHERS) == marked] or lowered
        if fits:
            last = fits[-1]
            lowered.remove(last)
            ends = replace(ends, at=last.at, by=last.by)
        self._deeds.append(ends)


def _annotation(obj: Mapping[str, Any], key: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(key, ""))
