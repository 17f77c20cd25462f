"""A real kubelet with containerd on this machine, as one node of a control plane."""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.controlplane import ControlPlane, GroundError, build, operations, ports, wait_until
from tests.controlplane.process import Component, ProcessGroup
from tests.node import config, leftovers
from tests.node.containerd import Containerd

NAME = "localhost"
"""Of the node: the API server asks its kubelet for logs under this name."""

_PACKAGES = "apt-get install containerd runc containernetworking-plugins"
_SECONDS = 60.0


def programs() -> config.Programs:
    """Return where the container runtime's programs are.

    Raises:
        GroundError: we are not root, or a program is missing; the message says what to do.
    """
    if os.geteuid() != 0:
        raise GroundError("a real node needs root: run the node tests as root")
    wanted = {
        "containerd": "/usr/bin/containerd",
        "ctr": "/usr/bin/ctr",
        "runc": "/usr/sbin/runc",
        "shim": "/usr/bin/containerd-shim-runc-v2",
        "cni": "/usr/lib/cni",
    }
    missing = [path for path in wanted.values() if not Path(path).exists()]
    if missing:
        raise GroundError(f"a real node needs {', '.join(missing)}: {_PACKAGES}")
    return config.Programs(**{name: Path(path) for name, path in wanted.items()})


class RealNode:
    """The node with its ``containerd``, as a context manager; nothing of it stays behind."""

    def __init__(self, plane: ControlPlane, zone_labels: dict[str, str]) -> None:
        self._plane = plane
        self._labels = zone_labels
        self._programs = programs()
        self._stack = contextlib.ExitStack()
        self._folder = Path()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rebalancer-node-"))
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        processes = ProcessGroup(self._folder)
        self._stack.callback(leftovers.clean, self._folder)
        self._stack.callback(processes.close)
        leftovers.make_groups()
        self.containerd = Containerd(self._folder, self._programs)
        self.containerd.start(processes)
        kubelet = self._start_kubelet(processes)
        self._stack.callback(self._leave)
        try:
            wait_until(self._ready, _SECONDS, f"node {NAME} Ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the kubelet's last words:\n{kubelet.tail()}") from None

    def _start_kubelet(self, processes: ProcessGroup) -> Component:
        free = ports.free(["kubelet", "health"])
        path = config.write_kubelet(self._folder, free["kubelet"], free["health"])
        labels = ",".join(f"{key}={value}" for key, value in self._labels.items())
        command = [
            str(build.binary("kubelet", self._plane.options.version)),
            f"--config={path}",
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--root-dir={self._folder}/kubelet",
            f"--cert-dir={self._folder}/kubelet-pki",
            f"--hostname-override={NAME}",
            f"--node-labels={labels}",
            "--v=2",
        ]
        kubelet = processes.add("kubelet", command, self._folder / "kubelet.log")
        kubelet.start()
        return kubelet

    def _ready(self) -> bool:
        node = self._plane.api.find(f"/api/v1/nodes/{NAME}")
        return node is not None and operations.is_ready(node)

    def _leave(self) -> None:
        """Have the kubelet end the node's pods, as long as it can."""
        api = self._plane.api
        if api.find(f"/api/v1/nodes/{NAME}") is None:
            return
        api.patch(f"/api/v1/nodes/{NAME}", {"spec": {"unschedulable": True}})
        where = f"/api/v1/pods?fieldSelector=spec.nodeName={NAME}"
        for pod in api.list_all(where):
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            with contextlib.suppress(Exception):
                api.delete(path, {"gracePeriodSeconds": 1})
        deadline = time.monotonic() + 20
        while api.list_all(where) and time.monotonic() < deadline:
            time.sleep(0.5)
