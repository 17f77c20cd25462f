"""A cloud beside a control plane, as docs/replace.md has it: moto, whose instances become KWOK's nodes by themselves.

What a kubelet's version is the image says from which its instance was launched, as on EKS.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.aws.cloud import CREDENTIALS, REGION, in_the_cloud
from tests.aws.fleet import Fleet
from tests.controlplane import ControlPlane
from tests.e2e.machines import Machines

GROUP = "workers"
SIZE, MOST = 3, 6
KUBELETS = {"ami-12c6146b": "v1.35.6-eks-113cf36", "ami-03cf127a": "v1.36.3-eks-113cf36"}
"""Image, among those that moto knows -> version of the kubelet on it."""
_PAUSE = 0.5
"""Seconds between two looks for instances that came or went."""


class _Workers(Machines):
    """Nodes whose kubelets have the version of their image."""

    def __init__(self, plane, cloud):
        super().__init__(plane)
        self._cloud = cloud

    def apply(self, node):
        (there,) = self._cloud.client("ec2").describe_instances(
            InstanceIds=[node["metadata"]["name"]]
        )["Reservations"]
        image = there["Instances"][0]["ImageId"]
        node["status"]["nodeInfo"] = {"kubeletVersion": KUBELETS[image]}
        super().apply(node)


@contextmanager
def workers(plane: ControlPlane) -> Iterator[Mapping[str, str]]:
    """Yield the environment in which ``aws`` and the product find a cloud whose group ``workers`` are the nodes of ``plane``."""
    # It says every request otherwise.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    with in_the_cloud(time.monotonic) as cloud:
        # So that the first machines have the same names in the same order each time.
        cloud.seed(1)
        fleet = Fleet(cloud, _Workers(plane, cloud), template=GROUP)
        fleet.add(GROUP, SIZE, low=0, high=MOST, zone="abc")
        ended = threading.Event()

        def follow():
            while not ended.wait(_PAUSE):
                fleet.join()

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            asked = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
            yield {name: CREDENTIALS[name] for name in asked} | {
                # The command of AWS reads this one alone.
                "AWS_DEFAULT_REGION": REGION,
                "AWS_ENDPOINT_URL": cloud.url,
            }
        finally:
            ended.set()
            follower.join()
            fleet.close()
            cloud.client("ec2").delete_launch_template(LaunchTemplateName=GROUP)
