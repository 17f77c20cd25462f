"""Deployments: one ReplicaSet per template, and rolling updates from the old ones to the new one.

Source: ``k8s.io/kubernetes/pkg/controller/deployment`` (sync.go, rolling.go, recreate.go), without
roll-back, proportional scaling and progress deadlines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from rebalancer.embedded.apiserver.kinds import DEPLOYMENT, REPLICA_SET
from rebalancer.embedded.apiserver.store import Change, Json, Key, clone
from rebalancer.embedded.conditions import set_condition
from rebalancer.embedded.controllers.pods import owner_key, reference_to
from rebalancer.embedded.controllers.share import share_of
from rebalancer.embedded.engine import Controller

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Deployments(Controller):
    """Keeps the ReplicaSets of every Deployment."""

    def observe(self, change: Change) -> None:
        """A Deployment whose spec or whose ReplicaSets changed is to be looked at."""
        if change.kind is DEPLOYMENT and change.new is not None:
            self.note(change.key)
        elif change.kind is REPLICA_SET:
            key = owner_key(change.object, DEPLOYMENT)
            if key is not None:
                self.note(key)

    def sync(self, key: Key) -> None:
        """Create the newest ReplicaSet, scale it and the old ones one step, report."""
        found = self.store.find(DEPLOYMENT, *key)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return
        if not found["spec"].get("paused"):
            newest = self._newest(found)
            name = newest["metadata"]["name"]
            old = [s for s in self._sets(found) if s["metadata"]["name"] != name]
            if found["spec"]["strategy"]["type"] == "Recreate":
                self._recreate(found, newest, old)
            else:
                self._roll(found, newest, old)
        self._report(found)

    def _sets(self, found: Json) -> Sequence[Json]:
        return self.store.dependents(found["metadata"]["uid"], REPLICA_SET)

    def _newest(self, found: Json) -> Json:
        revision = template_hash(found)
        for owned in self._sets(found):
            if owned["metadata"]["labels"][HASH] == revision:
                return owned
        spec, metadata = clone(found["spec"]), found["metadata"]
        template = spec["template"]
        labels = {**template["metadata"].get("labels", {}), HASH: revision}
        template["metadata"]["labels"] = labels
        selector = spec["selector"]
        selector["matchLabels"] = {**selector.get("matchLabels", {}), HASH: revision}
        made = {
            "metadata": {
                "name": f"{metadata['name']}-{revision}",
                "labels": labels,
                "annotations": {REVISION: str(len(self._sets(found)) + 1)},
                "ownerReferences": [reference_to(DEPLOYMENT, found)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
            "status": {"replicas": 0},
        }
        return self.store.create(REPLICA_SET, metadata["namespace"], made)

    def _scale(self, replica_set: Json, replicas: int) -> None:
        self.store.modify(
            REPLICA_SET, replica_set, lambda new: new["spec"].update(replicas=replicas)
        )

    def _recreate(self, found: Json, newest: Json, old: Sequence[Json]) -> None:
        for replica_set in old:
            self._scale(replica_set, 0)
        gone = all(
            not s["status"].get("replicas") and not s["status"].get("terminatingReplicas")
            for s in old
        )
        if gone:
            self._scale(newest, found["spec"]["replicas"])

    def _roll(self, found: Json, newest: Json, old: Sequence[Json]) -> None:
        replicas = found["spec"]["replicas"]
        rolling = found["spec"]["strategy"].get("rollingUpdate") or {}
        surge = share_of(rolling.get("maxSurge", "25%"), replicas, up=True)
        unavailable = share_of(rolling.get("maxUnavailable", "25%"), replicas, up=False)
        if not surge and not unavailable:
            unavailable = 1
        total = sum(s["spec"]["replicas"] for s in (newest, *old))
        current = newest["spec"]["replicas"]
        if current > replicas:
            self._scale(newest, replicas)
        elif current < replicas:
            self._scale(newest, min(replicas, current + max(0, replicas + surge - total)))
        self._shrink(self._sets(found), newest["metadata"]["name"], replicas - unavailable)

    def _shrink(self, sets: Sequence[Json], newest: str, least: int) -> None:
        """Take old replicas away as long as ``least`` stay available, unready ones first."""
        old = [s for s in sets if s["metadata"]["name"] != newest and s["spec"]["replicas"]]
        spare = sum(s["status"].get("availableReplicas", 0) for s in sets) - least
        for replica_set in old:
            wanted = replica_set["spec"]["replicas"]
            available = replica_set["status"].get("availableReplicas", 0)
            cut = min(wanted, wanted - available + max(0, min(spare, available)))
            spare -= max(0, cut - (wanted - available))
            self._scale(replica_set, wanted - cut)

    def _report(self, found: Json) -> None:
        sets, replicas = self._sets(found), found["spec"]["replicas"]
        totals = {
            field: sum(s["status"].get(field, 0) for s in sets)
            for field in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
        }
        revision = template_hash(found)
        updated = sum(
            s["status"].get("replicas", 0)
            for s in sets
            if s["metadata"]["labels"][HASH] == revision
        )
        enough = totals["availableReplicas"] >= replicas - share_of(
            (found["spec"]["strategy"].get("rollingUpdate") or {}).get("maxUnavailable", 0),
            replicas,
            up=False,
        )

        def report(new: Json) -> None:
            new["status"] |= {
                **totals,
                "updatedReplicas": updated,
                "unavailableReplicas": max(0, replicas - totals["availableReplicas"]),
                "observedGeneration": new["metadata"]["generation"],
            }
            set_condition(
                new["status"],
                "Available",
                "True" if enough else "False",
                self.store.timestamp(),
                reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            )
            new["metadata"]["annotations"] = {
                **(new["metadata"].get("annotations") or {}),
                REVISION: str(len(sets)),
            }

        self.store.modify(DEPLOYMENT, found, report)


def template_hash(found: Json) -> str:
    """Return ten characters that stand for a workload's template, from the server's alphabet."""
    encoded = msgspec.json.encode(found["spec"]["template"], order="sorted")
    digest = hashlib.sha256(encoded).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:10])
