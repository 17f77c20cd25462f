"""The devices that nodes reach (dynamic resource allocation).

Source: ``k8s.io/dynamic-resource-allocation/structured`` (``pools_incubating.go``). What is not modelled is noted
as the device's doubt: pods that request such a device are not predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.device_selectors import describe_device
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire import devices as w
from rebalancer.wire.objects import NodeSelector

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
_MANY = -1
"""In the place of a node: several nodes reach the device."""


class _Device(NamedTuple):
    key: DeviceKey
    device: w.Device
    taints: tuple[w.DeviceTaint, ...]
    doubt: str
    """Why it is not known whether it can be had; empty if it is known."""


class Inventory:
    """The devices that nodes reach."""

    def __init__(
        self,
        snapshot: Snapshot,
        slices: Iterable[w.ResourceSlice],
        rules: Iterable[w.DeviceTaintRule],
    ) -> None:
        self._snapshot, self._rules = snapshot, tuple(rules)
        self.devices: list[_Device] = []
        nodes: list[int] = []
        self.unsettled: str = ""
        """A pool that is being changed; empty if none is."""
        for (driver, pool), of_pool in sorted(_by_pool(slices).items()):
            why, complete = _find_pool_doubt(pool, of_pool)
            if why or not complete:
                self.unsettled = self.unsettled or why or f"pool {pool} is incomplete"
            for one in of_pool if complete or why else ():
                for device in one.spec.devices or ():
                    key = driver, pool, device.name
                    node = self._find_node(one.spec, device)
                    if node is not None:
                        taints = (*(device.taints or ()), *self._list_rule_taints(key))
                        doubt = why or _find_doubt(pool, device, node)
                        self.devices.append(_Device(key, device, taints, doubt))
                        nodes.append(node)
        self.node: Int32s = np.array(nodes, np.int32)
        """(D,) the node that reaches each device, or several."""
        self._index = {one.key: number for number, one in enumerate(self.devices)}
        self.doubtful: Bools = np.array([bool(one.doubt) for one in self.devices], bool)
        self.tainted: Bools = np.array([bool(one.taints) for one in self.devices], bool)
        kinds: dict[bytes, int] = {}
        self.kind: Int32s = np.array(
            [kinds.setdefault(_fingerprint(one), len(kinds)) for one in self.devices], np.int32
        )
        """(D,) a number that is equal for devices that are equal to selectors."""
        self.first: Sequence[int] = np.unique(self.kind, return_index=True)[1].tolist()
        """The first device of each kind."""
        self._described: dict[int, Mapping[str, Any]] = {}

    def describe(self, number: int) -> Mapping[str, Any]:
        """Return a device as selectors see it; errors as of :func:`describe_device`."""
        kind = int(self.kind[number])
        if kind not in self._described:
            of = self.devices[number]
            self._described[kind] = describe_device(of.key[0], of.device)
        return self._described[kind]

    def find(self, some: Iterable[w.AllocatedDevice]) -> list[int]:
        """Return the numbers of devices that are allocated, without those that are not there any more."""
        keys = ((one.driver, one.pool, one.device) for one in some)
        return [self._index[key] for key in keys if key in self._index]

    def count(self, some: Bools) -> Ints:
        """Return per node (N,) how many of ``some`` (D,) devices it has."""
        nodes = self.node[some & (self.node != _MANY)]
        return np.bincount(nodes, minlength=len(self._snapshot.nodes)).astype(np.int64)

    def _find_node(self, spec: w.ResourceSliceSpec, device: w.Device) -> int | None:
        """Return the node that reaches a device, or that several do; None if no node does."""
        of: w.ResourceSliceSpec | w.Device = device if spec.per_device_node_selection else spec
        if of.node_name:
            return self._snapshot.nodes.index.get(of.node_name)
        reached = np.flatnonzero(self._find_reach(of.node_selector, all_nodes=bool(of.all_nodes)))
        return None if not len(reached) else int(reached[0]) if len(reached) == 1 else _MANY

    def _find_reach(self, selector: NodeSelector | None, *, all_nodes: bool) -> Bools:
        size = len(self._snapshot.nodes)
        if all_nodes or selector is None:
            return np.full(size, all_nodes)
        return self._snapshot.nodes.labels.selector(selector)

    def _list_rule_taints(self, key: DeviceKey) -> Iterator[w.DeviceTaint]:
        for rule in self._rules:
            wanted = rule.spec.device_selector
            if wanted is not None and all(
                one in (None, of)
                for one, of in zip((wanted.driver, wanted.pool, wanted.device), key, strict=True)
            ):
                yield rule.spec.taint


def _fingerprint(one: _Device) -> bytes:
    of = one.device
    return msgspec.json.encode(
        (one.key[0], of.attributes, of.capacity, of.allow_multiple_allocations), order="sorted"
    )


def _by_pool(
    slices: Iterable[w.ResourceSlice],
) -> Mapping[tuple[str, str], Sequence[w.ResourceSlice]]:
    pools: dict[tuple[str, str], list[w.ResourceSlice]] = {}
    for one in sorted(slices, key=lambda each: each.metadata.name):
        pools.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
    return pools


def _find_pool_doubt(pool: str, slices: Sequence[w.ResourceSlice]) -> tuple[str, bool]:
    """Return why a pool's devices are not known for sure, and whether all of its slices are there."""
    if len({one.spec.pool.generation for one in slices}) > 1:
        return f"pool {pool} is being replaced", True
    counts = {one.spec.pool.resource_slice_count for one in slices}
    if len(counts) > 1 or min(counts) < len(slices):
        return f"the slices of pool {pool} do not agree how many they are", True
    if any(one.spec.skip_node_operations for one in slices):
        return f"pool {pool} skips operations on nodes", True
    names = [device.name for one in slices for device in one.spec.devices or ()]
    if len(names) > len(set(names)):
        return f"pool {pool} has two devices of one name", True
    return "", min(counts) == len(slices)


def _find_doubt(pool: str, device: w.Device, node: int) -> str:
    """Return what of a device is not modelled; empty if it all is."""
    if node == _MANY:
        return f"several nodes reach the devices of pool {pool}"
    if device.consumes_counters:
        return f"devices of pool {pool} share counters"
    if device.allow_multiple_allocations:
        return f"devices of pool {pool} can be allocated several times"
    if device.binding_conditions:
        return f"devices of pool {pool} have binding conditions"
    if device.node_allocatable_resource_mappings or device.node_allocatable_resources:
        return f"devices of pool {pool} stand for resources of the node"
    return ""
