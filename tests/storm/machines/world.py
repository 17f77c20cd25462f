"""What happens to cluster and cloud beside the product: people, other programs, machines that fail."""

import json
import math
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from tests.aws.cloud import REGION
from tests.aws.fleet import ENABLED, Fleet
from tests.aws.messages import rebalance, spot
from tests.capi.infrastructure import MACHINES
from tests.controlplane import objects, operations, stages, wait_until
from tests.controlplane.api import ApiError
from tests.controlplane.build import binary
from tests.e2e.instance_metadata import NOTHING
from tests.storm.machines.duties import PreparedCluster
from tests.storm.machines.ground import (
    ANOTHER,
    BASE_POLICY,
    BUDGET,
    COST,
    DELAY,
    FLAPS,
    HELD,
    INTERRUPTION,
    KEEP,
    LEAVE,
    NOTICE,
    NOTICED,
    NOW,
    OPT_OUT,
    PODS,
    SCALE_IN,
    SCARCE,
    SPOT,
    SPOT_WARNING,
    STARTS,
)
from tests.storm.machines.network import PORT, Network
from tests.storm.schedule import Act
from tests.storm.witnesses import APPS


class MachineWorld(PreparedCluster):
    """Workloads in a namespace of their own, nodes by KWOK, machines by moto; changed by the acts of a scenario."""

    def do(self, act: Act) -> None:
        """Do one act; what it is about may be gone already."""
        acts: Mapping[str, Callable[[], object]] = {
            "protected": self._protect,
            "opt-out": self._opt_out,
            "budget closed": lambda: self._api.patch(BUDGET, {"spec": {"maxUnavailable": 0}}),
            "forged record": self._forge,
            "replaced under its name": self._replace_node,
            "registers again": self._register_again,
            "person cordons": self._person_cordons,
            "person uncordons": self._person_uncordons,
            "load comes back": lambda: self._plane.apply([self._deployment(10)]),
            "load goes": lambda: self._plane.apply([self._deployment(2)]),
            "same tags elsewhere": self._add_aliens,
            "zone lost": self._lose_zone,
            "withdrawn": self._withdraw,
            "announced": lambda: self._tell(SPOT),
            "metadata are silent": self._metadata.end,
            "names another's machine": self._name_anothers,
            "rebalance recommended": self._recommend,
            "agents are slow": self._slow_agents,
            "delay asked for": self._delay,
            "tenant's autoscaler": self._add_tenant,
            "one group chosen": self._choose_group,
            "state of a newer version": self._newer_state,
            "no capacity": self._exhaust,
            "others add a machine": lambda: self._resize(+1),
            "others take a machine": lambda: self._resize(-1),
            "others delete a machine": self._delete_machine,
            "duplicate message": lambda: self._put(self._message),
            "old message": lambda: self._put(self._spot("n-c", time.time() - 864000)),
            "message of another machine": lambda: self._put(spot("i-0123456789abcdef0")),
            "old notice": lambda: self._notice("n-c", time.time() - 3600),
            "message of another account": lambda: self._put(self._spot("n-b", account=ANOTHER)),
            "one machine at once": lambda: self.ground.policy["interruption"].update(atOnce=1),
            "no node may be lost": lambda: self.ground.policy.update(
                safety=BASE_POLICY["safety"] | {"maxNotReadyNodes": 0}
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
                self._api.patch(f"{PODS}/{pod['metadata']['name']}", body)
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
                self._api.delete(path, NOW)
            labels = {"generation": "new"} if name.startswith("old") else {}
            made = objects.node(name, labels=labels, cpu="1930m", memory="3300Mi")
            if before is not None and "providerID" in before["spec"]:
                made["spec"]["providerID"] = f"aws:///{REGION}a/i-{uuid.uuid4().hex[:17]}"
            self._plane.apply([made])
            uid = self._api.get(path)["metadata"]["uid"]
            self.ground.replaced[uid] = time.time()

    def _register_again(self) -> None:
        """A kubelet registers its machine anew: under the same name, with another uid."""
        for name in sorted(self.ground.victims)[:1]:
            with suppress(ApiError):
                self._api.delete(f"/api/v1/nodes/{name}", NOW)
                self.ground.registered_again.add(name)

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
        self.ground.starts_with = ({"key": STARTS, "value": "", "effect": "NoSchedule"},)
        self.ground.policy["capacity"] = {"startupTaints": [STARTS]}

    def _delay(self) -> None:
        for node in self.nodes():
            self._annotate_node(node["metadata"]["name"], DELAY, "true")
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
            costs = {"metadata": {"annotations": {COST: "1000"}}}
            self._api.patch(f"{PODS}/{alone[name]['metadata']['name']}", costs)
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

    def _exhaust(self) -> None:
        if self._fleet is not None:
            self._fleet.exhaust(SCARCE)

    def _resize(self, by: int) -> None:
        """Others change the size of the first group."""
        if self._fleet is None:
            return
        name = min(self.groups())
        # Noted first: the watch may be faster.
        self.ground.shifts[name] = self.ground.shifts.get(name, 0) + by
        self.ground.their_changes.add(self._fleet.resize(name, by))

    def _delete_machine(self) -> None:
        """Others delete a Machine of Cluster API, whatever is on it: another one comes in its place."""
        for machine in self._api.list_all(MACHINES):
            metadata = machine["metadata"]
            if metadata["name"] == max(self.ground.victims):
                self.ground.deleted_machines.add(metadata["uid"])
                self._api.delete(f"{MACHINES}/{metadata['name']}")

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
                held = {"metadata": {"finalizers": [HELD]}}
                self._api.patch(f"{PODS}/{pod['metadata']['name']}", held)


class _Nowhere:
    """The cluster in which the machines of others would be nodes."""

    def objects(self, _kind: str) -> list[Any]:
        return []

    def apply(self, _node: Any) -> None:
        """They register elsewhere."""

    def settle(self) -> None:
        """Nothing to wait for."""
