"""The requests in the resource claims of pods, and the devices that match them (dynamic resource allocation).

Source: ``plugins/dynamicresources`` of kube-scheduler and ``k8s.io/dynamic-resource-allocation/structured``
(``allocator_incubating.go``). What is not modelled is named: pods that request it are not predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rebalancer.snapshot.columns import Bools, Ints, freeze
from rebalancer.snapshot.device_inventory import Inventory
from rebalancer.snapshot.device_selectors import (
    FailedSelectorError,
    UnsupportedSelectorError,
    compile_selector,
    split_name,
)
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import is_extended
from rebalancer.wire import devices as w
from rebalancer.wire.kinds import OF_DEVICES
from rebalancer.wire.objects import Container, NodeSelector, PodResourceClaim

_ALLOCATES_RESOURCES = (1, 36)
"""From this version on the scheduler allocates devices for extended resources."""
_OF_CLASS = "deviceclass.resource.kubernetes.io/"
"""Begins the resource that each DeviceClass provides, beside the one that it names."""
_MAX_RESULTS = 32
"""Devices that one claim may have (``AllocationResultsMaxSize``)."""
_MAX_CONSUMERS = 256
"""Pods that may use one claim (``ResourceClaimReservedForMaxSize``)."""
_MAX_ALTERNATIVES = 8
"""``FirstAvailableDeviceRequestMaxSize``: what the first one scores."""
_MAX_WORK = 10_000_000
"""Terms of selectors that are evaluated for one namespace: some seconds."""
_MAX_SHOWN = 200
"""Characters of an expression in a reason."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


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


def list_asked(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the rows of extended resources that pods request, and for which the scheduler may allocate devices."""
    if snapshot.version < _ALLOCATES_RESOURCES:
        return ()
    asked = np.flatnonzero((snapshot.requests > 0).any(axis=1)).tolist()
    return tuple(row for row in asked if may_be_of_devices(snapshot.resources[row]))


def find_provided(snapshot: Snapshot, classes: Iterable[w.DeviceClass]) -> tuple[int, ...]:
    """Return those rows of :func:`list_asked` that a DeviceClass provides, also if nodes offer them."""
    named = {name for one in classes for name in _list_provided(one)}
    return tuple(row for row in list_asked(snapshot) if snapshot.resources[row] in named)


def _list_provided(one: w.DeviceClass) -> tuple[str | None, str]:
    return one.spec.extended_resource_name, f"{_OF_CLASS}{one.metadata.name}"


def may_be_of_devices(resource: str) -> bool:
    """Return whether a DeviceClass may provide a resource (``IsDRAExtendedResourceName``)."""
    return resource.startswith(_OF_CLASS) or is_extended(resource)


class DeviceKind(NamedTuple):
    """The conditions of a request on each device."""

    name: str
    """The name of the DeviceClass."""
    selectors: tuple[str, ...]
    tolerations: tuple[w.DeviceToleration, ...]
    attributes: tuple[str, ...]
    """Which it must have, and have in common with the other devices of the claim."""
    every: bool
    """Whether all such devices of the node are requested."""
    resource: str = ""
    """The extended resource for which the scheduler allocates them, if no device plug-in of the node offers it."""
    alternatives: tuple[DeviceKind, ...] = ()
    """Any of these will do, the first one best (``firstAvailable``); then all above but the name is empty."""


class _Request(NamedTuple):
    kind: DeviceKind
    number: int
    """0: all."""


@dataclass(slots=True)
class Need:
    """The devices that the claims of a class request."""

    requests: list[_Request] = field(default_factory=list)
    claims: list[Sequence[_Request]] = field(default_factory=list)
    """The requests of each claim."""
    alike: list[tuple[str, list[DeviceKind]]] = field(default_factory=list)
    """Attributes, each with the kinds whose devices must have one value of it in common."""
    pins: list[NodeSelector] = field(default_factory=list)
    """The nodes where the devices that are already allocated can be used."""
    why: list[str] = field(default_factory=list)
    """Why this is not all."""
    rejected: str = ""

    def is_modelled(self) -> bool:
        """Return whether this is all, and the scheduler looks at nodes."""
        return not self.why and not self.rejected


class _NotModelledError(Exception):
    """A request is not modelled; the message is the reason."""


class _RejectedError(Exception):
    """The scheduler examines no node; the message is the reason."""


class Wanted:
    """The requests of each class, and the devices that each request matches."""

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
        """Pod -> the claims that are deleted with it."""
        self.matches: dict[DeviceKind, Bools | str] = {}
        """Which devices (D,) it matches, or why that is not known."""
        self.preferred: dict[DeviceKind, Ints] = {}
        """Of alternatives: the score of each node (N,) for the one that it has."""
        self._selected: dict[DeviceKind, Ints] = {}
        """Devices per node (N,) of requests for all, including devices that cannot be allocated."""
        self.needs = {
            cls: self._read_need(cls)
            for cls, of_class in enumerate(snapshot.classes)
            if of_class.spec.resource_claims
        }
        if snapshot.version >= _ALLOCATES_RESOURCES:
            for row, name in enumerate(snapshot.resources):
                self._read_resource(row, name)
        self._note_waiting_claims()
        self.asking: dict[DeviceKind, list[Need]] = {}
        """Kind -> what classes need with requests of it."""
        work: dict[str, dict[str, int]] = {}
        for cls, need in self.needs.items():
            terms = work.setdefault(snapshot.classes[cls].namespace, {})
            if need.is_modelled():
                self._match_all(need, terms)
            for kind in dict.fromkeys(request.kind for request in need.requests):
                self.asking.setdefault(kind, []).append(need)

    def _match_all(self, need: Need, terms: dict[str, int]) -> None:
        """Find the devices that match each request of a class. ``terms``: by expression, for all requests of its namespace."""
        for request in need.requests:
            for kind in request.kind.alternatives or (request.kind,):
                for expression in kind.selectors:
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

    def _read_need(self, cls: int) -> Need:
        of_class, need = self._snapshot.classes[cls], Need()
        for entry in of_class.spec.resource_claims or ():
            try:
                self._read_entry(of_class.namespace, entry, need)
            except _NotModelledError as error:
                need.why.append(str(error))
            except _RejectedError as error:
                need.rejected = need.rejected or str(error)
        return need

    def _read_entry(self, namespace: str, entry: PodResourceClaim, need: Need) -> None:
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

    def _read_claim(self, namespace: str, name: str, need: Need) -> None:
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

    def _read_spec(self, spec: w.ClaimSpec, need: Need) -> None:
        requests, kinds = spec.devices.requests or (), dict[str, _Request]()
        if spec.devices.constraints and any(one.first_available for one in requests):
            raise _NotModelledError("a constraint stands beside alternatives (firstAvailable)")
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
            need = self.needs.setdefault(cls, Need())
            try:
                self._check_quotas(self._snapshot.classes[cls].namespace)
                need.requests.append(self._read_amount(cls, row, behind))
            except _NotModelledError as error:
                need.why.append(str(error))

    def _read_amount(self, cls: int, row: int, behind: Sequence[w.DeviceClass]) -> _Request:
        """Return what a class requests of the devices ``behind`` an extended resource."""
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
        if request.exactly is not None:
            return self._read_exact(request.name, request.exactly, attributes)
        of = [
            self._read_exact(f"{request.name}/{one.name}", one, ())
            for one in request.first_available or ()
        ]
        numbers = {one.number for one in of}
        if len(numbers) != 1 or 0 in numbers:
            why = "has alternatives (firstAvailable) of different numbers, or of all devices"
            raise _NotModelledError(f"the request {request.name} {why}")
        alternatives = tuple(one.kind for one in of)
        name = alternatives[0].name
        kind = DeviceKind(name, (), (), (), every=False, alternatives=alternatives)
        return _Request(kind, numbers.pop())

    def _read_exact(
        self, name: str, exact: w.ExactRequest, attributes: tuple[str, ...]
    ) -> _Request:
        if exact.admin_access:
            raise _NotModelledError(f"the request {name} asks for adminAccess")
        if exact.capacity is not None:
            raise _NotModelledError(f"the request {name} asks for a part of a device")
        if exact.derived_attributes:
            raise _NotModelledError(f"the request {name} has derived attributes")
        if exact.allocation_mode not in ("", "ExactCount", "All"):
            raise _NotModelledError(f"allocationMode {exact.allocation_mode} is unknown")
        device_class = self._classes.get(exact.device_class_name)
        if device_class is None:
            message = f"device class {exact.device_class_name} does not exist"
            raise _RejectedError(f"request {name}: {message}")
        selectors = (*(device_class.spec.selectors or ()), *(exact.selectors or ()))
        every = exact.allocation_mode == "All"
        kind = DeviceKind(
            exact.device_class_name,
            tuple(_read_expressions(name, selectors)),
            exact.tolerations or (),
            attributes,
            every,
        )
        return _Request(kind, 0 if every else max(1, exact.count))

    def find_preferences(self) -> Iterator[tuple[int, Ints]]:
        """Yield the classes whose alternatives score nodes (N,); parts that are not modelled are noted."""
        for cls, need in self.needs.items():
            scores = [self.preferred[r.kind] for r in need.requests if r.kind in self.preferred]
            if scores and need.pins:
                need.why.append(
                    "alternatives (firstAvailable) beside devices that are there already"
                )
            if scores:
                yield cls, freeze(np.add.reduce(scores))

    # -- matching devices

    def count(self, kind: DeviceKind) -> Ints:
        """Return per node (N,) how many devices match; 0 where that is not known."""
        of = self.matches.get(kind, "")
        none = np.zeros(len(self._inventory.devices), bool)
        return self._inventory.count(none if isinstance(of, str) else of)

    def _count_most(self, claim: Sequence[_Request]) -> int:
        """Return the largest number of devices that a claim requests on one node: above the API's limit the search ends on all nodes."""
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
        if kind.alternatives:
            return self._find_alternatives(kind)
        inventory = self._inventory
        if kind.every and inventory.unsettled:
            raise _NotModelledError(f"{inventory.unsettled}, and all devices are asked for")
        selects, has_all = np.zeros((2, len(inventory.first)), bool)
        for kind_of, number in enumerate(inventory.first):
            selects[kind_of] = self._is_selected(kind, number)
            has_all[kind_of] = selects[kind_of] and all(
                self._find_attribute(number, name) is not None for name in kind.attributes
            )
        selected: Bools = selects[inventory.kind]
        for number in np.flatnonzero(selected & inventory.doubtful).tolist():
            raise _NotModelledError(inventory.devices[number].doubt)
        mask: Bools = has_all[inventory.kind]
        for number in np.flatnonzero(mask & inventory.tainted).tolist():
            mask[number] = not _keeps_away(inventory.devices[number].taints, kind.tolerations)
        return self._keep_all(kind, selected, mask, has_all[selects]) if kind.every else mask

    def _find_alternatives(self, kind: DeviceKind) -> Bools:
        """Return the devices (D,) of all alternatives, where the first one that a node has leaves the others nothing more."""
        node, found = self._inventory.node, np.zeros(len(self._inventory.devices), bool)
        scores = np.zeros(len(self._snapshot.nodes), np.int64)
        for place, one in enumerate(kind.alternatives):
            mask = self._find_matches(one)
            if (mask & ~found & (scores[node] > 0)).any():
                raise _NotModelledError("a node has more devices for a later alternative")
            scores[(self._inventory.count(mask) > 0) & (scores == 0)] = _MAX_ALTERNATIVES - place
            found |= mask
        self.preferred[kind] = scores
        return found

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

    def _find_attribute(self, number: int, name: str) -> Any | None:
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
            plain = self._find_attribute(number, attribute)
            value = type(plain), plain  # 1 is not true
            if values.setdefault(node, value) != value:
                yield f"devices of one node differ in {attribute}, which they must have in common"
                return


def _find_owned(
    snapshot: Snapshot, claims: Iterable[w.ResourceClaim]
) -> Iterator[tuple[int, Sequence[w.ResourceClaim]]]:
    """Yield the pods that own claims of their namespace, with these claims; ownership is what the author of a claim has written."""
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
