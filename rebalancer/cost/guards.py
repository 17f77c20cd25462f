"""Guards: satisfied hard rules that no move may violate, whichever strategies are enabled.

The scheduler's filters enforce the replacement's own rules where it lands. They do not protect the pods that the
victim leaves behind: its zone may become too empty for its siblings' hard spread, or a pod may lose the last match
of its required affinity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rebalancer.cost.domain_term import DomainTerm
from rebalancer.cost.groups import Domains
from rebalancer.cost.separable_groups import AttractionGroup
from rebalancer.cost.spread_group import SpreadGroup, SpreadRule
from rebalancer.cost.term import Entry, Group
from rebalancer.cost.view import View


class Guard(DomainTerm):
    """Groups whose increases alone count: a violation that a move fixes in one group does not make up for one that it adds in another."""

    def of_each(self) -> tuple[float, ...]:
        """Return the potential of each group; these are always the same groups, in one order."""
        return tuple(self._potentials())


def guard_term(view: View) -> Guard:
    """Return a hard term whose increases alone count."""
    groups = [*_spread(view), *attractions(view, range(len(view.snapshot.classes)))]
    return Guard(view, Entry.HARD, groups)


def _spread(view: View) -> list[Group]:
    """Return the hard rules of spread, and the rules of spread as they will be once temporary taints are removed.

    A node that is cordoned or under pressure for a while keeps its pods. If a rule ignores it meanwhile
    (``nodeTaintsPolicy: Honor``), pods that are moved because of that would have to move back.
    """
    groups: dict[tuple[object, ...], Group] = {}
    for cls in range(len(view.snapshot.classes)):
        for rule in SpreadRule.of(view, cls):
            if rule.lasting is not None:
                later = replace(rule, eligible=rule.lasting)
                groups.setdefault(later.identity(), _group(view, later))
            if rule.entry is Entry.HARD:
                groups.setdefault(rule.identity(), _group(view, rule))
    return list(groups.values())


def _group(view: View, rule: SpreadRule) -> Group:
    return SpreadGroup(
        view,
        label=f"{rule.what} spread over {rule.key}",
        domains=Domains.of(view, rule.key, rule.eligible),
        counted=rule.counted,
        movers=rule.counted,
        max_skew=rule.max_skew,
        min_domains=rule.min_domains,
    )


def attractions(view: View, classes: Iterable[int]) -> list[Group]:
    """Return the required pod affinity of ``classes`` as groups that no move may make worse."""
    owners: dict[tuple[str, bytes], list[int]] = {}
    for cls in classes:
        affinity = view.snapshot.classes[cls].spec.affinity
        declared = affinity.pod_affinity if affinity is not None else None
        for term in (declared.required or ()) if declared is not None else ():
            matched = view.snapshot.affinity_classes(cls, term)
            owners.setdefault((term.topology_key, matched.tobytes()), []).append(cls)
    everywhere = np.ones(len(view.snapshot.nodes), bool)
    return [
        AttractionGroup(
            view,
            label=f"required affinity over {key}",
            domains=Domains.of(view, key, everywhere),
            owners=np.array(of, np.int32),
            matched=np.frombuffer(matched, np.int32),
        )
        for (key, matched), of in owners.items()
    ]
