"""By measured use, run after run: the third in a row moves pods, and then there is silence."""

import json

import numpy as np
import pytest

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.cli import command
from rebalancer.cost.streaks import Streaks
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import History, RunRules
from rebalancer.policy.load import load_policy
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import disruption_budget, node, workload
from rebalancer.whatif.world import set_measured_at
from tests.unit.snapshot.measurements import node_metrics, pod_metrics
from tests.unit.whatif.play import REGISTRY, evictions, play

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
budgets: {{inFlight: 100, perOwner: 100%, perNode: 100}}
strategies: {{low-utilisation: {{signal: {signal}, runs: {runs}}}}}
"""


@pytest.fixture
def policy(tmp_path):
    """The path of a policy by usage, as asked for."""

    def written(signal="usage", runs=3):
        path = tmp_path / f"{signal}-{runs}.yaml"
        path.write_text(POLICY.format(signal=signal, runs=runs))
        return str(path)

    return written


def hot(*counts):
    """Nodes of 4 cpu with so many pods each that use a tenth of it, and request a quarter of that."""
    objects = [node(f"n{i}", memory="64Gi") for i in range(len(counts))]
    objects += [
        node_metrics(f"n{i}", f"{400 * count + 40}m", "1Gi") for i, count in enumerate(counts)
    ]
    homes = [f"n{i}" for i, count in enumerate(counts) for _ in range(count)]
    for k in range(0, len(homes), 2):
        objects += workload(f"w{k}", homes[k : k + 2], memory="16Mi")
        objects += [
            pod_metrics(f"w{k}-{i}", ("400m", "64Mi")) for i in range(len(homes[k : k + 2]))
        ]
    return objects


def per_node(world):
    return np.bincount(world.node, minlength=len(world.snapshot.nodes)).tolist()


def test_the_third_run_in_a_row_moves_and_then_it_is_silent(policy):
    world, course = play(hot(8, 8, 0), path=policy())
    # 81 %, 81 % and 1 %: until none is 30 points above the emptiest, or none is above 50 %.
    assert evictions(course) == [0, 0, 4, 0]
    assert sorted(per_node(world)) == [4, 6, 6]
    assert course.silent is not None
    assert (course.later, course.warnings) == (0, ())
    assert course.cycles[0].stopped.startswith("Nothing can be gained yet")
    assert sum(cycle.idle for cycle in course.cycles) == 0


@pytest.mark.parametrize(("runs", "expected"), [(1, [4, 0]), (2, [0, 4, 0]), (5, [0] * 4 + [4, 0])])
def test_it_moves_in_the_run_that_the_policy_names(policy, runs, expected):
    _, course = play(hot(8, 8, 0), path=policy(runs=runs))
    assert evictions(course) == expected


@pytest.mark.parametrize("signal", ["usage", "larger"])
@pytest.mark.parametrize("seed", range(3))
def test_once_it_is_balanced_twenty_runs_that_lack_nothing_plan_nothing(policy, signal, seed):
    random = np.random.default_rng(seed)
    world, course = play(hot(9, 6, 1, 0), path=policy(signal), random=random)
    assert sum(evictions(course)) > 0
    rules = RunRules(load_policy(policy(signal), REGISTRY), REGISTRY, Scope())
    for _ in range(20):
        world.wait(120)
        snapshot = set_measured_at(world.snapshot, world.now)
        lasting = Streaks(0.0, dict.fromkeys(snapshot.nodes.names, 100))
        history = History(streaks={"low-utilisation": lasting})
        assert make_plan(rules, snapshot, Timings(SystemClock()), history=history).plan.moves == ()


def test_what_a_budget_holds_back_goes_on_in_the_next_run(tmp_path):
    path = tmp_path / "policy.yaml"
    text = POLICY.format(signal="usage", runs=3)
    path.write_text(text.replace("budgets: {", "budgets: {perRun: 2, "))
    _, course = play(hot(8, 8, 0), path=str(path))
    assert evictions(course) == [0, 0, 2, 2, 0]


def test_what_may_not_go_is_waited_for_without_end(policy):
    stuck = [disruption_budget(f"b{k}", f"w{k}", allowed=0) for k in range(0, 16, 2)]
    _, course = play([*hot(8, 8, 0), *stuck], path=policy())
    assert sum(evictions(course)) == 0
    assert course.silent is not None
    assert "PodDisruptionBudget" in course.silent


def test_without_memory_it_never_lasts_and_the_report_says_so(policy):
    _, course = play(hot(8, 8, 0), path=policy(), memory=False)
    assert evictions(course) == [0]
    (line,) = course.warnings
    assert "earlier runs are not known" in line
    _, course = play(hot(8, 8, 0), path=policy(runs=1), memory=False)
    assert evictions(course) == [4, 0]


def written(tmp_path, objects):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return f"--snapshot={path}"


def test_a_node_that_joins_is_taken_to_be_measured(policy, tmp_path, capsys):
    file = written(tmp_path, hot(8, 8))
    args = ["simulate", file, f"--policy={policy()}", "-o", "json", "--add-node=n9:like=n0"]
    assert command(args) == 0
    data = json.loads(capsys.readouterr().out)
    assert [cycle["evictions"] for cycle in data["cycles"]] == [0, 0, 4, 0]
    assert {move["landed"] for cycle in data["cycles"] for move in cycle["moves"]} == {"n9"}
    assert not any("usage" in line for line in data["warnings"])


@pytest.mark.parametrize("name", ["run", "simulate"])
def test_a_file_without_measurements_is_no_ground_to_plan_on_and_that_is_said(
    policy, tmp_path, capsys, name
):
    objects = [item for item in hot(8, 8, 0) if not item["kind"].endswith("Metrics")]
    assert command([name, written(tmp_path, objects), f"--policy={policy()}"]) == 0
    assert "Warning: low-utilisation: with signal: usage nothing is moved" in " ".join(
        capsys.readouterr().out.split()
    )


def test_one_run_on_a_file_says_that_it_remembers_none(policy, tmp_path, capsys):
    file = written(tmp_path, hot(8, 0))
    assert command(["run", file, f"--policy={policy()}", "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["moves"], report["funnel"]["TooFewRuns"]) == ([], 8)
    assert "or set runs: 1" in report["warnings"][0]
    assert command(["run", file, f"--policy={policy(runs=1)}", "-o", "json"]) == 0
    moves = json.loads(capsys.readouterr().out)["moves"]
    # 81 % to 51 %, which the other, at 31 % then, is not 30 points below.
    assert len(moves) == 3
    assert moves[0]["reason"] == "node n0: cpu 81% used (over 50%)"


def test_explain_has_no_use_for_what_is_used(policy, tmp_path, capsys):
    file = written(tmp_path, hot(8, 0))
    assert command(["explain", "pod", "default/w0-0", file, f"--policy={policy()}"]) == 0
    assert " 100%  n1" in capsys.readouterr().out
