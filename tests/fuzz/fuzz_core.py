"""The compiled core beside its source, on clusters and changes that hypothesis draws from the bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rebalancer.scheduler.profile import SchedulerProfile, ScoringStrategy
from tests.fuzz.target import Target
from tests.unit.core.interpreted import Narrow, assert_same
from tests.unit.scheduler.journeys import Step, go, steps
from tests.unit.scheduler.random_worlds import clusters, namespaces
from tests.unit.scheduler.worlds import Json, World

_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_LARGEST = 1 << 53
"""More than a snapshot keeps of one resource."""
_Amount = tuple[bool, int, str, int]
"""Whether of a node or of a pod, of which (modulo all), of which resource, and how much."""


class TooShortError(Exception):
    """The bytes end within a cluster."""


_amounts = st.tuples(
    st.booleans(),
    st.integers(0, 20),
    st.sampled_from(("cpu", "memory", "pods", "ephemeral-storage", "example.com/tape")),
    st.one_of(st.integers(0, 4), st.integers(0, _LARGEST)),
)


@given(
    clusters(most=5),
    st.lists(_amounts, max_size=4),
    steps(4),
    st.booleans(),
    st.sampled_from(_STRATEGIES),
    st.sampled_from((("cpu", "memory"), ("memory", "example.com/tape"))),
    st.sampled_from(((1, 35), (1, 36))),
)
def _compare(
    made: tuple[list[Json], list[Json], Json],
    amounts: list[_Amount],
    way: list[Step],
    sampled: bool,
    strategy: str,
    balanced: tuple[str, ...],
    version: tuple[int, int],
) -> None:
    nodes, standing, new = made
    pods = [*standing, new]
    for of_node, which, resource, amount in amounts:
        if of_node:
            allocatable = nodes[which % len(nodes)]["status"]["allocatable"]
            allocatable[resource] = str(amount)
        elif resource != "pods":
            container = pods[which % len(pods)]["spec"]["containers"][0]
            container["resources"]["requests"][resource] = str(amount)
    shape = ((0, 0), (40, 9), (100, 2)) if strategy == _STRATEGIES[2] else ()
    scoring = ScoringStrategy(strategy, shape=shape)
    kind = Narrow if sampled else SchedulerProfile
    profile = kind.for_version(version, scoring=scoring, balanced=balanced)
    world = World(nodes, pods, namespaces=namespaces(), profile=profile)
    classes = set(range(len(world.snapshot.classes)))
    go(world.state, way, lambda: assert_same(world.model, world.state, classes))


def _read(data: bytes) -> None:
    if _compare.hypothesis.fuzz_one_input(data) is None:  # type: ignore[attr-defined]
        raise TooShortError


TARGET = Target(_read, (TooShortError,))
