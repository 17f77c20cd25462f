"""All pods of a Deployment go by one restart of its rollout: one request, and each pod is awaited and reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalancer.kube.evict import AnswerKind
from rebalancer.plan.plan import Method, Move, Status
from rebalancer.run.execution.executor import count_pending
from rebalancer.run.execution.landing import Replacement
from tests.unit.run.execution.world import (
    RecordedProgress,
    World,
    execute,
    executor_of,
    move,
    opted_out,
    pod,
    statuses,
    stop_of,
)

ABC = ["a", "b", "c"]
UNIT = "default: Deployment web"


def rollout(names: list[str] = ABC) -> list[Move]:
    return [replace(move(name, method=Method.RESTART), unit=UNIT, gang=UNIT) for name in names]


class InTurn(World):
    """A rollout starts the next pod once the one before it is Ready, after so many seconds."""

    def __init__(self, seconds: float, ready: int = 99) -> None:
        super().__init__()
        self.seconds, self.most = seconds, ready
        self.asked: float | None = None

    def carry_out(self, name: str) -> None:
        self.asked = self.clock.now()

    def _begun(self) -> int:
        return 0 if self.asked is None else int((self.clock.now() - self.asked) / self.seconds)

    def newcomers(self) -> list[Replacement]:
        begun = min(self._begun(), self.most)
        return [
            Replacement(f"n{i}", f"n{i}", "default", "rs", "n2", i < begun, float(i))
            for i in range(min(begun + 1, len(ABC)) if self.asked is not None else 0)
        ]

    def is_gone(self, uid: str) -> bool:
        return ABC.index(uid.removeprefix("uid-")) < min(self._begun(), self.most)


def test_one_request_moves_all_and_each_is_told():
    world, progress = World(), RecordedProgress()
    executor = executor_of(world, stop_of(world.clock), progress=progress)
    done = executor.run(rollout(), lambda left: [(one, None) for one in left])
    assert (world.restarts, world.evictions, world.rehearsals) == (["a"], [], [])
    assert statuses(done) == [Status.RESTARTED] * 3
    assert world.announced == ABC
    assert [line for line in progress.lines if line[0] == "evicted"] == [
        ("evicted", name) for name in ABC
    ]


def test_a_rollout_that_takes_longer_than_a_pod_may_is_awaited_pod_by_pod():
    # 3 pods of 100 s each, where each may take 120 s, and 30 s until it has a node.
    world = InTurn(100.0)
    done = execute(world, rollout())
    assert statuses(done) == [Status.RESTARTED] * 3
    assert (done.stopped, done.failed) == (None, False)
    assert 300.0 <= world.clock.now() < 310.0
    assert [one.landed for one in done.outcomes] == ["n2"] * 3


def test_a_pod_that_does_not_become_ready_ends_the_wait_and_the_old_ones_are_said_to_serve() -> (
    None
):
    world = InTurn(100.0, ready=1)
    done = execute(world, rollout())
    assert done.failed
    assert 220.0 <= world.clock.now() < 340.0
    said = [one.message for one in done.outcomes]
    assert "not at its end" not in said[0]
    assert all("the rollout is not at its end" in one for one in said[1:])


@pytest.mark.parametrize(
    "changed", [None, pod("b", node="n9"), opted_out("b"), pod("b", ready=False)]
)
def test_nothing_is_asked_for_if_one_is_not_as_planned(changed):
    world = World(pods={"b": changed})
    done = execute(world, rollout())
    assert world.restarts == []
    assert Status.RESTARTED not in statuses(done)
    others = [one.message for one in done.outcomes if one.status is Status.DROPPED]
    assert any("its rollout is not restarted, since default/b stays" in one for one in others)


@pytest.mark.parametrize(
    ("answers", "status", "others"),
    [
        ([AnswerKind.DROPPED], Status.DROPPED, Status.DROPPED),
        ([AnswerKind.CHANGED], Status.CHANGED, Status.DROPPED),
        ([AnswerKind.FORBIDDEN], Status.REFUSED, Status.DROPPED),
        ([AnswerKind.LOST, AnswerKind.RESTARTED], Status.RESTARTED, Status.RESTARTED),
        ([AnswerKind.LOST, AnswerKind.FAILED], Status.LOST, Status.LOST),
    ],
)
def test_the_answer_is_that_of_all(answers, status, others):
    world = World(answers={"a": answers})
    done = execute(world, rollout())
    assert statuses(done) == [status, others, others]


def test_what_a_rollout_has_not_started_yet_is_not_pending():
    moves = rollout()
    placed = Replacement("n", "n", "default", "rs", "n2", False, 1.0)
    assert count_pending(moves, {}) == 3
    assert count_pending(moves, {"uid-a": placed}) == 0
    assert count_pending(moves, {"uid-a": replace(placed, node="")}) == 1
    evicted = [replace(one, method=Method.EVICT) for one in moves]
    assert count_pending(evicted, {"uid-a": placed}) == 2
