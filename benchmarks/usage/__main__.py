"""Nodes that are hot by use, beside an integer programme: python -m benchmarks.usage --draws 100 --seed 1.

Requests are spread evenly over the nodes, and what pods use is independent of them: one node at least is more than 12 % above the mean, where more
than 10 % is hot. The programme lets no node be so hot with the fewest moves, and with so many moves has the least sum of distances from the mean. It places
pods as it likes, and shares no code with the planner.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.alone import UNBOUNDED, plan_alone
from benchmarks.decisions.programme import Programme
from rebalancer.plan.plan import Plan
from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Eagerness
from rebalancer.registry import Registry
from rebalancer.snapshot.model import Snapshot
from rebalancer.testing.snapshots import node, snapshot_of, spread, with_usage, workload

CPU = 8000
_OVER, _CLEAR = 0.10, 0.02


@dataclass
class Draw:
    """Workloads on equal nodes: of each what a pod asks for, what it uses, and the nodes of its pods."""

    nodes: int
    asks: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    on: list[list[int]] = field(default_factory=list)

    def used(self) -> list[int]:
        """Return what is used on each node."""
        return self._sum(self.uses)

    def requested(self) -> list[int]:
        """Return what is requested on each node."""
        return self._sum(self.asks)

    def _sum(self, amounts: list[int]) -> list[int]:
        total = [0] * self.nodes
        for amount, on in zip(amounts, self.on, strict=True):
            for n in on:
                total[n] += amount
        return total

    @property
    def most(self) -> float:
        """What a node may use: 10 % of its capacity above the mean."""
        return sum(self.used()) / self.nodes + _OVER * CPU

    def is_clear(self) -> bool:
        """Return whether a node is hot by more than what is not worth an eviction."""
        return max(self.used()) > self.most + _CLEAR * CPU

    def snapshot(self) -> Snapshot:
        """Return the cluster with its measurements."""
        objects = [
            node(f"n{n:02}", f"z{n % 3}", cpu=f"{CPU}m", memory="512Gi") for n in range(self.nodes)
        ]
        for w, (asks, on) in enumerate(zip(self.asks, self.on, strict=True)):
            # A rule over a label that no node has: only load decides.
            rule = spread("any", "rack")
            objects += workload(f"w{w}", [f"n{n:02}" for n in on], cpu=f"{asks}m", spec=rule)
        pods = {f"w{w}": (uses, 1 << 20) for w, uses in enumerate(self.uses)}
        return with_usage(snapshot_of(objects), pods)


def draw(seed: int) -> Draw:
    """Return the cluster of a seed."""
    rng = random.Random(seed)
    made = Draw(rng.choice([6, 9]))
    for _ in range(made.nodes * rng.randint(4, 7)):
        made.asks.append(rng.choice([100, 200, 200, 400]))
        made.uses.append(max(5, min(1500, int(rng.lognormvariate(5.3, 0.9)))))
        made.on.append([])
        for _ in range(rng.randint(2, 4)):
            total = made.requested()
            emptiest = min(total)
            made.on[-1].append(rng.choice([n for n, one in enumerate(total) if one == emptiest]))
    return made


def optimum(made: Draw, seconds: float = 3.0) -> tuple[int, float, bool]:
    """Return the fewest moves after which no node is hot, the standard deviation of use then, and whether both are proven."""
    moves, _, proven = _solve(made, None, seconds)
    _, deviation, also = _solve(made, moves, seconds)
    return moves, deviation, proven and also


def _solve(made: Draw, allowed: int | None, seconds: float) -> tuple[int, float, bool]:
    programme, nodes = Programme(), range(made.nodes)
    used: list[dict[int, float]] = [{} for _ in nodes]
    asked: list[dict[int, float]] = [{} for _ in nodes]
    moved, far = {}, {}
    for asks, uses, on in zip(made.asks, made.uses, made.on, strict=True):
        at = [programme.variable(0, len(on), whole=True) for _ in nodes]
        programme.row(dict.fromkeys(at, 1.0), low=len(on), high=len(on))
        for n in nodes:
            used[n][at[n]], asked[n][at[n]] = uses, asks
            if here := on.count(n):
                moved[leaves := programme.variable(0, here)] = 1.0
                programme.row({at[n]: 1, leaves: 1}, low=here)
    mean = sum(made.used()) / made.nodes
    for n in nodes:
        programme.row(used[n], high=made.most)
        programme.row(asked[n], high=CPU)
        if allowed is not None:
            far[distance := programme.variable()] = 1.0
            programme.row({**used[n], distance: -1.0}, high=mean)
            programme.row({**used[n], distance: 1.0}, low=mean)
    if allowed is not None:
        programme.row(moved, high=allowed + 0.5)
    solved = programme.minimise(moved if allowed is None else far, seconds)
    if solved.variables is None:
        return -1, 0.0, False
    loads = [sum(solved.variables[v] * amount for v, amount in row.items()) for row in used]
    close = solved.status == "proven" or allowed is not None
    return round(solved.value), statistics.pstdev(loads), close


def planned(made: Draw, eagerness: Eagerness = Eagerness.CAREFUL) -> tuple[Plan, Snapshot, float]:
    """Return the plan on a cluster, its snapshot, and the seconds that it took."""
    strategy = Registry.installed().strategy("low-utilisation")
    given = {
        "signal": "usage",
        "runs": 1,
        "deviation": True,
        "under": {"cpu": 0.0},
        "over": {"cpu": _OVER},
    }
    params = strategy.Params.model_validate(given)
    snapshot = made.snapshot()
    settings = Settings(steer=True, budgets=UNBOUNDED, eagerness=eagerness)
    began = time.process_time()
    decided = plan_alone(snapshot, "low-utilisation", strategy, params, settings)
    return decided, snapshot, time.process_time() - began


def play(made: Draw, decided: Plan, rng: random.Random) -> None:
    """Let each move land on one of the nodes that were predicted, drawn by their probabilities."""
    for move in decided.moves:
        shares = [one.probability for one in move.landings]
        landing = rng.choices(move.landings, shares)[0]
        on = made.on[int(move.pod[1:].partition("-")[0])]
        on.remove(int(move.node[1:]))
        on.append(int(landing.node[1:]))


def main() -> None:
    """Print a line for each cluster, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eagerness", type=Eagerness, choices=list(Eagerness), default="careful")
    options = parser.parse_args()
    sums, seed = Counter[str](), options.seed - 1
    ratios, moves = [], []
    while sums["draws"] < options.draws:
        seed += 1
        made = draw(seed)
        if not made.is_clear():
            continue
        before = statistics.pstdev(made.used())
        fewest, best, proven = optimum(made)
        if not proven:
            continue
        decided, _, seconds = planned(made, options.eagerness)
        play(made, decided, random.Random(seed))
        after, hot = statistics.pstdev(made.used()), max(made.used()) > made.most + 1
        again, _, _ = planned(made, options.eagerness)
        twice = sum(move.pod in {one.pod for one in decided.moves} for move in again.moves)
        ratios.append(after / max(best, 1.0))
        moves.append(len(decided.moves) / max(fewest, 1))
        sums += Counter(
            draws=1,
            proven=proven,
            moves=len(decided.moves),
            fewest=fewest,
            hot=hot,
            again=len(again.moves),
            twice=twice,
            milliseconds=int(1000 * seconds),
        )
        print(
            f"seed {seed}: {made.nodes} nodes, deviation {before:.0f} -> {after:.0f} (best {best:.0f}),"
            f" {len(decided.moves)} moves (fewest {fewest}){', still hot' if hot else ''}",
            flush=True,
        )
    print(dict(sums))
    print(
        f"deviation / best: median {statistics.median(ratios):.2f}, mean {statistics.mean(ratios):.2f}, worst {max(ratios):.2f}"
    )
    print(f"moves / fewest: {sums['moves'] / sums['fewest']:.2f}, worst {max(moves):.2f}")


if __name__ == "__main__":
    main()
