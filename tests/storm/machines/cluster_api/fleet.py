"""A MachineDeployment and MachineSets alone as groups of a storm."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.capi.ground import Ground, scalable
from tests.capi.infrastructure import CLUSTER, MACHINES, NAMESPACE, POOL, machine_template
from tests.controlplane import ApiError, operations, wait_until
from tests.storm.machines.cluster_api.deeds import NOTE
from tests.storm.machines.fleets import GroupState

_SHAPE = {"cpu": "1930m", "memory": "3300Mi"}
"""What moto's machines leave to pods, too."""
_LONGEST = 90.0
"""Seconds within which machines come."""
_GOES = 10.0
"""Seconds within which a machine goes that was ended."""


class MachineFleet:
    """Groups of Cluster API: the first is a MachineDeployment that waits for deletions, the others are MachineSets alone."""

    def __init__(self, capi: Ground) -> None:
        """Wait until nothing of an earlier scenario is left."""
        self._capi, self._api = capi, capi.plane.api
        self._plurals: dict[str, str] = {}
        """Group -> plural of its kind."""
        self._zones: dict[str, str] = {}
        capi.provider.exhausted.clear()
        capi.provider.taints.clear()
        capi.await_clear()

    def add(
        self, name: str, desired: int, *, low: int = 0, high: int = 10, zone: str = "a"
    ) -> None:
        """Make a group, and wait for its nodes."""
        kind = "MachineSet" if self._plurals else "MachineDeployment"
        self._plurals[name], self._zones[name] = f"{kind.lower()}s", zone
        sizes, strategy = (desired, low, high), None if kind == "MachineSet" else "OnDelete"
        self._capi.plane.apply(
            [
                machine_template(f"{name}-1", **_SHAPE, zones=zone),
                scalable(kind, name, sizes, strategy),
            ]
        )
        self._wait(name, desired)

    def _wait(self, name: str, size: int) -> None:
        def joined() -> bool:
            nodes = [
                node
                for node in self._capi.nodes()
                if node["metadata"]["labels"].get("group") == name and operations.is_ready(node)
            ]
            known = [one for one in self._of(name) if one.get("status", {}).get("nodeRef")]
            return len(nodes) == len(known) == len(self._of(name)) == size

        wait_until(joined, _LONGEST, f"{size} machines of {name}")

    def _of(self, name: str) -> list[dict[str, Any]]:
        return list(self._api.list_all(f"{MACHINES}?labelSelector={POOL}%3D{name}"))

    def machines(self, name: str) -> list[str]:
        """Return the names of a group's Machines that are not being deleted, which are those of their nodes."""
        metadata = [one["metadata"] for one in self._of(name)]
        return sorted(one["name"] for one in metadata if "deletionTimestamp" not in one)

    def renew(self) -> None:
        """Give each group another template."""
        for name, plural in self._plurals.items():
            self._capi.new_template(name, plural, **_SHAPE, zones=self._zones[name])

    def resize(self, name: str, by: int) -> int:
        """Change the replicas; return etcd's revision of that."""
        path = self._capi.path(name, self._plurals[name])
        size = int(self._api.get(path)["spec"]["replicas"]) + by
        changed = self._api.patch(path, {"spec": {"replicas": size}})
        return int(changed["metadata"]["resourceVersion"])

    def exhaust(self, name: str) -> None:
        """Provide no machine for a group from now on."""
        self._capi.provider.exhausted.add(name)

    def state(self) -> Mapping[str, GroupState]:
        """Return group -> what Cluster API has of it."""
        left = self._capi.left_behind()
        return {name: self._state(name, plural, left) for name, plural in self._plurals.items()}

    def _state(self, name: str, plural: str, left: Sequence[str]) -> GroupState:
        machines = self.machines(name)
        low, high = self._capi.limits(name, plural)
        return GroupState(
            minimum=low,
            maximum=high,
            desired=self._capi.size(name, plural),
            machines=frozenset(machines),
            left=tuple(one for one in left if one.split()[1].strip(":") in {name, *machines}),
        )

    def free(self) -> list[str]:
        """Remove the note of a MachineDeployment that is being taken back, which could only end old machines (docs/cluster-api.md)."""
        freed = []
        for name in list(self._plurals)[:1]:
            path = self._capi.path(name, self._plurals[name])
            note = self._api.get(path)["metadata"]["annotations"].get(NOTE, "")
            if note.partition("back=")[2] not in ("", "-"):
                self._api.patch(path, {"metadata": {"annotations": {NOTE: None}}})
                freed.append(name)
        return freed

    def policy(self, tags: Sequence[str]) -> Mapping[str, Any]:  # no group has tags here
        """Return the provider of a policy."""
        return {"cluster-api": {"cluster": f"{NAMESPACE}/{CLUSTER}"}}

    def join(self, *, taints: Sequence[Mapping[str, str]] = ()) -> None:
        """Let the new nodes of the MachineSets alone have these taints: those of the MachineDeployment could not be taken back."""
        for name in list(self._plurals)[1:]:
            self._capi.provider.taints[name] = taints

    def settle(self) -> None:
        """Wait until each group has the Machines that are asked for; what is wrong then is judged."""

        def settled() -> bool:
            sizes = {name: self._capi.size(name, plural) for name, plural in self._plurals.items()}
            return all(len(self._of(name)) == size for name, size in sizes.items())

        with suppress(TimeoutError):
            wait_until(settled, _GOES, "the Machines that are asked for")

    def close(self) -> None:
        """Delete the groups; their machines go by and by."""
        for name, plural in self._plurals.items():
            # One that could not be made is not there.
            with suppress(ApiError):
                self._api.delete(self._capi.path(name, plural))
