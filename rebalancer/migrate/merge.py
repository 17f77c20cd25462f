"""Convert a policy of the descheduler into one of ours: merge its profiles."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from rebalancer import API_VERSION
from rebalancer.base.durations import format_duration
from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.migrate.options import (
    budgets,
    defaults,
    list_equivalents,
    list_stated,
    read_usage,
)
from rebalancer.migrate.plugins import PeerPolicy
from rebalancer.migrate.pods import Evictor, landings_of, limits, protections, select_of
from rebalancer.migrate.source import read_source
from rebalancer.migrate.uses import (
    FilePart,
    KeyFate,
    Notes,
    Options,
    Peer,
    Use,
    as_comments,
    read_policy,
)
from rebalancer.policy.document import FileProblem
from rebalancer.policy.forms import MODELINE, as_yaml
from rebalancer.policy.load import load_text
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Direction, Params

_OBSERVED = "what it limited gets mode: observe, and moves nothing until you change that"
_MAX_SECONDS = 366 * 86_400
"""Seconds of the longest grace period that a policy can write."""


@dataclass(frozen=True, slots=True)
class Migrated:
    """Our policy, converted from a policy of the descheduler."""

    data: dict[str, Any]
    """The policy as plain data."""
    head: str
    """Comments: the source, and the notes."""
    notes: tuple[FileProblem, ...]


def convert_policy(raw: bytes, file: str, known: Mapping[str, type[Params]]) -> Migrated:
    """Convert the descheduler's policy in ``raw``; messages name it ``file``.

    Raises:
        PolicyError: it is not a policy of the descheduler, or has keys unknown to the descheduler.
    """
    source = read_source(raw, file)
    document, notes = source.document, source.notes
    data = merge_profiles(read_policy(document, notes), known, notes, dry_run=source.dry_run)
    if not data["strategies"]:
        notes.add((), KeyFate.LOST, "nothing is left to do: the policy has no strategy")
    head = f"{MODELINE}# Migrated from a policy of the descheduler ({source.version}).\n{as_comments(notes)}"
    return Migrated(data, head, tuple(notes))


@dataclass
class _Strategy:
    """One of our strategies, and the descheduler's plug-ins that it replaces: at most one from each profile."""

    strategy: str
    options: Options
    select: dict[str, Any]
    whole: Options
    """The options, also those that are not written."""
    uses: list[Use] = field(default_factory=list)
    observes: bool = False


def merge_profiles(
    peer: Peer, known: Mapping[str, type[Params]], notes: Notes, *, dry_run: bool
) -> dict[str, Any]:
    """Return the policy as plain data: what the file states, and what is not our default.

    ``dry_run``: the descheduler evicts nothing, so that our policy only observes.
    """
    measured = read_usage(peer, notes)
    strategies = _strategies(replace(peer, uses=measured.uses), known, notes)
    evictors = _evictors(strategies.values())
    protect = protections(evictors, notes) if evictors else {}
    landings = landings_of(evictors, notes)
    for strategy in strategies.values():
        strategy.observes |= _is_limited(strategy.uses, landings, notes)
    _one_direction(strategies.values(), known, notes)
    _top_level(peer.top, notes)
    limited = budgets(peer.top)
    if strategies:
        _note_budgets(limited, notes)
    observes = dry_run or (bool(strategies) and all(one.observes for one in strategies.values()))
    directions = {known[one.strategy].direction for one in strategies.values()}
    data: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Policy",
        "mode": "observe" if observes else None,
        "steer": "marks" if Direction.PACK in directions else None,
        "budgets": limited,
        "method": _method(peer.top, notes),
        "usage": measured.usage,
        "protect": protect,
        "landings": landings,
    }
    data = {key: value for key, value in data.items() if value}
    data["strategies"] = {
        name: _write(name, one, observes=one.observes and not observes)
        for name, one in sorted(strategies.items())
    }
    return data


def _note_budgets(limited: Mapping[str, Any], notes: Notes) -> None:
    """Add a note on the default budgets that ``limited`` does not replace."""
    default = Budgets().model_dump(mode="json", by_alias=True, exclude={"marks"})
    held = {name: most for name, most in default.items() if most and name not in limited}
    text = ", ".join(f"{name} {most}" for name, most in held.items())
    notes.add(
        (),
        KeyFate.DIFFERS,
        f"limited by default here, though not there: {text}; budgets of the policy changes that",
    )


def _method(top: FilePart[PeerPolicy], notes: Notes) -> dict[str, Any]:
    seconds = top.value.grace_period_seconds
    if seconds is None:
        return {}
    if seconds < 1:
        text = (
            "with 0 a pod is gone before its processes end, and below 0 it is 1 there as well: 1s"
        )
        notes.add(top.at("gracePeriodSeconds"), KeyFate.DIFFERS, text)
    return {"gracePeriod": format_duration(timedelta(seconds=min(max(1, seconds), _MAX_SECONDS)))}


def _write(name: str, one: _Strategy, *, observes: bool) -> dict[str, Any]:
    return {
        **({"strategy": one.strategy} if name != one.strategy else {}),
        **({"mode": "observe"} if observes else {}),
        # Not once for the whole policy: there, what is wrong with other pods would count as unmet, too.
        **({"select": one.select} if one.select else {}),
        **one.options,
    }


# -- strategies ----------------------------------------------------------------------------------------


def _strategies(
    peer: Peer, known: Mapping[str, type[Params]], notes: Notes
) -> dict[str, _Strategy]:
    """Return name -> strategy; plug-ins with different options or pods get strategies with different names."""
    strategies: dict[str, _Strategy] = {}
    pairs = ((use, ours) for use in peer.uses for ours in list_equivalents(use))
    for use, ours in pairs:
        default = defaults(known[ours.strategy])
        all_options = ours.options(use, default, notes)
        if all_options is None:
            continue
        stated = set(list_stated(use))
        options = {
            key: v
            for key, v in all_options.items()
            if v != default.get(key, {}) or (key in stated and v not in ([], {}))
        }
        made = _Strategy(
            ours.strategy, options, select_of(use, peer.top, notes), {**default, **all_options}
        )
        same = (
            one
            for one in strategies.values()
            if (one.strategy, one.whole, one.select) == (made.strategy, made.whole, made.select)
        )
        one = next(same, None)
        if one is None:
            one = strategies[_free_name(ours.strategy, strategies)] = made
        one.options |= options
        one.uses.append(use)
    return strategies


def _free_name(strategy: str, taken: Container[str]) -> str:
    names = (f"{strategy}-{number}" for number in itertools.count(2))
    return strategy if strategy not in taken else next(n for n in names if n not in taken)


def _evictors(strategies: Iterable[_Strategy]) -> list[Evictor]:
    """Return the evictors of all converted plug-ins, each once, in the order of the file."""
    uses = (use for strategy in strategies for use in strategy.uses)
    evictors = {use.evictor.base: use.evictor for use in uses}
    return [evictors[key] for key in sorted(evictors, key=str)]


def _is_limited(uses: Iterable[Use], landings: Options, notes: Notes) -> bool:
    """Return whether at least one limit cannot be expressed, and add a note for each such limit."""
    inexpressible = [limit for use in uses for limit in limits(use, landings)]
    for path, text in inexpressible:
        notes.add(path, KeyFate.LOST, f"{text}; {_OBSERVED}")
    return bool(inexpressible)


def _one_direction(
    strategies: Iterable[_Strategy], known: Mapping[str, type[Params]], notes: Notes
) -> None:
    """Set a packing strategy to ``observe`` if another strategy spreads or packs: each would undo the other."""
    directed = [one for one in strategies if known[one.strategy].direction and not one.observes]
    for one in directed if len(directed) > 1 else ():
        if known[one.strategy].direction is Direction.PACK:
            one.observes = True
            text = "another plug-in fills the nodes that this one empties: it only observes"
            for use in one.uses:
                notes.add(use.args.base, KeyFate.DIFFERS, f"{use.plugin}: {text}")


def _top_level(top: FilePart[PeerPolicy], notes: Notes) -> None:
    """Add notes on the top-level keys other than budgets and the node selector."""
    policy = top.value
    if policy.eviction_failure_event_notification:
        text = "the report names what was refused, and why"
        notes.add(top.at("evictionFailureEventNotification"), KeyFate.LOST, text)
    if policy.tracing is not None:
        notes.add(top.at("tracing"), KeyFate.IDLE, "nothing reads it")
    if policy.metrics_collector.enabled:
        notes.add(top.at("metricsCollector"), KeyFate.ALWAYS, _MEASURED)
    for index, provider in enumerate(policy.metrics_providers):
        path = (*top.at("metricsProviders"), index)
        if provider.source == "KubernetesMetrics":
            notes.add(path, KeyFate.ALWAYS, _MEASURED)


_MEASURED = "metrics.k8s.io is read where the signal of low-utilisation asks for it"


def as_file(data: Mapping[str, Any], head: str, known: Mapping[str, type[Params]]) -> str:
    """Return the policy as the text of one file that starts with the comment ``head``.

    Raises:
        RebalancerError: our own loader refuses it, which is a bug.
    """
    text = head + as_yaml(data, compact=True)
    try:
        load_text(text.encode(), "the migrated policy", known)
    except PolicyError as error:
        raise RebalancerError(
            *error.lines, "This is a bug: please report it with the file"
        ) from error
    return text
