"""Actions of an administrator on the embedded cluster: apply, get, delete, add and remove nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.defaults import admit, charge
from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import Json, Kind
from rebalancer.embedded.apiserver.patch import apply_patch
from rebalancer.embedded.apiserver.store import Store, clone
from rebalancer.embedded.controllers.kubelets import NODE_LOST, NODE_NOT_READY


class Administration:
    """Acts on a store as an administrator would through the API, without HTTP."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def apply(self, *objects: Mapping[str, Any]) -> list[Json]:
        """Create objects in order, or patch those that exist; return them as stored.

        Raises ``apiserver.status.ApiError`` where a server would refuse.
        """
        with self.store.lock:
            return [self._apply(manifest) for manifest in objects]

    def _apply(self, manifest: Mapping[str, Any]) -> Json:
        kind, namespace, name = _identity(manifest)
        given = clone(manifest)
        old = self.store.find(kind, namespace, name)
        if old is None:
            made = admit(self.store, kind, namespace, given)
            charge(self.store, kind, namespace, made)
            return self.store.create(kind, namespace, made)
        for field in ("kind", "apiVersion"):
            given.pop(field, None)
        merged = apply_patch("application/strategic-merge-patch+json", old, given)
        return self.store.modify(kind, old, lambda new: new.update(merged))

    def get(self, kind: str, name: str, namespace: str = "default") -> Json:
        """Return an object by kind (``Pod``) and name; ApiError if there is none."""
        of = _kind(kind)
        with self.store.lock:
            return clone(self.store.get(of, namespace if of.namespaced else "", name))

    def objects(self, kind: str, namespace: str = "") -> list[Json]:
        """Return all objects of a kind, or of one namespace, by name."""
        with self.store.lock:
            return [clone(obj) for obj in self.store.items(_kind(kind), namespace)]

    def delete(
        self, kind: str, name: str, namespace: str = "default", *, grace: int | None = None
    ) -> None:
        """Delete an object as a client would; ``grace`` replaces the pod's grace period (seconds)."""
        of = _kind(kind)
        with self.store.lock:
            obj = self.store.get(of, namespace if of.namespaced else "", name)
            delete(self.store, of, obj, {"gracePeriodSeconds": grace})

    def add_node(self, name: str, zone: str | None = None, **more: Any) -> Json:
        """Add a node; keyword arguments as for ``manifests.node``."""
        return self.apply(manifests.node(name, zone=zone, **more))[0]

    def remove_node(self, name: str) -> None:
        """Remove a node and its pods at once; Kubernetes itself removes the pods later."""
        with self.store.lock:
            self.delete("Node", name)
            for pod in self.store.items(kinds.POD):
                if pod["spec"].get("nodeName") == name:
                    delete(self.store, kinds.POD, pod, {"gracePeriodSeconds": 0})

    def cordon(self, names: Iterable[str], *, on: bool = True) -> None:
        """Make nodes unschedulable, or schedulable again."""
        self._amend_nodes(names, lambda node: node["spec"].update(unschedulable=on))

    def break_nodes(self, names: Iterable[str], *, on: bool = True, silent: bool = False) -> None:
        """Have kubelets report NotReady, or with ``silent`` stop reporting; ``on=False`` ends that."""
        flag = {NODE_LOST if silent else NODE_NOT_READY: str(on).lower()}

        def amend(node: Json) -> None:
            metadata = node["metadata"]
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **flag}

        self._amend_nodes(names, amend)

    def _amend_nodes(self, names: Iterable[str], amend: Callable[[Json], None]) -> None:
        with self.store.lock:
            for name in names:
                self.store.modify(kinds.NODE, self.store.get(kinds.NODE, "", name), amend)


def _kind(name: str) -> Kind:
    for kind in kinds.KINDS:
        if kind.kind == name:
            return kind
    known = ", ".join(kind.kind for kind in kinds.KINDS)
    raise ValueError(f"no kind {name!r}: there are {known}")


def _identity(manifest: Mapping[str, Any]) -> tuple[Kind, str, str]:
    kind = kinds.BY_NAME.get((manifest.get("apiVersion", ""), manifest.get("kind", "")))
    if kind is None:
        raise ValueError(
            f"the embedded cluster has no {manifest.get('kind')} of {manifest.get('apiVersion')}"
        )
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "default") if kind.namespaced else ""
    return kind, namespace, metadata.get("name", "")
