"""What can be set about a control plane."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.controlplane.build import DEFAULT_VERSION

ALL_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
"""In the order in which they are started."""


@dataclass(frozen=True)
class Options:
    """Settings of a `ControlPlane`; the defaults suit most tests."""

    version: str = DEFAULT_VERSION
    """Kubernetes version of the four components."""

    components: Sequence[str] = ALL_COMPONENTS
    """Which of them to run."""

    scheduler_verbosity: int = 2
    """At 10 the scheduler's log holds every score of every decision."""

    scheduler_config: Mapping[str, Any] = field(default_factory=dict)
    """Merged over our KubeSchedulerConfiguration: profiles, percentageOfNodesToScore, ..."""

    audit_policy: Mapping[str, Any] | None = None
    """An audit.k8s.io/v1 Policy; the log is then `ControlPlane.audit_log`, one event a line."""

    pod_ready_after: float = 0.3
    """Seconds from a pod's binding until it is Ready (its annotation may say otherwise)."""

    pod_grace_cap: float = 1.0
    """Pods end after their own grace period, but no later than this many seconds."""

    job_duration: float = 1.0
    """Seconds that a Job's pod runs (its annotation may say otherwise)."""

    managed_nodes: Literal["all", "annotated"] = "all"
    """Whether KWOK simulates every node, or only those annotated kwok.x-k8s.io/node=fake."""

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """Given to the API server, the controller manager and the scheduler."""

    allow_privileged: bool = True
    """Whether the API server lets privileged containers in."""

    bind_address: str = "127.0.0.1"
    """Where the API server listens."""

    advertise_address: str | None = None
    """Address of the `kubernetes` Service's endpoints; without it there are none."""

    node_monitor_grace: float = 600.0
    """Seconds without a heartbeat after which a node counts as unreachable, and its pods as not ready.

    Far above the default of 40: an outage of etcd or a loaded machine holds heartbeats up for as long, and would break
    budgets with no eviction made. Tests that want a node lost say so (`stages.NODE_NOT_READY`).
    """

    extra_args: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More arguments by component name; the last one given wins."""

    directory: Path | None = None
    """Where data and logs go, kept at the end; without it, a temporary directory."""
