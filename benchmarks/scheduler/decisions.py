"""Decisions on random clusters: the real scheduler's against the model's.

``python -m benchmarks.scheduler.decisions --seed 1 --clusters 60 --decisions 40``
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator

from benchmarks.scheduler import generate
from benchmarks.scheduler.compare import Tally, compare
from benchmarks.scheduler.features import RARE
from benchmarks.scheduler.generate import Pairs, Pods
from benchmarks.scheduler.ground import Ground, options
from benchmarks.scheduler.settings import CUSTOM
from rebalancer.scheduler.profile import SchedulerProfile
from rebalancer.snapshot.model import Snapshot
from tests.controlplane import ControlPlane
from tests.controlplane.build import DEFAULT_VERSION

_TERMINATING = 0.1
_GPU = "example.com/gpu"
_RARE = 0.01


def run_cluster(
    ground: Ground,
    rng: random.Random,
    pairs: Pairs,
    tally: Tally,
    *,
    nodes: int,
    decisions: int,
    profile: SchedulerProfile,
) -> Snapshot:
    """Make a cluster, let the scheduler decide so often, compare each decision.

    The profiles take turns.
    """
    names_of_profiles = [one.scheduler_name for one in (profile, *profile.others)]
    manifests = list(generate.nodes(rng, nodes))
    names = [manifest["metadata"]["name"] for manifest in manifests]
    # A pod that has an extended resource elsewhere would say that a DeviceClass stands behind it.
    offering = [m["metadata"]["name"] for m in manifests if _GPU in m["status"]["allocatable"]]
    ground.load(manifests, generate.fixtures(rng, names))
    standing = Pods(rng, f"old-{rng.randrange(10**6)}", names)
    for _ in range(min(3 * nodes, 120)):
        wanted = standing.make(pairs.propose())
        places = offering if "extended" in wanted.features else names
        if _standing(wanted) and places:
            ground.stand(wanted, rng.choice(places), terminating=rng.random() < _TERMINATING)
    ground.settle()
    made = Pods(rng, f"new-{rng.randrange(10**6)}", names)
    for turn in range(decisions):
        chosen = tuple(RARE)[:1] if rng.random() < _RARE else pairs.propose()
        if rng.random() < _RARE / 2:
            chosen = tuple(RARE)[1:]
        wanted = made.make(chosen)
        wanted.manifest["spec"]["schedulerName"] = names_of_profiles[turn % len(names_of_profiles)]
        answer = ground.decide(wanted)
        if answer is None:
            tally.rejected += 1
            continue
        snapshot, name, decision = answer
        differences = compare(tally, snapshot, name, decision, profile)
        pairs.count(chosen)
        for difference in differences:
            print(f"DIFFERENT {'+'.join(chosen)}: {difference}", flush=True)
    return ground.snapshot()


def _standing(wanted: generate.WantedPod) -> bool:
    """Whether such a pod can stand on a node already: its claims must be bound."""
    return not {"late-volume", "free-volume"} & {*wanted.features}


def sizes(rng: random.Random, clusters: int) -> Iterator[int]:
    """Yield numbers of nodes, 3 to 60, small ones more often."""
    for _ in range(clusters):
        yield rng.choice((3, 5, 8, 12, 20, 30, 45, 60))


def report(tally: Tally, pairs: Pairs) -> str:
    """Return the tally as a table."""
    unseen = pairs.possible() - set(pairs.seen)
    lines = [
        f"decisions {tally.decisions}: scored {tally.scored}, refused {tally.refused}, failed {tally.failed}",
        f"of those scored, sampled {tally.sampled}; refused by the API server {tally.rejected}",
        f"unmodelled {dict(tally.unmodelled)}",
        f"values {sum(tally.values.values())}, in varying columns {sum(tally.varying.values())}",
        *(
            f"  {plugin}: {tally.values[plugin]} / {tally.varying[plugin]}"
            for plugin in tally.values
        ),
        f"schedulers {dict(tally.schedulers)}",
        f"node among those predicted {tally.node_predicted} of {tally.decisions}",
        f"pairs of features: {len(pairs.seen)} seen, unseen {sorted(map(sorted, unseen))[:10]}",
        f"DIFFERENCES {len(tally.differences)}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clusters", type=int, default=60)
    parser.add_argument("--decisions", type=int, default=40)
    parser.add_argument("--nodes", type=int, default=0, help="all clusters of this size")
    parser.add_argument("--version", default=DEFAULT_VERSION)
    parser.add_argument("--custom", action="store_true", help="other settings than the defaults")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    pairs, tally = Pairs(rng), Tally()
    config, overrides = CUSTOM if chosen.custom else ({}, {})
    with ControlPlane(options(chosen.version, config)) as plane:
        ground = Ground(plane)
        profile = SchedulerProfile.for_version(ground.version, **overrides)
        for index, count in enumerate(sizes(rng, chosen.clusters)):
            began = time.monotonic()
            run_cluster(
                ground,
                rng,
                pairs,
                tally,
                nodes=chosen.nodes or count,
                decisions=chosen.decisions,
                profile=profile,
            )
            ground.clear()
            took = time.monotonic() - began
            print(f"cluster {index}: {chosen.nodes or count} nodes, {took:.1f} s", flush=True)
    print(report(tally, pairs))


if __name__ == "__main__":
    main()
