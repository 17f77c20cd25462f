"""The plan: moves with predicted landings, and the reasons why other pods are not moved."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

NEVER_ALLOWS = "can never allow an eviction"
"""Of a PodDisruptionBudget that allows none even while all of its pods are healthy; in messages of :attr:`Code.PDB`."""

REPLACED_BY = "replaced by "
"""Before the name of a replacement, in the message of a move that was carried out."""


class Code(enum.StrEnum):
    """Why a pod is not moved although a strategy prefers another place. Stable: users alert on the values."""

    PROTECTED = "Protected"
    """A protection forbids it; the message names which."""
    NOT_RECREATED = "NotRecreated"
    """A protection: its controller is not known to recreate it once it is evicted."""
    CANNOT_SURGE = "CannotSurge"
    """A protection: a single replica that the policy lets move by a restart, and whose rollout would leave a gap."""
    JUST_SCALED = "JustScaled"
    """A protection: a HorizontalPodAutoscaler has just scaled its workload, or is scaling it (``protect.afterScaling``)."""
    GANG = "Gang"
    """A protection: it is a member of a gang, which moves as a whole or not at all (``protect.gangs``)."""
    WHOLE_ROLLOUT = "WholeRollout"
    """A protection: it moves by a restart of its rollout, with all pods of its Deployment, for hard rules and to empty nodes only (``method.unevictable``)."""
    RESIZE_DEFERRED = "ResizeDeferred"
    """A protection: it waits for room to be resized on its node, and its replacement would have its template's size."""
    NOT_SELECTED = "NotSelected"
    """The ``select`` of the strategy does not match it: it counts, but the strategy does not move it."""
    ZONE_CLOSED = "ZoneClosed"
    """A zone is closed: only hard rules and nodes that go move pods meanwhile; the message says which zone, and why."""
    NO_ROOM = "NoRoom"
    """No node would take the replacement."""
    COMES_BACK = "ComesBack"
    """The scheduler would put the replacement back where the pod is, or in the same domain."""
    NO_GAIN = "NoGain"
    """Nothing improves where the replacement would land, or something would get worse."""
    LOW_GAIN = "LowGain"
    """Something improves, but less than the policy asks for an eviction of this cost."""
    UNSURE = "Unsure"
    """It improves in too few of the places where the replacement may land."""
    UNPREDICTED = "Unpredicted"
    """The landing cannot be predicted (another scheduler, some resource claims, an unreadable spec)."""
    LEAVING_NODE = "LeavingNode"
    """More than 5 % of the landings are on nodes marked for deletion."""
    AVOIDED_NODE = "AvoidedNode"
    """More than 5 % of the landings are on nodes that the policy's ``landings`` leaves out, or any is on another architecture."""
    OTHER_OS = "OtherOS"
    """A landing is on a node of another operating system: the scheduler does not know which one the pod runs on."""
    PDB = "PodDisruptionBudget"
    """A PodDisruptionBudget allows no disruption now."""
    PDB_CONFLICT = "TwoPodDisruptionBudgets"
    """More than one PodDisruptionBudget selects the pod: the API refuses every eviction of it."""
    BUDGET = "Budget"
    """A budget of the policy is used up; the message names which."""
    QUOTA = "Quota"
    """A ResourceQuota leaves no room for a replacement beside the terminating victim."""
    MACHINE_COMES = "MachineComes"
    """Of a pod that waits for room: a machine is on its way for it, or a node that starts will take it."""
    UNSATISFIABLE = "Unsatisfiable"
    """No placement of the movable pods can satisfy the constraint."""
    OVERLOAD_MOVES = "OverloadMoves"
    """Moving the pod would only move the overload."""
    TOO_FEW_RUNS = "TooFewRuns"
    """What was measured has not been seen in enough runs in a row; the message has both numbers."""
    OBSERVED = "Observed"
    """The strategy's mode is observe: planned, shown, not carried out."""
    WINDOW = "OutsideWindow"
    """The strategy's window is closed."""
    MOVED_NOW = "MovedNow"
    """Of a rule: pods that this run moves may stand so where they land; the next run looks where they are."""
    CAME_UP = "CameUp"
    """Of a rule: it came up by the moves of this run, or while it acted; the next run looks at it."""
    NOT_EXAMINED = "NotExamined"
    """Of a rule: planning ended before it was looked at."""


class Method(enum.StrEnum):
    """How a pod is moved."""

    EVICT = "evict"
    """The pod is evicted, and its controller creates another."""
    RESTART = "restart"
    """The rollout of its Deployment is restarted: the new pod is Ready before the old one goes."""
    REQUEST = "request"
    """The responders that the pod names are asked by an EvictionRequest: they end it in their own way and time."""


class Cause(enum.StrEnum):
    """Why a pod is to be moved."""

    PLACE = "place"
    """It runs where it should not."""
    AGE = "age"
    """It is to be replaced by a new one, wherever that lands."""
    STATE = "state"
    """Its state is bad; it need not be Ready to be evicted, and its replacement should be better."""
    ENDED = "ended"
    """It has ended; nothing replaces it, because its controller has made another, or is done."""


class NodeCode(enum.StrEnum):
    """The decision on a node when nodes are emptied. Stable: users alert on the values."""

    EMPTY = "Empty"
    """Nothing is on it but pods that belong to it; it is marked, so that it stays empty."""
    EMPTIED = "Emptied"
    """All of its pods have landings elsewhere, together: they leave, in this run or in further ones."""
    POD_STAYS = "PodStays"
    """A pod on it may not be moved: a protection, a PodDisruptionBudget, the ``select`` of the strategy."""
    NO_PLACE = "NoPlaceToMovePods"
    """Its pods have no landings elsewhere that break nothing, together with those of the other nodes."""
    LOW_GAIN = "LowGain"
    """Too little is saved for the number of pods disturbed."""
    NOT_ELIGIBLE = "NotEligible"
    """The node itself, or an option of the strategy, says that it stays."""
    WAITS = "Waits"
    """Moves for rules, or nodes that an earlier run has begun to empty, come first."""


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The decision on a node, and its reason."""

    code: NodeCode
    message: str
    """One sentence with numbers."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """The number of nodes with pods, not counting pods that are bound to their node."""

    holding: int
    needed: int
    """Lower bound of that number."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost, compared left to right: pods that still have to move (hard, soft), squared deviation."""

    hard: float = 0.0
    soft: float = 0.0
    imbalance: float = 0.0

    def as_tuple(self) -> tuple[float, float, float]:
        """Return the entries in the order in which they are compared."""
        return self.hard, self.soft, self.imbalance


IN_ORDER = 50
"""Waves of up to this number of moves are executed in the plan's order, which keeps landings predictable."""


@dataclass(frozen=True, slots=True)
class Landing:
    """One place where the replacement may land, with its probability."""

    node: str
    probability: float
    domains: Mapping[str, str]
    """Topology key -> value, for the keys that the move's terms look at."""


@dataclass(frozen=True, slots=True)
class Move:
    """One planned eviction or restart, with its expected result."""

    namespace: str
    pod: str
    uid: str
    owner: str
    """``Kind/namespace/name`` of the top controller."""
    node: str
    landings: tuple[Landing, ...]
    """Most probable first; empty where the pod leaves without a predicted landing, and none is waited for."""
    strategy: str
    """The strategy with the largest share of the gain."""
    reason: str
    """One sentence with numbers."""
    gain: Cost
    """Expected, positive is better."""
    cost: float
    """Eviction cost, 0 to 20; 1 is an ordinary pod."""
    wave: int
    """The number of its wave, from 1."""
    budgets: tuple[str, ...] = ()
    """PodDisruptionBudgets (``namespace/name``) that count the eviction as a disruption: none or one."""
    observed: bool = False
    """Whether its strategy only observes: the move is shown, never executed."""

    makes_way_for: str = ""
    """Uid of the pod that can only be moved or placed once this one has left; empty for a move that gains by itself.

    In an exchange, the first pod is moved so that the second can be, and each of the others so that the first can be.
    """
    marks: tuple[str, ...] = ()
    """Nodes that carry a mark while the replacement is placed, in order; without them it would land elsewhere."""
    method: Method = Method.EVICT
    cause: Cause = Cause.PLACE
    unit: str = ""
    """The name of the moves that are made all or none; empty for a move by itself."""
    room: tuple[str, ...] | None = None
    """For a move that makes room for waiting pods: the nodes that are marked after it, until these have their room; else None."""
    gang: str = ""
    """The name of the gang or exchange whose pods leave with this one, in a wave of their own; empty for a move by itself."""

    @property
    def ref(self) -> str:
        """``namespace/pod``."""
        return f"{self.namespace}/{self.pod}"

    @property
    def of_gang(self) -> bool:
        """Whether the move belongs to a gang, whose moves are sent all together or not at all."""
        return bool(self.gang)

    @property
    def exchanges(self) -> bool:
        """Whether the pod changes places with others, see :mod:`rebalancer.planner.exchanges`."""
        return bool(self.gang and self.makes_way_for) and self.room is None

    @property
    def has_replacement(self) -> bool:
        """Whether another pod replaces this one. A finished pod is only deleted."""
        return self.cause is not Cause.ENDED


@dataclass(frozen=True, slots=True)
class Skip:
    """A pod that is not moved although a strategy prefers another place, with the reason."""

    namespace: str
    pod: str
    node: str
    strategy: str
    code: Code
    message: str
    holders: tuple[str, ...] = ()
    """Names of the protections of the pod, or of the PodDisruptionBudget that can never allow its eviction."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one strategy: its cost, the number of violated groups, and constraints that cannot be satisfied."""

    cost: Cost
    violated: int
    """Groups (a constraint of a workload, a node) with something left to fix."""
    unsatisfiable: tuple[str, ...] = ()
    """Constraints that cannot be met, in words."""
    not_judged: tuple[str, ...] = ()
    """Why the strategy could not judge its rules, in words: what is not judged is never reported as fine."""
    nodes: NodeCount | None = None
    """The node counts of a strategy that empties nodes."""


@dataclass(frozen=True, slots=True)
class UnmetRule:
    """A rule that is still violated, and the reason."""

    strategy: str
    rule: str
    """The rule in words, with its workload or node."""
    workload: str
    """``Kind/namespace/name``; empty for a rule of a node, or of several workloads."""
    codes: Mapping[str, int] = field(default_factory=dict)
    """Reason code -> how many pods are not moved because of it, most first; a rule without such pods has one code of 0 pods."""
    why: str = ""
    """The reason of most of these pods, with numbers."""
    rules: int = 1
    """How many rules these are: each of the pods that are judged by themselves is one."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """An estimate of the moves that budgets and time leave for later runs."""

    moves: int = 0
    """Moves that are left to further runs."""
    runs: int = 0
    """The number of further runs that these moves need."""
    more: bool = False
    """Whether ``moves`` is only a lower bound."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Reasons, scores and bounds of a plan; its executor does not need them."""

    skips: tuple[Skip, ...]
    before: Mapping[str, Score]
    """Strategy -> score of the snapshot."""
    after: Mapping[str, Score]
    """Strategy -> score if every move lands where it most probably does."""
    lower_bound: int | None
    """Lower bound on the moves needed to reach a state as good as after this plan and its backlog; None: not computed."""
    stopped: str
    """One line: why the plan ends here, or why it is empty."""
    backlog: Backlog = field(default_factory=Backlog)
    funnel: Mapping[str, int] = field(default_factory=dict)
    """Stage -> number of pods, in order: seen, movable, with unmet rules, of these movable, one entry per Code of the
    skips, moves of other pods that make room or are moved with them, moves."""
    unmet: tuple[UnmetRule, ...] = ()
    """The rules that remain unmet if every move lands where it most probably does: as many as ``after`` counts."""
    elsewhere: str = ""
    """One line: how many unmet rules are of pods that flags of the command leave out, and which strategies; empty if none."""


class Later:
    """An explanation that is computed on first access, so that evictions need not wait for it."""

    def __init__(
        self,
        make: Callable[[], Explanation],
        brief: Callable[[], Explanation] | None = None,
    ) -> None:
        """Store ``make``, which is called at most once and then released with everything it refers to.

        ``brief`` computes an explanation without the slow parts; None: there is none.
        """
        self._make: Callable[[], Explanation] | None = make
        self._brief = brief
        self._made: Explanation | None = None

    def make(self) -> Explanation:
        """Return the explanation; compute it on the first call."""
        if self._made is None and self._make is not None:
            self._made, self._make, self._brief = self._make(), None, None
        assert self._made is not None  # noqa: S101  # the one or the other
        return self._made

    def shorten(self) -> bool:
        """Compute the brief explanation, for a run that must end at once. Return False if one exists already."""
        if self._made is not None or self._brief is None:
            return False
        self._made, self._make, self._brief = self._brief(), None, None
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Later) and self.make() == other.make()

    __hash__ = None  # type: ignore[assignment]  # as all that holds a dict

    def __repr__(self) -> str:
        return repr(self.make())


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do; a dry run and a real run have the same plan."""

    moves: tuple[Move, ...]
    explanation: Later
    warnings: tuple[str, ...] = ()
    """Warnings for the reader: misconfigured budgets, unreadable objects, a nearest version."""
    emptied: tuple[str, ...] | None = None
    """Nodes to mark until they are empty, and while they are; None: marks are not changed."""
    empty_for: float = 0.0
    """Seconds for which these marks last."""
    pinned: str = ""
    """Which pods pin nodes that would be emptied, and on how few of these they fit; empty if none do."""
    pinned_nodes: tuple[str, ...] | None = None
    """Of these nodes those to mark at the end of the run: they would be free if the pods stood together. None: marks are left as they are."""
    nodes: Mapping[str, NodeVerdict] = field(default_factory=dict)
    """Node -> the decision on it, if a strategy empties nodes."""

    @property
    def skips(self) -> tuple[Skip, ...]:
        """The pods that are not moved, see :class:`Explanation`."""
        return self.explanation.make().skips

    @property
    def before(self) -> Mapping[str, Score]:
        """Strategy -> score of the snapshot."""
        return self.explanation.make().before

    @property
    def after(self) -> Mapping[str, Score]:
        """Strategy -> score if every move lands on its most probable node."""
        return self.explanation.make().after

    @property
    def unmet(self) -> tuple[UnmetRule, ...]:
        """The rules that remain violated."""
        return self.explanation.make().unmet

    @property
    def elsewhere(self) -> str:
        """The unmet rules that are not shown, see :class:`Explanation`."""
        return self.explanation.make().elsewhere

    @property
    def lower_bound(self) -> int | None:
        """Lower bound on the number of moves; None: not computed."""
        return self.explanation.make().lower_bound

    @property
    def stopped(self) -> str:
        """Why the plan has no more moves, in words."""
        return self.explanation.make().stopped

    @property
    def backlog(self) -> Backlog:
        """The moves that are left for later runs."""
        return self.explanation.make().backlog

    @property
    def funnel(self) -> Mapping[str, int]:
        """Stage -> number of pods."""
        return self.explanation.make().funnel


class Status(enum.StrEnum):
    """How a move ended."""

    EVICTED = "evicted"
    """The pod was evicted."""
    RESTARTED = "restarted"
    """The rollout of the pod's Deployment was restarted."""
    REQUESTED = "requested"
    """An EvictionRequest asks the pod's responders to end it; until they have, it is in flight."""
    BLOCKED = "blocked"
    """A PodDisruptionBudget allowed no disruption, up to the deadline."""
    CHANGED = "changed"
    """The name belongs to another pod by now, or the pod is on another node."""
    GONE = "gone"
    """The pod was already gone or terminating, for another reason."""
    MISCONFIGURED = "misconfigured"
    """More than one PodDisruptionBudget selects the pod: the API refuses every eviction of it."""
    REFUSED = "refused"
    """The API server forbade it: a right is missing."""
    FAILED = "failed"
    """The API server answered with errors, or asked to wait, up to the deadline."""
    LOST = "lost"
    """The reply was lost, and the pod could not be read afterwards."""
    DROPPED = "dropped"
    """Judged again before its eviction: it gains too little by now, or the pod is protected now."""
    NOT_ATTEMPTED = "not-attempted"
    """The run ended before its turn."""
    OBSERVED = "observed"
    """Its strategy only observes."""
    PLANNED = "planned"
    """A dry run: it would have been tried."""

    @property
    def is_failure(self) -> bool:
        """Whether the move failed for a reason of its own (exit code 4)."""
        return self in _FAILURES

    @property
    def is_carried_out(self) -> bool:
        """Whether the API server accepted the move: an eviction, a restart, or a request for an eviction."""
        return self in (Status.EVICTED, Status.RESTARTED, Status.REQUESTED)

    @property
    def ends_pod(self) -> bool:
        """Whether the move was executed and the pod ends at once; with an EvictionRequest it ends later."""
        return self.is_carried_out and self is not Status.REQUESTED

    @property
    def may_have_evicted(self) -> bool:
        """Whether the move was carried out, or may have been. Budgets over several runs count these."""
        return self.is_carried_out or self is Status.LOST


_FAILURES = frozenset({Status.MISCONFIGURED, Status.REFUSED, Status.FAILED, Status.LOST})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one move."""

    move: Move
    status: Status
    message: str
    """Why, in one sentence; may be empty."""
    landed: str | None = None
    """Node of the replacement, None while it has none or is not known."""
    predicted: bool | None = None
    """Whether it landed where the move expected it, None while it has not landed."""
    seconds: float = 0.0
    """From the eviction until the replacement had a node, or until the move ended."""

    @property
    def may_be_asked_for(self) -> bool:
        """Whether an EvictionRequest was sent for the pod, or may have been."""
        sent = self.status in (Status.REQUESTED, Status.LOST)
        return sent and self.move.method is Method.REQUEST


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast evictions are carried out, in seconds."""

    eviction: float = 0.1
    """Seconds for one eviction and its replacement, of many at once.

    The ReplicaSet controller sends at most 20 requests a second (``--kube-api-qps`` of kube-controller-manager, the
    default), and a replacement takes two or more: the pod, and the status of its ReplicaSet. So ten a second are
    replaced, and more only where that limit is raised. On two loaded processors with it lifted, one took 0.2 to 0.25 s, for
    us and for the peer (benchmarks/scale/RESULTS.md, "The pace of a first run"). If a cluster is faster, later runs know
    it from memory.
    """
    wave: float = 2.0
    """Seconds for the replacements of a wave to become Ready, once the last one is evicted.

    Hardly any container starts faster: without a memory, a plan should rather contain a few waves too many, which
    the deadline then cuts off, than too few.
    """

    @staticmethod
    def measure(evictions: int, waves: int, seconds: float) -> Pace:
        """Return the pace of an earlier run whose waves took ``seconds``; of its evictions alone if no wave ended."""
        usual = Pace()
        if evictions <= 0 or waves < 0 or not math.isfinite(seconds) or seconds <= 0:
            return usual
        if waves == 0:
            return Pace(eviction=seconds / evictions)
        waiting = seconds - evictions * usual.eviction
        if waiting < 0:
            return Pace(eviction=seconds / evictions, wave=0.0)
        return Pace(wave=waiting / waves)


MAX_SERIES = 500
"""Combinations of outcome, strategy and namespace with a sum of their own."""
OTHERS = "_other"
"""In place of the namespace in the sums of all others; no namespace has an underscore in its name."""
MAX_COUNT = 1_000_000_000
"""The largest value of a sum: beyond it a document could not be read again."""
RESULTS = {True: "as-predicted", False: "elsewhere", None: "unknown"}
"""Whether a replacement landed as predicted -> the name of that."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


class Totals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """Counters over all runs since the first one that was recorded."""

    runs: dict[str, Count] = {}
    """Exit code -> runs."""
    moves: tuple[tuple[str, str, str, Count], ...] = ()
    """(outcome, strategy, namespace, moves that were tried)."""
    landings: dict[str, Count] = {}
    """Whether replacements landed as predicted -> how many."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The parts of the memory of earlier runs that metrics show."""

    states: Mapping[str, int]
    """``fine``, ``resting`` or ``given-up`` -> owners."""
    targets: Mapping[str, Collection[str]]
    """Owner -> nodes to which earlier runs have moved its pods, as far as that is remembered."""


_NOT_TRIED = (Status.PLANNED, Status.OBSERVED, Status.NOT_ATTEMPTED)


def with_moves(totals: Totals, outcomes: Iterable[Outcome]) -> Totals:
    """Return the counters plus the attempted moves and the landings of the replacements."""
    tried = [one for one in outcomes if one.status not in _NOT_TRIED]
    if not tried:
        return totals
    moves = {(outcome, strategy, space): n for outcome, strategy, space, n in totals.moves}
    landings = dict.fromkeys(RESULTS.values(), 0) | totals.landings
    for one in tried:
        key = one.status.value, one.move.strategy, one.move.namespace
        if key not in moves and len(moves) >= MAX_SERIES:
            key = *key[:2], OTHERS
        moves[key] = min(moves.get(key, 0) + 1, MAX_COUNT)
        if one.status.is_carried_out and one.move.has_replacement:
            result = RESULTS[one.predicted]
            landings[result] = min(landings[result] + 1, MAX_COUNT)
    return Totals(totals.runs, tuple((*key, n) for key, n in sorted(moves.items())), landings)


def with_run(totals: Totals, exit_code: int) -> Totals:
    """Return the counters plus one run."""
    code = str(exit_code)
    runs = totals.runs | {code: min(totals.runs.get(code, 0) + 1, MAX_COUNT)}
    return Totals(dict(sorted(runs.items())), totals.moves, totals.landings)
