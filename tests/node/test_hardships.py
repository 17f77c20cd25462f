"""What happens to real pods: killed for their memory, at their deadline, by a drain of their own node, two at once."""

import pytest

from tests.controlplane import operations, wait_until
from tests.e2e import crowd
from tests.node.node import NAME

APPS = 10
NEVER = "0 0 29 2 *"


@pytest.fixture
def crowded(ground):
    """Ten apps that want one slow move each, and the chart without a schedule."""
    ground.keep_others_away()
    crowd.gather(ground.plane, APPS, ready_after="2s")
    yield ground
    ground.clear()


def install(ground, **more):
    policy = {"protect": {"minPodAge": "0s"}, **crowd.SLOWLY}
    ground.release().install(ground.values(schedule=NEVER, policy=policy, **more))


def moving(ground, job, spec=None, **container):
    """Start a run and wait until it is in the middle of its moves."""
    ground.start_job(job, spec, **container)
    wait_until(lambda: crowd.moved(ground.plane), 40, "the first move")


def finish(ground, watcher):
    """Whatever happened before: the next runs fix the rest, and no budget was broken.

    One alone may not: after a run that its deadline cut off in a wave, it plans no more than it could do at that pace.
    """
    for run in ("the-next-run", "the-run-after-it"):
        crowd.settle(ground.plane, APPS)
        free_lease(ground)
        ground.start_job(run)
        pod = ground.wait_finished(run, 90)
        assert pod["status"]["phase"] == "Succeeded", ground.log(pod)
        if crowd.moved(ground.plane) == APPS:
            break
    assert crowd.moved(ground.plane) == APPS
    assert watcher.samples > APPS
    assert not watcher.broken


def free_lease(ground):
    (lease,) = ground.api.list_all("/apis/coordination.k8s.io/v1/namespaces/rebalancing/leases")
    path = f"/apis/coordination.k8s.io/v1/namespaces/rebalancing/leases/{lease['metadata']['name']}"
    ground.api.patch(path, {"spec": None})


def terminated(pod):
    (status,) = pod["status"]["containerStatuses"]
    return status["state"]["terminated"]


def test_its_deadline_ends_it_in_good_order(crowded):
    install(crowded, runDeadlineSeconds=20, activeDeadlineSeconds=60)
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        with crowd.standing_still(crowded.plane):
            moving(crowded, "short")
            pod = crowded.wait_finished("short")
            log = crowded.log(pod)
        assert crowd.moved(crowded.plane) == 1
        assert "deadline" in log or "not ready yet" in log
        install_again(crowded)
        finish(crowded, watcher)


def install_again(ground):
    policy = {"protect": {"minPodAge": "0s"}, **crowd.SLOWLY}
    ground.release().upgrade(ground.values(schedule=NEVER, policy=policy))


def test_the_jobs_deadline_stops_it_by_a_signal_and_it_reports(crowded):
    install(crowded)
    # Only the Job's own deadline is to strike, not the run's.
    arguments = [arg for arg in container(crowded)["args"] if "--deadline" not in arg]
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        with crowd.standing_still(crowded.plane):
            moving(crowded, "stopped", {"activeDeadlineSeconds": 600}, args=arguments)
            with crowded.following(crowded.pod_of("stopped")) as log:
                path = "/apis/batch/v1/namespaces/rebalancing/jobs/stopped"
                crowded.api.patch(path, {"spec": {"activeDeadlineSeconds": 1}})
                assert "stopped by a signal" in log()
        assert crowd.moved(crowded.plane) == 1
        finish(crowded, watcher)


def container(ground):
    (cron_job,) = ground.api.list_all("/apis/batch/v1/namespaces/rebalancing/cronjobs")
    (only,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return only


def test_killed_for_its_memory_the_next_run_goes_on(crowded):
    # Less than the interpreter with its libraries needs: killed before it has done anything.
    install(crowded, resources={"requests": {"memory": "40Mi"}, "limits": {"memory": "40Mi"}})
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        crowded.start_job("starved")
        pod = crowded.wait_finished("starved")
        assert terminated(pod)["reason"] == "OOMKilled"
        assert terminated(pod)["exitCode"] == 137
        install_again(crowded)
        finish(crowded, watcher)


GREEDY = """
import sys, threading
from rebalancer.cli import command
evicted = threading.Event()
class Listening:
    def write(self, text):
        if " evicted " in text:
            evicted.set()
        return sys.__stderr__.write(text)
    def __getattr__(self, name):
        return getattr(sys.__stderr__, name)
def take_all():
    evicted.wait()
    taken = []
    while True:
        taken.append(b"x" * 2**20)
threading.Thread(target=take_all, daemon=True).start()
sys.stderr = Listening()
sys.exit(command(sys.argv[1:]))
"""
"""The product, in a process that takes all the memory there is as soon as the first eviction is reported."""


def test_killed_for_its_memory_after_an_eviction_the_next_run_goes_on(crowded):
    install(crowded)
    arguments = ["-I", "-c", GREEDY, *container(crowded)["args"]]
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        crowded.start_job("greedy", command=["/usr/local/bin/python3"], args=arguments)
        pod = crowded.wait_finished("greedy")
        log = crowded.log(pod)
        assert terminated(pod)["reason"] == "OOMKilled", log
        assert " evicted " in log
        crowd.settle(crowded.plane, APPS)
        assert 0 < crowd.moved(crowded.plane) < APPS, log
        finish(crowded, watcher)


def test_a_drain_of_its_own_node_ends_it_in_good_order(crowded):
    install(crowded)
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        with crowd.standing_still(crowded.plane):
            moving(crowded, "drained")
            pod = crowded.pod_of("drained")
            operations.cordon(crowded.api, [NAME])
            with crowded.following(pod) as log:
                operations.evict(crowded.api, "rebalancing", pod["metadata"]["name"])
                assert "stopped by a signal" in log()
        assert crowd.moved(crowded.plane) == 1
        operations.cordon(crowded.api, [NAME], on=False)
        finish(crowded, watcher)


def test_killed_outright_the_next_run_goes_on(crowded):
    install(crowded)
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        with crowd.standing_still(crowded.plane):
            moving(crowded, "killed")
            pod = crowded.pod_of("killed")
            (status,) = pod["status"]["containerStatuses"]
            container = status["containerID"].removeprefix("containerd://")
            crowded.node.containerd.ctr("tasks", "kill", "--signal=SIGKILL", container)
            ended = crowded.wait_finished("killed")
        assert terminated(ended)["exitCode"] == 137
        assert crowd.moved(crowded.plane) == 1
        finish(crowded, watcher)


def test_a_second_pod_leaves_at_once(crowded):
    install(crowded)
    with crowd.BudgetWatcher(crowded.plane) as watcher:
        with crowd.standing_still(crowded.plane):
            moving(crowded, "first")
            crowded.start_job("second")
            # The first run cannot end now: who waited for it would not end either.
            second = crowded.wait_finished("second")
            assert crowded.pod_of("first")["status"]["phase"] == "Running"
        assert second["status"]["phase"] == "Succeeded"
        assert "holds the Lease until" in crowded.log(second)
        first = crowded.wait_finished("first", 90)
        assert first["status"]["phase"] == "Succeeded", crowded.log(first)
        assert crowd.moved(crowded.plane) == APPS
        finish(crowded, watcher)
