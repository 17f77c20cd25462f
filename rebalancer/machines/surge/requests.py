"""What a replacement has requested of the provider: sizes of groups and ends of machines, and until when that is not known yet."""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.base.stop import Stop
from rebalancer.providers.contract import Guarded, ReplacingMachines

_SETTLED = 60.0
"""Seconds until a size that was requested, or the end of a machine, is known: DescribeAutoScalingGroups may lag behind."""
_POLL_INTERVAL = 5.0


class SurgeRequests:
    """Requests about the group that a process works on."""

    def __init__(
        self, machines: ReplacingMachines, stop: Stop, say: Callable[[str, str], None]
    ) -> None:
        """``say`` reports a step: its code, and a text."""
        self._machines, self._stop, self._say = machines, stop, say
        self._settling = stop.now()
        """Time of the clock that nobody sets, since when no machine was requested, and no end of one."""
        self._seen = 0
        """A size that a look has shown and that was not asked for, since all that was requested is known."""
        self._shrunk = 0
        """By how much ends of machines have made the group smaller than its note says."""
        self.ended: set[str] = set()
        """Machines whose end was requested."""

    def increase(self, group: str, size: int) -> bool:
        """Ask for a larger size; return False if the group has it already; raises ProviderError."""
        requested = self._make_guarded().increase(group, size)
        if requested:
            self._unsettle()
        return requested

    def decrease_to_existing(self, group: str, least: int, asked: int) -> int | None:
        """Ask for no machines that are not there yet; return the size, or None; raises ProviderError.

        ``asked``: the size that was requested last.
        """
        unseen = {} if self.is_known() else {group: asked}
        return Guarded(self._machines, (), asked=unseen).decrease_to_existing(group, least)

    def end(self, group: str, instance: str, may: Callable[[], str | None]) -> str | None:
        """Ask for the end of a machine, which makes its group smaller by one; return why that failed, or None.

        ``may`` is asked last, and returns why the request must not be sent, or None.
        """
        refused: str | None = None

        def may_be_sent() -> bool:
            nonlocal refused
            refused = self._stop.reason() or may()
            return refused is None

        try:
            requested = self._make_guarded().terminate(group, instance, may_be_sent)
        except ProviderRefusalError as error:
            return str(error)
        except ProviderError as error:
            return self._await_end(group, instance, str(error))
        if refused is None:
            self._note_end(instance, requested)
            if requested:
                self._say("ended", f"ended    {instance}")
        return refused

    def take_shrunk(self) -> int:
        """Return by how much ends of machines have made the group smaller since this was asked last."""
        # Not twice: it may be written though the answer is lost.
        shrunk, self._shrunk = self._shrunk, 0
        return shrunk

    def is_known(self) -> bool:
        """Return whether all that was requested is known for sure."""
        return self._stop.now() - self._settling > _SETTLED

    def is_seen_twice(self, size: int) -> bool:
        """Return whether the look before has shown the same size, which was not asked for."""
        agreed, self._seen = self._seen == size, size
        return agreed

    def leave(self) -> None:
        """Let go of the group."""
        self._shrunk = self._seen = 0

    def _await_end(self, group: str, instance: str, lost: str) -> str | None:
        """Return None once a machine has left its group although the answer was lost; else the error ``lost``."""
        until = self._stop.now() + _SETTLED
        while self._stop.now() < until and self._stop.wait(_POLL_INTERVAL) is None:
            try:
                now = self._machines.group_named(group, ())
            except ProviderError:
                continue
            if now is not None and instance not in now.instances:
                self._note_end(instance, shrinks=True)
                return None
        return lost

    def _note_end(self, instance: str, shrinks: bool) -> None:
        self.ended.add(instance)
        self._unsettle()
        self._shrunk += shrinks

    def _unsettle(self) -> None:
        """Wait anew until what was requested is known."""
        self._settling, self._seen = self._stop.now(), 0

    def _make_guarded(self) -> Guarded:
        return Guarded(self._machines, ())
