"""What RBAC allows: rules as a run needs them, and as they stand in a role."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """One thing that RBAC allows or does not."""

    verb: str
    group: str
    resource: str
    """Plural, with the subresource (``pods/eviction``), or the path of a non-resource URL."""
    namespace: str = ""
    """Where it is needed; empty for the whole cluster."""
    name: str = ""
    """The one object it is needed for, if it is one."""

    def __str__(self) -> str:
        group = f' in API group "{self.group}"' if self.group else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}{group}{where}"

    def as_yaml(self) -> str:
        """Return the rule as it stands in a ClusterRole (or a Role, with a namespace)."""
        if self.resource.startswith("/"):
            return f'- {{nonResourceURLs: ["{self.resource}"], verbs: ["{self.verb}"]}}'
        names = f', resourceNames: ["{self.name}"]' if self.name else ""
        return (
            f'- {{apiGroups: ["{self.group}"], resources: ["{self.resource}"]{names},'
            f' verbs: ["{self.verb}"]}}'
        )
