"""One source: a thread that receives, and says to the source that the work goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.interruption.pipeline_runs import PipelineRuns
from rebalancer.signals.model import HEARTBEAT, LONGEST_RECEIVE, Receiver, SignalError

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HANGS = LONGEST_RECEIVE + 120.0


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
    trouble: str | None = None
    """Why nothing is received now."""
    _seen: float = field(init=False)
    _beat: float = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self._beat = self.clock.now()
        self._thread = threading.Thread(
            target=self._listen, name=f"signals-{self.name}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, after the stop; so many seconds at most."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def hangs(self) -> float | None:
        """Return for how many seconds the source has not answered, None if that is no longer than it may."""
        silent = self.clock.now() - self._seen
        return silent if silent > _HANGS else None

    def _listen(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while self.stop.reason() is None:
                self._seen = self.clock.now()
                if self._tried(self._receive):
                    self.trouble, pause = None, _FIRST_PAUSE
                else:
                    self.stop.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                self._tried(*self._heartbeats())
        finally:
            self.receiver.close()

    def _tried(self, *acts: Callable[[], None]) -> bool:
        """Do each of ``acts``, whatever becomes of the others; return whether all could be done."""
        failures = [why for act in acts if (why := _failure(act)) is not None]
        if not failures:
            return True
        self.failures += 1
        why = "; ".join(dict.fromkeys(failures))
        if why != self.trouble:
            self.say(f"signal source {self.name}: {why}; it is tried again")
        self.trouble = why
        return False

    def _receive(self) -> None:
        for interruption in self.receiver.receive(self.stop):
            self.pipeline_runs.take(interruption, self.receiver)

    def _heartbeats(self) -> list[Callable[[], None]]:
        """Return what sends the heartbeats that are due: one for each machine, none of which waits for another's."""
        now = self.clock.now()
        if now - self._beat < HEARTBEAT:
            return []
        self._beat = now
        return [
            partial(self.receiver.heartbeat, interruption)
            for interruption in self.pipeline_runs.open_interruptions(self.receiver)
        ]


def _failure(act: Callable[[], None]) -> str | None:
    """Return why ``act`` could not be done, None if it was."""
    try:
        act()
    except SignalError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  # a plug-in's error must not end the listening for good
        return f"{type(error).__name__}: {error}"
    return None
