"""The configuration files of containerd and of the kubelet."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.node import images

CGROUP = "/rebalancer-node"
"""All pods of the node are below it, so that what is left of them can be looked up and removed."""


@dataclass(frozen=True)
class Programs:
    """Absolute paths, so that no other version on PATH is mixed in."""

    containerd: Path
    ctr: Path
    runc: Path
    shim: Path
    cni: Path


def write_containerd(folder: Path, programs: Programs) -> Path:
    """Write containerd's configuration, and that of the pods' network; return the former's path."""
    networks = folder / "cni"
    networks.mkdir()
    # Pods of these tests use the node's network; without any network the node would not be Ready.
    (networks / "10-bridge.conflist").write_text(json.dumps(_NETWORK))
    path = folder / "containerd.toml"
    path.write_text(f"""
version = 2
root = "{folder}/containerd-root"
state = "{folder}/containerd-state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt"]

[grpc]
  address = "{folder}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{programs.cni}"
  conf_dir = "{networks}"

[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{programs.runc}"
""")
    return path


def write_kubelet(folder: Path, port: int, health_port: int) -> Path:
    """Write the kubelet's configuration and return its path."""
    path = folder / "kubelet.yaml"
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": health_port,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": CGROUP,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["pods"],
        # Five minutes by default: tests look what it does to the conditions of others.
        "nodeStatusReportFrequency": "15s",
        # A full disk of the test machine is none of the test's business.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # One test pulls by the registry of make install what the others load: a kubelet that has pulled an image once would
        # ask a registry for it again under each other name.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "staticPodPath": "",
        "podLogsDir": f"{folder}/pod-logs",
    }
    path.write_text(yaml.safe_dump(config))
    return path


_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "node",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "rebalancer0",
            "ipam": {"type": "host-local", "subnet": "10.250.0.0/24"},
        }
    ],
}
