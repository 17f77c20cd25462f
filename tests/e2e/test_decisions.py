"""The short form of the decisions benchmark: small drifts, ours beside the peer on the same cluster."""

import pytest

from benchmarks.decisions.checkpoint import Checkpoint
from benchmarks.decisions.contenders import Ours, Peer
from benchmarks.decisions.convergence import converge, observe, settle
from benchmarks.decisions.instance import counted, hard, soft
from benchmarks.decisions.reading import placement, read
from benchmarks.decisions.scenarios import SCENARIOS
from benchmarks.decisions.silence import outlast
from tests.support.cli import program


@pytest.mark.parametrize(
    "scenario", ["budgets", pytest.param("scale-down", marks=pytest.mark.long)]
)
def test_ours_ends_no_worse_than_the_peer_and_falls_silent(cluster, tmp_path, scenario):
    SCENARIOS[scenario](cluster, seed=0, nodes=9)
    objects = observe(cluster)
    instance, pods = read(objects), len(objects.pods)
    before = instance.violations(counted(instance, placement(objects)))
    assert sum(before.values()) > 5, "the scenario left nothing to fix"
    checkpoint = Checkpoint(cluster, tmp_path / "etcd")
    checkpoint.save()
    settle(cluster, pods)
    peer, _ = converge(cluster, Peer(tmp_path), instance, pods=pods, most=3, after=0)
    checkpoint.restore()
    settle(cluster, pods)
    ours, _ = converge(
        cluster,
        Ours(tmp_path, lifted=True, start=[str(program())]),
        instance,
        pods=pods,
        most=8,
        after=1,
    )
    assert ours.first_silent is not None, [run.evictions for run in ours.runs]
    assert ours.after_silence == 0
    assert ours.breaches == []
    assert ours.samples > ours.evictions
    mine, theirs = ours.runs[-1].violations, peer.runs[-1].violations
    assert hard(mine) <= hard(theirs)
    assert soft(mine) <= soft(theirs)
    # No plan fixes all this with fewer moves than the first run's bound says.
    assert ours.until_silence >= (ours.runs[0].lower_bound or 0) > 0


def test_silence_outlasts_the_memory_the_cool_downs_and_the_budgets(cluster, tmp_path):
    SCENARIOS["scale-down"](cluster, seed=0, nodes=9)
    ran = outlast(cluster, "scale-down, 0", tmp_path, runs=3, start=[str(program())])
    assert sum(ran.until) > 5, "the scenario left nothing to fix"
    assert ran.remembered > 0
    assert {phase.name: phase.evictions for phase in ran.phases} == {
        "memory kept": (0, 0, 0),
        "cool-downs expired": (0, 0, 0),
        "memory emptied": (0, 0, 0),
        "no memory, budgets lifted": (0, 0, 0),
    }
