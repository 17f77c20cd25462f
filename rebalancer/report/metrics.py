"""Compute the values of the metrics from the report of a run, and push or write them.

Metrics of a run are gauges. Counters (``_total``) cover all runs, because a scrape may miss a run that is soon
followed by the next: a serving process keeps the counters itself, runs of the CronJob keep them in the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from rebalancer import __version__
from rebalancer.base.sending import send
from rebalancer.base.stop import Stop
from rebalancer.plan.plan import MAX_SERIES, RESULTS, Code, Outcome, Remembered, Status, Totals
from rebalancer.plan.plan import OTHERS as OTHER_NAMESPACES
from rebalancer.report.model import RunReport
from rebalancer.snapshot.zones import ZoneState

MAX_OWNERS = 20
"""Owners with a time series of their own in one metric; the evictions of all others are one more."""
OTHERS = "other"
"""Value of the label ``owner`` for these others."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: name, labels and meaning."""

    name: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def counts(self) -> bool:
        """Whether the metric is a counter; else it is a gauge of the last run."""
        return self.name.endswith("_total")


BUILD = Metric("rebalancer_build_info", ("version",), "Always 1; the label is the version.")
LAST_RUN = Metric(
    "rebalancer_last_run_timestamp_seconds", (), "When the last run ended, in Unix seconds."
)
EXIT_CODE = Metric("rebalancer_last_run_exit_code", (), "Exit code of the last run.")
DRY_RUN = Metric("rebalancer_dry_run", (), "1 if the run was not to evict, 0 if it was.")
NODES = Metric("rebalancer_nodes", (), "Nodes of the snapshot.")
PODS = Metric("rebalancer_pods", (), "Pods of the snapshot.")
ZONES = Metric("rebalancer_zones", ("state",), "Zones by state: open, closed, empty, back.")
ZONE_LOSS = Metric(
    "rebalancer_zone_loss_workloads",
    ("zone", "loses"),
    "Workloads of several pods that lose all of them if the zone goes (all), and others that fall below their PodDisruptionBudget (budget). Absent with a single zone.",
)
PLANNED = Metric(
    "rebalancer_moves_planned",
    ("strategy",),
    "Moves of the plan, by the strategy that asks for most.",
)
MOVES = Metric("rebalancer_moves", ("outcome",), "Moves of the plan by outcome.")
EVICTIONS = Metric(
    "rebalancer_evictions",
    ("owner",),
    f"Evicted pods by owner: the {MAX_OWNERS} with most of them, the sum of all further ones as {OTHERS}.",
)
LANDINGS = Metric(
    "rebalancer_landings",
    ("result",),
    "Evicted pods whose replacement landed as-predicted, elsewhere, or is not seen yet (unknown).",
)
GAIN = Metric(
    "rebalancer_gain",
    ("entry",),
    "Predicted gain of the evicted pods' moves by entry of the cost: hard, soft, imbalance.",
)
SKIPS = Metric("rebalancer_skips", ("code",), "Pods that stay by reason code.")
UNMET = Metric(
    "rebalancer_rules_unmet",
    ("strategy", "when"),
    "Unmet rules before the run, as planned for after it, and in the cluster that it has left, scored again (before, after, now; absent where it was not).",
)
UNSATISFIABLE = Metric(
    "rebalancer_rules_unsatisfiable", ("strategy",), "Rules that no placement can satisfy."
)
NOT_JUDGED = Metric(
    "rebalancer_rules_not_judged",
    ("strategy",),
    "Reasons why a strategy could not judge its rules.",
)
BACKLOG = Metric(
    "rebalancer_backlog_moves", (), "Moves that budgets and time leave to later runs; an estimate."
)
STANDSTILL = Metric(
    "rebalancer_standstill",
    (),
    "Reasons why the cluster was too far from normal to act; 0 if it was not.",
)
CUT = Metric("rebalancer_cut", (), "1 if the run ended before its plan did, otherwise 0.")
PHASES = Metric("rebalancer_phase_seconds", ("phase",), "Seconds by phase of the run.")
MEMORY = Metric(
    "rebalancer_memory_owners",
    ("state",),
    "Remembered owners by state: fine, resting, given-up. Absent without --memory.",
)
AGAIN = Metric(
    "rebalancer_moved_again",
    ("owner",),
    "Evicted pods on a node to which an earlier run had moved a pod of the same owner, bounded as "
    "rebalancer_evictions. Absent without --memory.",
)
LEADS = Metric(
    "rebalancer_leads",
    (),
    "1 while serve has the Lease, 0 while it stands by. Of serve only.",
)
SILENCE = Metric(
    "rebalancer_watch_silence_seconds",
    (),
    "Seconds since the API server has last said something to each watch; the longest. Of serve only.",
)
POLICY_INVALID = Metric(
    "rebalancer_policy_invalid",
    (),
    "1 while the policy's files are invalid, so that the last valid policy stays in force, otherwise 0. Of serve only.",
)
REFUSED = Metric(
    "rebalancer_watches_refused",
    (),
    "Lists whose changes are not received now, since the API server refuses to watch or to list them. Of serve only.",
)

RUNS_TOTAL = Metric(
    "rebalancer_runs_total",
    ("exit_code",),
    "Runs by exit code, since the counting began; only serve counts those that failed before they had a report, too.",
)
MOVES_TOTAL = Metric(
    "rebalancer_moves_total",
    ("outcome", "strategy", "namespace"),
    f"Moves that were tried, by outcome, strategy and namespace, since the counting began; those beyond {MAX_SERIES} combinations under the namespace {OTHER_NAMESPACES}.",
)
LANDINGS_TOTAL = Metric(
    "rebalancer_landings_total",
    ("result",),
    "Evicted pods by landing, as rebalancer_landings, since the counting began.",
)

ATTENDED = Metric(
    "rebalancer_interruptions_attended",
    ("state",),
    "Machines that go: waiting for their time or a place, or under-way. Of serve with signals only, as the next three.",
)
INTERRUPTIONS = Metric(
    "rebalancer_interruptions_ended",
    ("source", "result"),
    "Interruptions that came to their end, since the process leads: done, incomplete, cancelled, expired, gone, withdrawn.",
)
STEPS = Metric(
    "rebalancer_interruption_steps",
    ("step", "status"),
    "Steps that came to their end, since the process leads: done, failed, timed-out, skipped.",
)
FAILING = Metric(
    "rebalancer_signal_source_failing",
    ("source",),
    "1 while a signal source cannot be reached, otherwise 0.",
)

TABLE = (
    BUILD,
    LAST_RUN,
    EXIT_CODE,
    DRY_RUN,
    NODES,
    PODS,
    ZONES,
    ZONE_LOSS,
    PLANNED,
    MOVES,
    EVICTIONS,
    LANDINGS,
    GAIN,
    SKIPS,
    UNMET,
    UNSATISFIABLE,
    NOT_JUDGED,
    BACKLOG,
    STANDSTILL,
    CUT,
    PHASES,
    MEMORY,
    AGAIN,
    LEADS,
    SILENCE,
    POLICY_INVALID,
    REFUSED,
    RUNS_TOTAL,
    MOVES_TOTAL,
    LANDINGS_TOTAL,
    ATTENDED,
    INTERRUPTIONS,
    STEPS,
    FAILING,
)
"""All metrics, in the order of the documentation."""


def as_markdown() -> str:
    """Return the table for docs/metrics.md (``make docs`` writes it there)."""
    rows = [
        f"| `{one.name}` | {', '.join(f'`{label}`' for label in one.labels)} | {one.meaning} |"
        for one in TABLE
    ]
    return "\n".join(["| metric | labels | meaning |", "|---|---|---|", *rows])


Values = Mapping[tuple[str, ...], float]
"""Values of the labels, in the order of the table -> value of the metric."""


def of_end(exit_code: int, now: float) -> dict[Metric, Values]:
    """Return the metrics that every run has, even a run that failed without a report. ``now``: Unix seconds."""
    return {
        BUILD: {(__version__,): 1},
        LAST_RUN: {(): now},
        EXIT_CODE: {(): exit_code},
    }


def of_report(report: RunReport, remembered: Remembered | None, now: float) -> dict[Metric, Values]:
    """Return all metrics of a run. ``remembered``: the memory before the run, None without ``--memory``."""
    plan, snapshot = report.plan, report.snapshot
    evicted = [one for one in report.outcomes if one.status.is_carried_out]
    statuses = Counter(one.status for one in report.outcomes)
    codes = Counter(skip.code for skip in plan.skips)
    states = Counter(zone.state for zone in report.zones.zones)
    strategies = Counter(one.move.strategy for one in report.outcomes)
    whens = {"before": plan.before, "after": plan.after, "now": report.now or {}}
    return {
        **of_end(report.exit_code, now),
        DRY_RUN: {(): report.dry_run},
        NODES: {(): len(snapshot.nodes)},
        PODS: {(): len(snapshot.pods)},
        ZONES: {(state.value,): states[state] for state in ZoneState},
        ZONE_LOSS: {
            (loss.zone, name): len(of)
            for loss in report.zones.losses
            for name, of in (("all", loss.lost), ("budget", loss.below))
        },
        PLANNED: {(name,): strategies[name] for name in plan.before},
        MOVES: {(status.value,): statuses[status] for status in Status},
        EVICTIONS: _by_owner(evicted),
        LANDINGS: _landings(evicted),
        GAIN: {
            (entry,): sum(getattr(one.move.gain, entry) for one in evicted)
            for entry in ("hard", "soft", "imbalance")
        },
        SKIPS: {(code.value,): codes[code] for code in Code},
        UNMET: {
            (name, when): score.violated
            for when, scores in whens.items()
            for name, score in scores.items()
        },
        UNSATISFIABLE: {(name,): len(score.unsatisfiable) for name, score in plan.before.items()},
        NOT_JUDGED: {(name,): len(score.not_judged) for name, score in plan.before.items()},
        BACKLOG: {(): plan.backlog.moves},
        STANDSTILL: {(): len(report.standstill)},
        CUT: {(): report.cut is not None},
        PHASES: {(phase,): seconds for phase, seconds in report.timings.items()},
        **({} if remembered is None else _of_memory(remembered, evicted)),
    }


def of_totals(totals: Totals) -> dict[Metric, Values]:
    """Return the counters over all runs."""
    return {
        RUNS_TOTAL: {(code,): runs for code, runs in totals.runs.items()},
        MOVES_TOTAL: {
            (outcome, strategy, space): n for outcome, strategy, space, n in totals.moves
        },
        # Always there, also as 0: the growth of a series counts from its first sample.
        LANDINGS_TOTAL: {(result,): totals.landings.get(result, 0) for result in RESULTS.values()},
    }


def of_serving(
    *, leads: bool, silence: float, refused: int, policy_invalid: bool = False
) -> dict[Metric, Values]:
    """Return the metrics of a serving process that exist before its first run. ``silence`` is in seconds."""
    return {
        BUILD: {(__version__,): 1},
        LEADS: {(): leads},
        SILENCE: {(): silence},
        POLICY_INVALID: {(): policy_invalid},
        REFUSED: {(): refused},
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
        ATTENDED: counts.under_way,
        INTERRUPTIONS: counts.ended,
        STEPS: counts.steps,
        FAILING: counts.failing,
    }
    return {metric: of for metric, of in values.items() if of}


def registry(values: Mapping[Metric, Values]) -> CollectorRegistry:
    """Return the values as a registry of prometheus_client."""
    made = CollectorRegistry()
    for metric in TABLE:
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
    values: dict[tuple[str, ...], float] = {(ref,): n for ref, n in most[:MAX_OWNERS]}
    # Always there, so that a query has an answer where nothing was evicted.
    return values | {(OTHERS,): sum(n for _, n in most[MAX_OWNERS:])}


def _of_memory(remembered: Remembered, evicted: Iterable[Outcome]) -> Mapping[Metric, Values]:
    states, targets = remembered.states, remembered.targets
    again = [one for one in evicted if one.move.node in targets.get(one.move.owner, ())]
    return {
        MEMORY: {(state,): states.get(state, 0) for state in ("fine", "resting", "given-up")},
        AGAIN: _by_owner(again),
    }


_GROUP = "/metrics/job/"


def as_text(metrics: CollectorRegistry) -> bytes:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(metrics)


def push(url: str, metrics: CollectorRegistry, stop: Stop, cluster: str = "") -> None:
    """Replace the metrics group at ``url`` with these metrics.

    The group is in the path of the URL as a Pushgateway defines it (``/metrics/job/NAME/LABEL/VALUE``); without one
    it is the group of the job ``kube-rebalancer``. ``cluster`` is one more label of the group, unless empty.

    Raises:
        SendingError: the Pushgateway did not accept the metrics.
    """
    headers = {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    send("PUT", with_group(url, cluster), as_text(metrics), headers, stop)


def with_group(url: str, cluster: str = "") -> str:
    """Return the Pushgateway's ``url`` with a metrics group in its path: its own, else that of the job ``kube-rebalancer``.

    ``cluster`` is added as one more label of the group, unless it is empty.
    """
    parts = urlsplit(url)
    if _GROUP in parts.path and not cluster:
        return url
    path = parts.path.rstrip("/")
    if _GROUP not in path:
        path = f"{path}{_GROUP}kube-rebalancer"
    if cluster:
        path = f"{path}/cluster/{cluster}"
    return urlunsplit(parts._replace(path=path))
