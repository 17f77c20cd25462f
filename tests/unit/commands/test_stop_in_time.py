"""After a signal a run ends within the chart's grace of ten seconds, with its report and its memory, however slow
the API server is."""

import threading
import time

import pytest

from rebalancer.base.errors import ExitCode
from rebalancer.embedded.apiserver.faults import Fault
from rebalancer.memory.document import decode
from rebalancer.testing.objects import EmbeddedCluster
from tests.unit.commands.embedded import MEMORY, Runner, third_zone_joined

GRACE = 10.0
EVERY = 10**6


class SlowFromTheFirstEviction(threading.Event):
    """Comes with the first eviction; from then on every answer takes a while."""

    def __init__(self, cluster: EmbeddedCluster, delay: float) -> None:
        super().__init__()
        self._cluster, self._delay = cluster, delay
        self.at: float | None = None

    def is_set(self) -> bool:
        if self.at is None and self._cluster.faults.seen("POST", "/eviction$"):
            self.at = time.monotonic()
            self._cluster.faults.add(Fault(delay=self._delay, times=EVERY))
            self.set()
        return super().is_set()


def evicted_in_truth(cluster: EmbeddedCluster, before: set[str]) -> int:
    return len(before - {pod["metadata"]["uid"] for pod in cluster.objects("Pod", "default")})


@pytest.mark.parametrize(("delay", "remembered"), [(0.5, True), (2.0, True), (15.0, False)])
def test_a_signal_ends_a_run_in_time_and_what_it_did_is_told(tmp_path, delay, remembered):
    with third_zone_joined("web", "api", "db") as cluster:
        cluster.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "lease"},
            }
        )
        stop = SlowFromTheFirstEviction(cluster, delay)
        run = Runner(cluster, tmp_path)
        before = {pod["metadata"]["uid"] for pod in cluster.objects("Pod", "default")}
        code, report = run(stop, memory=MEMORY, lease="default/lease")
        assert stop.at is not None
        assert time.monotonic() - stop.at < GRACE
        assert code == ExitCode.PARTIAL
        outcomes = [move["outcome"] for move in report["moves"]]
        assert len(outcomes) == 3
        told = sum(outcome in ("evicted", "lost") for outcome in outcomes)
        cluster.faults.clear()
        assert (
            evicted_in_truth(cluster, before) <= told == cluster.faults.seen("POST", "/eviction$")
        )
        document, flaw = decode(cluster.get("ConfigMap", "memory").get("data") or {})
        hour = sum(count for _, count in document.evictions)
        assert (hour, flaw) == (told if remembered else 0, None)
        forgotten = any("could not be remembered" in text for text in report["warnings"])
        assert forgotten is not remembered
