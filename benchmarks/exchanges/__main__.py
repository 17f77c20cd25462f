"""Rules left unmet on full clusters, beside an integer programme: python -m benchmarks.exchanges --draws 200 --seed 1.

Nodes of two or three zones are 90 to 98 % full of workloads that may stand unevenly over the zones by one at most (a hard
constraint). They were placed evenly; then pods were moved at random where there is room, and exchanged: one for one of any size, or one
for two. The programme may place every pod anew, with any number of moves: nothing can leave fewer rules unmet. It shares no code with the planner.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.alone import UNBOUNDED, plan_alone
from benchmarks.decisions.programme import Programme
from rebalancer.plan.plan import Plan
from rebalancer.planner.settings import Settings
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import Manifest, node, snapshot_of, spread, workload

_SIZES = 500, 1000, 1000, 2000, 2000
_FULL = 0.90, 0.98


@dataclass
class Draw:
    """A full cluster: the zone of each node, and of each workload its size and the nodes of its pods."""

    cpu: int
    zones: list[int]
    sizes: list[int] = field(default_factory=list)
    on: list[list[int]] = field(default_factory=list)

    @property
    def used(self) -> list[int]:
        """What is requested on each node."""
        used = [0] * len(self.zones)
        for size, nodes in zip(self.sizes, self.on, strict=True):
            for n in nodes:
                used[n] += size
        return used

    def skewed(self) -> int:
        """Return how many pods have to move so that no workload stands unevenly."""
        count = max(self.zones) + 1
        left = 0
        for nodes in self.on:
            counts = Counter(self.zones[n] for n in nodes)
            low, more = divmod(len(nodes), count)
            most = sorted((counts[zone] for zone in range(count)), reverse=True)
            left += sum(max(0, one - low - (at < more)) for at, one in enumerate(most))
        return left

    def objects(self) -> list[Manifest]:
        """Return the cluster as manifests."""
        made = [
            node(f"n{n:02}", f"zone-{zone}", cpu=f"{self.cpu}m", memory="512Gi")
            for n, zone in enumerate(self.zones)
        ]
        for w, (size, nodes) in enumerate(zip(self.sizes, self.on, strict=True)):
            names, spec = [f"n{n:02}" for n in nodes], spread(f"w{w}", hard=True)
            made += workload(f"w{w}", names, cpu=f"{size}m", spec=spec)
        return made


def draw(seed: int) -> Draw:
    """Return the cluster of a seed."""
    rng = random.Random(seed)
    zones, per_zone = rng.choice([2, 3]), rng.choice([1, 2, 3])
    made = Draw(rng.choice([4000, 6000, 8000]), [n % zones for n in range(zones * per_zone)])
    full = rng.uniform(*_FULL) * made.cpu * len(made.zones)
    for _ in range(400):
        size, replicas = rng.choice(_SIZES), rng.randint(2, 2 * zones)
        free = [made.cpu - used for used in made.used]
        if sum(made.used) + size * replicas > _FULL[1] * made.cpu * len(made.zones):
            continue
        if (nodes := _spread(made, free, size, replicas, rng)) is not None:
            made.sizes.append(size)
            made.on.append(nodes)
        if sum(made.used) >= full:
            break
    for _ in range(rng.randint(1, 8 * zones)):
        _stir(made, rng)
    return made


def _spread(
    made: Draw, free: list[int], size: int, replicas: int, rng: random.Random
) -> list[int] | None:
    """Return nodes for the pods of a workload, zone by zone in turn; None if it does not fit."""
    first, zones = rng.randrange(9), max(made.zones) + 1
    nodes = []
    for replica in range(replicas):
        zone = (first + replica) % zones
        fits = [n for n, of in enumerate(made.zones) if of == zone and free[n] >= size]
        if not fits:
            return None
        nodes.append(chosen := rng.choice(fits))
        free[chosen] -= size
    return nodes


def _stir(made: Draw, rng: random.Random) -> None:
    """Move a pod to another node, with none, one or two pods of that node in its place; or nothing if these do not fit."""
    pods = [(w, at) for w, nodes in enumerate(made.on) for at in range(len(nodes))]
    one = rng.choice(pods)
    here, away = made.on[one[0]][one[1]], rng.randrange(len(made.zones))
    back = [pod for pod in pods if made.on[pod[0]][pod[1]] == away]
    back = rng.sample(back, min(len(back), rng.randint(0, 2)))
    before = [list(nodes) for nodes in made.on]
    for w, at in back:
        made.on[w][at] = here
    made.on[one[0]][one[1]] = away
    if max(made.used) > made.cpu:
        made.on = before


def optimum(made: Draw, seconds: float = 30.0) -> tuple[int, int, bool]:
    """Return the fewest pods that stay in the wrong zone, the fewest moves to there, and whether both are proven."""
    left, proven = _solve(made, None, seconds)
    moves, also = _solve(made, left, seconds)
    return left, moves, proven and also


def _solve(made: Draw, allowed: int | None, seconds: float) -> tuple[int, bool]:
    """Minimise what is left; or, with so much ``allowed``, the moves."""
    programme, nodes = Programme(), range(len(made.zones))
    loads: list[dict[int, float]] = [{} for _ in nodes]
    excess, moved, zones = {}, {}, max(made.zones) + 1
    for size, on in zip(made.sizes, made.on, strict=True):
        at = [programme.variable(0, len(on), whole=True) for _ in nodes]
        programme.row(dict.fromkeys(at, 1.0), low=len(on), high=len(on))
        for n in nodes:
            loads[n][at[n]] = size
            if here := on.count(n):
                moved[leaves := programme.variable(0, here)] = 1.0
                programme.row({at[n]: 1, leaves: 1}, low=here)
        low, more = divmod(len(on), zones)
        ups = []
        for zone in range(zones):
            ups.append(up := programme.variable(0, 1, whole=True))
            excess[over := programme.variable(0, len(on))] = 1.0
            row = {at[n]: 1.0 for n in nodes if made.zones[n] == zone}
            programme.row({**row, over: -1.0, up: -1.0}, high=low)
        programme.row(dict.fromkeys(ups, 1.0), high=more)
    for load in loads:
        programme.row(load, high=made.cpu)
    if allowed is not None:
        programme.row(excess, high=allowed)
    solved = programme.minimise(excess if allowed is None else moved, seconds)
    return round(solved.value), solved.status == "proven"


def planned(made: Draw, *, steer: bool) -> tuple[Plan, float]:
    """Return the plan on a cluster, and the seconds that it took."""
    strategy = Registry.installed().strategy("topology-spread")
    snapshot = snapshot_of(made.objects())
    settings = Settings(steer=steer, budgets=UNBOUNDED)
    began = time.process_time()
    decided = plan_alone(snapshot, "topology-spread", strategy, strategy.Params(), settings)
    return decided, time.process_time() - began


def play(made: Draw, decided: Plan) -> None:
    """Let each move land where it most probably does, of the nodes that have room once all of its wave have left; certain ones first."""
    index = {f"n{n:02}": n for n in range(len(made.zones))}
    for wave in sorted({move.wave for move in decided.moves}):
        moves = [move for move in decided.moves if move.wave == wave]
        moves.sort(key=lambda move: len(move.landings))
        workloads = [int(move.pod[1:].partition("-")[0]) for move in moves]
        for move, w in zip(moves, workloads, strict=True):
            made.on[w].remove(index[move.node])
        for move, w in zip(moves, workloads, strict=True):
            free = [made.cpu - used for used in made.used]
            nodes = [index[landing.node] for landing in move.landings]
            made.on[w].append(next(n for n in nodes if free[n] >= made.sizes[w]))


def main() -> None:
    """Print a line for each cluster where the plan leaves more than the optimum, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steer", action="store_true")
    options = parser.parse_args()
    sums, seed = Counter[str](), options.seed - 1
    while sums["draws"] < options.draws:
        seed += 1
        made = draw(seed)
        used, before = sum(made.used) / made.cpu / len(made.zones), made.skewed()
        if not (before and _FULL[0] <= used <= _FULL[1]):
            continue
        best, fewest, proven = optimum(made)
        decided, seconds = planned(made, steer=options.steer)
        play(made, decided)
        left = made.skewed()
        same = left == best
        sums += Counter(
            draws=1,
            proven=proven,
            before=before,
            left=left,
            best=best,
            same=same,
            milliseconds=int(1000 * seconds),
        )
        if same:
            sums += Counter(moves=len(decided.moves), fewest=fewest)
        else:
            print(
                f"seed {seed}: {used:.0%} full, {len(made.zones)} nodes, {before} before, {left} left, {best} at best"
            )
        sums["exchanges"] += sum(move.exchanges for move in decided.moves) // 2
    print(dict(sums))


if __name__ == "__main__":
    main()
