"""A process that serves: it lists once, plans when it should, leads alone, and ends cleanly."""

import json
import re
from functools import partial

import pytest

from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.embedded import manifests
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.kube import transport
from rebalancer.kube.cache import RunView
from rebalancer.kube.client import connect
from rebalancer.kube.read import read_cluster
from rebalancer.serve import triggers
from rebalancer.testing.objects import EmbeddedCluster, deployment, prefer_apart
from rebalancer.wire.kinds import AUTOSCALERS, LISTED
from tests.same import contents
from tests.unit.commands.embedded import MEMORY, NOW_POLICY, Runner, third_zone_joined
from tests.unit.commands.serving import LEASE, Served, serving, soon
from tests.unit.run import test_failed_pods

LEASE_OBJECT = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "lease"},
}


@pytest.fixture
def cluster():
    with third_zone_joined("web", "api") as made:
        made.apply(LEASE_OBJECT)
        yield made


def on(cluster: EmbeddedCluster, node: str) -> int:
    pods = cluster.objects("Pod", "default")
    return sum(pod["spec"].get("nodeName") == node for pod in pods)


def holder(cluster: EmbeddedCluster) -> str:
    return str(cluster.get("Lease", "lease").get("spec", {}).get("holderIdentity") or "")


def test_it_acts_at_once_and_lists_nothing_again(cluster, tmp_path):
    with serving(cluster, tmp_path, every=0.2, lease=LEASE, memory=MEMORY) as served:
        served.await_runs(1)
        assert on(cluster, "n-c") == 2
        report = json.loads(served.out.getvalue())
        assert [move["outcome"] for move in report["moves"]] == ["evicted"] * 2
        soon(lambda: len(cluster.objects("Pod", "default")) == 6)
        served.await_runs(served.health.runs + 3)
        lists = [f"GET {resource.path()}" for resource in LISTED]
        # Lists and watches have one path: one of each, and no list of a later run.
        asked = [line for line in cluster.faults.requests if line in lists]
        assert {line: asked.count(line) for line in lists} == dict.fromkeys(lists, 2)
        assert served.end() is ExitCode.DONE
    # The runs that had nothing to do printed one line each.
    assert json.loads(served.out.getvalue()) == report
    idle = [line for line in served.err.getvalue().splitlines() if "nothing to do on 3" in line]
    assert len(idle) >= 3
    # Each says when, and of which run it is.
    begins = [re.match(r"\d{4}-\S+Z  run (\d+) +\d+\.\d s  ", line) for line in idle]
    numbers = [int(begin[1]) if begin else -1 for begin in begins]
    assert numbers == sorted(set(numbers))
    assert holder(cluster) == ""


def test_what_each_run_sees_is_what_would_be_read(cluster, tmp_path):
    client = connect(kubeconfig=cluster.kubeconfig, environ={})
    with serving(cluster, tmp_path, every=0.1, policy=NOW_POLICY + "mode: observe\n") as served:
        served.await_runs(1)
        for change in (
            lambda: cluster.remove_node("n-b"),
            lambda: cluster.apply(deployment("more", 5, labels={"app": "more"})),
            lambda: cluster.apply(manifests.pdb("more", {"app": "more"}, minAvailable=1)),
            cluster.forget_history,
            lambda: cluster.add_node("n-d", "d"),
        ):
            change()
            cluster.settle()

            def same():
                assert served.error is None
                assert served.health.cache is not None
                cache = served.health.cache
                seen = RunView(cache, cache.first, client.monotonic()).snapshot(())
                fresh = read_cluster(client, clock=cluster.clock.now).snapshot
                return contents(seen) == contents(fresh)

            soon(same)


def test_a_node_that_comes_or_speaks_calls_for_a_run(cluster, tmp_path):
    with serving(cluster, tmp_path) as served:
        served.await_runs(1)
        cluster.apply(
            deployment("db", 4, labels={"app": "db"}, affinity=prefer_apart({"app": "db"}))
        )
        cluster.settle()
        cluster.add_node("n-d", "d")
        served.await_runs(2)
        assert "node n-d was added: planning now" in served.err.getvalue()
        cluster.cordon(["n-d"])
        served.await_runs(3)
        assert "node n-d was cordoned: planning now" in served.err.getvalue()


def test_a_notice_is_not_lost_with_a_run_that_fails(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(triggers, "GAP", 0.1)
    with serving(cluster, tmp_path) as served:
        served.await_runs(1)
        cluster.faults.add(Fault(path="^/version$", status=403))
        cluster.cordon(["n-b"])
        served.await_runs(3)
        assert served.err.getvalue().count("node n-b was cordoned: planning now") == 2
        assert served.health.failed is None


@pytest.fixture
def quickly(monkeypatch):
    """Have streams end after a second, believe the first refusal, and try again soon."""
    follow = transport.FollowLimits(1.0, refusals=0, first_relist=0.1, longest_relist=0.1)
    monkeypatch.setattr(transport, "Limits", partial(transport.Limits, follow=follow))
    monkeypatch.setattr(triggers, "GAP", 0.1)


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("status", [401, 410])
def test_a_node_that_is_cordoned_after_a_refused_watch_triggers_a_run(cluster, tmp_path, status):
    with serving(cluster, tmp_path) as served:
        served.await_runs(1)
        refused = cluster.faults.add(Fault("GET", "/api/v1/nodes$", status=status))
        soon(lambda: refused.times == 0)
        cluster.cordon(["n-b"])

        def knows():
            assert served.health.cache is not None
            return served.health.cache.first.nodes.unschedulable.any()

        soon(knows)
        soon(lambda: served.health.paths()["/healthz"]().body == b"ok\n")


@pytest.mark.usefixtures("quickly")
def test_a_list_that_is_not_followed_is_said_once_and_shown_while_it_lasts(cluster, tmp_path):
    with serving(cluster, tmp_path) as served:
        served.await_runs(1)
        cluster.access.denied |= {("watch", "nodes"), ("list", "nodes")}
        said = "changes of nodes are not received (our account may not watch them)"
        soon(lambda: said in served.err.getvalue())
        paths = served.health.paths()
        for path, begins in (("/healthz", "ok, but "), ("/readyz", "leads, but ")):
            answer = paths[path]()
            assert answer.status == 200
            assert answer.body.decode().startswith(f"{begins}changes of nodes are not received for")
        assert "rebalancer_watches_refused 1.0" in paths["/metrics"]().body.decode()
        assert "hanges of nodes" in json.loads(paths["/state"]().body)["troubles"][-1]
        cluster.access.denied.clear()
        soon(lambda: paths["/healthz"]().body == b"ok\n")
        assert "rebalancer_watches_refused 0.0" in paths["/metrics"]().body.decode()
        assert served.end() is ExitCode.DONE


def test_what_cannot_read_the_lease_is_at_work_all_the_same(cluster, tmp_path):
    cluster.faults.add(Fault(path="/leases/", status=400, times=10**6))
    with serving(cluster, tmp_path, lease=LEASE) as served:
        soon(lambda: "it is tried again" in served.err.getvalue())
        served.health.seen = -1e9
        soon(lambda: served.health.problem() is None)
        assert not served.health.leads


def test_a_policy_that_becomes_wrong_is_named_and_the_old_one_stays(cluster, tmp_path):
    with serving(cluster, tmp_path, every=0.2, policy=NOW_POLICY + "mode: observe\n") as served:
        served.await_runs(1)
        path = tmp_path / "policy.yaml"
        # As a mounted ConfigMap changes: at once, so that no reader sees a part of it.
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text(NOW_POLICY + "moed: enforce\n")
        wrong.replace(path)
        soon(lambda: "the one that was read before stays in force" in served.err.getvalue())
        assert "moed" in served.err.getvalue()
        assert on(cluster, "n-c") == 0
        wrong.write_text(NOW_POLICY)
        wrong.replace(path)
        soon(lambda: on(cluster, "n-c") == 2)
        assert served.end() is ExitCode.DONE


def test_a_policy_that_asks_for_more_than_is_followed_is_given_it(tmp_path):
    without = test_failed_pods.POLICY.replace("  failed-pods: {minPodLifetime: 0s}\n", "")
    with (
        test_failed_pods.failed() as cluster,
        serving(cluster, tmp_path, every=0.2, policy=without) as served,
    ):
        served.await_runs(1)
        assert len(test_failed_pods.names(cluster, "Failed")) == 1
        (tmp_path / "policy.yaml").write_text(test_failed_pods.POLICY)
        soon(lambda: not test_failed_pods.names(cluster, "Failed"))
        assert served.end() is ExitCode.DONE


SCHEDULER = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {score: {enabled: [{name: %s}]}}
"""


@pytest.mark.parametrize("where", ["file", "ConfigMap"])
def test_the_next_run_has_the_schedulers_configuration_as_it_is_now(cluster, tmp_path, where):
    def configure(plugin):
        text = SCHEDULER % plugin
        if where == "file":
            (tmp_path / "scheduler.yaml").write_text(text)
            return
        meta = {"metadata": {"name": "of-scheduler"}, "data": {"config.yaml": text}}
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **meta})

    configure("ByMoonPhase")
    named = "scheduler.yaml" if where == "file" else "{configMap: default/of-scheduler}"
    policy = f"{NOW_POLICY}mode: observe\nscheduler: {{fromConfig: {named}}}\n"
    with serving(cluster, tmp_path, every=0.2, policy=policy) as served:
        soon(lambda: "ByMoonPhase" in served.err.getvalue(), served.err.getvalue)
        configure("ByTides")
        soon(lambda: "ByTides" in served.err.getvalue(), served.err.getvalue)
        assert served.end() is ExitCode.DONE


def test_a_run_is_due_from_the_beginning_of_the_last_one(cluster, tmp_path):
    asked = []

    def schedule(begun):
        asked.append(len(cluster.faults.requests))
        return 0.1

    cluster.faults.add(Fault(path="^/version$", skip=1, delay=0.5))
    with serving(cluster, tmp_path, schedule, policy=NOW_POLICY + "mode: observe\n") as served:
        served.await_runs(3)
    # Asked once for a run, before it sends its first request.
    assert len(asked) in (served.health.runs, served.health.runs + 1)
    assert asked[1] > asked[0]


def test_a_policy_that_asks_for_autoscalers_has_them_followed(cluster, tmp_path):
    lists = f"GET {AUTOSCALERS.path()}"
    with serving(cluster, tmp_path, every=0.2, policy=NOW_POLICY) as served:
        served.await_runs(1)
        assert lists not in cluster.faults.requests
        (tmp_path / "policy.yaml").write_text(
            NOW_POLICY.replace("protect: {", "protect: {afterScaling: 10m, ")
        )
        soon(lambda: cluster.faults.requests.count(lists) == 2)  # a list and a watch
        served.await_runs(served.health.runs + 3)
        assert cluster.faults.requests.count(lists) == 2
        assert served.health.failed is None


def test_a_policy_that_is_wrong_from_the_beginning_ends_it(cluster, tmp_path):
    (tmp_path / "policy.yaml").write_text("moed: enforce\n")
    with pytest.raises(PolicyError, match="moed"):
        Served(cluster, tmp_path / "policy.yaml", 1.0)


def test_without_its_lease_it_does_not_begin(cluster, tmp_path):
    with serving(cluster, tmp_path, lease="default/none") as served:
        soon(lambda: served.error is not None)
        assert isinstance(served.error, ClusterReadError)
        assert "there is no Lease default/none" in str(served.error)


def test_without_its_memory_it_does_not_begin(cluster, tmp_path):
    """As a run: with readiness it would pass for one that works, and evict nothing for ever."""
    with serving(cluster, tmp_path, lease=LEASE, memory="default/none") as served:
        soon(lambda: served.error is not None)
        assert isinstance(served.error, ClusterReadError)
        assert "there is no ConfigMap default/none: create it" in str(served.error)
    assert not served.health.leads
    assert holder(cluster) == ""


def test_a_memory_that_is_gone_later_ends_nothing(cluster, tmp_path):
    with serving(cluster, tmp_path, every=0.2, memory=MEMORY) as served:
        served.await_runs(1)
        cluster.faults.add(Fault("GET", "/configmaps/", status=404, times=10**6))
        soon(lambda: served.health.failed is ExitCode.UNREADABLE)
        cluster.faults.clear()
        soon(lambda: served.health.failed is None)
        assert served.err.getvalue().count("there is no ConfigMap") == 1


@pytest.mark.usefixtures("quick_retries")
def test_a_memory_that_cannot_be_read_at_the_start_is_tried_again(cluster, tmp_path):
    cluster.faults.add(Fault("GET", "/configmaps/", status=500, times=10**6))
    with serving(cluster, tmp_path, every=0.2, memory=MEMORY) as served:
        served.await_runs(1)
        assert on(cluster, "n-c") == 0
        cluster.faults.clear()
        soon(lambda: on(cluster, "n-c") == 2)


def test_a_second_one_stands_by_reads_nothing_and_takes_over(cluster, tmp_path):
    with serving(cluster, tmp_path, every=0.2, lease=LEASE) as first:
        first.await_runs(1)
        led = holder(cluster)
        with serving(cluster, tmp_path, every=0.2, lease=LEASE) as second:
            soon(lambda: second.health.stands_by)
            assert second.health.cache is None
            code, report = Runner(cluster, tmp_path)(lease=LEASE)
            assert (code, report["heldBy"]["holder"]) == (ExitCode.DONE, led)
            assert first.end() is ExitCode.DONE
            second.await_runs(1)
            assert holder(cluster) not in ("", led)


@pytest.mark.usefixtures("quick_retries")
def test_a_server_that_fails_for_a_while_ends_nothing(cluster, tmp_path):
    with serving(cluster, tmp_path, every=0.2, lease=LEASE) as served:
        served.await_runs(1)
        cluster.faults.add(Fault(status=500, times=10**6))
        soon(lambda: served.health.failed is not None or not served.health.leads)
        cluster.faults.clear()
        cluster.apply(
            deployment("db", 3, labels={"app": "db"}, affinity=prefer_apart({"app": "db"}))
        )
        cluster.settle()
        runs = served.health.runs
        served.await_runs(runs + 2)
        assert served.health.failed is None
        assert served.end() is ExitCode.DONE
        assert holder(cluster) == ""


def test_a_signal_during_a_run_ends_it_in_good_order(cluster, tmp_path):
    with serving(cluster, tmp_path, lease=LEASE, memory=MEMORY) as served:
        soon(lambda: cluster.faults.count_seen("POST", "/eviction$") > 0)
        assert served.end() is ExitCode.DONE
        report = json.loads(served.out.getvalue())
        reported = sum(move["outcome"] in ("evicted", "lost") for move in report["moves"])
        assert reported == cluster.faults.count_seen("POST", "/eviction$")
        assert holder(cluster) == ""
        evicted = re.findall(r"evicted  default/", served.err.getvalue())
        assert len(evicted) == reported
