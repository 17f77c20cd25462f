"""From a seed to a scenario: which duty the product has, which requests fail and how, and what else happens.

The first seeds are written down: each is a way in which machines, pods or capacity were lost. The others are drawn.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.storm.faults import EFFECTS, Effect, Fault, Phase
from tests.storm.schedule import Act

Duty = Literal[
    "scale-in",
    "scale-out",
    "drain",
    "replace",
    "interruption",
    "escalate",
    "agent",
    "two releases",
    "detach",
    "surge",
]
DUTIES: tuple[Duty, ...] = (
    "scale-in",
    "interruption",
    "drain",
    "replace",
    "escalate",
    "scale-out",
    "agent",
    "two releases",
    "detach",
    "surge",
)
SCALING: tuple[Duty, ...] = ("scale-in", "scale-out", "two releases")
"""Those of them about the sizes of groups."""
ANSWERS: Mapping[str, Effect] = {
    **EFFECTS,
    "200 with {}": Effect(forward=False, status=200, json="{}"),
    "200 with a Status": Effect(
        forward=False,
        status=200,
        json='{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}',
    ),
    "200 with half a list": Effect(
        forward=False,
        status=200,
        json='{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"more"},"items":[]}',
    ),
}
"""Faults of the API server by name: those of runs, and answers that look like success and are none."""
_LOOKS_LIKE_SUCCESS = ("200 with {}", "200 with a Status", "200 with half a list")

CLOUD_FAULTS = ("throttled", "error before commit", "lost reply", "half a page", "late", "stale")
"""What goes wrong with a call of the cloud; `cloud.Front` has the meaning of each."""
LAST_LOOK = "one group is read"
"""The moment, and the call, at which a group is read by its name: the last before its machine is ended."""
_SCALE_IN_CALLS = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
)
CALLS: Mapping[Duty, tuple[str, ...]] = {
    "scale-in": (*_SCALE_IN_CALLS, LAST_LOOK),
    "two releases": _SCALE_IN_CALLS,
    "scale-out": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:SetDesiredCapacity",
        "autoscaling:DescribeScalingActivities",
    ),
    "interruption": (
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "autoscaling:CompleteLifecycleAction",
        "autoscaling:RecordLifecycleActionHeartbeat",
    ),
    "drain": (),
    "replace": (),
    "escalate": (),
    "agent": (),
    "detach": (
        "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTargetHealth",
        "elasticloadbalancing:DeregisterTargets",
        "elasticloadbalancing:RegisterTargets",
        "ec2:DescribeInstances",
        "ec2:ModifyNetworkInterfaceAttribute",
    ),
    "surge": (
        LAST_LOOK,
        "autoscaling:CreateOrUpdateTags",
        "autoscaling:DeleteTags",
        "autoscaling:SuspendProcesses",
        "autoscaling:ResumeProcesses",
        "autoscaling:SetDesiredCapacity",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplateVersions",
    ),
}
"""Calls of the cloud that a duty makes."""
_SCALE_IN_KINDS = (
    "list pods",
    "list nodes",
    "patch node",
    "get node",
    "lease",
    "eviction",
    "get pod",
)
KINDS: Mapping[Duty, tuple[str, ...]] = {
    "scale-in": _SCALE_IN_KINDS,
    "two releases": _SCALE_IN_KINDS,
    "agent": ("get node", "patch node"),
    "scale-out": ("list pods", "list nodes", "lease", "memory"),
    "drain": ("list pods", "patch node", "get node", "eviction", "get pod", "lease", "watch pods"),
    "replace": (
        "list pods",
        "patch node",
        "get node",
        "eviction",
        "get pod",
        "lease",
        "watch pods",
    ),
    "interruption": ("list pods", "patch node", "get node", "eviction", "lease", "watch nodes"),
    "escalate": ("list pods", "patch node", "get node", "delete pod", "lease", "watch nodes"),
    "detach": ("patch node", "get node", "lease", "watch nodes"),
    "surge": (
        "list pods",
        "list nodes",
        "patch node",
        "get node",
        "eviction",
        "get pod",
        "lease",
        "watch pods",
    ),
}
"""Kinds of requests to the API server that matter to a duty."""
WORLD: Mapping[Duty, tuple[str, ...]] = {
    "scale-in": (
        "protected",
        "opt-out",
        "budget closed",
        "forged record",
        "replaced under its name",
        "person cordons",
        "load comes back",
        "same tags elsewhere",
        "delay asked for",
        "tenant's autoscaler",
        "one group chosen",
        "state of a newer version",
        "people want it empty",
        "person drains",
        "machine changes its group",
        "machines are missing",
        "announcements are heard",
        "a leaving node is announced",
    ),
    "two releases": (
        "protected",
        "budget closed",
        "person cordons",
        "load comes back",
        "person drains",
    ),
    "scale-out": (
        "zone lost",
        "load goes",
        "same tags elsewhere",
        "no capacity",
        "agents are slow",
        "tenant's autoscaler",
    ),
    "agent": ("announced", "withdrawn", "metadata are silent", "person cordons"),
    "drain": (
        "opt-out",
        "budget closed",
        "replaced under its name",
        "person uncordons",
        "person drains",
        "kubelet is gone",
    ),
    "replace": (
        "opt-out",
        "budget closed",
        "replaced under its name",
        "person uncordons",
        "person drains",
    ),
    "interruption": (
        "withdrawn",
        "replaced under its name",
        "budget closed",
        "forged record",
        "duplicate message",
        "old message",
        "message of another machine",
        "names another's machine",
        "rebalance recommended",
        "message of another account",
        "another goes soon",
        "person drains",
    ),
    "escalate": (
        "withdrawn",
        "replaced under its name",
        "old notice",
        "forged record",
        "notice flaps",
    ),
    "detach": ("withdrawn", "replaced under its name", "forged record", "person drains"),
    "surge": (
        "opt-out",
        "budget closed",
        "registers again",
        "person cordons",
        "person uncordons",
        "person drains",
        "no capacity",
        "agents are slow",
    ),
}
POLICY = (
    "agents are slow",
    "one group chosen",
    "announcements are heard",
    "one machine at once",
    "no node may be lost",
)
"""What stands in the policy, which is read when a process starts."""
CLOCKS = ("our clock is wrong", "our clock jumps")
"""What happens to the process's time of day."""
OURS = ("SIGTERM", "SIGKILL", "SIGSTOP", "wrong clock", *CLOCKS)
"""What happens to the process; the wrong clock is the API server's, as its answers date themselves."""
TIME_PASSES = "time passes"
"""So many seconds have passed by our clock and by the API server's, from the begin ("before") or before the runs without faults."""
LONG_STOP = 90.0
"""Seconds for which a process is stopped: longer than the term of a Lease."""


@dataclass(frozen=True)
class MachineFault(Fault):
    """A fault of one request to the API server."""

    @property
    def effect(self) -> Effect:
        """What the proxy does."""
        return ANSWERS[self.name]


@dataclass(frozen=True)
class CloudFault:
    """A fault of one call of the cloud."""

    call: str
    name: str
    phase: Phase

    def hits(self, number: int) -> bool:
        """Whether it hits the call of this number, counted from 1, of its kind."""
        return Fault(self.call, self.name, self.phase).hits(number)

    def __str__(self) -> str:
        return f"{self.call}: {self.name} ({self.phase})"


@dataclass(frozen=True)
class Scenario:
    """All that one duty is put through."""

    seed: int
    duty: Duty
    faults: tuple[MachineFault, ...] = ()
    cloud: tuple[CloudFault, ...] = ()
    acts: tuple[Act, ...] = ()

    def has(self, *names: str) -> bool:
        """Whether one of these acts happens."""
        return any(act.name in names for act in self.acts)

    def amount(self, name: str, *moments: str) -> float:
        """Return the amount of an act that happens at one of these moments; 0 if it does not."""
        fits = (act for act in self.acts if act.name == name and act.moment in moments)
        return next((act.amount for act in fits), 0.0)

    @property
    def refuses(self) -> bool:
        """Whether the API server refuses every eviction: runs take all of their time then."""
        return any(fault.kind == "eviction" and fault.phase == "always" for fault in self.faults)

    @property
    def hits_long(self) -> bool:
        """Whether it takes minutes."""
        return any(act.amount >= LONG_STOP and act.name == "SIGSTOP" for act in self.acts)

    def __str__(self) -> str:
        parts = (*self.faults, *self.cloud, *self.acts)
        return f"seed {self.seed} {self.duty}: {'; '.join(map(str, parts)) or 'nothing goes wrong'}"


def _api(kind: str, name: str, phase: Phase = "always") -> MachineFault:
    return MachineFault(kind, name, phase)


_WRITTEN: tuple[Scenario, ...] = (
    Scenario(0, "scale-in", faults=(_api("list pods of node", "200 with {}"),)),
    Scenario(1, "replace", acts=(Act("replaced under its name", "hook 1"),)),
    Scenario(2, "interruption", acts=(Act("budget closed"), Act("old message"))),
    Scenario(3, "drain", faults=(_api("list pods of node", "200 with half a list"),)),
    Scenario(4, "escalate", acts=(Act("old notice"),)),
    Scenario(5, "scale-in", acts=(Act("protected", LAST_LOOK),)),
    Scenario(6, "interruption", acts=(Act("replaced under its name", "after 4"),)),
    Scenario(
        7,
        "scale-in",
        cloud=(
            CloudFault("autoscaling:TerminateInstanceInAutoScalingGroup", "lost reply", "first"),
        ),
    ),
    Scenario(8, "replace", faults=(_api("list pods of node", "200 with {}"),)),
    Scenario(9, "escalate", acts=(Act("forged record"),)),
    Scenario(
        10,
        "scale-out",
        cloud=(CloudFault("autoscaling:SetDesiredCapacity", "lost reply", "first"),),
    ),
    Scenario(11, "interruption", acts=(Act("SIGKILL", "patch node 2"), Act("duplicate message"))),
    Scenario(12, "two releases"),
    Scenario(
        13, "agent", acts=(Act("announced", "after 3"), Act("metadata are silent", "after 6"))
    ),
    Scenario(14, "agent", acts=(Act("announced", "before"), Act("withdrawn", "after 4"))),
    Scenario(15, "scale-out", acts=(Act("no capacity", "before"),)),
    Scenario(16, "scale-out", acts=(Act("same tags elsewhere", "before"),)),
    Scenario(17, "scale-in", acts=(Act("our clock jumps", "before", amount=400.0),)),
    Scenario(18, "escalate", acts=(Act("our clock is wrong", "before", amount=-20.0),)),
    Scenario(19, "scale-in"),
    Scenario(20, "interruption", acts=(Act("replaced under its name", "patch node 1"),)),
    Scenario(21, "interruption", acts=(Act("names another's machine"),)),
    Scenario(
        22,
        "scale-in",
        cloud=(CloudFault(LAST_LOOK, "late", "first"),),
        acts=(Act("SIGTERM", LAST_LOOK),),
    ),
    Scenario(23, "scale-in", acts=(Act("one group chosen"),)),
    Scenario(24, "interruption", acts=(Act("rebalance recommended"),)),
    Scenario(25, "scale-out", acts=(Act("zone lost"),)),
    Scenario(26, "scale-in", acts=(Act("delay asked for"),)),
    Scenario(27, "scale-out", acts=(Act("agents are slow"),)),
    Scenario(28, "scale-in", acts=(Act("tenant's autoscaler"),)),
    Scenario(29, "scale-in", acts=(Act("state of a newer version"),)),
    Scenario(30, "detach", acts=(Act("forged record"), Act("withdrawn", "after 7"))),
    Scenario(
        31,
        "detach",
        cloud=(CloudFault("elasticloadbalancing:DescribeTargetHealth", "late", "always"),),
    ),
    Scenario(
        32,
        "interruption",
        acts=(
            Act("one machine at once"),
            Act("budget closed"),
            Act("another goes soon", "after 4"),
        ),
    ),
    Scenario(
        33,
        "scale-in",
        faults=(_api("eviction", "429 Retry-After 1"),),
        acts=(Act("two pods are left"),),
    ),
    Scenario(
        34,
        "scale-in",
        acts=(
            Act("no node may be lost"),
            Act("load goes"),
            Act("zone lost", "after 10"),
            Act("load comes back", "after 12"),
        ),
    ),
    Scenario(
        35,
        "scale-out",
        acts=(Act("no node may be lost"), Act("zone lost"), Act(TIME_PASSES, amount=1000.0)),
    ),
    Scenario(
        36,
        "scale-in",
        acts=(
            Act("announcements are heard"),
            Act("load goes"),
            Act("a leaving node is announced", "after 9"),
            Act("protected", "after 12"),
            Act("withdrawn", "after 18"),
        ),
    ),
    Scenario(37, "escalate", acts=(Act("notice flaps", "after 1"),)),
    Scenario(
        38, "scale-out", acts=(Act("same tags elsewhere"), Act(TIME_PASSES, "clean", amount=1000.0))
    ),
    Scenario(39, "scale-in", cloud=(CloudFault(LAST_LOOK, "throttled", "always"),)),
    Scenario(40, "scale-in", acts=(Act("load goes"), Act("machines are missing"))),
    Scenario(41, "scale-in", acts=(Act("one group in two zones"),)),
    Scenario(
        42,
        "scale-in",
        acts=(
            Act("load goes"),
            Act("people want it empty", "after 9"),
            Act("protected", "after 12"),
        ),
    ),
    Scenario(43, "interruption", acts=(Act("message of another account"),)),
    Scenario(44, "scale-in", acts=(Act("machine changes its group", LAST_LOOK),)),
    Scenario(45, "drain", acts=(Act("kubelet is gone"),)),
    Scenario(46, "scale-in", acts=(Act("person drains"), Act("protected", "after 12"))),
    Scenario(47, "drain", acts=(Act("person drains", "patch node 1"),)),
    Scenario(48, "surge"),
    Scenario(49, "surge", acts=(Act("no capacity", "before"),)),
    Scenario(50, "surge", acts=(Act("agents are slow"), Act("SIGKILL", "patch node 1"))),
    Scenario(
        51,
        "surge",
        cloud=(
            CloudFault("autoscaling:TerminateInstanceInAutoScalingGroup", "lost reply", "first"),
        ),
        acts=(Act("registers again", "patch node 1"),),
    ),
    Scenario(
        52,
        "surge",
        cloud=(CloudFault(LAST_LOOK, "stale", "later"),),
        acts=(Act("agents are slow"),),
    ),
)
"""Written seeds; CI plays seven of them, each of which finds a mend undone."""


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed on Auto Scaling groups."""
    if seed < len(_WRITTEN):
        return _WRITTEN[seed]
    duty = DUTIES[seed % len(DUTIES)]
    chances = Chances(KINDS[duty], CALLS[duty], WORLD[duty], _moments(duty))
    return draw_scenario(random.Random(seed), seed, duty, chances)


@dataclass(frozen=True)
class Chances:
    """What is drawn from, of one duty."""

    kinds: tuple[str, ...]
    """Of requests to the API server that matter to it."""
    calls: tuple[str, ...]
    """Of the cloud, that it makes."""
    world: tuple[str, ...]
    """Acts of others."""
    moments: tuple[str, ...]
    """At which something happens, beside the beginning."""


def draw_scenario(draw: random.Random, seed: int, duty: Duty, of: Chances) -> Scenario:
    """Draw faults and acts for a duty."""
    return Scenario(seed, duty, _draw_faults(draw, of), _draw_cloud(draw, of), _draw_acts(draw, of))


def _draw_faults(draw: random.Random, of: Chances) -> tuple[MachineFault, ...]:
    faults = []
    for _ in range(draw.choice((0, 1, 1, 2))):
        kind = draw.choice((*of.kinds, "list pods of node"))
        lists = kind.startswith("list ")
        names = [name for name in ANSWERS if lists or name not in ("410", "200 with half a list")]
        name = draw.choice((*names, *(_LOOKS_LIKE_SUCCESS if lists else ())))
        phase: Phase = draw.choice(("first", "second", "third", "later"))
        faults.append(MachineFault(kind, name, phase, draw.randrange(4000)))
    return tuple(faults)


def _draw_cloud(draw: random.Random, of: Chances) -> tuple[CloudFault, ...]:
    if not of.calls:
        return ()
    phases: tuple[Phase, ...] = ("first", "second", "third", "later")
    count = draw.choice((0, 1, 1, 2))
    return tuple(
        CloudFault(draw.choice(of.calls), draw.choice(CLOUD_FAULTS), draw.choice(phases))
        for _ in range(count)
    )


def _draw_acts(draw: random.Random, of: Chances) -> tuple[Act, ...]:
    names = draw.sample(of.world, draw.choice((0, 1, 1, 2)))
    acts = [
        Act(name, "before" if name in POLICY else draw.choice(("before", *of.moments)))
        for name in names
    ]
    if draw.random() < 0.4:
        acts.append(_draw_ours(draw, of))
    return tuple(acts)


def _draw_ours(draw: random.Random, of: Chances) -> Act:
    name = draw.choice(OURS)
    amounts = {
        "SIGSTOP": (5.0, 5.0, 5.0, LONG_STOP),
        "wrong clock": (300.0,),
        "our clock is wrong": (-400.0, -20.0, 20.0, 400.0),
        "our clock jumps": (-400.0, 20.0, 400.0, 4000.0),
    }
    amount = draw.choice(amounts.get(name, (0.0,)))
    moment = draw.choice(of.moments)
    return Act(name, "before" if "clock" in name else moment, amount=amount)


def _moments(duty: Duty) -> tuple[str, ...]:
    if duty == "agent":
        return ("get node 1", "patch node 1", "patch node 2", "after 3", "after 6")
    moments = ["list nodes 1", "eviction 1", "eviction 2"]
    if duty != "scale-out":
        moments += [f"patch node {number}" for number in range(1, 6)]
    if duty in ("scale-in", "two releases"):
        moments.append(LAST_LOOK)
    if duty == "replace":
        moments += ["hook 1", "hook 2"]
    moments += [f"{call} {n}" for call in CALLS[duty] if call != LAST_LOOK for n in (1, 2)]
    return tuple(moments)
