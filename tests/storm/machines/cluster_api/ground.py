"""Cluster API on the control plane of a storm, and what of its objects is watched."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.capi import infrastructure, manager
from tests.capi.ground import Ground
from tests.capi.infrastructure import NAMESPACE
from tests.controlplane import ControlPlane
from tests.storm.machines.cluster_api.deeds import MACHINE, OWNERS

PATHS: Mapping[str, str] = {
    kind: f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/{kind.lower()}s"
    for kind in (*OWNERS, MACHINE)
}
"""Kind -> path of its list."""
RULES: list[dict[str, list[str]]] = [
    {
        "apiGroups": ["cluster.x-k8s.io"],
        "resources": ["clusters", "machinedeployments", "machinesets", "machines"],
        "verbs": ["get", "list", "patch"],
    },
    {"apiGroups": [infrastructure.GROUP], "resources": ["*"], "verbs": ["get", "list"]},
]
"""What docs/cluster-api.md names."""


@contextmanager
def cluster_api(plane: ControlPlane, folder: Path) -> Iterator[Ground]:
    """Run Cluster API's controllers and our infrastructure; ``folder``: others may have theirs there, too."""
    own = Path(tempfile.mkdtemp(prefix="cluster-api-", dir=folder))
    with manager.running(plane, own) as log, infrastructure.working(plane) as provider:
        yield Ground(plane, provider, log)
