"""Devices of dynamic resource allocation as further resources, so that nothing after the snapshot needs to know them.

Source: ``plugins/dynamicresources`` of kube-scheduler and ``k8s.io/dynamic-resource-allocation/structured``
(``pools_incubating.go``, ``allocator_incubating.go``).

The scheduler searches, node by node, devices for all requests of a pod. Where all requests that may want the same
devices want all or none of those on each node, any device will do, and to count them is exact: such a set of devices
is a resource of its own, with a row. What is allocated is known from the claims. Requests that want only a part of
what another wants on a node, and all that :func:`_find_doubt` and :func:`_read_request` name, are not modelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rebalancer.snapshot.columns import Bools, Int32s, Ints, freeze
from rebalancer.snapshot.device_selectors import (
    FailedSelectorError,
    UnsupportedSelectorError,
    compile_selector,
    describe_device,
    split_name,
)
from rebalancer.snapshot.model import DEVICE_ROW, Devices, Snapshot
from rebalancer.snapshot.nodes import is_extended
from rebalancer.wire import devices as w
from rebalancer.wire.kinds import OF_DEVICES
from rebalancer.wire.objects import Container, NodeSelector, PodResourceClaim

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
_ALLOCATES_RESOURCES = (1, 36)
"""From this version on the scheduler allocates devices for extended resources."""
_OF_CLASS = "deviceclass.resource.kubernetes.io/"
"""Begins the resource that each DeviceClass provides, beside the one that it names."""
_MAX_RESULTS = 32
"""Devices that one claim may have (``AllocationResultsMaxSize``)."""
_MAX_CONSUMERS = 256
"""Pods that may use one claim (``ResourceClaimReservedForMaxSize``)."""
_MAX_WORK = 10_000_000
"""Terms of selectors that are evaluated for one namespace: some seconds."""
_MAX_SHOWN = 200
"""Characters of an expression in a reason."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_MANY = -1
"""In the place of a node: several nodes reach the device."""


@dataclass(frozen=True, slots=True)
class DeviceObjects:
    """The objects of dynamic resource allocation, in any order."""

    claims: Sequence[w.ResourceClaim] | None = None
    templates: Sequence[w.ResourceClaimTemplate] | None = None
    slices: Sequence[w.ResourceSlice] | None = None
    classes: Sequence[w.DeviceClass] | None = None
    taint_rules: Sequence[w.DeviceTaintRule] | None = None

    def find_lacking(self) -> str:
        """Return the kinds that were not read, in words; without rules on taints there are none."""
        lists = self.claims, self.templates, self.slices, self.classes
        kinds = [*(f"{of.kind}s" for of in OF_DEVICES[:3]), "DeviceClasses"]
        lacking = [kind for kind, one in zip(kinds, lists, strict=True) if one is None]
        return ", ".join(lacking)


def claims_devices(snapshot: Snapshot) -> bool:
    """Return whether a pod, or what would replace it, has resource claims."""
    return any(cls.spec.resource_claims for cls in snapshot.classes)


def list_asked(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the rows of extended resources that pods ask for, and for which the scheduler may allocate devices."""
    if snapshot.version < _ALLOCATES_RESOURCES:
        return ()
    asked = np.flatnonzero((snapshot.requests > 0).any(axis=1)).tolist()
    return tuple(row for row in asked if may_be_of_devices(snapshot.resources[row]))


def find_provided(snapshot: Snapshot, classes: Iterable[w.DeviceClass]) -> tuple[int, ...]:
    """Return those of the rows of :func:`list_asked` behind which a DeviceClass stands, also if nodes offer them."""
    named = {name for one in classes for name in _list_provided(one)}
    return tuple(row for row in list_asked(snapshot) if snapshot.resources[row] in named)


def _list_provided(one: w.DeviceClass) -> tuple[str | None, str]:
    return one.spec.extended_resource_name, f"{_OF_CLASS}{one.metadata.name}"


def may_be_of_devices(resource: str) -> bool:
    """Return whether a DeviceClass may provide a resource (``IsDRAExtendedResourceName``)."""
    return resource.startswith(_OF_CLASS) or is_extended(resource)


def is_unoffered(snapshot: Snapshot, row: int, *, plugged: bool = False) -> bool:
    """Return whether pods have a resource on a node that does not offer it, or ask for one that no node offers.

    ``plugged``: it comes from device plug-ins although no node has any yet.
    """
    offered, asks = snapshot.nodes.allocatable[row] > 0, snapshot.requests[row] > 0
    using = (snapshot.pods.node >= 0) & asks[snapshot.pods.cls]
    elsewhere = not offered[snapshot.pods.node[using]].all()
    return elsewhere or (bool(asks.any()) and not plugged and not offered.any())


def with_devices(snapshot: Snapshot, objects: DeviceObjects) -> Snapshot:
    """Return the snapshot with a row of resources for each set of devices that can be counted."""
    claiming = [cls for cls, of in enumerate(snapshot.classes) if of.spec.resource_claims]
    provided = find_provided(snapshot, objects.classes or ())
    unoffered = any(is_unoffered(snapshot, row) for row in list_asked(snapshot))
    if not claiming and not provided and not unoffered:
        return snapshot
    if lacking := objects.find_lacking():
        claiming += np.flatnonzero(snapshot.requests[list(provided)].any(axis=0)).tolist()
        why = dict.fromkeys(claiming, (f"the snapshot holds no {lacking}",))
        return replace(snapshot, devices=Devices(why, {}, {}, frozenset()))
    inventory = Inventory(snapshot, objects)
    wanted = Wanted(snapshot, objects, inventory)
    return _Rows(snapshot, objects, inventory, wanted).make()


# -- what there is ------------------------------------------------------------------------------------


class _Device(NamedTuple):
    key: DeviceKey
    device: w.Device
    taints: tuple[w.DeviceTaint, ...]
    doubt: str
    """Why it is not known whether it can be had; empty if it is known."""


class Inventory:
    """The devices that nodes reach."""

    def __init__(self, snapshot: Snapshot, objects: DeviceObjects) -> None:
        self._snapshot, self._rules = snapshot, objects.taint_rules or ()
        self.devices: list[_Device] = []
        nodes: list[int] = []
        self.unsettled: str = ""
        """A pool that is being changed; empty if none is."""
        for (driver, pool), slices in sorted(_by_pool(objects.slices or ()).items()):
            why, complete = _find_pool_doubt(pool, slices)
            if why or not complete:
                self.unsettled = self.unsettled or why or f"pool {pool} is incomplete"
            for one in slices if complete or why else ():
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
        self.index = {one.key: number for number, one in enumerate(self.devices)}
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


# -- what is wanted -----------------------------------------------------------------------------------


class DeviceKind(NamedTuple):
    """What a request asks of each device."""

    name: str
    """Of its DeviceClass."""
    selectors: tuple[str, ...]
    tolerations: tuple[w.DeviceToleration, ...]
    attributes: tuple[str, ...]
    """Which it must have, and have in common with the other devices of the claim."""
    every: bool
    """Whether all such devices of the node are asked for."""
    resource: str = ""
    """The extended resource that the scheduler takes them for, where no device plug-in of the node offers it."""


class _Request(NamedTuple):
    kind: DeviceKind
    number: int
    """0: all."""


@dataclass(slots=True)
class _Need:
    """What the claims of a class ask for."""

    requests: list[_Request] = field(default_factory=list)
    claims: list[Sequence[_Request]] = field(default_factory=list)
    """Requests by claim."""
    alike: list[tuple[str, list[DeviceKind]]] = field(default_factory=list)
    """Attributes, each with the kinds whose devices must have one value of it in common."""
    pins: list[NodeSelector] = field(default_factory=list)
    """The nodes where what is allocated already can be used."""
    why: list[str] = field(default_factory=list)
    """Why this is not all."""
    rejected: str = ""

    def is_modelled(self) -> bool:
        """Return whether this is all, and the scheduler looks at nodes."""
        return not self.why and not self.rejected


class _NotModelledError(Exception):
    """A request is not modelled; the message says why."""


class _RejectedError(Exception):
    """The scheduler looks at no node; the message says why."""


class Wanted:
    """What each class asks for, and which devices each request matches."""

    def __init__(self, snapshot: Snapshot, objects: DeviceObjects, inventory: Inventory) -> None:
        self._snapshot, self._inventory = snapshot, inventory
        self._claims = {(c.metadata.namespace, c.metadata.name): c for c in objects.claims or ()}
        self._templates = {
            (t.metadata.namespace, t.metadata.name): t.spec.spec for t in objects.templates or ()
        }
        self._classes = {c.metadata.name: c for c in objects.classes or ()}
        self._users: Counter[tuple[str, str]] = Counter()
        """Pods that name a claim."""
        for cls in snapshot.pods.cls.tolist():
            of_class = snapshot.classes[cls]
            for entry in of_class.spec.resource_claims or ():
                self._users[of_class.namespace, entry.resource_claim_name or ""] += 1
        self._living = {
            snapshot.pods.uid[pod] for pod in np.flatnonzero(snapshot.pods.living).tolist()
        }
        self.owned = dict(_find_owned(snapshot, objects.claims or ()))
        """Pod -> the claims that go with it."""
        self.matches: dict[DeviceKind, Bools | str] = {}
        """Which devices (D,) it matches, or why that is not known."""
        self._counts: dict[DeviceKind, Ints] = {}
        self._selected: dict[DeviceKind, Ints] = {}
        """Devices per node (N,) of those that ask for all, also what cannot be had."""
        self.needs = {
            cls: self._read_need(cls)
            for cls, of_class in enumerate(snapshot.classes)
            if of_class.spec.resource_claims
        }
        if snapshot.version >= _ALLOCATES_RESOURCES:
            for row, name in enumerate(snapshot.resources):
                self._read_resource(row, name)
        self._note_waiting_claims()
        self._asking: dict[DeviceKind, list[_Need]] = {}
        work: dict[str, dict[str, int]] = {}
        for cls, need in self.needs.items():
            terms = work.setdefault(snapshot.classes[cls].namespace, {})
            if need.is_modelled():
                self._match_all(need, terms)
            for kind in dict.fromkeys(request.kind for request in need.requests):
                self._asking.setdefault(kind, []).append(need)

    def _match_all(self, need: _Need, terms: dict[str, int]) -> None:
        """Find the devices that match each request of a class. ``terms``: by expression, of all that its namespace asks for."""
        for request in need.requests:
            for expression in request.kind.selectors:
                if expression not in terms:
                    terms[expression] = _count_terms(expression)
        if sum(terms.values()) * len(self._inventory.first) > _MAX_WORK:
            need.why.append("the selectors of its namespace are too many for so many devices")
            return
        for request in need.requests:
            if isinstance(why := self._match(request.kind), str):
                need.why.append(why)
        for attribute, kinds in need.alike:
            need.why += self._find_unlike(attribute, kinds)
        if any(self._count_most(claim) > _MAX_RESULTS for claim in need.claims):
            need.why.append(f"a claim asks for more than {_MAX_RESULTS} devices")

    # -- reading claims

    def _note_waiting_claims(self) -> None:
        """Note the classes with pods that wait with devices, or with a claim of a template that has changed or is gone since."""
        pods = self._snapshot.pods
        for pod, claims in self.owned.items():
            if pods.node[pod] >= 0 or (need := self.needs.get(int(pods.cls[pod]))) is None:
                continue
            of_class = self._snapshot.classes[int(pods.cls[pod])]
            specs = [
                self._templates.get((of_class.namespace, entry.resource_claim_template_name or ""))
                for entry in of_class.spec.resource_claims or ()
            ]
            if any(claim.status.allocation is not None for claim in claims):
                need.why.append("a pod that waits has devices already")
            elif any(claim.spec not in specs for claim in claims):
                need.why.append("a pod that waits has a claim that its template would not make now")
                need.rejected = ""  # as its template is gone

    def _read_need(self, cls: int) -> _Need:
        of_class, need = self._snapshot.classes[cls], _Need()
        for entry in of_class.spec.resource_claims or ():
            try:
                self._read_entry(of_class.namespace, entry, need)
            except _NotModelledError as error:
                need.why.append(str(error))
            except _RejectedError as error:
                need.rejected = need.rejected or str(error)
        return need

    def _read_entry(self, namespace: str, entry: PodResourceClaim, need: _Need) -> None:
        if template := entry.resource_claim_template_name:
            spec = self._templates.get((namespace, template))
            if spec is None:
                raise _RejectedError(f'resourceclaimtemplate "{template}" not found')
            self._check_quotas(namespace)
            self._read_spec(spec, need)
        elif name := entry.resource_claim_name:
            self._read_claim(namespace, name, need)
        else:
            raise _NotModelledError(f"the claim {entry.name} names no source that is known")

    def _check_quotas(self, namespace: str) -> None:
        if any(_limits_claims(q.free) for q in self._snapshot.quotas if q.namespace == namespace):
            raise _NotModelledError(f"a ResourceQuota of {namespace} limits claims")

    def _read_claim(self, namespace: str, name: str, need: _Need) -> None:
        claim = self._claims.get((namespace, name))
        if claim is None:
            raise _RejectedError(f'resourceclaim "{name}" not found')
        if claim.metadata.deletion_timestamp is not None:
            raise _RejectedError(f'resourceclaim "{name}" is being deleted')
        allocation, consumers = claim.status.allocation, claim.status.reserved_for or ()
        staying = sum(one.uid in self._living for one in consumers)
        if allocation is None:
            if self._users[namespace, name] > 1:
                raise _NotModelledError(f"several pods wait for the devices of claim {name}")
            self._read_spec(claim.spec, need)
        elif staying <= 1:
            raise _NotModelledError(f"the devices of claim {name} are released with its last pod")
        elif len(consumers) >= _MAX_CONSUMERS:
            raise _NotModelledError(f"claim {name} has as many pods as it may have")
        elif allocation.node_selector is not None:
            need.pins.append(allocation.node_selector)

    def _read_spec(self, spec: w.ClaimSpec, need: _Need) -> None:
        requests, kinds = spec.devices.requests or (), dict[str, _Request]()
        attributes = dict[str, list[str]]()
        for constraint in spec.devices.constraints or ():
            if constraint.match_attribute is None:
                raise _NotModelledError("a constraint is not matchAttribute")
            for name in constraint.requests or [one.name for one in requests]:
                attributes.setdefault(name, []).append(constraint.match_attribute)
        for one in requests:
            kinds[one.name] = self._read_request(one, tuple(sorted(attributes.get(one.name, ()))))
        need.requests += kinds.values()
        need.claims.append(tuple(kinds.values()))
        for constraint in spec.devices.constraints or ():
            among = [kinds[name] for name in constraint.requests or kinds if name in kinds]
            if [one.number for one in among] != [1]:
                of = [one.kind for one in among]
                need.alike.append((constraint.match_attribute or "", of))

    def _read_resource(self, row: int, name: str) -> None:
        """Note what classes need of an extended resource that a DeviceClass provides."""
        behind = [one for one in self._classes.values() if name in _list_provided(one)]
        for cls in np.flatnonzero(self._snapshot.requests[row]).tolist() if behind else ():
            need = self.needs.setdefault(cls, _Need())
            try:
                self._check_quotas(self._snapshot.classes[cls].namespace)
                need.requests.append(self._read_amount(cls, row, behind))
            except _NotModelledError as error:
                need.why.append(str(error))

    def _read_amount(self, cls: int, row: int, behind: Sequence[w.DeviceClass]) -> _Request:
        """Return what a class asks of the devices ``behind`` an extended resource."""
        name, number = self._snapshot.resources[row], int(self._snapshot.requests[row, cls])
        if len(behind) > 1:
            raise _NotModelledError(f"several DeviceClasses stand behind {name}")
        if number > _MAX_RESULTS:
            raise _NotModelledError(f"more than {_MAX_RESULTS} of {name} are asked for")
        if any(map(_requests(name), self._snapshot.classes[cls].spec.init_containers or ())):
            raise _NotModelledError(f"init containers ask for {name}")
        selectors = tuple(_read_expressions(name, behind[0].spec.selectors or ()))
        kind = DeviceKind(behind[0].metadata.name, selectors, (), (), every=False, resource=name)
        return _Request(kind, number)

    def _read_request(self, request: w.DeviceRequest, attributes: tuple[str, ...]) -> _Request:
        exact = request.exactly
        if exact is None:
            raise _NotModelledError(f"the request {request.name} has alternatives (firstAvailable)")
        if exact.admin_access:
            raise _NotModelledError(f"the request {request.name} asks for adminAccess")
        if exact.capacity is not None:
            raise _NotModelledError(f"the request {request.name} asks for a part of a device")
        if exact.derived_attributes:
            raise _NotModelledError(f"the request {request.name} has derived attributes")
        if exact.allocation_mode not in ("", "ExactCount", "All"):
            raise _NotModelledError(f"allocationMode {exact.allocation_mode} is unknown")
        device_class = self._classes.get(exact.device_class_name)
        if device_class is None:
            message = f"device class {exact.device_class_name} does not exist"
            raise _RejectedError(f"request {request.name}: {message}")
        selectors = (*(device_class.spec.selectors or ()), *(exact.selectors or ()))
        every = exact.allocation_mode == "All"
        kind = DeviceKind(
            exact.device_class_name,
            tuple(_read_expressions(request.name, selectors)),
            exact.tolerations or (),
            attributes,
            every,
        )
        return _Request(kind, 0 if every else max(1, exact.count))

    def asking(self, kind: DeviceKind) -> Sequence[_Need]:
        """Return what classes need with requests of a kind."""
        return self._asking[kind]

    # -- matching devices

    def count(self, kind: DeviceKind) -> Ints:
        """Return per node (N,) how many devices match; 0 where that is not known."""
        if kind not in self._counts:
            of = self.matches.get(kind, "")
            none = np.zeros(len(self._inventory.devices), bool)
            self._counts[kind] = self._inventory.count(none if isinstance(of, str) else of)
        return self._counts[kind]

    def _count_most(self, claim: Sequence[_Request]) -> int:
        """Return how many devices a claim may ask for on one node: more than it may have end the search on all nodes."""
        exact = sum(request.number for request in claim)
        every = sum(self._selected.get(of.kind, 0) for of in claim if not of.number)
        return exact + int(np.max(every, initial=0))

    def _match(self, kind: DeviceKind) -> Bools | str:
        known = self.matches.get(kind)
        if known is None:
            try:
                known = self._find_matches(kind)
            except _NotModelledError as error:
                known = str(error)
            self.matches[kind] = known
        return known

    def _find_matches(self, kind: DeviceKind) -> Bools:
        inventory = self._inventory
        if kind.every and inventory.unsettled:
            raise _NotModelledError(f"{inventory.unsettled}, and all devices are asked for")
        selects, has_all = np.zeros((2, len(inventory.first)), bool)
        for kind_of, number in enumerate(inventory.first):
            selects[kind_of] = self._is_selected(kind, number)
            has_all[kind_of] = selects[kind_of] and all(
                self.find_attribute(number, name) is not None for name in kind.attributes
            )
        selected: Bools = selects[inventory.kind]
        for number in np.flatnonzero(selected & inventory.doubtful).tolist():
            raise _NotModelledError(inventory.devices[number].doubt)
        mask: Bools = has_all[inventory.kind]
        for number in np.flatnonzero(mask & inventory.tainted).tolist():
            mask[number] = not _keeps_away(inventory.devices[number].taints, kind.tolerations)
        return self._keep_all(kind, selected, mask, has_all[selects]) if kind.every else mask

    def _keep_all(self, kind: DeviceKind, selected: Bools, mask: Bools, has_all: Bools) -> Bools:
        """Return ``mask`` of nodes where all that is ``selected`` (D,) can be had."""
        inventory = self._inventory
        if not has_all.all():
            # The scheduler stops with an error, for all nodes.
            raise _NotModelledError("all devices are asked for, and some lack an attribute")
        self._selected[kind] = inventory.count(selected)
        kept: Bools = mask & ~np.isin(inventory.node, inventory.node[selected & ~mask])
        if len({*inventory.count(kept).tolist()} - {0}) > 1:
            raise _NotModelledError("all devices are asked for, and nodes differ in their number")
        return kept

    def _is_selected(self, kind: DeviceKind, number: int) -> bool:
        for expression in kind.selectors:
            try:
                if not compile_selector(expression).matches(self._inventory.describe(number)):
                    return False
            except UnsupportedSelectorError as error:
                raise _NotModelledError(f"the selector {_cut(expression)}: {error}") from None
            except FailedSelectorError as error:
                device = "/".join(self._inventory.devices[number].key)
                why = f"the selector {_cut(expression)} fails for device {device}: {error}"
                raise _NotModelledError(why) from None
        return True

    def find_attribute(self, number: int, name: str) -> Any | None:
        """Return the value of an attribute by its whole name; None if the device has none."""
        domain, key = split_name(name, "")
        try:
            values = self._inventory.describe(number)["attributes"][domain]
        except FailedSelectorError as error:
            raise _NotModelledError(str(error)) from None
        return values.get(key)

    def _find_unlike(self, attribute: str, kinds: Sequence[DeviceKind]) -> Iterator[str]:
        """Yield why devices of one node cannot all be taken together, although each could be by itself."""
        masks = [of for kind in kinds if not isinstance(of := self._match(kind), str)]
        values: dict[int, tuple[type, Any]] = {}
        for number in np.flatnonzero(np.logical_or.reduce(masks)).tolist() if masks else ():
            node = int(self._inventory.node[number])
            plain = self.find_attribute(number, attribute)
            value = type(plain), plain  # 1 is not true
            if values.setdefault(node, value) != value:
                yield f"devices of one node differ in {attribute}, which they must have in common"
                return


def _find_owned(
    snapshot: Snapshot, claims: Iterable[w.ResourceClaim]
) -> Iterator[tuple[int, Sequence[w.ResourceClaim]]]:
    """Yield the pods that own claims of their namespace, with these: who owns a claim is what its author says."""
    owned: dict[tuple[str, str], list[w.ResourceClaim]] = {}
    for claim in sorted(claims, key=lambda one: one.metadata.name):
        for owner in claim.metadata.owner_references or ():
            if owner.kind == "Pod" and owner.controller:
                owned.setdefault((claim.metadata.namespace, owner.uid), []).append(claim)
    for pod, cls in enumerate(snapshot.pods.cls.tolist() if owned else ()):
        if of := owned.get((snapshot.classes[cls].namespace, snapshot.pods.uid[pod])):
            yield pod, of


def _read_expressions(of: str, selectors: Iterable[w.DeviceSelector]) -> Iterator[str]:
    for one in selectors:
        if one.cel is None:
            raise _NotModelledError(f"{of} has a selector that is no CEL")
        yield one.cel.expression


def _cut(expression: str) -> str:
    return expression if len(expression) <= _MAX_SHOWN else f"{expression[:_MAX_SHOWN]}..."


def _count_terms(expression: str) -> int:
    """Return how many terms are evaluated for a device; of one that cannot be compiled none."""
    try:
        return compile_selector(expression).terms
    except UnsupportedSelectorError:
        return 0


def _requests(resource: str) -> Callable[[Container], bool]:
    """Return whether a container asks for a resource."""
    return lambda of: of.resources is not None and resource in (of.resources.requests or {})


def _limits_claims(names: Iterable[str]) -> bool:
    """Return whether a quota counts claims, or devices of a class."""
    return any(
        "resourceclaims" in name or name.endswith(".deviceclass.resource.k8s.io/devices")
        for name in names
    )


def _keeps_away(taints: Iterable[w.DeviceTaint], tolerations: Sequence[w.DeviceToleration]) -> bool:
    return any(
        taint.effect in _KEEPS_AWAY and not any(_tolerates(one, taint) for one in tolerations)
        for taint in taints
    )


def _tolerates(toleration: w.DeviceToleration, taint: w.DeviceTaint) -> bool:
    """Source: ``resourceclaim.ToleratesTaint``."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    equal = toleration.operator in ("", "Equal") and toleration.value == taint.value
    return equal or toleration.operator == "Exists"


# -- rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Set:
    """Devices of which requests of some kinds want all or none on each node."""

    name: str
    kinds: Sequence[DeviceKind]
    members: Bools
    """(D,)"""
    size: Ints
    """(N,)"""


class _Row(NamedTuple):
    name: str
    requests: Ints
    """(C,)"""
    capacity: Ints
    """(N,)"""
    allocatable: Ints
    """(N,)"""
    kinds: Sequence[DeviceKind] = ()
    """What asks for the devices that it counts."""


class _Rows:
    """The sets of devices as rows of a snapshot."""

    def __init__(
        self, snapshot: Snapshot, objects: DeviceObjects, inventory: Inventory, wanted: Wanted
    ) -> None:
        self._snapshot, self._inventory, self._wanted = snapshot, inventory, wanted
        self._sets = list(self._find_sets())
        self._kinds = [kind for of in self._sets for kind in of.kinds]
        for of in self._sets:
            self._judge_kinds(of)
        keys = [(d.driver, d.pool, d.device) for d in _list_allocated(objects.claims or ())]
        self._in_use = np.zeros(len(inventory.devices), bool)
        self._in_use[[inventory.index[key] for key in keys if key in inventory.index]] = True
        self._holders, self._held = self._find_held()
        self._rows = list(self._make_rows())

    def make(self) -> Snapshot:
        """Return the snapshot with the rows."""
        snapshot, rows, needs = self._snapshot, self._rows, self._wanted.needs
        before, nodes = len(snapshot.resources), snapshot.nodes
        return replace(
            snapshot,
            resources=(*snapshot.resources, *(row.name for row in rows)),
            requests=_append(snapshot.requests, [row.requests for row in rows]),
            nodes=replace(
                nodes,
                allocatable=_append(
                    self._offer(nodes.allocatable), [row.allocatable for row in rows]
                ),
                capacity=_append(self._offer(nodes.capacity), [row.capacity for row in rows]),
            ),
            devices=Devices(
                {cls: tuple(dict.fromkeys(need.why)) for cls, need in needs.items()},
                {cls: need.rejected for cls, need in needs.items() if need.rejected},
                {cls: self._pin(need.pins) for cls, need in needs.items() if need.pins},
                frozenset(range(before, before + len(rows))),
                {
                    snapshot.resources.index(kind.resource): before + number
                    for number, row in enumerate(rows)
                    for kind in row.kinds
                    if kind.resource
                },
                len(snapshot.classes),
            ),
        )

    def _offer(self, amounts: Ints) -> Ints:
        """Return amounts of nodes (R, N) with as much of extended resources as there are devices that stand for them.

        How many of these are left is in their own row.
        """
        offered = amounts.copy()
        for kind in self._kinds:
            if kind.resource:
                row, number = (
                    self._snapshot.resources.index(kind.resource),
                    self._wanted.count(kind),
                )
                offered[row, number > 0] = number[number > 0]
        return offered

    def _count_offered(self, of: _Set) -> Ints:
        """Return what device plug-ins of nodes (N,) offer of the resources for which a set stands elsewhere."""
        names = [kind.resource for kind in of.kinds if kind.resource]
        rows = [self._snapshot.resources.index(name) for name in dict.fromkeys(names)]
        offered: Ints = np.add.reduce(self._snapshot.nodes.allocatable[rows])
        return offered

    def _pin(self, selectors: Sequence[NodeSelector]) -> Bools:
        """Return the nodes (N,) where all that is allocated already can be used."""
        labels = self._snapshot.nodes.labels
        return freeze(np.logical_and.reduce([labels.selector(one) for one in selectors]))

    def _find_sets(self) -> Iterator[_Set]:
        """Yield the sets of devices that requests have in common, directly or through other requests."""
        alike: dict[bytes, list[DeviceKind]] = {}
        masks: dict[bytes, Bools] = {}
        for kind, of in sorted(self._wanted.matches.items(), key=lambda each: repr(each[0])):
            if not isinstance(of, str) and any(map(_Need.is_modelled, self._wanted.asking(kind))):
                alike.setdefault(of.tobytes(), []).append(kind)
                masks[of.tobytes()] = of
        left, named = list(masks), Counter[str]()
        while left:
            kinds, members = list(alike[left[0]]), masks[left.pop(0)].copy()
            while near := [one for one in left if (masks[one] & members).any()]:
                kinds += [kind for one in near for kind in alike[one]]
                left = [one for one in left if one not in near]
                members |= np.logical_or.reduce([masks[one] for one in near])
            name = f"{DEVICE_ROW}{kinds[0].name}"
            # A pod may ask for a resource of that name itself.
            named[name] += 1 + (not named[name] and name in self._snapshot.resources)
            number = f":{named[name]}" if named[name] > 1 else ""
            yield _Set(f"{name}{number}", kinds, members, self._inventory.count(members))

    def _judge_kinds(self, of: _Set) -> None:
        """Note which requests want only a part of what others want on a node."""
        for kind in of.kinds:
            own = self._wanted.count(kind)
            part = np.flatnonzero((own > 0) & (own < of.size))
            if len(part):
                node = self._snapshot.nodes.names[int(part[0])]
                why = f"other pods ask for only some of the devices that {kind.name} has on {node}, or for more"
                for need in self._wanted.asking(kind):
                    need.why.append(why)
        both = np.flatnonzero((self._count_offered(of) > 0) & (of.size > 0))
        if len(both):
            node = self._snapshot.nodes.names[int(both[0])]
            why = f"{node} has devices and a device plug-in for the same resource"
            for kind in of.kinds:
                for need in self._wanted.asking(kind):
                    need.why.append(why)

    def _find_held(self) -> tuple[Int32s, Ints]:
        """Return the pods on nodes with devices (K,), and how many of each set they have (K, S).

        They are those of claims that go with the pod. Others are in use whoever comes or goes.
        """
        pods, needs = self._snapshot.pods, self._wanted.needs
        holders, counts = list[int](), list[Ints]()
        for pod, claims in sorted(self._wanted.owned.items()):
            reserved = [
                claim
                for claim in claims
                if pods.uid[pod] in {one.uid for one in claim.status.reserved_for or ()}
            ]
            keys = [(d.driver, d.pool, d.device) for d in _list_allocated(reserved)]
            if keys and pods.node[pod] >= 0 and int(pods.cls[pod]) in needs:
                some = [self._inventory.index[key] for key in keys if key in self._inventory.index]
                holders.append(pod)
                counts.append(np.array([of.members[some].sum() for of in self._sets], np.int64))
        matrix = np.array(counts, np.int64).reshape(len(holders), len(self._sets))
        return np.array(holders, np.int32), matrix

    def _find_unlike(self, number: int, of: _Set, counts: Ints) -> Bools:
        """Return the classes (C,) with a pod on a node that has other devices of a set than ``counts`` (C,) says."""
        pods, wrong = self._snapshot.pods, np.zeros(len(counts), bool)
        had = np.zeros(len(pods), np.int64)
        had[self._holders] = self._held[:, number]
        # A device plug-in keeps its own accounts.
        plugged = np.append(self._count_offered(of) > 0, False)[pods.node]
        wrong[pods.cls[(pods.node >= 0) & ~plugged & (had != counts[pods.cls])]] = True
        return wrong

    def _make_rows(self) -> Iterator[_Row]:
        cls, node = (column[self._holders] for column in self._columns())
        for number, of in enumerate(self._sets):
            counts = self._count(number, of, cls)
            used = self._inventory.count(of.members & self._in_use)
            held = np.bincount(node, counts[cls], minlength=len(of.size)).astype(np.int64)
            offered = self._count_offered(of)
            able = np.where(offered > 0, offered, of.size - used + held)
            yield _Row(of.name, counts, of.size, able, of.kinds)
            where: dict[bytes, list[DeviceKind]] = {}
            for kind in of.kinds:
                has = self._wanted.count(kind) > 0
                # The row of an extended resource tells its nodes apart.
                if not kind.resource and (np.where(has, of.size, 0) != of.size + offered).any():
                    where.setdefault(has.tobytes(), []).append(kind)
            for place, (some, kinds) in enumerate(where.items(), 1):
                there = np.where(np.frombuffer(some, bool), of.size, 0)
                asked = np.minimum(self._sum_asked(kinds), counts)
                yield _Row(f"{of.name}/{place}", asked, there, there)

    def _sum_asked(self, kinds: Sequence[DeviceKind]) -> Ints:
        """Return how many devices a pod of each class asks for (C,) by requests of some kinds."""
        asked = np.zeros(len(self._snapshot.classes), np.int64)
        # Where all are asked for there must be one at least.
        every = {kind: int(max(self._wanted.count(kind), default=0)) or 1 for kind in kinds}
        for cls, need in self._wanted.needs.items():
            asked[cls] = sum(
                one.number or every[one.kind] for one in need.requests if one.kind in every
            )
        return asked

    def _columns(self) -> tuple[Int32s, Int32s]:
        return self._snapshot.pods.cls, self._snapshot.pods.node

    def _count(self, number: int, of: _Set, cls: Int32s) -> Ints:
        """Return how many devices of a set a pod of each class takes (C,). ``cls`` (K,): of those that have some.

        Of a class that is not modelled its pods say it. Where pods say something else than their class, the class takes none:
        what its pods have stays in use, what they only ask for is taken from nobody, and they stay.
        """
        size, needs = len(self._snapshot.classes), self._wanted.needs
        most, modelled = np.zeros(size, np.int64), np.zeros(size, bool)
        np.maximum.at(most, cls, self._held[:, number])
        modelled[[one for one, need in needs.items() if need.is_modelled()]] = True
        holds = np.bincount(cls, minlength=size) > 0
        counts = np.where(modelled | ~holds, self._sum_asked(of.kinds), most)
        unlike = self._find_unlike(number, of, counts)
        name = of.name.removeprefix(DEVICE_ROW)
        for one in np.flatnonzero(unlike & modelled).tolist():
            needs[one].why.append(f"pods have other devices of {name} than they ask for")
        return np.where(unlike, 0, counts)


def _list_allocated(claims: Iterable[w.ResourceClaim]) -> Iterator[w.AllocatedDevice]:
    """Yield the devices that nobody else can have; access of administrators takes none."""
    for claim in claims:
        yield from (device for device in claim.devices if not device.admin_access)


def _append(matrix: Ints, rows: Sequence[Ints]) -> Ints:
    return freeze(np.vstack([matrix, *rows]).astype(np.int64))
