"""What is left over: dependents of owners that are gone, contents of namespaces on their way out."""

from __future__ import annotations

from rebalancer.embedded.apiserver.deletion import delete
from rebalancer.embedded.apiserver.kinds import KINDS, NAMESPACE, QUOTA
from rebalancer.embedded.apiserver.quota import shown, used_of
from rebalancer.embedded.apiserver.store import Change, Key
from rebalancer.embedded.engine import Controller


class GarbageCollector(Controller):
    """Deletes in the background what an owner that is gone has owned."""

    def observe(self, change: Change) -> None:
        """An owner went away."""
        if change.new is None and change.old is not None:
            self.note(change.old["metadata"]["uid"])

    def sync(self, key: str) -> None:
        """Delete the dependents that have no other owner."""
        for kind, (namespace, name) in self.store.all_dependents(key):
            found = self.store.find(kind, namespace, name)
            if found is None:
                continue
            others = [r["uid"] for r in found["metadata"]["ownerReferences"] if r["uid"] != key]
            if not any(self._exists(uid) for uid in others):
                delete(self.store, kind, found, {})

    def _exists(self, uid: str) -> bool:
        return any(
            found["metadata"]["uid"] == uid for kind in KINDS for found in self.store.items(kind)
        )


class Namespaces(Controller):
    """Empties namespaces that are being deleted, and takes them away when they are empty."""

    def observe(self, change: Change) -> None:
        """A namespace is being deleted, or lost something of its contents."""
        if change.kind is NAMESPACE:
            if change.new is not None and "deletionTimestamp" in change.new["metadata"]:
                self.note(change.key[1])
        elif change.new is None and change.key[0]:
            self.note(change.key[0])

    def sync(self, key: str) -> None:
        """Delete what is left; the pods among it go by their grace."""
        namespace = self.store.find(NAMESPACE, "", key)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        left = [
            (kind, found)
            for kind in KINDS
            if kind.namespaced
            for found in self.store.items(kind, key)
        ]
        for kind, found in left:
            if "deletionTimestamp" not in found["metadata"]:
                delete(self.store, kind, found, {})
        if not left:
            self.store.remove(NAMESPACE, namespace)


class Quotas(Controller):
    """Keeps the status of ResourceQuotas."""

    def observe(self, change: Change) -> None:
        """A quota is to be looked at when it or a pod of its namespace changed."""
        if change.kind is QUOTA and change.new is not None:
            self.note(change.key)
        elif change.kind.kind == "Pod":
            for quota in self.store.items(QUOTA, change.key[0]):
                self.note((change.key[0], quota["metadata"]["name"]))

    def sync(self, key: Key) -> None:
        """Write what is used."""
        quota = self.store.find(QUOTA, *key)
        if quota is None:
            return
        used = {name: shown(name, amount) for name, amount in used_of(self.store, quota).items()}
        hard = quota["spec"].get("hard", {})
        self.store.modify(QUOTA, quota, lambda new: new.update(status={"hard": hard, "used": used}))
