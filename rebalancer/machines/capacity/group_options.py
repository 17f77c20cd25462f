"""What a group says of its own scaling, in the place of the policy: tags and annotations of Cluster Autoscaler.

The names and forms of the options are its (``config/const.go``; ``aws_manager.go: GetAsgOptions``,
``clusterapi_nodegroup.go: GetOptions``): what cannot be read does not count, and is warned of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rebalancer.base.durations import parse_go_duration
from rebalancer.providers.contract import NodeGroup

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""What Go's ``strconv.ParseBool`` takes."""


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The options of a group; None: as the policy says."""

    threshold: float | None = None
    """Share from which on a node stays if as much of it is requested; with 0 all nodes stay."""
    gpu_threshold: float | None = None
    """The same of nodes with GPUs."""
    unneeded_for: timedelta | None = None
    unready_for: timedelta | None = None
    provision_time: timedelta | None = None
    ignores_daemons: bool = False
    """Whether what pods of DaemonSets request counts neither as requested nor as allocatable."""


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share < float("inf"):
        raise ValueError(f"{text!r} is no share; write for example 0.5")
    return share


def _span(text: str) -> timedelta:
    span = parse_go_duration(text)
    if span < timedelta(0):
        raise ValueError(f"{text!r} is negative")
    return span


def _truth(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text in _TRUE


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "scaledownutilizationthreshold": ("threshold", _share),
    "scaledowngpuutilizationthreshold": ("gpu_threshold", _share),
    "scaledownunneededtime": ("unneeded_for", _span),
    "scaledownunreadytime": ("unready_for", _span),
    "maxnodeprovisiontime": ("provision_time", _span),
    "ignoredaemonsetsutilization": ("ignores_daemons", _truth),
}


def read_options(group: NodeGroup) -> tuple[GroupOptions, tuple[str, ...]]:
    """Return the options of a group, and what of them could not be read, in words."""
    read: dict[str, Any] = {}
    problems: list[str] = []
    for name, text in sorted(group.options.items()):
        if name not in _READ:
            problems.append(f"{group.name}: there is no option {name}")
            continue
        field, parse = _READ[name]
        try:
            read[field] = parse(text)
        except ValueError as error:
            problems.append(f"{group.name}: the option {name}: {error}; the policy's counts")
    return GroupOptions(**read), tuple(problems)
