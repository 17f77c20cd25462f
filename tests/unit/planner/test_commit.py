"""What making a move does to the draft, and what is written down of it."""

import numpy as np
import pytest

from rebalancer.cost.guards import guard_term
from rebalancer.planner.candidates import CandidateRows
from rebalancer.planner.commit import Commit, Wave
from rebalancer.planner.effects import Effects
from rebalancer.planner.effort import Effort
from rebalancer.planner.verdict import Verdict
from rebalancer.scheduler.prediction import Prediction
from rebalancer.testing.snapshots import node, workload
from tests.unit.planner.conftest import draft_of
from tests.unit.planner.test_quota import quota

N0, N1, N2 = range(3)
NODES = [node(f"n{i}") for i in range(3)]


def landing(*nodes):
    return Prediction(np.array(nodes, np.int32), np.full(len(nodes), 1 / len(nodes)))


def verdict(prediction, shares, gain=(0.0, 1.0, 0.0), marks=()):
    return Verdict(prediction, gain, gain, shares, None, marks=marks)


class Scene:
    """Two web pods on n0 under the rule of duplicates, and what commits moves of them."""

    def __init__(self, *objects, observed=False, **more):
        self.draft = draft_of(
            [*NODES, *workload("web", ["n0", "n0"], **more), *objects], strategies=["duplicates"]
        )
        self.commit = Commit(self.draft, self.draft.terms, observed, None)
        self.pair = int(self.draft.snapshot.pods.cls[0]), N0
        view = self.draft.view
        threshold = self.draft.settings.threshold
        effects = Effects(view, self.draft.terms, guard_term(view), threshold)
        self.candidates = CandidateRows(self.draft, self.draft.terms, effects, Effort())
        promise = self.candidates.promise(self.pair)
        assert promise is not None
        self.promise = promise

    def move(self, verdict, wave=1):
        return self.commit.move(self.pair, self.promise, verdict, Wave(wave))


def test_the_state_goes_on_with_another_landing_where_others_took_the_first():
    scene = Scene()
    prediction = landing(N1, N2)
    scene.draft.move(scene.promise.pod, scene.pair[0], prediction, lands=1)
    assert scene.draft.state.node_of.tolist() == [N2, N0]
    assert prediction.nodes.tolist() == [N1, N2]


def test_the_strategy_with_the_largest_share_is_named_with_its_reason():
    scene = Scene()
    (term,) = [w.term for w in scene.draft.terms if w.strategy == "duplicates"]
    before = term.describe(*scene.pair)
    shares = {"duplicates": 0.75, "low-utilisation": 0.25}
    chosen = scene.move(verdict(landing(N1), shares), 1)
    assert (chosen.strategy, chosen.reason) == ("duplicates", before)
    assert term.describe(*scene.pair) != before, "it was asked before the pod moved"


def test_where_no_share_is_a_gain_the_strategy_that_promised_it_is_named():
    scene = Scene()
    promise = scene.promise
    chosen = scene.move(verdict(landing(N1), {"other": 0.0}), 1)
    assert chosen.strategy == promise.strategy == "duplicates"


def test_of_a_strategy_without_a_term_that_names_the_pair_its_name_is_the_reason():
    scene = Scene()
    chosen = scene.move(verdict(landing(N1), {"unknown": 1.0}), 1)
    assert (chosen.strategy, chosen.reason) == ("unknown", "unknown")


def test_what_only_observes_and_marks_are_written_down():
    scene = Scene(observed=True)
    steered = verdict(landing(N1), {"duplicates": 1.0}, marks=(N2,))
    chosen = scene.move(steered, 1)
    assert (chosen.observed, chosen.marks) == (True, (N2,))


@pytest.mark.parametrize(("kind", "left"), [("Deployment", 0), ("StatefulSet", None)])
def test_quota_is_used_only_by_replacements_that_come_beside_their_victims(kind, left):
    scene = Scene(quota({"pods": "3"}, {"pods": "2"}), kind=kind)
    lacks = scene.draft.allowance.lacks
    assert lacks(scene.pair[0]) is None
    scene.move(verdict(landing(N1), {"duplicates": 1.0}), 1)
    assert (lacks(scene.pair[0]) is None) == (left is None)
