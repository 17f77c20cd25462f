"""Find pods, nodes and workloads by the names on the command line; suggest similar names for unknown ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import FEW, did_you_mean
from rebalancer.snapshot.model import Owner, Snapshot

_SHORT = {
    "cj": "cronjob",
    "deploy": "deployment",
    "ds": "daemonset",
    "no": "node",
    "po": "pod",
    "rc": "replicationcontroller",
    "rs": "replicaset",
    "sts": "statefulset",
}
"""kubectl's short name -> kind; plurals are accepted, too."""
KINDS = frozenset(_SHORT.values()) | {"job"}
"""The kinds that have short names, or none of their own."""
POD, NODE, WORKLOAD = "pod", "node", "workload"


def kind_of(text: str) -> str:
    """Return the kind that kubectl calls ``text``, in lower case: ``deployment`` for ``deployments.apps``."""
    lower = text.lower().partition(".")[0]
    return _SHORT.get(lower, lower.removesuffix("s"))


def within(text: str, namespace: str | None) -> str:
    """Return the name ``[KIND/]NAME`` in a namespace, as ``[KIND/]NAMESPACE/NAME``; None leaves it as it is.

    Raises:
        PolicyError: the name has another namespace already.
    """
    *before, name = text.split("/")
    if namespace is None:
        return text
    if len(before) > 1 or (before and kind_of(before[0]) not in KINDS and before != [namespace]):
        raise PolicyError([f"-n {namespace}: {text} has a namespace already"])
    kind = [one for one in before if one != namespace]
    return "/".join([*kind, namespace, name])


def find_pod(snapshot: Snapshot, text: str) -> int:
    """Return the row of the pod ``[pod/][NAMESPACE/]NAME``.

    Without a namespace ``default`` comes first; another one counts if it alone has a pod of that name.

    Raises:
        PolicyError: there is no such pod, or several namespaces have one.
    """
    namespace, name = _namespace_and_name(text)
    pods = snapshot.pods
    if (pod := _row(snapshot, namespace, name)) is not None:
        return pod
    of_that_name = pods.name.rows_of({name}).tolist()
    if len(of_that_name) == 1 and "/" not in _without_kind(text):
        return int(of_that_name[0])
    if of_that_name:
        hint = _suggest(map(snapshot.pod_ref, of_that_name))
    else:
        in_namespace = snapshot.in_namespace(namespace)[pods.cls]
        known = [pods.name[pod] for pod in np.flatnonzero(in_namespace).tolist()]
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
    generated = _GENERATED.fullmatch(name)
    if generated is not None and any(one.startswith(generated[1]) for one in known):
        return ""  # another pod of the same ReplicaSet is not meant
    return did_you_mean(name, known, show=lambda similar: f"{namespace}/{similar}", listed=FEW)


_GENERATED = re.compile(r"(.+-)[bcdfghjklmnpqrstvwxz2456789]{5}")
"""A name that a ReplicaSet has made: five characters of these are random (apimachinery's ``util/rand``)."""


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


def _without_kind(text: str) -> str:
    """Return a pod's name without ``pod/``, as `kubectl get -o name` writes it."""
    kind, slash, name = text.partition("/")
    return name if slash and kind_of(kind) == POD else text


def _namespace_and_name(text: str) -> tuple[str, str]:
    namespace, _, name = _without_kind(text).rpartition("/")
    return namespace or "default", name


def _row(snapshot: Snapshot, namespace: str, name: str) -> int | None:
    for pod in snapshot.pods.name.rows_of({name}).tolist():
        if snapshot.classes[snapshot.pods.cls[pod]].namespace == namespace:
            return int(pod)
    return None


def find_named(snapshot: Snapshot, text: str) -> str:
    """Return the kind of the object with a name: ``POD``, ``NODE`` or ``WORKLOAD``.

    Raises:
        PolicyError: there is nothing of that name, or there are several kinds of it.
    """
    name = text.rpartition("/")[2]
    found = [POD] * (_finds(find_pod, snapshot, text) or find_ended(snapshot, text) is not None)
    found += [NODE] * (text in snapshot.nodes.index)
    found += [WORKLOAD] * _finds(find_workload, snapshot, text)
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(f"{kind} {text}" for kind in found)
        raise PolicyError([f"{text}: there are several; write {choices}"])
    known = {owner.name: owner.ref for owner in snapshot.owners}
    hint = did_you_mean(name, known, show=lambda one: known[one], listed=0)
    hint = hint or did_you_mean(name, snapshot.nodes.names, listed=0)
    raise PolicyError([f"{text}: there is no pod, node or workload of this name{hint}"])


def _finds(find: Callable[[Snapshot, str], int], snapshot: Snapshot, text: str) -> bool:
    try:
        return find(snapshot, text) >= 0
    except PolicyError:
        return False


def node_name(text: str) -> str:
    """Return the name of a node that is written as ``NAME`` or ``node/NAME``."""
    kind, slash, name = text.partition("/")
    return name if slash and kind_of(kind) == NODE else text


def find_node(snapshot: Snapshot, name: str) -> int:
    """Return the row of the node ``[node/]NAME``.

    Raises:
        PolicyError: there is no such node.
    """
    name = node_name(name)
    if name not in snapshot.nodes.index:
        hint = did_you_mean(name, snapshot.nodes.names, listed=FEW)
        raise PolicyError([f"node {name}: there is no such node{hint}"])
    return snapshot.nodes.index[name]


def find_workload(snapshot: Snapshot, text: str) -> int:
    """Return the row of the owner ``[KIND/][NAMESPACE/]NAME``.

    KIND is a kind, its plural or kubectl's short name, in upper or lower case, with or without its API group. Without
    a namespace ``default`` comes first; another one counts if it alone has an owner of that name. If two owners have
    the same reference (one was deleted and created again), the one with more pods is returned.

    Raises:
        PolicyError: there is none, or there are several kinds of that name.
    """
    parts = text.split("/")
    if len(parts) > 3 or not all(parts):
        raise PolicyError([f"workload {text}: write [KIND/][NAMESPACE/]NAME"])
    named = [i for i, owner in enumerate(snapshot.owners) if owner.name == parts[-1]]
    matching = [i for i in named if _is_meant(snapshot.owners[i], parts)]
    given = parts[-2] if len(parts) > 1 else "default"
    matching = (
        [i for i in matching if snapshot.owners[i].namespace == given]
        or [i for i in matching if snapshot.owners[i].namespace == "default"]
        or matching
    )
    refs = sorted({snapshot.owners[index].ref for index in matching})
    if len(refs) > 1:
        choices = " or ".join(refs)
        raise PolicyError([f"workload {text}: there are several; write {choices}"])
    if not matching:
        raise PolicyError([_no_workload(snapshot, text, [snapshot.owners[i] for i in named])])
    if len(matching) == 1:
        return matching[0]
    of_class = np.array([of.owner for of in snapshot.classes], np.int64)
    pods = np.bincount(np.maximum(of_class[snapshot.pods.cls], 0), minlength=len(snapshot.owners))
    return max(matching, key=lambda index: (int(pods[index]), -index))


def _is_meant(owner: Owner, parts: Sequence[str]) -> bool:
    """Return whether the words before the name of an owner may be its kind and its namespace."""
    *kinds, last = parts[:-1] or [""]
    kind = owner.kind.lower()
    if kinds:
        return kind_of(kinds[0]) == kind and last == owner.namespace
    return last in ("", owner.namespace) or kind_of(last) == kind


def _no_workload(snapshot: Snapshot, text: str, of_that_name: Iterable[Owner]) -> str:
    """Return the error message; ``of_that_name`` are owners of other kinds or namespaces."""
    missing = f"workload {text}: there is none that has pods"
    if others := {owner.ref for owner in of_that_name}:
        return f"{missing}{_suggest(others)}"
    parts = text.split("/")
    namespace = parts[-2] if len(parts) > 1 and kind_of(parts[-2]) not in KINDS else "default"
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
