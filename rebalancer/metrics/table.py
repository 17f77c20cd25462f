"""The metrics with name, labels and meaning in one table, from which docs/metrics.md is generated.

Metrics of a run are gauges. Counters (``_total``) cover all runs, because a scrape may miss a run that is soon
followed by the next: a serving process keeps the counters itself, runs of the CronJob keep them in the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.plan.totals import MAX_SERIES
from rebalancer.plan.totals import OTHERS as OTHER_NAMESPACES

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
