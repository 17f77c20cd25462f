"""The allocatable resources and labels of a node, derived from its instance type (DescribeInstanceTypes).

The system reserves what EKS's AMIs configure (amazon-eks-ami, ``nodeadm``: kubeReserved): 11 MiB for each pod and
255 MiB, 6, 1, 0.5 and 0.25 % of the processors; 100 MiB stay free (evictionHard). An instance has less memory than
its type states: 7.5 % less is Karpenter's default (VM_MEMORY_OVERHEAD_PERCENT).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OVERHEAD = 0.075
_MIB_OF_POD, _MIB_OF_SYSTEM, _MIB_FREE = 11, 255, 100
_MOST_PODS = {False: 110, True: 250}
"""More than 30 processors -> most pods of a managed node group's nodes ("Choosing an instance type", EKS user guide)."""
_LARGE = 30
_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_GPUS = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}


def allocatable(described: Mapping[str, Any]) -> dict[str, str]:
    """Return resource -> quantity, for a node of the type."""
    cpus = int(described["VCpuInfo"]["DefaultVCpus"])
    pods = _pods(described, cpus)
    memory = int(described["MemoryInfo"]["SizeInMiB"] * (1 - _OVERHEAD))
    memory -= _MIB_OF_POD * pods + _MIB_OF_SYSTEM + _MIB_FREE
    amounts = {
        "cpu": f"{1000 * cpus - _reserved(cpus)}m",
        "memory": f"{max(0, memory)}Mi",
        "pods": str(pods),
    }
    for gpu in described.get("GpuInfo", {}).get("Gpus", ()):
        if (name := _GPUS.get(gpu.get("Manufacturer", ""))) is not None:
            amounts[name] = str(int(amounts.get(name, "0")) + int(gpu.get("Count", 0)))
    return amounts


def labels_of(described: Mapping[str, Any], region: str) -> dict[str, str]:
    """Return the labels that every node of the type has."""
    kind = str(described["InstanceType"])
    labels = {"kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": kind}
    for one in described.get("ProcessorInfo", {}).get("SupportedArchitectures", ()):
        if one in _ARCHITECTURES:
            labels["kubernetes.io/arch"] = _ARCHITECTURES[one]
    if region:
        labels["topology.kubernetes.io/region"] = region
    return labels


def _pods(described: Mapping[str, Any], cpus: int) -> int:
    """Return the maximum number of pods: all addresses except the first of each interface, plus two host-network pods."""
    network = described.get("NetworkInfo", {})
    interfaces = int(network.get("MaximumNetworkInterfaces", 0))
    addresses = int(network.get("Ipv4AddressesPerInterface", 0))
    most = _MOST_PODS[cpus > _LARGE]
    return min(most, interfaces * (addresses - 1) + 2) if interfaces and addresses else most


def _reserved(cpus: int) -> int:
    """Return the reserved millicores: 6 % of the first core, 1 % of the second, 0.5 % of two more, then 0.25 %."""
    shares = [60, 10, 5, 5][:cpus]
    return int(sum(shares) + 2.5 * max(0, cpus - 4))
