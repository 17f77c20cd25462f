"""What the peer's log tells of one run: how much of the cluster it saw, and what it tried to evict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

_USAGE = re.compile(
    r'" plugin="LowNodeUtilization" .*node="(?P<node>[^"]+)" usage=\{(?P<usage>[^}]*)\}'
)
_PODS = re.compile(r'"pods":"(\d+)"')
_TRIED = re.compile(r'"Error evicting pod".* pod="([^"]+)"')
_FAILED = re.compile(r'"eviction failed" (?:.*\bplugin="(\w+)")?')
_NAMELESS = "LowNodeUtilization"
"""Its failures are logged without a plug-in's name (``nodeutilization.go``)."""
_ENDED = "Number of evictions/requests"


@dataclass(frozen=True, slots=True)
class PeerLog:
    """One run of the peer with a token that may only read, so that each eviction is refused."""

    complete: bool
    """Whether it came to its end."""
    nodes: int
    pods: int
    """Nodes and the pods on them that its LowNodeUtilization saw: all, or the run is worth nothing."""
    tried: int
    """Pods that it tried to evict, each counted once."""
    attempts: Mapping[str, int]
    """Plug-in -> attempts. A pod may be tried by several; LowNodeUtilization, whose evictions are all
    refused, goes on through every pod of an over-used node."""


def parse(log: str) -> PeerLog:
    """Return what the log of one run (``--v=1``) tells."""
    seen = {match["node"]: match["usage"] for match in _USAGE.finditer(log)}
    return PeerLog(
        complete=_ENDED in log,
        nodes=len(seen),
        pods=sum(int(count) for usage in seen.values() for count in _PODS.findall(usage)),
        tried=len(set(_TRIED.findall(log))),
        attempts=Counter(name or _NAMELESS for name in _FAILED.findall(log)),
    )
