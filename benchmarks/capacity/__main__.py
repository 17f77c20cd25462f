"""``python -m benchmarks.capacity``: nodes that ``capacity`` buys for pending pods, beside the least that will do.

Random small clusters whose nodes are full. Each of one to three groups makes nodes of one size; some pods ask for one group,
some want a node for themselves beside their siblings. The optimum is an integer programme over the same pods and groups. Nodes
are weighed by their processors, so that two small ones are as good as one that is twice as large.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

import numpy as np

from benchmarks.decisions.programme import Programme
from rebalancer.machines.capacity.groups import Groups
from rebalancer.machines.capacity.scale_out_plan import ScaleOutPlan, plan_scale_out
from rebalancer.policy.cluster import CapacitySettings
from rebalancer.providers.contract import NodeGroup, NodeTemplate
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.testing.snapshots import HOSTNAME, apart, node, snapshot_of, workload

_CPU = (250, 500, 750, 1000, 1500, 2000, 3000)
_MEMORY = (512, 1024, 2048, 4096, 6144)
_SHAPES = ((4000, 16), (8000, 32), (4000, 8), (16000, 64))


@dataclass(frozen=True)
class Case:
    """A cluster: groups by millicores and GiB of a node, classes of pending pods."""

    groups: tuple[tuple[str, int, int], ...]
    classes: tuple[tuple[str, int, int, int, str, bool], ...]
    """Name, replicas, millicores, MiB, group that it asks for (empty: any), a node each."""


def case(seed: int) -> Case:
    """Return one cluster; equal seeds are equal clusters."""
    random = np.random.default_rng(seed)
    shapes = random.permutation(len(_SHAPES))[: random.integers(1, 4)]
    if random.random() < 0.5:
        shapes = np.repeat(shapes[:1], len(shapes))  # the same size, as in one group per zone
    groups = tuple((f"g{i}", *_SHAPES[shape]) for i, shape in enumerate(shapes))
    smallest = min(cpu for _, cpu, _ in groups)
    classes = []
    for number in range(random.integers(2, 6)):
        cpu = int(min(random.choice(_CPU), smallest * 3 // 4))
        asks = f"g{random.integers(len(groups))}" if random.random() < 0.25 else ""
        classes.append(
            (
                f"w{number}",
                int(random.integers(1, 7)),
                cpu,
                int(random.choice(_MEMORY)),
                asks,
                bool(random.random() < 0.2),
            )
        )
    return Case(groups, tuple(classes))


def ours(of: Case) -> ScaleOutPlan:
    """Return the scale-out that we plan."""
    objects = [node("full"), *workload("there", ["full"], cpu="4", memory="16Gi")]
    for name, count, cpu, memory, asks, alone in of.classes:
        spec = apart(name, HOSTNAME) if alone else {}
        if asks:
            spec |= {"nodeSelector": {"group": asks}}
        objects += workload(name, [""] * count, cpu=f"{cpu}m", memory=f"{memory}Mi", spec=spec)
    snapshot = snapshot_of(objects)
    templates = {
        name: NodeTemplate(
            {"group": name}, (), {"cpu": f"{cpu}m", "memory": f"{memory}Gi", "pods": "110"}
        )
        for name, cpu, memory in of.groups
    }
    groups = [
        NodeGroup(name=name, instances=(), minimum=0, maximum=100, desired=0)
        for name, *_ in of.groups
    ]
    return plan_scale_out(
        snapshot,
        SchedulerProfile.for_version((1, 36)),
        Groups(snapshot, groups),
        lambda group: templates[group.name],
        CapacitySettings(),
    )


def least(of: Case, most: int, seconds: float) -> tuple[float, bool]:
    """Return the least processors that hold all pods, at least (a bound), and whether that is proven.

    ``most``: so many processors are known to do.
    """
    programme, cost = Programme(), dict[int, float]()
    placed: dict[str, dict[int, float]] = {name: {} for name, *_ in of.classes}
    for group, cpu, memory in of.groups:
        before = None
        for _ in range(most // cpu):
            used = programme.variable(high=1, whole=True)
            cost[used] = cpu
            if before is not None:
                programme.row({used: 1.0, before: -1.0}, high=0)
            before = used
            rows = {"cpu": {used: -float(cpu)}, "memory": {used: -1024.0 * memory}}
            for name, count, asked, wanted, asks, alone in of.classes:
                if asks not in ("", group):
                    continue
                here = programme.variable(high=1 if alone else count, whole=True)
                placed[name][here] = 1.0
                rows["cpu"][here], rows["memory"][here] = asked, wanted
                programme.row({here: 1.0, used: -float(1 if alone else count)}, high=0)
            for row in rows.values():
                programme.row(row, high=0)
    for name, count, *_ in of.classes:
        programme.row(placed[name], low=count)
    solved = programme.minimise(cost, seconds)
    return (solved.value, True) if solved.status == "proven" else (solved.bound, False)


def main() -> None:
    """Print the ratio to the optimum over all clusters."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--clusters", type=int, default=100)
    arguments.add_argument("--seconds", type=float, default=10.0, help="for each programme")
    given = arguments.parse_args()
    ratios, proven, one_group = list[float](), 0, list[float]()
    for seed in range(given.clusters):
        of = case(seed)
        plan, sizes = ours(of), {name: cpu for name, cpu, _ in of.groups}
        left = [one for one in plan.pods if one.group is None]
        if left:
            raise SystemExit(f"cluster {seed}: {len(left)} pods have no node")
        bought = sum(sizes[step.group] * len(step.nodes) for step in plan.increases)
        value, is_proven = least(of, bought, given.seconds)
        ratio = bought / value
        ratios.append(ratio)
        proven += is_proven
        if len(set(sizes.values())) == 1:
            one_group.append(ratio)
        print(
            f"{seed}\t{bought}\t{value:.0f}\t{ratio:.3f}\t{'' if is_proven else 'bound'}",
            flush=True,
        )
    for name, of_some in (("all", ratios), ("of one size", one_group)):
        print(
            f"{name}: {len(of_some)} clusters, median {statistics.median(of_some):.3f},"
            f" mean {statistics.mean(of_some):.3f}, worst {max(of_some):.3f},"
            f" optimal {sum(ratio < 1.0005 for ratio in of_some)}"
        )
    print(f"optimum proven in {proven} of {len(ratios)}; elsewhere its lower bound")


if __name__ == "__main__":
    main()
