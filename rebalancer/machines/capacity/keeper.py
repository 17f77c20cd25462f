"""Reads what earlier runs have left of machines, and writes their status after a run."""

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
        """Return what earlier runs have left.

        Raises:
            ClusterReadError: there is no such ConfigMap, or it could not be read.
        """
        self._earlier, flaw = decode(self._store.require().data)
        if flaw is not None:
            self._warn(f"ConfigMap {self._name}: {flaw}; back-offs of groups start again")
        return self._earlier

    def keep_groups(self, groups: Mapping[str, GroupState]) -> None:
        """Keep the state of each group before it is acted on; the rest stays as earlier runs have left it.

        Raises:
            ClusterReadError: it could not be written.
        """
        state = msgspec.structs.replace(self._earlier, groups=changed_states(groups))
        self._store.update(lambda data: {**data, **encode(state)})

    def write(
        self,
        report: CapacityReport,
        groups: Mapping[str, GroupState],
        acts: Sequence[MachineAct],
        now: float,
    ) -> list[MachineEvent]:
        """Write the status after a run; return what is to be announced. ``groups``: the state of each.

        Raises:
            ClusterReadError: it could not be written, or is another's.
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
