"""The objects of dynamic resource allocation (``resource.k8s.io/v1``), as far as predictions use them.

The content of a field that is not modelled does not matter: its presence makes a pod Unpredicted, and the field is named.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from rebalancer.wire.objects import Int64, NodeSelector, ObjectMeta


class _Wire(Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """Base class, as that of :mod:`rebalancer.wire.objects`."""


class CelSelector(_Wire, frozen=True):
    expression: str = ""


class DeviceSelector(_Wire, frozen=True):
    cel: CelSelector | None = None
    """The CEL expression; None: a kind of selector that is newer than this model."""


class DeviceToleration(_Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ExactRequest(_Wire, frozen=True):
    name: str = ""
    """The name of an alternative."""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: Any = None
    derived_attributes: tuple[Any, ...] | None = None


class DeviceRequest(_Wire, frozen=True):
    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] | None = None


class DeviceConstraint(_Wire, frozen=True):
    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    """The attribute; None: a kind of constraint that is not modelled."""


class DeviceClaim(_Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None


class ClaimSpec(_Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(_Wire, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")


class DeviceAllocation(_Wire, frozen=True):
    results: tuple[AllocatedDevice, ...] | None = None


class Allocation(_Wire, frozen=True):
    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None


class ClaimConsumer(_Wire, frozen=True):
    resource: str = ""
    uid: str = ""


class ClaimStatus(_Wire, frozen=True):
    allocation: Allocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] | None = None


class ResourceClaim(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def devices(self) -> tuple[AllocatedDevice, ...]:
        """The devices that are allocated for it; none while it has no allocation."""
        allocation = self.status.allocation
        return () if allocation is None else allocation.devices.results or ()


class TemplateSpec(_Wire, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class DeviceClassSpec(_Wire, frozen=True):
    selectors: tuple[DeviceSelector, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaint(_Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class DeviceAttribute(_Wire, frozen=True):
    """One value of a device. If no field is set, its type is newer than this model, such as a list."""

    int_value: Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")


class DeviceCapacity(_Wire, frozen=True):
    value: str | int | float = 0


class Device(_Wire, frozen=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    """The attributes by name; a name without a domain is in the driver's."""
    capacity: dict[str, DeviceCapacity] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    consumes_counters: tuple[Any, ...] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    node_allocatable_resource_mappings: dict[str, Any] | None = None
    node_allocatable_resources: dict[str, Any] | None = None
    """The name of the field before it from 1.38 on."""


class ResourcePool(_Wire, frozen=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(_Wire, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[Any, ...] | None = None
    skip_node_operations: tuple[str, ...] | None = None
    devices: tuple[Device, ...] | None = None


class ResourceSlice(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(_Wire, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(_Wire, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    """The selector; None: it matches no device."""
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(_Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
