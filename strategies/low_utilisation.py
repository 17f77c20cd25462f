"""Low utilisation: move pods off over-used nodes while other nodes are under-used, by requests or by measured usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.api import (
    Candidates,
    Gauge,
    LoadBalance,
    Strategy,
    Streaks,
    Term,
    View,
)
from strategies.utilisation import _ALL, LowUtilisationParams, Some, UtilisationTerm

# At most so many nodes without a measurement are named.
_SHOWN = 3


class MeasuredTerm(UtilisationTerm):
    """A UtilisationTerm with x = used share, or the larger of used and requested share.

    A node without a measurement counts by its requests. With ``usage`` such a node neither gives nor receives pods,
    but a replacement that lands on it still counts there.
    """

    unseen = True

    def __init__(self, view: View, params: LowUtilisationParams) -> None:
        usage, count = view.snapshot.usage, len(view.snapshot.nodes)
        self._signal, self._params = params.signal, params
        self._known: NDArray[np.bool_] = usage.known if usage is not None else np.zeros(count, bool)
        self._at = usage.at if usage is not None else 0.0
        self._measured = [
            (row, LoadBalance.MEASURED.index(name))
            for row, name in enumerate(sorted(params.over))
            if name in LoadBalance.MEASURED and (usage is None or usage.has(name))
        ]
        self._texts: tuple[int, dict[int, str]] = (-1, {})
        """Version of the state -> node -> description."""
        super().__init__(view, params)
        self._streaks = self._count_streaks()
        self._lasts = self._lasting()

    def _limits(self) -> LoadBalance.Limits:
        limits = super()._limits()
        return replace(limits, usable=limits.usable & self._known) if self._by_usage else limits

    def _measurement(self) -> LoadBalance.Measured:
        usage, demands = self._view.snapshot.usage, self._demands()
        rows = dict(self._measured)
        for row, measured in rows.items():
            if usage is not None:
                demands[row] = usage.classes[measured]
        every = range(len(self._names))
        return LoadBalance.Measured(
            rows=[rows.get(row, -1) for row in every],
            demands=demands,
            known=self._known,
            judged=self._known if self._by_usage else np.full(len(self._known), self._known.any()),
            lasts=self._lasts,
            by_request=np.array([not self._by_usage or row not in rows for row in every], bool),
            larger=not self._by_usage,
        )

    @property
    def _by_usage(self) -> bool:
        return self._signal == "usage"

    # -- what is used ------------------------------------------------------------------------------

    def _amounts_used(self, nodes: Some = _ALL) -> NDArray[np.float64]:
        """Return the requested amounts and, in the second half, the used amounts (2 * resources, K).

        If usage is not measured, the requested amount is used.
        """
        requested = super()._amounts_used(nodes)
        used = requested.copy()
        for row, measured in self._measured:
            used[row] = self._view.state.lasting_usage[measured, nodes]
        return np.concatenate([requested, used])

    def _decisive(self, both: NDArray[np.float64], nodes: Some = _ALL) -> NDArray[np.float64]:
        """Return the amounts by which the option ``signal`` judges nodes (resources, K).

        ``both``: the result of :meth:`_used`.
        """
        requested, used = np.split(both, 2)
        if self._signal == "larger":
            used = np.maximum(requested, used)
        amounts: NDArray[np.float64] = np.where(self._known[nodes], used, requested)
        return amounts

    def _share(self, used: NDArray[np.float64], nodes: Some = _ALL) -> NDArray[np.float64]:
        return super()._share(self._decisive(used, nodes), nodes)

    def _mean_share(self) -> NDArray[np.float64]:
        counts = self._counts
        if self._signal == "usage":
            counts = counts.copy()
            counts[[row for row, _ in self._measured]] &= self._known
        return self._mean_of(self._decisive(self._amounts_used()), counts)

    # -- candidates --------------------------------------------------------------------------------

    def waiting(self) -> Candidates:
        """Return the pairs on nodes whose over-use has not lasted for enough runs."""
        over = (
            self._over_nodes(self._share(self._amounts_used())) & ~self._lasts & ~self._give_now()
        )
        return self._balance.leaving(over)

    def violated(self) -> int:
        """Return the number of over-used nodes, including those not over-used for enough runs yet."""
        return len(np.union1d(self.candidates().node, self.waiting().node))

    def _over_nodes(self, share: NDArray[np.float64], nodes: Some = _ALL) -> NDArray[np.bool_]:
        over = super()._over_nodes(share, nodes)
        if self._signal == "usage":
            return over & self._known[nodes]
        return over & self._known.any()

    def _give_now(self, nodes: Some = _ALL) -> NDArray[np.bool_]:
        """Return which nodes (K,) are over-used by requests, or by usage for enough runs."""
        requested = super()._share(np.split(self._amounts_used(nodes), 2)[0], nodes)
        counts = np.full(len(requested), self._signal == "larger")
        if self._signal == "usage":
            counts[:] = True
            counts[[row for row, _ in self._measured]] = False
        by_request = (requested > self._over) & self._counts[:, nodes] & counts[:, None]
        gives: NDArray[np.bool_] = self._lasts[nodes] | by_request.any(axis=0)
        return gives

    # -- runs in a row -----------------------------------------------------------------------------

    def streaks(self) -> Streaks | None:
        """Return the streaks of the nodes that are over-used by measured usage."""
        return self._streaks if self._known.any() else None

    def _count_streaks(self) -> Streaks:
        used = super()._share(np.split(self._amounts_used(), 2)[1])
        over = (used > self._over) & self._counts & self._known
        names = self._view.snapshot.nodes.names
        rows = [row for row, _ in self._measured]
        seen = [names[node] for node in np.flatnonzero(over[rows].any(axis=0)).tolist()]
        before = self._view.streaks or Streaks()
        most = self._params.window or self._params.needed
        return before.after(seen, self._at, most, self._params.window)

    def _lasting(self) -> NDArray[np.bool_]:
        """Return the nodes (N,) that may give pods by usage."""
        count = len(self._known)
        if self._outdated:
            return np.zeros(count, bool)
        needed, names = self._params.needed, self._view.snapshot.nodes.names
        if needed == 1:
            return np.ones(count, bool)
        # Who is not over-used now gives nothing, whatever was before.
        lasts = [name in self._streaks.runs and self._runs_of(name) >= needed for name in names]
        return np.array(lasts, bool)

    def _runs_of(self, name: str) -> int:
        """Return in how many runs that count a node was over-used."""
        window = self._params.window
        if window:
            return self._streaks.among_last(name, window)
        return self._streaks.runs.get(name, 0)

    @property
    def _outdated(self) -> bool:
        """Whether pods were moved after the usage was measured."""
        return self._at < self._streaks.at

    # -- texts -------------------------------------------------------------------------------------

    def notes(self) -> Sequence[str]:
        """Return why usage has no effect, and what to do."""
        texts = (self._explain_block(), self._not_measured(), self._by_requests())
        return [text for text in texts if text is not None]

    def not_judged(self) -> str | None:
        """Return which measurement is missing, in a few words; None if nothing is missing."""
        if self._known.any() or self._signal != "usage":
            return None
        return "the usage of no node is known"

    def _not_measured(self) -> str | None:
        nodes = self._view.snapshot.nodes
        counts = self._counts.any(axis=0)
        unknown = np.flatnonzero(counts & ~self._known).tolist()
        if not unknown or not self._known.any():
            return None
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        what = (
            "they neither give pods nor invite them"
            if self._signal == "usage"
            else "they count by requests"
        )
        all_of = int(np.count_nonzero(counts))
        why = usage.why_unknown if (usage := self._view.snapshot.usage) is not None else {}
        names = ", ".join(
            f"{name}: {why[name]}" if name in why else name
            for name in (nodes.names[node] for node in unknown[:_SHOWN])
        )
        return f"{len(unknown)} of {all_of} nodes are not measured ({names}{more}): {what}"

    def _by_requests(self) -> str | None:
        usage = self._view.snapshot.usage
        if usage is None or not self._known.any():
            return None
        names = [
            name for name in self._names if name in LoadBalance.MEASURED and not usage.has(name)
        ]
        return f"{' and '.join(names)}: not measured, counts by requests" if names else None

    def _why(self) -> str:
        """Return why the usage of no node is known."""
        usage = self._view.snapshot.usage
        if usage is not None and usage.others:
            names = ", ".join(usage.others)
            return f"what was measured is of others ({names}), by their names"
        if usage is not None and usage.why_unknown:
            name, why = min(usage.why_unknown.items())
            return f"{name}: {why}"
        return (
            "metrics.k8s.io (metrics-server serves it), or the policy's usage.prometheus, must answer, "
            "or the snapshot file must hold it"
        )

    def _explain_block(self) -> str | None:
        if not self._known.any():
            return f"with signal: {self._signal} nothing is moved, because the usage of no node is known: {self._why()}"
        if self._outdated:
            return (
                "nothing is moved by usage until the next measurement: "
                "the last one is older than the last moves"
            )
        if self._params.needed > 1 and self._view.streaks is None:
            return (
                f"nothing is moved by usage until nodes were over-used in {self._runs_in_words()}, and "
                "earlier runs are not known: give --memory NAMESPACE/NAME to runs that enforce, or set runs: 1"
            )
        return None

    def describe(self, cls: int, node: int) -> str:
        """Return the node's fill level by its decisive resource, in a phrase."""
        # Kept per node: every pod of a node that waits is described.
        version = self._view.state.version
        if self._texts[0] != version:
            self._texts = version, {}
        texts = self._texts[1]
        if node not in texts:
            so_far = "" if self._gives_now(node) else f", {self._so_far(node)}"
            texts[node] = super().describe(cls, node) + so_far
        return texts[node]

    def _consequence(self, node: int, standing: Gauge.Standing) -> str:
        if self._signal == "usage" and not self._known[node]:
            return "gives none and invites none: what it uses is not measured"
        text = super()._consequence(node, standing)
        if standing is not Gauge.Standing.OVER or self._balance.giving()[node]:
            return text
        if (blocked := self._explain_block()) is not None:
            return f"gives none: {blocked}"
        return text if self._gives_now(node) else f"gives none yet: {self._so_far(node)}"

    def _gives_now(self, node: int) -> bool:
        return bool(self._give_now(np.array([node], np.int32))[0])

    def _so_far(self, node: int) -> str:
        runs = self._runs_of(self._view.snapshot.nodes.names[node])
        needed, window = self._params.needed, self._params.window
        if window:
            return f"so far in {runs} of the last {window} runs, {needed} are needed"
        return f"so far in {runs} of {needed} runs in a row"

    def _runs_in_words(self) -> str:
        needed, window = self._params.needed, self._params.window
        return f"{needed} of the last {window} runs" if window else f"{needed} runs in a row"

    def _what(self, row: int, node: int) -> str:
        requested, used = np.split(self._amounts_used(np.array([node], np.int32))[:, 0], 2)
        decides = self._signal == "usage" or used[row] > requested[row]
        measured = self._known[node] and row in {row for row, _ in self._measured}
        return " used" if measured and decides else super()._what(row, node)


class LowUtilisation(Strategy):
    """Moves pods off over-used nodes while other nodes are under-used, or emptier by more than a gap.

    Every move is predicted: a pod that would overload another node stays. New nodes are filled until no node is
    emptier than an over-used one by more than ``gap``, and not only up to the threshold ``under``.
    """

    Params = LowUtilisationParams

    def terms(self, view: View, params: LowUtilisationParams) -> Sequence[Term]:
        """Return one term of imbalance."""
        return [MeasuredTerm(view, params) if params.measured else UtilisationTerm(view, params)]

    def needs_usage(self, params: LowUtilisationParams) -> bool:
        """Return whether the options use measured usage."""
        return params.measured
