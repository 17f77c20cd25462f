"""From a seed to a scenario: which requests fail and how, and what else happens beside the run.

The first seeds cover every pair of kind, fault and phase; those after them are drawn at random.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tests.storm.faults import CENTRAL, KINDS, Fault, effects_on, phases_of

_SIZES = (1, 2, 3, 2, 0, 3, 2, 3, 2, 1)
"""How many faults the runs have, in turn."""
_LONG_EVERY = 50
_LONG_AT = 37
"""Runs of these seeds outlast the term of the Lease."""
DEADLINE = 12.0
LONG_DEADLINE = 110.0
LEASE_TERM = 60.0

SIGNALS = ("SIGTERM", "SIGKILL", "SIGSTOP")
MOMENTS = (
    "eviction 1",
    "eviction 2",
    "eviction 3",
    "get pod 2",
    "list pods 1",
    "lease 1",
    "memory 2",
    "watch pods 1",
    "events 1",
)
ACTS = (
    "SIGTERM",
    "opt-out",
    "SIGKILL",
    "stale status",
    "stderr closed",
    "rival",
    "budget edited",
    "hour nearly used",
    "SIGTERM",
    "hostile quantities",
    "pods unready",
    "stdout full",
    "memory nonsense",
    "SIGSTOP",
    "hostile anti-affinity",
    "wrong clock",
    "node not ready",
    "controller manager stopped",
    "SIGTERM",
    "stderr full",
    "pods pending",
    "owner unready",
    "stdout closed",
    "stderr gone",
    "nodes not ready",
    "memory newer",
)
"""What happens beside the run; see `world`. Every third run has none of it."""


@dataclass(frozen=True)
class Act:
    """One thing that happens beside a run."""

    name: str
    moment: str = "before"
    """"before" the run starts, at a request of a kind and number, or after so many seconds ("after 62")."""
    later: float = 0.0
    """Seconds after that moment; 0: the answer waits until it is done."""
    amount: float = 0.0
    """Seconds that a process is stopped, or that a clock is wrong."""

    def __str__(self) -> str:
        more = f" +{self.later:g} s" if self.later else ""
        amount = f" ({self.amount:g})" if self.amount else ""
        return f"{self.name}{amount} at {self.moment}{more}"


@dataclass(frozen=True)
class Scenario:
    """All that a run is put through."""

    seed: int
    faults: tuple[Fault, ...]
    acts: tuple[Act, ...]
    deadline: float = DEADLINE
    ready_after: float = 0.3
    """Seconds that a replacement needs to be Ready."""

    @property
    def long(self) -> bool:
        """Whether it outlasts the term of the Lease."""
        return self.deadline > LEASE_TERM

    def has(self, *names: str) -> bool:
        """Whether one of these acts happens."""
        return any(act.name in names for act in self.acts)

    def __str__(self) -> str:
        what = [*map(str, self.faults), *map(str, self.acts)]
        return f"seed {self.seed}: {'; '.join(what) or 'nothing goes wrong'}"


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; the same for the same seed."""
    rng = random.Random(f"storm {seed}")
    if seed % _LONG_EVERY == _LONG_AT:
        return _long(seed, rng)
    acts = _acts(seed, rng)
    rows = _covering()
    size = _SIZES[seed % len(_SIZES)]
    start = _faults_before(seed)
    faults = rows[start : start + size]
    if start + size > len(rows):
        faults = tuple(_random_fault(rng) for _ in range(size))
    slow = rng.choice((0.3, 0.3, 1.0))
    return Scenario(seed, _distinct(faults), acts, ready_after=slow)


def covering_seeds() -> int:
    """Return how many seeds it takes until all pairs of kind, fault and phase were there."""
    seed = 0
    while _faults_before(seed) < len(_covering()):
        seed += 1
    return seed


def _faults_before(seed: int) -> int:
    whole, part = divmod(seed, len(_SIZES))
    return whole * sum(_SIZES) + sum(_SIZES[:part])


@cache
def _covering() -> tuple[Fault, ...]:
    """Return faults that hold every pair of kind, fault and phase, those of the central kinds first."""
    rng = random.Random("storm covering")
    rows = [list(_rows(kinds, rng)) for kinds in (CENTRAL, _others())]
    for part in rows:
        rng.shuffle(part)
    return tuple(fault for part in rows for fault in part)


def _others() -> Sequence[str]:
    return [kind for kind in KINDS if kind not in CENTRAL]


def _rows(kinds: Sequence[str], rng: random.Random) -> Iterator[Fault]:
    """Yield each fault on each kind once, the phases in turn: three factors, of which any two are covered."""
    for row, kind in enumerate(kinds):
        phases = phases_of(kind)
        for column, name in enumerate(effects_on(kind)):
            yield Fault(kind, name, phases[(row + column) % len(phases)], rng.randrange(10_000))


def _random_fault(rng: random.Random) -> Fault:
    kind = rng.choice(CENTRAL if rng.random() < 0.6 else KINDS)
    return Fault(
        kind, rng.choice(effects_on(kind)), rng.choice(phases_of(kind)), rng.randrange(10_000)
    )


def _distinct(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Return at most one fault for each kind and phase: of two, one would hide the other."""
    return tuple({(fault.kind, fault.phase): fault for fault in faults}.values())


def _acts(seed: int, rng: random.Random) -> tuple[Act, ...]:
    turn, none = divmod(seed, 3)
    if none == 2:
        return ()
    name = ACTS[(2 * turn + none) % len(ACTS)]
    return (_act(name, rng),)


def _act(name: str, rng: random.Random) -> Act:
    if name in SIGNALS:
        pause = rng.choice((2.0, 5.0, 14.0)) if name == "SIGSTOP" else 0.0
        return Act(name, rng.choice(MOMENTS), rng.choice((0.0, 0.2, 1.5)), pause)
    if name == "rival":
        return Act(name, rng.choice(("lease 1", "eviction 1", "eviction 2")), 0.1)
    if name == "wrong clock":
        return Act(name, amount=rng.choice((-3600.0, -70.0, -20.0, 20.0, 70.0, 3600.0)))
    if name in ("stderr gone", "opt-out", "budget edited", "pods unready", "pods pending"):
        return Act(name, rng.choice(("eviction 1", "eviction 2")))
    if name in ("node not ready", "controller manager stopped"):
        return Act(name, rng.choice(("before", "eviction 1")))
    return Act(name)


def _long(seed: int, rng: random.Random) -> Scenario:
    """Return a scenario in which the Lease runs out while its holder goes on, or is stopped."""
    rival = Act("rival", "after 62")
    if seed // _LONG_EVERY % 2:
        stopped = Act("SIGSTOP", "eviction 1", 0.0, rng.choice((65.0, 80.0, 90.0)))
        return Scenario(seed, (), (stopped, rival), LONG_DEADLINE, 5.0)
    fault = rng.choice(("200 with HTML", "silence before commit", "dripping body", "dripping head"))
    return Scenario(
        seed, (Fault("lease", fault, "later", rng.randrange(500)),), (rival,), LONG_DEADLINE, 14.0
    )
