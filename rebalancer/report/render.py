"""Chooses the form of a report."""

from __future__ import annotations

from collections.abc import Iterable

from rebalancer.report.as_json import as_json, as_yaml
from rebalancer.report.as_table import as_table
from rebalancer.report.model import RunReport

FORMS = ("table", "json", "yaml", "html")


def render(report: RunReport, output: str, *, color: bool = False) -> Iterable[str]:
    """Return the report in the form ``output``, one of ``FORMS``, in pieces to be written one by one.

    ``color`` is for the table.
    """
    if output == "json":
        return as_json(report)
    if output == "html":
        from rebalancer.report.as_html import as_html  # noqa: PLC0415  # it is seldom wanted

        return (as_html(report),)
    return (as_yaml(report) if output == "yaml" else as_table(report, color=color),)
