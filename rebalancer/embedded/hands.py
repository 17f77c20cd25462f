"""What people do to the embedded cluster: apply, look, delete, add nodes and take them away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.defaults import admit
from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import Kind
from rebalancer.embedded.apiserver.patch import apply_patch
from rebalancer.embedded.apiserver.quota import charge
from rebalancer.embedded.apiserver.store import Json, Store, clone
from rebalancer.embedded.controllers.kubelets import NODE_LOST, NODE_NOT_READY


class Hands:
    """Acts on a store as an administrator does through the API, without the network between."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def apply(self, *objects: Mapping[str, Any]) -> list[Json]:
        """Create objects in order, or change those that exist; return them as stored.

        Raises ``apiserver.status.ApiError`` where a server would refuse.
        """
        with self.store.lock:
            return [self._apply(manifest) for manifest in objects]

    def _apply(self, manifest: Mapping[str, Any]) -> Json:
        kind, namespace, name = _identity(manifest)
        given = clone(manifest)
        found = self.store.find(kind, namespace, name)
        if found is None:
            made = admit(self.store, kind, namespace, given)
            charge(self.store, kind, namespace, made)
            return self.store.create(kind, namespace, made)
        for field in ("kind", "apiVersion"):
            given.pop(field, None)
        merged = apply_patch("application/strategic-merge-patch+json", found, given)
        return self.store.modify(kind, found, lambda new: new.update(merged))

    def get(self, kind: str, name: str, namespace: str = "default") -> Json:
        """Return an object by kind (``Pod``) and name; ApiError if there is none."""
        of = _kind(kind)
        with self.store.lock:
            return clone(self.store.get(of, namespace if of.namespaced else "", name))

    def objects(self, kind: str, namespace: str = "") -> list[Json]:
        """Return all objects of a kind, or of one namespace, by name."""
        with self.store.lock:
            return [clone(found) for found in self.store.items(_kind(kind), namespace)]

    def delete(
        self, kind: str, name: str, namespace: str = "default", *, grace: int | None = None
    ) -> None:
        """Delete an object as a client would; pods go by their grace, or by the one given."""
        of = _kind(kind)
        with self.store.lock:
            found = self.store.get(of, namespace if of.namespaced else "", name)
            delete(self.store, of, found, {"gracePeriodSeconds": grace})

    def add_node(self, name: str, zone: str | None = None, **more: Any) -> Json:
        """Have a node join; keyword arguments as for ``manifests.node``."""
        return self.apply(manifests.node(name, zone=zone, **more))[0]

    def remove_node(self, name: str) -> None:
        """Take a node and, at once, its pods away, as a cloud does; Kubernetes itself takes a while."""
        with self.store.lock:
            self.delete("Node", name)
            for pod in self.store.items(kinds.POD):
                if pod["spec"].get("nodeName") == name:
                    delete(self.store, kinds.POD, pod, {"gracePeriodSeconds": 0})

    def cordon(self, names: Iterable[str], *, on: bool = True) -> None:
        """Make nodes unschedulable, or schedulable again."""
        self._amend_nodes(names, lambda node: node["spec"].update(unschedulable=on))

    def break_nodes(self, names: Iterable[str], *, on: bool = True, silent: bool = False) -> None:
        """Have kubelets report NotReady, or Ready again; or fall silent, or speak again."""
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
