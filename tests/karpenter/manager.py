"""Karpenter's core with its KWOK provider as a process, with the CRDs of its module, and its objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import ControlPlane, build, managers, ports

MODULE = "sigs.k8s.io/karpenter"
_DEFINITIONS = ("pkg/apis/crds", "kwok/apis/crds")
_CLASS = "default"
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")
"""The first three of the KWOK provider's."""


@contextmanager
def running(plane: ControlPlane, folder: Path, types: Path | None = None) -> Iterator[None]:
    """Install the CRDs, and run Karpenter until the end; ``folder`` gets its log, and ``types`` holds other instance types than the provider's."""
    folder.mkdir(parents=True, exist_ok=True)
    module = build.module_files("karpenter", MODULE)
    files = sorted(file for of in _DEFINITIONS for file in (module / of).glob("*.yaml"))
    managers.apply_definitions(plane, [yaml.safe_load(file.read_text()) for file in files])
    port = ports.free(["health", "metrics"])
    command = [
        # It reads the path from the environment alone.
        *("env", f"KUBECONFIG={plane.kubeconfig}"),
        str(build.binary("karpenter")),
        f"--health-probe-port={port['health']}",
        f"--metrics-port={port['metrics']}",
        "--disable-leader-election=true",
        "--batch-idle-duration=500ms",
        "--batch-max-duration=2s",
        *([] if types is None else [f"--instance-types-file-path={types}"]),
    ]
    with managers.running("karpenter", command, port["health"], folder / "karpenter.log"):
        yield


def node_class(name: str = _CLASS, delay: str = "0s") -> dict[str, Any]:
    """Return a class of KWOK nodes, which register after ``delay``."""
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": name},
        "spec": {"nodeRegistrationDelay": delay},
    }


def node_pool(
    name: str = "general",
    *,
    types: Sequence[str] = ("s-4x-amd64-linux",),
    after: str = "15s",
    policy: str = "WhenEmptyOrUnderutilized",
    budgets: Sequence[Mapping[str, Any]] = ({"nodes": "30%"},),
    of: str = _CLASS,
) -> dict[str, Any]:
    """Return a NodePool of machines of ``types`` in three zones, on demand."""
    requirements = {
        "node.kubernetes.io/instance-type": types,
        "topology.kubernetes.io/zone": ZONES,
        "karpenter.sh/capacity-type": ("on-demand",),
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "disruption": {
                "consolidationPolicy": policy,
                "consolidateAfter": after,
                "budgets": [dict(budget) for budget in budgets],
            },
            "template": {
                "spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": of,
                    },
                    "requirements": [
                        {"key": key, "operator": "In", "values": list(values)}
                        for key, values in requirements.items()
                    ],
                }
            },
        },
    }
