"""Sets of namespaces: the descheduler has one per plug-in, our policy has one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebalancer.migrate.arguments import Namespaces, Selector

# Set by the API server on every namespace (pkg/apis/core: LabelMetadataName).
_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Scope:
    """A set of namespaces: ``names``, or all others."""

    names: frozenset[str]
    inside: bool
    """Whether ``names`` are the members, and not the exceptions."""

    @classmethod
    def of(cls, given: Namespaces) -> Scope:
        """Return the scope of a plug-in's ``namespaces``; all if there are none."""
        if given.include:
            return cls(frozenset(given.include), inside=True)
        return cls(frozenset(given.exclude), inside=False)

    @classmethod
    def selected(cls, selector: Selector) -> Scope | None:
        """Return the scope of a namespace selector, None unless it is empty or one requirement on the name."""
        rules: list[tuple[str, str, tuple[str, ...]]] = [
            (key, "In", (value,)) for key, value in selector.match_labels.items()
        ]
        rules += [(rule.key, rule.operator, rule.values) for rule in selector.match_expressions]
        if not rules:
            return cls(frozenset(), inside=False)
        key, operator, names = rules[0]
        if len(rules) > 1 or key != _NAME or operator not in ("In", "NotIn"):
            return None
        return cls(frozenset(names), inside=operator == "In")

    def __or__(self, other: Scope) -> Scope:
        """Return the union."""
        if self.inside and other.inside:
            return Scope(self.names | other.names, inside=True)
        if self.inside or other.inside:
            inner, outer = (self, other) if self.inside else (other, self)
            return Scope(outer.names - inner.names, inside=False)
        return Scope(self.names & other.names, inside=False)

    def __and__(self, other: Scope) -> Scope:
        """Return the intersection."""
        if self.inside and other.inside:
            return Scope(self.names & other.names, inside=True)
        if self.inside or other.inside:
            inner, outer = (self, other) if self.inside else (other, self)
            return Scope(inner.names - outer.names, inside=True)
        return Scope(self.names | other.names, inside=False)

    def covers(self, other: Scope) -> bool:
        """Return whether ``other`` is a subset."""
        if self.inside:
            return other.inside and other.names <= self.names
        return not (self.names & other.names) if other.inside else self.names <= other.names


def common(scopes: Iterable[Scope]) -> Scope:
    """Return one scope for all strategies.

    If all have members, the union of these; else all namespaces but the exceptions of any.
    """
    given = list(scopes)
    inside = [scope.names for scope in given if scope.inside]
    exceptions = frozenset[str]().union(*(scope.names for scope in given if not scope.inside))
    if given and len(inside) == len(given):
        return Scope(frozenset[str]().union(*inside), inside=True)
    return Scope(exceptions, inside=False)
