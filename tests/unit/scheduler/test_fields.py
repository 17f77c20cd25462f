"""The table of fields that may decide where a pod goes (``tests/fields``), against what is read and named.

That it holds all fields of the API server's schema, and no others, is compared in ``tests/e2e/test_fields.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.wire import objects as o
from tests import fields
from tests.controlplane.build import VERSIONS
from tests.unit.scheduler.worlds import Json, World, node, pod

TYPES: dict[str, Any] = {
    "PodSpec": o.SchedulingSpec,
    "Container": o.Container,
    "ContainerRestartRule": o.RestartRule,
    "ContainerPort": o.ContainerPort,
    "ResourceRequirements": o.ResourceRequirements,
    "Affinity": o.Affinity,
    "NodeAffinity": o.NodeAffinity,
    "NodeSelector": o.NodeSelector,
    "NodeSelectorTerm": o.NodeSelectorTerm,
    "NodeSelectorRequirement": o.LabelSelectorRequirement,
    "PreferredSchedulingTerm": o.PreferredSchedulingTerm,
    "PodAffinity": o.PodAffinity,
    "PodAntiAffinity": o.PodAffinity,
    "PodAffinityTerm": o.PodAffinityTerm,
    "WeightedPodAffinityTerm": o.WeightedPodAffinityTerm,
    "LabelSelector": o.LabelSelector,
    "LabelSelectorRequirement": o.LabelSelectorRequirement,
    "TopologySpreadConstraint": o.TopologySpreadConstraint,
    "Toleration": o.Toleration,
    "Taint": o.Taint,
    "Volume": o.Volume,
    "AWSElasticBlockStoreVolumeSource": o.AWSDisk,
    "GCEPersistentDiskVolumeSource": o.GCEDisk,
    "AzureDiskVolumeSource": o.AzureDisk,
    "CinderVolumeSource": o.CinderDisk,
    "PortworxVolumeSource": o.PortworxDisk,
    "ISCSIVolumeSource": o.ISCSIDisk,
    "RBDVolumeSource": o.RBDDisk,
    "ImageVolumeSource": o.ImageVolume,
    "PersistentVolumeClaimVolumeSource": o.ClaimSource,
    "PodResourceClaim": o.PodResourceClaim,
    "NodeSpec": o.NodeSpec,
    "NodeStatus": o.NodeStatus,
    "ContainerImage": o.ContainerImage,
}
"""Type of the API -> the struct that its fields are read into."""
READ_ELSEWHERE = {"PodSpec.nodeName"}
"""Read with what differs from pod to pod."""
NAMED: dict[str, Json] = {
    "PodSpec.schedulingGroup": {"schedulingGroup": {"podGroupName": "train"}},
    "Volume.ephemeral": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
}
"""Field -> the spec of a pod that has it."""
PARTS = (
    "PodSchedulingGroup",
    "EphemeralVolumeSource",
    "PersistentVolumeClaimTemplate",
    "PersistentVolumeClaimSpec",
    "VolumeResourceRequirements",
)
"""Types that only fields of NAMED are made of."""


def names_with(verdict: str) -> set[str]:
    return {field.name for field in fields.read() if field.verdict == verdict}


def test_each_field_has_a_verdict():
    known = fields.read()
    assert [field.name for field in known if field.verdict not in fields.VERDICTS] == []
    assert [field.name for field in known] == sorted({field.name for field in known})
    versions = {one for field in known for one in field.versions}
    assert versions == set(map(fields.minor, VERSIONS))


def test_what_is_modelled_is_read():
    read = {
        f"{name}.{field}"
        for name, struct in TYPES.items()
        for field in struct.__struct_encode_fields__
    }
    assert names_with("modelled") - read == READ_ELSEWHERE


@pytest.mark.parametrize("field", NAMED)
def test_a_pod_with_a_named_field_is_unpredicted(field):
    world = World([node("a")], [pod("p", **NAMED[field]), pod("plain")])
    assert world.model.find_unmodelled(world.cls("p")) != ()
    assert world.model.find_unmodelled(world.cls("plain")) == ()


def test_each_named_field_is_one_of_those_or_a_part_of_one():
    named = names_with("named")
    assert {name for name in named if name.partition(".")[0] not in PARTS} == set(NAMED)
