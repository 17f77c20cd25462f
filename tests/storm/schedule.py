"""From a seed to a scenario: which requests fail and how, and what else happens beside the run.

The first seeds are combinations of which a review says that they break promises; CI plays half of these. The next ones cover every
pair of kind, fault and phase; those after them are drawn at random. Every fifth seed steers besides: its world has
workloads whose landings need marks; every fourth has a gang. Any of them can be played by ``serve`` in the place of a run.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tests.storm.faults import CENTRAL, KINDS, MARKING, Fault, effects_on, phases_of

_SIZES = (1, 2, 3, 2, 0, 3, 2, 3, 2, 1)
"""How many faults the runs have, in turn."""
_GANGS_EVERY = 4
_GANGS_AT = 1
"""Runs of these seeds have a gang to move; none of them steers, and none is long."""
_LONG_EVERY = 50
_LONG_AT = 37
"""Runs of these seeds outlast the term of the Lease."""
_STEERED_EVERY = 5
_STEERED_AT = 4
"""Runs of these seeds steer; none of them is long."""
DEADLINE = 12.0
STEERED_DEADLINE = 20.0
"""They have more moves, one after the other."""
_SHORT = 8.0
"""For runs that are waited for until their deadline anyway."""
LONG_DEADLINE = 110.0
TAKEN_OVER = 2 * 60.0 + 2
"""Seconds after which a Lease that is not renewed can be another's: its term, and as long again to watch it."""
LONGEST_DEADLINE = TAKEN_OVER + 60
RIVAL_DEADLINE = 20.0
SERVED = 4.0
"""Seconds after a run's deadline for which ``serve`` goes on, until it is ended."""
ENOUGH = "served long enough"
"""The act that ends it, by SIGTERM."""
LEASE_TERM = 60.0
SERVER_ERRORS = ("500 after commit", "502 after commit", "503 after commit", "504 after commit")

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
MARKED_MOMENTS = ("patch node 1", "patch node 2", "patch node 3", "get node 3", "patch node 5")
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
    "next run",
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
    steered: bool = False
    """Whether there are workloads whose landings need marks, and the policy allows them."""
    gangs: bool = False
    """Whether one workload is a gang."""
    served: bool = False
    """Whether ``serve`` is played, and not one run."""

    @property
    def rival_deadline(self) -> float:
        """Seconds that a rival has."""
        return (
            LONGEST_DEADLINE - LEASE_TERM if self.deadline == LONGEST_DEADLINE else RIVAL_DEADLINE
        )

    @property
    def long(self) -> bool:
        """Whether it outlasts the term of the Lease."""
        return self.deadline > LEASE_TERM

    def has(self, *names: str) -> bool:
        """Whether one of these acts happens."""
        return any(act.name in names for act in self.acts)

    def __str__(self) -> str:
        what = [*map(str, self.faults), *map(str, self.acts)]
        how = " (steered)" * self.steered + " (gang)" * self.gangs + " (serve)" * self.served
        return f"seed {self.seed}{how}: {'; '.join(what) or 'nothing goes wrong'}"


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; the same for the same seed."""
    made = _scenario(seed)
    gangs = seed % _GANGS_EVERY == _GANGS_AT and not (made.steered or made.long)
    return replace(made, gangs=gangs)


def _scenario(seed: int) -> Scenario:
    if seed < len(COMBINED):
        return replace(COMBINED[seed], seed=seed)
    rng = random.Random(f"storm {seed}")
    if seed % _LONG_EVERY == _LONG_AT:
        return _long(seed, rng)
    acts = _acts(seed, rng)
    rows = _covering()
    number = seed - len(COMBINED)
    size = _SIZES[number % len(_SIZES)]
    start = _faults_before(number)
    faults = rows[start : start + size]
    if start + size > len(rows):
        faults = tuple(_random_fault(rng) for _ in range(size))
    made = Scenario(seed, _distinct(faults), acts, ready_after=rng.choice((0.3, 0.3, 1.0)))
    return _steered(made) if seed % _STEERED_EVERY == _STEERED_AT else made


def served(made: Scenario) -> Scenario:
    """Return the same scenario for ``serve``, which is ended some time after a run would have to be."""
    end = Act(ENOUGH, f"after {made.deadline + SERVED:g}")
    return replace(made, acts=(*made.acts, end), served=True)


def _steered(made: Scenario) -> Scenario:
    """Return a scenario in which landings are steered, too.

    In two of three a request by which nodes are marked fails, each effect in turn. Where nothing happens beside the run,
    it is ended by a signal.
    """
    round_, turn = divmod(made.seed // _STEERED_EVERY, 1 + len(MARKING))
    rng = random.Random(f"storm marks {made.seed}")
    faults, acts = made.faults, made.acts
    if turn < len(MARKING):
        kind = MARKING[turn]
        name = effects_on(kind)[round_ % len(effects_on(kind))]
        at = rng.randrange(10_000)
        faults = (*faults, Fault(kind, name, rng.choice(phases_of(kind)), at))
    if not acts:
        moment, later = rng.choice(MARKED_MOMENTS), rng.choice((0.0, 0.1, 0.5))
        acts = (Act(rng.choice(("SIGTERM", "SIGKILL")), moment, later),)
    return replace(made, faults=faults, acts=acts, deadline=STEERED_DEADLINE, steered=True)


def covering_seeds() -> int:
    """Return how many seeds it takes until all pairs of kind, fault and phase were there."""
    number = 0
    while _faults_before(number) < len(_covering()):
        number += 1
    return number + len(COMBINED)


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
    """Return a scenario in which the Lease is renewed, or runs out, or replacements are waited for in silence."""
    rival = Act("rival", "after 62")
    at = rng.randrange(500)
    match seed // _LONG_EVERY % 4:
        case 0:
            # The holder cannot renew, and another takes over before its second wave: it must have stopped by then.
            names = ("200 with HTML", "silence before commit", "dripping body", "dripping head")
            lost = Fault("lease", rng.choice(names), "later", at)
            return Scenario(seed, (lost,), (rival,), LONGEST_DEADLINE, TAKEN_OVER + 20)
        case 1:
            stopped = Act("SIGSTOP", "eviction 1", 0.0, rng.choice((66.0, 75.0, 90.0)))
            return Scenario(seed, (), (stopped, rival), LONG_DEADLINE, 10.0)
        case 2:
            once = Fault("lease", rng.choice(SERVER_ERRORS), "third", at)
            return Scenario(seed, (once,), (), LONG_DEADLINE, 14.0)
        case _:
            silent = Fault("watch pods", "silence in the body", "always", 0)
            return Scenario(seed, (silent,), (), LONG_DEADLINE, 0.3)


def _combined() -> Iterator[Scenario]:
    """Yield what breaks promises according to a review, each with the promise that was broken."""

    def made(*what: Fault | Act, deadline: float = DEADLINE, ready_after: float = 0.3) -> Scenario:
        faults = tuple(one for one in what if isinstance(one, Fault))
        acts = tuple(one for one in what if isinstance(one, Act))
        return Scenario(0, faults, acts, deadline, ready_after)

    # A replica more of an owner whose status is stale, or that is unready.
    yield made(Act("stale status"), Fault("events", "500 after commit", "always"), deadline=_SHORT)
    yield made(Act("owner unready"), Fault("list deployments", "410", "first"))
    # One tenant stops every run, or has another's pods evicted.
    yield made(Act("hostile quantities"), Fault("watch pods", "502 after commit", "second"))
    yield made(Act("hostile anti-affinity"), Fault("memory", "delay", "second"))
    # Evictions after SIGTERM, after the deadline, and such that nothing is reported.
    yield made(Fault("get pod", "delayed answer", "always"), Act("SIGTERM", "get pod 2", 0.2))
    yield made(Fault("eviction", "drop after commit", "second"), Act("SIGTERM", "eviction 2"))
    yield made(Fault("get pod", "delayed answer", "always"))
    yield made(Fault("eviction", "500 after commit", "always"))
    # What is in flight over two runs.
    yield made(Act("next run"), deadline=_SHORT, ready_after=30.0)
    # Nothing is heard while the server throttles, or while an answer drips.
    yield made(
        Fault("eviction", "429 Retry-After 60", "always"),
        Act("SIGTERM", "eviction 1", 0.3),
        deadline=40.0,
    )
    yield made(Fault("list pods", "dripping body", "first", 100), deadline=_SHORT)
    yield made(
        Fault("events", "429 Retry-After 1", "always"), Fault("lease", "502 after commit", "second")
    )
    # The hour's count where the memory cannot be read or written.
    yield made(Act("memory newer"))
    yield made(Act("memory nonsense"), Fault("events", "cut", "always", 30))
    yield made(Act("hour nearly used"), Fault("memory", "200 with HTML", "always"))
    yield made(Fault("memory", "500 after commit", "second"))
    # Streams that cannot be written.
    yield made(Act("stderr full"), Fault("events", "504 after commit", "always"))
    yield made(Act("stdout full"), Fault("get pod", "503 after commit", "second"))
    # Pods that change between the plan and their eviction.
    yield made(Act("opt-out", "eviction 1"))
    yield made(Act("rival", "lease 1", 0.1), Act("SIGKILL", "eviction 2"))


COMBINED = tuple(_combined())
