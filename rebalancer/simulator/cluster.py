"""The embedded cluster: everything put together, started, stepped and looked at."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from rebalancer.simulator import manifests
from rebalancer.simulator.apiserver import kinds
from rebalancer.simulator.apiserver.access import Access
from rebalancer.simulator.apiserver.api import Api
from rebalancer.simulator.apiserver.defaults import admit
from rebalancer.simulator.apiserver.deletion import delete
from rebalancer.simulator.apiserver.faults import Faults
from rebalancer.simulator.apiserver.http import Server
from rebalancer.simulator.apiserver.kinds import Kind
from rebalancer.simulator.apiserver.patch import apply_patch
from rebalancer.simulator.apiserver.quota import charge
from rebalancer.simulator.apiserver.store import Json, Store, clone
from rebalancer.simulator.clock import Clock
from rebalancer.simulator.conditions import condition, is_ready
from rebalancer.simulator.controllers.budgets import Budgets
from rebalancer.simulator.controllers.daemonsets import DaemonSets
from rebalancer.simulator.controllers.deployments import Deployments
from rebalancer.simulator.controllers.garbage import GarbageCollector, Namespaces, Quotas
from rebalancer.simulator.controllers.jobs import Jobs
from rebalancer.simulator.controllers.kubelets import NODE_NOT_READY, NodeKubelets, PodKubelets
from rebalancer.simulator.controllers.nodes import NodeLifecycle, PodCollector, TaintEviction
from rebalancer.simulator.controllers.picture import Picture
from rebalancer.simulator.controllers.pods import is_terminating
from rebalancer.simulator.controllers.replicasets import ReplicaSets
from rebalancer.simulator.controllers.scheduling import MakePlacer, ModelPlacer, Scheduling
from rebalancer.simulator.controllers.statefulsets import StatefulSets
from rebalancer.simulator.engine import Engine, Timings
from rebalancer.snapshot.model import Snapshot

TOKEN = "embedded-cluster-admin"  # noqa: S105 - opens nothing but a loopback port of this process
_USER = "system:serviceaccount:kube-system:embedded-admin"
_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_LONGEST_WAIT = 1.0
_SETTLE_SECONDS = 120.0


class EmbeddedCluster:
    """A small Kubernetes in this process, as a context manager.

    With a clock that runs, a thread lets the cluster live; with one that stands (``Clock(start)``), nothing
    happens but in :meth:`advance` and :meth:`settle`, in exactly the same order every time. Everything that
    is random (names, uids, choices among equally good nodes) depends on ``seed`` alone.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        seed: int = 0,
        timings: Timings | None = None,
        version: tuple[int, int] = (1, 36),
        make_placer: MakePlacer = ModelPlacer,
    ) -> None:
        self.clock = clock if clock is not None else Clock(time.time(), time.time)
        self.timings = timings or Timings()
        self.access = Access(tokens={TOKEN: _USER})
        """Tokens that are known, and what is denied to everybody."""
        self.faults = Faults()
        """What goes wrong on purpose, and the requests so far."""
        self.store = Store(self.clock, seed)
        self._engine = Engine(self.store, self.timings)
        self._picture = Picture(self.store, version)
        self._api = Api(self.store, self.access, version)
        self._scheduling = Scheduling(self._engine, self._picture, make_placer)
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

    # -- how to reach it ---------------------------------------------------------------------------

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
        """Write a kubeconfig for a token, known or not, and return its path."""
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
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    # -- what stands in it -------------------------------------------------------------------------

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

    def break_nodes(self, names: Iterable[str], *, on: bool = True) -> None:
        """Have kubelets report NotReady, or Ready again."""
        flag = {NODE_NOT_READY: str(on).lower()}

        def amend(node: Json) -> None:
            metadata = node["metadata"]
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **flag}

        self._amend_nodes(names, amend)

    def _amend_nodes(self, names: Iterable[str], amend: Any) -> None:
        with self.store.lock:
            for name in names:
                self.store.modify(kinds.NODE, self.store.get(kinds.NODE, "", name), amend)

    def snapshot(self) -> Snapshot:
        """Return the present state as the rebalancer sees it, without asking over HTTP."""
        with self.store.lock:
            return self._picture.snapshot()

    def forget_history(self) -> None:
        """Compact: continue tokens and versions given out so far answer 410 from now on."""
        with self.store.lock:
            self.store.forget()
            self._api.pager.forget()

    # -- time --------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass at once: everything that is due meanwhile happens in its order."""
        with self.store.lock:
            self._check()
            self._engine.run_until(self.clock.now() + seconds)

    def catch_up(self) -> None:
        """Let a cluster whose clock began in the past live up to the present."""
        self.advance(max(0.0, self.clock.lag()))

    def settle(self, timeout: float = _SETTLE_SECONDS) -> None:
        """Wait until nothing is pending, starting or terminating; pods that fit nowhere may stay so.

        With a standing clock, time is advanced from event to event, ``timeout`` cluster seconds at most.

        Raises TimeoutError, naming what is still in motion.
        """
        with self.store.lock:
            end = self.clock.now() + timeout
            self._settle_step()
            while moving := self._moving():
                upcoming = self._engine.next_timer()
                if self.clock.now() >= end or (not self.clock.runs and upcoming is None):
                    raise TimeoutError(f"after {timeout:g} s still moving: {', '.join(moving[:5])}")
                if self.clock.runs:
                    self.store.changed.wait(min(_LONGEST_WAIT, max(0.0, end - self.clock.now())))
                    self._check()
                elif upcoming is not None:
                    self._engine.run_until(min(upcoming, end))
                self._settle_step()

    def _settle_step(self) -> None:
        """Draining here, with the lock held, is the same as letting the thread do it."""
        self._check()
        self._engine.drain()

    def _moving(self) -> list[str]:
        nodes = [
            f"node {node['metadata']['name']}"
            for node in self.store.items(kinds.NODE)
            if not is_ready(node) and not _is_broken(node)
        ]
        return nodes + [
            f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in self.store.items(kinds.POD)
            if not self._at_rest(pod)
        ]

    def _at_rest(self, pod: Json) -> bool:
        node = self.store.find(kinds.NODE, "", pod["spec"].get("nodeName", ""))
        if node is not None and not is_ready(node):
            return True
        if is_terminating(pod):
            return False
        if pod["status"]["phase"] == "Pending":
            scheduled = condition(pod["status"], "PodScheduled") or {}
            return scheduled.get("status") == "False"
        return True

    # -- life --------------------------------------------------------------------------------------

    def _live(self) -> None:
        """Let the cluster live in its own thread, until it is left."""
        with self.store.lock:
            try:
                while not self._stopping:
                    self._engine.run_due(self.clock.now())
                    upcoming = self._engine.next_timer()
                    pause = _LONGEST_WAIT if upcoming is None else upcoming - self.clock.now()
                    if self._engine.idle and not self._stopping:
                        self.store.changed.wait(min(_LONGEST_WAIT, max(0.0, pause)))
            except BaseException as error:  # noqa: BLE001 - shown by the next call of its user
                self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the embedded cluster has stopped living") from self._failure


def _controllers(engine: Engine, scheduling: Scheduling) -> list[Any]:
    return [
        NodeKubelets(engine),
        NodeLifecycle(engine),
        TaintEviction(engine),
        GarbageCollector(engine),
        PodCollector(engine),
        Namespaces(engine),
        Quotas(engine),
        Deployments(engine),
        ReplicaSets(engine),
        ReplicaSets(engine, kinds.CONTROLLER),
        StatefulSets(engine),
        DaemonSets(engine),
        Jobs(engine),
        scheduling,
        PodKubelets(engine),
        Budgets(engine),
    ]


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


def _is_broken(node: Json) -> bool:
    return (node["metadata"].get("annotations") or {}).get(NODE_NOT_READY) == "true"
