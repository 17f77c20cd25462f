"""What each duty of a storm for machines begins with: groups, workloads, policies, notices."""

import math
import time
from collections.abc import Callable, Mapping

from tests.aws.cloud import REGION
from tests.aws.messages import hook
from tests.controlplane import objects, operations, stages, wait_until
from tests.e2e.instance_metadata import NOTHING
from tests.storm.machines.ground import (
    BASE_POLICY,
    DETACHED,
    FAST_SCALE_IN,
    LOW,
    NOTICED,
    OTHER,
    RELEASE,
    SINGLE,
    Ground,
    MachineCluster,
)
from tests.storm.machines.network import Network
from tests.storm.machines.scenario import Scenario
from tests.storm.witnesses import APPS


class PreparedCluster(MachineCluster):
    """A cluster that is made anew for each scenario."""

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
            "surge": self._for_surge,
        }
        duties[scenario.duty]()
        self._machines.waits = False

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
        self._provide(fleet, FAST_SCALE_IN)

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
                tag |= {"Key": RELEASE, "Value": release}
                self._cloud.client("autoscaling").create_or_update_tags(
                    Tags=[{**tag, "PropagateAtLaunch": False}]
                )
        self._provide(fleet, FAST_SCALE_IN, f"{RELEASE}={OTHER}")
        ground.rival = ground.policy
        self._provide(fleet, FAST_SCALE_IN, f"{RELEASE}=main")

    def _for_agent(self) -> None:
        """Two nodes; the agent is the first one's, whose instance metadata announce nothing yet."""
        self._plane.apply(objects.node(name) for name in ("n-a", "n-b"))
        operations.wait_nodes_ready(self._api, 2)
        self._web(2)
        self.ground.victims = {"n-a"}
        self._tell(NOTHING)

    def _for_scale_out(self) -> None:
        fleet = self._groups({"pool-a": 2, "pool-b": 1})
        self._web(6)
        self._plane.apply([self._deployment(12)])
        self._provide(fleet, {"scale-out": {"newPodDelay": "0s"}})

    def _for_drain(self) -> None:
        names = [f"n-{i}" for i in range(4)]
        self._plane.apply(objects.node(name) for name in names)
        operations.wait_nodes_ready(self._api, len(names))
        self._web(6)
        self.ground.victims = {"n-0"}
        self.ground.policy = BASE_POLICY | {"strategies": {"duplicates": {}}}

    def _for_replace(self) -> None:
        old = [f"old-{i}" for i in range(2)]
        self._plane.apply(objects.node(name, labels={"generation": "old"}) for name in old)
        operations.wait_nodes_ready(self._api, 2)
        self._web(4)
        new = [f"new-{i}" for i in range(2)]
        self._plane.apply(objects.node(name, labels={"generation": "new"}) for name in new)
        operations.wait_nodes_ready(self._api, 4)
        self.ground.victims = set(old)
        self.ground.policy = BASE_POLICY | {"strategies": {"duplicates": {}}}

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
        ground.policy = BASE_POLICY | {
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
        ground.policy = BASE_POLICY | {
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
        ground.policy = BASE_POLICY | {
            "strategies": {"leaving": {}},
            "signals": {"kubernetes": {}},
            "interruption": {"steps": steps},
        }
        self._notice("n-a", ground.deadline)

    def _for_surge(self) -> None:
        """Three machines of an old version in two groups, and one of the current version, which stays."""
        fleet = self._fleet = self._make_fleet()
        sizes = {"pool-a": (2, 5, "ab"), "pool-b": (1, 3, "b")}
        for name, (size, high, zones) in sizes.items():
            fleet.add(name, size, low=LOW, high=high, zone=zones)
        ground, labels = self.ground, {"app": SINGLE}
        self._web(6)
        ready = {stages.READY_AFTER: "1s"}
        single = objects.deployment(
            SINGLE, 1, namespace=APPS, labels=labels, cpu="100m", pod_annotations=ready
        )
        self._plane.apply([single, objects.service(SINGLE, labels, namespace=APPS)])
        operations.wait_pods_ready(self._api, 7, 60, namespace=APPS)
        ground.victims = {one for name in sizes for one in fleet.machines(name)}
        fleet.renew()
        fleet.resize("pool-a", +1)
        fleet.join()
        wait_until(lambda: len(self._of_group("pool-a")) == 3, 60, "the current machine")
        ground.kept = set(fleet.machines("pool-a")) - ground.victims
        ground.groups = self.groups()
        # Machines that are launched within this second would be taken for some that were there before.
        time.sleep(1.1)
        self._provide(fleet, {})
        ground.policy |= {"method": {"singleReplicas": "restart"}, "nodeConditions": True}
