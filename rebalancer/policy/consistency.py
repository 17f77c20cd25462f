"""Check that the strategies of a policy do not contradict each other or the policy's mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from rebalancer.policy.document import FileProblem
from rebalancer.policy.model import Mode, Policy
from rebalancer.policy.select import Select
from rebalancer.policy.sources import StrategySource
from rebalancer.policy.values import Direction


def find_opposed(policy: Policy, sources: Mapping[str, StrategySource]) -> Iterator[FileProblem]:
    """Yield a problem for each strategy that would undo the moves of another one.

    A strategy that packs nodes opposes every other strategy that packs or spreads.
    """
    enforced = [n for n in sorted(policy.strategies) if policy.mode_of(n) is Mode.ENFORCE]
    directed = [name for name in enforced if policy.strategies[name].params.direction]
    for one, other in itertools.permutations(directed, 2):
        packs, pulls = (policy.strategies[name].params.direction for name in (one, other))
        twins = pulls is packs and one > other
        if packs is not Direction.PACK or twins:
            continue
        if policy.strategies[one].select.may_meet(policy.strategies[other].select):
            what = "packs" if pulls is packs else "spreads"
            message = (
                f"{other} {what} nodes that {one} packs: let one of them observe (mode: observe),"
                " or select different nodes, such as select: {nodes: {pool: a}}"
            )
            source = sources[other]
            yield source.document.problem(source.base, message)


def beside_scale_in(policy: Policy, sources: Mapping[str, StrategySource]) -> Iterator[str]:
    """Yield a warning for each strategy that spreads pods to nodes that a scale-in strategy empties."""
    active = [name for name in policy.strategies if policy.mode_of(name) is not Mode.OFF]
    for removes, spreads in itertools.product(active, active):
        one, other = policy.strategies[removes], policy.strategies[spreads]
        if one.params.scales != "in" or other.params.direction is not Direction.SPREAD:
            continue
        if one.select.may_meet(other.select):
            message = (
                f"{spreads} moves pods onto nodes of little use, which {removes} removes: nodes may fill up again and stay."
                " Leave one of them out, or select different nodes, such as select: {nodes: {pool: a}}"
            )
            source = sources[spreads]
            yield str(source.document.problem(source.base, message))


def scaling_twice(policy: Policy, sources: Mapping[str, StrategySource]) -> Iterator[FileProblem]:
    """Yield a problem for each second strategy that adds machines, or that removes machines."""
    first: dict[str, str] = {}
    for name, strategy in policy.strategies.items():
        scales = strategy.params.scales
        if scales is None or policy.mode_of(name) is Mode.OFF:
            continue
        other = first.setdefault(scales, name)
        if other != name:
            does = "adds" if scales == "out" else "removes"
            message = f"{name} {does} machines, and {other} does, too: a policy may have one; leave one out, or write mode: off"
            source = sources[name]
            yield source.document.problem(source.base, message)


def selecting_machines(
    policy: Policy, sources: Mapping[str, StrategySource]
) -> Iterator[FileProblem]:
    """Yield a problem for each ``select`` key that a strategy acting on machines cannot apply."""
    for name, strategy in policy.strategies.items():
        scales, source = strategy.params.scales, sources[name]
        if scales is None:
            continue
        given = [key for key in Select.model_fields if _says(getattr(strategy.select, key))]
        for key in given:
            if scales == "in" and key == "nodes":
                continue
            alias = Select.model_fields[key].alias or key
            message = (
                f"{name} adds machines to groups, and selects no pods: leave it out; the provider's options say which groups"
                if scales == "out"
                else f"{name} takes whole nodes: of select only nodes counts, such as select: {{nodes: {{pool: a}}}}"
            )
            yield source.document.problem((*source.base, "select", alias), message)


def _says(value: object) -> bool:
    return value is False or bool(value)


def lacking_provider(
    policy: Policy, sources: Mapping[str, StrategySource], *, acts: bool
) -> Iterator[FileProblem]:
    """Yield a problem for each strategy that scales machines if the policy's provider cannot act."""
    for name, strategy in policy.strategies.items():
        scales = strategy.params.scales
        if scales is None or acts or policy.mode_of(name) is Mode.OFF:
            continue
        does = "adds" if scales == "out" else "removes"
        given = next(iter(policy.provider), None)
        why = "the policy names no provider" if given is None else f"provider {given} does not"
        message = f"{name} {does} machines, and {why}: write for example provider: {{aws: {{tags: [k8s.io/cluster-autoscaler/enabled]}}}}"
        source = sources[name]
        yield source.document.problem(source.base, message)


def without_effect(policy: Policy, sources: Mapping[str, StrategySource]) -> Iterator[str]:
    """Yield a warning if the policy has no strategies, and for each mode without effect."""
    if not policy.strategies:
        yield "the policy names no strategy: nothing will be moved"
    for name, strategy in policy.strategies.items():
        if strategy.mode is not None and policy.mode_of(name) is not strategy.mode:
            effect = f"the policy's {policy.mode} holds"
            if policy.mode is Mode.OFF:
                effect = "it is off"
            message = f"{strategy.mode} is laxer than the policy's mode; {effect}"
            source = sources[name]
            yield str(source.document.problem((*source.base, "mode"), message))
