"""Pods that have failed, from the API server to the report, on an embedded cluster."""

import io
import json
import threading
from contextlib import contextmanager

from rebalancer.base.environment import Environment
from rebalancer.cli import command
from rebalancer.commands.simulate import SimulateOptions, simulate
from rebalancer.commands.snapshot import save_snapshot
from rebalancer.embedded.apiserver.kinds import POD
from rebalancer.run.options import ClusterFlags
from rebalancer.testing.objects import EmbeddedCluster, deployment, pdb
from tests.support.worlds import FAST
from tests.unit.commands.embedded import ClusterClock, Runner

POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {minPodAge: 0s}
strategies:
  failed-pods: {minPodLifetime: 0s}
  duplicates: {}
"""


@contextmanager
def failed():
    """Three replicas on one of two nodes, and one that was evicted by its kubelet; its budget allows nothing."""
    with EmbeddedCluster(timings=FAST) as cluster:
        cluster.add_node("n-a", "a")
        cluster.settle()
        cluster.apply(deployment("web", 3))
        cluster.settle()
        with cluster.store.lock:
            cluster.store.modify(POD, cluster.store.items(POD, "default")[0], _fail)
        cluster.settle()
        cluster.add_node("n-b", "b")
        cluster.settle()
        yield cluster


def _fail(pod):
    ready = [{"type": "Ready", "status": "False"}]
    pod["status"] |= {"phase": "Failed", "reason": "Evicted", "conditions": ready}


def names(cluster, phase):
    return {
        pod["metadata"]["name"]
        for pod in cluster.objects("Pod", "default")
        if pod["status"]["phase"] == phase
    }


def test_a_run_removes_them_behind_its_moves_and_the_next_one_is_silent(tmp_path):
    with failed() as cluster:
        run = Runner(cluster, tmp_path, POLICY, clock=ClusterClock(cluster))
        (dead,) = names(cluster, "Failed")
        _, dry = run(dry_run=True)
        assert names(cluster, "Failed") == {dead}
        code, report = run()
        done = [(m["strategy"], m["outcome"], m["wave"]) for m in report["moves"]]
        assert (code, done) == (0, [("duplicates", "evicted", 1), ("failed-pods", "evicted", 2)])
        last = report["moves"][-1]
        assert (last["pod"], last["landings"]) == (dead, [])
        assert [m["pod"] for m in dry["moves"]][-1] == dead
        cluster.settle()
        assert names(cluster, "Failed") == set()
        assert len(names(cluster, "Running")) == 3
        code, report = run()
        assert (code, report["moves"], report["stopped"]) == (
            0,
            [],
            "Nothing to do: every rule holds.",
        )


def test_a_budget_that_allows_nothing_does_not_hold_them(tmp_path):
    with failed() as cluster:
        cluster.apply(pdb("web", {"app": "web"}, minAvailable=3))
        cluster.settle()
        code, report = Runner(cluster, tmp_path, POLICY, clock=ClusterClock(cluster))()
        done = [(m["strategy"], m["outcome"]) for m in report["moves"]]
        assert (code, done) == (0, [("failed-pods", "evicted")])
        assert names(cluster, "Failed") == set()


def test_one_that_opts_out_after_the_plan_stays(tmp_path):
    with failed() as cluster:
        run = Runner(cluster, tmp_path, POLICY, clock=ClusterClock(cluster))
        path, _ = run.planned()
        with cluster.store.lock:
            (pod,) = [
                one
                for one in cluster.store.items(POD, "default")
                if one["status"]["phase"] == "Failed"
            ]
            cluster.store.modify(
                POD,
                pod,
                lambda new: new["metadata"].update(annotations={"rebalancer/evict": "false"}),
            )
        code, report = run(plan_path=path)
        done = {m["strategy"]: m["outcome"] for m in report["moves"]}
        assert (code, done) == (0, {"duplicates": "evicted", "failed-pods": "dropped"})
        assert len(names(cluster, "Failed")) == 1


def test_a_reviewed_plan_is_applied(tmp_path):
    with failed() as cluster:
        run = Runner(cluster, tmp_path, POLICY, clock=ClusterClock(cluster))
        path, _ = run.planned()
        code, report = run(plan_path=path)
        done = {m["strategy"]: m["outcome"] for m in report["moves"]}
        assert (code, done) == (0, {"duplicates": "evicted", "failed-pods": "evicted"})
        assert names(cluster, "Failed") == set()


def environment(clock):
    return Environment(clock, {}, io.StringIO(), io.StringIO(), threading.Event())


def test_a_snapshot_holds_them_if_asked_and_simulations_remove_them(tmp_path):
    with failed() as cluster:
        clock = ClusterClock(cluster)
        run = Runner(cluster, tmp_path, POLICY, clock=clock)
        access = ClusterFlags(kubeconfig=str(cluster.kubeconfig))
        planned = {}
        for finished in (False, True):
            path = str(tmp_path / f"{finished}.zip")
            save_snapshot(access, path, environment(clock), finished=finished)
            _, report = run(snapshot_path=path, kubeconfig=None, dry_run=True)
            planned[finished] = [move["strategy"] for move in report["moves"]]
        assert planned == {False: ["duplicates"], True: ["duplicates", "failed-pods"]}
        out = environment(clock)
        options = SimulateOptions.of(
            snapshot_path=path, policy_path=str(run.policy), cycles=3, output="json"
        )
        simulate(options, out, io.BytesIO())
        assert '"evictions":2' in out.out.getvalue().replace(" ", "")


def judged(run, path):
    """What a plan on a file says of the rule: whether it is judged, and how many pods are unmet."""
    _, report = run(snapshot_path=str(path), kubeconfig=None, dry_run=True)
    score = report["before"]["failed-pods"]
    return not score["notJudged"], score["violated"]


def test_a_file_without_pods_that_have_ended_says_nothing_of_them(tmp_path):
    """``holds`` would be said of a rule on which nothing is known."""
    with failed() as cluster:
        clock = ClusterClock(cluster)
        run = Runner(cluster, tmp_path, POLICY, clock=clock)
        access = ClusterFlags(kubeconfig=str(cluster.kubeconfig))
        without, with_them = tmp_path / "without.zip", tmp_path / "with.zip"
        save_snapshot(access, str(without), environment(clock), finished=False)
        save_snapshot(access, str(with_them), environment(clock), finished=True)
        assert judged(run, without) == (False, 0)
        assert judged(run, with_them) == (True, 1)
        # As kubectl prints them, and none has ended: that is known.
        kinds = {"Node": cluster.objects("Node"), "Pod": cluster.objects("Pod", "default")}
        items = [{"kind": kind, **one} for kind, of in kinds.items() for one in of]
        living = [one for one in items if one["status"].get("phase") != "Failed"]
        printed = tmp_path / "printed.json"
        printed.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": living}))
        assert judged(run, printed) == (True, 0)


def test_explain_pod_knows_pods_that_have_ended(tmp_path, capsys):
    policy = tmp_path / "policy.yaml"
    with failed() as cluster:
        (dead,) = names(cluster, "Failed")
        flags = [f"--kubeconfig={cluster.kubeconfig}", f"--policy={policy}"]

        def explained(text, *more):
            policy.write_text(text)
            code = command(["explain", "pod", dead, *flags, *more])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        code, said = explained(POLICY)
        assert code == 0
        assert f"default/{dead} has ended: Failed (Evicted), on n-a" in said
        assert "the plan removes it in wave 2 (failed-pods)" in said
        report = json.loads(explained(POLICY, "-o", "json")[1])
        assert (report["kind"], report["phase"]) == ("PodExplanation", "Failed")
        assert report["plan"]["move"]["pod"] == dead
        _, said = explained(POLICY.replace("minPodLifetime: 0s", "minPodLifetime: 9h"))
        assert "it stays: no strategy asks for it" in said
        _, said = explained(POLICY, "--set=protect.pods=[{namespaces: [default]}]")
        assert "it stays: Protected: pods: named by protect.pods" in said
        code, said = explained(POLICY.replace("  failed-pods: {minPodLifetime: 0s}\n", ""))
        assert code == 2
        assert "there is no such pod, or it has ended" in said
