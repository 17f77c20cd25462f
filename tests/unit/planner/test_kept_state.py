"""What is kept while pods move equals what is made afresh, over the whole state, after every move of a plan."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.cost.guards import guard_term
from rebalancer.planner.candidates import CandidateRows
from rebalancer.planner.draft import Draft
from rebalancer.planner.effort import Effort
from rebalancer.planner.judge import Judge
from rebalancer.planner.plan import Callbacks, plan
from rebalancer.planner.search import _Pass
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.values import Limit
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.scheduler.profile import SchedulerProfile
from tests.unit.planner.conftest import Last, problem_of
from tests.unit.planner.test_judged_together import Sampling, drifted


def sums_by_hand(state):
    """What nodes hold, pod by pod: requested, requested lastingly, and the pods of each."""
    snapshot = state.snapshot
    used = np.zeros_like(state.used)
    count = np.zeros_like(state.pod_count)
    for node, cls in zip(state.node_of.tolist(), state.cls_of.tolist(), strict=True):
        if node >= 0:
            used[:, node] += snapshot.requests[:, cls]
            count[node] += 1
    lasting, lasting_count = used.copy(), count.copy()
    for gone in state.terminating_pods:
        used[:, gone.node] += snapshot.requests[:, gone.cls]
        count[gone.node] += 1
    return used, count, lasting, lasting_count


def counts_by_hand(state, cls):
    """Pods of a class on each node, those that terminate not counted."""
    here = (state.cls_of == cls) & (state.node_of >= 0)
    return np.bincount(state.node_of[here], minlength=len(state.snapshot.nodes))


def check_state(state):
    for kept, made in zip(
        (state.used, state.pod_count, state.lasting, state.lasting_count),
        sums_by_hand(state),
        strict=True,
    ):
        np.testing.assert_array_equal(kept, made)
    for cls in range(len(state.snapshot.classes)):
        expected = counts_by_hand(state, cls)
        one = np.array([cls], np.int32)
        np.testing.assert_array_equal(state.counts(one), expected)


def check_scheduler(draft):
    """Predictions of pods that have not moved."""
    fresh = SchedulerModel(draft.snapshot, draft.scheduler.profile)
    for pod in draft.state.unmoved().tolist()[::3]:
        kept, made = (m.predict_replacement(draft.state, pod) for m in (draft.scheduler, fresh))
        assert kept.nodes.tolist() == made.nodes.tolist()
        assert kept.probability.tolist() == made.probability.tolist()


def check_terms(draft, moves):
    """Potentials, violations and candidates of each term, against terms that have seen no move happen."""
    fresh = Draft(draft.problem, draft.settings)
    for move in moves:
        if move is None:
            fresh.state.reap()
        else:
            fresh.move(*move)
    for kept, made in zip(draft.terms, fresh.terms, strict=True):
        assert abs(kept.term.potential() - made.term.potential()) < 1e-9
        assert kept.term.violated() == made.term.violated()
        rows = [named(weighted.term.candidates()) for weighted in (kept, made)]
        assert rows[0].keys() == rows[1].keys()
        assert all(abs(rows[0][pair] - rows[1][pair]) < 1e-9 for pair in rows[0])


def named(rows):
    return dict(
        zip(
            zip(rows.cls.tolist(), rows.node.tolist(), strict=True), rows.gain.tolist(), strict=True
        )
    )


def check_candidates(candidates, draft):
    """What rules promise; balance is asked about when it is a pair's turn."""
    judge = Judge(draft.view, draft.enforced, guard_term(draft.view), draft.settings.threshold)
    afresh = CandidateRows(draft, draft.enforced, judge, Effort())
    kept, fresh = ({one.pair: one for one in of.promises()} for of in (candidates, afresh))
    for pair in {*kept, *fresh}:
        if candidates._stale[pair[0]]:
            continue
        of_rules = [of[pair].promised[:2] if pair in of else (0.0, 0.0) for of in (kept, fresh)]
        np.testing.assert_allclose(of_rules[0], of_rules[1], atol=1e-9)
        if any(of_rules[0]):
            assert kept[pair].pod == fresh[pair].pod


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([1, 3, 50]))
def test_after_every_move_what_is_kept_is_what_would_be_made_afresh(
    monkeypatch, seed, sampled, flight
):
    moves: list[Any] = []
    move, next_wave = Draft.move, _Pass._moves_of

    def moved(self, pod, cls, prediction, lands=0):
        move(self, pod, cls, prediction, lands)
        moves.append((pod, cls, prediction, lands))
        check_state(self.state)
        check_scheduler(self)

    def checked_wave(self, wave):
        before = len(moves)
        of_wave = next_wave(self, wave)
        if len(moves) > before:
            draft = self._draft
            moves.append(None)
            replayed = list(moves)
            with monkeypatch.context() as plain:
                plain.setattr(Draft, "move", move)
                check_terms(draft, replayed)
            check_candidates(self.candidates, draft)
        return of_wave

    profile = (Sampling if sampled else SchedulerProfile).for_version((1, 36))
    budgets = Budgets(in_flight=Limit.parse(flight), per_run=Limit.parse("100%"))
    with monkeypatch.context() as patched:
        patched.setattr(Draft, "move", moved)
        patched.setattr(_Pass, "_moves_of", checked_wave)
        made = plan(
            problem_of(drifted(seed), profile=profile), Settings(budgets=budgets), Callbacks()
        )
    assert len([m for m in moves if m is not None]) == len(made.plan.moves)


class Inverting(Last):
    """Keeps the draft of a plan, which can take back all that was moved."""

    def before(self, draft):
        super().before(draft)
        draft.state.keep_inverses()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_a_draft_that_begins_again_is_like_a_new_one(seed, times):
    """Also after a part of its moves was made once more, with room reserved and a victim that terminates still."""
    problem, last = problem_of(drifted(seed)), Inverting()
    plan(problem, Settings(), Callbacks(observe=lambda: last))
    draft = last.draft
    for time in range(times):
        draft.begin_again()
        assert draft.state.terminating_pods == []
        check_state(draft.state)
        check_scheduler(draft)
        check_terms(draft, [])
        assert draft.state.node_of.tolist() == draft.snapshot.pods.node.tolist()
        assert draft.state.cls_of.tolist() == draft.snapshot.pods.cls.tolist()
        home = np.flatnonzero(draft.snapshot.pods.node >= 0).tolist()
        assert sorted(draft.state.unmoved().tolist()) == home
        for chosen in last.chosen[time::2]:
            draft.move(chosen.pod, chosen.cls, chosen.landings)
        draft.state.reserve(draft.snapshot.requests[:, 0], 1, 0)
        if last.chosen:
            draft.state.hide_newest_victim()
