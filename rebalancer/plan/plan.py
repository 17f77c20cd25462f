"""The plan: moves with predicted landings, and why everything else stays where it is."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

NEVER_ALLOWS = "can never allow an eviction"
"""Of a PodDisruptionBudget that allows none even while all of its pods are healthy; in messages of :attr:`Code.PDB`."""


class Code(enum.StrEnum):
    """Why a pod was not moved although a strategy prefers another place. Stable: users alert on them."""

    PROTECTED = "Protected"
    """A protection forbids it; the message names which."""
    NOT_RECREATED = "NotRecreated"
    """A protection, too: its controller is not known to recreate it once it is evicted."""
    CANNOT_SURGE = "CannotSurge"
    """A protection, too: a single replica that the policy lets move by a restart, and whose rollout would leave a gap."""
    JUST_SCALED = "JustScaled"
    """A protection, too: a HorizontalPodAutoscaler has just scaled its workload, or is scaling it (``protect.afterScaling``)."""
    GANG = "Gang"
    """A protection, too: it is a member of a gang, which is not moved in part (``protect.gangs``)."""
    RESIZE_DEFERRED = "ResizeDeferred"
    """A protection, too: it waits for room to be resized on its node, and its replacement would have its template's size."""
    NOT_SELECTED = "NotSelected"
    """The ``select`` of the strategy does not match it: it counts, but the strategy does not move it."""
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
    """The landing cannot be predicted (another scheduler, resource claims, an unreadable spec)."""
    LEAVING_NODE = "LeavingNode"
    """More than 5 % of the landings are on nodes marked for deletion."""
    AVOIDED_NODE = "AvoidedNode"
    """More than 5 % of the landings are on nodes that the policy's ``landings`` leaves out."""
    PDB = "PodDisruptionBudget"
    """A PodDisruptionBudget allows no disruption now."""
    PDB_CONFLICT = "TwoPodDisruptionBudgets"
    """More than one PodDisruptionBudget selects the pod: the API refuses every eviction of it."""
    BUDGET = "Budget"
    """A budget of the policy is used up; the message names which."""
    QUOTA = "Quota"
    """A ResourceQuota leaves no room for a replacement beside the terminating victim."""
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
    NOT_EXAMINED = "NotExamined"
    """Of a rule: planning ended before it was looked at."""


class Method(enum.StrEnum):
    """How a pod is moved."""

    EVICT = "evict"
    """The pod is evicted, and its controller creates another."""
    RESTART = "restart"
    """The rollout of its Deployment is restarted: the new pod is Ready before the old one goes."""


class Cause(enum.StrEnum):
    """What is wrong with a pod that a move is for."""

    PLACE = "place"
    """It runs where it should not."""
    AGE = "age"
    """It is to be replaced by a new one, wherever that lands."""
    STATE = "state"
    """Its state is bad; it need not be Ready to be evicted, and its replacement should be better."""
    ENDED = "ended"
    """It has ended; nothing replaces it, because its controller has made another, or is done."""


class NodeCode(enum.StrEnum):
    """What happens to a node where nodes are emptied. Stable: users alert on them."""

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
    """What happens to a node, and why."""

    code: NodeCode
    message: str
    """One sentence with numbers."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """How many nodes have pods, apart from pods that belong to their node."""

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
        """Return the entries in their order of comparison."""
        return self.hard, self.soft, self.imbalance


@dataclass(frozen=True, slots=True)
class Landing:
    """One place where the replacement may land."""

    node: str
    probability: float
    domains: Mapping[str, str]
    """Topology key -> value, for the keys that the move's terms look at."""


@dataclass(frozen=True, slots=True)
class Move:
    """One planned eviction, or restart, with what is expected of it."""

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
    """From 1."""
    budgets: tuple[str, ...] = ()
    """PodDisruptionBudgets (``namespace/name``) that count the eviction as a disruption: none or one."""
    observed: bool = False
    """Its strategy only observes: shown, never carried out."""

    makes_way_for: str = ""
    """Uid of the pod that can only go once this one has; empty for a move that pays by itself."""
    marks: tuple[str, ...] = ()
    """Nodes that carry a mark while the replacement is placed, in order; without them it would land elsewhere."""
    method: Method = Method.EVICT
    cause: Cause = Cause.PLACE

    @property
    def ref(self) -> str:
        """``namespace/pod``."""
        return f"{self.namespace}/{self.pod}"

    @property
    def has_replacement(self) -> bool:
        """Whether another pod comes in its place: one that has ended is only removed."""
        return self.cause is not Cause.ENDED


@dataclass(frozen=True, slots=True)
class Skip:
    """A pod for which some strategy prefers another place, and why it stays."""

    namespace: str
    pod: str
    node: str
    strategy: str
    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class Score:
    """What one strategy sees: its cost, in how many groups, and what no placement can fix."""

    cost: Cost
    violated: int
    """Groups (a constraint of a workload, a node) with something left to fix."""
    unsatisfiable: tuple[str, ...] = ()
    """Constraints that cannot be met, in words."""
    not_judged: tuple[str, ...] = ()
    """Why the strategy could not judge its rules, in words: what is not judged is never reported as fine."""
    nodes: NodeCount | None = None
    """Of a strategy that empties nodes."""


@dataclass(frozen=True, slots=True)
class UnmetRule:
    """A rule with something left to fix, and why it stays so."""

    strategy: str
    rule: str
    """In words, with its workload or node."""
    workload: str
    """``Kind/namespace/name``; empty for a rule of a node, or of several workloads."""
    codes: Mapping[str, int] = field(default_factory=dict)
    """Reason code -> how many pods stay for it, most first; a rule without such pods has one code of 0 pods."""
    why: str = ""
    """The reason of most of these pods, with numbers."""
    rules: int = 1
    """How many rules these are: each of the pods that are judged by themselves is one."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """An estimate of the moves that budgets and time leave to later runs."""

    moves: int = 0
    """Moves that are left to further runs."""
    runs: int = 0
    """How many further runs these take."""
    more: bool = False
    """Whether ``moves`` is only a lower bound."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the executor of a plan does not need: reasons, scores, bounds."""

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
    """Stage -> pods, in order: seen, movable, candidates, one entry per Code, moves."""
    unmet: tuple[UnmetRule, ...] = ()
    """The rules that stay unmet if every move lands where it most probably does: as many as ``after`` counts."""


class Later:
    """An explanation that is made when it is first asked for, so that evictions need not wait for it."""

    def __init__(
        self,
        make: Callable[[], Explanation],
        brief: Callable[[], Explanation] | None = None,
    ) -> None:
        """``make`` is called once at most, and forgotten then with all that it refers to.

        ``brief`` makes one without the parts that take long; None: there is none.
        """
        self._make: Callable[[], Explanation] | None = make
        self._brief = brief
        self._made: Explanation | None = None

    def make(self) -> Explanation:
        """Return the explanation."""
        if self._made is None and self._make is not None:
            self._made, self._make, self._brief = self._make(), None, None
        assert self._made is not None  # noqa: S101  # the one or the other
        return self._made

    def shorten(self) -> bool:
        """Make the brief explanation, for a run that has to end at once; return False if it is made already."""
        if self._made is not None or self._brief is None:
            return False
        self._made, self._make, self._brief = self._brief(), None, None
        return True

    def __eq__(self, other: object) -> bool:
        """Return whether both explain the same."""
        return isinstance(other, Later) and self.make() == other.make()

    __hash__ = None  # type: ignore[assignment]  # as all that holds a dict

    def __repr__(self) -> str:
        """Show what is explained."""
        return repr(self.make())


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do. The same for a dry run and a real one."""

    moves: tuple[Move, ...]
    explanation: Later
    warnings: tuple[str, ...] = ()
    """What the reader must know: misconfigured budgets, unreadable objects, a nearest version."""
    emptied: tuple[str, ...] | None = None
    """Nodes to mark until they are empty and as long as they stay empty; None: marks are left as they are."""
    empty_for: float = 0.0
    """Seconds for which these marks last."""
    nodes: Mapping[str, NodeVerdict] = field(default_factory=dict)
    """Node -> what happens to it, where a strategy empties nodes."""

    @property
    def skips(self) -> tuple[Skip, ...]:
        """See Explanation, as for all that follows."""
        return self.explanation.make().skips

    @property
    def before(self) -> Mapping[str, Score]:
        """Strategy -> score of the snapshot."""
        return self.explanation.make().before

    @property
    def after(self) -> Mapping[str, Score]:
        """Strategy -> score if every move lands where it most probably does."""
        return self.explanation.make().after

    @property
    def unmet(self) -> tuple[UnmetRule, ...]:
        """The rules that stay unmet."""
        return self.explanation.make().unmet

    @property
    def lower_bound(self) -> int | None:
        """Fewest moves; None: not computed."""
        return self.explanation.make().lower_bound

    @property
    def stopped(self) -> str:
        """Why the plan ends here."""
        return self.explanation.make().stopped

    @property
    def backlog(self) -> Backlog:
        """What is left to further runs."""
        return self.explanation.make().backlog

    @property
    def funnel(self) -> Mapping[str, int]:
        """Stage -> pods."""
        return self.explanation.make().funnel
