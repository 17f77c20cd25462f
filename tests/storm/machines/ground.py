"""The cluster and the cloud of a storm for machines, and what its witnesses must know of a scenario."""

import json
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.aws.cloud import REGION, Cloud
from tests.aws.fleet import Fleet
from tests.aws.messages import spot
from tests.controlplane import ControlPlane, objects, operations, stages, wait_until
from tests.controlplane.api import ApiError
from tests.e2e.instance_metadata import InstanceMetadata
from tests.e2e.machines import Machines
from tests.storm.machines.fleets import AnyFleet, CloudFleet, GroupState
from tests.storm.machines.network import Network, Standing
from tests.storm.witnesses import APPS, LEASE, MEMORY, OPS

KEPT = "machines"
"""Name of the ConfigMap with the state of groups, what announced machines, and how far their steps are."""
OTHER = "other"
"""The second release; its Lease and its ConfigMaps have this before their names."""
KEEP = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
OPT_OUT = "rebalancer/evict"
LEAVE = "rebalancer/leave"
NOTICE = "rebalancer/notice"
SCALE_IN = "rebalancer/scale-in"
INTERRUPTION = "rebalancer/interruption"
NOTICED, DETACHED = 12.0, 45.0
"""Seconds from the notice of an interruption to its deadline; where its machine leaves load balancers."""
SPOT_WARNING = 120.0
"""Seconds from the warning of a Spot machine to its end."""
FLAPS = 5
LOW = 1
"""Fewest machines of each group."""
WEB = {"app": "web"}
SINGLE = "single"
"""A Deployment of one pod, and its Service."""
NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
RELEASE = "release"
"""Tag of a group: of which release it is, where there are two."""
SCARCE = "pool-b"
"""The group for which the cloud has no machine, where it has not: the one that would be increased first."""
ANOTHER = "999999999999"
"""An account of AWS that has nothing to do with this."""
COST = "controller.kubernetes.io/pod-deletion-cost"
HELD = "storm.test/kubelet-is-gone"
STARTS = "agent.storm.test/not-ready"
DELAY = "delay-deletion.cluster-autoscaler.kubernetes.io/storm"
PODS = f"/api/v1/namespaces/{APPS}/pods"
BUDGET = f"/apis/policy/v1/namespaces/{APPS}/poddisruptionbudgets/web"
SPOT = ("spot", "--action=terminate", "--time=2036-11-20T10:00:00Z")
BASE_POLICY: dict[str, Any] = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "protect": {"minPodAge": "0s"},
    "safety": {"maxClockSkew": "30s"},
    "budgets": {"inFlight": 4, "perNode": 30, "perRun": 100, "perHour": 1000, "perOwner": "100%"},
}
FAST_SCALE_IN = {
    "scale-in": {"unneededFor": "3s", "coolDownAfterGrowth": "0s", "giveUpAfter": "20s"}
}
UNPROCESSABLE = 422


@dataclass
class Ground:
    """What a scenario has to do with, as its witnesses must know it."""

    victims: set[str] = field(default_factory=set)
    """Names of nodes that may be closed, emptied or ended."""
    kept: set[str] = field(default_factory=set)
    """Names of nodes that must stay, whatever happens."""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Group -> machines at the start, and the fewest."""
    instances: set[str] = field(default_factory=set)
    """Instances that the cloud has announced."""
    deadline: float | None = None
    """Unix seconds at which a machine goes that was announced to go."""
    queue: str = ""
    policy: dict[str, Any] = field(default_factory=dict)
    rival: dict[str, Any] = field(default_factory=dict)
    """Policy of the second release; empty if there is one release only."""
    reach: dict[str, set[str]] = field(default_factory=dict)
    """Release -> its groups, where there are two."""
    says: tuple[str, ...] = ()
    """What the instance metadata of n-a say, as a command of the program that gives them."""
    starts_with: tuple[dict[str, str], ...] = ()
    """Taints that new nodes have as long as their agents are not ready: these never are."""
    delayed: float | None = None
    """When somebody asked for a delay of the end of every machine."""
    protected: dict[str, float] = field(default_factory=dict)
    """Uids of nodes that a person has protected -> when."""
    opted_out: dict[str, float] = field(default_factory=dict)
    """Uids of pods that opted out -> when."""
    cordoned: set[str] = field(default_factory=set)
    """Nodes that a person has cordoned."""
    replaced: dict[str, float] = field(default_factory=dict)
    """Uid of a node that has come under the name of another -> when."""
    registered_again: set[str] = field(default_factory=set)
    """Nodes that went, and came back with another uid."""
    withdrawn: float | None = None
    """When the notice was taken back."""
    network: Network | None = None
    """Load balancers and firewalls of the announced machine."""
    goes: dict[str, float] = field(default_factory=dict)
    """Other announced nodes -> Unix seconds at which their machines go."""
    wanted_empty: set[str] = field(default_factory=set)
    """Nodes that were closed when people asked for them to be emptied."""
    groups: dict[str, GroupState] = field(default_factory=dict)
    """Group under replacement -> what its provider said of it before."""
    their_changes: set[int] = field(default_factory=set)
    """etcd's revisions of changes of groups that others have made."""
    deleted_machines: set[str] = field(default_factory=set)
    """Uids of Machines that others have deleted."""
    shifts: dict[str, int] = field(default_factory=dict)
    """Group -> by how many machines others have changed its size."""
    zones: dict[str, str] = field(default_factory=dict)
    """Machine of a group over two zones -> its zone."""
    not_named: set[str] = field(default_factory=set)
    """Nodes of which only old, forged or wrong announcements speak: nothing may be done to them."""


class MachineCluster:
    """The cluster and the cloud: made empty, looked at, and made whole again."""

    def __init__(
        self,
        plane: ControlPlane,
        cloud: Cloud,
        folder: Path,
        make_fleet: Callable[[], AnyFleet] | None = None,
    ) -> None:
        """``folder``: for what the instance metadata log; ``make_fleet``: provides groups, Auto Scaling groups if None."""
        self._plane, self._api, self._cloud = plane, plane.api, cloud
        self._metadata = InstanceMetadata(folder)
        self._machines = _Machines(plane)
        self._make_fleet = make_fleet or (lambda: CloudFleet(cloud, self._machines))
        self._fleet: AnyFleet | None = None
        self._aliens: Fleet | None = None
        self._changing = threading.Lock()
        """Held while machines join, or change their groups."""
        self._people: list[subprocess.Popen[bytes]] = []
        """Commands of people that may not have ended."""
        self._instances: dict[str, str] = {}
        """Node -> its instance, of a duty about interruptions."""
        self.ground = Ground()
        plane.apply(objects.namespace(name) for name in (APPS, OPS))
        for kind, group, names in (
            ("Lease", "coordination.k8s.io/v1", (LEASE,)),
            ("ConfigMap", "v1", (MEMORY, KEPT)),
        ):
            for name in (*names, *(f"{OTHER}-{one}" for one in names)):
                meta = {"name": name, "namespace": OPS}
                plane.apply([{"apiVersion": group, "kind": kind, "metadata": meta}])
        account = f"/api/v1/namespaces/{APPS}/serviceaccounts/default"
        wait_until(lambda: self._api.find(account) is not None, 30, "the ServiceAccount")

    def version(self) -> int:
        """Return etcd's revision."""
        return int(self._api.get(f"{PODS}?limit=1")["metadata"]["resourceVersion"])

    def join(self) -> None:
        """Let machines register their nodes, and the cloud controller remove the nodes of those that ended."""
        if self._fleet is not None:
            with _taken_names(), self._changing:
                self._fleet.join(taints=self.ground.starts_with)

    @property
    def metadata(self) -> str:
        """Where the instance metadata of n-a are."""
        return self._metadata.url

    def close(self) -> None:
        """End what was started for it."""
        self._metadata.end()

    def sizes(self) -> dict[str, int]:
        """Group -> desired size, of the groups that the policy reaches."""
        return {name: group.desired for name, group in self.groups().items()}

    def groups(self) -> dict[str, GroupState]:
        """Group -> what its provider says of it, of the groups that the policy reaches."""
        return {} if self._fleet is None else dict(self._fleet.state())

    def _tell(self, command: tuple[str, ...]) -> None:
        """Let the instance metadata of n-a say this, and nothing else."""
        self.ground.says = command
        self._metadata.say(*command)

    def _let_pods_end(self) -> None:
        for pod in operations.pods(self._api, APPS):
            if HELD in pod["metadata"].get("finalizers", ()):
                with suppress(ApiError):
                    freed = {"metadata": {"finalizers": None}}
                    self._api.patch(f"{PODS}/{pod['metadata']['name']}", freed)

    def _group_of(self, name: str) -> str:
        return str(self._api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"].get("group", ""))

    def _of_group(self, group: str) -> set[str]:
        """Return the names of the nodes of a group."""
        return {
            node["metadata"]["name"]
            for node in self.nodes()
            if node["metadata"]["labels"].get("group") == group
        }

    def calm(self) -> None:
        """Let the world be whole again: budgets allow, machines join."""
        with suppress(ApiError):
            self._api.patch(BUDGET, {"spec": {"maxUnavailable": 1}})
        for node in self._api.list_all("/api/v1/nodes"):
            if stages.NODE_NOT_READY in node["metadata"].get("annotations", {}):
                self._annotate_node(node["metadata"]["name"], stages.NODE_NOT_READY, None)
        if self.ground.says:
            self._metadata.say(*self.ground.says)
        for person in self._people:
            person.kill()
            person.wait()
        self._people.clear()
        self._let_pods_end()
        self.join()

    def mend_groups(self) -> None:
        """Do what people have to do, by the documentation, where a new machine came late and old ones would be ended for it."""
        for name in () if self._fleet is None else self._fleet.free():
            # The group keeps what has come.
            self.ground.shifts[name] = self.ground.shifts.get(name, 0) + 1

    def settle(self) -> None:
        """Let machines go that were ended."""
        if self._fleet is not None:
            self._fleet.settle()

    def network(self) -> Standing:
        """Return what AWS says of the announced machine's network."""
        made = self.ground.network
        return Standing() if made is None else made.now()

    def pending(self) -> int:
        """How many pods wait for a node."""
        return sum(not pod["spec"].get("nodeName") for pod in operations.pods(self._api, APPS))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes as they are."""
        return self._api.list_all("/api/v1/nodes")

    def _groups(self, sizes: Mapping[str, int]) -> AnyFleet:
        fleet = self._fleet = self._make_fleet()
        for zone, (name, size) in zip("ab", sizes.items(), strict=False):
            fleet.add(name, size, low=LOW, high=6, zone=zone)
            self.ground.bounds[name] = (size, LOW)
        return fleet

    def _provide(self, fleet: AnyFleet, strategies: Mapping[str, Any], *tags: str) -> None:
        provider = dict(fleet.policy(tags))
        self.ground.policy = BASE_POLICY | {"provider": provider, "strategies": dict(strategies)}

    def policy(self, url: str, *, rival: bool = False) -> str:
        """Return the policy, for a cloud at ``url``; of the second release, if ``rival``."""
        policy = yaml.safe_dump(self.ground.rival if rival else self.ground.policy)
        return policy.replace(self._cloud.url, url)

    def _deployment(self, replicas: int) -> dict[str, Any]:
        ready = {stages.READY_AFTER: "300ms"}
        return objects.deployment(
            "web",
            replicas,
            namespace=APPS,
            labels=WEB,
            cpu="500m",
            memory="256Mi",
            pod_annotations=ready,
        )

    def _web(self, replicas: int, budget: int = 1) -> None:
        self._plane.apply([self._deployment(replicas)])
        self._plane.apply([objects.pdb("web", WEB, namespace=APPS, maxUnavailable=budget)])
        wait_until(lambda: self._ready() == replicas, 60, f"{replicas} pods of web")

    def _ready(self) -> int:
        pods = operations.pods(self._api, APPS, "app=web")
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return sum(map(operations.is_ready, living)) if len(living) == len(pods) else -1

    def _node(self, name: str, instance: str) -> None:
        made = objects.node(name)
        made["spec"]["providerID"] = f"aws:///{REGION}a/{instance}"
        self._plane.apply([made])

    def _spot(self, name: str, warned: float | None = None, **more: str) -> dict[str, Any]:
        """Return what is said of a Spot machine that was warned at a time in Unix seconds, now if none is given."""
        at = datetime.fromtimestamp(warned or time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return spot(self._instances[name], id=str(uuid.uuid4()), time=at, **more)

    def _put(self, message: Mapping[str, Any]) -> None:
        body = json.dumps(message)
        self._cloud.client("sqs").send_message(QueueUrl=self.ground.queue, MessageBody=body)

    def _notice(self, name: str, deadline: float) -> None:
        at = datetime.fromtimestamp(deadline, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._annotate_node(
            name, NOTICE, json.dumps({"id": f"n-{at}", "kind": "spot", "deadline": at})
        )

    def _annotate_node(self, name: str, key: str, value: str | None) -> None:
        self._api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {key: value}}})

    def _clear(self) -> None:
        for fleet in (self._fleet, self._aliens):
            if fleet is not None:
                fleet.close()
        self._fleet = self._aliens = None
        if self.ground.network is not None:
            self.ground.network.close()
        self._let_pods_end()
        for plural in ("deployments", "replicasets"):
            self._api.delete(f"/apis/apps/v1/namespaces/{APPS}/{plural}", NOW)
        self._api.delete(f"/apis/policy/v1/namespaces/{APPS}/poddisruptionbudgets", NOW)
        with suppress(ApiError):
            self._api.delete(f"/api/v1/namespaces/{APPS}/services/{SINGLE}", NOW)
        self._api.delete(f"/apis/events.k8s.io/v1/namespaces/{APPS}/events", NOW)
        self._api.delete("/api/v1/nodes", NOW)
        for before in ("", f"{OTHER}-"):
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{OPS}/leases/{before}{LEASE}"
            self._api.patch(lease, {"spec": None})
            for name in (MEMORY, KEPT):
                kept = f"/api/v1/namespaces/{OPS}/configmaps/{before}{name}"
                self._api.patch(kept, {"data": None})

        def empty() -> bool:
            self._api.delete(PODS, NOW)
            self._api.delete("/api/v1/nodes", NOW)
            return not operations.pods(self._api, APPS) and not self.nodes()

        wait_until(empty, 60, "an empty cluster")


@contextmanager
def _taken_names() -> Iterator[None]:
    """A machine whose Node another one has come under cannot register: the name is taken."""
    try:
        yield
    except ApiError as error:
        if error.status != UNPROCESSABLE:
            raise


class _Machines(Machines):
    """Machines that are waited for while a scenario is made; later some may be lost on purpose."""

    waits = True

    def settle(self) -> None:
        """Wait until all are Ready."""
        if self.waits:
            super().settle()
