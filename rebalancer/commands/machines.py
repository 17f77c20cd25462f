"""What a run does to machines, of a policy whose strategies add or remove some."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rebalancer.base.environment import collector_paused
from rebalancer.capacity.groups import known_nodes
from rebalancer.capacity.look import NONE, look
from rebalancer.capacity.report import CapacityReport
from rebalancer.capacity.scale_in import NodeScaleIn
from rebalancer.capacity.scaling import (
    Ground,
    MakeScaler,
    Scaler,
    Scaling,
    holds_back,
    scaling_strategies,
)
from rebalancer.commands.context import RunContext
from rebalancer.commands.identity import instance
from rebalancer.commands.source import Reading, Source
from rebalancer.providers.contract import Machines, Provider
from rebalancer.providers.guarded import Guarded
from rebalancer.providers.labelled import LabelledGroups
from rebalancer.registry import PlugIns, Registry

_SCALERS: Mapping[str, MakeScaler] = {"in": NodeScaleIn}
"""``Params.scales`` of a strategy -> what acts for it."""


def opened(run: RunContext, providers: PlugIns[Provider]) -> tuple[str, Machines]:
    """Return the provider that the policy names, opened, by its name.

    Raises:
        ProviderError: something is missing that it needs.
    """
    for name, options in run.loaded.policy.provider.items():
        provider = providers.named(name)
        text = json.dumps(options or {})
        params: Any = provider.Params.model_validate_json(text, by_alias=True, by_name=False)
        return name, provider.open(params, run.environment.environ)
    return NONE, LabelledGroups()


def scaling_of(run: RunContext, source: Source, reading: Reading) -> Scaling | None:
    """Return what the run does to machines; None if its policy has no such strategy.

    Raises:
        ProviderError: the machines could not be looked at; nothing was done to any.
    """
    if not any(scales in _SCALERS for _, scales in scaling_strategies(run.loaded.policy)):
        return None
    with run.timings.phase("machines"), collector_paused():
        name, machines = opened(run, Registry.installed().providers)
        seen = look(run.planning, run.loaded.policy.capacity, reading.snapshot, name, machines)
        return Scaling(list(_scalers(run, source, reading, seen, machines)))


def _scalers(
    run: RunContext, source: Source, reading: Reading, seen: CapacityReport, machines: Machines
) -> Iterator[tuple[str, Scaler]]:
    policy = run.loaded.policy
    guarded = Guarded(machines, known_nodes(reading.snapshot))
    standstill = run.planning.standstill(reading.snapshot, reading.clock_skew)
    for name, scales in scaling_strategies(policy):
        if (make := _SCALERS.get(scales)) is None:
            continue
        holds = holds_back(policy, name, seen, standstill)
        if run.reviewed is not None:
            holds = "a plan that was reviewed is about pods only"
        dry = holds is None and not run.acts
        ground = Ground(
            strategy=name,
            params=policy.strategies[name].params,
            look=seen,
            guarded=guarded,
            client=source.client,
            now=_server_time(run, source, reading),
            by=instance(run.environment),
            stop=run.stop,
            holds="a dry run changes nothing" if dry else holds,
            dry=dry,
        )
        yield name, make(ground)


def _server_time(run: RunContext, source: Source, reading: Reading) -> Callable[[], float]:
    """Return what returns the API server's time; of a snapshot file that of the file."""
    if source.client is None:
        return lambda: reading.snapshot.captured_at
    return lambda: run.environment.clock.unix() + reading.clock_skew
