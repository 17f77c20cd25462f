"""The same cluster again and again: etcd's data is kept aside, and put back for every contender."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.controlplane import ControlPlane

_CLIENTS = ("kwok", "kube-scheduler", "kube-controller-manager")


class Checkpoint:
    """A state of a control plane, names and uids included.

    It can be put back into another control plane than the one it is of, of the same version.
    """

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        """``folder`` holds the state, or will."""
        self._plane, self._kept = plane, folder
        self._data = plane.directory / "etcd"

    @property
    def exists(self) -> bool:
        """Whether a state was saved."""
        return self._kept.is_dir()

    def save(self) -> None:
        """Keep the state as it is now."""
        self._stop(gently=True)
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self._data, self._kept)
        self._start()

    def restore(self) -> None:
        """Put the state back; everything that watched the server starts afresh."""
        self._stop(gently=False)
        shutil.rmtree(self._data)
        shutil.copytree(self._kept, self._data)
        self._start()

    def _stop(self, *, gently: bool) -> None:
        for name in (*_CLIENTS, "kube-apiserver"):
            self._plane.stop(name, kill=True)
        # A gentle end leaves nothing in memory; where the data is thrown away it does not matter.
        self._plane.stop("etcd", kill=not gently)

    def _start(self) -> None:
        for name in ("etcd", "kube-apiserver", *reversed(_CLIENTS)):
            self._plane.start(name)
