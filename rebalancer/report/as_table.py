"""A form of the report."""
from rebalancer.report.as_json import as_json
from rebalancer.report.model import RunReport


def as_table(report: RunReport, *, color: bool = False) -> str:
    """Return the report."""
    return as_json(report)
