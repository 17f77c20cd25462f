"""The course of a drain, step by step, with steps that answer by a script."""

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.base.stop import Stop
from rebalancer.kube.failures import ForbiddenError
from rebalancer.kube.node_pods import is_missing, read_node_pods
from rebalancer.kube.resources import AccessRule
from rebalancer.machines.drain.draining import empty
from rebalancer.machines.drain.remaining import RemainingPods, list_remaining
from rebalancer.machines.drain.triage import Orders
from rebalancer.node_record.tasks import carry_out
from rebalancer.wire.objects import LabelSelector, LabelSelectorRequirement
from rebalancer.wire.times import rfc3339
from tests.support.clocks import HandClock
from tests.unit.kube.scripted import Say, ScriptedServer, client_of, status_body

NOTHING = RemainingPods()
WORK = RemainingPods(to_evict=("n1: default/web",))
BATCH = RemainingPods(batch=("n1: default/sums",))
UNREAD = RemainingPods(unread=("n1: default/sums (finalizer x)",))
REFUSED = RemainingPods(refused=("n1: default/alone",))


class Waiting(Stop):
    """A stop whose waits pass at once, by its clock."""

    def __init__(self, clock, deadline=float("inf")):
        super().__init__(clock, deadline)
        self.clock, self.waits = clock, []

    def wait(self, seconds):
        self.waits.append(seconds)
        self.clock.seconds += seconds
        return self.reason()


class Steps:
    def __init__(self, looks, evictions=(), evicts_batch=False):
        self.looks, self.evictions, self.last = iter(looks), iter(evictions), NOTHING
        self.evicts_batch, self.evicted = evicts_batch, 0

    def look(self):
        self.last = answer = next(self.looks, self.last)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def evict(self):
        self.evicted += 1
        return next(self.evictions, None)

    def end_of_batch(self):
        return self.evicts_batch

    def report_remaining(self, left, why):
        pass


def run(steps, batch_until=1e9, deadline=float("inf")):
    stop = Waiting(HandClock(), deadline)
    return carry_out(empty(steps, stop, batch_until), stop), stop


def test_it_evicts_until_nothing_is_left():
    steps = Steps([WORK, WORK, NOTHING])
    why, stop = run(steps)
    assert (why, steps.evicted, stop.waits) == (None, 2, [1.0, 1.0])


def test_rounds_that_cannot_go_on_are_waited_for_longer_and_longer():
    why, stop = run(Steps([WORK] * 5 + [NOTHING], ["a budget"] * 4))
    assert why is None
    assert stop.waits == [5.0, 10.0, 20.0, 30.0, 1.0]


@pytest.mark.parametrize("left", [BATCH, UNREAD])
def test_work_is_waited_for_without_an_eviction(left):
    steps = Steps([left, left, NOTHING])
    why, stop = run(steps)
    assert (why, steps.evicted, stop.waits) == (None, 0, [5.0, 5.0])


def test_work_that_does_not_end_in_time_is_named_once_all_else_is_gone():
    both = RemainingPods(to_evict=WORK.to_evict, batch=BATCH.batch)
    steps = Steps([both, BATCH], ["a budget"])
    why, _ = run(steps, batch_until=0.0)
    assert why == "work did not end in time: n1: default/sums"
    assert steps.evicted == 1


def test_work_is_evicted_in_the_end_where_that_was_ordered():
    steps = Steps([BATCH, WORK, NOTHING], evicts_batch=True)
    assert run(steps, batch_until=0.0)[0] is None


def test_pods_that_need_a_flag_end_it_only_once_all_else_is_gone():
    both = RemainingPods(to_evict=WORK.to_evict, refused=REFUSED.refused)
    steps = Steps([both, REFUSED])
    assert "without a flag: n1: default/alone" in (run(steps)[0] or "")
    assert steps.evicted == 1


def test_the_deadline_ends_it():
    assert run(Steps([BATCH] * 9), deadline=12.0)[0] == "the run's deadline has passed"


@pytest.mark.parametrize(
    ("evictions", "said"),
    [
        (["a budget"] * 9, "the run's deadline has passed; a budget"),
        # What held once holds no longer.
        (["a budget", *[None] * 99], "the run's deadline has passed"),
        # The round itself was cut off.
        (["the run's deadline has passed"] * 9, "the run's deadline has passed"),
    ],
)
def test_what_held_the_pods_at_the_deadline_is_said(evictions, said):
    assert run(Steps([WORK] * 99, evictions), deadline=12.0)[0] == said


def test_an_api_server_that_comes_back_is_waited_for_and_one_that_does_not_is_not():
    lost = ClusterReadError("no answer")
    assert run(Steps([lost] * 10 + [NOTHING]))[0] is None
    with pytest.raises(ClusterReadError, match="no answer"):
        run(Steps([lost] * 11))
    with pytest.raises(ForbiddenError):
        run(Steps([ForbiddenError([AccessRule("list", "", "pods")])]))


def pod(name, phase, **metadata):
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, **metadata},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase},
    }


def look(tmp_path, items, orders=None):
    """Return what is left on n1 by the API server's answer."""
    with ScriptedServer() as server:
        server.on("GET", "/api/v1/pods", Say(page(items)))
        client = client_of(server.url, tmp_path)
        answer = read_node_pods(client, ["n1"], clock=lambda: 0.0, version=(1, 36))
        (asked,) = server.to("/api/v1/pods")
        assert asked.query["fieldSelector"] == "spec.nodeName=n1"
    return list_remaining(answer, orders or Orders())


def page(items, kind="PodList", **metadata):
    return {"kind": kind, "metadata": {"resourceVersion": "1", **metadata}, "items": items}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"kind": "Status", "status": "Success", "metadata": {"resourceVersion": "1"}},
        {"kind": "PodList", "metadata": {"resourceVersion": "1"}},
        {"kind": "PodList", "metadata": {}, "items": []},
        {"metadata": {"resourceVersion": "1"}, "items": []},
        page([], kind="PodMetricsList"),
        page([pod("elsewhere", "Running") | {"spec": {"nodeName": "n2"}}]),
    ],
    ids=[
        "nothing",
        "a-status",
        "no-items",
        "no-version",
        "no-kind",
        "another-kind",
        "another-node",
    ],
)
def test_what_is_not_the_whole_list_of_the_node_is_no_answer(tmp_path, answer):
    with ScriptedServer() as server:
        server.on("GET", "/api/v1/pods", Say(answer))
        with pytest.raises(ClusterReadError):
            read_node_pods(
                client_of(server.url, tmp_path), ["n1"], clock=lambda: 0.0, version=(1, 36)
            )


@pytest.mark.parametrize(
    ("body", "status", "missing"),
    [
        (status_body(404, "not found"), 404, True),
        ({"metadata": {"name": "agent"}}, 200, False),
        (b"<html>no such page</html>", 404, None),
    ],
    ids=["gone", "there", "a-proxy"],
)
def test_only_the_api_server_says_that_a_daemon_set_is_gone(tmp_path, body, status, missing):
    """What it leaves behind would be evicted: a proxy's 404 is no such word."""
    with ScriptedServer() as server:
        server.on("GET", "/apis/apps/v1/namespaces/ops/daemonsets/agent", Say(body, status))
        client = client_of(server.url, tmp_path)
        if missing is None:
            with pytest.raises(ClusterReadError, match="no such page"):
                is_missing(client, "ops", "agent")
        else:
            assert is_missing(client, "ops", "agent") is missing


def test_all_pages_are_read(tmp_path):
    with ScriptedServer() as server:
        server.on(
            "GET",
            "/api/v1/pods",
            Say(page([pod("first", "Running")], **{"continue": "more"})),
            Say(page([pod("second", "Running")])),
        )
        pods = read_node_pods(
            client_of(server.url, tmp_path), ["n1"], clock=lambda: 0.0, version=(1, 36)
        )
        assert server.to("/api/v1/pods")[1].query["continue"] == "more"
    assert len(pods.living.pods) == 2


def test_that_nothing_is_left_is_confirmed():
    """One answer that leaves pods out ends no drain."""
    steps = Steps([WORK, NOTHING, WORK, NOTHING])
    assert run(steps)[0] is None
    assert steps.evicted == 2


def owned(kind):
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": kind, "controller": True}
    return {"ownerReferences": [owner]}


def test_a_finished_pod_that_is_being_deleted_is_waited_for_until_the_object_is_gone(tmp_path):
    gone = {"deletionTimestamp": "2026-11-22T10:00:00Z", "deletionGracePeriodSeconds": 30}
    items = [
        pod("ended", "Succeeded", **gone, **owned("ReplicaSet")),
        pod("killed", "Failed", **gone, **owned("ReplicaSet")),
        pod("ending", "Running", **gone, **owned("ReplicaSet")),
        pod("kept", "Succeeded", **owned("ReplicaSet")),
        pod("daemon", "Failed", **gone, **owned("DaemonSet")),
        pod("other", "Failed", labels={"drain": "no"}, **gone, **owned("ReplicaSet")),
        pod("counts", "Failed", finalizers=["batch.kubernetes.io/job-tracking"], **gone),
    ]
    selector = LabelSelector(
        match_expressions=(LabelSelectorRequirement(key="drain", operator="DoesNotExist"),)
    )
    left = look(tmp_path, items, Orders(ignore_daemonsets=True, pod_selector=selector))
    assert left == RemainingPods(
        terminating=("n1: default/ending", "n1: default/ended", "n1: default/killed"),
        unread=("n1: default/counts (finalizer batch.kubernetes.io/job-tracking)",),
    )


def test_a_pod_whose_end_is_overdue_is_not_waited_for_where_that_was_ordered(tmp_path):
    """Of a kubelet that is gone no pod ever ends; kubectl knows the same flag."""

    def ended(name, ago):
        at = rfc3339(1795168800.0 - ago)  # the script's Date
        end = {"deletionTimestamp": at, "deletionGracePeriodSeconds": 30}
        return pod(name, "Running", **end, **owned("ReplicaSet"))

    items = [ended("hangs", 120.0), ended("ends", 10.0), ended("has-time", -20.0)]
    assert len(look(tmp_path, items).terminating) == 3
    left = look(tmp_path, items, Orders(skip_wait_for_delete=60.0))
    assert left.terminating == ("n1: default/ends", "n1: default/has-time")


def test_finished_pods_are_waited_for_until_their_result_is_read(tmp_path):
    flow = {"workflows.argoproj.io/workflow": "flow"}
    items = [
        pod("counted", "Succeeded"),
        pod("not-counted", "Failed", finalizers=["batch.kubernetes.io/job-tracking"]),
        pod("read", "Succeeded", labels={**flow, "workflows.argoproj.io/completed": "true"}),
        pod("not-read", "Succeeded", labels=flow),
    ]
    left = look(tmp_path, items)
    assert left == RemainingPods(
        unread=(
            "n1: default/not-counted (finalizer batch.kubernetes.io/job-tracking)",
            "n1: default/not-read (Workflow flow)",
        )
    )
    assert left.text().startswith("2 finished, not read yet: n1: default/not-counted")
    assert RemainingPods().text() == ""
