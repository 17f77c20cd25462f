"""End exactly one Machine of a group: name it on the group, mark it, and decrease the replicas by one.

Cluster Autoscaler marks and decreases, too. Here each write is guarded by what was read, and the group names the
Machine that its next decrease is for, since a process may be killed, and an answer lost, after each write:

    group: rebalancer/ends = the Machine   -> no other process decreases it by an older look
    Machine: delete-machine                -> its MachineSet ends it first
    group: replicas - 1, rebalancer/ends away, in one write -> done, once: what is still under way changes nothing

What is left of a process that was killed before the last write ends nothing, and the next end in the group removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.machines.cluster_api.api import DELETE, ENDS, ClusterApi, Machine, Raw, Scalable
from rebalancer.machines.cluster_api.view import OURS, ScalableGroup

if TYPE_CHECKING:
    from rebalancer.kube.client import Client

_PENDING = 8.0
"""Seconds to wait for ends that were requested before: Cluster API acts at once, or is not running."""
_POLL_INTERVAL = 0.5
_LATEST = 15.0
"""Seconds within which the last write is begun, or not at all: the caller guarantees its checks of the node for this time."""


def annotate(**annotations: str | None) -> dict[str, Any]:
    """Return the change that sets annotations, and removes those that are None."""
    return {"metadata": {"annotations": annotations}}


def await_pending(
    client: Client, read: Callable[[], ScalableGroup], group: ScalableGroup
) -> ScalableGroup:
    """Wait some seconds for the ends that were requested before; return the group as it is then.

    Until their Machines are being deleted an end can be lost: with two of them marked one decrease may end either, and an
    increase undoes the decrease.

    Raises:
        ProviderError: the group cannot be read.
    """
    until = client.monotonic() + _PENDING
    while group.has_pending_ends and client.monotonic() < until:
        if client.stop.wait(_POLL_INTERVAL) is not None:
            return group
        group = read()
    return group


@dataclass(slots=True)
class MachineEnd:
    """The end of one Machine."""

    api: ClusterApi
    read: Callable[[], ScalableGroup]
    """Reads the group anew; raises ProviderError."""
    judged: ScalableGroup
    """The group as it was when its end was decided."""
    machine: Machine
    _claims: list[str] = field(default_factory=list)
    """What was, or may have been, written on the group."""
    _is_sent: bool = False
    """Whether the last write was sent."""

    def request(self) -> None:
        """End the machine.

        Raises:
            ProviderRefusalError: it is not ended, and the group is as before.
            ProviderError: whether it is ended is not known.
        """
        until = self.api.client.monotonic() + _LATEST
        self.judged = await_pending(self.api.client, self.read, self.judged)
        if (why := self.judged.why_not_end(self.machine)) is not None:
            raise ProviderRefusalError(f"{self.judged.owner.group}: {why}")
        try:
            self._change_owner(self._claim)
            self._prepare(self.read())
            if self.api.client.monotonic() > until:
                raise ProviderRefusalError(f"it took more than {_LATEST:.0f} s to mark it")
            self._change_owner(self._lower)
        except ProviderError as error:
            if not self._take_back():
                return
            raise ProviderRefusalError(f"{self.judged.owner.group}: {error}") from error

    @property
    def _size(self) -> int:
        return self.judged.owner.replicas or 0

    def _change_owner(self, decide: Callable[[Scalable], Mapping[str, Any] | None]) -> Scalable:
        owner = self.judged.owner
        resource = self.api.resource(owner.kind)
        return Scalable(
            self.api.change(resource, owner.name, lambda raw: decide(Scalable(raw, owner.kind))),
            owner.kind,
        )

    def _is_mine(self, owner: Scalable) -> bool:
        return owner.annotations.get(ENDS) in self._claims

    def _claim(self, owner: Scalable) -> Mapping[str, Any] | None:
        if self._is_mine(owner):
            return None
        self._check_unchanged(owner)
        # The version makes it one of its own: no other process has written on that.
        claim = f"{self.machine.name} {self.machine.uid} {owner.resource_version}"
        self._claims.append(claim)
        return annotate(**{ENDS: claim})

    def _check_unchanged(self, owner: Scalable) -> None:
        judged = self.judged.owner
        if (owner.uid, owner.generation) != (judged.uid, judged.generation):
            raise ProviderRefusalError("it was changed meanwhile")
        if owner.is_paused or owner.is_going:
            raise ProviderRefusalError("it was paused, or deleted, meanwhile")

    def _prepare(self, view: ScalableGroup) -> None:
        """Mark the machine, and no other, on the group as it is since the claim.

        Raises:
            ProviderRefusalError: a decrease would not end just this machine.
            ProviderError: the group, or whether it is marked, cannot be read.
        """
        held = view.node_group().held
        instances = [
            name for name, one in view.by_instance().items() if one.uid == self.machine.uid
        ]
        why = next((held[one] for one in instances if one in held), None)
        why = why or view.why_not_end(self.machine)
        if why is not None or not instances:
            raise ProviderRefusalError(why or f"the Machine {self.machine.name} has left it")
        for one in view.staying:
            if one.mark is not None and one.uid != self.machine.uid:
                self._set_mark(one, None)
        self._set_mark(self.machine, f"{OURS} {self._claims[-1]}")

    def _set_mark(self, machine: Machine, mark: str | None) -> None:
        """Set a mark of ours, or remove it; a mark of another client is not changed."""

        def decide(raw: Raw) -> Mapping[str, Any] | None:
            now = Machine(raw)
            if now.uid != machine.uid or (mark and (now.is_going or now.is_paused)):
                raise ProviderRefusalError(f"the Machine {machine.name} was changed meanwhile")
            foreign = now.mark is not None and not now.mark.startswith(OURS)
            return None if foreign or now.mark == mark else annotate(**{DELETE: mark})

        self.api.change(self.api.resource("Machine"), machine.name, decide)

    def _lower(self, owner: Scalable) -> Mapping[str, Any] | None:
        if self._is_lowered(owner):
            return None  # the answer was lost
        if not self._is_mine(owner):
            raise ProviderRefusalError("another process ends a machine of it")
        self._check_unchanged(owner)
        self._is_sent = True
        return {**annotate(**{ENDS: None}), "spec": {"replicas": self._size - 1}}

    def _is_lowered(self, owner: Scalable) -> bool:
        """Return whether the last write was made: nothing else removes the claim and decreases the group in one."""
        is_lowered = ENDS not in owner.annotations and owner.replicas == self._size - 1
        return self._is_sent and is_lowered

    def _take_back(self) -> bool:
        """Remove what was written; return False if the machine is ended all the same.

        The claim is removed first: after that no request which is still under way can decrease the group.

        Raises:
            ProviderError: whether it is ended is not known.
        """
        if not self._claims:
            return True
        owner = self._change_owner(
            lambda owner: annotate(**{ENDS: None}) if self._is_mine(owner) else None
        )
        if self._is_lowered(owner):
            return False
        self._set_mark(self.machine, None)
        return True
