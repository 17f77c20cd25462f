"""The cluster of a storm: workloads that drifted, and what is done to them beside a run."""

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.controlplane import ControlPlane, objects, operations, stages, wait_until
from tests.controlplane.api import ApiError
from tests.storm.schedule import Act, Scenario
from tests.storm.witnesses import APPS, LEASE, MEMORY, MEMORY_KEY, OPS, hour_count, marks_on

_NODES = {f"{zone}-{i}": f"zone-{zone}" for zone in "abc" for i in range(2)}
_LATE = [name for name, zone in _NODES.items() if zone == "zone-c"]
_TENANT = "tenant"
_PODS = f"/api/v1/namespaces/{APPS}/pods"
_BUDGETS = f"/apis/policy/v1/namespaces/{APPS}/poddisruptionbudgets"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPS}/leases"
_MEMORIES = f"/api/v1/namespaces/{OPS}/configmaps"
_EVENTS = "/apis/events.k8s.io/v1/events"
_AT_ONCE = "50ms"
_GLANCE = 0.3
_NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

BUDGETS = {"inFlight": 3, "perNode": 5, "perRun": 10, "perHour": 20, "marks": 3}
LEFT_OF_HOUR = 2
"""Evictions that are left of the hour in runs that begin with most of it used up."""
_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
steer: {steer}
budgets: {budgets}
protect: {{minPodAge: 0s}}
safety: {{maxReadyTime: 5m}}
strategies:
  topology-spread: {spread}
  anti-affinity: {{}}
"""
POLICY = _POLICY.format(steer="off", budgets=json.dumps(BUDGETS), spread="{}")
_STEERED = {"steered": "yes"}
"""Label of the workloads whose landings need marks."""
STEERED_POLICY = _POLICY.format(
    steer="marks",
    budgets=json.dumps(BUDGETS),
    spread=json.dumps({"defaults": [{"labels": _STEERED, "topologyKey": objects.ZONE}]}),
)
_PINS = ("pin", "tack")
"""Workloads that are steered: each has one pod to move to the late zone, where nodes are nearly full."""
GANG = 3
"""Pods of the gang: one of them stands where it must not, and all have to leave."""
_TEAM = {"key": "team", "value": "x", "effect": "PreferNoSchedule"}
"""A taint of others, which is to stay."""

_DEPTH = 3000
_NONSENSE = (
    f'{{"version": 1, "owners": {{}}, "streaks": {{}}, "colour": {"[" * _DEPTH}{"]" * _DEPTH}}}'
)
_NEWER = '{"version": 99, "owners": [], "evictions": {"hour": 20}}'


class World:
    """Workloads in a namespace of their own, recreated for every scenario."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane, self._api = plane, plane.api
        self._number = 0
        self._steered = self._gangs = False
        self._given: dict[str, str] = {}
        self.opted_out: dict[str, str] = {}
        self.desired: dict[str, int] = {}
        plane.apply(objects.namespace(name) for name in (APPS, OPS))
        plane.apply(_node(name) for name in _NODES if name not in _LATE)
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        plane.apply([{**lease, "metadata": {"name": LEASE, "namespace": OPS}}])
        memory = {"apiVersion": "v1", "kind": "ConfigMap"}
        plane.apply([{**memory, "metadata": {"name": MEMORY, "namespace": OPS}}])
        account = f"/api/v1/namespaces/{APPS}/serviceaccounts/default"
        wait_until(lambda: self._api.find(account), 30, "the namespace's ServiceAccount")

    def prepare(self, scenario: Scenario) -> None:
        """Make the workloads while a zone is away, bring the zone back, do what is due before the run."""
        self._number += 1
        self._steered, self._gangs = scenario.steered, scenario.gangs
        self._repair()
        self._clear()
        self.opted_out = {}
        self.forget()
        self._taint()
        manifests = self._workloads(scenario.ready_after)
        self.desired = {
            manifest["metadata"]["name"]: manifest["spec"]["replicas"]
            for manifest in manifests
            if "replicas" in manifest["spec"]
        }
        self._plane.apply(manifests)
        with self.hurrying():
            operations.wait_pods_ready(self._api, sum(self.desired.values()), 60, namespace=APPS)
        self._plane.apply(_node(name) for name in _LATE)
        operations.wait_nodes_ready(self._api, len(_NODES))
        if self._steered:
            self._plane.apply(_filler(name) for name in _LATE)
            operations.wait_pods_ready(self._api, len(_LATE), 60, namespace=OPS)
        self._wait_budgets()

    def marked(self) -> list[str]:
        """Return the nodes that carry a mark."""
        nodes = self._api.list_all("/api/v1/nodes")
        return [node["metadata"]["name"] for node in nodes if marks_on(node)]

    def _taint(self) -> None:
        """Have no mark on any node, and a taint of others on one where landings are steered.

        Each node changes by it, so that the witnesses know all taints from the beginning.
        """
        for name in set(_NODES) - set(_LATE):
            taints = [_TEAM] if self._steered and name == "a-0" else None
            annotations = {"storm/number": str(self._number)}
            body = {"metadata": {"annotations": annotations}, "spec": {"taints": taints}}
            self._api.patch(f"/api/v1/nodes/{name}", body)

    @contextlib.contextmanager
    def hurrying(self) -> Iterator[None]:
        """Let pods that are slow to be Ready be so at once, for as long as it is open."""
        over = threading.Event()
        thread = threading.Thread(target=self._hurry, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _hurry(self, over: threading.Event) -> None:
        while not over.wait(_GLANCE):
            for pod in operations.pods(self._api, APPS):
                slow = pod["metadata"].get("annotations", {}).get(stages.READY_AFTER) != _AT_ONCE
                if slow and not operations.is_ready(pod):
                    path = f"{_PODS}/{pod['metadata']['name']}"
                    self._annotate(path, stages.READY_AFTER, _AT_ONCE)

    @property
    def expected(self) -> dict[str, list[int]]:
        """App -> pods per zone, sorted, when nothing can be gained any more; not for those that never move."""
        return {
            app: [count // 3] * 3
            for app, count in self.desired.items()
            if not app.startswith("calm-")
        }

    @property
    def least(self) -> int:
        """Evictions of the undisturbed plan."""
        return sum(count // 3 for count in self.desired.values()) - 1

    def zones(self) -> dict[str, list[int]]:
        """App -> pods per zone, sorted."""
        standing: dict[str, Counter[str]] = {app: Counter() for app in self.expected}
        for pod in operations.pods(self._api, APPS):
            app = pod["metadata"]["labels"]["app"]
            if app in standing and "deletionTimestamp" not in pod["metadata"]:
                standing[app][_NODES.get(pod["spec"].get("nodeName", ""), "none")] += 1
        return {app: sorted(count.values()) for app, count in standing.items()}

    def do(self, act: Act) -> None:
        """Do one act of those that concern the cluster."""
        acts = {
            "opt-out": self._opt_out,
            "stale status": self._stale_status,
            "budget edited": self._edit_budgets,
            "hour nearly used": self._use_hour,
            "hostile quantities": self._hostile_quantities,
            "pods unready": self._pods_unready,
            "memory nonsense": lambda: self._give_memory(_NONSENSE),
            "memory newer": lambda: self._give_memory(_NEWER),
            "hostile anti-affinity": self._hostile_anti_affinity,
            "node not ready": lambda: self._not_ready(["c-1"]),
            "nodes not ready": self._nodes_not_ready,
            "controller manager stopped": self._stop_controllers,
            "pods pending": lambda: operations.cordon(self._api, _NODES),
            "owner unready": self._owner_unready,
        }
        acts[act.name]()

    def calm(self, seconds: float = 60.0) -> None:
        """Undo what was done beside the run, and wait until all stands still."""
        self._repair()
        for pod in operations.pods(self._api, APPS):
            annotations = pod["metadata"].get("annotations", {})
            for key in (stages.NEVER_READY, "rebalancer/evict"):
                if key in annotations:
                    self._annotate(f"{_PODS}/{pod['metadata']['name']}", key, None)
        self._clear_tenant()
        operations.wait_nodes_ready(self._api, len(_NODES))
        self._plane.apply(self._budgets())
        operations.wait_pods_ready(self._api, sum(self.desired.values()), seconds, namespace=APPS)
        # The server spends a budget before it deletes the pod, and gives it back after two minutes where its
        # client died in between; so much time passes here.
        for budget in self._api.list_all(_BUDGETS):
            if budget.get("status", {}).get("disruptedPods"):
                path = f"{_BUDGETS}/{budget['metadata']['name']}/status"
                self._api.patch(path, {"status": {"disruptedPods": None}})
        self._wait_budgets()

    def _repair(self) -> None:
        """Undo what was done to nodes and controllers."""
        os.kill(self._plane.pid("kube-controller-manager"), signal.SIGCONT)
        for name in _NODES:
            self._annotate(f"/api/v1/nodes/{name}", stages.NODE_NOT_READY, None)
            if self._api.find(f"/api/v1/nodes/{name}") is not None:
                operations.cordon(self._api, [name], on=False)

    def forget(self) -> None:
        """Empty the Lease and the memory."""
        self._api.patch(f"{_LEASES}/{LEASE}", {"spec": None})
        self._give_memory("")

    def hour(self) -> int | None:
        """Return how many evictions the memory counts; None if it says nothing that can be read."""
        data = self._api.get(f"{_MEMORIES}/{MEMORY}").get("data") or {}
        if data.get(MEMORY_KEY, "") == self._given.get(MEMORY_KEY, ""):
            return self.hour_given
        return hour_count(data)

    @property
    def hour_given(self) -> int:
        """What the memory counted before the run."""
        text = self._given.get(MEMORY_KEY, "")
        if text in ("", _NONSENSE, _NEWER):
            return 0
        return hour_count(self._given) or 0

    def texts(self) -> list[str]:
        """Return what the product has written into the cluster."""
        notes = [str(event.get("note", "")) for event in self._api.list_all(_EVENTS)]
        memory = self._api.get(f"{_MEMORIES}/{MEMORY}").get("data") or {}
        return [*notes, *memory.values()]

    def version(self) -> int:
        """Return etcd's revision."""
        return int(self._api.get(f"{_PODS}?limit=1")["metadata"]["resourceVersion"])

    # -- workloads ---------------------------------------------------------------------------------

    def _workloads(self, ready_after: float) -> list[dict[str, Any]]:
        def name(app: str) -> str:
            return f"{app}-{self._number}"

        def more(app: str, **spec: Any) -> dict[str, Any]:
            return {
                "namespace": APPS,
                "labels": {"app": name(app)},
                "pod_annotations": {stages.READY_AFTER: f"{ready_after:g}s"},
                **spec,
            }

        def even(app: str) -> dict[str, Any]:
            return more(app, topologySpreadConstraints=[objects.spread({"app": name(app)})])

        def of_gang(app: str) -> dict[str, Any]:
            made = even(app)
            made["labels"] = {**made["labels"], "pod-group.scheduling.sigs.k8s.io": name(app)}
            return made

        def pinned(app: str) -> dict[str, Any]:
            # A rule of its own switches the scheduler's default spreading over zones off.
            one_per_host = objects.spread({"app": name(app)}, objects.HOSTNAME)
            return more(
                app,
                labels={"app": name(app), **_STEERED},
                topologySpreadConstraints=[one_per_host],
                tolerations=[{"key": _TEAM["key"], "operator": "Exists"}],
            )

        apart = objects.prefer_apart({"app": name("api")}, objects.ZONE)
        return [
            *self._budgets(),
            objects.deployment(name("web"), 6, **even("web")),
            objects.deployment(name("api"), 3, **more("api", affinity=apart)),
            objects.statefulset(name("db"), 3, **even("db")),
            objects.deployment(name("bulk"), 6, **even("bulk")),
            objects.deployment(name("calm"), 3, **more("calm")),
            *(objects.deployment(name(app), 3, **pinned(app)) for app in self._pins),
            *([objects.deployment(name("gang"), GANG, **of_gang("gang"))] if self._gangs else ()),
        ]

    @property
    def _pins(self) -> Sequence[str]:
        return _PINS if self._steered else ()

    def _budgets(self) -> list[dict[str, Any]]:
        most = {"web": 5, "api": 2, "db": 2, "calm": 2, **dict.fromkeys(self._pins, 2)}
        return [
            objects.pdb(
                f"{app}-{self._number}",
                {"app": f"{app}-{self._number}"},
                namespace=APPS,
                minAvailable=least,
            )
            for app, least in most.items()
        ]

    def _wait_budgets(self) -> None:
        def counted() -> bool:
            budgets = self._api.list_all(_BUDGETS)
            return all(b.get("status", {}).get("disruptionsAllowed") == 1 for b in budgets)

        wait_until(counted, 30, "every budget allows one disruption")

    def _clear(self) -> None:
        for plural in ("deployments", "statefulsets", "replicasets"):
            self._api.delete(f"/apis/apps/v1/namespaces/{APPS}/{plural}", _NOW)
        self._api.delete(_BUDGETS, _NOW)
        self._api.delete(f"/apis/events.k8s.io/v1/namespaces/{APPS}/events", _NOW)
        self._clear_tenant()
        for name in _LATE:
            self._ignoring_absence(f"/api/v1/nodes/{name}")

        def empty() -> bool:
            for namespace in (APPS, OPS):
                self._api.delete(f"/api/v1/namespaces/{namespace}/pods", _NOW)
            return not operations.pods(self._api, APPS) and not operations.pods(self._api, OPS)

        wait_until(empty, 30, "no pods")

    def _clear_tenant(self) -> None:
        if self._api.find(f"/api/v1/namespaces/{_TENANT}") is None:
            return
        for path in (
            f"/apis/apps/v1/namespaces/{_TENANT}/deployments",
            f"/apis/apps/v1/namespaces/{_TENANT}/replicasets",
            f"/api/v1/namespaces/{_TENANT}/pods",
        ):
            self._api.delete(path, _NOW)
        wait_until(
            lambda: not self._api.list_all(f"/api/v1/namespaces/{_TENANT}/pods"),
            30,
            "no pods of the tenant",
        )

    def _ignoring_absence(self, path: str) -> None:
        try:
            self._api.delete(path, _NOW)
        except ApiError as error:
            if error.status != 404:
                raise

    # -- acts --------------------------------------------------------------------------------------

    def _standing(self) -> list[dict[str, Any]]:
        return [p for p in operations.pods(self._api, APPS) if operations.is_ready(p)]

    def _annotate(self, path: str, key: str, value: str | None) -> None:
        try:
            self._api.patch(path, {"metadata": {"annotations": {key: value}}})
        except ApiError as error:
            if error.status != 404:  # it went in between
                raise

    def _opt_out(self) -> None:
        for pod in self._standing():
            name = pod["metadata"]["name"]
            self._annotate(f"{_PODS}/{name}", "rebalancer/evict", "false")
            self.opted_out[pod["metadata"]["uid"]] = name

    def _stop_controllers(self) -> None:
        os.kill(self._plane.pid("kube-controller-manager"), signal.SIGSTOP)

    def _stale_status(self) -> None:
        """Let a replica of the biggest app be gone, without a word of it in its owner's status."""
        self._stop_controllers()
        victim = self._one_of("web")
        self._api.delete(f"{_PODS}/{victim}", {"gracePeriodSeconds": 0})
        wait_until(lambda: self._api.find(f"{_PODS}/{victim}") is None, 30, "a replica gone")

    def _one_of(self, app: str) -> str:
        names = [p["metadata"]["name"] for p in self._standing()]
        return min(name for name in names if name.startswith(f"{app}-{self._number}-"))

    def _edit_budgets(self) -> None:
        for budget in self._budgets():
            name = budget["metadata"]["name"]
            self._api.patch(f"{_BUDGETS}/{name}", {"spec": {"minAvailable": self.desired[name]}})

    def _use_hour(self) -> None:
        used = BUDGETS["perHour"] - LEFT_OF_HOUR
        tally = [[int(time.time() // 60), used]]
        document = {"version": 1, "owners": {}, "evictions": tally, "streaks": {}}
        self._give_memory(json.dumps(document))

    def _give_memory(self, text: str) -> None:
        self._given = {MEMORY_KEY: text} if text else {}
        self._api.patch(f"{_MEMORIES}/{MEMORY}", {"data": {MEMORY_KEY: text or None}})

    def _pods_unready(self) -> None:
        for app in ("web", "bulk", "db"):
            self._annotate(f"{_PODS}/{self._one_of(app)}", stages.NEVER_READY, "true")

    def _owner_unready(self) -> None:
        victim = self._one_of("bulk")
        self._annotate(f"{_PODS}/{victim}", stages.NEVER_READY, "true")
        path = f"{_PODS}/{victim}"
        wait_until(lambda: not operations.is_ready(self._api.get(path)), 30, "a pod unready")
        owner = f"/apis/apps/v1/namespaces/{APPS}/deployments/bulk-{self._number}"
        wait_until(
            lambda: self._api.get(owner)["status"].get("readyReplicas", 0) < 6,
            30,
            "its owner's status",
        )

    def _not_ready(self, names: Sequence[str]) -> None:
        for name in names:
            self._annotate(f"/api/v1/nodes/{name}", stages.NODE_NOT_READY, "true")

    def _nodes_not_ready(self) -> None:
        names = ["a-1", "b-1", "c-1"]
        self._not_ready(names)

        def seen() -> bool:
            return not any(operations.is_ready(self._api.get(f"/api/v1/nodes/{n}")) for n in names)

        wait_until(seen, 30, "nodes NotReady")

    def _tenant(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        if self._api.find(f"/api/v1/namespaces/{_TENANT}") is None:
            self._plane.apply([objects.namespace(_TENANT)])
            account = f"/api/v1/namespaces/{_TENANT}/serviceaccounts/default"
            wait_until(lambda: self._api.find(account), 30, "the tenant's ServiceAccount")
        self._plane.apply(manifests)

    def _hostile_quantities(self) -> None:
        pod = objects.pod("huge", namespace=_TENANT)
        (container,) = pod["spec"]["containers"]
        requests = {"requests": {"memory": "9E", "cpu": "5P"}}
        pod["spec"]["containers"] = [
            {**container, "name": name, "resources": requests} for name in ("one", "two")
        ]
        self._tenant([pod])

    def _hostile_anti_affinity(self) -> None:
        term = {
            "labelSelector": {"matchLabels": {"app": f"calm-{self._number}"}},
            "namespaceSelector": {},
            "topologyKey": objects.ZONE,
        }
        preferred = [{"weight": 100, "podAffinityTerm": term}]
        spec = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        pods = [
            objects.deployment(
                f"hostile-{node}",
                1,
                namespace=_TENANT,
                pod_annotations={"rebalancer/evict": "false"},
                nodeSelector={objects.HOSTNAME: node},
                affinity={"podAntiAffinity": spec},
            )
            for node in ("a-0", "a-1", "b-0", "b-1")
        ]
        self._tenant(pods)
        operations.wait_pods_ready(self._api, len(pods), 30, namespace=_TENANT)


def _node(name: str) -> dict[str, Any]:
    return objects.node(name, zone=_NODES[name], cpu="16", memory="64Gi", pods=200)


def _filler(node: str) -> dict[str, Any]:
    """Return a pod that takes most of a node."""
    pod = objects.pod(f"full-{node}", namespace=OPS, cpu="12", memory="48Gi")
    pod["spec"]["nodeName"] = node
    return pod
