"""Remove the machine of an empty node by a user-defined command or HTTP request. No shell is used."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rebalancer.base.errors import PolicyError
from rebalancer.base.sending import SendingError, attempt, check_url, place

SECONDS = 300.0
"""For one node; a process that began to remove a machine longer ago than that was killed."""
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ReplaceHook:
    """A command or URL, called once per empty node; called again if the caller was killed."""

    command: tuple[str, ...] = ()
    """The node's name is added as the last argument."""
    url: str = ""
    """Gets a POST with ``{"node": ..., "providerID": ...}``; any answer of 2xx is a success."""

    @classmethod
    def parse(cls, text: str) -> ReplaceHook:
        """Parse the value of ``--then``.

        Raises:
            PolicyError: it is neither a command nor a URL.
        """
        if text.startswith(("http://", "https://")):
            try:
                return cls(url=check_url(text))
            except SendingError as error:
                raise PolicyError([f"--then: {error}"]) from None
        try:
            command = tuple(shlex.split(text))
        except ValueError as error:
            raise PolicyError([f"--then: {error}: {text}"]) from None
        if not command:
            raise PolicyError(["--then: write a command, or an http(s) address"])
        return cls(command=command)

    def call(self, node: str, provider_id: str, environ: Mapping[str, str]) -> str | None:
        """Remove the machine of a node; return why that failed, or None."""
        return self._post(node, provider_id) if self.url else self._run(node, provider_id, environ)

    def _run(self, node: str, provider_id: str, environ: Mapping[str, str]) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603  (the command is the caller's own)
                [*self.command, node],
                env={**environ, "PROVIDER_ID": provider_id},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self.command[0]}: {error}"
        if done.returncode == 0:
            return None
        said = " ".join((done.stderr or done.stdout).split())[-_SHOWN:]
        return f"{self.command[0]} exited with {done.returncode}{f': {said}' if said else ''}"

    def _post(self, node: str, provider_id: str) -> str | None:
        body = msgspec.json.encode({"node": node, "providerID": provider_id})
        headers = {"Content-Type": "application/json"}
        why = attempt("POST", self.url, body, headers, SECONDS)
        return None if why is None else f"{place(self.url)} {why}"
