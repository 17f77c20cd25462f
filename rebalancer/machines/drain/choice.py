"""Choose the nodes to drain: by name, by labels, by kubelet version, by age."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.base.plain_text import printable
from rebalancer.kube.nodes import NodeView
from rebalancer.policy.select import parse_selector
from rebalancer.snapshot.columns import Bools
from rebalancer.snapshot.labels import matches
from rebalancer.snapshot.model import Snapshot

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The conditions that all chosen nodes meet; empty or None conditions are ignored."""

    names: Sequence[str] = ()
    selector: str | None = None
    kubelet_below: str | None = None
    older_than: float | None = None
    """Seconds since the Node was created."""

    def of(self, snapshot: Snapshot) -> list[str]:
        """Return the names of the chosen nodes in the snapshot's order; may be empty with a condition on age.

        Raises:
            PolicyError: a named node does not exist, the version is invalid, or no node has the labels.
            ClusterReadError: the kubelet of a node reports an invalid version.
        """
        missing = [name for name in self.names if name not in snapshot.nodes.index]
        if missing:
            raise PolicyError([f"there is no node {printable(name)}" for name in missing])
        labelled = self._labelled(snapshot)
        if not labelled.any():
            raise PolicyError([f"no node is selected by -l {printable(self.selector or '')}"])
        return [
            name
            for node, name in enumerate(snapshot.nodes.names)
            if self._named(name) and labelled[node] and self._outdated(snapshot, node)
        ]

    def still_has(self, node: NodeView) -> bool:
        """Return whether a chosen node still meets the conditions; its age only grows.

        Raises:
            ClusterReadError: its kubelet reports an invalid version.
        """
        if self.selector is not None and not matches(
            parse_selector(self.selector).wire(), node.labels
        ):
            return False
        below = self.kubelet_below
        return below is None or _is_below(node.name, node.kubelet, below)

    def _named(self, name: str) -> bool:
        return not self.names or name in self.names

    def _labelled(self, snapshot: Snapshot) -> Bools:
        """Return which nodes (N,) match the label selector."""
        if self.selector is None:
            return np.ones(len(snapshot.nodes), bool)
        return snapshot.nodes_matching(parse_selector(self.selector))

    def _outdated(self, snapshot: Snapshot, node: int) -> bool:
        nodes = snapshot.nodes
        below = self.kubelet_below
        if below is not None and not _is_below(nodes.names[node], nodes.kubelet[node], below):
            return False
        if self.older_than is not None:
            return bool(snapshot.captured_at - nodes.created[node] > self.older_than)
        return True


def _is_below(node: str, kubelet: str, below: str) -> bool:
    # Of a node whose kubelet has not said its version nothing is known: it stays.
    return bool(kubelet) and _kubelet_version(node, kubelet) < version_of(below)


def _kubelet_version(node: str, text: str) -> tuple[int, int, int]:
    try:
        return version_of(text)
    except PolicyError:
        said = f"the kubelet of node {node} says version {printable(text)}, which is none"
        raise ClusterReadError(
            f"{said}: leave the node out with -l, or choose nodes without --kubelet-below"
        ) from None


def version_of(text: str) -> tuple[int, int, int]:
    """Parse ``v1.36.3`` as numbers; a suffix (``-eks-1234``) is ignored.

    Raises:
        PolicyError: the text is not a version.
    """
    match = _VERSION.match(text)
    if match is None:
        raise PolicyError([f"{printable(text)} is no version; write 1.36 or v1.36.3"])
    return int(match[1]), int(match[2]), int(match[3] or 0)
