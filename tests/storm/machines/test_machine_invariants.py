"""Each invariant of machines sees what breaks it, and nothing in a record in which all went well."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.controlplane.audit import Request
from tests.e2e.instance_metadata import NOTHING
from tests.storm.machines.cloud import Call
from tests.storm.machines.fleets import GroupState
from tests.storm.machines.ground import NOTICE, SCALE_IN, SINGLE, Ground
from tests.storm.machines.invariants import EXCLUDE, INVARIANTS, violations
from tests.storm.machines.network import Standing
from tests.storm.machines.record import Hooked, Record
from tests.storm.machines.scenario import DUTIES, Scenario, scenario
from tests.storm.machines.surges import DRAIN, GAP, SERVICE, ZONE
from tests.storm.witnesses import LEASE, Change, Ran

START = 1000.0
ENDED = START + 10
TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"
COMPLETE = "autoscaling:CompleteLifecycleAction"


def node(name, uid="", **spec):
    meta = {"name": name, "uid": uid or name, "labels": {"group": "pool-a"}, "annotations": {}}
    return {"metadata": meta, "spec": {"providerID": f"aws:///z/{name}", **spec}}


def told(made):
    """Load balancers leave it out."""
    made["metadata"]["labels"][EXCLUDE] = "true"
    return made


def noted(name):
    made = node(name)
    made["metadata"]["annotations"][NOTICE] = "{}"
    return made


def pod(name, where):
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"nodeName": where},
        "status": {"phase": "Running"},
    }


def lease(holder):
    return {"metadata": {"name": LEASE, "uid": "l"}, "spec": {"holderIdentity": holder}}


class Changes:
    """Changes one after the other."""

    def __init__(self):
        self.all = []
        self.add(START - 50, "Node", told(node("i-1")))
        self.add(START - 50, "Node", node("i-2"))
        self.add(START - 50, "Pod", pod("web-1", "i-1"))
        self.add(START, "Lease", lease("main-x"))
        self.add(START + 2, "Pod", pod("web-1", "i-1"), "DELETED")
        self.add(ENDED + 1, "Node", node("i-1"), "MODIFIED")

    def add(self, at, kind, obj, what="ADDED"):
        self.all.append(Change(len(self.all) + 1, at, kind, what, obj))
        return self


def called(at=ENDED, instance="i-1", name=TERMINATE, **form):
    return Call(at, name, 1, {"InstanceId": instance, **form}, None, 200)


def request(name, at, verb="create", resource="pods/eviction", code=201):
    when = datetime.fromtimestamp(at, UTC)
    return Request(verb, "", resource, "storm", name, code, "main", "", when)


def ran(**more: Any) -> Ran:
    out = '{"moves": [], "warnings": [], "machines": [{"node": "i-1", "code": "Terminated", "status": "done"}]}'
    given = {"code": 0, "ended": START + 20, "out": out, **more}
    return Ran("main", "main", 20.0, START, **given)


def record(duty="scale-in", **more: Any) -> Record:
    """Return a record in which one empty machine was ended, and all is well, but for what is changed."""
    ground = Ground(victims={"i-1"}, bounds={"pool-a": (2, 1)}, instances={"i-1"}, says=NOTHING)
    calls = {"scale-in": [called()], "interruption": [called(name=COMPLETE)]}
    values: dict[str, Any] = {
        "scenario": Scenario(0, duty),
        "runs": [ran()],
        "clean": [],
        "ground": ground,
        "requests": [request("web-1", START + 1)],
        "changes": Changes().all,
        "calls": calls.get(duty, []),
        "hooked": [],
        "acted": {},
        "ended": START + 20,
        "nodes": [node("i-2")],
        "sizes": {"pool-a": 1},
        "groups": {},
        "pending": 0,
        "network": Standing(),
        "secrets": ("s3cret",),
        "hits": [],
    }
    return Record(**{**values, **more})


def ground(**more: Any) -> Ground:
    return Ground(**{"victims": {"i-1"}, "bounds": {"pool-a": (2, 1)}, **more})


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
SAYS = {"conditions": [{"type": "Drained", "status": "True", "reason": "RebalancerReplacement"}]}
SIZED = GroupState(1, 3, 1, frozenset({"i-2"}))
SIZE = "autoscaling:SetDesiredCapacity"


def useful(name, zone="a", *, closed=False):
    """A node of a group under replacement; the product has closed it."""
    made = node(name, **({"unschedulable": True} if closed else {}))
    made["metadata"]["labels"][ZONE] = zone
    made["metadata"]["annotations"] = {DRAIN: "{}"} if closed else {}
    return {**made, "status": READY}


def endpoints(at, ready):
    ends = [{"conditions": {"ready": True}}] * ready
    meta = {"name": "e", "uid": "e", "labels": {SERVICE: SINGLE}}
    return Changes().add(at, "EndpointSlice", {"metadata": meta, "endpoints": ends}).all[-1]


def resized(at, size):
    form = {"AutoScalingGroupName": "pool-a", "DesiredCapacity": str(size)}
    return Call(at, SIZE, 1, form, None, 200)


TAGGED = Call(
    START, "autoscaling:CreateOrUpdateTags", 1, {"Tags.member.1.ResourceId": "pool-a"}, None, 200
)
GROWN = [TAGGED, resized(START + 1, 2), called()]
"""A group of one machine gets a second one before the first one ends."""
CLOSED = useful("i-1", closed=True)


def came(zone):
    """The second machine comes in a zone; then the first one's node is closed."""
    begun = Changes().add(START - 40, "Node", useful("i-1"))
    came = begun.add(START + 3, "Node", useful("i-2", zone))
    return came.add(START + 5, "Node", CLOSED, "MODIFIED").all[-3:]


def surge(**more: Any) -> Record:
    """Return a record of a machine that was replaced by a new one."""
    values = {
        "ground": Ground(victims={"i-1"}, groups={"pool-a": SIZED}),
        "calls": GROWN,
        "changes": came("a"),
        "groups": {"pool-a": SIZED},
        "clean": [ran()],
    }
    return record("surge", **{**values, **more})


NOT_EMPTY = Changes().add(START - 5, "Pod", pod("web-2", "i-1")).all
SUCCESSOR = (
    Changes()
    .add(START + 3, "Node", node("i-1"), "DELETED")
    .add(START + 3, "Node", node("i-1", "other"))
    .all
)
CORDONED = Changes().add(START + 1, "Node", node("i-3", unschedulable=True)).all
UNTOLD = Changes().add(START - 5, "Node", node("i-1")).all
TOLD_LATE = (
    Changes().add(START - 5, "Node", node("i-1")).add(ENDED - 3, "Node", told(node("i-1"))).all
)
WAITING = Changes().add(START, "Pod", {"metadata": {"name": "w", "uid": "w"}, "spec": {}}).all
RIVAL = Changes().add(START + 1, "Lease", lease("rival")).all
TAINT = {"key": "rebalancer/scale-in", "effect": "NoSchedule"}

LEFT_TO_KARPENTER = json.dumps(
    {
        "moves": [],
        "warnings": [],
        "machines": [
            {
                "node": "i-1",
                "code": "Unneeded",
                "status": "planned",
                "message": "it is empty (Karpenter runs here (pod web/x), so that this is advice beside it)",
            }
        ],
    }
)

DRAINED = node("i-3", unschedulable=True)
DRAINED["metadata"]["annotations"] = {SCALE_IN: '{"phase": "leaving"}'}
ENDING = {**node("i-3"), "metadata": {**DRAINED["metadata"], "annotations": {}}}
ENDING["metadata"]["annotations"] = {SCALE_IN: '{"phase": "ending"}'}
ENDS = Changes().add(START, "Node", ENDING).all
CLOSED_THRICE = [
    change
    for number in range(3)
    for closed in (False, True)
    for change in Changes()
    .add(START + number, "Node", node("n-a", unschedulable=closed), "MODIFIED")
    .all[-1:]
]
BEFORE = Standing(frozenset({("app", "8080")}), {"eni-1": frozenset({"sg-nodes"})})
NETWORK: Any = SimpleNamespace(before=BEFORE, own="app", empty="sg-empty")


def detached(*calls, network=BEFORE, **more):
    """Return a record of a machine that load balancers and firewalls know."""
    of = ground(network=NETWORK, **more)
    return record("detach", ground=of, calls=list(calls), network=network)


def firewalls(interface, group):
    form = {"NetworkInterfaceId": interface, "SecurityGroupId.1": group}
    return called(name="ec2:ModifyNetworkInterfaceAttribute", **form)


def registers(group, port):
    form = {"TargetGroupArn": group, "Targets.member.1.Id": "i-1", "Targets.member.1.Port": port}
    return called(name="elasticloadbalancing:RegisterTargets", **form)


BROKEN = [
    ("a", record(changes=NOT_EMPTY)),
    ("a", record("replace", changes=NOT_EMPTY, hooked=[Hooked(ENDED, "i-1", "i-1")])),
    ("b", record(ground=ground(protected={"i-1": ENDED - 5}))),
    ("b", record(ground=ground(kept={"i-1"}))),
    ("c", record(ground=ground(victims={"i-9"}))),
    ("c", record(calls=[called(name="autoscaling:SetDesiredCapacity", AutoScalingGroupName="x")])),
    ("c", record("interruption", calls=[called(instance="i-9", name=COMPLETE)])),
    (
        "d",
        record(
            "replace",
            changes=SUCCESSOR,
            ground=ground(replaced={"other": START + 3}),
            hooked=[Hooked(ENDED, "i-1", "other")],
        ),
    ),
    (
        "d",
        record(
            "drain",
            changes=SUCCESSOR,
            ground=ground(replaced={"other": START + 3}),
            nodes=[node("i-1", "other", unschedulable=True)],
        ),
    ),
    ("e", record(ground=ground(bounds={"pool-a": (1, 1)}))),
    ("f", record(runs=[ran(terms=[ENDED - 3])])),
    ("f", record(changes=RIVAL)),
    ("g", record(calls=[called(), called(ENDED + 1)])),
    ("h", record(requests=[request("web-1", START + 1, "delete", "pods", 200)])),
    (
        "h",
        record(
            "escalate",
            ground=ground(deadline=START + 20),
            requests=[request("web-1", START + 1, "delete", "pods", 200)],
        ),
    ),
    (
        "i",
        record(
            "drain",
            changes=Changes().add(START, "Pod", pod("web-3", "i-1")).all,
            ground=ground(opted_out={"web-3": START - 9}),
            requests=[request("web-3", START + 1)],
        ),
    ),
    ("j", record("escalate", changes=CORDONED, ground=ground(not_named={"i-3"}))),
    ("k", record(nodes=[node("i-2", unschedulable=True)])),
    ("k", record(nodes=[node("i-2", taints=[TAINT])])),
    ("l", record(ground=ground(cordoned={"i-2"}))),
    ("m", record(runs=[ran(out='{"moves": [], "warnings": [], "machines": []}')])),
    ("m", record(calls=[])),
    ("n", record(runs=[ran(code=1)])),
    ("n", record(runs=[ran(err="Traceback (most recent call last)")])),
    ("n", record(runs=[ran(code=None)])),
    ("o", record("drain", changes=Changes().add(START, "Pod", pod("web-3", "i-1")).all)),
    ("o", record("replace")),
    ("c", record(ground=ground(reach={"": {"pool-b"}}))),
    (
        "t",
        record(
            "two releases",
            ground=ground(reach={"main": {"pool-b"}}),
            requests=[request("i-1", START, "patch", "nodes", 200)],
        ),
    ),
    ("p", record("agent", requests=[request("i-1", START, "patch", "nodes", 200)])),
    ("p", record("agent", requests=[], ground=ground(says=("spot",)))),
    ("p", record("agent", requests=[], nodes=[noted("n-a")])),
    ("p", record("agent", requests=[], nodes=[noted("n-b")])),
    ("q", record(calls=[])),
    ("q", record("drain", runs=[ran(code=4)])),
    ("q", record("interruption", calls=[])),
    ("q", record("scale-out", changes=WAITING)),
    ("b", record(ground=ground(delayed=ENDED - 60))),
    ("r", record(changes=UNTOLD)),
    ("r", record(changes=TOLD_LATE)),
    ("s", record("scale-out", sizes={"pool-a": 3, "pool-b": 2})),
    ("k", record(changes=[*WAITING, *Changes().add(START, "Node", DRAINED).all])),
    ("l", record(ground=ground(wanted_empty={"i-2"}))),
    ("q", detached(network=BEFORE)),
    ("v", detached(firewalls("eni-1", "sg-database"))),
    ("v", detached(firewalls("eni-2", "sg-empty"))),
    ("v", detached(registers("payments", "8443"))),
    ("v", detached(network=Standing(), withdrawn=START)),
    (
        "w",
        record(
            "interruption",
            ground=ground(goes={"i-2": START + 15}),
            changes=Changes().add(START, "Node", node("i-2")).all,
        ),
    ),
    ("x", record("escalate", acted={"notice flaps": START}, changes=CLOSED_THRICE)),
    ("y", record(ground=ground(victims={"i-1", "i-3"}), changes=ENDS)),
    ("z", record(ground=ground(zones={"i-1": "a", "i-2": "b", "i-3": "b"}))),
    ("u", record(runs=[ran(out=LEFT_TO_KARPENTER)])),
    ("A", surge(changes=came("b"))),
    ("B", surge(groups={"pool-a": replace(SIZED, desired=2)})),
    ("B", surge(groups={"pool-a": replace(SIZED, left=("a note",))})),
    ("B", surge(groups={"pool-a": replace(SIZED, maximum=4)})),
    ("B", surge(nodes=[useful("i-2", closed=True)])),
    ("B", surge(nodes=[{**node("i-2"), "status": SAYS}])),
    ("C", surge(calls=[TAGGED, called()])),
    ("C", surge(calls=[*GROWN, resized(ENDED, 4)])),
    ("C", surge(calls=[called(name="autoscaling:UpdateAutoScalingGroup")])),
    ("D", surge(changes=[*came("a"), endpoints(START - 9, 1), endpoints(START + 9, 0)])),
    ("E", surge(groups={"pool-a": replace(SIZED, machines=frozenset({"i-1"}))})),
    ("E", surge(clean=[ran(code=4)])),
    ("F", surge(changes=came("a")[:-1])),
]


@pytest.mark.parametrize(
    ("letter", "broken"), BROKEN, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_breaks_a_promise_is_seen(letter, broken):
    assert letter in {violated for violated, _ in violations(broken)}


def test_where_a_machine_was_replaced_well_nothing_is_said():
    assert violations(surge()) == []
    gap = [*came("a"), endpoints(START - 9, 1), endpoints(START + 9, 0)]
    said = ran(out=f'{{"message": "{GAP}: its Deployment replaces it before"}}')
    assert violations(surge(changes=gap, runs=[said])) == []


@pytest.mark.parametrize("duty", ["scale-in", "interruption", "escalate", "drain"])
def test_where_all_went_well_nothing_is_said(duty):
    assert violations(record(duty)) == []


def test_each_invariant_is_broken_by_a_record_here():
    assert {letter for letter, _ in BROKEN} == set(INVARIANTS)


def test_seeds_draw_every_duty_and_the_same_scenario_each_time():
    drawn = [scenario(seed) for seed in range(200)]
    assert drawn == [scenario(seed) for seed in range(200)]
    assert {one.duty for one in drawn} == set(DUTIES)
    assert len({str(one) for one in drawn}) == len(drawn)
