"""Makes one policy of several profiles, each with plug-ins and an evictor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rebalancer import API_VERSION
from rebalancer.migrate.arguments import Namespaces
from rebalancer.migrate.budgets import budgets
from rebalancer.migrate.notes import Fate, Notes
from rebalancer.migrate.options import Options, defaults, equivalent
from rebalancer.migrate.peer import PeerPolicy
from rebalancer.migrate.protections import Evictor, limits, protections
from rebalancer.migrate.scope import Scope, common
from rebalancer.migrate.uses import Peer, Use, Written
from rebalancer.policy.document import KeyPath
from rebalancer.policy.params import Params
from rebalancer.policy.protect import Protect

_OBSERVED = "what it limited only observes"


@dataclass
class _Strategy:
    """A strategy of ours, and the plug-ins that it replaces: at most one of each profile."""

    options: Options
    uses: list[Use] = field(default_factory=list)
    observes: bool = False

    @property
    def scope(self) -> Scope:
        """The namespaces whose pods at least one of the plug-ins may evict."""
        first, *others = (_scope_of(use) for use in self.uses)
        for other in others:
            first |= other
        return first


def merged(peer: Peer, known: Mapping[str, type[Params]], notes: Notes) -> dict[str, Any]:
    """Return the policy as plain data: differences from our defaults, and the strategies."""
    strategies = _strategies(peer.uses, known, notes)
    evictors = _evictors(strategies.values())
    protect = protections(evictors, notes) if evictors else {}
    for strategy in strategies.values():
        strategy.observes |= _is_limited(strategy.uses, notes)
    if (scope := _scope(strategies, notes)).names:
        protect["namespaces"] = {"include" if scope.inside else "exclude": sorted(scope.names)}
    all_observe = _top_level(peer.top, notes)
    observes = all(one.observes for one in strategies.values())
    default = Protect().model_dump(mode="json", by_alias=True)
    data: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "Policy",
        "mode": "observe" if strategies and (observes or all_observe) else None,
        "budgets": budgets(peer.top, notes),
        "protect": {
            key: protect[key] for key in default if protect.get(key, default[key]) != default[key]
        },
    }
    data = {key: value for key, value in data.items() if value}
    data["strategies"] = {
        name: ({"mode": "observe"} if one.observes and not observes else {}) | one.options
        for name, one in sorted(strategies.items())
    }
    return data


# -- strategies ----------------------------------------------------------------------------------------


def _strategies(
    uses: Iterable[Use], known: Mapping[str, type[Params]], notes: Notes
) -> dict[str, _Strategy]:
    strategies: dict[str, _Strategy] = {}
    for use in uses:
        ours = equivalent(use, notes)
        if ours is None:
            continue
        default = defaults(known[ours.strategy])
        options = ours.options(use, default, notes)
        if options is None:
            continue
        options = {key: v for key, v in options.items() if v != default.get(key, {})}
        strategy = strategies.setdefault(ours.strategy, _Strategy(options))
        if strategy.options == options:
            strategy.uses.append(use)
        else:
            text = f"{use.plugin}: runs in another profile with other options, which hold"
            notes.add(use.args.base, Fate.LOST, text)
    return strategies


def _evictors(strategies: Iterable[_Strategy]) -> list[Evictor]:
    """Return the evictors of all converted plug-ins, each once, in the order of the file."""
    uses = (use for strategy in strategies for use in strategy.uses)
    evictors = {
        (use.evictor.base, tuple(use.evictor.elsewhere.items())): use.evictor for use in uses
    }
    return [evictors[key] for key in sorted(evictors, key=str)]


def _is_limited(uses: Iterable[Use], notes: Notes) -> bool:
    """Return whether some limit cannot be expressed, with a note for each."""
    inexpressible = [limit for use in uses for limit in (*limits(use.evictor), *_own_limits(use))]
    for path, text in inexpressible:
        notes.add(path, Fate.LOST, f"{text}; {_OBSERVED}")
    return bool(inexpressible)


def _own_limits(use: Use) -> Iterator[tuple[KeyPath, str]]:
    if getattr(use.args.value, "label_selector", None):
        yield use.args.at("labelSelector"), "a policy has no selector; run -l has"


def _top_level(top: Written[PeerPolicy], notes: Notes) -> bool:
    """Note the top-level keys other than budgets; return whether all strategies may only observe."""
    policy = top.value
    if policy.eviction_failure_event_notification:
        text = "the report names what was refused, and why"
        notes.add(top.at("evictionFailureEventNotification"), Fate.LOST, text)
    if policy.grace_period_seconds is not None:
        text = "pods keep their own grace period"
        notes.add(top.at("gracePeriodSeconds"), Fate.LOST, text)
    if policy.tracing is not None:
        notes.add(top.at("tracing"), Fate.IDLE, "nothing reads it")
    if policy.metrics_collector.enabled:
        notes.add(top.at("metricsCollector"), Fate.ALWAYS, _MEASURED)
    for index, provider in enumerate(policy.metrics_providers):
        path = (*top.at("metricsProviders"), index)
        if provider.source == "Prometheus":
            notes.add(path, Fate.LOST, "Prometheus is not asked")
        else:
            notes.add(path, Fate.ALWAYS, _MEASURED)
    if policy.node_selector:
        text = "a policy is for all nodes"
        notes.add(top.at("nodeSelector"), Fate.LOST, f"{text}; {_OBSERVED}")
    return bool(policy.node_selector)


_MEASURED = "metrics.k8s.io is read where the signal of low-utilisation asks for it"


# -- namespaces ----------------------------------------------------------------------------------------


def _namespaces(use: Use) -> Iterator[tuple[Scope, KeyPath]]:
    """Yield each restriction of the namespaces of a plug-in's pods, with its path."""
    for field_name, key in _NAMESPACES:
        given = getattr(use.args.value, field_name, None)
        if isinstance(given, Namespaces) and (given.include or given.exclude):
            yield Scope.of(given), use.args.at(key)
    selector = use.evictor.value.namespace_label_selector
    if selector and (selected := Scope.selected(selector)) is not None:
        yield selected, use.evictor.at("namespaceLabelSelector")


_NAMESPACES = (("namespaces", "namespaces"), ("evictable_namespaces", "evictableNamespaces"))


def _scope_of(use: Use) -> Scope:
    whole = Scope(frozenset(), inside=False)
    for scope, _ in _namespaces(use):
        whole &= scope
    return whole


def _scope(strategies: Mapping[str, _Strategy], notes: Notes) -> Scope:
    """Return the namespaces of the policy; a strategy that had fewer of them only observes."""
    scopes = {name: strategy.scope for name, strategy in strategies.items()}
    shared = common(scopes.values())
    # An empty set cannot be expressed: no names mean all namespaces.
    nothing = shared.inside and not shared.names
    for name, strategy in strategies.items():
        beyond = nothing or not scopes[name].covers(shared)
        strategy.observes |= beyond
        for scope, path in (one for use in strategy.uses for one in _namespaces(use)):
            if beyond and scope.inside:
                text = "namespaces hold for all strategies, and others have more of them"
                notes.add(path, Fate.LOST, f"{text}; {_OBSERVED}")
            elif set(scopes.values()) != {shared}:
                notes.add(path, Fate.DIFFERS, "namespaces hold for all strategies")
    return shared
