"""After a signal a run ends within the chart's grace of ten seconds, with its report and its memory, however slow
the API server is.

How long it waits for what is asked last is set here: a busy machine takes longer than the API server.
"""

import threading
import time

import pytest

from rebalancer.base.errors import ExitCode
from rebalancer.embedded.apiserver.http import Fault
from rebalancer.kube import client
from rebalancer.run.memory.document import decode
from rebalancer.testing.objects import EmbeddedCluster
from tests.unit.commands.embedded import MEMORY, Runner, third_zone_joined

GRACE = 10.0
"""Seconds from SIGTERM until the kubelet kills the chart's pod."""
ENDLESS = 600.0
EVERY = 10**6
LAST_WORDS = client.LAST_WORDS
"""Of a run outside of tests."""


class SlowFromTheFirstEviction(threading.Event):
    """Comes with the first eviction; from then on every answer takes a while."""

    def __init__(self, cluster: EmbeddedCluster, delay: float) -> None:
        super().__init__()
        self._cluster, self._delay = cluster, delay
        self.at: float | None = None

    def is_set(self) -> bool:
        if self.at is None and self._cluster.faults.count_seen("POST", "/eviction$"):
            self.at = time.monotonic()
            self._cluster.faults.add(Fault(delay=self._delay, times=EVERY))
            self.set()
        return super().is_set()


def evicted_in_truth(cluster: EmbeddedCluster, before: set[str]) -> int:
    return len(before - {pod["metadata"]["uid"] for pod in cluster.objects("Pod", "default")})


def test_what_is_asked_last_ends_within_the_grace():
    assert LAST_WORDS < GRACE - 2.0


@pytest.mark.parametrize(
    ("delay", "last_words", "remembered"), [(0.5, ENDLESS, True), (ENDLESS, 0.5, False)]
)
def test_a_signal_ends_a_run_in_time_and_its_report_has_what_it_did(
    tmp_path, monkeypatch, delay, last_words, remembered
):
    monkeypatch.setattr(client, "LAST_WORDS", last_words)
    with third_zone_joined("web", "api", "db") as cluster:
        cluster.apply(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lease"}}
        )
        stop = SlowFromTheFirstEviction(cluster, delay)
        run = Runner(cluster, tmp_path)
        before = {pod["metadata"]["uid"] for pod in cluster.objects("Pod", "default")}
        code, report = run(stop, memory=MEMORY, lease="default/lease")
        assert stop.at is not None
        assert time.monotonic() - stop.at < ENDLESS / 2
        assert code == ExitCode.PARTIAL
        assert any("why other pods stay" in text for text in report["warnings"])
        assert (report["skipped"], report["lowerBound"]) == ([], None)
        outcomes = [move["outcome"] for move in report["moves"]]
        assert len(outcomes) == 3
        reported = sum(outcome in ("evicted", "lost") for outcome in outcomes)
        cluster.faults.clear()
        assert (
            evicted_in_truth(cluster, before)
            <= reported
            == cluster.faults.count_seen("POST", "/eviction$")
        )
        document, flaw = decode(cluster.get("ConfigMap", "memory").get("data") or {})
        hour = sum(count for _, count in document.evictions)
        # What the wave of three could evict was reserved before it.
        assert (hour, flaw) == (reported if remembered else 3, None)
        forgotten = any("could not be remembered" in text for text in report["warnings"])
        assert forgotten is not remembered
