"""Which groups a replacement works on, in which order, which of their nodes are old, and what is left of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rebalancer.machines.surge.view import GroupView


class OldGroups:
    """The groups whose turn is still to come, the first one at work, and their old nodes."""

    def __init__(
        self, old: Mapping[str, Mapping[str, str]], under_way: Collection[str] = ()
    ) -> None:
        """``old``: group -> name of each of its old nodes -> its uid; ``under_way``: those that have a note already."""
        # What is half done is ended first.
        self._queue = sorted(old, key=lambda name: (name not in under_way, name))
        self._old = {name: dict(nodes) for name, nodes in old.items()}
        self._instances: dict[str, dict[str, str]] = {}
        """Group -> instance of each of its old nodes -> name of the node, as they were first seen."""
        self._skipped: set[str] = set()
        """Groups that were left out since everything is taken back."""
        self.noted = set(under_way)
        """Groups with a note that are not restored, as far as is known."""

    @property
    def first(self) -> str | None:
        """The group whose turn it is; None if none is left."""
        return self._queue[0] if self._queue else None

    def nodes(self, group: str) -> Mapping[str, str]:
        """Return name -> uid of the old nodes of a group."""
        return self._old.get(group, {})

    def end(self, group: str) -> None:
        """Let the next group have its turn."""
        self._queue.remove(group)

    def skip(self, group: str) -> None:
        """Note that a group without a note is left out since everything is taken back."""
        self._skipped.add(group)

    def forget(self, node: str) -> bool:
        """Leave an old node out; return whether it was one."""
        return any(nodes.pop(node, None) is not None for nodes in self._old.values())

    def leave_rest(self, begun: Collection[str]) -> int:
        """Leave all nodes out but ``begun``; return how many."""
        rest = {name for nodes in self._old.values() for name in nodes} - set(begun)
        return sum([self.forget(name) for name in rest])

    def not_begun(self) -> dict[str, int]:
        """Return group -> old nodes, of the groups that were to be replaced and are untouched."""
        waiting = {*self._queue, *self._skipped} - self.noted
        return {name: len(self.nodes(name)) for name in sorted(waiting) if self.nodes(name)}

    def note_instances(self, view: GroupView) -> None:
        """Remember the machines of the old nodes: a node may be away later, or be registered again with another uid."""
        old = self.nodes(view.group.name)
        known = self._instances.setdefault(view.group.name, {})
        known |= {
            one.instance: one.node
            for one in view.machines
            if one.uid and old.get(one.node) == one.uid
        }

    def find_left(
        self, group: str, instances: Collection[str], ended: Collection[str]
    ) -> list[str]:
        """Return the old machines that are still in the group, as ``node (instance)``; ``ended``: machines whose end was requested."""
        old = self.nodes(group)
        return [
            f"{node} ({instance})"
            for instance, node in sorted(self._instances.get(group, {}).items())
            if node in old and instance in instances and instance not in ended
        ]
