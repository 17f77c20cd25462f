"""The built-in steps: what is deleted and when, what is sent and where, and what is given back."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rebalancer.base.errors import ClusterReadError
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.node_record.protocol import EXCLUDE as LABEL
from rebalancer.testing.objects import pod
from tests.support.clocks import NOON, HandClock
from tests.support.serving import serving
from tests.unit.machines.interruption.scene import built_in, process, soon, spot


def standing(cluster, *names):
    for name in names:
        cluster.apply(pod(name, nodeName="n-a"))
    cluster.settle()
    return {name: cluster.get("Pod", name, "default")["metadata"]["uid"] for name in names}


class Deletions:
    """The requests by which a process deletes pods: hand clock's second, path, body; and how many were answered."""

    def __init__(self, one):
        self.all: list[tuple[float, str, dict[str, Any]]] = []
        self.answered = 0
        original = one.client.beside

        def beside(stop):
            client = original(stop)
            delete = client.delete

            def noted(path, body, **more):
                self.all.append((one.clock.seconds, path.rpartition("/")[2], json.loads(body)))
                response = delete(path, body, **more)
                self.answered += 1
                return response

            client.delete = noted
            return client

        one.client.beside = beside


def outcome_of(one, interruption, passes=lambda: True):
    """Run the pipeline of n-a to its end while the time ``passes``; return the outcome of the only step."""
    ended = []
    pipeline_run = one.pipeline_run("n-a", interruption)
    thread = threading.Thread(target=lambda: ended.append(pipeline_run.run()), daemon=True)
    thread.start()

    def over():
        one.clock.seconds += 0.05 * passes()
        return not thread.is_alive()

    soon(over, lambda: "\n".join(one.lines))
    return next(iter(ended[0].steps.values()))


def delete(**options):
    return built_in("escalate", means="delete", **options)


@pytest.mark.parametrize("seconds", [120.0, 0.0, None])
def test_nothing_is_deleted_without_the_policys_word(cluster, seconds):
    standing(cluster, "one")
    with process(cluster, [built_in("escalate")]) as here:
        deletions = Deletions(here)
        outcome = outcome_of(here, spot(seconds=seconds))
    assert (outcome.status, outcome.why) == ("skipped", "the policy says none")
    assert deletions.all == []


def test_what_is_left_is_deleted_a_grace_period_and_a_margin_before_the_machine_goes(cluster):
    uids = standing(cluster, "one", "two")
    with process(cluster, [delete(grace="20s", margin="5s")], clock=HandClock()) as here:
        deletions = Deletions(here)
        outcome = outcome_of(here, spot(seconds=40))
    assert outcome.status == "done"
    assert {name: body["preconditions"]["uid"] for _, name, body in deletions.all} == uids
    assert all(15 <= at < 40 for at, _, _ in deletions.all)
    assert {body["gracePeriodSeconds"] for _, _, body in deletions.all} == {20}


def test_a_deadline_that_has_passed_waits_for_nothing(cluster):
    standing(cluster, "one")
    with process(cluster, [delete()], clock=HandClock()) as here:
        deletions = Deletions(here)
        outcome_of(here, spot(seconds=-120), passes=lambda: bool(deletions.all))
    assert [(at, name) for at, name, _ in deletions.all] == [(0.0, "one")]


@pytest.mark.parametrize("ago", [200, 3600, 30 * 86400])
def test_nothing_is_deleted_once_the_machine_was_to_have_gone_minutes_ago(cluster, ago):
    standing(cluster, "one")
    with process(cluster, [delete()], clock=HandClock()) as here:
        deletions = Deletions(here)
        outcome = outcome_of(here, spot(seconds=-ago))
        assert outcome.status == "timed-out"
    assert not deletions.all
    assert cluster.get("Pod", "one", "default")


def test_without_a_deadline_nothing_is_deleted(cluster):
    standing(cluster, "one")
    with process(cluster, [delete()]) as here:
        deletions = Deletions(here)
        outcome = outcome_of(here, spot(seconds=None))
    assert (outcome.status, outcome.why) == ("skipped", "it is not known when the machine goes")
    assert deletions.all == []


def test_a_refusal_is_named_with_its_pod(cluster):
    standing(cluster, "one")
    cluster.faults.add(Fault("DELETE", status=403, reason="Forbidden", times=10**6))
    with process(cluster, [delete()], clock=HandClock()) as here:
        deletions = Deletions(here)
        # The time passes only once it was refused: on a busy machine the step would not have come to it.
        outcome = outcome_of(here, spot(seconds=35), passes=lambda: bool(deletions.answered))
    assert outcome.status == "failed"
    assert "default/one" in outcome.why


@pytest.mark.parametrize("before", [None, "true"])
def test_a_label_of_others_stays_and_ours_is_removed(cluster, before):
    labels = {} if before is None else {LABEL: before}
    cluster.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n-a", "labels": labels}}
    )
    with process(cluster, [built_in("exclude")]) as here:
        assert outcome_of(here, spot()).status == "done"
        assert LABEL in cluster.get("Node", "n-a")["metadata"]["labels"]
        here.pipeline_run("n-a").run()
    assert cluster.get("Node", "n-a")["metadata"]["labels"].get(LABEL) == before


# -- requests ----------------------------------------------------------------------------------------


@contextmanager
def listening(status=200):
    """Yield the address of a server, and the requests to it: method, path, body, and the header Idempotency-Key."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            key = self.headers["Idempotency-Key"]
            requests.append((self.command, self.path, json.loads(body), key))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_DELETE = do_POST  # noqa: N815  # the name is the library's

        def log_message(self, *_):
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url, requests


def test_a_webhook_says_what_came_of_the_steps_before_it(cluster):
    with listening() as (url, requests):
        body = {"text": "$node: $summary ($result)"}
        steps = [built_in("cordon"), built_in("webhook", url=f"{url}/hook", body=body)]
        with process(cluster, steps) as here:
            here.pipeline_run("n-a", spot()).run()
    ((*request, _),) = requests
    assert request == ["POST", "/hook", {"text": "n-a: cordon done (done)"}]


def test_what_is_filled_into_an_address_stays_one_piece_of_it(cluster):
    with listening() as (url, requests):
        step = built_in("webhook", url=f"{url}/of/$node/$reason", body={"text": "$reason"})
        with process(cluster, [step]) as here:
            outcome_of(here, spot(reason='../admin?x=1#"'))
    ((*request, _),) = requests
    assert request == ["POST", "/of/n-a/..%2Fadmin%3Fx%3D1%23%22", {"text": '../admin?x=1#"'}]


def test_mute_is_lifted_if_the_machine_stays(cluster):
    with listening() as (url, requests):
        lift = {"url": f"{url}/mute/$node", "method": "DELETE"}
        with process(cluster, [built_in("mute", url=f"{url}/mute", lift=lift)]) as here:
            assert outcome_of(here, spot()).status == "done"
            here.pipeline_run("n-a").run()
    assert [(method, path) for method, path, *_ in requests] == [
        ("POST", "/mute"),
        ("DELETE", "/mute/n-a"),
    ]


@pytest.mark.parametrize("step", ["mute", "webhook"])
def test_each_request_carries_a_key_that_its_second_delivery_has_too(cluster, step):
    """The process dies between the answer and the record of it, twice."""
    with listening() as (url, requests):
        steps = [built_in(step, url=f"{url}/first"), built_in("webhook", url=f"{url}/last")]
        last = replace(steps[1], name="webhook-2")
        for kills in (True, True, False):
            with process(cluster, [steps[0], last]) as here:
                if kills:
                    kill_once_answered(here, requests)
                here.pipeline_run("n-a", spot()).run()
    keys = {path: {key for _, at, _, key in requests if at == path} for path in ("/first", "/last")}
    assert [path for _, path, *_ in requests] == ["/first"] * 3 + ["/last"]
    assert [len(of) for of in keys.values()] == [1, 1]
    assert keys["/first"] != keys["/last"]


def kill_once_answered(here, requests):
    """Let a process die at its first write after its first request was answered."""
    original, answered = here.client.beside, len(requests)

    def beside(stop):
        client = original(stop)

        def until_killed(write):
            def writing(*args, **more):
                if len(requests) > answered:
                    here.kill()
                    raise ClusterReadError("killed")
                return write(*args, **more)

            return writing

        client.patch, client.put = until_killed(client.patch), until_killed(client.put)
        return client

    here.client.beside = beside


def test_the_request_that_lifts_a_mute_is_no_second_delivery_of_it(cluster):
    with listening() as (url, requests):
        step = built_in("mute", url=f"{url}/mute", lift={"url": f"{url}/mute"})
        with process(cluster, [step]) as here:
            outcome_of(here, spot())
            here.pipeline_run("n-a").run()
    keys = [key for *_, key in requests]
    assert len({*keys}) == len(keys) == 2


@pytest.mark.parametrize("step", ["mute", "webhook"])
def test_an_address_is_a_secret(cluster, step):
    with listening(status=500) as (url, _):
        environ = {"CHAT": f"{url}/services/SECRET"}
        with process(cluster, [built_in(step, url_from="CHAT")], environ=environ) as here:
            outcome = outcome_of(here, spot())
    assert outcome.status == "failed"
    assert "500" in outcome.why
    assert "SECRET" not in f"{outcome.why}{here.lines}{here.events}{cluster.get('Node', 'n-a')}"


def test_an_address_that_is_not_set_is_named_by_its_variable(cluster):
    with process(cluster, [built_in("webhook", url_from="CHAT")]) as here:
        outcome = outcome_of(here, spot())
    assert (outcome.status, outcome.why) == ("failed", "the environment variable CHAT is not set")
    assert here.clock.unix() >= NOON
