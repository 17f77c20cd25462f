"""Execute a plan in a simulated cluster with the executor of real runs, with its own actor, feed and clock."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace

from rebalancer.base.stop import Stop
from rebalancer.kube.evict import AnswerKind, EvictionAnswer, PodView
from rebalancer.plan.outcome import Outcome
from rebalancer.plan.plan import Move
from rebalancer.run.execution.executor import Execution, Executor, Recheck, WavePace
from rebalancer.run.execution.landing import Replacement
from rebalancer.whatif.world import Replaced, SimulatedCluster, Span

READY_AFTER = Span(10.0, 10.0)


def carry_out(
    world: SimulatedCluster,
    moves: Sequence[Move],
    recheck: Recheck,
    *,
    pace: WavePace = WavePace(),  # noqa: B008  # it cannot be changed
    ready_after: Span = READY_AFTER,
) -> tuple[Execution, int]:
    """Execute ``moves`` wave by wave; return the execution, and the number of waves.

    ``ready_after``: seconds from an eviction until the replacement is Ready.
    """
    simulated, waves = _Simulated(world, moves, ready_after), _Waves()
    executor = Executor(
        simulated,
        simulated,
        Stop(_Clock(world), signalled=_NoSignal(world)),
        # Threads would make the result depend on the machine.
        replace(pace, in_order=len(moves)),
        waves,
        domains=world.nodes.labels_of,
        marks=simulated,
    )
    return executor.run(moves, recheck), waves.count


class _Simulated:
    """The API server and the pods of a simulated cluster."""

    def __init__(self, world: SimulatedCluster, moves: Sequence[Move], ready_after: Span) -> None:
        self._world, self._ready_after = world, ready_after
        self._uids = {(move.namespace, move.pod): move.uid for move in moves}
        self._new: list[tuple[Replacement, float]] = []
        """The replacements of this wave, and when they are Ready."""

    # -- the actor: see rebalancer.run.execution.attempt.Actor -------------------------------------------

    def read_pod(
        self,
        namespace: str,
        name: str,
        *,
        seconds: float,  # noqa: ARG002
        after_stop: bool = False,  # noqa: ARG002
    ) -> PodView | None:
        uid = self._uids[namespace, name]
        return self._world.pod(uid) or self._world.find_ended(uid)

    def evict(self, namespace: str, name: str, uid: str) -> EvictionAnswer:
        if self._world.find_ended(uid) is not None:
            self._world.remove(uid)
            return EvictionAnswer(AnswerKind.EVICTED, f"{name} is gone")
        created = self._world.now
        new = self._world.evict(uid)
        self._replace(namespace, uid, new, created, self._world.draw(self._ready_after))
        return EvictionAnswer(AnswerKind.EVICTED, f"{name} is replaced by {new.name}")

    def restart(self, move: Move) -> EvictionAnswer:
        created, starts = self._world.now, self._world.draw(self._ready_after)
        new = self._world.restart(move.uid, starts)
        self._replace(move.namespace, move.uid, new, created, starts)
        return EvictionAnswer(AnswerKind.RESTARTED, f"{move.pod} is replaced by {new.name}")

    def _replace(
        self, namespace: str, uid: str, new: Replaced, created: float, starts: float
    ) -> None:
        replacement = Replacement(
            uid=new.uid,
            name=new.name,
            namespace=namespace,
            controller=uid,  # the one that replaces this very pod
            node=new.node,
            ready=False,
            created=created,
        )
        self._new.append((replacement, created + starts))

    def announce(self, move: Move) -> None:
        pass

    # -- marks: see rebalancer.run.execution.marks.Marks -----------------------------------------------------

    def stand_on(self, nodes: Collection[str]) -> str | None:
        self._world.mark(nodes)
        return None

    # -- the feed: see rebalancer.run.execution.landing.Feed ---------------------------------------------

    def begin_wave(self) -> None:
        self._new.clear()
        self._world.begin_wave()

    def controller_of(self, uid: str) -> str | None:
        return uid

    def newcomers(self) -> list[Replacement]:
        now = self._world.now
        return [replace(new, ready=bool(new.node) and now >= at) for new, at in self._new]

    def ending(self) -> Collection[str]:
        return self._world.terminating()

    def is_gone(self, uid: str) -> bool:
        return uid not in self._world.terminating()

    def still_waits(self, uid: str) -> str | None:
        self._world.schedule()
        pod = self._world.pod(uid)
        return uid if pod is not None and not pod.node else None

    def unready_sibling(self, uid: str) -> str | None:  # noqa: ARG002
        return None

    def wait(self, seconds: float) -> None:
        self._world.wait(seconds)

    def list_again(self) -> None:
        pass


class _Clock:
    """The clock of a simulated cluster."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now


class _NoSignal(threading.Event):
    """An event that is never set; waiting for it advances the simulated clock."""

    def __init__(self, world: SimulatedCluster) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        self._world.wait(timeout or 0.0)
        return False


class _Waves:
    """Progress that counts the waves."""

    def __init__(self) -> None:
        self.count = 0

    def wave_started(self, wave: int, waves: int, moves: int) -> None:  # noqa: ARG002
        self.count += 1

    def evicted(self, move: Move) -> None:
        pass

    def not_evicted(self, outcome: Outcome) -> None:
        pass

    def landed(self, move: Move, node: str, *, predicted: bool, seconds: float) -> None:
        pass

    def waiting(self, wave: int, pending: int, unready: int) -> None:
        pass
