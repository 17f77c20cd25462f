"""Read and write the stored state of machines, with their status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.config_map import ConfigMapStore
from rebalancer.kube.events import Subject
from rebalancer.machines.capacity.announcements import (
    MachineEvent,
    announcements,
    scaled_out_groups,
)
from rebalancer.machines.capacity.backoff import GroupState
from rebalancer.machines.capacity.report import CapacityReport
from rebalancer.machines.capacity.state import State, changed_states, decode, encode
from rebalancer.machines.capacity.status import status_of
from rebalancer.plan.machines import MachineAct

THEIRS = ("kube-system", "cluster-autoscaler-status")
"""The ConfigMap that Cluster Autoscaler writes."""


class StatusKeeper:
    """The ConfigMap ``(namespace, name)`` with the status of machines, in one run."""

    def __init__(
        self, store: ConfigMapStore, where: tuple[str, str], warn: Callable[[str], None]
    ) -> None:
        self._store, self._where, self._warn = store, where, warn
        self._name = "/".join(where)
        self._earlier = State()

    def load(self) -> State:
        """Return the state that earlier runs stored.

        Raises:
            ClusterReadError: the ConfigMap does not exist, or could not be read.
        """
        self._earlier, flaw = decode(self._store.require().data)
        if flaw is not None:
            self._warn(f"ConfigMap {self._name}: {flaw}; back-offs of groups start again")
        return self._earlier

    def keep_groups(self, groups: Mapping[str, GroupState]) -> None:
        """Store the state of each group before acting on it; other parts do not change.

        It is written even if nothing changes: what cannot be written now could not be written after the act.

        Raises:
            ClusterReadError: it could not be written.
        """
        state = msgspec.structs.replace(self._earlier, groups=changed_states(groups))
        self._store.update(lambda data: {**data, **encode(state)}, always=True)

    def write(
        self,
        report: CapacityReport,
        groups: Mapping[str, GroupState],
        acts: Sequence[MachineAct],
        now: float,
    ) -> list[MachineEvent]:
        """Store the status after a run; return the Events to write. ``groups``: name -> state.

        Raises:
            ClusterReadError: it could not be written, or belongs to another release.
        """
        for one in report.autoscalers:
            if one.name == "Cluster Autoscaler" and self._where == THEIRS:
                raise ClusterReadError(
                    f"ConfigMap {self._name} is {one.name}'s own, which runs here ({one.sign}): name another with"
                    f" --capacity-status"
                )
        written = status_of(self._earlier, now, report, groups, scaled_out_groups(acts))
        kept = self._store.update(lambda _: written.data, written.annotations)
        subject = Subject("ConfigMap", *self._where, kept.uid)
        return announcements(self._earlier, written.state, report, acts, subject)
