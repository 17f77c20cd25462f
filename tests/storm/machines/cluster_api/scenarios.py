"""From a seed to a scenario on Cluster API: the duties about groups, with the requests for its objects and what others do to them."""

import random
from collections.abc import Mapping

from tests.storm.machines.scenario import (
    KINDS,
    WORLD,
    Chances,
    Duty,
    MachineFault,
    Scenario,
    draw_scenario,
)
from tests.storm.schedule import Act

DUTIES: tuple[Duty, ...] = ("surge", "scale-in", "surge", "scale-out")
"""In the order of seeds: a replacement has the most writes."""
_OBJECTS = ("machinedeployment", "machineset", "machine")
_READS = ("get cluster", *(f"get {one}" for one in _OBJECTS), "list machinesets", "list machines")
_WRITES = tuple(f"patch {one}" for one in _OBJECTS)
_SIZES: Mapping[Duty, tuple[str, ...]] = {
    "surge": (*_READS, *_WRITES),
    "scale-in": (*_READS, "list machinedeployments", *_WRITES),
    "scale-out": (*_READS[:-1], "list machinedeployments", *_WRITES[:-1]),
}
"""Requests for objects of Cluster API that a duty makes."""
_WORLD: Mapping[Duty, tuple[str, ...]] = {
    "surge": (
        *WORLD["surge"],
        "others add a machine",
        "others take a machine",
        "others delete a machine",
    ),
    "scale-in": (
        "protected",
        "opt-out",
        "budget closed",
        "forged record",
        "replaced under its name",
        "person cordons",
        "load comes back",
        "delay asked for",
        "one group chosen",
        "people want it empty",
        "person drains",
        "others add a machine",
        "others take a machine",
    ),
    "scale-out": ("zone lost", "load goes", "agents are slow", "others add a machine"),
}
_WRITTEN: tuple[Scenario, ...] = (
    Scenario(0, "surge"),
    Scenario(1, "scale-in"),
    Scenario(2, "scale-out"),
    Scenario(3, "surge", acts=(Act("no capacity"),)),
    Scenario(4, "surge", acts=(Act("others add a machine", "patch machinedeployment 3"),)),
    Scenario(5, "surge", acts=(Act("others take a machine", "eviction 1"),)),
    Scenario(6, "scale-in", faults=(MachineFault("list machines", "200 with {}", "later"),)),
    Scenario(
        7, "surge", faults=(MachineFault("patch machinedeployment", "drop after commit", "always"),)
    ),
)
"""Written seeds: each alone what the others mix."""


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed on Cluster API."""
    if seed < len(_WRITTEN):
        return _WRITTEN[seed]
    duty = DUTIES[seed % len(DUTIES)]
    # Twice: what ends machines goes by these requests.
    kinds = (*KINDS[duty], *_SIZES[duty], *_SIZES[duty])
    chances = Chances(kinds, (), _WORLD[duty], _moments(duty))
    return draw_scenario(random.Random(f"cluster-api {seed}"), seed, duty, chances)


def _moments(duty: Duty) -> tuple[str, ...]:
    moments = ["list nodes 1", "eviction 1", "eviction 2"]
    if duty != "scale-out":
        moments += [f"patch node {number}" for number in range(1, 6)]
    writes = [one for one in _SIZES[duty] if one in _WRITES]
    return (*moments, *(f"{one} {number}" for one in writes for number in (1, 2, 3)))
