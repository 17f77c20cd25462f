"""The embedded cluster: API server, controllers and clock, as a context manager."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver import kinds
from rebalancer.embedded.apiserver.api import AccessControl, Api, apply_patch
from rebalancer.embedded.apiserver.defaults import admit
from rebalancer.embedded.apiserver.eviction import delete
from rebalancer.embedded.apiserver.http import Faults, Server
from rebalancer.embedded.apiserver.kinds import Json, Kind, condition, is_ready
from rebalancer.embedded.apiserver.store import EmbeddedClock, Store, clone
from rebalancer.embedded.controllers.deployments import (
    DaemonSets,
    Deployments,
    GarbageCollector,
    Jobs,
    NamespaceController,
    ReplicaSets,
    StatefulSets,
)
from rebalancer.embedded.controllers.nodes import (
    NODE_LOST,
    NODE_NOT_READY,
    NodeKubelets,
    NodeLifecycle,
    PodCollector,
    PodKubelets,
    TaintEviction,
)
from rebalancer.embedded.controllers.pods import DisruptionController, is_terminating
from rebalancer.embedded.controllers.scheduling import (
    MakePlacer,
    ModelPlacer,
    SchedulerLoop,
    StoreSnapshots,
)
from rebalancer.embedded.engine import Controller, Durations, Engine
from rebalancer.snapshot.model import Snapshot


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


TOKEN = "embedded-cluster-admin"  # noqa: S105 - opens nothing but a loopback port of this process
_USER = "system:serviceaccount:kube-system:embedded-admin"
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_MAX_WAIT = 1.0
_SETTLE_SECONDS = 120.0


class EmbeddedCluster(Administration):
    """A small Kubernetes in this process, as a context manager.

    With a clock that runs, the controllers act in a thread. With a clock that does not (``EmbeddedClock(start)``), they act
    only in :meth:`advance` and :meth:`settle`, in the same order every time. Everything random (names, uids,
    choices among equally good nodes) depends only on ``seed``.
    """

    def __init__(
        self,
        clock: EmbeddedClock | None = None,
        *,
        seed: int = 0,
        timings: Durations | None = None,
        version: tuple[int, int] = (1, 36),
        make_placer: MakePlacer = ModelPlacer,
    ) -> None:
        self.clock = clock if clock is not None else EmbeddedClock(time.time(), time.time)
        self.timings = timings or Durations()
        self.access = AccessControl(tokens={TOKEN: _USER})
        """Known tokens, and denied verbs."""
        self.faults = Faults()
        """Injected faults, and the log of requests."""
        super().__init__(Store(self.clock, seed))
        self._engine = Engine(self.store, self.timings)
        self._snapshots = StoreSnapshots(self.store, version)
        self._api = Api(self.store, self.access, version)
        self._scheduling = SchedulerLoop(self._engine, self._snapshots, make_placer)
        self._engine.add(_controllers(self._engine, self._scheduling))
        self._server: Server | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        for name in _NAMESPACES:
            self.apply(manifests.namespace(name))
        self._server = Server(self._api, self.faults, self.clock.now)
        self._directory = tempfile.TemporaryDirectory(prefix="embedded-cluster-")
        if self.clock.runs:
            self._thread = threading.Thread(target=self._live, name="cluster", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.store.lock:
            self._stopping = True
            self.store.changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        bugs: list[BaseException] = []
        if self._server is not None:
            self._server.close()
            bugs = self._server.errors
        if self._directory is not None:
            self._directory.cleanup()
        if error is None:
            self._check()
            if bugs:
                raise RuntimeError("the embedded API server failed to answer") from bugs[0]

    # -- access ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address of the API server, ``http://127.0.0.1:PORT``."""
        if self._server is None:
            raise RuntimeError("the embedded cluster was not started")
        return self._server.url

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with the administrator's token."""
        return self.write_kubeconfig("admin", TOKEN)

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig for a token, which need not be known, and return its path."""
        if self._directory is None:
            raise RuntimeError("the embedded cluster was not started")
        path = Path(self._directory.name) / f"{name}.kubeconfig"
        named = {"name": "embedded"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "embedded",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": {"token": token}}],
            "contexts": [{**named, "context": {"cluster": "embedded", "user": "embedded"}}],
        }
        # Whole or not at all: another thread may read it while it is written again.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(yaml.safe_dump(config))
        return Path(file.name).replace(path)

    def on_post(self, path: str, action: Callable[[], Json]) -> None:
        """Have the server call ``action`` at a POST to ``path``, and answer with its result."""
        self._api.actions[path] = action

    # -- state -------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the present state as a snapshot, without HTTP."""
        with self.store.lock:
            return self._snapshots.snapshot()

    def forget_history(self) -> None:
        """Compact: earlier continue tokens and versions answer 410 from now on."""
        with self.store.lock:
            self.store.forget()
            self._api.pager.forget()

    # -- time --------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Advance the time: everything that is due until then happens in order."""
        with self.store.lock:
            self._check()
            self._engine.run_until(self.clock.now() + seconds)

    def catch_up(self) -> None:
        """Advance a cluster whose clock began in the past to the present."""
        self.advance(max(0.0, self.clock.lag()))

    def settle(self, timeout: float = _SETTLE_SECONDS) -> None:
        """Wait until nothing is pending, starting or terminating, except pods that fit on no node.

        If the clock has no source, time is advanced from event to event, ``timeout`` cluster seconds at most.

        Raises TimeoutError, which names the objects that are still changing.
        """
        with self.store.lock:
            end = self.clock.now() + timeout
            self._settle_step()
            while moving := in_motion(self.store):
                upcoming = self._engine.next_timer()
                if self.clock.now() >= end or (not self.clock.runs and upcoming is None):
                    raise TimeoutError(f"after {timeout:g} s still moving: {', '.join(moving[:5])}")
                if self.clock.runs:
                    self.store.changed.wait(min(_MAX_WAIT, max(0.0, end - self.clock.now())))
                    self._check()
                elif upcoming is not None:
                    self._engine.run_until(min(upcoming, end))
                self._settle_step()

    def _settle_step(self) -> None:
        """Run the controllers here, under the lock, instead of in the thread."""
        self._check()
        self._engine.drain()

    # -- the thread of a cluster whose clock runs --------------------------------------------------

    def _live(self) -> None:
        """Run timers and controllers until the context manager exits."""
        with self.store.lock:
            try:
                while not self._stopping:
                    self._engine.run_due(self.clock.now())
                    upcoming = self._engine.next_timer()
                    pause = _MAX_WAIT if upcoming is None else upcoming - self.clock.now()
                    if self._engine.idle and not self._stopping:
                        self.store.changed.wait(min(_MAX_WAIT, max(0.0, pause)))
            except BaseException as error:  # noqa: BLE001 - shown by the next call of its user
                self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the embedded cluster has failed") from self._failure


def _controllers(engine: Engine, scheduling: SchedulerLoop) -> list[Controller]:
    return [
        NodeKubelets(engine),
        NodeLifecycle(engine),
        TaintEviction(engine),
        GarbageCollector(engine),
        PodCollector(engine),
        NamespaceController(engine),
        Deployments(engine),
        ReplicaSets(engine),
        StatefulSets(engine),
        DaemonSets(engine),
        Jobs(engine),
        scheduling,
        PodKubelets(engine),
        DisruptionController(engine),
    ]


def in_motion(store: Store) -> list[str]:
    """Return the nodes and pods that are starting, pending or terminating, as ``pod namespace/name``.

    Nodes broken by annotation with their pods, and pods that fit on no node, count as settled.
    """
    nodes = [
        f"node {node['metadata']['name']}"
        for node in store.items(kinds.NODE)
        if not is_ready(node) and not _is_broken(node)
    ]
    return nodes + [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in store.items(kinds.POD)
        if not _is_settled(store, pod)
    ]


def _is_settled(store: Store, pod: Json) -> bool:
    name = pod["spec"].get("nodeName", "")
    node = store.find(kinds.NODE, "", name)
    if name and (node is None or not is_ready(node)):
        return True
    if is_terminating(pod):
        return False
    if pod["status"]["phase"] != "Pending":
        return True
    return (condition(pod["status"], "PodScheduled") or {}).get("status") == "False"


def _is_broken(node: Json) -> bool:
    annotations = node["metadata"].get("annotations") or {}
    return "true" in (annotations.get(NODE_NOT_READY), annotations.get(NODE_LOST))
