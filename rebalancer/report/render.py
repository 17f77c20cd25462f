"""Choose the form of a report, also for a run that did nothing because another run holds the Lease.

Such a run has not read the cluster. Its JSON and YAML have the keys of every other report, so that one program can
read both: lists are empty, and values that depend on the cluster are null.

A spreadsheet executes a cell that starts with ``=``, ``+``, ``-`` or ``@`` as a formula, and the names come from the
cluster. Such a text gets a leading apostrophe, which marks text in a spreadsheet. Numbers are not changed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

import msgspec

from rebalancer import API_VERSION
from rebalancer.base.data_text import plain_number
from rebalancer.base.plain_text import WIDTH, printable
from rebalancer.plan.plan import Move, Outcome
from rebalancer.policy.load import LoadedPolicy
from rebalancer.report.as_json import as_json, as_yaml, describe_reviewed_plan
from rebalancer.report.document import ReportDocument
from rebalancer.report.model import RunReport
from rebalancer.report.words import is_sure, zones_of

HEAD = (
    "wave", "namespace", "pod", "uid", "owner", "from", "fromZone", "to", "toZone", "probability",
    "strategy", "method", "reason", "gainHard", "gainSoft", "gainImbalance", "cost", "outcome", "message",
    "landed", "landedZone", "predicted", "seconds",
)  # fmt: skip
"""``to`` is the predicted landing, with ``probability``: a node, or how many nodes of ``toZone``. ``landed`` is the real one."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def as_csv(report: RunReport) -> Iterator[str]:
    """Yield a header line, then one line per move."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in (HEAD, *(_row(report, outcome) for outcome in report.outcomes)):
        writer.writerow([_cell(value) for value in row])
        yield stream.getvalue()
        stream.seek(0)
        stream.truncate()


def _row(report: RunReport, outcome: Outcome) -> tuple[str | float | None, ...]:
    move = outcome.move
    to, zone, probability = _predict_place(report, move)
    return (
        move.wave,
        move.namespace,
        move.pod,
        move.uid,
        move.owner,
        move.node,
        report.domain_of(move.node),
        to,
        zone,
        probability,
        move.strategy,
        move.method.value,
        move.reason,
        *(plain_number(entry) for entry in move.gain.as_tuple()),
        plain_number(move.cost),
        outcome.status.value,
        outcome.message,
        outcome.landed,
        report.domain_of(outcome.landed) if outcome.landed is not None else None,
        None if outcome.predicted is None else str(outcome.predicted).lower(),
        plain_number(outcome.seconds, 4),
    )


def _predict_place(report: RunReport, move: Move) -> tuple[str | None, str | None, float | None]:
    """Return the predicted landing as all forms have it: a node, or the number of likely nodes; its zone; the probability."""
    if not move.landings:
        return None, None, None
    first = move.landings[0]
    if is_sure(move):
        return first.node, report.domain_of(first.node), plain_number(first.probability)
    zone, share = max(zones_of(report, move).items(), key=lambda item: (item[1], item[0]))
    return f"one of {len(move.landings):,} nodes", zone or None, plain_number(share)


def _cell(value: str | float | None) -> str | float:
    if not isinstance(value, str):
        return "" if value is None else value
    return printable(f"'{value}" if value.startswith(_FORMULA) else value)


TABLES = ("table", "wide")
"""The forms for a terminal."""
FORMS = (*TABLES, "json", "yaml", "html", "markdown", "csv")


def render(
    report: RunReport, output: str, *, color: bool = False, width: int = WIDTH
) -> Iterable[str]:
    """Return the report in the form ``output``, one of ``FORMS``, in pieces to be written one by one.

    ``color`` and ``width`` apply to the table. The module of a form is imported on first use.
    """
    match output:
        case "json":
            return as_json(report)
        case "yaml":
            return (as_yaml(report),)
        case "html":
            from rebalancer.report.as_html import as_html  # noqa: PLC0415

            return as_html(report)
        case "markdown":
            from rebalancer.report.as_text import as_markdown  # noqa: PLC0415

            return (as_markdown(report),)
        case "csv":
            return as_csv(report)
    from rebalancer.report.as_text import as_table  # noqa: PLC0415

    return (as_table(report, color=color, width=width, wide=output == "wide"),)


if TYPE_CHECKING:
    from rebalancer.report.plan_file import ReviewedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTakenReport:
    """A run that did nothing because another run holds the Lease."""

    source: str
    """The API server's address."""
    loaded: LoadedPolicy
    holder: str
    """The holder of the Lease."""
    until: str
    """The end of its term, unless it is renewed; RFC 3339."""
    reviewed: ReviewedPlan | None = None
    """The file that was to be applied, if so."""
    exit_code: int = 0

    @property
    def line(self) -> str:
        """The report as one sentence."""
        return f"Another run ({self.holder}) holds the Lease until {self.until}: nothing was done."


def render_lease_taken(report: LeaseTakenReport, output: str) -> str:
    """Return the report in the form ``output``, one of ``render.FORMS``."""
    if output == "csv":
        return f"{','.join(HEAD)}\n"
    form = "table" if output in TABLES else output
    return ReportDocument([report.line], _as_data(report)).show(form)


def _as_data(report: LeaseTakenReport) -> dict[str, Any]:
    loaded = report.loaded
    return _without_reading() | {
        "apiVersion": API_VERSION,
        "kind": "Report",
        "dryRun": False,
        "mode": loaded.policy.mode.value,
        "source": report.source,
        "policySource": loaded.source,
        "policyHash": loaded.policy_hash,
        "policyFlags": loaded.changed_by,
        "stopped": report.line,
        "heldBy": {"holder": report.holder, "until": report.until},
        "reviewedPlan": describe_reviewed_plan(report.reviewed),
        "warnings": [*loaded.warnings, *loaded.of_strategies],
        "exitCode": report.exit_code,
    }


def _without_reading() -> dict[str, Any]:
    """Return every key of a report, in order: lists and objects by name are empty, all else is null."""
    from rebalancer.report.schema import Report  # noqa: PLC0415  # few runs need it

    types = get_type_hints(Report)
    empty: dict[Any, Any] = {list: [], dict: {}}
    return {
        one.encode_name: empty.get(get_origin(types[one.name]))
        for one in msgspec.structs.fields(Report)
    }
