"""Drains of Deployments that no eviction takes, by one restart of their rollout, in an embedded cluster."""

import io

import pytest

from rebalancer.embedded.apiserver.kinds import is_ready
from rebalancer.embedded.controllers.nodes import NEVER_READY
from rebalancer.kube.evict import RESTARTED_AT
from rebalancer.machines.drain import command as node_command
from rebalancer.machines.drain.preflight import ask_server
from rebalancer.testing.objects import deployment, pdb
from tests.support.clocks import LeapingClock, Once
from tests.support.worlds import embedded_nodes, rolling_update
from tests.unit.commands.draining import drain_until_done, drained, pods_on
from tests.unit.commands.ready import ReadyPods, let_be_ready

RESTART = ("method.unevictable=restart",)
# The threads of a process that was killed end, too.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def rolling(replicas=3, name="web", surge=1, unavailable=0, **more):
    made = deployment(name, replicas, **more)
    made["spec"]["strategy"] = rolling_update(surge, unavailable)
    return made


def closed(name="web"):
    return pdb(name, {"app": name}, maxUnavailable=0)


def start(cluster, *objects, on=("n1",)):
    """Have these run on some nodes only, under their budgets, and only then let the others take pods."""
    others = [name for name in ("n1", "n2", "n3") if name not in on]
    cluster.cordon(others)
    cluster.apply(*objects)
    cluster.settle()
    cluster.cordon(others, on=False)
    cluster.settle()


def restarts(cluster, name="web"):
    template = cluster.get("Deployment", name)["spec"]["template"]
    return template["metadata"].get("annotations", {}).get(RESTARTED_AT)


def sets_of(cluster, name="web"):
    return [
        one for one in cluster.objects("ReplicaSet") if one["metadata"]["name"].startswith(name)
    ]


def unready(cluster):
    pods = cluster.objects("Pod")
    return [pod["metadata"]["name"] for pod in pods if not is_ready(pod)]


def test_a_dry_run_names_the_pods_elsewhere_and_changes_nothing(three):
    start(three, rolling(), closed(), on=("n1", "n2"))
    (other, *_) = pods_on(three, "n2")
    text = drained(three, "n1", settings=RESTART, dry_run="client", output="table").out
    assert (
        "; by a restart of its rollout, which moves all pods of Deployment/default/web in turn,"
        " never fewer of them Ready" in text
    )
    assert f"with it default/{other} on n2 -> " in text
    for dry_run in ("client", "server"):
        report = drained(three, "n1", settings=RESTART, dry_run=dry_run).report
        pods = report["nodes"][0]["pods"]
        assert {pod["method"] for pod in pods} == {"restart"}
        also = {one["pod"]: one["from"] for pod in pods for one in pod["alsoRestarted"]}
        assert also == dict.fromkeys(pods_on(three, "n2"), "n2")
        assert (report["exitCode"], report["nodes"][0]["verdict"]) == (0, "drainable")
    assert restarts(three) is None


def test_a_pod_elsewhere_that_only_a_flag_lets_go_keeps_the_rollout_from_being_restarted(three):
    web = rolling()
    web["spec"]["template"]["spec"]["volumes"] = [{"name": "cache", "emptyDir": {}}]
    start(three, web, closed(), on=("n1", "n2"))
    done = drained(three, "n1", settings=RESTART)
    assert (done.code, done.verdicts) == (3, {"n1": "refused"})
    assert drained(three, "n1", settings=RESTART, delete_emptydir_data=True).code == 0


@pytest.mark.parametrize("more", [{"paused": True}, {"replicas": 4}])
def test_the_server_is_asked_about_the_deployment_as_it_is_then(three, more, monkeypatch):
    start(three, rolling(), closed())

    def changed(client, snapshot, checks):
        web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
        three.apply({**web, "spec": more})
        three.settle()
        return ask_server(client, snapshot, checks)

    monkeypatch.setattr(node_command, "ask_server", changed)
    done = drained(three, "n1", settings=RESTART, dry_run="server")
    assert (done.verdicts, done.codes) == ({"n1": "blocked"}, {"CannotSurge"})
    assert restarts(three) is None


def test_a_foreign_rollout_is_awaited_and_nothing_evicted_meanwhile(three):
    lame = rolling(2)
    start(three, lame, closed())
    stuck = rolling(2, pod_annotations={NEVER_READY: "true"})
    three.apply(stuck)
    three.settle()
    seen = ReadyPods(three, "web")
    err = io.StringIO()
    over = LeapingClock(Once(lambda: "stays until its rollout" in err.getvalue()))
    done = drained(three, "n1", settings=RESTART, timeout=600.0, clock=over, err=err)
    assert (done.code, done.verdicts, done.codes) == (4, {"n1": "waits"}, {"Rollout"})
    assert (done.report["outcomes"], restarts(three)) == ([], None)
    # Once it is mended the rollout that was under way has emptied the node, and none is restarted.
    for _ in range(2):
        for name in unready(three):
            let_be_ready(three, name)
    done = drained(three, "n1", settings=RESTART)
    assert (done.code, restarts(three)) == (0, None)
    assert seen.least == {"web": 2}


def test_a_drain_that_is_killed_after_any_write_restarts_no_rollout_twice(three, monkeypatch):
    start(three, rolling(), closed(), on=("n1", "n2"))
    seen = ReadyPods(three, "web")
    drain_until_done(monkeypatch, three, "n1", settings=RESTART, timeout=600.0)
    assert len(sets_of(three)) == 2
    assert not pods_on(three, "n1")
    assert seen.least == {"web": 3}


def test_without_a_landing_it_is_restarted_once_by_order_and_serves_until_there_is_room():
    with embedded_nodes("n1", "n2", cpu="1") as cluster:
        big = deployment("big", 1, cpu="900m", nodeSelector={"kubernetes.io/hostname": "n2"})
        cluster.apply(big)
        cluster.settle()
        cluster.apply(rolling(2, cpu="300m"), closed())
        cluster.settle()
        seen = ReadyPods(cluster, "web")
        assert drained(cluster, "n1", settings=RESTART).verdicts == {"n1": "no-room"}
        over = LeapingClock(Once(lambda: restarts(cluster) is not None))
        done = drained(
            cluster, "n1", settings=RESTART, without_landing=True, timeout=600.0, clock=over
        )
        assert (done.code, len(pods_on(cluster, "n1"))) == (4, 2)
        assert [one["outcome"] for one in done.report["outcomes"]] == ["restarted"] * 2
        cluster.add_node("n3", "zone-n3")
        cluster.settle()
        assert drained(cluster, "n1", settings=RESTART).code == 0
        assert seen.least == {"web": 2}
