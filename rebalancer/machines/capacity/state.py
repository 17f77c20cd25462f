"""What one run leaves to the next about machines: back-offs, times of transitions, and the codes of nodes and pods.

It stands beside the status in one ConfigMap, so that it outlives the run of a CronJob. Losing it costs a back-off and the
times of transitions, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from rebalancer.machines.capacity.backoff import GroupState
from rebalancer.wire.times import LAST_SECOND

KEY = "state.json"
"""Key of the ConfigMap's data."""
VERSION = 1


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of the status."""

    status: str
    since: Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
    """Unix seconds of its last transition."""


class State(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All that later runs have to know of machines."""

    version: int = VERSION
    groups: dict[str, GroupState] = {}
    conditions: dict[str, Condition] = {}
    """``GROUP/condition``, without a group of the cluster -> what it was."""
    nodes: dict[str, str] = {}
    """Node -> its code."""
    pods: dict[str, str] = {}
    """uid of a pending pod -> its code."""
    triggered: dict[str, str] = {}
    """uid of a pending pod -> the group that was scaled out for it."""

    def of(self, group: str) -> GroupState:
        """Return the state of a group."""
        return self.groups.get(group, GroupState())


def changed_states(groups: Mapping[str, GroupState]) -> dict[str, GroupState]:
    """Return the states of which there is something to keep, by name."""
    return {name: of for name, of in sorted(groups.items()) if of != GroupState()}


def decode(data: Mapping[str, str]) -> tuple[State, str | None]:
    """Return the state in a ConfigMap's data, an empty one if there is none; and why it was not understood, if so.

    Never raises: people edit it, and newer programs write it.
    """
    text = data.get(KEY)
    if not text:
        return State(), None
    try:
        state = msgspec.json.decode(text, type=State)
    except (ValueError, TypeError, RecursionError) as error:
        return State(), f"{KEY} could not be understood: {error}"
    if state.version != VERSION:
        return State(), f"{KEY} is of version {state.version}, this program knows {VERSION}"
    return state, None


def encode(state: State) -> dict[str, str]:
    """Return the data of the ConfigMap. The same state gives the same bytes."""
    return {KEY: msgspec.json.encode(state, order="sorted").decode()}
