"""An integer programme built row by row, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

Row = Mapping[int, float]


@dataclass
class Solved:
    """An optimum, or what was reached within the time limit."""

    status: str
    value: float
    bound: float
    """No solution is better than this."""
    variables: NDArray[np.float64] | None


@dataclass
class Programme:
    """Variables with bounds, and rows ``low <= row <= high``."""

    _low: list[float] = field(default_factory=list)
    _high: list[float] = field(default_factory=list)
    _whole: list[int] = field(default_factory=list)
    _rows: list[Row] = field(default_factory=list)
    _row_low: list[float] = field(default_factory=list)
    _row_high: list[float] = field(default_factory=list)
    _forbidden: bool = False

    def variable(self, low: float = 0.0, high: float = np.inf, *, whole: bool = False) -> int:
        """Add a variable; return its number."""
        self._low.append(low)
        self._high.append(high)
        self._whole.append(int(whole))
        return len(self._low) - 1

    def row(self, row: Row, low: float = -np.inf, high: float = np.inf) -> None:
        """Add a constraint."""
        self._rows.append(row)
        self._row_low.append(low)
        self._row_high.append(high)

    def forbid(self) -> None:
        """Say that there is no solution: a limit on what is fixed does not hold."""
        self._forbidden = True

    def minimise(self, objective: Row, seconds: float) -> Solved:
        """Return the least value of ``objective``, proven unless the time limit was reached."""
        if self._forbidden:
            return Solved("infeasible", np.inf, np.inf, None)
        if not self._low:
            return Solved("proven", 0.0, 0.0, np.zeros(0))
        costs = np.zeros(len(self._low))
        for variable, cost in objective.items():
            costs[variable] = cost
        answer = milp(
            costs,
            integrality=np.array(self._whole),
            bounds=Bounds(np.array(self._low), np.array(self._high)),
            constraints=[self._constraints()] if self._rows else [],
            options={"time_limit": seconds, "mip_rel_gap": 1e-9},
        )
        if answer.x is None:
            return Solved(_status(answer.status), np.inf, _number(answer.mip_dual_bound), None)
        bound = _number(answer.mip_dual_bound, answer.fun)
        return Solved(_status(answer.status), float(answer.fun), bound, np.asarray(answer.x))

    def _constraints(self) -> LinearConstraint:
        lengths = [len(row) for row in self._rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        columns = np.array([c for row in self._rows for c in row], np.int32)
        values = np.array([v for row in self._rows for v in row.values()], float)
        matrix = csr_array((values, columns, starts), shape=(len(lengths), len(self._low)))
        return LinearConstraint(matrix, np.array(self._row_low), np.array(self._row_high))


def _status(code: int) -> str:
    return {0: "proven", 1: "time limit", 2: "infeasible"}.get(code, f"failed ({code})")


def _number(value: float | None, default: float = -np.inf) -> float:
    return default if value is None else float(value)
