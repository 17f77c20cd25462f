"""What EvictionRequests hold: their pods, the owners of these, and disruptions of their budgets."""

from dataclasses import replace

import pytest

from rebalancer.policy.protect import Protect
from rebalancer.snapshot.in_flight import as_ended, pods_asked_for, with_requests
from rebalancer.snapshot.protect import Scope, names_of, protect, text_of
from rebalancer.snapshot.requests import REQUESTER, RESTS_FOR, EvictionRequest, request_name
from rebalancer.testing.snapshots import node, snapshot_of, workload

NOW = 1_800_000_000.0
RESPONDERS = {"evictionResponders": [{"name": "acme.example/mover", "priority": 10000}]}
HOUR, DAY = 3600.0, RESTS_FOR.total_seconds()
OPEN = EvictionRequest(
    namespace="default",
    name="rebalancer-0",
    pod="web-0",
    pod_uid="web-0",
    requester=REQUESTER,
    withdrawn=False,
    asked_at=NOW - 60,
)


def snapshot(*requests, going=()):
    objects = [
        node("a"),
        node("b"),
        *workload("web", ["a", "a", "b"]),
        *workload("api", ["b", "b"]),
    ]
    for item in objects:
        if item["kind"] == "Pod" and item["metadata"]["name"] in going:
            item["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:20Z"
    read = snapshot_of(objects)
    uid = read.pods.uid[0]
    names = {OPEN.name: request_name(uid)}
    asked = [replace(one, pod_uid=uid, name=names.get(one.name, one.name)) for one in requests]
    return with_requests(replace(read, captured_at=NOW), asked)


def held(of):
    """The protections of the pods that are held for a request."""
    bits = protect(of, Protect(), Scope())
    return [pod for pod in range(len(of.pods)) if "evictionInProgress" in names_of(int(bits[pod]))]


@pytest.mark.parametrize(
    ("requests", "rows", "in_flight"),
    [
        ([], [], 0),
        ([OPEN], [0], 1),
        ([replace(OPEN, requester="acme.example/drains", name="theirs")], [0], 1),
        # Nobody asks any more, or it is over.
        ([replace(OPEN, withdrawn=True, asked_at=0.0)], [], 0),
        ([replace(OPEN, evicted=True)], [], 0),
        ([replace(OPEN, requester="acme.example/drains", withdrawn=True)], [], 0),
        # In vain: the pod rests for a day.
        ([replace(OPEN, withdrawn=True)], [0], 0),
        ([replace(OPEN, withdrawn=True, asked_at=NOW - DAY + 1)], [0], 0),
        ([replace(OPEN, withdrawn=True, asked_at=NOW - DAY)], [], 0),
        ([replace(OPEN, failed="no responder is left")], [0], 0),
        # A pod of that uid in another namespace is none of theirs.
        ([replace(OPEN, namespace="shop")], [], 0),
        ([OPEN, replace(OPEN, withdrawn=True, name="old")], [0], 1),
        # After its time it keeps the pod alone; so it is with a time that somebody has invented.
        ([replace(OPEN, asked_at=NOW - 601)], [0], 0),
        ([replace(OPEN, asked_at=NOW - 30 * DAY, requester="acme.example/drains")], [0], 0),
        ([replace(OPEN, asked_at=NOW + 30 * DAY)], [0], 0),
        ([replace(OPEN, withdrawn=True, asked_at=NOW + 30 * DAY)], [], 0),
        (
            [
                replace(OPEN, asked_at=NOW - DAY, name="mine"),
                replace(OPEN, requester="acme.example/x", name="new"),
            ],
            [0],
            1,
        ),
    ],
)
def test_which_requests_hold_a_pod(requests, rows, in_flight):
    for order in (requests, requests[::-1]):
        of = snapshot(*order)
        assert held(of) == rows
        assert len(pods_asked_for(of)) == in_flight


def test_an_open_request_holds_the_owner_until_the_pod_ends():
    owners = {one.name: one.unsettled for one in snapshot(OPEN).owners}
    asked = snapshot().pods.cls[0]
    name = snapshot().owner_of(int(asked)).name
    assert owners.pop(name) == "EvictionRequests are open for 1 pod of it"
    assert set(owners.values()) == {None}


def test_plans_count_a_pod_that_is_asked_for_as_one_that_ends_and_say_why():
    first = snapshot().pods.name[0]
    for going in ((), {first}):
        standing = snapshot(OPEN, going=going)
        assert standing.pods.living.tolist().count(False) == len(going)
        of = as_ended(standing)
        assert of.pods.living.tolist().count(False) == 1
        bits = int(protect(of, Protect(), Scope())[0])
        assert "evictionInProgress" in names_of(bits)
        assert "terminating" not in names_of(bits)
    # The API server counts one that terminates itself.
    held = [one.unsettled for one in snapshot(OPEN, going={first}).owners]
    assert "EvictionRequests" not in str(held)


def test_a_budget_allows_one_disruption_less_for_each_pod_that_is_asked_for():
    objects = [node("a"), *workload("web", ["a"] * 4)]
    budget = {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": 2,
            "currentHealthy": 4,
            "desiredHealthy": 2,
            "expectedPods": 4,
        },
    }
    read = snapshot_of([*objects, budget])
    for number, allowed in ((0, 2), (1, 1), (2, 0), (3, 0)):
        asked = [replace(OPEN, pod_uid=read.pods.uid[pod], name=f"r{pod}") for pod in range(number)]
        assert [one.allowed for one in with_requests(read, asked).budgets] == [allowed]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (OPEN, "of rebalancer/moves asks its responders to end it"),
        (
            replace(OPEN, withdrawn=True),
            "its responders did not end it in time; no run asks again within 24h",
        ),
        (replace(OPEN, failed="no responder is left"), ": no responder is left;"),
    ],
)
def test_the_protection_says_what_asks(request_, says):
    assert says in text_of(snapshot(request_), 0, "evictionInProgress")


@pytest.mark.parametrize(
    ("one", "late"),
    [
        (replace(OPEN, asked_at=NOW - HOUR), False),
        (replace(OPEN, asked_at=NOW - HOUR - 1), True),
        (replace(OPEN, asked_at=NOW + HOUR + 1), True),
        (replace(OPEN, asked_at=NOW - HOUR - 1, withdrawn=True), False),
    ],
)
def test_only_open_requests_are_late(one, late):
    read = replace(snapshot(), eviction_requests=None)
    uid = read.pods.uid[0]
    of = with_requests(read, [replace(one, pod_uid=uid, name=request_name(uid))], HOUR)
    (only,) = (of.eviction_requests or {}).values()
    assert (only.late, only.ours) == (late, True)
    assert len(pods_asked_for(of)) == (only.open and not late)


@pytest.mark.parametrize(
    ("more", "spec", "code"),
    [
        ({"requester": "acme.example/x", "withdrawn": True}, RESPONDERS, "has the name of ours"),
        ({"requester": "acme.example/x", "failed": "refused"}, RESPONDERS, "has the name of ours"),
        ({"requester": "acme.example/x"}, RESPONDERS, "asks its responders to end it"),
        ({"pod_uid": "another"}, RESPONDERS, "has the name of ours"),
        # Nobody would be asked for it: it can be evicted.
        ({"requester": "acme.example/x", "withdrawn": True}, {}, ""),
        # Of another namespace, none is in the way.
        ({"namespace": "shop", "requester": "acme.example/x"}, RESPONDERS, ""),
    ],
)
def test_an_object_of_others_with_the_name_of_our_request_keeps_its_pod(more, spec, code):
    read = snapshot_of([node("a"), *workload("web", ["a", "a"], spec=spec)])
    uid = read.pods.uid[0]
    one = replace(OPEN, **{"pod_uid": uid, "name": request_name(uid), **more})
    of = with_requests(replace(read, captured_at=NOW), [one])
    assert held(of) == ([0] if code else [])
    assert code in text_of(of, 0, "evictionInProgress")
    assert len(pods_asked_for(of)) == (code == "asks its responders to end it")
