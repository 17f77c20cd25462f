"""Raw scores of the plug-ins for many pods at once, one per row; see :mod:`rebalancer.scheduler.scores`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from rebalancer.scheduler.rings import narrow
from rebalancer.scheduler.rounding import go_log, go_round
from rebalancer.scheduler.scores import RawScores
from rebalancer.scheduler.spread import Pair, SoftSpread
from rebalancer.snapshot.columns import Floats, Int32s, Ints


@dataclass(frozen=True, slots=True)
class ManySpreads:
    """Soft spread of pods whose constraints have the same domains."""

    rows: Int32s
    """(G,) which pods, ascending."""
    like: SoftSpread
    """Of one of them: what all of them agree in."""
    counts: tuple[Ints, ...]
    """Per constraint (G, D + 1) or (G, N)."""

    def raw(self, of: Ints, sizes: Sequence[Ints]) -> Ints:
        """Return the raw scores (X, N) of pods ``of`` (X,) of this group; as ``SoftSpread.raw``, for many.

        ``sizes``: the number of scored domains (X,) per constraint.
        """
        total: Floats | None = None
        for constraint, counts, size, domains in zip(
            self.like.constraints, self.counts, sizes, self.like.domains, strict=True
        ):
            topology = constraint.topology
            factor = np.array([go_log(float(n + 2)) for n in size.tolist()])[:, None]
            term: Floats = counts[of] * factor + float(constraint.max_skew - 1)
            if domains is not None:
                term[:, topology.size] = 0.0
                term = np.take(term, topology.domain, axis=1)
            elif not topology.everywhere:
                term[:, ~topology.present] = 0.0
            total = term if total is None else total + term
        assert total is not None  # noqa: S101  # pods without constraints are in no group
        return go_round(total)


@dataclass(frozen=True, slots=True)
class ManyScores:
    """Raw scores before normalisation; None for a plug-in that skips all pods."""

    fixed_total: Ints
    """(K, N) see RawScores."""
    taints: Ints | None
    affinity: Ints | None
    interpod: Ints | None
    spreads: tuple[ManySpreads, ...]


def stack_scores(raws: Sequence[RawScores], of: Ints, leaving: Sequence[Pair]) -> ManyScores:
    """Return the scores of pods (K,): pod k has ``raws[of[k]]``, without the spread count of ``leaving[k]``."""
    return ManyScores(
        narrow(np.stack([raw.fixed_total for raw in raws]))[of],
        _fill([raw.taints if raw.taints.any() else None for raw in raws], of),
        _fill([raw.affinity for raw in raws], of),
        _fill([raw.interpod for raw in raws], of),
        tuple(_spreads([raw.spread for raw in raws], of, leaving)),
    )


def _fill(columns: Sequence[Ints | None], of: Ints) -> Ints | None:
    """Return columns as rows (K, N), with zeros for None; None if all columns are None."""
    some = next((column for column in columns if column is not None), None)
    if some is None:
        return None
    none = np.zeros_like(some)
    return narrow(np.stack([none if column is None else column for column in columns]))[of]


def _spreads(
    spreads: Sequence[SoftSpread | None], of: Ints, leaving: Sequence[Pair]
) -> Iterator[ManySpreads]:
    """Yield the soft spreads of pods, grouped by equal domains."""
    groups: dict[Hashable, list[SoftSpread]] = {}
    places: dict[int, tuple[Hashable, int]] = {}
    for index, spread in enumerate(spreads):
        if spread is not None:
            mine = groups.setdefault(about := _about(spread), [])
            places[index] = about, len(mine)
            mine.append(spread)
    for about, mine in groups.items():
        rows = [
            row for row, index in enumerate(of.tolist()) if places.get(index, (None,))[0] == about
        ]
        place = [places[index][1] for index in of[rows].tolist()]
        counts = []
        for column, domains in enumerate(mine[0].domains):
            many = np.stack([spread.counts[column] for spread in mine])[place]
            first = 0
            for cls, members in groupby(place):
                until = first + len(list(members))
                constraint = mine[cls].constraints[column]
                here = [leaving[row] for row in rows[first:until]]
                constraint.leave(many[first:until], here, per_node=domains is None)
                first = until
            counts.append(many)
        yield ManySpreads(np.array(rows, np.int32), mine[0], tuple(counts))


def _about(spread: SoftSpread) -> Hashable:
    """Return a key that is equal for constraints with the same domains and skews."""
    constraints = [
        (id(constraint.topology), constraint.max_skew, id(domains))
        for constraint, domains in zip(spread.constraints, spread.domains, strict=True)
    ]
    return id(spread.ignored), *constraints
