"""Listen to one source with two threads: one receives, one sends heartbeats, so that heartbeats are never delayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Backoff, Stop
from rebalancer.machines.interruption.pipeline_runs import PipelineRuns
from rebalancer.signals.model import HEARTBEAT, MAX_RECEIVE, Receiver, SignalError

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HANGS = MAX_RECEIVE + 120.0
_LAST_HEARTBEATS = 10.0
"""Seconds for which heartbeats that are being sent are waited for at the end."""


@dataclass
class Listening:
    """Listens to one source, until ``stop``."""

    name: str
    receiver: Receiver
    pipeline_runs: PipelineRuns
    clock: SystemClock
    stop: Stop
    say: Callable[[str], None]
    failures: int = 0
    """Since the process began."""
    _troubles: dict[str, str] = field(default_factory=dict)
    """What cannot be done now -> why."""
    _seen: float = field(init=False)
    _over: threading.Event = field(default_factory=threading.Event)
    """Nothing is received any more."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self.clock.now()
        self._thread = self._make(self._listen, f"signals-{self.name}")

    @property
    def trouble(self) -> str | None:
        """Why nothing is received, or no heartbeat is sent, at present; None if all is well."""
        with self._lock:
            return next(iter(self._troubles.values()), None)

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until the threads have ended after the stop, ``seconds`` at most."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def hangs(self) -> float | None:
        """Return the seconds since the last answer of the source, if they exceed its limit; else None."""
        silent = self.clock.now() - self._seen
        return silent if silent > _HANGS else None

    def _make(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def _listen(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        heartbeats = self._make(self._send_heartbeats, f"heartbeats-{self.name}")
        heartbeats.start()
        try:
            while self.stop.reason() is None:
                self._seen = self.clock.now()
                if self._try_each("receive", [self._receive]):
                    backoff.reset()
                else:
                    backoff.wait(self.stop)
        finally:
            self._over.set()
            heartbeats.join(_LAST_HEARTBEATS)
            self.receiver.close()

    def _try_each(self, what: str, acts: Iterable[Callable[[], None]]) -> bool:
        """Run each of ``acts``, even after failures; return whether all succeeded."""
        failures = [why for act in acts if (why := _failure(act)) is not None]
        why = "; ".join(dict.fromkeys(failures))
        with self._lock:
            before = self._troubles.pop(what, "")
            if not why:
                return True
            self._troubles[what] = why
            self.failures += 1
        if why != before:
            self.say(f"signal source {self.name}: {why}; it is tried again")
        return False

    def _receive(self) -> None:
        for interruption in self.receiver.receive(self.stop):
            self.pipeline_runs.take(interruption, self.receiver)

    def _send_heartbeats(self) -> None:
        """Send a heartbeat for each machine every :data:`HEARTBEAT` seconds, independently."""
        sent = self.clock.now()
        while self.stop.reason() is None and not self._over.is_set():
            left = sent + HEARTBEAT - self.clock.now()
            if left > 0:
                self.stop.sooner(left, self._over).wait(left)
                continue
            sent = self.clock.now()
            every = self.pipeline_runs.open_interruptions(self.receiver)
            self._try_each("heartbeat", [partial(self.receiver.heartbeat, one) for one in every])


def _failure(act: Callable[[], None]) -> str | None:
    """Run ``act``; return the error message, or None."""
    try:
        act()
    except SignalError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  # a plug-in's error must not end the listening for good
        return f"{type(error).__name__}: {error}"
    return None
