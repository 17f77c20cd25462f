"""Choose the form of a report."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.base.plain_text import WIDTH
from rebalancer.report.as_json import as_json, as_yaml
from rebalancer.report.model import RunReport

TABLES = ("table", "wide")
"""For a terminal."""
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
            from rebalancer.report.as_markdown import as_markdown  # noqa: PLC0415

            return (as_markdown(report),)
        case "csv":
            from rebalancer.report.as_csv import as_csv  # noqa: PLC0415

            return as_csv(report)
    from rebalancer.report.as_table import as_table  # noqa: PLC0415

    return (as_table(report, color=color, width=width, wide=output == "wide"),)
