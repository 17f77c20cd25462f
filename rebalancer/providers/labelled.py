"""Node groups by the labels of managed services and provisioners. For reports only: their sizes are unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rebalancer.base.errors import ProviderRefusalError
from rebalancer.policy.values import ProviderParams
from rebalancer.providers.contract import KnownNode, Machines, NodeGroup, NodeTemplate
from rebalancer.snapshot.labels import GROUP_LABELS


class NoProvider:
    """The provider ``none``: sends no requests; groups are derived from node labels."""

    Params = ProviderParams

    def open(self, params: Any, environ: Mapping[str, str]) -> Machines:  # noqa: ARG002
        """Return the groups by labels; no request is sent."""
        return LabelledGroups()


class LabelledGroups:
    """Node groups derived from labels alone."""

    def groups(self, nodes: Sequence[KnownNode]) -> Sequence[NodeGroup]:
        """Return the groups by name; nodes without such a label are in no group."""
        members: dict[str, list[str]] = {}
        for node in nodes:
            if (name := group_label(node.labels)) is not None:
                members.setdefault(name, []).append(node.instance)
        return [
            NodeGroup(name=name, instances=tuple(sorted(instances)))
            for name, instances in sorted(members.items())
        ]

    def group_named(self, name: str, nodes: Sequence[KnownNode]) -> NodeGroup | None:
        """Return the group ``name``; None if no node has it."""
        return next((group for group in self.groups(nodes) if group.name == name), None)

    def template(self, group: NodeGroup) -> NodeTemplate | None:  # noqa: ARG002
        """Return None: only live nodes show the template of a new one."""
        return None

    def launch_failure(self, group: NodeGroup, since: float) -> str | None:  # noqa: ARG002
        """Return None: sizes are unknown, so no machine is known to be missing."""
        return None

    def is_launching(self, group: NodeGroup) -> bool:  # noqa: ARG002
        """Return False: launches are unknown, and sizes are never changed."""
        return False

    def set_size(self, group: NodeGroup, desired: int) -> None:  # noqa: ARG002
        """Raise ProviderRefusalError: this provider is read-only."""
        raise _reports_only(group)

    def terminate(self, group: NodeGroup, instance: str) -> None:  # noqa: ARG002
        """Raise ProviderRefusalError: this provider is read-only."""
        raise _reports_only(group)


def _reports_only(group: NodeGroup) -> ProviderRefusalError:
    return ProviderRefusalError(
        f"{group.name}: the provider none is for reports only; name one that adds and removes machines, such as provider: {{aws: ...}}"
    )


def group_label(labels: Mapping[str, str]) -> str | None:
    """Return the name of the group from the labels of a node; None if there is none."""
    return next((value for key in GROUP_LABELS if (value := labels.get(key))), None)
