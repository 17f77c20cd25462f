"""Increases of groups that brought their machines, and did not help the pods that they were for.

The provider chooses the zone of a new machine, and of a mixed group its type: without capacity in one of them it uses
another. An increase is repeated once, by as few machines as one pod needs; then the group is not tried for this zone,
or for such pods, until a back-off is over. A machine that comes as it was wanted ends that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from rebalancer.base.plain_text import and_more
from rebalancer.machines.capacity.groups import Groups, zone_of
from rebalancer.machines.capacity.packing import NewNode, Packing
from rebalancer.machines.reasons import GroupCode, NotIncreased, Reason
from rebalancer.providers.contract import NodeGroup
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.times import LAST_SECOND, rfc3339

_TRIES = 2
"""Increases without help before a back-off."""
_INITIAL, _MAXIMUM = 3600.0, 8 * 3600.0
"""Seconds of the first back-off, which doubles, and of the longest: each ends with one machine more."""
_MAX_NEEDS = 300
"""What is kept of one group at most: the newest."""
_FORGOTTEN = 24 * 3600.0
"""Seconds after which an increase without help is forgotten."""


class NoHelp(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Increases in a row that did not help. Times are Unix seconds."""

    tries: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
    failed_at: Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
    """The time of the last such increase."""
    why: str = ""
    """What came instead, in words."""

    @property
    def backoff_until(self) -> float:
        """The time before which it is not tried again."""
        doubled = self.tries - _TRIES
        return self.failed_at + min(_MAXIMUM, _INITIAL * 2.0 ** min(doubled, 10)) * (doubled >= 0)

    def is_held(self, now: float) -> bool:
        """Return whether it is not tried now."""
        return now < self.backoff_until

    def describe(self, now: float) -> Reason[GroupCode]:
        """Return why a group is not increased."""
        if self.is_held(now):
            return NotIncreased.TRIED_IN_VAIN.of(why=self.why, until=rfc3339(self.backoff_until))
        return NotIncreased.ONE_TRIED_FIRST.of(why=self.why)


NoHelps = Mapping[str, Mapping[str, NoHelp]]
"""Group -> what a pod needs of it (a zone, or the requirements of a digest) -> the increases that did not bring it."""


def drop_old(no_help: NoHelps, now: float) -> dict[str, dict[str, NoHelp]]:
    """Return the increases without help that still count: the newest of each group, none over a day old or in the future."""
    kept: dict[str, dict[str, NoHelp]] = {}
    for group, needs in sorted(no_help.items()):
        newest = sorted(needs.items(), key=lambda item: (-item[1].failed_at, item[0]))[:_MAX_NEEDS]
        if of := {need: one for need, one in newest if now - _FORGOTTEN < one.failed_at <= now}:
            kept[group] = of
    return kept


@dataclass(frozen=True, slots=True)
class EarlierIncreases:
    """What earlier runs have increased groups for."""

    triggered: Mapping[str, str]
    """uid of a pending pod -> the group that was increased for it."""
    zones: Mapping[str, str]
    """uid of a pending pod -> the zone in which a machine was wanted for it."""
    at: Mapping[str, float]
    """Group -> Unix seconds of its last increase."""
    no_help: NoHelps


class Unhelped:
    """The increases without help, as far as this run knows."""

    def __init__(
        self,
        snapshot: Snapshot,
        groups: Groups,
        earlier: EarlierIncreases,
        pack: Callable[[Sequence[NewNode]], Packing],
    ) -> None:
        """``pack`` returns a packing of the snapshot with these candidates alone."""
        self._snapshot, self._groups, self._earlier, self._pack = snapshot, groups, earlier, pack
        self._now = snapshot.captured_at
        self.no_help = drop_old(earlier.no_help, self._now)
        """Those that count, also those that this run has seen."""

    def judge(self, pods: Iterable[int], awaited: Mapping[str, int]) -> None:
        """Note which machines have come for ``pods``, which fit nowhere, and are of no use to them.

        ``awaited``: group -> its machines that have not come yet.
        """
        uids, waiting = self._snapshot.pods.uid, dict[str, list[int]]()
        for pod in pods:
            if (name := self._earlier.triggered.get(uids[pod])) is not None:
                waiting.setdefault(name, []).append(pod)
        for group in self._groups.groups:
            self._forget_delivered(group)
            new = self._find_new(group, self._earlier.at.get(group.name, self._now))
            if new and group.name not in awaited and group.name in waiting:
                self._judge_group(group, new, waiting[group.name])

    def limit_zone(self, group: str, zone: str | None) -> int | None:
        """Return how many machines of a group to try in a zone now; None: there is no limit."""
        return self._limit(group, _need_of_zone(zone or ""))

    def limit_pods(self, group: str, pods: Sequence[int], taken: Counter[int]) -> list[int]:
        """Return the pods for which a group may be increased; ``taken``: class -> those for which it is already."""
        taken, kept = Counter(taken), list[int]()
        for pod in pods:
            cls = int(self._snapshot.pods.cls[pod])
            most = self._limit(group, _need_of_class(self._snapshot, cls))
            if most is None or taken[cls] < most:
                taken[cls] += 1
                kept.append(pod)
        return kept

    def why_not(
        self, group: str, cls: int, zones: Iterable[str | None]
    ) -> Reason[GroupCode] | None:
        """Return why a group is not increased for a class whose pods could be in these of its zones; None if it may be."""
        needs = self.no_help.get(group, {})
        of_zones = [needs.get(_need_of_zone(zone or "")) for zone in zones]
        of_class = needs.get(_need_of_class(self._snapshot, cls)) if needs else None
        known = [of_class] if of_class is not None else of_zones
        held = [one for one in known if one is not None]
        if not held or len(held) < len(known):
            return None
        return min(held, key=lambda one: one.backoff_until).describe(self._now)

    def _limit(self, group: str, need: str) -> int | None:
        one = self.no_help.get(group, {}).get(need)
        return None if one is None else int(not one.is_held(self._now))

    def _find_new(self, group: NodeGroup, since: float) -> list[int]:
        """Return the nodes of a group that have joined since then and take pods."""
        nodes = self._snapshot.nodes
        return [
            node
            for node in self._groups.nodes_of(group)
            if nodes.created[node] > since and nodes.ready[node] and not self._groups.starting[node]
        ]

    def _zones_of(self, nodes: Iterable[int]) -> set[str]:
        labels = self._snapshot.nodes.labels
        return {zone_of(labels.of(node)) or "" for node in nodes}

    def _forget_delivered(self, group: NodeGroup) -> None:
        needs = self.no_help.get(group.name, {})
        for need, one in [*needs.items()]:
            new = self._find_new(group, one.failed_at)
            if need in map(_need_of_zone, self._zones_of(new)):
                self._forget(group.name, need)

    def _forget(self, group: str, need: str) -> None:
        needs = self.no_help.get(group, {})
        needs.pop(need, None)
        if not needs:
            self.no_help.pop(group, None)

    def _judge_group(self, group: NodeGroup, new: Sequence[int], pods: Sequence[int]) -> None:
        here, zones = self._like(group, new, None), self._zones_of(new)
        uids, classes = self._snapshot.pods.uid, self._snapshot.pods.cls
        found: dict[str, str] = {}
        for cls in sorted({int(classes[pod]) for pod in pods}):
            if self._takes(here, cls):
                # It would be of use, were others not on it.
                self._forget(group.name, _need_of_class(self._snapshot, cls))
                continue
            wanted = {self._earlier.zones.get(uids[pod], "") for pod in pods if classes[pod] == cls}
            missed = [
                zone
                for zone in sorted(wanted - zones - {""})
                if self._takes(self._like(group, new, zone), cls)
            ]
            came = and_more(sorted(zones), 3)
            found |= {
                _need_of_zone(zone): f"its new machines came in {came}, and none in {zone}"
                for zone in missed
            }
            if not missed and not here.could_take(cls):
                found[_need_of_class(self._snapshot, cls)] = self._describe(here, cls)
        for need, why in found.items():
            needs = self.no_help.setdefault(group.name, {})
            before = needs.get(need)
            tries = 1 if before is None else before.tries + 1
            needs[need] = NoHelp(tries, self._now, why)

    def _like(self, group: NodeGroup, nodes: Sequence[int], zone: str | None) -> Packing:
        """Return a packing with one more machine like each of these nodes, in their zones or in ``zone``."""
        templates = [self._groups.template_of_node(group, node) for node in nodes]
        added = [NewNode(one, one.node(n, zone)) for n, one in enumerate(templates, 1)]
        packing = self._pack(added)
        packing.open_all()
        return packing

    @staticmethod
    def _takes(packing: Packing, cls: int) -> bool:
        return bool(packing.model.feasible(packing.state, cls)[packing.open_all()].any())

    @staticmethod
    def _describe(packing: Packing, cls: int) -> str:
        evaluation = packing.model.evaluate(packing.state, cls)
        texts = dict.fromkeys(
            text for row in packing.open_all() for text in evaluation.reasons(row)
        )
        return f"its new machines do not take such a pod: {', '.join(texts)}"


def _need_of_zone(zone: str) -> str:
    return f"zone {zone}"


def _need_of_class(snapshot: Snapshot, cls: int) -> str:
    """Return a digest of the requirements of a class's pods, the same in each run."""
    one, requests = snapshot.classes[cls], snapshot.requests[:, cls]
    asked = {snapshot.resources[row]: int(requests[row]) for row in np.flatnonzero(requests)}
    text = msgspec.json.encode([one.namespace, one.spec, sorted(asked.items())], order="sorted")
    return hashlib.sha256(text).hexdigest()[:16]
