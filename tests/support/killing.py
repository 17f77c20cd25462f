"""SIGKILL for a process that runs in a thread of the test: nothing of it reaches anything any more."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.kube.client import Client


class Killed(BaseException):
    """The process was killed."""


class Killing:
    """Kills at the write after so many: before it is done, or right after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool = True) -> None:
        self._monkeypatch, self._after = monkeypatch, after
        self.begin(10**6)
        call = Client._call

        def of_client(client: Client, method: str, *positional: Any, **named: Any) -> Any:
            writes = method != "GET" and "selfsubject" not in str(positional)
            return self._pass(lambda: call(client, method, *positional, **named), writes=writes)

        monkeypatch.setattr(Client, "_call", of_client)

    def watch(self, owner: object, name: str) -> None:
        """Count calls of this method as writes, too."""
        method = getattr(owner, name)
        self._monkeypatch.setattr(
            owner, name, lambda *of: self._pass(lambda: method(*of), writes=True)
        )

    def begin(self, writes: int) -> None:
        """Begin a process that is killed at its write number ``writes``."""
        self.left, self.dead = writes, False

    def _pass(self, act: Callable[[], Any], *, writes: bool) -> Any:
        if self.dead or (writes and self.left <= 0 and not self._after):
            self.dead = True
            raise Killed
        answer = act()
        self.left -= writes
        if self._after and self.left <= 0:
            self.dead = True
            raise Killed
        return answer
