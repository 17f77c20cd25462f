"""Advice on manifests: find the settings of a workload that make evictions necessary or dangerous, and make a patch."""

from __future__ import annotations

import enum
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import and_more, count
from rebalancer.doctor.workloads import RolledWorkload
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.topology import HOSTNAME, ZONE
from rebalancer.snapshot.columns import Bools, Int32s, Ints
from rebalancer.snapshot.labels import matches_labels
from rebalancer.snapshot.model import MEASURED, DisruptionBudget, Snapshot
from rebalancer.snapshot.state import NodeLoads
from rebalancer.snapshot.zones import may_use_zone, zones_without_nodes
from rebalancer.wire import objects as o
from rebalancer.wire.quantity import share_of

_REQUIRED, _PREFERRED = "DoNotSchedule", "ScheduleAnyway"
_SLEEP_SINCE = (1, 30)
"""The first version in which a hook that sleeps is on by default (KEP-3960)."""
_SLEEP = 5
"""Seconds for endpoints and load balancers to remove a pod that ends."""
_LEAST_GRACE = 10
_FAR = 4
"""A request is far from use from this factor on."""
_SPARE = 2
"""Factor of the recommended request to the measured usage."""
_LEAST = {"cpu": 100, "memory": 128 << 20}
"""Smaller differences do not count: millicores, bytes."""
_PODS_OF_SHARE = 4
"""The smallest number of pods whose quarter is at least one."""
_STEP = {"cpu": 10, "memory": 16 << 20}


class Topic(enum.StrEnum):
    """The topic of a piece of advice. Stable: the JSON uses the values."""

    SPREAD = "spread"
    NODES = "nodes"
    NO_BUDGET = "noBudget"
    CLOSED_BUDGET = "closedBudget"
    SEVERAL_BUDGETS = "severalBudgets"
    READINESS = "readinessProbe"
    PRE_STOP = "preStop"
    SURGE = "surge"
    UNAVAILABLE = "unavailable"
    REQUESTS = "requests"


Patch = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice on a workload."""

    topic: Topic
    why: str
    patch: Patch | None = None
    """Strategic merge patch of the workload; None if another object has to be changed, or only a person can decide how."""
    budget: Patch | None = None
    """A PodDisruptionBudget to create, or its patch with ``closedBudget``."""
    left: str = ""
    """The decision that is left to a person, if there is no patch."""


class Adviser:
    """Judges workloads by a snapshot."""

    def __init__(
        self, snapshot: Snapshot, model: SchedulerModel, kept: Bools | None = None
    ) -> None:
        """``kept`` (P,): pods that their own annotations keep on their nodes; None: there are none."""
        self._snapshot = snapshot
        self._kept = kept
        self._model = model
        self._zone_of = snapshot.nodes.labels.column(ZONE)
        self._zones = snapshot.nodes.labels.values(ZONE)
        self._owners = {owner.ref: index for index, owner in enumerate(snapshot.owners)}
        self._owner_of = np.array([one.owner for one in snapshot.classes] or [-1], np.int32)
        # By class and by namespace: each workload asks, and there may be as many budgets and Services.
        self._budgets_of: dict[int, list[DisruptionBudget]] = defaultdict(list)
        for budget in snapshot.budgets:
            for cls in budget.classes.tolist():
                self._budgets_of[cls].append(budget)
        self._selectors: dict[str, list[o.Labels]] = defaultdict(list)
        for namespace, selector in snapshot.services:
            self._selectors[namespace].append(selector)
        self._kinds: dict[tuple[str, str], set[str]] = defaultdict(set)
        for owner in snapshot.owners:
            self._kinds[owner.namespace, owner.name].add(owner.kind)
        self._taken = {one.ref for one in snapshot.budgets}

    def judge(self, workload: RolledWorkload) -> tuple[Advice, ...]:
        """Return all advice on one workload; none where it has no pods."""
        classes = self._classes(workload)
        if workload.replicas < 1 or not len(classes):
            return ()
        return (
            *self._spread(workload, classes),
            *self._budget(workload, classes),
            *self._serving(workload),
            *self._rollout(workload, classes),
            *self._requests(workload, classes),
        )

    def _classes(self, workload: RolledWorkload) -> Int32s:
        owner = self._owners.get(workload.ref, -1)
        return np.flatnonzero(self._owner_of == owner).astype(np.int32) if owner >= 0 else _NONE

    # -- spread --------------------------------------------------------------------------------------

    def _spread(self, workload: RolledWorkload, classes: Int32s) -> Iterator[Advice]:
        if workload.replicas < 2 or workload.has_claims or not workload.selector:
            # Volumes tie pods to zones and nodes: a rule that their volumes contradict would keep them waiting.
            # An empty selector would count all pods of the namespace.
            return
        if self._pins(classes):
            # Spread further, they would hold more nodes for good.
            return
        replaced_by = self._replacements(classes)
        possible, placed = self._possible(replaced_by), self._pods_on_nodes(classes)
        over_zones = self._over_zones(workload, replaced_by, possible, placed)
        if over_zones is None:
            over_zones = self._over_empty_zones(workload, replaced_by, possible, placed)
        zone = self._beside_foreign(replaced_by, over_zones)
        replaced = None
        if workload.pod.topology_spread_constraints:
            replaced = "its own rules replace"
        elif zone is not None and zone.patch is not None:
            replaced = "the new rule over zones replaces"
        node = self._over_nodes(workload, possible, placed, replaced)
        yield from filter(None, (zone, self._beside_foreign(replaced_by, node)))

    def _pins(self, classes: Int32s) -> bool:
        """Return whether all living pods of the classes are pinned to their nodes."""
        pods = self._snapshot.pods
        mine = pods.living & np.isin(pods.cls, classes)
        return self._kept is not None and bool(mine.any()) and bool(self._kept[mine].all())

    def _replacements(self, classes: Int32s) -> Int32s:
        """Return the classes of the pods that replace those of the classes."""
        of = self._snapshot.classes
        return np.unique([of[cls].replacement for cls in classes.tolist()]).astype(np.int32)

    def _possible(self, classes: Int32s) -> Bools:
        """Return the nodes (N,) that a pod of one of the classes may use, and that run it."""
        masks = (
            self._snapshot.without_foreign(self._model.static_mask(cls), cls)
            for cls in classes.tolist()
        )
        return np.logical_or.reduce(list(masks))

    def _beside_foreign(self, classes: Int32s, advice: Advice | None) -> Advice | None:
        """Return advice on a spread, without its patch where the rule would draw pods to another operating system."""
        if advice is None:
            return None
        for cls in classes.tolist():
            if (foreign := self._snapshot.foreign_nodes(cls)) is None:
                continue
            drawn = np.flatnonzero(self._model.static_mask(cls) & foreign)
            if len(drawn):
                name = self._snapshot.nodes.names[int(drawn[0])]
                left = (
                    f"a nodeSelector kubernetes.io/os first: without it a rule counts {name}, too, which is of another"
                    " operating system, and the scheduler sends pods there"
                )
                return replace(advice, patch=None, left=left)
        return advice

    def _pods_on_nodes(self, classes: Int32s) -> Ints:
        """Return the number of living pods of the classes on each node (N,)."""
        pods = self._snapshot.pods
        mine = pods.living & np.isin(pods.cls, classes)
        return np.bincount(pods.node[mine], minlength=len(self._snapshot.nodes))

    def _over_zones(
        self, workload: RolledWorkload, classes: Int32s, possible: Bools, placed: Ints
    ) -> Advice | None:
        zones = np.unique(self._zone_of[possible & (self._zone_of >= 0)])
        if len(zones) < 2 or _is_kept_apart(workload, ZONE, preferred=False):
            return None
        over = _rules_over(workload, ZONE)
        if any(one.when_unsatisfiable == _REQUIRED for one in over):
            return None
        rule = over[0] if over else None
        pods = np.array([placed[self._zone_of == zone].sum() for zone in zones.tolist()])
        uneven = int(pods.max() - pods.min())
        holds = rule is not None and uneven <= max(1, rule.max_skew)
        if holds and workload.replicas < len(zones):
            return None
        room = self._room(workload, classes, possible, placed) + placed
        share = math.ceil(workload.replicas / len(zones)) + 1
        narrow = [
            self._zones[zone]
            for zone in zones.tolist()
            if room[self._zone_of == zone].sum() < share
        ]
        counts = self._describe_zones(zones, placed)
        if rule is None:
            why = f"no rule spreads its {workload.replicas} pods over zones ({counts})"
        elif holds:
            why = (
                "its rule over zones is only preferred: rollouts and lost nodes may leave it unmet"
            )
        else:
            why = f"its rule over zones is only preferred, and does not hold ({counts})"
        if narrow and holds:
            return None
        if narrow and rule is not None:
            left = (
                f"{narrow[0]} has no room for its share: more machines there, or smaller requests"
            )
            return Advice(Topic.SPREAD, why, left=left)
        when = _PREFERRED if narrow else _REQUIRED
        if narrow:
            why += f"; preferred, since {narrow[0]} has no room for its share"
        return Advice(Topic.SPREAD, why, _in_pod(_spread_patch(workload, ZONE, when, rule)))

    def _describe_zones(self, zones: Int32s, placed: Ints) -> str:
        """Return how many of the ``placed`` pods (N,) are in each of the zones."""
        return ", ".join(
            f"{self._zones[zone]} {int(placed[self._zone_of == zone].sum())}"
            for zone in zones.tolist()
        )

    def _over_empty_zones(
        self, workload: RolledWorkload, classes: Int32s, possible: Bools, placed: Ints
    ) -> Advice | None:
        """Return advice to count zones that have no node, if a required rule over zones would be violated with them."""
        hard = [r for r in _rules_over(workload, ZONE) if r.when_unsatisfiable == _REQUIRED]
        specs = [self._snapshot.classes[cls].spec for cls in classes.tolist()]
        empty = [
            zone for zone in self._empty_zones if all(may_use_zone(spec, zone) for spec in specs)
        ]
        zones = np.unique(self._zone_of[possible & (self._zone_of >= 0)])
        if (
            not (hard and empty and len(zones))
            or any(rule.min_domains is not None for rule in hard)
            or workload.replicas <= hard[0].max_skew * len(zones)
        ):
            return None
        few = len(zones) + len(empty)
        why = (
            f"its rule over zones counts only those with nodes ({self._describe_zones(zones, placed)}), and {and_more(empty, 3)}"
            f" {'has' if len(empty) == 1 else 'have'} none. With minDomains {few} new pods beyond"
            f" {hard[0].max_skew} in a zone wait, so that an autoscaler adds nodes there; without one, rollouts wait, too"
        )
        wanted = {**_plain(hard[0]), "minDomains": few}
        return Advice(Topic.SPREAD, why, _in_pod(_replace_rule(workload, hard[0], wanted)))

    @cached_property
    def _empty_zones(self) -> tuple[str, ...]:
        return zones_without_nodes(self._snapshot)

    def _over_nodes(
        self, workload: RolledWorkload, possible: Bools, placed: Ints, replaced: str | None
    ) -> Advice | None:
        """Return advice to spread over nodes.

        A pod with rules of its own, which it has or is advised to have, has none of the scheduler's default ones, which
        spread over nodes, too (``pkg/scheduler/framework/plugins/podtopologyspread``: ``buildDefaultConstraints``).
        ``replaced``: the beginning of a sentence about their replacement; None if they are kept.
        """
        most, nodes = int(placed.max(initial=0)), int(np.count_nonzero(possible))
        shared = most > 1 and workload.replicas <= nodes
        if (
            not (shared or (replaced and nodes > 1))
            or _rules_over(workload, HOSTNAME)
            or _is_kept_apart(workload, HOSTNAME, preferred=True)
        ):
            return None
        why = f"{replaced} the scheduler's default ones, and none is over nodes"
        if shared:
            name = self._snapshot.nodes.names[int(placed.argmax())]
            why = (
                f"no rule spreads its pods over nodes: {most} of {workload.replicas} are on {name}"
            )
        patch = _spread_patch(workload, HOSTNAME, _PREFERRED, None)
        return Advice(Topic.NODES, why, _in_pod(patch))

    @cached_property
    def _loads(self) -> NodeLoads:
        return NodeLoads(self._snapshot)

    def _room(
        self, workload: RolledWorkload, classes: Int32s, possible: Bools, placed: Ints
    ) -> Ints:
        """Return for each node (N,) how many more pods of the classes fit on it, beside the ``placed`` ones (N,).

        None where they may not run; one in all where no node can run two of them.
        """
        nodes, loads = self._snapshot.nodes, self._loads
        room = nodes.max_pods - loads.pod_count
        asked = self._snapshot.requests[:, classes].max(axis=1)
        for resource in np.flatnonzero(asked > 0).tolist():
            free = nodes.allocatable[resource] - loads.used[resource]
            room = np.minimum(room, free // asked[resource])
        if _holds_ports(workload.pod) or _is_kept_apart(workload, HOSTNAME, preferred=False):
            room = np.minimum(room, 1 - placed)
        return np.where(possible, np.maximum(room, 0), 0)

    # -- PodDisruptionBudgets ------------------------------------------------------------------------

    def _budget(self, workload: RolledWorkload, classes: Int32s) -> Iterator[Advice]:
        mine = (one for cls in classes.tolist() for one in self._budgets_of.get(cls, ()))
        budgets = {one.ref: one for one in mine}.values()
        if not budgets and workload.replicas > 1 and workload.selector:
            why = (
                f"no PodDisruptionBudget selects its {workload.replicas} pods: drains, autoscalers and"
                " evictions may take all of them at once"
            )
            yield Advice(Topic.NO_BUDGET, why, budget=self._new_budget(workload))
        of_classes = (self._budgets_of.get(cls, ()) for cls in classes.tolist())
        if several := next((of_class for of_class in of_classes if len(of_class) > 1), None):
            why = (
                f"PodDisruptionBudgets {' and '.join(one.ref for one in several)} select the same pods of it: the API server"
                " refuses to evict them, so that drains of their nodes do not end"
            )
            left = (
                "one PodDisruptionBudget for each pod: delete the others, or narrow their selectors"
            )
            yield Advice(Topic.SEVERAL_BUDGETS, why, left=left)
        for budget in budgets:
            if budget.never_allows:
                yield self._advise_on_closed(workload, classes, budget)

    def _advise_on_closed(
        self, workload: RolledWorkload, classes: Int32s, budget: DisruptionBudget
    ) -> Advice:
        why = (
            f"PodDisruptionBudget {budget.ref} can never allow an eviction: of {count(budget.expected, 'pod')}"
            f" {budget.desired} have to be healthy; drains of their nodes do not end"
        )
        if workload.replicas < 2:
            left = "two replicas, or no budget: with one, each eviction is an outage"
            return Advice(Topic.CLOSED_BUDGET, why, left=left)
        if not np.isin(budget.classes, classes).all():
            left = "it selects pods of other workloads, too: give each workload a budget of its own"
            return Advice(Topic.CLOSED_BUDGET, why, left=left)
        patch = {
            **_head("policy/v1", "PodDisruptionBudget", budget.namespace, budget.name),
            "spec": {"minAvailable": None, "maxUnavailable": 1},
        }
        return Advice(Topic.CLOSED_BUDGET, why, budget=patch)

    def _new_budget(self, workload: RolledWorkload) -> Patch:
        namespace, name = workload.metadata.namespace, workload.metadata.name
        if len(self._kinds[namespace, name]) > 1 or f"{namespace}/{name}" in self._taken:
            name = f"{name}-{workload.kind.lower()}"
        return {
            **_head("policy/v1", "PodDisruptionBudget", namespace, name),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": workload.selector,
            },
        }

    # -- pods that serve -----------------------------------------------------------------------------

    def _serving(self, workload: RolledWorkload) -> Iterator[Advice]:
        """Yield advice on pods that a Service sends requests to."""
        containers = workload.pod.containers
        if not workload.probes_known or not self._is_served(workload) or not containers:
            return
        if all(one.readiness_probe is None for one in containers):
            why = "a Service sends requests to its pods, and none has a readiness probe: they count as ready at once"
            ports = [(one.name, port) for one in containers for port in one.ports or ()]
            if len(ports) != 1 or ports[0][1].protocol != "TCP" or not ports[0][1].container_port:
                # A probe of another port than the one that serves could keep a pod from ever being ready.
                left = (
                    "a readiness probe that asks whether it can serve: its containers do not name one TCP port, and"
                    " no other"
                )
                yield Advice(Topic.READINESS, why, left=left)
            else:
                name, number = ports[0][0], ports[0][1].container_port
                probe = {"tcpSocket": {"port": number}, "periodSeconds": 5}
                patch = _in_pod({"containers": [{"name": name, "readinessProbe": probe}]})
                yield Advice(
                    Topic.READINESS, f"{why}; better than a TCP probe is one of its own", patch
                )
        if all("preStop" not in (one.lifecycle or {}) for one in containers):
            yield self._pre_stop(workload)

    def _is_served(self, workload: RolledWorkload) -> bool:
        selectors = self._selectors.get(workload.metadata.namespace, ())
        return any(matches_labels(selector, workload.pod_labels) for selector in selectors)

    def _pre_stop(self, workload: RolledWorkload) -> Advice:
        why = (
            "a Service sends requests to its pods, and no preStop hook waits: requests that are still sent to a pod"
            " that ends are refused"
        )
        if self._snapshot.version < _SLEEP_SINCE:
            left = (
                f"a preStop hook that sleeps {_SLEEP} seconds; this version has no `sleep` action"
            )
            return Advice(Topic.PRE_STOP, why, left=left)
        containers = workload.pod.containers
        hooked = [one for one in containers if one.ports] or list(containers)
        hook = {"preStop": {"sleep": {"seconds": _SLEEP}}}
        patch: dict[str, Any] = {
            "containers": [{"name": one.name, "lifecycle": hook} for one in hooked]
        }
        grace = workload.pod.termination_grace_period_seconds
        if grace is not None and grace < _LEAST_GRACE:
            patch["terminationGracePeriodSeconds"] = _LEAST_GRACE
        return Advice(Topic.PRE_STOP, why, _in_pod(patch))

    # -- requests ------------------------------------------------------------------------------------

    def _requests(self, workload: RolledWorkload, classes: Int32s) -> Iterator[Advice]:
        """Yield advice on requests far from what was measured; only of pods of one container, whose use is known."""
        usage, containers = self._snapshot.usage, workload.pod.containers
        if usage is None or len(containers) != 1 or workload.pod.init_containers:
            return
        limits = (containers[0].resources or o.ResourceRequirements()).limits or {}
        texts, better = [], {}
        replaced_by, pods = self._replacements(classes), self._snapshot.pods
        # Each class by its pods: those of a StatefulSet are classes by themselves.
        weights = np.bincount(pods.cls[pods.living], minlength=len(self._snapshot.classes))[classes]
        if not weights.any():
            return
        for place, resource in enumerate(MEASURED):
            row = self._snapshot.resources.index(resource)
            asked = int(self._snapshot.requests[row, replaced_by].max())
            used = int(np.average(usage.classes[place, classes], weights=weights))
            if not usage.measured[place] or not asked or resource in limits:
                continue
            far = asked > _FAR * max(used, 1) or used > _SPARE * asked
            if far and abs(asked - used) >= _LEAST[resource]:
                wanted = math.ceil(max(_SPARE * used, 1) / _STEP[resource]) * _STEP[resource]
                better[resource] = _quantity(resource, wanted)
                texts.append(
                    f"{resource} {_quantity(resource, asked)}, used {_quantity(resource, used)}"
                )
        if not better:
            return
        why = f"a pod asks for far more or less than it uses: {'; '.join(texts)} (measured once: look at more)"
        owner = int(self._owner_of[classes[0]])
        if any(one.owner == owner for one in self._snapshot.autoscalers or ()):
            left = "its HorizontalPodAutoscaler may aim at a share of the request: change both"
            yield Advice(Topic.REQUESTS, why, left=left)
            return
        container = {"name": containers[0].name, "resources": {"requests": better}}
        yield Advice(Topic.REQUESTS, why, _in_pod({"containers": [container]}))

    # -- rollouts ------------------------------------------------------------------------------------

    def _rollout(self, workload: RolledWorkload, classes: Int32s) -> Iterator[Advice]:
        """Yield advice on a Deployment whose rollouts and restarts take pods away before others are ready."""
        strategy = workload.spec.strategy or o.UpdateStrategy()
        if (
            workload.kind != "Deployment"
            or strategy.type == "Recreate"
            # A new pod waits for the volume until the old one has gone.
            or workload.has_claims
        ):
            return
        rolling = strategy.rolling_update or o.RollingUpdate()
        surge = _resolve("maxSurge", rolling.max_surge, workload, up=True)
        unavailable = _resolve("maxUnavailable", rolling.max_unavailable, workload, up=False)
        has_room = self._has_room_to_surge(workload, classes)
        if surge == 0 and has_room:
            why = "maxSurge is 0: a rollout ends a pod before its replacement is ready"
            yield Advice(Topic.SURGE, why, _rolling_patch({"maxSurge": "25%"}))
            surge = 1
        if unavailable < workload.replicas:
            return
        why = f"maxUnavailable lets a rollout end all of {count(workload.replicas, 'pod')} at once"
        # A share that is rounded to 0 needs room for one pod more: without it no rollout would end.
        if workload.replicas > 1:
            fewer: int | str = "25%" if workload.replicas >= _PODS_OF_SHARE else 1
            yield Advice(Topic.UNAVAILABLE, why, _rolling_patch({"maxUnavailable": fewer}))
        elif surge and has_room:
            yield Advice(Topic.UNAVAILABLE, why, _rolling_patch({"maxUnavailable": "25%"}))

    def _has_room_to_surge(self, workload: RolledWorkload, classes: Int32s) -> bool:
        """Return whether a node has room for one pod more beside all that run."""
        if _holds_ports(workload.pod):
            return False
        replaced_by = self._replacements(classes)
        possible, placed = self._possible(replaced_by), self._pods_on_nodes(classes)
        if _is_kept_apart(workload, ZONE, preferred=False):
            possible = possible & ~np.isin(self._zone_of, self._zone_of[placed > 0])
        return bool(self._room(workload, replaced_by, possible, placed).any())


_NONE: Int32s = np.empty(0, np.int32)


def _resolve(key: str, value: int | str | None, workload: RolledWorkload, *, up: bool) -> int:
    """Return ``value``, a number or a percentage of the replicas, as a number; 25% if the spec has none.

    Raises:
        PolicyError: it is neither. No API server accepts such a value.
    """
    if isinstance(value, int):
        return value
    text = "25%" if value is None else value
    if not re.fullmatch(r"\d{1,9}%", text, re.ASCII):
        raise PolicyError([f"{workload.ref}: {key} {text!r} is no number and no percentage"])
    return share_of(text, workload.replicas, up=up)


def _rolling_patch(fields: Patch) -> Patch:
    return {"spec": {"strategy": {"rollingUpdate": fields}}}


def _holds_ports(pod: o.SchedulingSpec) -> bool:
    ports = (port for one in pod.containers for port in one.ports or ())
    return pod.host_network or any(port.host_port for port in ports)


def _rules_over(workload: RolledWorkload, key: str) -> list[o.TopologySpreadConstraint]:
    rules = workload.pod.topology_spread_constraints or ()
    return [rule for rule in rules if rule.topology_key == key]


def _is_kept_apart(workload: RolledWorkload, key: str, *, preferred: bool) -> bool:
    """Return whether an anti-affinity keeps pods apart over ``key``; ``preferred``: also one that is only preferred."""
    affinity = workload.pod.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    if anti is None:
        return False
    terms = [*(anti.required or ())]
    if preferred:
        terms += [one.pod_affinity_term for one in anti.preferred or ()]
    return any(term.topology_key == key for term in terms)


def _spread_patch(
    workload: RolledWorkload, key: str, when: str, rule: o.TopologySpreadConstraint | None
) -> Patch:
    """Return the constraints with one more, or with one in the place of ``rule``.

    ``matchLabelKeys`` counts the pods of each rollout alone: those of the one before do not push the new ones
    aside. ``nodeTaintsPolicy: Honor`` leaves zones out whose nodes are all lost or cordoned. A rule is replaced with the whole
    list: the API server merges the list by ``topologyKey``, Kustomize by ``whenUnsatisfiable``, too.
    """
    wanted: dict[str, Any] = {"topologyKey": key, "maxSkew": 1, "labelSelector": workload.selector}
    if rule is not None:
        wanted |= _plain(rule)
    wanted["whenUnsatisfiable"] = when
    if when == _REQUIRED:
        wanted["nodeTaintsPolicy"] = "Honor"
    if workload.kind == "Deployment":
        wanted.setdefault("matchLabelKeys", ["pod-template-hash"])
    if rule is None:
        return {"topologySpreadConstraints": [wanted]}
    return _replace_rule(workload, rule, wanted)


def _replace_rule(
    workload: RolledWorkload, rule: o.TopologySpreadConstraint, wanted: Patch
) -> Patch:
    others = [one for one in workload.pod.topology_spread_constraints or () if one is not rule]
    return {"topologySpreadConstraints": [{"$patch": "replace"}, wanted, *map(_plain, others)]}


def _plain(rule: o.TopologySpreadConstraint) -> dict[str, Any]:
    fields: dict[str, Any] = _without_none(msgspec.to_builtins(rule))
    return fields


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [*map(_without_none, value)] if isinstance(value, (list, tuple)) else value


def _in_pod(fields: Patch) -> Patch:
    return {"spec": {"template": {"spec": fields}}}


def _head(api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
    }


def _quantity(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else f"{math.ceil(amount / (1 << 20))}Mi"
