"""Compute the values of the metrics from the report of a run, and push or write them."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from rebalancer import __version__
from rebalancer.base.sending import send
from rebalancer.base.stop import Stop
from rebalancer.metrics import table
from rebalancer.metrics.table import Metric
from rebalancer.plan.outcome import Outcome, Status
from rebalancer.plan.plan import Code
from rebalancer.plan.totals import RESULTS, Remembered, Totals
from rebalancer.report.model import RunReport

Values = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the table -> value of the metric."""


def of_end(exit_code: int, now: float) -> dict[Metric, Values]:
    """Return the metrics that every run has, even a run that failed without a report. ``now``: Unix seconds."""
    return {
        table.BUILD: {(__version__,): 1},
        table.LAST_RUN: {(): now},
        table.EXIT_CODE: {(): exit_code},
    }


def of_report(report: RunReport, remembered: Remembered | None, now: float) -> dict[Metric, Values]:
    """Return all metrics of a run. ``remembered``: the memory before the run, None without ``--memory``."""
    plan, snapshot = report.plan, report.snapshot
    evicted = [one for one in report.outcomes if one.status.is_carried_out]
    statuses = Counter(one.status for one in report.outcomes)
    codes = Counter(skip.code for skip in plan.skips)
    strategies = Counter(one.move.strategy for one in report.outcomes)
    whens = {"before": plan.before, "after": plan.after, "now": report.now or {}}
    return {
        **of_end(report.exit_code, now),
        table.DRY_RUN: {(): report.dry_run},
        table.NODES: {(): len(snapshot.nodes)},
        table.PODS: {(): len(snapshot.pods)},
        table.PLANNED: {(name,): strategies[name] for name in plan.before},
        table.MOVES: {(status.value,): statuses[status] for status in Status},
        table.EVICTIONS: _by_owner(evicted),
        table.LANDINGS: _landings(evicted),
        table.GAIN: {
            (entry,): sum(getattr(one.move.gain, entry) for one in evicted)
            for entry in ("hard", "soft", "imbalance")
        },
        table.SKIPS: {(code.value,): codes[code] for code in Code},
        table.UNMET: {
            (name, when): score.violated
            for when, scores in whens.items()
            for name, score in scores.items()
        },
        table.UNSATISFIABLE: {
            (name,): len(score.unsatisfiable) for name, score in plan.before.items()
        },
        table.NOT_JUDGED: {(name,): len(score.not_judged) for name, score in plan.before.items()},
        table.BACKLOG: {(): plan.backlog.moves},
        table.STANDSTILL: {(): len(report.standstill)},
        table.CUT: {(): report.cut is not None},
        table.PHASES: {(phase,): seconds for phase, seconds in report.timings.items()},
        **({} if remembered is None else _of_memory(remembered, evicted)),
    }


def of_totals(totals: Totals) -> dict[Metric, Values]:
    """Return the counters over all runs."""
    return {
        table.RUNS_TOTAL: {(code,): runs for code, runs in totals.runs.items()},
        table.MOVES_TOTAL: {
            (outcome, strategy, space): n for outcome, strategy, space, n in totals.moves
        },
        # Always there, also as 0: the growth of a series counts from its first sample.
        table.LANDINGS_TOTAL: {
            (result,): totals.landings.get(result, 0) for result in RESULTS.values()
        },
    }


def of_serving(*, leads: bool, silence: float) -> dict[Metric, Values]:
    """Return the metrics of a serving process that exist before its first run. ``silence`` is in seconds."""
    return {
        table.BUILD: {(__version__,): 1},
        table.LEADS: {(): leads},
        table.SILENCE: {(): silence},
    }


@dataclass(frozen=True, slots=True)
class SignalCounts:
    """Numbers of received signals, by label values."""

    under_way: Values
    ended: Values
    steps: Values
    failing: Values


def of_signals(counts: SignalCounts) -> dict[Metric, Values]:
    """Return the metrics of received signals."""
    values = {
        table.ATTENDED: counts.under_way,
        table.INTERRUPTIONS: counts.ended,
        table.STEPS: counts.steps,
        table.FAILING: counts.failing,
    }
    return {metric: of for metric, of in values.items() if of}


def registry(values: Mapping[Metric, Values]) -> CollectorRegistry:
    """Return the values as a registry of prometheus_client."""
    made = CollectorRegistry()
    for metric in table.TABLE:
        if metric not in values:
            continue
        if metric.counts:
            made.register(_Counted(metric, values[metric]))
            continue
        gauge = Gauge(metric.name, metric.meaning, metric.labels, registry=made)
        for labels, value in values[metric].items():
            (gauge.labels(*labels) if labels else gauge).set(float(value))
    return made


class _Counted(Collector):
    """A collector for a counter whose values were counted elsewhere."""

    def __init__(self, metric: Metric, values: Values) -> None:
        self._metric, self._values = metric, values

    def collect(self) -> Iterator[PrometheusMetric]:
        """Yield the counter with its values."""
        metric = self._metric
        family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in sorted(self._values.items()):
            family.add_metric(labels, value)
        yield family


def _landings(evicted: Iterable[Outcome]) -> Values:
    counts = Counter(RESULTS[one.predicted] for one in evicted if one.move.has_replacement)
    return {(result,): counts[result] for result in RESULTS.values()}


def _by_owner(evicted: Iterable[Outcome]) -> Values:
    """Return the evictions per owner: the ``MAX_OWNERS`` largest, and the sum of the rest as ``OTHERS``."""
    counts = Counter(one.move.owner for one in evicted)
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    values: dict[tuple[str, ...], float] = {(ref,): n for ref, n in most[: table.MAX_OWNERS]}
    # Always there, so that a query has an answer where nothing was evicted.
    return values | {(table.OTHERS,): sum(n for _, n in most[table.MAX_OWNERS :])}


def _of_memory(remembered: Remembered, evicted: Iterable[Outcome]) -> Mapping[Metric, Values]:
    states, targets = remembered.states, remembered.targets
    again = [one for one in evicted if one.move.node in targets.get(one.move.owner, ())]
    return {
        table.MEMORY: {(state,): states.get(state, 0) for state in ("fine", "resting", "given-up")},
        table.AGAIN: _by_owner(again),
    }


_GROUP = "/metrics/job/"


def push(url: str, metrics: CollectorRegistry, stop: Stop) -> None:
    """Replace the metrics group at ``url`` with these metrics.

    The group is in the path of the URL as a Pushgateway defines it (``/metrics/job/NAME/LABEL/VALUE``); without one
    it is the group of the job ``kube-rebalancer``.

    Raises:
        SendingError: the Pushgateway did not accept the metrics.
    """
    headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    send("PUT", with_group(url), generate_latest(metrics), headers, stop)


def with_group(url: str) -> str:
    """Return ``url`` with a metrics group in its path; the default one if it has none."""
    parts = urlsplit(url)
    if _GROUP in parts.path:
        return url
    path = f"{parts.path.rstrip('/')}{_GROUP}kube-rebalancer"
    return urlunsplit(parts._replace(path=path))


def write_file(path: Path, metrics: CollectorRegistry) -> None:
    """Write the metrics to ``path`` by way of a temporary file, so the collector never reads half a file.

    Raises:
        OSError: the file could not be written.
    """
    # The collector reads *.prom only.
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(generate_latest(metrics))
            # The collector runs as another user than we do.
            os.fchmod(stream.fileno(), 0o644)
        os.replace(name, path)  # noqa: PTH105  # a descriptor's name, not a Path
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
