"""Find pods, nodes and workloads by the names on the command line; suggest similar names for unknown ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from rebalancer.base.errors import PolicyError
from rebalancer.base.similar import FEW, did_you_mean
from rebalancer.snapshot.model import Owner, Snapshot

# kubectl's short names; plurals are accepted, too.
_SHORT = {
    "cj": "cronjob",
    "deploy": "deployment",
    "ds": "daemonset",
    "rc": "replicationcontroller",
    "rs": "replicaset",
    "sts": "statefulset",
}


def find_pod(snapshot: Snapshot, text: str) -> int:
    """Return the row of the pod ``NAMESPACE/NAME``, or of ``NAME`` in the namespace ``default``.

    Raises:
        PolicyError: there is no such pod.
    """
    namespace, name = _namespace_and_name(text)
    pods, classes = snapshot.pods, snapshot.classes
    if (pod := _row(snapshot, namespace, name)) is not None:
        return pod
    if of_that_name := pods.name.rows_of({name}).tolist():
        hint = _suggest(map(snapshot.pod_ref, of_that_name))
    else:
        in_namespace = np.array([of.namespace == namespace for of in classes] or [False], bool)
        known = [pods.name[pod] for pod in np.flatnonzero(in_namespace[pods.cls]).tolist()]
        hint = _begun_by(snapshot, namespace, name) or _similar_pod(
            snapshot, namespace, name, known
        )
    ended = "" if snapshot.finished is not None else ", or it has ended"
    raise PolicyError([f"pod {namespace}/{name}: there is no such pod{ended}{hint}"])


def _begun_by(snapshot: Snapshot, namespace: str, name: str) -> str:
    """Return a hint if pods exist whose names start with ``name``, as with the name of their workload."""
    pods = [
        snapshot.pod_ref(pod)
        for pod, cls in enumerate(snapshot.pods.cls.tolist())
        if snapshot.classes[cls].namespace == namespace and snapshot.pods.name[pod].startswith(name)
    ]
    return f"; did you mean {' or '.join(sorted(pods)[:2])}?" if pods else ""


def _similar_pod(snapshot: Snapshot, namespace: str, name: str, known: Collection[str]) -> str:
    """Return a hint at a similar name among ``known``, the pods of a namespace; if it has none, at another namespace."""
    if not known:
        namespaces = {one.namespace for one in snapshot.classes}
        return f" in namespace {namespace}{did_you_mean(namespace, namespaces, listed=FEW)}"
    return did_you_mean(name, known, show=lambda similar: f"{namespace}/{similar}", listed=FEW)


def find_ended(snapshot: Snapshot, text: str) -> tuple[Snapshot, int] | None:
    """Return a snapshot and row of a finished pod ``NAMESPACE/NAME``; None if there is none.

    Finished pods are read only if a strategy of the policy concerns them. A running pod of the same name takes
    precedence.
    """
    named = _namespace_and_name(text)
    if snapshot.finished is None or _row(snapshot, *named) is not None:
        return None
    pod = _row(snapshot.finished, *named)
    return None if pod is None else (snapshot.finished, pod)


def _namespace_and_name(text: str) -> tuple[str, str]:
    namespace, _, name = text.rpartition("/")
    return namespace or "default", name


def _row(snapshot: Snapshot, namespace: str, name: str) -> int | None:
    for pod in snapshot.pods.name.rows_of({name}).tolist():
        if snapshot.classes[snapshot.pods.cls[pod]].namespace == namespace:
            return int(pod)
    return None


def find_node(snapshot: Snapshot, name: str) -> int:
    """Return the row of the node ``name``.

    Raises:
        PolicyError: there is no such node.
    """
    if name not in snapshot.nodes.index:
        hint = did_you_mean(name, snapshot.nodes.names, listed=FEW)
        raise PolicyError([f"node {name}: there is no such node{hint}"])
    return snapshot.nodes.index[name]


def find_workload(snapshot: Snapshot, text: str) -> int:
    """Return the row of the owner ``[KIND/]NAMESPACE/NAME``; the namespace may be omitted for ``default``.

    KIND is a kind, its plural or kubectl's short name, in upper or lower case. If two owners have the same reference
    (one was deleted and created again), the one with more pods is returned.

    Raises:
        PolicyError: there is none, or there are several kinds of that name.
    """
    parts = text.split("/")
    if len(parts) > 3 or not all(parts):
        raise PolicyError([f"workload {text}: write [KIND/]NAMESPACE/NAME"])
    name = parts[-1]
    namespace = parts[-2] if len(parts) > 1 else "default"
    kind = _kind(parts[0]) if len(parts) == 3 else None
    named = [
        index
        for index, owner in enumerate(snapshot.owners)
        if owner.name == name and owner.namespace == namespace
    ]
    matching = [i for i in named if kind in (None, snapshot.owners[i].kind.lower())]
    refs = sorted({snapshot.owners[index].ref for index in matching})
    if len(refs) > 1:
        choices = " or ".join(refs)
        raise PolicyError([f"workload {text}: there are several; write {choices}"])
    if not matching:
        elsewhere = [owner for owner in snapshot.owners if owner.name == name]
        others = [snapshot.owners[index] for index in named] or elsewhere
        raise PolicyError([_no_workload(snapshot, text, others)])
    if len(matching) == 1:
        return matching[0]
    of_class = np.array([of.owner for of in snapshot.classes], np.int64)
    pods = np.bincount(np.maximum(of_class[snapshot.pods.cls], 0), minlength=len(snapshot.owners))
    return max(matching, key=lambda index: (int(pods[index]), -index))


def _kind(text: str) -> str:
    lower = text.lower()
    return _SHORT.get(lower, lower.removesuffix("s"))


def _no_workload(snapshot: Snapshot, text: str, of_that_name: Iterable[Owner]) -> str:
    """Return the error message; ``of_that_name`` are owners of other kinds or namespaces."""
    missing = f"workload {text}: there is none that has pods"
    if others := {owner.ref for owner in of_that_name}:
        return f"{missing}{_suggest(others)}"
    parts = text.split("/")
    namespace = parts[-2] if len(parts) > 1 else "default"
    refs_by_name: dict[str, set[str]] = {}
    for owner in snapshot.owners:
        if owner.namespace == namespace:
            refs_by_name.setdefault(owner.name, set()).add(owner.ref)
    if not refs_by_name:
        namespaces = {owner.namespace for owner in snapshot.owners}
        return (
            f"{missing} in namespace {namespace}{did_you_mean(namespace, namespaces, listed=FEW)}"
        )

    def show(name: str) -> str:
        return " or ".join(sorted(refs_by_name[name]))

    return f"{missing}{did_you_mean(parts[-1], refs_by_name, show=show, listed=FEW)}"


def _suggest(refs: Iterable[str]) -> str:
    return f"; did you mean {' or '.join(sorted(refs)[:FEW])}?"
