"""All that the witnesses know of one scenario: the cloud's calls, the audit log, raw watches, the processes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.controlplane.audit import EVICTION, Request
from tests.storm.machines.cloud import Call
from tests.storm.machines.cluster_api.deeds import deeds_of_objects
from tests.storm.machines.deeds import OTHERS, Deed, deeds_of_calls, group_in
from tests.storm.machines.fleets import GroupState
from tests.storm.machines.ground import OTHER, Ground
from tests.storm.machines.network import Standing
from tests.storm.machines.scenario import Scenario
from tests.storm.witnesses import LEASE, Change, Ran

DELETION = ("delete", "", "pods")


@dataclass(frozen=True)
class Hooked:
    """The provider was asked to remove the machine of a node."""

    at: float
    node: str
    uid: str
    """Of the node that had the name then; empty if none had."""


@dataclass
class Record:
    """All that is known of one scenario."""

    scenario: Scenario
    runs: Sequence[Ran]
    clean: Sequence[Ran]
    """Runs without faults that followed."""
    ground: Ground
    requests: Sequence[Request]
    """Of the product, by the audit log."""
    changes: Sequence[Change]
    """Of nodes, pods, budgets, the Lease, ConfigMaps and objects of Cluster API, in etcd's order."""
    calls: Sequence[Call]
    """Of the product, by the cloud's log, also of the run without faults."""
    hooked: Sequence[Hooked]
    acted: Mapping[str, float]
    ended: float
    """Unix seconds at which the runs with faults were over."""
    nodes: Sequence[Mapping[str, Any]]
    """The nodes in the end."""
    sizes: Mapping[str, int]
    """Group -> desired size in the end."""
    groups: Mapping[str, GroupState]
    """Group -> what its provider says of it in the end."""
    pending: int
    """Pods that wait for a node in the end."""
    network: Standing
    """What AWS says of the announced machine's load balancers and firewalls in the end."""
    secrets: Sequence[str]
    hits: Sequence[str]
    """Faults that came to bear, by name."""

    @cached_property
    def deeds(self) -> list[Deed]:
        """What was done to groups and machines since the product began, by time."""
        theirs, deleted = self.ground.their_changes, self.ground.deleted_machines
        deeds = [
            *deeds_of_calls(self.calls, self.group_of),
            *deeds_of_objects(self.changes, theirs, deleted, self.runs[0].started),
        ]
        return sorted(deeds, key=lambda deed: deed.at)

    def endings(self, *, of_hooks: bool = True) -> list[Deed]:
        """Return what the product did by which machines end; without ``of_hooks`` only where it has chosen them."""
        whats = ("ends", "lets go") if of_hooks else ("ends",)
        return [deed for deed in self.deeds if deed.what in whats and deed.by != OTHERS]

    def evictions(self) -> Iterator[Request]:
        """Yield the evictions that were carried out."""
        return (r for r in self.requests if r.kind == EVICTION and r.code in (200, 201))

    def deletions(self) -> Iterator[Request]:
        """Yield the deletions of pods that were carried out."""
        return (r for r in self.requests if r.kind == DELETION and r.code in (200, 202))

    def objects(self, kind: str, at: float) -> dict[str, Mapping[str, Any]]:
        """Return uid -> object of a kind, as the watch had shown them at a time."""
        known: dict[str, Mapping[str, Any]] = {}
        for change in self.changes:
            if change.kind != kind or change.at > at:
                continue
            if change.type == "DELETED":
                known.pop(change.uid, None)
            else:
                known[change.uid] = change.object
        return known

    def node_named(self, name: str, at: float) -> Mapping[str, Any] | None:
        """Return the node of a name at a time."""
        named = (n for n in self.objects("Node", at).values() if n["metadata"]["name"] == name)
        return next(named, None)

    def node_of_instance(self, instance: str, at: float) -> Mapping[str, Any] | None:
        """Return the node whose machine an instance is, at a time."""
        for node in self.objects("Node", at).values():
            if str(node["spec"].get("providerID", "")).endswith(f"/{instance}"):
                return node
        return None

    def group_of(self, instance: str, at: float) -> str:
        """Return the group of a machine at a time, by its node; empty if it has none."""
        node = self.node_of_instance(instance, at)
        return group_in(node) if node else ""

    def pods_on(self, name: str, at: float) -> dict[str, Mapping[str, Any]]:
        """Return uid -> pod of those on a node at a time that neither have ended nor are being deleted."""
        return {
            uid: pod
            for uid, pod in self.objects("Pod", at).items()
            if pod["spec"].get("nodeName") == name
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            and "deletionTimestamp" not in pod["metadata"]
        }

    def holder(self, at: float, release: str = "") -> str:
        """Return who held the Lease of a release at a time; empty if nobody did."""
        name = f"{OTHER}-{LEASE}" if release == OTHER else LEASE
        holders = [
            str((lease.get("spec") or {}).get("holderIdentity") or "")
            for lease in self.objects("Lease", at).values()
            if lease["metadata"]["name"] == name
        ]
        return next(iter(holders), "")
