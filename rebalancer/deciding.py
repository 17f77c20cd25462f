"""From a cluster or a snapshot file to a plan: what runs, dry runs and explanations share to the last line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rebalancer.environment import Environment, Timings, collector_paused
from rebalancer.planner.planner import Onlooker
from rebalancer.planning import Planned, Planning
from rebalancer.policy.load import LoadedPolicy
from rebalancer.policy.model import Mode
from rebalancer.snapshot.model import Snapshot

if TYPE_CHECKING:
    from rebalancer.kube.client import Client
    from rebalancer.kube.read import Reading
    from rebalancer.memory.keeper import Keeper


class Deciding:
    """Reads, recalls, plans. Modules that only a cluster needs are imported where they are used."""

    def __init__(
        self,
        planning: Planning,
        environment: Environment,
        loaded: LoadedPolicy,
        memory: tuple[str, str] | None,
    ) -> None:
        """``memory`` is (namespace, name) of the ConfigMap that remembers earlier runs."""
        self.planning, self._environment, self._loaded = planning, environment, loaded
        self._memory = memory
        self.timings = Timings(environment.clock)
        self.notes: list[str] = list(loaded.warnings)
        """What the reader of a report should know of the policy, the reading and the memory."""
        self.keeper: Keeper | None = None
        """The memory, once there is a plan that rests on it."""

    def load(self, path: str) -> Snapshot:
        """Read a snapshot file (``-``: standard input)."""
        from rebalancer.snapshot.load import load_snapshot  # noqa: PLC0415

        with self.timings.phase("read"), collector_paused(for_good=True):
            return load_snapshot(path, stdin=sys.stdin.buffer)

    def read(self, client: Client, *, keep: bool) -> Reading:
        """Read the cluster; with ``keep``, so that its changes can be followed."""
        from rebalancer.kube.read import read_cluster  # noqa: PLC0415

        with self.timings.phase("read"):
            reading = read_cluster(
                client,
                clock=self._environment.clock.unix,
                keep=keep,
                usage=self.planning.needs_usage,
            )
        self.notes += reading.readings.notes
        return reading

    def plan(
        self,
        snapshot: Snapshot,
        *,
        client: Client | None = None,
        clock_skew: float = 0.0,
        onlooker: Onlooker | None = None,
    ) -> Planned:
        """Plan on ``snapshot``; with the ``client`` that read it, knowing what came of earlier runs."""
        if client is not None and self._memory is not None:
            self._recall(client, snapshot, *self._memory)
        planned = self.planning.plan(snapshot, clock_skew, self.timings, onlooker)
        if self.keeper is not None:
            self.keeper.saw(planned.signals)
        return planned

    def _recall(self, client: Client, snapshot: Snapshot, namespace: str, name: str) -> None:
        from rebalancer.kube.memory import MemoryStore  # noqa: PLC0415
        from rebalancer.memory.keeper import Keeper  # noqa: PLC0415

        store = MemoryStore(client, namespace, name)
        self.keeper = Keeper(store, f"{namespace}/{name}", self.notes.append)
        self.keeper.load(snapshot)
        signals = self.keeper.signals()
        if not signals and self._loaded.policy.mode is not Mode.ENFORCE:
            # Runs that only observe write nothing: whoever waits for the next one waits in vain.
            signals = None
        unknown = self.keeper.hour_unknown
        if unknown is not None and not self.planning.counts_the_hour:
            self.notes.append(f"nothing is remembered: {unknown}")
        self.planning.remember(
            self.keeper.cooling(), self.keeper.moved_last_hour(), signals, unknown
        )
