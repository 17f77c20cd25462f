"""Days on which a zone closes, is lost and comes back, by seed; a count that shares no code with the planner says what serves."""

import random
from collections import Counter

import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.plan.plan import Move
from rebalancer.planner.planning import make_plan
from rebalancer.testing.snapshots import disruption_budget, node, snapshot_of, spread, workload
from tests.support.worlds import read_rules

RULES = read_rules("strategies: {topology-spread: {}, leaving: {}}")
GOING = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
MOST_RUNS = 40


class Day:
    """Three zones of three nodes, workloads that spread over them, and what happens to the zones."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.nodes = [f"{zone}{n}" for zone in "xyz" for n in range(3)]
        self.shifted, self.lost, self.going = "", "", ""
        self.pods = {}
        for name in ("blue", "green", "red", "white"):
            for n in range(self.random.choice([3, 4, 6])):
                self.pods[name, n] = f"{'xyz'[n % 3]}{self.random.randrange(3)}"
        self.twice = 0
        self.moves = Counter[tuple[str, int]]()

    def objects(self):
        made = [
            node(
                name,
                name[0],
                unschedulable=name[0] == self.shifted,
                taints=GOING if name == self.going else (),
            )
            for name in self.nodes
            if name[0] != self.lost
        ]
        for name, size in self.sizes().items():
            on = [self.pods[name, n] for n in range(size)]
            made += workload(name, on, spec=spread(name))
            # As the API server counts: pods in a closed zone are healthy.
            made.append(disruption_budget(name, name, allowed=1, healthy=size))
        return made

    def sizes(self):
        return Counter(name for name, _ in self.pods)

    def serving(self):
        return Counter(name for (name, _), on in self.pods.items() if on[0] != self.shifted)

    def lose(self, zone):
        """Its pods are created anew on the nodes with the fewest pods."""
        self.lost = zone
        open_ = [one for one in self.nodes if one[0] not in (zone, self.shifted)]
        for pod, on in sorted(self.pods.items()):
            if on[0] == zone:
                load = Counter(self.pods.values())
                self.pods[pod] = min(open_, key=lambda one: (load[one], one))

    def run(self):
        """Carry out the first wave of a plan; return its moves."""
        moves = make_plan(RULES, snapshot_of(self.objects()), Timings(SystemClock())).plan.moves
        wave = [move for move in moves if move.wave == moves[0].wave]
        before, out = self.serving(), Counter[str]()
        for move in wave:
            name, _, number = move.pod.rpartition("-")
            pod = name, int(number)
            assert self.pods[pod] == move.node
            out[name] += move.node[0] != self.shifted
            landing = move.landings[0].node
            assert landing[0] != self.shifted
            self.pods[pod] = landing
            self.moves[pod] += 1
        for name, gone in out.items():
            assert not gone or before[name] - gone >= self.sizes()[name] - 1
        return wave

    def settle(self):
        """Run until nothing moves; return the moves."""
        self.moves.clear()
        made = list[Move]()
        for _ in range(MOST_RUNS):
            if not (wave := self.run()):
                self.twice += sum(number > 1 for number in self.moves.values())
                return made
            made += wave
        raise AssertionError(f"no silence after {MOST_RUNS} runs")

    def is_even(self):
        """Whether no workload stands unevenly by more than one over the zones that are there."""
        for name in self.sizes():
            on = Counter(where[0] for (one, _), where in self.pods.items() if one == name)
            counts = [on[zone] for zone in "xyz" if zone != self.lost]
            if max(counts) - min(counts) > 1:
                return False
        return True


@pytest.mark.parametrize("seed", range(2))
def test_a_zone_that_closes_is_lost_or_comes_back(seed):
    """Nothing moves for balance while it is closed, what serves suffices for its budget, and all is even and silent afterwards."""
    day, chosen = Day(seed), random.Random(seed)
    day.settle()
    assert day.is_even()
    for _ in range(6):
        lost, closed = chosen.sample("xyz", 2)
        day.lose(lost)
        day.settle()
        assert day.is_even()
        # It is back, and in the middle of that another zone closes, or the same one; a machine may go, too.
        day.lost = ""
        for _ in range(chosen.randrange(3)):
            day.run()
        day.shifted = chosen.choice([closed, lost])
        if chosen.random() < 0.5:
            day.going = f"{({*'xyz'} - {lost, closed}).pop()}1"
        is_closed = any(on[0] == day.shifted for on in day.pods.values())
        moves = day.settle()
        if is_closed:
            assert {move.strategy for move in moves} <= {"leaving"}
        day.shifted = day.going = ""
        day.settle()
        assert day.is_even()
        assert day.run() == []
    assert day.twice == 0
