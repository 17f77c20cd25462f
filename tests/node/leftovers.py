"""What a kubelet and containerd need of a machine and leave on it: control groups, shims, mounts."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.node.config import CGROUP

_BASE = Path("/sys/fs/cgroup")


def make_groups() -> None:
    """Make the control group that all pods are put below; the kubelet wants to find it."""
    for path in _groups():
        path.mkdir(exist_ok=True)
    unified = _BASE / "cgroup.subtree_control"
    if unified.exists():
        unified.write_text("+cpu +cpuset +memory +pids")


def clean(folder: Path) -> None:
    """End the processes of the runtime in ``folder``, unmount what is below it, drop its control groups."""
    groups = [path for path in _groups() if path.is_dir()]
    victims = {*_shims(folder), *(pid for group in groups for pid in _members(group))}
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in victims) and time.monotonic() < deadline:
        time.sleep(0.1)
    for mount in _mounts(folder):
        subprocess.run(["/bin/umount", "--lazy", mount], check=False, capture_output=True)
    for group in groups:
        for path in sorted([group, *group.rglob("*/")], key=lambda p: len(p.parts), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()


def _groups() -> list[Path]:
    """Return the node's control group in each hierarchy (one with version 2, many with version 1)."""
    if (_BASE / "cgroup.procs").exists():
        return [_BASE / CGROUP.lstrip("/")]
    hierarchies = [path for path in _BASE.iterdir() if (path / "cgroup.procs").exists()]
    return [path / CGROUP.lstrip("/") for path in hierarchies]


def _members(group: Path) -> list[int]:
    processes: list[int] = []
    for file in group.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            processes += [int(line) for line in file.read_text().split()]
    return processes


def _shims(folder: Path) -> list[int]:
    """Return the shims that answer to our containerd: its address stands in their arguments."""
    shims = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = path.read_bytes().decode(errors="replace").split("\0")
            if "shim" in arguments[0] and any(arg.startswith(f"{folder}/") for arg in arguments):
                shims.append(int(path.parent.name))
    return shims


def _mounts(folder: Path) -> list[str]:
    """Return what is mounted below ``folder``, the innermost first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [
        point for line in reversed(lines) if (point := line.split()[1]).startswith(f"{folder}/")
    ]
