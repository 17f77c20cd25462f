"""The exceptions of the program, and the exit code of each.

    RebalancerError           1  our fault, unless a subclass has another code
    |- PolicyError            2  the policy, a flag or a file given on the command line is wrong
    |- ClusterReadError       3  the cluster could not be read, or denied access before the first eviction
    |  `- MarksError         3  marks could not be removed from nodes, or set; a run continues without, and ends with 4
    |- ProviderError          3  the provider of machines cannot be queried, or its answer is invalid
    |- PluginError            2  a strategy could not be loaded or broke its contract
    |- StoppedError         130  a signal came before anything was moved

The answers to an eviction are not exceptions but outcomes (``rebalancer.plan.plan``).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from rebalancer.base.early_signals import STOPPED, STOPPED_CODE


class ExitCode(enum.IntEnum):
    """Exit codes of the process. They are stable; docs/report.md lists them."""

    DONE = 0
    """Done, nothing to do, or stopped by a PDB, a budget or another run's Lease."""
    BUG = 1
    USAGE = 2
    UNREADABLE = 3
    PARTIAL = 4
    """Something planned failed or was cut off for a reason of its own."""
    MOVES_PLANNED = 10
    """A dry run with --detailed-exitcode plans moves."""
    ASKED_RED = 11
    """With --fail-on: the run ended in a state that was to be no success."""
    STOPPED = STOPPED_CODE
    """A signal came before anything was moved."""


class RebalancerError(Exception):
    """Base class of all errors that are shown without a traceback."""

    exit_code = ExitCode.BUG

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        """The lines of the message. A line end within one of them is of a foreign name or text."""

    def __format__(self, form: str) -> str:
        """Return the message as a part of another text, which is one line."""
        return format(" ".join(line.strip() for line in self.lines), form)


class PolicyError(RebalancerError):
    """The policy is invalid. The message lists all problems, each with file, line and key if known."""

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)
        self.problems = tuple(problems)


class PluginError(RebalancerError):
    """A strategy could not be loaded, or violates the plug-in contract."""

    exit_code = ExitCode.USAGE


class ClusterReadError(RebalancerError):
    """The cluster could not be read; the message names the verb, the resource and the remedy."""

    exit_code = ExitCode.UNREADABLE


class MarksError(ClusterReadError):
    """Marks could not be set on nodes, or removed from them; no pod has been moved yet."""


class ProviderError(RebalancerError):
    """The provider of machines cannot be queried; the message names the call and the remedy."""

    exit_code = ExitCode.UNREADABLE


class ProviderRefusalError(ProviderError):
    """The machine provider refused a request and certainly executed nothing of it."""


class StoppedError(RebalancerError):
    """A signal ended the command before any pod was moved."""

    exit_code = ExitCode.STOPPED

    def __init__(self) -> None:
        super().__init__(STOPPED)
