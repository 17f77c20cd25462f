"""The stored state of machines between runs: back-offs, times of transitions, and codes of nodes and pods.

It is in the same ConfigMap as the status, so that it outlives the run of a CronJob. If it is lost, only back-offs
and the times of transitions are lost.
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
    """A condition in the status."""

    status: str
    since: Annotated[float, msgspec.Meta(ge=0, le=LAST_SECOND)]
    """Unix seconds of its last transition."""


class State(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of machines for later runs."""

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
    """Return name -> state, for groups whose state differs from the default."""
    return {name: of for name, of in sorted(groups.items()) if of != GroupState()}


def decode(data: Mapping[str, str]) -> tuple[State, str | None]:
    """Return the state in a ConfigMap's data (empty if there is none), and an error message if it is malformed.

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
    """Return the data of the ConfigMap. Equal states give equal bytes."""
    return {KEY: msgspec.json.encode(state, order="sorted").decode()}
