"""RBAC rules: the rights that a run needs, in the form of a role."""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.wire.kinds import Resource


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """One RBAC right."""

    verb: str
    group: str
    resource: str
    """Plural, with the subresource (``pods/eviction``), or the path of a non-resource URL."""
    namespace: str = ""
    """The namespace where the right is needed; empty for the whole cluster."""
    name: str = ""
    """The one object it is needed for, if it is one."""

    @classmethod
    def of(cls, verb: str, resource: Resource, namespace: str = "", name: str = "") -> AccessRule:
        """Return the right to do something with a kind of objects."""
        return cls(verb, resource.group, resource.plural, namespace, name)

    def __str__(self) -> str:
        group = f' in API group "{self.group}"' if self.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}{group}{where}"

    def as_yaml(self) -> str:
        """Return the right as YAML for a ClusterRole (or for a Role, if it has a namespace)."""
        if self.resource.startswith("/"):
            return f'- {{nonResourceURLs: ["{self.resource}"], verbs: ["{self.verb}"]}}'
        names = f', resourceNames: ["{self.name}"]' if self.name else ""
        return (
            f'- {{apiGroups: ["{self.group}"], resources: ["{self.resource}"]{names},'
            f' verbs: ["{self.verb}"]}}'
        )
