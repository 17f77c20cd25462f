"""Replacements: never more nodes at once than allowed, wherever a process was killed or stalled."""

from typing import Any

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.machines.drain import replacing
from rebalancer.machines.drain.replacing import ReplacementPace, replace_each
from rebalancer.node_record.records import ReplacePhase, Stage
from rebalancer.node_record.tasks import carry_out
from tests.support.killing import Killed

NODES = ("n1", "n2", "n3")


class World:
    """The nodes as they are, for all processes."""

    def __init__(self, most, working=()):
        self.most = most
        self.stages: dict[str, Any] = dict.fromkeys(NODES)
        self.working = dict(working)
        self.away: set[str] = set()
        self.removed: list[str] = []
        self.now = 1000.0

    def take_away(self, names):
        """Pods leave these nodes: from now on, until they are removed, the nodes are unavailable."""
        self.away.update(set(names) - set(self.removed))
        assert len(self.away) <= self.most

    def remove(self, name):
        assert name in self.away or name in self.removed
        self.away.discard(name)
        self.removed.append(name)


class Process:
    """One process; ``at`` its n-th call, ``then`` happens."""

    def __init__(self, world, by="a", at=None, then=None):
        self.world, self.by, self.at, self.then = world, by, at, then
        self.calls = 0

    def step(self):
        self.calls += 1
        self.world.now += 1
        if self.calls == self.at:
            self.then()

    def stages(self):
        self.step()
        return dict(self.world.stages)

    def stage(self, name):
        return self.stages()[name]

    def enter(self, name, phase, after):
        self.step()
        if self.world.stages[name] not in after:
            return False
        self.world.stages[name] = Stage(phase, self.by, self.world.now)
        return True

    def works(self, name):
        self.step()
        left = self.world.working.get(name, 0)
        self.world.working[name] = left - 1
        return f"{name}: a Job" if left > 0 else None

    def empty(self, names):
        self.step()
        self.world.take_away(names)
        yield 0.0
        self.step()

    def remove(self, name):
        self.step()
        self.world.remove(name)
        self.step()

    def advance(self, stages):
        self.step()

    def why_not(self, name):
        return None

    def is_removed_elsewhere(self, stage):
        return replacing.is_removed_elsewhere(stage, self.by, self.world.now)

    def leave_rest(self, begun):
        self.step()
        self.world.stages = {name: self.world.stages[name] for name in begun}

    def why_closed(self):
        return None

    def waits(self, why):
        self.step()


def run_alone(process: Any, pace, stop):
    return carry_out(replace_each(process, pace, stop), stop)


def run(world, **process):
    made: Any = Process(world, **process)
    stop = Stop(SystemClock())
    pace = ReplacementPace(world.most, 0.0, float("inf"))
    return carry_out(replace_each(made, pace, stop), stop), made.calls


def kill():
    raise Killed


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(replacing, "_PAUSE", 0.0)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_every_node_is_emptied_then_removed_and_no_more_at_once_than_allowed(most):
    world = World(most)
    assert run(world)[0] is None
    assert sorted(world.removed) == list(NODES)
    assert {stage.phase for stage in world.stages.values()} == {ReplacePhase.DONE}


def test_nodes_without_batch_work_come_first():
    world = World(1, {"n1": 3, "n2": 1})
    assert run(world)[0] is None
    assert world.removed == ["n3", "n2", "n1"]


@pytest.mark.parametrize("most", [1, 2])
def test_a_process_that_is_killed_anywhere_is_gone_on_with_by_the_next(most):
    _, calls = run(World(most))
    for at in range(1, calls + 1):
        world = World(most)
        with pytest.raises(Killed):
            run(world, at=at, then=kill)
        # What another was about to remove is left to it for a time; its killer's successor comes later.
        world.now += 1000
        assert run(world, by="b")[0] is None, at
        assert set(world.removed) == set(NODES), at
        # Only the machine that was being removed when the process died is asked for twice.
        assert len(world.removed) <= len(NODES) + 1, at


@pytest.mark.parametrize("most", [1, 2])
def test_a_process_that_stalls_anywhere_finds_that_another_has_done_it_all(most):
    _, calls = run(World(most))
    for at in range(1, calls + 1):
        world = World(most)

        def other(world=world):
            world.now += 1000
            assert run(world, by="b")[0] is None

        assert run(world, at=at, then=other)[0] is None, at
        assert set(world.removed) == set(NODES), at


def test_one_that_sees_that_two_have_begun_steps_back():
    world = World(1)
    # Between the first node's beginning and the look at the others, another begins with the second.
    process: Any = Process(
        world, at=3, then=lambda: world.stages.update(n2=Stage(ReplacePhase.EMPTYING, "b", 0.0))
    )
    group, work, waits = replacing._next_group(
        process, dict(world.stages), ReplacementPace(1, 0.0, 0.0)
    )
    assert (group, work, waits) == ([], None, None)
    assert world.stages["n1"].phase is ReplacePhase.WAITING
    assert world.stages["n2"].by == "b"


def test_a_machine_that_another_process_removes_is_waited_for():
    world = World(1)
    world.stages["n1"] = Stage(ReplacePhase.REMOVING, "b", world.now)
    process: Any = Process(world, at=100, then=kill)
    said: list[str] = []

    def waits(why):
        said.append(why)
        if len(said) == 3:
            world.remove("n1")
            world.stages["n1"] = Stage(ReplacePhase.DONE, "b", world.now)

    process.waits = waits
    pace = ReplacementPace(1, 0.0, float("inf"))
    assert run_alone(process, pace, Stop(SystemClock())) is None
    assert said == ["another replacement"] * 3
    assert world.removed == list(NODES)


def test_a_machine_that_cannot_be_removed_ends_it_and_the_node_is_known_to_be_empty():
    world = World(1)
    process: Any = Process(world)
    process.remove = lambda name: f"no such machine {name}"
    why = run_alone(process, ReplacementPace(1, 0.0, 0.0), Stop(SystemClock()))
    assert why == "n1 is empty, but not removed: no such machine n1"
    assert world.stages["n1"].phase is ReplacePhase.EMPTY
    assert run(world)[0] is None


def test_nothing_is_begun_while_the_window_is_closed():
    world = World(1)
    process: Any = Process(world)
    answers = iter(["the window is closed", "the window is closed"])
    process.why_closed = lambda: next(answers, None)
    said: list[str] = []
    process.waits = said.append
    pace = ReplacementPace(1, 0.0, float("inf"))
    assert run_alone(process, pace, Stop(SystemClock())) is None
    assert said == ["the window is closed"] * 2


def test_work_that_does_not_end_in_time_is_named():
    world = World(1, {"n1": 99, "n2": 99, "n3": 99})
    stop = Stop(SystemClock())
    why = run_alone(Process(world), ReplacementPace(1, 0.0, 0.0), stop)
    assert why == "work did not end in time: n1: a Job"
    assert world.removed == []


@pytest.mark.parametrize("most", [1, 2, 3])
def test_after_so_many_nodes_the_rest_is_left(most):
    world = World(most)
    pace = ReplacementPace(most, 0.0, float("inf"), pause_after=2)
    assert run_alone(Process(world), pace, Stop(SystemClock())) is None
    assert world.removed == ["n1", "n2"]
    assert set(world.stages) == {"n1", "n2"}
