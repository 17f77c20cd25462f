"""How long evicted pods may take to end, where the policy says so."""

from __future__ import annotations

from collections.abc import Collection

from rebalancer.policy.model import Methods
from rebalancer.snapshot.model import Snapshot
from rebalancer.snapshot.selected import selected


def grace_periods(snapshot: Snapshot, method: Methods, uids: Collection[str]) -> dict[str, int]:
    """Return the grace period of each of the pods ``uids``, in seconds; those that are left out have their own.

    The least of all whose ``select`` matches holds, and ``gracePeriod`` where none does.
    """
    general = method.grace_period
    seconds = {} if general is None else dict.fromkeys(uids, int(general.total_seconds()))
    if not method.grace_periods:
        return seconds
    column = snapshot.pods.uid
    rows = column.rows_of(set(uids)).tolist()
    of_select: dict[str, int] = {}
    for rule in method.grace_periods:
        picked = selected(snapshot, rule.select)
        matching = None if picked is None else picked.pods(snapshot)
        for row in rows:
            if matching is None or matching[row]:
                asked = int(rule.grace_period.total_seconds())
                uid = column[row]
                of_select[uid] = min(asked, of_select.get(uid, asked))
    return seconds | of_select
