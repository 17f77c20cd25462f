"""Why a pod is not moved: a code with the numbers. One table has the sentences, which are made only for what is shown.

The code that judges a move returns a :class:`Refusal`: one row of the table :class:`Why`, and the facts that its sentence names.
"""

from __future__ import annotations

import string
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from rebalancer.base.plain_text import count
from rebalancer.cost.term import Entry
from rebalancer.plan.plan import NEVER_ALLOWS, Code
from rebalancer.scheduler.prediction import Prediction, takers_text
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.protect import (
    CANNOT_SURGE,
    GANG,
    JUST_SCALED,
    NOT_RECREATED,
    RESIZE_DEFERRED,
    ROLLOUT,
    sentence_of,
)

_LANDINGS = 2
"""So many landings are named in a sentence."""


class Why(Enum):
    """The table: the code of each reason, and its sentence with the names of its facts.

    Without a code it has that of the refusal that it is about (the fact ``why``), or that of its fact ``code``, or none.
    """

    # fmt: off
    # -- the move of one pod
    UNPREDICTED = Code.UNPREDICTED, "not predictable: {parts:list}"
    NO_NODE = Code.NO_ROOM, "no node takes its replacement{landing:takers}{zone:after}"
    COMES_BACK = Code.COMES_BACK, "the scheduler would put it back ({landing:landing})"
    MAY_COME_BACK = Code.COMES_BACK, "the scheduler might put it back ({landing:landing})"
    NOTHING_BETTER = Code.NO_GAIN, "would land on {landing:landing}: nothing gets better there"
    TRADE = Code.NO_GAIN, "would land on {landing:landing}: better for {better:shares}, worse for {worse:shares}"
    BREAKS_HARD = Code.NO_GAIN, "would land on {landing:landing}: a hard rule that holds would break"
    BREAKS_RULE = Code.NO_GAIN, "would land on {landing:landing}: a rule that holds would break"
    RARELY_BETTER = Code.UNSURE, "better in {share:.0%} of its landings, the policy asks for {least:.0%} ({landing:landing})"
    OFTEN_WORSE = Code.UNSURE, "worse in {share:.0%} of its landings, the policy allows {most:.0%} ({landing:landing})"
    LOW_GAIN = Code.LOW_GAIN, "gain {gain:.3g} at cost {cost:.3g}, the policy asks for {least:g} (would land on {landing:landing})"
    NONE_EXPECTED = Code.LOW_GAIN, "would land on {landing:landing}: no gain is expected"
    LOW_PROMISE = Code.LOW_GAIN, "gain at most {gain:.3g} at cost {cost:.3g} wherever it lands, the policy asks for {least:g}"
    OVERLOAD_MOVES = Code.OVERLOAD_MOVES, "would land on {landing:landing}: that only moves the overload"
    OTHER_OS = Code.OTHER_OS, "{share:.0%} of its landings are on nodes of another operating system ({landing:landing})"
    OTHER_ARCHITECTURE = Code.AVOIDED_NODE, "{share:.0%} of its landings are on nodes of another architecture than its Ready pods ({landing:landing})"
    LEAVING_NODE = Code.LEAVING_NODE, "{share:.0%} of its landings are on nodes about to go"
    AVOIDED_NODE = Code.AVOIDED_NODE, "{share:.0%} of its landings are on nodes that landings leaves out ({landing:landing})"
    UNREADY = Code.PROTECTED, "ownerUnsettled: it is not Ready itself, and its move would not fix that"
    NO_MARKS = None, "{why:sentence}; no marks would change that"

    # -- limits, protections, selects
    BUDGET = Code.BUDGET, "{limit}"
    QUOTA = Code.QUOTA, "{limit}"
    PROTECTED = None, "{texts:protections}"
    COOLS_DOWN = Code.PROTECTED, "coolDown: {until}"
    NOT_SELECTED = Code.NOT_SELECTED, "the select of {strategy} does not match it"
    ZONE_CLOSED = Code.ZONE_CLOSED, "{zone}"
    TOO_FEW_RUNS = Code.TOO_FEW_RUNS, "{measured}"
    PDB = Code.PDB, "{budget} allows no disruption ({healthy} healthy, {desired} desired)"
    PDB_SERVING = Code.PDB, "{budget} allows no disruption outside of closed zone {zones:and}: {idle} of {healthy} healthy pods are there and may not serve ({desired} desired)"
    PDB_STALE = Code.PDB, "{budget} allows no disruption until its controller has seen it: {stale}"
    PDB_NEVER = Code.PDB, f"{{budget}} {NEVER_ALLOWS}: of {{expected}} pods {{desired}} have to be healthy{{restart}}"
    PDB_CONFLICT = Code.PDB_CONFLICT, "{budgets:and} both select it; the API refuses that"

    # -- pods that leave together
    OF_POD = None, "{pod:pod}: {why:sentence}"
    PDB_AT_ONCE = Code.PDB, "{budget} {allows}; {pods:pods} would go at once"
    UNIT_STAYS = None, "{unit} stays as a whole: {why:sentence}"
    GANG_BREAKS_HARD = Code.NO_GAIN, "a hard rule of other pods would break where its gang would land"
    GANG_BREAKS_RULE = Code.NO_GAIN, "a rule that holds would break where its gang would land"
    GANG_WITHOUT_NODE = Code.NO_ROOM, "no node takes its replacement once all of its gang are gone"
    LEADER_UNSURE = Code.UNPREDICTED, "not predictable: it may land in each {key} of {domains}, and its controller has the others of {gang} follow it"
    FEEDS_OTHERS = Code.NO_ROOM, "pending {pod:pod} would take the room that is left"
    ON_CLOSED_NODE = Code.LEAVING_NODE, "would land on {node:node}, which is to be empty, too"
    ROLLOUT_STALLS = Code.NO_ROOM, "its rollout might never end: no node takes the new pod {number} of {of} while {old} still run"
    GANG_GAINS_NOTHING = Code.NO_GAIN, "nothing that a gang is moved for gets better where all of it would land"
    GANG_LOW_GAIN = Code.LOW_GAIN, "gain {gain:.3g} at cost {cost:.3g} for all of it, the policy asks for {least:g}"
    GANG_NOT_SELECTED = Code.NOT_SELECTED, "the select of the strategy does not match all of its pods"
    SELECT_WITHOUT_POD = Code.NOT_SELECTED, "the select of {strategy} does not match {pod:pod}"
    POD_NOT_SELECTED = Code.NOT_SELECTED, "no strategy selects {pod:pod}"
    POD_PROTECTED = Code.PROTECTED, "{pod:pod} is protected: {texts:protections}"
    TAKES_TOO_LONG = Code.NOT_EXAMINED, "whether it has a landing elsewhere takes too long to say in one run"
    JOB_NOT_READ = Code.GANG, "its Job {job} was not read: how many failed pods it allows is not known"
    JOB_FAILS = Code.GANG, "its Job {job} would fail: it {allows}; {pods:pods} would be evicted at once"
    TOO_FEW_EXIST = Code.GANG, "{there} of {pods:pods} of {what} exist: it is not whole now"
    STARTS_OR_ENDS = Code.GANG, "{pods:pods} of it {are} starting or ending: it is not whole now"
    RESTARTS = Code.WHOLE_ROLLOUT, "{pod:pod} moves by a restart of its rollout, which is not sent together with evictions"
    MOVES_ALREADY = Code.MOVED_NOW, "it moves already in this plan"

    LANDS_BEFORE = None, "{pod:pod} would land before the other pod has left its room"
    MAY_MISS = Code.UNSURE, "{pod:pod} might not land where the other pod leaves room ({landing:landing})"

    # -- planned moves that are judged again
    WITH_CODE = None, "{why:code}: {why:sentence}"
    GONE = None, "{who} is gone"
    PROTECTED_NOW = Code.PROTECTED, "{who} is protected now: {names:list}"
    NOT_KEPT_TOGETHER = None, "its pods are not kept together any more: left to the next run"
    TORN = None, "the plan does not move its pods one right after the other in one wave"
    OTHER_METHOD = None, "planned as {planned}, it would be {now} now"
    OTHER_PODS = None, "other pods of it would go than planned"
    FROM_NODE = None, "the pod is on another node now"
    ROOM_IS_WANTED = None, "left to the next run: a move before it that fixes a rule could not go as planned, and may need the room"
    LIMIT_NOW = Code.BUDGET, "left to the next run: {limit}, with what else is in flight now"
    FLAGS_LEAVE_OUT = Code.PROTECTED, "{text}"
    NOW_PROTECTED = Code.PROTECTED, "protected now: {names:list}"
    METHOD_CHANGED = None, "planned as {planned}, it would be {now} now: left to the next run"
    FIXES_LESS = Code.NO_GAIN, "it would fix less than planned where it would land now: left to the next run"
    NOT_SELECTED_NOW = Code.NOT_SELECTED, "no strategy selects it now"
    NOT_ASKED_NOW = Code.NO_GAIN, "{strategy} asks for no move off {node} any more"
    SECOND_NOT_SELECTED = Code.NOT_SELECTED, "no strategy selects it and the pod that it goes first for"
    SECOND_STUCK = Code.NO_GAIN, "the pod that it goes first for could not go even then"
    SECOND_MAY_STAY = None, "the pod that it goes first for may stay"
    SECOND_GOES_ALONE = None, "the pod that it goes first for can go by itself"
    WAITING_HAS_NODE = None, "the pod that it makes room for has its node"
    WAITING_WOULD_NOT_FIT = None, "the pod that it makes room for would not fit even then"
    STAYS_OUTSIDE = None, "the pod that it makes room for would stay outside: {why:sentence}"
    NO_ROOM_MADE = None, "no room would be made: {why:sentence}"
    OFTEN_BACK = Code.COMES_BACK, "the scheduler might put it back"

    # -- room for pods that wait
    WOULD_LEAVE = None, "{who} would have to leave: {why:sentence}"
    NO_ORDER = Code.NO_ROOM, "its moves have no order in which each lands"
    ROOM_TAKEN = Code.NO_ROOM, "another pod that waits would take the room"
    DISTURBS = Code.UNSURE, "it might land where others need the place"
    RIVAL = Code.UNSURE, "{pod:pod} may take its place first"
    NOT_LOOKED_AT = Code.NOT_EXAMINED, "planning ended before it was looked at"
    GANG_OUTSIDE = None, "{pods:pods} of {gang} would stay outside: {pod:pod}: {why:sentence}"
    NO_NODE_EVER = Code.UNSATISFIABLE, "no node would take it, were it empty{scheduler:after}"
    SHORT_OF_ALL = Code.UNSATISFIABLE, "all nodes together have {free} free, it asks for {asked}{nearest}"
    ALL_WAYS_TRIED = Code.NO_ROOM, "no moves let it in: {tried} at most were tried, and all ways of them{nearest}"
    NO_TIME = Code.NO_ROOM, "no way was found in the time of one plan; it takes {fewest} moves at least{nearest}"
    SHORT_WERE_ALL_GONE = Code.UNSATISFIABLE, "short by least on {node:node}, were all pods gone: {short}"
    SHORT_WITHOUT_MOVABLE = None, "short by least on {node:node}, were all gone that may leave: {short}; {number} of its pods stay: {stays}{more}"
    HELD = None, "{text}"
    STARTING = Code.MACHINE_COMES, "{name} takes it once it is ready for pods"
    NOT_WHOLE = Code.GANG, "{gang}: {why:sentence}"
    NOMINATED = Code.GANG, "the scheduler makes room for it on {node} by preemption"
    NOT_REFUSED_YET = Code.GANG, "the scheduler has not refused it yet"
    WAITS_TOO_SHORT = Code.GANG, "it has not waited long enough for {strategy} yet"
    HIGHER_PRIORITY = Code.PROTECTED, "of a higher priority than the pod that waits"
    WAITS_ITSELF = Code.PROTECTED, "it waits itself"
    # fmt: on

    @property
    def code(self) -> Code | None:
        """The reason code; None if the facts of the refusal decide which code it is."""
        return self.value[0]

    @property
    def sentence(self) -> str:
        """The sentence, with the facts in braces; after a colon comes the format of a fact, see ``_Sentence``."""
        return self.value[1]


class ShownRefusal(NamedTuple):
    """A refusal as it is shown."""

    code: Code
    message: str
    holders: tuple[str, ...] = ()
    """Names of the protections, or of the PodDisruptionBudget, that keep it in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """Why a pod, a gang or a move is refused: the reason, and the facts that its sentence names."""

    why: Why
    facts: Mapping[str, Any]

    @staticmethod
    def of(why: Why, /, **facts: Any) -> Refusal:
        """Return a refusal with these facts: numbers, names, rows of the snapshot, predictions, other refusals."""
        return Refusal(why, facts)

    @property
    def code(self) -> Code | None:
        """The reason code; None if there is none, as for a pod that is gone."""
        if self.why.code is not None:
            return self.why.code
        about = self.facts.get("why")
        return about.code if isinstance(about, Refusal) else self.facts.get("code")

    def text(self, snapshot: Snapshot) -> str:
        """Return the sentence; ``snapshot`` has the names for the numbers in the facts."""
        return _Sentence(snapshot).format(self.why.sentence, **self.facts)

    def shown(self, snapshot: Snapshot) -> ShownRefusal:
        """Return the code and the sentence of a pod that is not moved.

        Raises:
            ValueError: it has no code.
        """
        if self.code is None:
            raise ValueError(f"{self.why.name} has no code")
        return ShownRefusal(self.code, self.text(snapshot), self.holders)

    @property
    def holders(self) -> tuple[str, ...]:
        """The names of the protections, or of the PodDisruptionBudget, that keep a pod in place: see ``Skip.holders``."""
        match self.why:
            case Why.PROTECTED:
                return tuple(self.facts["texts"])
            case Why.UNREADY:
                return ("ownerUnsettled",)
            case Why.COOLS_DOWN:
                return ("coolDown",)
            case Why.PDB_NEVER:
                return (self.facts["budget"],)
        about = self.facts.get("why")
        return about.holders if isinstance(about, Refusal) else ()


def protection_code(names: Container[str]) -> Code:
    """Return the reason code for a pod with these protections."""
    return next((code for name, code in _OF_PROTECTION.items() if name in names), Code.PROTECTED)


_OF_PROTECTION = {
    NOT_RECREATED: Code.NOT_RECREATED,
    GANG: Code.GANG,
    ROLLOUT: Code.WHOLE_ROLLOUT,
    CANNOT_SURGE: Code.CANNOT_SURGE,
    JUST_SCALED: Code.JUST_SCALED,
    RESIZE_DEFERRED: Code.RESIZE_DEFERRED,
}
"""Protection with a code of its own -> that code; the first one that applies decides the pod's code."""


class _Sentence(string.Formatter):
    """Writes facts into a sentence. A number has Python's format, everything else a word."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def format_field(self, value: Any, format_spec: str) -> str:
        write = getattr(self, f"write_{format_spec}", None)
        return str(super().format_field(value, format_spec) if write is None else write(value))

    def write_landing(self, value: Prediction) -> str:
        """Return the most probable nodes, and the pending pods that take room meanwhile."""
        names = self._snapshot.nodes.names
        most = list(zip(value.nodes.tolist(), value.probability.tolist(), strict=True))[:_LANDINGS]
        where = ", ".join(f"{names[node]} {share:.0%}" for node, share in most)
        where += f" and {more} more" if (more := len(value.nodes) - len(most)) else ""
        fed = takers_text(self._snapshot, value)
        return f"{where}, while {fed}" if fed else where

    def write_takers(self, value: Prediction) -> str:
        """Return the pending pods that take room, after a colon; empty if none does."""
        return self.write_after(takers_text(self._snapshot, value))

    @staticmethod
    def write_after(value: str) -> str:
        """Return a text after a colon; empty if there is none."""
        return f": {value}" if value else ""

    @staticmethod
    def write_list(value: Sequence[str]) -> str:
        return ", ".join(value)

    @staticmethod
    def write_and(value: Sequence[str]) -> str:
        return " and ".join(value)

    @staticmethod
    def write_shares(value: Sequence[tuple[str, int, float]]) -> str:
        """Return strategies with their amounts in an entry of the cost."""
        return ", ".join(
            f"{strategy} ({amount:.3g} {Entry(entry).name.lower()})"
            for strategy, entry, amount in value
        )

    @staticmethod
    def write_protections(value: Mapping[str, str]) -> str:
        return sentence_of(value)

    def write_sentence(self, value: Refusal) -> str:
        return value.text(self._snapshot)

    @staticmethod
    def write_code(value: Refusal) -> str:
        return str(value.code)

    def write_pod(self, value: int) -> str:
        return self._snapshot.pod_ref(value)

    def write_node(self, value: int) -> str:
        return self._snapshot.nodes.names[value]

    @staticmethod
    def write_pods(value: int) -> str:
        return count(value, "pod")
