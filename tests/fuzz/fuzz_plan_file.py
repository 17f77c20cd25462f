"""Plan files, as `apply` reads them."""

from __future__ import annotations

from io import BytesIO

from rebalancer.base.errors import PolicyError
from rebalancer.report.plan_file import read_plan
from tests.fuzz.target import Target


def _read(data: bytes) -> None:
    read_plan("-", BytesIO(data))


TARGET = Target(_read, (PolicyError,))
