"""Answers of Prometheus: the first byte is what is asked for, the rest the bytes of the body."""

from __future__ import annotations

from rebalancer.base.environment import SystemClock
from rebalancer.base.sending import HttpAnswer
from rebalancer.base.stop import Stop
from rebalancer.kube import metrics
from rebalancer.kube.lists import Listing
from rebalancer.kube.metrics import NotMeasuredError
from rebalancer.policy.cluster import Prometheus
from rebalancer.wire.kinds import METRICS
from rebalancer.wire.lists import item_decoder
from tests.fuzz.target import Target

STATUSES = (200, 400, 401, 302)


class _Answered(metrics.PrometheusSource):
    """A source that has its answer."""

    def __init__(self, unit: str, answer: HttpAnswer) -> None:
        queries = {"cpu": "a", "memory": "b"}
        given = {"url": "https://p", "nodes": queries, "pods": queries, "unit": unit}
        super().__init__(Prometheus.model_validate(given), Stop(SystemClock()))
        self._said = answer

    def _answer(self, query: str, stop: Stop) -> HttpAnswer:
        return self._said


def _read(data: bytes) -> None:
    first = data[0] if data else 0
    resource, unit = METRICS[first & 1], "share" if first & 2 else "amount"
    source = _Answered(unit, HttpAnswer(STATUSES[(first >> 2) & 3], data[1:]))
    decoder = item_decoder(resource.kind)
    for item in source.items(Listing(resource), lambda: False):
        metrics = decoder.decode(item)
        amounts = metrics.amounts()
        assert amounts is None or all(one is None or one >= 0 for one in amounts)


TARGET = Target(_read, (NotMeasuredError,))
