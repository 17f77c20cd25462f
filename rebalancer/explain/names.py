"""Finds what the command line names in a snapshot, or says what was probably meant."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from itertools import takewhile

import numpy as np

from rebalancer.errors import PolicyError
from rebalancer.policy.problems import did_you_mean
from rebalancer.snapshot.model import Owner, Snapshot

# kubectl's own abbreviations; plurals are understood, too.
_SHORT = {
    "cj": "cronjob",
    "deploy": "deployment",
    "ds": "daemonset",
    "rc": "replicationcontroller",
    "rs": "replicaset",
    "sts": "statefulset",
}
# Up to so many names are told where none is alike, and compared with what was asked for.
_FEW, _MANY = 8, 1000


def find_pod(snapshot: Snapshot, text: str) -> int:
    """Return the pod ``NAMESPACE/NAME``, or of that name in ``default``.

    Raises:
        PolicyError: there is no such pod.
    """
    namespace, _, name = text.rpartition("/")
    namespace = namespace or "default"
    pods, classes = snapshot.pods, snapshot.classes
    for pod in pods.name.rows_of({name}).tolist():
        if classes[pods.cls[pod]].namespace == namespace:
            return int(pod)
    here = np.array([of.namespace == namespace for of in classes] or [False], bool)
    known = [pods.name[pod] for pod in np.flatnonzero(here[pods.cls]).tolist()]
    hint = _hint(name, known).replace("mean ", f"mean {namespace}/")
    raise PolicyError([f"pod {namespace}/{name}: there is no such pod, or it has finished{hint}"])


def find_node(snapshot: Snapshot, name: str) -> int:
    """Return the node of this name.

    Raises:
        PolicyError: there is no such node.
    """
    found = snapshot.nodes.index.get(name)
    if found is None:
        hint = _hint(name, snapshot.nodes.names)
        raise PolicyError([f"node {name}: there is no such node{hint}"])
    return found


def find_workload(snapshot: Snapshot, text: str) -> int:
    """Return the owner ``[KIND/]NAMESPACE/NAME``, or of that name in ``default``.

    The kind is understood as kubectl does, in any case. Of two of one name, of which one is about to be
    gone, the one with more pods is meant.

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
    found = [i for i in named if kind in (None, snapshot.owners[i].kind.lower())]
    refs = sorted({snapshot.owners[index].ref for index in found})
    if len(refs) > 1:
        choices = " or ".join(refs)
        raise PolicyError([f"workload {text}: there are several; write {choices}"])
    if not found:
        raise PolicyError([_no_workload(snapshot, text, [snapshot.owners[i] for i in named])])
    if len(found) == 1:
        return found[0]
    of_class = np.array([of.owner for of in snapshot.classes], np.int64)
    pods = np.bincount(np.maximum(of_class[snapshot.pods.cls], 0), minlength=len(snapshot.owners))
    return max(found, key=lambda index: (int(pods[index]), -index))


def _kind(text: str) -> str:
    lower = text.lower()
    return _SHORT.get(lower, lower.removesuffix("s"))


def _no_workload(snapshot: Snapshot, text: str, of_other_kinds: Iterable[Owner]) -> str:
    says = f"workload {text}: there is none that has pods"
    if others := sorted({owner.ref for owner in of_other_kinds}):
        return f"{says}; did you mean {' or '.join(others)}?"
    parts = text.split("/")
    namespace = parts[-2] if len(parts) > 1 else "default"
    here: dict[str, set[str]] = {}
    for owner in snapshot.owners:
        if owner.namespace == namespace:
            here.setdefault(owner.name, set()).add(owner.ref)
    if not here:
        namespaces = {owner.namespace for owner in snapshot.owners}
        return f"{says} in namespace {namespace}{_hint(namespace, namespaces)}"
    hint = _hint(parts[-1], here)
    for name, refs in here.items():
        if hint == f"; did you mean {name}?":
            return f"{says}; did you mean {' or '.join(sorted(refs))}?"
    return f"{says}{hint}"


def _hint(word: str, known: Collection[str]) -> str:
    """Return what was probably meant; all that there is only where that is little.

    Comparing takes long: of very many names those are compared that begin most alike.
    """
    if len(known) > _MANY:
        known = heapq.nlargest(_MANY, known, key=lambda name: _shared(name, word))
    hint = did_you_mean(word, known)
    return hint if hint.endswith("?") or len(known) <= _FEW else ""


def _shared(one: str, other: str) -> int:
    """Return how many characters two names begin with alike."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
