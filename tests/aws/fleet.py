"""Auto Scaling groups of moto whose instances are nodes of an embedded cluster, and runs on both.

moto starts and ends instances at once, takes sizes beyond a group's maximum, and never lacks capacity: that is played by ``Cloud.exhausted``, and that instances never register by :meth:`Fleet.join` not being called.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from rebalancer.commands.capacity import capacity
from rebalancer.embedded.apiserver.store import EmbeddedClock
from rebalancer.machines.capacity.state import decode
from rebalancer.testing.objects import EmbeddedCluster, deployment, node
from rebalancer.wire.times import rfc3339
from tests.aws.cloud import REGION
from tests.support.worlds import FAST
from tests.unit.commands.embedded import ClusterClock, ServedRunner

ENABLED = "k8s.io/cluster-autoscaler/enabled"
STATUS = "default/machines"
START = 1_800_000_000.0


class Fleet:
    """Groups by name, each with a zone of its own."""

    def __init__(self, cloud, cluster, template=""):
        """``template``: name of the launch template of its groups."""
        self.cloud, self.cluster = cloud, cluster
        self._autoscaling = cloud.client("autoscaling")
        name = template or f"workers-{uuid.uuid4()}"
        data = {"ImageId": "ami-12c6146b", "InstanceType": "t3.medium"}
        made = cloud.client("ec2").create_launch_template(
            LaunchTemplateName=name, LaunchTemplateData=data
        )
        self._template = made["LaunchTemplate"]["LaunchTemplateId"]
        self._names: list[str] = []

    def add(self, name, desired, *, low=0, high=10, zone="a", source=None):
        """Make a group, and nodes of its machines.

        ``zone``: the letters of its zones. ``source``: what machines are made from, in the place of the launch template.
        """
        tag = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
        self._autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            **(
                source
                or {"LaunchTemplate": {"LaunchTemplateId": self._template, "Version": "$Latest"}}
            ),
            MinSize=low,
            MaxSize=high,
            DesiredCapacity=desired,
            AvailabilityZones=[f"{REGION}{one}" for one in zone],
            Tags=[{**tag, "Key": ENABLED, "Value": "true"}],
        )
        self._names.append(name)
        self.join(name)

    def tag(self, name, key, value):
        """Give a group a tag."""
        of = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
        self._autoscaling.create_or_update_tags(Tags=[{**of, "Key": key, "Value": value}])

    @property
    def sizes(self):
        """Group -> how many machines it is to have."""
        return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in self._groups()}

    def new_version(self, **data):
        """Add a version of the launch template that groups use from now on; return its number."""
        made = self.cloud.client("ec2").create_launch_template_version(
            LaunchTemplateId=self._template, SourceVersion="1", LaunchTemplateData=data
        )
        return made["LaunchTemplateVersion"]["VersionNumber"]

    def group(self, name):
        """A group as AWS describes it."""
        (group,) = [one for one in self._groups() if one["AutoScalingGroupName"] == name]
        return group

    def machines(self, name):
        """The ids of a group's instances."""
        return sorted(one["InstanceId"] for one in self.group(name)["Instances"])

    def fails(
        self,
        name,
        message,
        *,
        description="Launching a new EC2 instance",
        status="Failed",
        after=0.0,
    ):
        """Let an activity of a group that begins now, or so many seconds later, end like this."""
        self.cloud.activities.setdefault(name, []).insert(
            0,
            {
                "ActivityId": str(uuid.uuid4()),
                "AutoScalingGroupName": name,
                "Description": f"{description}.  Status Reason: {message}",
                "Cause": "At ... a user request explicitly set group desired capacity.",
                "StartTime": rfc3339(self.cluster.clock.now() + after),
                "StatusCode": status,
                "StatusMessage": message,
            },
        )

    def _groups(self):
        return self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=self._names)[
            "AutoScalingGroups"
        ]

    def join(self, only=None, taints=()):
        """Let a kubelet of each machine (``only``: of one group) register its node; the nodes of machines that ended go."""
        machines = {
            f"aws:///{one['AvailabilityZone']}/{one['InstanceId']}": group["AutoScalingGroupName"]
            for group in self._groups()
            for one in group["Instances"]
        }
        nodes = {one["spec"].get("providerID"): one for one in self.cluster.objects("Node")}
        for machine, group in sorted(machines.items()):
            if machine not in nodes and only in (None, group):
                _, zone, instance = machine.removeprefix("aws://").split("/")
                # What a t3.medium leaves to pods on EKS: 2 processors, 4 GiB.
                made = node(instance, zone=zone, cpu="1930m", memory="3300Mi", pods=17)
                made["metadata"]["labels"]["group"] = group
                made["spec"] |= {"providerID": machine, "taints": list(taints)}
                self.cluster.apply(made)
        for machine, known in nodes.items():
            if machine is not None and machine not in machines:
                self.cluster.remove_node(known["metadata"]["name"])
        self.cluster.settle()

    def close(self):
        for name in self._names:
            self._autoscaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


class Site:
    """A cluster on a fleet, and runs on it."""

    def __init__(self, cloud, cluster, folder, strategies):
        self.cluster, self.cloud, self.fleet = cluster, cloud, Fleet(cloud, cluster)
        provider = f"aws: {{tags: [{ENABLED}], region: {REGION}, endpoint: '{cloud.url}'}}"
        self._run = ServedRunner(
            cluster,
            folder,
            "apiVersion: rebalancer/v1\nkind: Policy\nprotect: {minPodAge: 0s}\n"
            f"provider: {{{provider}}}\nstrategies: {strategies}\n",
            ClusterClock(cluster),
        )
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "machines"}})

    def run(self, **options):
        """Run once; return the exit code and the report."""
        return self._run(**{"machine_state": STATUS, **options})

    def restart(self):
        """Have another process do the next run."""
        self._run.restart()

    def acts(self, **options):
        """Run once, and well; return (group, code, status) of what was done to machines."""
        code, report = self.run(**options)
        assert code == 0, report["warnings"]
        return [(one["group"], one["code"], one["status"]) for one in report["machines"]]

    def scale(self, replicas, name="web", **more):
        """Have so many replicas of half a core and 512 MiB."""
        self.cluster.apply(deployment(name, replicas, cpu="500m", memory="512Mi", **more))
        self.cluster.settle()

    def pending(self):
        """How many pods wait for a node."""
        return sum(not pod["spec"].get("nodeName") for pod in self.cluster.objects("Pod"))

    def pass_time(self, seconds):
        self.cluster.advance(seconds)

    @property
    def groups(self):
        """Group -> the state of it that is stored."""
        return decode(self.cluster.get("ConfigMap", "machines").get("data") or {})[0]

    def judged(self):
        """Return what ``capacity`` says."""
        return self._run.said(capacity, machine_state=STATUS)

    def events(self, reason=None):
        """(kind, name, reason) of the Events, in the order of their names."""
        return sorted(
            (one["regarding"]["kind"], one["regarding"]["name"], one["reason"])
            for one in self.cluster.objects("Event")
            if one["reportingController"] == "kube-rebalancer" and reason in (None, one["reason"])
        )


@contextmanager
def site(cloud, folder, strategies="{scale-out: {}}", *, lives=False) -> Iterator[Site]:
    """Yield a cluster whose clock stands still but for :meth:`Site.pass_time`; ``lives``: it runs, so that pods can be moved."""
    clock = EmbeddedClock(START, time.time) if lives else EmbeddedClock(START)
    with EmbeddedCluster(clock, timings=FAST if lives else None) as cluster:
        made = Site(cloud, cluster, folder, strategies)
        try:
            yield made
        finally:
            made.fleet.close()
