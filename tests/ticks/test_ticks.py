"""The chart with pure defaults, tick by tick: every two minutes, and no pod younger than five minutes moves.

Nothing is set but what the machine needs (image, node, address of the API server). Two releases share the
cluster: one only observes, the other is installed when the pods are old enough.
"""

import re
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.chart.helm import Release
from tests.controlplane import audit, objects, operations
from tests.e2e import crowd
from tests.node.ground import Ground

APPS = 6
SPREAD = "spread"
MOVES = APPS + 2
"""Each app of the crowd stands 2/1 in two zones of three, the spread one 3/3: two of its pods move."""
OLD_ENOUGH = timedelta(minutes=5)
SILENT_TICKS = 5
PERIOD = 120


@pytest.fixture
def drifted(ground):
    """Seven apps that were created while one zone of three was away; it is back now."""
    plane = ground.plane
    ground.keep_others_away()
    plane.apply([crowd.node(zone) for zone in crowd.ZONES[:2]])
    operations.wait_nodes_ready(plane.api, 3)
    labels = {"app": SPREAD}
    rule = objects.spread(labels)
    plane.apply([objects.deployment(SPREAD, 6, labels=labels, topologySpreadConstraints=[rule])])
    operations.wait_pods_ready(plane.api, 6, 60, selector=f"app={SPREAD}")
    crowd.gather(plane, APPS)
    yield plane
    ground.clear()


class Ticks:
    """The runs of one release that have ended, with their logs, as they come."""

    def __init__(self, ground: Ground, namespace: str) -> None:
        self.namespace = namespace
        self.logs: list[str] = []
        self.began: list[datetime] = []
        """When the pod of each was created."""
        self._ground = ground
        self._seen: set[str] = set()
        self._release = Release(ground.plane.kubeconfig, namespace)

    def install(self, **more: object) -> None:
        """Install the release with defaults, and ``more``."""
        self._release.install(self._ground.necessities(**more))

    def uninstall(self) -> None:
        """Take it away."""
        self._release.uninstall()

    def look(self) -> None:
        """Take up what has ended since: the history limits of the chart remove it later."""
        for pod in operations.pods(self._ground.api, self.namespace):
            name = pod["metadata"]["name"]
            if name in self._seen or pod["status"].get("phase") not in ("Succeeded", "Failed"):
                continue
            self._seen.add(name)
            log = self._ground.log(pod)
            assert pod["status"]["phase"] == "Succeeded", log
            self.logs.append(log)
            self.began.append(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]))
            sys.stdout.write(f"\n== {name}, ended by {datetime.now(UTC):%H:%M:%S} UTC\n{log}")


def watch(seconds, until, *followed):
    """Follow releases until a condition holds; a busy machine may need twice the time."""
    deadline = time.monotonic() + 2 * seconds
    while True:
        for ticks in followed:
            ticks.look()
        if until():
            return
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(2)


def old_enough(plane):
    """From when on all pods may move: timestamps are of whole seconds."""
    pods = operations.pods(plane.api, "default")
    created = [datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods]
    return max(created) + OLD_ENOUGH + timedelta(seconds=1)


def places(plane):
    """How many pods of each app stand in each zone's node."""
    pods = operations.pods(plane.api, "default")
    counts = Counter((pod["metadata"]["labels"]["app"], pod["spec"]["nodeName"]) for pod in pods)
    apps = {app for app, _ in counts}
    nodes = [f"crowd-{zone}" for zone in crowd.ZONES]
    return {app: [counts[app, node] for node in nodes] for app in apps}


def planned(log):
    """How many moves a run's report speaks of."""
    matches = re.findall(
        r"^(?:(\d+) evictions?\b|\d+ pods? evicted of (\d+) planned)", log, re.MULTILINE
    )
    return sum(int(observed or acted) for observed, acted in matches)


def test_two_ticks_fix_and_the_next_five_evict_nothing_while_an_observer_only_reports(
    ground, drifted
):
    evictions = audit.AuditLog(drifted.audit_log)
    drifted_places = places(drifted)
    observer, enforcer = Ticks(ground, "observing"), Ticks(ground, "rebalancing")
    observer.install(mode="observe")
    try:
        old = old_enough(drifted)
        # The last run that began before may have looked before, or after.
        watch(400 + 2 * PERIOD, lambda: any(began > old for began in observer.began), observer)
        runs = [
            (began > old, planned(log))
            for began, log in zip(observer.began, observer.logs, strict=True)
        ]
        *young, (_, moves), of_old = runs
        assert young
        assert set(young) == {(False, 0)}
        assert moves in (0, MOVES)
        assert of_old == (True, MOVES)
        assert evictions.evictions() == []
        assert places(drifted) == drifted_places

        enforcer.install()
        watch(3 * PERIOD, lambda: len(enforcer.logs) >= 2, observer, enforcer)
        assert all(max(counts) - min(counts) == 0 for counts in places(drifted).values())
        done = evictions.evictions()
        assert len(done) == MOVES
        assert {eviction.user.split(":")[2] for eviction in done} == {"rebalancing"}

        ticks = 2 + SILENT_TICKS
        watch((SILENT_TICKS + 1) * PERIOD, lambda: len(enforcer.logs) >= ticks, observer, enforcer)
        assert [planned(log) for log in enforcer.logs[1:]] == [0] * (ticks - 1)
        assert evictions.evictions() == done
        assert planned(observer.logs[-1]) == 0
        said = [f"{eviction.at:%H:%M:%S} {eviction.namespace}/{eviction.name}" for eviction in done]
        sys.stdout.write("\n== evictions, as the API server logged them\n" + "\n".join(said) + "\n")
    finally:
        observer.uninstall()
        enforcer.uninstall()
