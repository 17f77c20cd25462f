"""Garbage collection: dependents of deleted owners, contents of deleted namespaces; quota status."""

from __future__ import annotations

from rebalancer.embedded.apiserver.defaults import format_amount, sum_used
from rebalancer.embedded.apiserver.eviction import delete
from rebalancer.embedded.apiserver.kinds import KINDS, NAMESPACE, QUOTA
from rebalancer.embedded.apiserver.store import Change, Key
from rebalancer.embedded.engine import Controller


class GarbageCollector(Controller):
    """Deletes the dependents of deleted owners."""

    def observe(self, change: Change) -> None:
        """Queue the uid of an object that was removed."""
        if change.new is None and change.old is not None:
            self.note(change.old["metadata"]["uid"])

    def sync(self, key: str) -> None:
        """Delete the dependents that have no other owner."""
        for kind, (namespace, name) in self.store.all_dependents(key):
            dependent = self.store.find(kind, namespace, name)
            if dependent is None:
                continue
            others = [r["uid"] for r in dependent["metadata"]["ownerReferences"] if r["uid"] != key]
            if not any(self._exists(uid) for uid in others):
                delete(self.store, kind, dependent, {})

    def _exists(self, uid: str) -> bool:
        return any(
            obj["metadata"]["uid"] == uid for kind in KINDS for obj in self.store.items(kind)
        )


class NamespaceController(Controller):
    """Empties namespaces that are being deleted, then removes them."""

    def observe(self, change: Change) -> None:
        """Queue a namespace that is being deleted, or from which an object was removed."""
        if change.kind is NAMESPACE:
            if change.new is not None and "deletionTimestamp" in change.new["metadata"]:
                self.note(change.key[1])
        elif change.new is None and change.key[0]:
            self.note(change.key[0])

    def sync(self, key: str) -> None:
        """Delete the contents, pods with their grace period."""
        namespace = self.store.find(NAMESPACE, "", key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        contents = [
            (kind, obj) for kind in KINDS if kind.namespaced for obj in self.store.items(kind, key)
        ]
        for kind, obj in contents:
            if "deletionTimestamp" not in obj["metadata"]:
                delete(self.store, kind, obj, {})
        if not contents:
            self.store.remove(NAMESPACE, namespace)


class Quotas(Controller):
    """Keeps the status of ResourceQuotas."""

    def observe(self, change: Change) -> None:
        """Queue a quota when it or a pod of its namespace changed."""
        if change.kind is QUOTA and change.new is not None:
            self.note(change.key)
        elif change.kind.kind == "Pod":
            for quota in self.store.items(QUOTA, change.key[0]):
                self.note((change.key[0], quota["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Write the used amounts."""
        quota = self.store.find(QUOTA, *key)
        if quota is None:
            return
        used = {
            name: format_amount(name, amount)
            for name, amount in sum_used(self.store, quota).items()
        }
        hard = quota["spec"].get("hard", {})
        self.store.modify(QUOTA, quota, lambda new: new.update(status={"hard": hard, "used": used}))
