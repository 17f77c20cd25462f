"""Small clusters that can be drawn at random, made smaller, and written down as API objects."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    apart,
    disruption_budget,
    node,
    spread,
    workload,
)

Object = dict[str, Any]
WISHES = (
    "plain",
    "zone-soft",
    "zone-hard",
    "host-soft",
    "apart-zone",
    "apart-host",
    "never-same-host",
)
RECORDED_WISHES = (*WISHES, "host-cap", "host-cap", "zone-hard-host-cap")
"""With the caps per node of recorded workloads."""
# With more domains asked for than there are, the least count is 0 and the skew is a plain cap.
_CAPPED: Object = {"hard": True, "max_skew": 2, "minDomains": 100}
_SPREADS = "topologySpreadConstraints"


@dataclass(frozen=True)
class App:
    """A Deployment and where its pods stand."""

    wish: str
    cpu: int
    """Millicores of one pod."""
    on: tuple[int, ...]
    """Node of each pod."""
    held: bool = False
    """A PodDisruptionBudget allows nothing."""


@dataclass(frozen=True)
class World:
    """Nodes by zone, and apps."""

    zones: tuple[int, ...]
    """Zone of each node."""
    cpu: int
    """Millicores of a node."""
    apps: tuple[App, ...]
    sizes: tuple[int, ...] = ()
    """Millicores of each node, where they are not alike."""

    def objects(self) -> list[Object]:
        """Return the API objects."""
        made = [
            node(f"n{i}", f"z{zone}", cpu=f"{cpu}m", memory="64Gi")
            for i, (zone, cpu) in enumerate(
                zip(self.zones, self.sizes or (self.cpu,) * len(self.zones), strict=True)
            )
        ]
        for index, app in enumerate(self.apps):
            name = f"a{index}"
            on = [f"n{n}" for n in app.on]
            spec = _spec(app.wish, name)
            made += workload(name, on, cpu=f"{app.cpu}m", memory="64Mi", spec=spec)
            if app.held:
                made.append(disruption_budget(name, name, allowed=0, healthy=len(on)))
        return made


def draw(rng: random.Random, wishes: Sequence[str] = WISHES, *, cpus: Sequence[int] = ()) -> World:
    """Return a world of at most 8 nodes and 14 pods; every pod fits where it stands.

    With ``cpus`` each node's size is one of these, in millicores; without, all nodes are alike.
    """
    zones = tuple(sorted(rng.randrange(3) for _ in range(rng.randint(3, 8))))
    cpu = rng.choice((1000, 2000, 4000))
    sizes = tuple(rng.choice(cpus) for _ in zones) if cpus else (cpu,) * len(zones)
    used = [0] * len(zones)
    apps: list[App] = []
    left = 14
    while left >= 2 and len(apps) < 4:
        asked = rng.choice((50, 100, 250, 500))
        # As after a drift: only some of the nodes were there when the pods were placed.
        there = rng.sample(range(len(zones)), rng.randint(1, len(zones)))
        on: list[int] = []
        for _ in range(rng.randint(2, min(6, left))):
            roomy = [n for n in there if used[n] + asked <= sizes[n]]
            if roomy:
                chosen = rng.choice(roomy)
                used[chosen] += asked
                on.append(chosen)
        if len(on) < 2:
            break
        left -= len(on)
        apps.append(App(rng.choice(wishes), asked, tuple(on), rng.random() < 0.1))
    return World(zones, cpu, tuple(apps), sizes if cpus else ())


def smaller(world: World) -> Iterator[World]:
    """Yield worlds with one thing less, the largest steps first."""
    for index in range(len(world.apps)):
        yield replace(world, apps=world.apps[:index] + world.apps[index + 1 :])
    for gone in range(len(world.zones)):
        if len(world.zones) > 1 and not any(gone in app.on for app in world.apps):
            yield _without_node(world, gone)
    for index, app in enumerate(world.apps):
        simpler = [replace(app, on=app.on[:p] + app.on[p + 1 :]) for p in range(len(app.on))]
        simpler = [one for one in simpler if len(one.on) >= 2]
        if app.held:
            simpler.append(replace(app, held=False))
        if app.wish != "plain":
            simpler.append(replace(app, wish="plain"))
        for one in simpler:
            yield replace(world, apps=(*world.apps[:index], one, *world.apps[index + 1 :]))


def _without_node(world: World, gone: int) -> World:
    apps = tuple(replace(app, on=tuple(n - (n > gone) for n in app.on)) for app in world.apps)
    zones = world.zones[:gone] + world.zones[gone + 1 :]
    return World(zones, world.cpu, apps, world.sizes[:gone] + world.sizes[gone + 1 :])


def _spec(wish: str, name: str) -> Object:
    match wish:
        case "zone-soft":
            return spread(name)
        case "zone-hard":
            return spread(name, hard=True)
        case "host-soft":
            return spread(name, HOSTNAME)
        case "host-cap":
            return spread(name, HOSTNAME, **_CAPPED)
        case "zone-hard-host-cap":
            both = (spread(name, hard=True), spread(name, HOSTNAME, **_CAPPED))
            return {_SPREADS: [one for spec in both for one in spec[_SPREADS]]}
        case "apart-zone":
            return apart(name, ZONE, weight=100)
        case "apart-host":
            return apart(name, HOSTNAME, weight=100)
        case "never-same-host":
            return apart(name, HOSTNAME)
        case _:
            return {}
