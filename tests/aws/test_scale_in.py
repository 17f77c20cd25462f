"""Article 004: scale-out for pending pods, and scale-in when they are gone, on instances of moto as nodes."""

import pytest

from rebalancer.aws.groups import ACTS, CALLS
from rebalancer.testing.objects import pdb
from tests.aws.fleet import site
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
