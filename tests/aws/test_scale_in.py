"""Article 004: scale-out for pending pods, and scale-in when they are gone, on instances of moto as nodes."""

import pytest

from rebalancer.machines.aws.groups import ACTS, CALLS
from rebalancer.testing.objects import pdb
from tests.aws.fleet import ENABLED, site
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files

_TICK = 120.0
_LOW = 2


class Course:
    """Runs every two minutes; what must hold at every moment is looked at after each."""

    def __init__(self, made, least):
        self.site, self.least = made, least
        self.acts, self.evicted, self.sizes = [], [], []

    def tick(self):
        made = self.site
        made.pass_time(_TICK)
        made.fleet.join()
        code, report = made.run()
        assert code == 0, report
        made.cluster.settle()
        self.acts += [(one["code"], one["node"]) for one in report["machines"]]
        self.evicted += [one for one in report["moves"] if one["outcome"] == "evicted"]
        self.sizes.append(made.fleet.sizes["pool"])
        assert self.sizes[-1] >= _LOW
        ready = made.cluster.get("Deployment", "web")["status"].get("readyReplicas", 0)
        assert ready >= self.least
        return self.sizes[-1]

    def until(self, size, most=40):
        while self.tick() != size:
            assert len(self.sizes) < most, self.acts[-10:]
        made = self.site
        made.fleet.join()
        assert len(made.cluster.objects("Node")) == size


@pytest.fixture
def made(cloud, tmp_path):
    with site(cloud, tmp_path, "{scale-out: {}, scale-in: {}}", lives=True) as ground:
        ground.cloud.ours.clear()
        yield ground


def test_article_004_from_one_to_ten_replicas_and_back(made):
    made.fleet.add("pool", 3, low=_LOW, high=6)
    made.scale(1)
    course = Course(made, 1)
    made.scale(10)
    assert made.pending() == 1
    course.until(4)
    assert made.pending() == 0
    # Seven go: each node is at most half full, and what is left fits on two of them. One pod may be away at a time.
    made.cluster.apply(pdb("web", {"app": "web"}, maxUnavailable=1))
    made.scale(4)
    course.least = 3
    grown = len(course.sizes)
    course.until(_LOW)
    assert made.pending() == 0
    # Nothing goes within ten minutes after the node that has joined, nor before it is unneeded for ten.
    assert course.sizes[grown : grown + 5] == [4] * 5
    assert course.evicted
    assert {one["strategy"] for one in course.evicted} == {"scale-in"}
    gone = [node for code, node in course.acts if code == "Terminated"]
    assert len(gone) == len(set(gone)) == 2
    for one in course.evicted:
        # Evicted first: its node was closed before, and ended after.
        codes = [code for code, node in course.acts if node == one["from"]]
        assert codes.index("DrainStarted") < codes.index("Terminated")
    # Never below the minimum, however little is left.
    made.scale(1)
    course.least = 1
    for _ in range(8):
        assert course.tick() == _LOW
    calls = {CALLS[0], *ACTS}
    assert set(made.cloud.ours) == calls


_FAST = "unneededFor: 3m, coolDownAfterGrowth: 0s"


def _ticks(made, count):
    acts = []
    for _ in range(count):
        made.pass_time(_TICK)
        made.fleet.join()
        _, report = made.run()
        acts += [(one["code"], one["node"]) for one in report["machines"]]
    return acts


def test_a_group_that_loses_its_tag_keeps_its_machines(cloud, tmp_path):
    """It is read by its name, and is ours only while it carries the tag."""
    with site(cloud, tmp_path, f"{{scale-in: {{{_FAST}}}}}") as made:
        made.fleet.add("pool", 2, low=1)
        groups = made.cloud.client("autoscaling")

        def untag(call, form):
            if call == CALLS[0] and not form.get("AutoScalingGroupNames.member.1"):
                tag = {"ResourceId": "pool", "ResourceType": "auto-scaling-group", "Key": ENABLED}
                groups.delete_tags(Tags=[tag])

        _ticks(made, 3)
        made.cloud.after_call = untag
        try:
            made.pass_time(_TICK)
            _, report = made.run()
        finally:
            made.cloud.after_call = lambda *_: None
        (act,) = [one for one in report["machines"] if one["status"] == "failed"]
        assert "the provider has no group pool any more" in act["message"]
        assert made.fleet.sizes == {"pool": 2}


def test_only_selected_machines_go(cloud, tmp_path):
    strategies = f"{{scale-in: {{{_FAST}, select: {{nodes: {{group: batch}}}}}}}}"
    with site(cloud, tmp_path, strategies) as made:
        made.fleet.add("batch", 2)
        made.fleet.add("web", 2, zone="b")
        _ticks(made, 8)
        assert made.fleet.sizes == {"batch": 0, "web": 2}
        assert {one["code"] for one in made.judged()["nodes"]} == {"NotSelected"}
