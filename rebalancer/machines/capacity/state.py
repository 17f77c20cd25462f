"""The state of each group of machines between runs: its back-off, the size that was requested, and for which pods.

It is stored, because a restarted process must not request less than before, or buy the same machines without success again.

The times are those of Cluster Autoscaler (``--max-node-provision-time``, ``--initial-node-group-backoff-duration``,
``--max-node-group-backoff-duration``, ``--node-group-backoff-reset-timeout``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from rebalancer.base.errors import ProviderError
from rebalancer.machines.capacity.groups import GroupOptions, Groups, Sizes, sizes_of
from rebalancer.machines.capacity.packing import unschedulable_for
from rebalancer.machines.capacity.scale_out_plan import (
    GroupRefusal,
    PodVerdict,
    ScaleOutInputs,
    ScaleOutPlan,
)
from rebalancer.machines.capacity.unhelped import NoHelp
from rebalancer.machines.reasons import GroupCode, NotIncreased, PodCode, Reason
from rebalancer.providers.contract import Machines, NodeGroup
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.nodes import STARTUP
from rebalancer.wire.times import LAST_SECOND, rfc3339

if TYPE_CHECKING:
    from rebalancer.kube.config_map import ConfigMapStore

INITIAL, MAXIMUM = 300.0, 1800.0
"""Seconds of the first back-off, which doubles, and of the longest."""
SETTLED = 60.0
"""Seconds within which an answer of the provider may be older than a request, also after a newer answer."""
RESET_AFTER = 3 * 3600.0
"""Seconds after which a failure is no reason for a longer back-off any more."""
TIMEOUT, REFUSED, NOT_LAUNCHED = "timeout", "cloudProviderError", "launchFailed"
"""Why a group failed: machines did not become ready; the provider refused the request; or could not launch them."""
_MAX_PODS = 1500
"""Most pods of which is kept which group was increased for them."""
_Moment = Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class GroupState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of a group that later runs need. Times are Unix seconds, 0 for never."""

    scaled_out_at: _Moment = 0
    """The time of its last increase."""
    upcoming_since: _Moment = 0
    """Since when there are upcoming machines; 0 also for the back-off in which machines were given up."""
    failures: _Count = 0
    """The number of failures in a row."""
    failed_at: _Moment = 0
    """The time of the last failure."""
    backoff_until: _Moment = 0
    code: str = ""
    """Why it failed: :data:`TIMEOUT`, :data:`REFUSED` or :data:`NOT_LAUNCHED`."""
    why: str = ""
    """The reason of the failure in words."""
    suspended: str = ""
    """Why it launches no machines on purpose, in words; empty where nothing keeps it from that."""
    unknown_since: _Moment = 0
    """Since when none of its machines is a node of this cluster."""
    asked: _Count = 0
    """The size that was requested last, until the provider shows it; 0: none."""
    asked_at: _Moment = 0
    """The time at which this size was requested, or was about to be."""
    pods: dict[str, str] = {}
    """uid of a pending pod for which one of its machines was requested -> the zone of that request, if any."""
    no_help: dict[str, NoHelp] = {}
    """What a pod needs of it -> the increases that did not bring it."""

    def is_foreign(self, now: float) -> bool:
        """Return whether the machines probably belong to another cluster.

        None of them has become a node here, although they had enough time.
        """
        return 0 < self.unknown_since <= now - STARTUP

    def in_backoff(self, now: float) -> bool:
        """Return whether the group must not be scaled up yet. A back-off that is too long (wrong clock) is ignored."""
        return now < self.backoff_until <= now + MAXIMUM

    def find_unseen(self, desired: int, now: float) -> int:
        """Return the size that was requested last, while the provider's answer ``desired`` may be older; else 0.

        A request with an unknown result counts for a minute, or for the back-off that it has caused.
        """
        if not self.asked or now < self.asked_at - SETTLED:
            return 0
        may_be_late = now - self.asked_at <= SETTLED
        if desired < self.asked and not may_be_late:
            failed = self.failed_at >= self.asked_at
            may_be_late = self.in_backoff(now) if failed else self.scaled_out_at >= self.asked_at
        return self.asked if may_be_late else 0

    def is_paused(self, now: float) -> bool:
        """Return whether no machines can be expected now: the group is in a back-off, or its launches are suspended."""
        return bool(self.suspended) or self.in_backoff(now)


def note_sizes(
    state: GroupState, sizes: Sizes, now: float, provision_time: float, suspended: str = ""
) -> GroupState:
    """Return the state of a group given the sizes now; ``suspended``: why its launches are suspended.

    The group has failed if machines have been upcoming for more than ``provision_time`` seconds. This time does not
    advance in a back-off, or while launches are suspended. Once no machine is upcoming and all nodes are ready,
    failures are cleared, except in a back-off in which upcoming machines were given up.
    """
    upcoming, state = sizes.upcoming, msgspec.structs.replace(state, suspended=suspended)
    if not upcoming:
        succeeded = state.upcoming_since > 0 and not sizes.unready
        is_reset = now - state.failed_at > RESET_AFTER
        if succeeded or is_reset:
            return msgspec.structs.replace(
                state, upcoming_since=0, failures=0, failed_at=0, backoff_until=0, code="", why=""
            )
        return msgspec.structs.replace(state, upcoming_since=0)
    if state.in_backoff(now) and not state.upcoming_since:
        return state
    if state.is_paused(now) or not 0 < state.upcoming_since <= now:
        return msgspec.structs.replace(state, upcoming_since=now)
    if now - max(state.upcoming_since, state.scaled_out_at) <= provision_time:
        return state
    machines = "1 machine" if upcoming == 1 else f"{upcoming} machines"
    minutes = f"{provision_time / 60:.0f} minutes"
    why = f"{machines} did not become ready within {minutes}"
    return note_failure(state, TIMEOUT, why, now)


def note_failure(state: GroupState, code: str, why: str, now: float) -> GroupState:
    """Return the state of a group whose scale-out has failed now."""
    counted = state.failures if now - state.failed_at <= RESET_AFTER else 0
    span = min(MAXIMUM, INITIAL * 2.0 ** min(counted, 10))
    return msgspec.structs.replace(
        state,
        failures=counted + 1,
        failed_at=now,
        backoff_until=now + span,
        code=code,
        why=why,
    )


def note_decrease(state: GroupState) -> GroupState:
    """Return the state of a group that is decreased to its existing machines: none is awaited any more, and its back-off is kept."""
    return msgspec.structs.replace(state, upcoming_since=0, asked=0, asked_at=0)


def note_request(state: GroupState, size: int, now: float) -> GroupState:
    """Return the state of a group whose larger size is about to be requested."""
    return msgspec.structs.replace(state, asked=size, asked_at=now)


def note_seen(state: GroupState, desired: int | None, now: float) -> GroupState:
    """Return the state of a group whose size is now ``desired`` according to the provider."""
    if desired is not None and state.find_unseen(desired, now):
        return state
    return msgspec.structs.replace(state, asked=0, asked_at=0)


def note_scale_out(state: GroupState, now: float) -> GroupState:
    """Return the state of a group whose size was increased now."""
    return msgspec.structs.replace(state, scaled_out_at=now, upcoming_since=now)


KEY = "groups"
"""Key of the ConfigMap's data; the others are those of interruptions."""
_MAX_BYTES = 90_000
"""Bytes of the stored state: the rest of the ConfigMap is for interruptions."""


def decode(data: Mapping[str, str]) -> tuple[dict[str, GroupState], str | None]:
    """Return group -> state in a ConfigMap's data, and an error message if it is malformed; never raises."""
    text = data.get(KEY)
    try:
        return {} if not text else msgspec.json.decode(text, type=dict[str, GroupState]), None
    except (ValueError, RecursionError) as error:
        return {}, f"{KEY} could not be understood: {error}"


def encode(groups: Mapping[str, GroupState]) -> str:
    """Return the text to store; equal states give equal bytes. If it is too long, groups forget their pods."""
    changed = {name: of for name, of in sorted(groups.items()) if of != GroupState()}
    text = msgspec.json.encode(changed, order="sorted")
    if len(text) > _MAX_BYTES:
        shorter = {name: msgspec.structs.replace(of, pods={}) for name, of in changed.items()}
        text = msgspec.json.encode(shorter, order="sorted")
    return text.decode()


class GroupStore:
    """The states of groups, in a ConfigMap that only the leading process writes."""

    def __init__(self, store: ConfigMapStore) -> None:
        self._store = store

    def load(self) -> tuple[dict[str, GroupState], str | None]:
        """Return what an earlier process has stored, and a note on what is wrong with it or None.

        Raises:
            ClusterReadError: the ConfigMap does not exist, or could not be read.
        """
        groups, flaw = decode(self._store.require().data)
        if flaw is not None:
            flaw = f"ConfigMap {self._store.name}: {flaw}; back-offs of groups start again"
        return groups, flaw

    def keep(self, groups: Mapping[str, GroupState], *, always: bool = False) -> str:
        """Store the states; return the uid of the ConfigMap.

        ``always``: also if nothing changes; what cannot be written before an act could not be written after it.

        Raises:
            ClusterReadError: it could not be written.
        """
        text = encode(groups)
        return self._store.update(lambda data: {**data, KEY: text}, always=always).uid


_BEHIND = 10.0
"""Seconds by which the provider's clock may be behind the API server's."""


@dataclass(frozen=True, slots=True)
class ScaleOutTimes:
    """The times of scale-out, in seconds."""

    new_pod_delay: float = 0.0
    provision_time: float = 900.0
    cool_down: float = 0.0

    def of_group(self, options: GroupOptions) -> float:
        """Return the time within which a group's machines have to be ready."""
        own = options.provision_time
        return self.provision_time if own is None else own.total_seconds()

    @classmethod
    def of(cls, params: Any) -> ScaleOutTimes:
        """Return the times in a strategy's options: ``newPodDelay``, ``provisionTime``, ``coolDown``."""
        spans = (params.new_pod_delay, params.provision_time, params.cool_down)
        return cls(*(span.total_seconds() for span in spans))


@dataclass(slots=True)
class GroupStates:
    """The state of each group in this run."""

    earlier: Mapping[str, GroupState] = field(default_factory=dict)
    """The states that the run before has left."""
    times: ScaleOutTimes | None = None
    """None where nothing scales out: each pending pod counts, and no group is blocked."""
    groups: dict[str, GroupState] = field(default_factory=dict)
    """As it is now."""

    def with_asked(self, group: NodeGroup, now: float) -> NodeGroup:
        """Return a group with the size that was requested of it, where the provider's answer may be older than that."""
        if group.desired is None:
            return group
        state = note_seen(self._of_earlier(group.name), group.desired, now)
        self.groups[group.name] = state
        most = state.asked if group.maximum is None else min(state.asked, group.maximum)
        return replace(group, desired=max(group.desired, most))

    def _of_earlier(self, group: str) -> GroupState:
        return self.earlier.get(group, GroupState())

    @property
    def asked(self) -> dict[str, int]:
        """Group -> the size that was requested, and that the provider may not show yet."""
        return {name: state.asked for name, state in self.groups.items() if state.asked}

    def inputs(self, snapshot: Snapshot, groups: Groups, machines: Machines) -> ScaleOutInputs:
        """Return the inputs of scale-out, after updating the states from the groups' machines."""
        notes = list(groups.unread)
        now, sizes = snapshot.captured_at, sizes_of(snapshot, groups)
        times = self.times or ScaleOutTimes()
        self.groups = {
            group.name: self._note_failed_launches(
                group,
                note_sizes(
                    self.groups.get(group.name, self._of_earlier(group.name)),
                    sizes[group.name],
                    now,
                    times.of_group(groups.options_named(group.name)),
                    group.on_hold,
                ),
                now,
                machines,
                notes,
            )
            for group in groups.groups
        }
        for group in groups.groups:
            self._note_unknown(group, has_nodes=bool(groups.nodes_of(group)), now=now)
        return ScaleOutInputs(
            upcoming={
                name: of.upcoming
                for name, of in sizes.items()
                if of.upcoming
                and not self.groups[name].is_paused(now)
                and not self.groups[name].is_foreign(now)
            },
            blocked=dict(self._find_blocked(now, sizes)),
            triggered={uid: name for name, of in self.earlier.items() for uid in of.pods},
            zones={uid: zone for of in self.earlier.values() for uid, zone in of.pods.items()},
            scaled_out_at={name: state.scaled_out_at for name, state in self.groups.items()},
            no_help={name: of.no_help for name, of in self.earlier.items() if of.no_help},
            seed=rfc3339(now),
            triggering=(
                None if self.times is None else unschedulable_for(snapshot, times.new_pod_delay)
            ),
            notes=tuple(notes),
        )

    def _note_unknown(self, group: NodeGroup, *, has_nodes: bool, now: float) -> None:
        """Record since when a group has machines but no node; its tags may be shared with another cluster."""
        since = self._of_earlier(group.name).unknown_since
        unknown = bool(group.instances) and not has_nodes
        self.groups[group.name] = msgspec.structs.replace(
            self.groups[group.name],
            unknown_since=(since if 0 < since <= now else now) if unknown else 0,
        )

    def _note_failed_launches(
        self, group: NodeGroup, state: GroupState, now: float, machines: Machines, notes: list[str]
    ) -> GroupState:
        """Return the state of a group with failed launches; the provider is queried if machines are missing.

        As in Cluster Autoscaler's AWS provider: if the request fails, no failed launch is known, which is added to ``notes``.
        """
        missing = group.desired is not None and len(group.instances) < group.desired
        if self.times is None or not missing or state.is_paused(now):
            return state
        since = max(state.upcoming_since, state.failed_at) - _BEHIND
        try:
            why = machines.launch_failure(group, since)
        except ProviderError as error:
            notes.append(f"whether launches have failed is not known: {error}")
            return state
        return note_failure(state, NOT_LAUNCHED, why, now) if why else state

    def _find_blocked(
        self, now: float, sizes: Mapping[str, Sizes]
    ) -> Iterator[tuple[str, GroupRefusal]]:
        rest = 0.0 if self.times is None else self.times.cool_down
        for name, state in self.groups.items():
            if state.is_foreign(now):
                why = NotIncreased.FOREIGN.of(since=rfc3339(state.unknown_since))
            elif state.suspended:
                why = Reason(GroupCode.SUSPENDED, state.suspended)
            elif state.in_backoff(now):
                until = rfc3339(state.backoff_until)
                why = NotIncreased.BACKOFF.of(why=state.why, until=until)
            elif self.times is not None and (not sizes[name].are_healthy or sizes[name].are_lost):
                why = Reason(GroupCode.UNHEALTHY, sizes[name].unhealthy())
            elif 0 < state.scaled_out_at <= now < state.scaled_out_at + rest:
                why = NotIncreased.COOLDOWN.of(at=rfc3339(state.scaled_out_at))
            else:
                continue
            yield name, GroupRefusal(name, *why)

    def find_unprovisioned(self, now: float) -> set[str]:
        """Return the groups in a back-off because machines were not provisioned, unless launches are suspended."""
        return {
            name
            for name, state in self.groups.items()
            if state.in_backoff(now)
            and state.code != REFUSED
            and state.upcoming_since > 0
            and not state.suspended
            and not state.is_foreign(now)
        }

    def note_end(self, group: str) -> None:
        """Record that the end of a machine was requested, which makes its group smaller by one."""
        if (state := self.groups.get(group)) is not None and state.asked:
            self.groups[group] = msgspec.structs.replace(state, asked=state.asked - 1)

    def note_plan(
        self, plan: ScaleOutPlan, snapshot: Snapshot, scaled_out: Collection[str]
    ) -> None:
        """Record which pods wait for a requested machine, and which increases did not help; ``scaled_out``: groups increased now."""
        pods: dict[str, dict[str, str]] = {}
        for one in islice(_waiting(plan, scaled_out), _MAX_PODS):
            uid, group = snapshot.pods.uid[one.pod], one.group or ""
            zone = one.zone or self._of_earlier(group).pods.get(uid, "")
            pods.setdefault(group, {})[uid] = zone
        for name, state in self.groups.items():
            self.groups[name] = msgspec.structs.replace(
                state, pods=pods.get(name, {}), no_help=dict(plan.no_help.get(name, {}))
            )


def _waiting(plan: ScaleOutPlan, scaled_out: Collection[str]) -> Iterator[PodVerdict]:
    """Yield the pods that a requested machine will take."""
    for one in plan.pods:
        requested = one.code is PodCode.TRIGGERED and one.group in scaled_out
        if one.group is not None and (requested or one.code is PodCode.UPCOMING):
            yield one
