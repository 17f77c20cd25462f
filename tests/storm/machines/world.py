"""The cluster and the cloud of a storm for machines: made anew for each scenario, and changed beside the product."""

import json
import math
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
from tests.aws.fleet import ENABLED, Fleet
from tests.aws.messages import hook, rebalance, spot
from tests.controlplane import ControlPlane, objects, operations, stages, wait_until
from tests.controlplane.api import ApiError
from tests.controlplane.build import binary
from tests.e2e.instance_metadata import NOTHING, InstanceMetadata
from tests.e2e.machines import Machines
from tests.storm.machines.network import PORT, Network, Standing
from tests.storm.machines.scenario import Scenario
from tests.storm.schedule import Act
from tests.storm.witnesses import APPS, LEASE, MEMORY, OPS

STATUS = "machines"
"""Name of the ConfigMap with the state of groups."""
KEPT = "interruptions"
"""Name of the ConfigMap with what announced machines, and how far their steps are."""
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
_WEB = {"app": "web"}
_NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_RELEASE = "release"
"""Tag of a group: of which release it is, where there are two."""
_SCARCE = "pool-b"
"""The group for which the cloud has no machine, where it has not: the one that would be increased first."""
_ANOTHER = "999999999999"
"""An account of AWS that has nothing to do with this."""
_COST = "controller.kubernetes.io/pod-deletion-cost"
_HELD = "storm.test/kubelet-is-gone"
_STARTS = "agent.storm.test/not-ready"
_DELAY = "delay-deletion.cluster-autoscaler.kubernetes.io/storm"
_PODS = f"/api/v1/namespaces/{APPS}/pods"
_BUDGET = f"/apis/policy/v1/namespaces/{APPS}/poddisruptionbudgets/web"
_SPOT = ("spot", "--action=terminate", "--time=2036-11-20T10:00:00Z")
_BASE: dict[str, Any] = {
    "apiVersion": "rebalancer/v1",
    "kind": "Policy",
    "protect": {"minPodAge": "0s"},
    "safety": {"maxClockSkew": "30s"},
    "budgets": {"inFlight": 4, "perNode": 30, "perRun": 100, "perHour": 1000, "perOwner": "100%"},
}
_SCALE_IN = {"scale-in": {"unneededFor": "3s", "coolDownAfterGrowth": "0s", "giveUpAfter": "20s"}}
UNPROCESSABLE = 422
MOST_FAILURES = 20
"""Activities of a group that fail: one each time that machines are looked for."""


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
    withdrawn: float | None = None
    """When the notice was taken back."""
    network: Network | None = None
    """Load balancers and firewalls of the announced machine."""
    goes: dict[str, float] = field(default_factory=dict)
    """Other announced nodes -> Unix seconds at which their machines go."""
    wanted_empty: set[str] = field(default_factory=set)
    """Nodes that were closed when people asked for them to be emptied."""
    zones: dict[str, str] = field(default_factory=dict)
    """Machine of a group over two zones -> its zone."""
    not_named: set[str] = field(default_factory=set)
    """Nodes of which only old, forged or wrong announcements speak: nothing may be done to them."""


class MachineWorld:
    """Workloads in a namespace of their own, nodes by KWOK, machines by moto."""

    def __init__(self, plane: ControlPlane, cloud: Cloud, folder: Path) -> None:
        """``folder``: for what the instance metadata log."""
        self._plane, self._api, self._cloud = plane, plane.api, cloud
        self._metadata = InstanceMetadata(folder)
        self._machines = _Machines(plane)
        self._fleet: Fleet | None = None
        self._aliens: Fleet | None = None
        self._changing = threading.Lock()
        """Held while machines join, or change their groups."""
        self._people: list[subprocess.Popen[bytes]] = []
        """Commands of people that may not have ended."""
        self.ground = Ground()
        plane.apply(objects.namespace(name) for name in (APPS, OPS))
        for kind, group, names in (
            ("Lease", "coordination.k8s.io/v1", (LEASE,)),
            ("ConfigMap", "v1", (MEMORY, STATUS, KEPT)),
        ):
            for name in (*names, *(f"{OTHER}-{one}" for one in names)):
                meta = {"name": name, "namespace": OPS}
                plane.apply([{"apiVersion": group, "kind": kind, "metadata": meta}])
        account = f"/api/v1/namespaces/{APPS}/serviceaccounts/default"
        wait_until(lambda: self._api.find(account) is not None, 30, "the ServiceAccount")

    def version(self) -> int:
        """Return etcd's revision."""
        return int(self._api.get(f"{_PODS}?limit=1")["metadata"]["resourceVersion"])

    def prepare(self, scenario: Scenario) -> None:
        """Clear everything, and make what the duty is about."""
        self._clear()
        self.ground = Ground()
        self._machines.waits = True
        duties: Mapping[str, Callable[[], None]] = {
            "scale-in": self._for_scale_in,
            "scale-out": self._for_scale_out,
            "drain": self._for_drain,
            "replace": self._for_replace,
            "interruption": self._for_interruption,
            "escalate": self._for_escalate,
            "agent": self._for_agent,
            "two releases": self._for_two_releases,
            "detach": self._for_detach,
        }
        duties[scenario.duty]()
        self._machines.waits = False

    def join(self) -> None:
        """Let machines register their nodes, and the cloud controller remove the nodes of those that ended."""
        if self._fleet is not None:
            with _taken_names(), self._changing:
                self._fleet.join(taints=self.ground.starts_with)
            self._fail_launches(self._fleet)

    def _fail_launches(self, fleet: Fleet) -> None:
        """Let the activity of a launch fail for which there is no machine: each as often as it is tried."""
        for group in self._cloud.exhausted:
            missing = fleet.sizes[group] - len(fleet.machines(group))
            failed = self._cloud.activities.setdefault(group, [])
            if missing > 0 and len(failed) < MOST_FAILURES:
                failed.insert(0, _failed_launch(group))

    @property
    def metadata(self) -> str:
        """Where the instance metadata of n-a are."""
        return self._metadata.url

    def close(self) -> None:
        """End what was started for it."""
        self._metadata.end()

    def sizes(self) -> dict[str, int]:
        """Group -> desired size, of the groups that the policy reaches."""
        return {} if self._fleet is None else self._fleet.sizes

    # -- what each duty is about ---------------------------------------------------------------------

    def _for_scale_in(self) -> None:
        """Five machines, two or three of which are enough; one has a pod that has to stay."""
        fleet = self._groups({"pool-a": 3, "pool-b": 2})
        self._web(10)
        lone = objects.pod("lone", namespace=APPS, labels={"app": "lone"}, cpu="100m")
        lone["spec"]["nodeName"] = fleet.machines("pool-b")[0]
        self._plane.apply([lone])
        self._web(4)
        self.ground.kept = {fleet.machines("pool-b")[0]}
        self.ground.victims = {one for pool in ("pool-a", "pool-b") for one in fleet.machines(pool)}
        self._provide(_SCALE_IN)

    def _for_two_releases(self) -> None:
        """Six machines of two groups, each of a release of its own; two are enough for both."""
        fleet = self._groups({"pool-a": 3, "pool-b": 3})
        self._web(12)
        self._web(4)
        ground = self.ground
        ground.victims = {one for pool in ("pool-a", "pool-b") for one in fleet.machines(pool)}
        ground.reach = {"main": {"pool-a"}, OTHER: {"pool-b"}}
        for release, groups in ground.reach.items():
            for group in groups:
                tag = {"ResourceId": group, "ResourceType": "auto-scaling-group"}
                tag |= {"Key": _RELEASE, "Value": release}
                self._cloud.client("autoscaling").create_or_update_tags(
                    Tags=[{**tag, "PropagateAtLaunch": False}]
                )
        self._provide(_SCALE_IN, f"{_RELEASE}={OTHER}")
        ground.rival = ground.policy
        self._provide(_SCALE_IN, f"{_RELEASE}=main")

    def _for_agent(self) -> None:
        """Two nodes; the agent is the first one's, whose instance metadata announce nothing yet."""
        self._plane.apply(objects.node(name) for name in ("n-a", "n-b"))
        operations.wait_nodes_ready(self._api, 2)
        self._web(2)
        self.ground.victims = {"n-a"}
        self._tell(NOTHING)

    def _for_scale_out(self) -> None:
        self._groups({"pool-a": 2, "pool-b": 1})
        self._web(6)
        self._plane.apply([self._deployment(12)])
        self._provide({"scale-out": {"newPodDelay": "0s"}})

    def _for_drain(self) -> None:
        names = [f"n-{i}" for i in range(4)]
        self._plane.apply(objects.node(name) for name in names)
        operations.wait_nodes_ready(self._api, len(names))
        self._web(6)
        self.ground.victims = {"n-0"}
        self.ground.policy = _BASE | {"strategies": {"duplicates": {}}}

    def _for_replace(self) -> None:
        old = [f"old-{i}" for i in range(2)]
        self._plane.apply(objects.node(name, labels={"generation": "old"}) for name in old)
        operations.wait_nodes_ready(self._api, 2)
        self._web(4)
        new = [f"new-{i}" for i in range(2)]
        self._plane.apply(objects.node(name, labels={"generation": "new"}) for name in new)
        operations.wait_nodes_ready(self._api, 4)
        self.ground.victims = set(old)
        self.ground.policy = _BASE | {"strategies": {"duplicates": {}}}

    def _for_interruption(self) -> None:
        """One machine goes, held by a hook of its group; the others are said to go by nobody whom one may believe."""
        names = ["n-a", "n-b", "n-c"]
        instances = {name: self._cloud.instance() for name in names}
        self._node("n-a", instances["n-a"])
        operations.wait_nodes_ready(self._api, 1)
        self._web(3)
        for name in names[1:]:
            self._node(name, instances[name])
        operations.wait_nodes_ready(self._api, 3)
        ground = self.ground
        ground.queue = self._cloud.queue()
        ground.victims, ground.instances = {"n-a"}, {instances["n-a"]}
        ground.not_named = {"n-b", "n-c"}
        ground.policy = _BASE | {
            "strategies": {"leaving": {}},
            "signals": {
                "sqs": {"queue": ground.queue, "region": REGION, "endpoint": self._cloud.url}
            },
            "interruption": {"steps": ["cordon", "exclude", "leave"], "withoutDeadline": "8s"},
        }
        self._instances = instances
        self._cloud.waiting.clear()
        self._cloud.completed.clear()
        token = self._cloud.terminates(instances["n-a"], "drain", ground.queue)
        self._message = hook(instances["n-a"], token)

    def _for_escalate(self) -> None:
        self._plane.apply([objects.node("n-a")])
        operations.wait_nodes_ready(self._api, 1)
        self._web(2, budget=0)
        self._plane.apply([objects.node("n-b"), objects.node("n-c")])
        operations.wait_nodes_ready(self._api, 3)
        other = objects.deployment("other", 1, namespace=APPS, labels={"app": "other"})
        other["spec"]["template"]["spec"]["nodeName"] = "n-c"
        self._plane.apply([other])
        operations.wait_pods_ready(self._api, 3, 60, namespace=APPS)
        ground = self.ground
        ground.victims, ground.not_named = {"n-a"}, {"n-b", "n-c"}
        ground.deadline = math.ceil(time.time() + NOTICED)
        escalate = {"step": "escalate", "means": "delete", "grace": "1s", "margin": "1s"}
        ground.policy = _BASE | {
            "strategies": {"leaving": {}},
            "signals": {"kubernetes": {}},
            "interruption": {"steps": ["cordon", {"step": "leave", "within": "2s"}, escalate]},
        }
        self._notice("n-a", ground.deadline)

    def _for_detach(self) -> None:
        """A machine goes that load balancers send requests to; nothing may reach it once it is in quarantine."""
        instances = {name: self._cloud.instance() for name in ("n-a", "n-b")}
        for name, instance in instances.items():
            self._node(name, instance)
        operations.wait_nodes_ready(self._api, 2)
        self._web(2)
        self._instances = instances
        ground, network = self.ground, Network(self._cloud, instances["n-a"])
        at_aws = {"region": REGION, "endpoint": self._cloud.url}
        ground.network, ground.victims, ground.not_named = network, {"n-a"}, {"n-b"}
        ground.deadline = math.ceil(time.time() + DETACHED)
        steps = [
            "cordon",
            {"step": "deregister", "within": "10s", "wait": False, **at_aws},
            {"step": "quarantine", "securityGroups": [network.empty], **at_aws},
        ]
        ground.policy = _BASE | {
            "strategies": {"leaving": {}},
            "signals": {"kubernetes": {}},
            "interruption": {"steps": steps},
        }
        self._notice("n-a", ground.deadline)

    # -- acts ----------------------------------------------------------------------------------------

    def do(self, act: Act) -> None:
        """Do one act; what it is about may be gone already."""
        acts: Mapping[str, Callable[[], object]] = {
            "protected": self._protect,
            "opt-out": self._opt_out,
            "budget closed": lambda: self._api.patch(_BUDGET, {"spec": {"maxUnavailable": 0}}),
            "forged record": self._forge,
            "replaced under its name": self._replace_node,
            "person cordons": self._person_cordons,
            "person uncordons": self._person_uncordons,
            "load comes back": lambda: self._plane.apply([self._deployment(10)]),
            "load goes": lambda: self._plane.apply([self._deployment(2)]),
            "same tags elsewhere": self._add_aliens,
            "zone lost": self._lose_zone,
            "withdrawn": self._withdraw,
            "announced": lambda: self._tell(_SPOT),
            "metadata are silent": self._metadata.end,
            "names another's machine": self._name_anothers,
            "rebalance recommended": self._recommend,
            "agents are slow": self._slow_agents,
            "delay asked for": self._delay,
            "tenant's autoscaler": self._add_tenant,
            "one group chosen": self._choose_group,
            "state of a newer version": self._newer_state,
            "no capacity": lambda: self._cloud.exhausted.add(_SCARCE),
            "duplicate message": lambda: self._put(self._message),
            "old message": lambda: self._put(self._spot("n-c", time.time() - 864000)),
            "message of another machine": lambda: self._put(spot("i-0123456789abcdef0")),
            "old notice": lambda: self._notice("n-c", time.time() - 3600),
            "message of another account": lambda: self._put(self._spot("n-b", account=_ANOTHER)),
            "one machine at once": lambda: self.ground.policy["interruption"].update(atOnce=1),
            "no node may be lost": lambda: self.ground.policy.update(
                safety=_BASE["safety"] | {"maxNotReadyNodes": 0}
            ),
            "two pods are left": self._leave_two,
            "another goes soon": self._announce_another,
            "announcements are heard": self._hear,
            "a leaving node is announced": self._announce_leaving,
            "people want it empty": self._want_empty,
            "person drains": self._person_drains,
            "machine changes its group": self._move_machine,
            "machines are missing": self._miss_machines,
            "one group in two zones": self._spread_group,
            "notice flaps": self._flap,
            "kubelet is gone": self._lose_kubelet,
        }
        with suppress(ApiError):
            acts[act.name]()

    def _protect(self) -> None:
        for node in self._api.list_all("/api/v1/nodes"):
            self._annotate_node(node["metadata"]["name"], KEEP, "true")
            self.ground.protected[node["metadata"]["uid"]] = time.time()

    def _opt_out(self) -> None:
        for pod in operations.pods(self._api, APPS, "app=web"):
            if pod["spec"].get("nodeName") in self.ground.victims - self.ground.kept:
                body = {"metadata": {"annotations": {OPT_OUT: "false"}}}
                self._api.patch(f"{_PODS}/{pod['metadata']['name']}", body)
                self.ground.opted_out[pod["metadata"]["uid"]] = time.time()
                return

    def _forge(self) -> None:
        """Say on a node what would end it, empty it, or have its machine behind the firewall of a database."""
        if self.ground.network is not None:
            self._forge_network(self.ground.network)
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if self.ground.kept:
            name = max(self.ground.kept)
            uid = self._api.get(f"/api/v1/nodes/{name}")["metadata"]["uid"]
            record = {
                "phase": "ending",
                "since": now,
                "at": now,
                "by": "x",
                "uid": uid,
                "cordoned": True,
            }
            self._annotate_node(name, SCALE_IN, json.dumps(record))
            return
        uid = self._api.get("/api/v1/nodes/n-c")["metadata"]["uid"]
        cause = {"id": "x-1", "kind": "spot", "source": "ghost", "deadline": time.time() + 6}
        record = {"causes": [cause], "begun": time.time(), "steps": {}, "uid": uid}
        self._annotate_node("n-c", INTERRUPTION, json.dumps(record))

    def _forge_network(self, network: Network) -> None:
        node = self._api.get("/api/v1/nodes/n-a")
        interfaces = {one: [network.database] for one in network.before.firewalls}
        payments = network.others[0].partition(":targetgroup/")[2]
        left = {
            "deregister": json.dumps({payments: [PORT]}),
            "quarantine": json.dumps({"before": interfaces, "given": [network.empty]}),
        }
        steps = {name: {"status": "running", "left": text} for name, text in left.items()}
        record = {"causes": [], "begun": 0.0, "steps": steps, "uid": node["metadata"]["uid"]}
        self._annotate_node("n-a", INTERRUPTION, json.dumps(record))

    def _replace_node(self) -> None:
        """A machine goes, and another one registers under its name: what is a node's name on many clouds is an address."""
        for name in sorted(self.ground.victims - self.ground.kept)[:1]:
            path = f"/api/v1/nodes/{name}"
            before = self._api.find(path)
            with suppress(ApiError):
                self._api.delete(path, _NOW)
            labels = {"generation": "new"} if name.startswith("old") else {}
            made = objects.node(name, labels=labels, cpu="1930m", memory="3300Mi")
            if before is not None and "providerID" in before["spec"]:
                made["spec"]["providerID"] = f"aws:///{REGION}a/i-{uuid.uuid4().hex[:17]}"
            self._plane.apply([made])
            uid = self._api.get(path)["metadata"]["uid"]
            self.ground.replaced[uid] = time.time()

    def _person_cordons(self) -> None:
        name = max(self.ground.victims)
        operations.cordon(self._api, [name])
        self.ground.cordoned.add(name)

    def _person_uncordons(self) -> None:
        operations.cordon(self._api, sorted(self.ground.victims)[:1], on=False)

    def _add_aliens(self) -> None:
        """Another cluster's group has the same tags."""
        self._aliens = Fleet(self._cloud, _Nowhere())
        self._aliens.add("alien", 2, low=0)

    def _lose_zone(self) -> None:
        for node in self._api.list_all("/api/v1/nodes"):
            if node["metadata"]["labels"].get("group") == "pool-b":
                self._annotate_node(node["metadata"]["name"], stages.NODE_NOT_READY, "true")

    def _tell(self, command: tuple[str, ...]) -> None:
        """Let the instance metadata of n-a say this, and nothing else."""
        self.ground.says = command
        self._metadata.say(*command)

    def _withdraw(self) -> None:
        if self.ground.says:
            self._tell(NOTHING)
            return
        for node in self.nodes():
            if NOTICE in (node["metadata"].get("annotations") or {}):
                self._annotate_node(node["metadata"]["name"], NOTICE, None)
        self.ground.withdrawn = time.time()

    def _name_anothers(self) -> None:
        """A kubelet says that its machine is the announced one's."""
        self._node("a-thief", self._instances["n-a"])
        self.ground.not_named.add("a-thief")

    def _recommend(self) -> None:
        """AWS says of all machines but one that they may be interrupted some time: none has to go."""
        for name in sorted(self.ground.not_named & self._instances.keys()):
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._put(rebalance(self._instances[name], id=str(uuid.uuid4()), time=at))

    def _slow_agents(self) -> None:
        self.ground.starts_with = ({"key": _STARTS, "value": "", "effect": "NoSchedule"},)
        self.ground.policy["capacity"] = {"startupTaints": [_STARTS]}

    def _delay(self) -> None:
        for node in self.nodes():
            self._annotate_node(node["metadata"]["name"], _DELAY, "true")
        self.ground.delayed = time.time()

    def _add_tenant(self) -> None:
        """A tenant's pod has the label of an autoscaler's."""
        labels = {"app": "karpenter"}
        tenant = objects.pod("tenant", namespace=APPS, labels=labels, cpu="10m")
        # On the node that has to stay, if there is one: it has no controller.
        last = max(node["metadata"]["name"] for node in self.nodes())
        tenant["spec"]["nodeName"] = next(iter(self.ground.kept), last)
        self._plane.apply([tenant])

    def _choose_group(self) -> None:
        """The policy names the nodes of one group for scale-in."""
        (strategy,) = self.ground.policy["strategies"].values()
        strategy["select"] = {"nodes": {"group": "pool-a"}}
        self.ground.victims = self._of_group("pool-a")

    def _newer_state(self) -> None:
        """What stands on the nodes of a group was written by a version that knows more phases."""
        state = {"phase": "resting", "since": "2026-01-01T00:00:00Z", "at": "2026-01-01T00:00:00Z"}
        for name in self._of_group("pool-a"):
            self._annotate_node(name, SCALE_IN, json.dumps(state))
            self.ground.kept.add(name)

    def _leave_two(self) -> None:
        """Two pods are left, each on a node of its own that may go: of those nodes one can be emptied."""
        pods = operations.pods(self._api, APPS, "app=web")
        alone = {pod["spec"].get("nodeName"): pod for pod in pods}
        for name in sorted(alone.keys() & self.ground.victims - self.ground.kept)[:2]:
            costs = {"metadata": {"annotations": {_COST: "1000"}}}
            self._api.patch(f"{_PODS}/{alone[name]['metadata']['name']}", costs)
        self._plane.apply([self._deployment(2)])
        wait_until(lambda: self._ready() == 2, 60, "two pods of web")

    def _announce_another(self) -> None:
        """A Spot machine goes while the first one is held by its hook."""
        at = math.ceil(time.time() + NOTICED)
        self.ground.not_named.discard("n-b")
        self.ground.victims.add("n-b")
        self.ground.goes["n-b"] = at
        self._put(self._spot("n-b", warned=at - SPOT_WARNING))

    def _hear(self) -> None:
        """The policy has a source of announcements beside scale-in."""
        steps = {"steps": ["cordon", "exclude"]}
        self.ground.policy |= {"signals": {"kubernetes": {}}, "interruption": steps}

    def _announce_leaving(self) -> None:
        for name in self._leaving()[:1]:
            self._notice(name, time.time() + 3000)

    def _want_empty(self) -> None:
        for name in self._leaving():
            self._annotate_node(name, LEAVE, "now")
            self.ground.wanted_empty.add(name)

    def _leaving(self) -> list[str]:
        """Return the nodes that scale-in drains, as its record says."""
        every = {
            node["metadata"]["name"]: (node["metadata"].get("annotations") or {}).get(SCALE_IN, "")
            for node in self.nodes()
        }
        return sorted(name for name, text in every.items() if '"leaving"' in text)

    def _person_drains(self) -> None:
        """A person empties a node with kubectl; where it was open, the cordon is theirs."""
        name = max(self.ground.victims - self.ground.kept)
        kubectl = [str(binary("kubectl")), f"--kubeconfig={self._plane.kubeconfig}"]
        cordon = [*kubectl, "cordon", name]
        done = subprocess.run(cordon, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode == 0 and "already cordoned" not in done.stdout:
            self.ground.cordoned.add(name)
        drain = ["drain", name, "--ignore-daemonsets", "--force", "--timeout=10s"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._people.append(subprocess.Popen([*kubectl, *drain], **quiet))  # type: ignore[call-overload]

    def _move_machine(self) -> None:
        """A machine that is about to end goes to a group that is no business of the policy's."""
        if (fleet := self._fleet) is None:
            return
        for name in self._leaving()[:1]:
            scaling, group = self._cloud.client("autoscaling"), self._group_of(name)
            with self._changing:
                fleet.add("elsewhere", 0)
                tag = {"ResourceId": "elsewhere", "ResourceType": "auto-scaling-group"}
                scaling.delete_tags(Tags=[{**tag, "Key": ENABLED}])
                scaling.detach_instances(
                    AutoScalingGroupName=group,
                    InstanceIds=[name],
                    ShouldDecrementDesiredCapacity=True,
                )
                scaling.attach_instances(AutoScalingGroupName="elsewhere", InstanceIds=[name])
            self.ground.victims.discard(name)

    def _miss_machines(self) -> None:
        """A group has fewer machines than it is to have, and no more than it needs."""
        group, there = "pool-a", self.ground.bounds["pool-a"][0]
        self._cloud.exhausted.add(group)
        self._cloud.client("autoscaling").update_auto_scaling_group(
            AutoScalingGroupName=group, MinSize=there, DesiredCapacity=there + 1
        )
        self.ground.bounds[group] = (there, there)

    def _spread_group(self) -> None:
        """The machine of a group that is first by name is in another zone than the others; all are empty, one may go."""
        self._plane.apply([self._deployment(0)])
        first, *others = sorted(self._of_group("pool-a"))
        labels = {"labels": {"topology.kubernetes.io/zone": f"{REGION}b"}}
        self._api.patch(f"/api/v1/nodes/{first}", {"metadata": labels})
        self._cloud.client("autoscaling").update_auto_scaling_group(
            AutoScalingGroupName="pool-a", MinSize=len(others)
        )
        self.ground.bounds["pool-a"] = (1 + len(others), len(others))
        self.ground.zones = {first: "b", **dict.fromkeys(others, "a")}

    def _flap(self) -> None:
        """A notice comes and goes; the machine has all the time of the world."""
        self.ground.deadline = math.ceil(time.time() + 3000)
        for _ in range(FLAPS):
            self._notice("n-a", self.ground.deadline)
            time.sleep(1.5)
            self._annotate_node("n-a", NOTICE, None)
            time.sleep(1.5)
        self.ground.withdrawn = time.time()

    def _lose_kubelet(self) -> None:
        """The pods of the node never end once they are deleted."""
        for pod in operations.pods(self._api, APPS):
            if pod["spec"].get("nodeName") in self.ground.victims:
                held = {"metadata": {"finalizers": [_HELD]}}
                self._api.patch(f"{_PODS}/{pod['metadata']['name']}", held)

    def _let_pods_end(self) -> None:
        for pod in operations.pods(self._api, APPS):
            if _HELD in pod["metadata"].get("finalizers", ()):
                with suppress(ApiError):
                    freed = {"metadata": {"finalizers": None}}
                    self._api.patch(f"{_PODS}/{pod['metadata']['name']}", freed)

    def _group_of(self, name: str) -> str:
        return str(self._api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"].get("group", ""))

    def _of_group(self, group: str) -> set[str]:
        """Return the names of the nodes of a group."""
        return {
            node["metadata"]["name"]
            for node in self.nodes()
            if node["metadata"]["labels"].get("group") == group
        }

    # -- afterwards ----------------------------------------------------------------------------------

    def calm(self) -> None:
        """Let the world be whole again: budgets allow, machines join."""
        with suppress(ApiError):
            self._api.patch(_BUDGET, {"spec": {"maxUnavailable": 1}})
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

    # -- parts ---------------------------------------------------------------------------------------

    def _groups(self, sizes: Mapping[str, int]) -> Fleet:
        fleet = self._fleet = Fleet(self._cloud, self._machines)
        for zone, (name, size) in zip("ab", sizes.items(), strict=False):
            fleet.add(name, size, low=LOW, high=6, zone=zone)
            self.ground.bounds[name] = (size, LOW)
        return fleet

    def _provide(self, strategies: Mapping[str, Any], *tags: str) -> None:
        at_aws = {"region": REGION, "endpoint": self._cloud.url}
        provider = {"aws": {"tags": [ENABLED, *tags], **at_aws}}
        self.ground.policy = _BASE | {"provider": provider, "strategies": dict(strategies)}

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
            labels=_WEB,
            cpu="500m",
            memory="256Mi",
            pod_annotations=ready,
        )

    def _web(self, replicas: int, budget: int = 1) -> None:
        self._plane.apply([self._deployment(replicas)])
        self._plane.apply([objects.pdb("web", _WEB, namespace=APPS, maxUnavailable=budget)])
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
            self._api.delete(f"/apis/apps/v1/namespaces/{APPS}/{plural}", _NOW)
        self._api.delete(f"/apis/policy/v1/namespaces/{APPS}/poddisruptionbudgets", _NOW)
        self._api.delete(f"/apis/events.k8s.io/v1/namespaces/{APPS}/events", _NOW)
        self._api.delete("/api/v1/nodes", _NOW)
        self._cloud.exhausted.clear()
        self._cloud.activities.clear()
        for before in ("", f"{OTHER}-"):
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{OPS}/leases/{before}{LEASE}"
            self._api.patch(lease, {"spec": None})
            for name in (MEMORY, STATUS, KEPT):
                kept = f"/api/v1/namespaces/{OPS}/configmaps/{before}{name}"
                self._api.patch(kept, {"data": None})

        def empty() -> bool:
            self._api.delete(_PODS, _NOW)
            self._api.delete("/api/v1/nodes", _NOW)
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


def _failed_launch(group: str) -> dict[str, str]:
    """Return an activity of a group, with the fields of the API reference."""
    message = "We currently do not have sufficient t3.medium capacity in the Availability Zone"
    return {
        "ActivityId": str(uuid.uuid4()),
        "AutoScalingGroupName": group,
        "Description": f"Launching a new EC2 instance.  Status Reason: {message}",
        "Cause": "At ... a user request explicitly set group desired capacity.",
        "StartTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "StatusCode": "Failed",
        "StatusMessage": message,
    }


class _Machines(Machines):
    """Machines that are waited for while a scenario is made; later some may be lost on purpose."""

    waits = True

    def settle(self) -> None:
        """Wait until all are Ready."""
        if self.waits:
            super().settle()


class _Nowhere:
    """The cluster in which the machines of others would be nodes."""

    def objects(self, _kind: str) -> list[Any]:
        return []

    def apply(self, _node: Any) -> None:
        """They register elsewhere."""

    def settle(self) -> None:
        """Nothing to wait for."""
