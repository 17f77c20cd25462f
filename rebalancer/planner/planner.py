"""Makes the plan: scores, moves, reasons for what stays, bound. Same input, same plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from rebalancer.cost.bound import EntryBounds, bounds_of, lower_bound
from rebalancer.cost.guards import guard_term
from rebalancer.cost.signals import Signals
from rebalancer.cost.term import Noting, Signalling, Term, Unjudged, View
from rebalancer.plan.plan import Backlog, Code, Cost, Landing, Move, Plan, Score, Skip
from rebalancer.planner.allowance import Allowance, blocked_pods
from rebalancer.planner.eviction_cost import eviction_cost
from rebalancer.planner.judge import Weighted
from rebalancer.planner.pool import Pair
from rebalancer.planner.safety import lost_pods, not_judged
from rebalancer.planner.search import Chosen, Refusal, Search, Stop, move_in_state, never
from rebalancer.planner.settings import Settings
from rebalancer.planner.staying import Staying
from rebalancer.planner.stopping import stopped
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.prediction import Prediction, takers_text
from rebalancer.snapshot.columns import Floats, Int32s
from rebalancer.snapshot.labels import ZONE_KEYS
from rebalancer.snapshot.model import PodClass, Snapshot
from rebalancer.snapshot.protect import COOL_DOWN
from rebalancer.snapshot.state import ClusterState

# A landing distribution above 100 nodes has hundreds of places; so many are kept for people.
_SHOWN_LANDINGS = 20


@dataclass(frozen=True, slots=True)
class Contribution:
    """One strategy's share in a plan: makes its terms once the view exists."""

    strategy: str
    weight: float
    observed: bool
    terms: Callable[[View], Sequence[Term]]
    signals: Signals | None = None
    """What it has seen in earlier runs, see ``View.signals``."""


class Onlooker(Protocol):
    """Sees a planner before and after the moves of its plan; asks, and changes nothing."""

    def before(self, planner: Planner) -> None:
        """Look at the terms while the state is the snapshot's."""

    def after(self, planner: Planner) -> None:
        """Look at them while the state holds the plan's moves, those that only show among them."""


class Planner:
    """Plans on one snapshot. ``plan`` may be called once; the view shows the planned state after it."""

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler: SchedulerModel,
        contributions: Sequence[Contribution],
        settings: Settings,
        protected: Int32s,
    ) -> None:
        self._snapshot, self.settings, self.protected = snapshot, settings, protected
        self._allowance = Allowance(snapshot, settings, int(np.count_nonzero(protected == 0)))
        self._blocked = blocked_pods(snapshot, self._allowance)
        movable = ((protected & ~COOL_DOWN) == 0) & (self._blocked == 0)
        self.view = View(snapshot, ClusterState(snapshot), scheduler, movable)
        self._cost = eviction_cost(snapshot)
        self._contributions = contributions
        self._domains: dict[tuple[int, tuple[str, ...]], Mapping[str, str]] = {}
        self._terms = [
            (contribution, Weighted(contribution.strategy, term, contribution.weight))
            for contribution in contributions
            for term in contribution.terms(replace(self.view, signals=contribution.signals))
        ]
        self.staying = Staying(
            self.view,
            [weighted for _, weighted in self._terms],
            self._allowance,
            protected,
            settings.cooling,
        )
        self._chosen: list[Chosen] = []
        self._unjudged = not_judged(snapshot)

    def weighted_terms(self) -> list[Weighted]:
        """Return the terms of the enforcing strategies."""
        return [weighted for contribution, weighted in self._terms if not contribution.observed]

    def all_terms(self) -> list[tuple[Weighted, bool]]:
        """Return the terms of all strategies, each with whether its strategy only observes."""
        return [(weighted, contribution.observed) for contribution, weighted in self._terms]

    def pods_by_uid(self, uids: Sequence[str]) -> dict[str, int]:
        """Return the index of each pod that the snapshot has among ``uids``."""
        column = self._snapshot.pods.uid
        return {column[pod]: pod for pod in column.rows_of(set(uids)).tolist()}

    @property
    def allowance(self) -> Allowance:
        """What may still be evicted; :meth:`plan` uses it up."""
        return self._allowance

    @property
    def observing(self) -> set[str]:
        """The strategies whose moves are not to be carried out: they only observe, or their window is closed."""
        return {c.strategy for c in self._contributions if c.observed}

    @property
    def costs(self) -> Floats:
        """What it costs to evict each pod (P,)."""
        return self._cost

    def is_wished(self, cls: int, node: int) -> bool:
        """Tell whether some term would still rather see pods of ``cls`` off ``node``."""
        of_class = np.array([cls], np.int32)
        rows = [weighted.term.candidates(of_class) for weighted in self.weighted_terms()]
        return any(bool((found.node == node).any()) for found in rows)

    def signals(self) -> dict[str, Signals]:
        """Return what each strategy has seen for how many runs in a row, this one included."""
        found: dict[str, Signals] = {}
        for contribution, weighted in self._terms:
            term, name = weighted.term, contribution.strategy
            if isinstance(term, Signalling) and (seen := term.signals()) is not None:
                found[name] = found[name].joined(seen) if name in found else seen
        return found

    def size(self) -> dict[str, int]:
        """Return how many pods there are, and how many of them may move."""
        movable = int(np.count_nonzero(self.view.movable))
        return {"pods": len(self._snapshot.pods), "movable": movable}

    def commit(self, pod: int, cls: int, prediction: Prediction) -> None:
        """Carry a move out in the state: the pod leaves, its replacement stands where it most probably lands."""
        move_in_state(self.view, pod, cls, prediction)

    def plan(self, onlooker: Onlooker | None = None, stop: Stop = never) -> Plan:
        """Return the plan; the same whether or not anybody looks on. ``stop`` may end it early."""
        if onlooker is not None:
            onlooker.before(self)
        before = self.scores()
        bounds = self.bounds()
        most = _SHOWN_LANDINGS if onlooker is None else None
        self._chosen, refusals, pairs, held_back = self._search(stop, most)
        chosen = self._chosen
        after = self.scores()
        if onlooker is not None:
            onlooker.after(self)
        skips = self.staying.skips(refusals, pairs)
        moves = tuple(self._move(move) for move in chosen)
        funnel = self._funnel(skips, moves)
        left = self.bounds()
        waiting = {cls for cls, _ in held_back}
        rest = self._rest(left, waiting)
        # What waits for a further run is still to be mended; the others have been tried.
        tried = [bound for bound in left if waiting.isdisjoint(bound[1].classes.tolist())]
        bound = lower_bound(bounds, tried)
        return Plan(
            moves=moves,
            skips=tuple(skips),
            before=before,
            after=after,
            lower_bound=min(bound, len(moves) + rest.moves) if rest.moves else bound,
            stopped=stopped(moves, skips, after, rest, self._allowance.stopped),
            backlog=rest,
            funnel=funnel,
            warnings=tuple(self.warnings()),
        )

    def bounds(self) -> list[EntryBounds]:
        """Return what the lower bound is made of, for the state as it is."""
        return bounds_of((weighted.term, weighted.weight) for _, weighted in self._terms)

    def _search(
        self, stop: Stop, most_landings: int | None
    ) -> tuple[list[Chosen], dict[Pair, Refusal], set[Pair], set[Pair]]:
        """Plan with the enforcing strategies first, then what the observing ones would add."""
        guard = guard_term(self.view)
        chosen: list[Chosen] = []
        refusals: dict[Pair, Refusal] = {}
        pairs: set[Pair] = set()
        waiting: set[Pair] = set()
        for observed in (False, True):
            terms = [w for c, w in self._terms if observed or not c.observed]
            if observed and not any(c.observed for c in self._contributions):
                continue
            search = Search(
                self.view,
                terms,
                guard,
                self.settings,
                self._allowance,
                self._cost,
                stop,
                most_landings,
            )
            wave = chosen[-1].wave + 1 if chosen else 1
            chosen += search.run(wave, observed=observed)
            refusals = {**search.refusals}
            pairs |= search.candidates.seen
            if not observed:
                waiting = search.waiting
        return chosen, refusals, pairs, waiting

    def _rest(self, left: Sequence[EntryBounds], waiting: set[int]) -> Backlog:
        """Return how much is left for further runs, at least, of the classes that limits of this one keep back."""
        if not waiting:
            return Backlog()
        kept_back = [b for b in left if not waiting.isdisjoint(b[1].classes.tolist())]
        moves = max(1, lower_bound(kept_back, ()))
        return Backlog(moves, -(-moves // max(1, self._in_one_run())), more=True)

    def _in_one_run(self) -> int:
        """Return how many moves a further run makes: what budgets allow, or what fits into its time."""
        in_time = len(self._chosen) if self._allowance.short_of_time else len(self._snapshot.pods)
        return max(1, min(self._allowance.per_run, in_time))

    def scores(self) -> dict[str, Score]:
        """Return strategy -> what it sees in the state as it is."""
        scores: dict[str, Score] = {}
        for contribution in self._contributions:
            entries = [0.0, 0.0, 0.0]
            violated, unsatisfiable = 0, list[str]()
            unjudged = list(self._unjudged)
            for weighted in (w for c, w in self._terms if c is contribution):
                entries[weighted.term.entry] += weighted.weight * weighted.term.potential()
                violated += weighted.term.violated()
                unsatisfiable += weighted.term.unsatisfiable()
                if isinstance(weighted.term, Unjudged) and (why := weighted.term.not_judged()):
                    unjudged.append(why)
            scores[contribution.strategy] = Score(
                cost_of_entries(entries), violated, tuple(unsatisfiable), tuple(unjudged)
            )
        return scores

    # -- moves -------------------------------------------------------------------------------------

    def _move(self, chosen: Chosen) -> Move:
        snapshot = self._snapshot
        of_class = snapshot.classes[chosen.cls]
        return Move(
            namespace=of_class.namespace,
            pod=snapshot.pods.name[chosen.pod],
            uid=snapshot.pods.uid[chosen.pod],
            owner=snapshot.owners[of_class.owner].ref,
            node=snapshot.nodes.names[chosen.node],
            landings=self.landings(chosen.cls, chosen.landings),
            strategy=chosen.strategy,
            reason="; ".join(filter(None, (chosen.reason, takers_text(snapshot, chosen.landings)))),
            gain=cost_of_entries(chosen.gain),
            cost=round(float(self._cost[chosen.pod]), 6),
            wave=chosen.wave,
            budgets=tuple(snapshot.budgets[b].ref for b in self._allowance.budgets_of(chosen.cls)),
            observed=chosen.observed,
            makes_way_for=snapshot.pods.uid[chosen.makes_way_for]
            if chosen.makes_way_for >= 0
            else "",
        )

    def landings(self, cls: int, prediction: Prediction) -> tuple[Landing, ...]:
        """Return where the replacement of a pod of ``cls`` may land, for the report."""
        snapshot = self._snapshot
        keys = _topology_keys(snapshot.classes[cls])
        landings: list[Landing] = []
        for node, probability in zip(
            prediction.nodes[:_SHOWN_LANDINGS].tolist(),
            prediction.probability[:_SHOWN_LANDINGS].tolist(),
            strict=True,
        ):
            domains = self._domains_of(node, keys)
            landings.append(Landing(snapshot.nodes.names[node], round(probability, 6), domains))
        return tuple(landings)

    def arriving(self, node: int) -> dict[int, float]:
        """Return place in the plan -> probability of each move that may land on ``node``.

        ``Move.landings`` names the most probable places only. Of a plan that was made with an onlooker.
        """
        found: dict[int, float] = {}
        for place, move in enumerate(self._chosen):
            landings = move.landings
            share = float(landings.probability[landings.nodes == node].sum())
            if share > 0:
                found[place] = share
        return found

    def _domains_of(self, node: int, keys: tuple[str, ...]) -> Mapping[str, str]:
        """Return the values of a node's labels, one object for all landings there: thousands may be shown."""
        found = self._domains.get((node, keys))
        if found is None:
            labels = self._snapshot.nodes.labels
            values = {key: int(labels.column(key)[node]) for key in keys}
            found = {key: labels.values(key)[value] for key, value in values.items() if value >= 0}
            self._domains[node, keys] = found
        return found

    def _funnel(self, skips: Sequence[Skip], moves: Sequence[Move]) -> dict[str, int]:
        codes = Counter(skip.code.value for skip in skips)
        candidates = len(skips) + len(moves)
        return {
            **self.size(),
            "candidates": candidates,
            **{code.value: codes[code.value] for code in Code if codes[code.value]},
            "moves": len(moves),
        }

    def warnings(self) -> list[str]:
        """Return what the reader of a plan must know."""
        snapshot = self._snapshot
        warnings = [
            f"{weighted.strategy}: {note}"
            for _, weighted in self._terms
            if isinstance(weighted.term, Noting)
            for note in weighted.term.notes()
        ]
        conflicts = sorted(
            {
                text
                for cls in np.unique(snapshot.pods.cls).tolist()
                if (found := self._allowance.forbidden(cls)) and found[0] is Code.PDB_CONFLICT
                for text in [f"misconfigured: {found[1]} (pods of {self._owner_ref(cls)})"]
            }
        )
        warnings += conflicts
        warnings += [
            f"node {snapshot.nodes.names[n]} is unreadable ({why}): taken as without room"
            for n, why in sorted(snapshot.nodes.unreadable.items())
        ]
        unreadable = {
            f"pods of {self._owner_ref(index)} are unreadable ({cls.unreadable}): not moved"
            for index, cls in enumerate(snapshot.classes)
            if cls.unreadable is not None
        }
        warnings += sorted(unreadable)
        if lost := lost_pods(snapshot):
            warnings.append(f"{lost} (they count nowhere, and stay)")
        if note := self.view.scheduler.profile.note:
            warnings.append(note)
        if snapshot.missing:
            warnings.append(f"not in the snapshot: {', '.join(snapshot.missing)}")
        return warnings

    def _owner_ref(self, cls: int) -> str:
        owner = self._snapshot.classes[cls].owner
        return self._snapshot.owners[owner].ref if owner >= 0 else "no controller"


def cost_of_entries(entries: Sequence[float]) -> Cost:
    """Return a Cost rounded for people and for equal bytes; never -0.0."""
    return Cost(*(round(entry, 9) + 0.0 for entry in entries))


def _topology_keys(of_class: PodClass) -> tuple[str, ...]:
    spec = of_class.spec
    keys = [c.topology_key for c in spec.topology_spread_constraints or ()]
    affinity = spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is not None:
            keys += [t.topology_key for t in part.required or ()]
            keys += [t.pod_affinity_term.topology_key for t in part.preferred or ()]
    return tuple(sorted({*keys, *ZONE_KEYS} - {"kubernetes.io/hostname"}))
