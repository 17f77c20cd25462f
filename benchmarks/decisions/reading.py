"""API objects as an `Instance` and counts: the Kubernetes rules that the scenarios use, and no others.

What is not understood is an error, never a silent zero: a scenario that needs more has to teach it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.decisions.instance import Instance, Workload
from benchmarks.decisions.rules import Apart, Cap, Even, Ints, Rule
from rebalancer.wire import quantity

Object = Mapping[str, Any]
_MIB = 2**20
_HOSTNAME = "kubernetes.io/hostname"
_KEEP_OUT = ("NoSchedule", "NoExecute")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True)
class Objects:
    """Lists of API objects, as they came."""

    nodes: Sequence[Object]
    pods: Sequence[Object]
    workloads: Sequence[Object]
    """Deployments, StatefulSets and ReplicaSets, with their kind."""
    budgets: Sequence[Object]
    namespaces: Sequence[Object]


def placement(objects: Objects) -> Counter[tuple[str, str]]:
    """Return how many living pods of which workload stand on which node."""
    owner_of = _owners(objects.workloads)
    counts: Counter[tuple[str, str]] = Counter()
    for pod in objects.pods:
        node = pod["spec"].get("nodeName")
        if node and "deletionTimestamp" not in pod["metadata"]:
            counts[owner_of_pod(pod, owner_of), node] += 1
    return counts


def read(objects: Objects) -> Instance:
    """Return the instance that these objects make."""
    nodes = sorted(objects.nodes, key=_name)
    owner_of = _owners(objects.workloads)
    tops = [w for w in objects.workloads if not _controller(w) and _replicas(w) > 0]
    workloads = tuple(
        sorted((_workload(top, objects.budgets) for top in tops), key=lambda w: w.ref)
    )
    refs = {workload.ref for workload in workloads}
    strangers = [p for p in objects.pods if owner_of_pod(p, owner_of) not in refs]
    allowed = np.array(
        [[_allows(w, n, cordon=True) and _fits(w, n) for n in nodes] for w in workloads], bool
    )
    tolerable = np.array([[_allows(w, n, cordon=False) for n in nodes] for w in workloads], bool)
    shape = (len(workloads), len(nodes))
    gathered = _Rules(workloads, nodes, allowed.reshape(shape), objects.namespaces)
    return Instance(
        nodes=tuple(_name(node) for node in nodes),
        capacity=np.array([_room(node) for node in nodes], float).T.reshape(3, len(nodes)),
        workloads=workloads,
        allowed=allowed.reshape(shape),
        tolerable=tolerable.reshape(shape),
        other=_others(strangers, [_name(node) for node in nodes]),
        rules=tuple(gathered.all()),
    )


def owner_of_pod(pod: Object, owner_of: Mapping[str, str]) -> str:
    """Return ``Kind/namespace/name`` of a pod's top controller, its own name if it has none."""
    controller = _controller(pod)
    if controller is None:
        return f"Pod/{_namespace(pod)}/{_name(pod)}"
    ref = f"{controller['kind']}/{_namespace(pod)}/{controller['name']}"
    return owner_of.get(ref, ref)


def _owners(workloads: Sequence[Object]) -> dict[str, str]:
    """Return controller -> top controller, where they differ."""
    by_uid: dict[str, str] = {}
    for workload in workloads:
        if (above := _controller(workload)) is not None:
            by_uid[_ref(workload)] = f"{above['kind']}/{_namespace(workload)}/{above['name']}"
    return by_uid


def _workload(top: Object, budgets: Sequence[Object]) -> Workload:
    template = top["spec"]["template"]
    cpu, memory = _requests(template["spec"])
    labels = template["metadata"].get("labels", {})
    return Workload(
        ref=_ref(top),
        namespace=_namespace(top),
        labels=labels,
        spec=template["spec"],
        replicas=_replicas(top),
        cpu=cpu,
        memory=memory,
        held=_held(top, labels, budgets),
    )


def _held(top: Object, labels: Mapping[str, str], budgets: Sequence[Object]) -> str:
    if top["spec"].get("volumeClaimTemplates"):
        return "persistent volumes"
    for budget in budgets:
        chosen = budget["spec"]["selector"]["matchLabels"]
        same = _namespace(budget) == _namespace(top)
        # Read while everything is Ready: what allows nothing now never will.
        if same and _covers(chosen, labels) and budget["status"]["disruptionsAllowed"] == 0:
            return f"PodDisruptionBudget {_name(budget)}"
    return ""


def _requests(spec: Object) -> tuple[int, int]:
    asked = [c.get("resources", {}).get("requests", {}) for c in spec["containers"]]
    cpu = sum(quantity.parse(one.get("cpu", "0"), milli=True) for one in asked)
    memory = sum(quantity.parse(one.get("memory", "0")) for one in asked)
    return cpu, -(-memory // _MIB)


def _room(node: Object) -> tuple[float, float, float]:
    room = node["status"]["allocatable"]
    memory = quantity.parse(room["memory"]) / _MIB
    return float(quantity.parse(room["cpu"], milli=True)), memory, float(room["pods"])


def _others(pods: Sequence[Object], nodes: Sequence[str]) -> Any:
    used = np.zeros((3, len(nodes)))
    for pod in pods:
        if (node := pod["spec"].get("nodeName")) in nodes:
            used[:, nodes.index(node)] += (*_requests(pod["spec"]), 1)
    return used


# -- where a pod may stand ---------------------------------------------------------------------------


def _allows(workload: Workload, node: Object, *, cordon: bool) -> bool:
    if cordon and node["spec"].get("unschedulable"):
        return False
    return _likes(workload.spec, node) and _tolerates(workload.spec, node)


def _fits(workload: Workload, node: Object) -> bool:
    """Whether the node is large enough for one pod while it is empty."""
    cpu, memory, pods = _room(node)
    return workload.cpu <= cpu and workload.memory <= memory and pods >= 1


def _tolerates(spec: Object, node: Object) -> bool:
    tolerations = spec.get("tolerations", [])
    taints = [t for t in node["spec"].get("taints", []) if t["effect"] in _KEEP_OUT]
    taints = [t for t in taints if t["key"] != "node.kubernetes.io/unschedulable"]
    return all(any(_tolerated(t, taint) for t in tolerations) for taint in taints)


def _tolerated(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    same_value = toleration.get("value", "") == taint.get("value", "")
    return bool(toleration.get("key") == taint["key"] and same_value)


def _likes(spec: Object, node: Object) -> bool:
    labels = _labels(node)
    if not _covers(spec.get("nodeSelector") or {}, labels):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    terms = required["nodeSelectorTerms"]
    return any(all(_meets(e, labels) for e in term["matchExpressions"]) for term in terms)


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    operator, value = expression["operator"], labels.get(expression["key"])
    if operator not in _OPERATORS:
        raise ValueError(f"operator {operator} is not understood here")
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return (value in expression["values"]) == (operator == "In")


# -- rules -------------------------------------------------------------------------------------------


class _Rules:
    """Gathers the rules of all workloads, each once."""

    def __init__(
        self,
        workloads: Sequence[Workload],
        nodes: Sequence[Object],
        allowed: Any,
        namespaces: Sequence[Object],
    ) -> None:
        self._workloads, self._nodes, self._allowed = workloads, nodes, allowed
        self._namespaces = {_name(n): _labels(n) for n in namespaces}

    def all(self) -> Iterator[Rule]:
        seen: set[object] = set()
        for index in range(len(self._workloads)):
            for identity, rule in (
                *self._spreads(index),
                *self._repulsions(index),
                self._duplicates(index),
            ):
                if identity not in seen:
                    seen.add(identity)
                    yield rule

    def _duplicates(self, index: int) -> tuple[object, Rule]:
        workload = self._workloads[index]
        feasible = max(1, int(self._allowed[index].sum()))
        domain_of = np.arange(len(self._nodes))
        cap = -(-workload.replicas // feasible)
        rule = Cap("duplicates", workload.ref, (index,), domain_of, len(domain_of), cap)
        return ("duplicates", index), rule

    def _spreads(self, index: int) -> Iterator[tuple[object, Rule]]:
        workload = self._workloads[index]
        declared = workload.spec.get("topologySpreadConstraints") or []
        for constraint in declared:
            hard = constraint["whenUnsatisfiable"] == "DoNotSchedule"
            # All keys of the pod's constraints of that kind must be on a node for it to count.
            keys = [
                c["topologyKey"]
                for c in declared
                if c["whenUnsatisfiable"] == constraint["whenUnsatisfiable"]
            ]
            eligible = self._eligible(workload, constraint, keys)
            domain_of, domains = self._domains(constraint["topologyKey"], eligible)
            members = self._matching(constraint["labelSelector"], [workload.namespace])
            skew, least = constraint["maxSkew"], constraint.get("minDomains") or 1
            key = constraint["topologyKey"]
            rule = Even(
                kind="hardSpread" if hard else "softSpread",
                label=f"{workload.ref} over {key}",
                members=members,
                domain_of=domain_of,
                domains=domains,
                skew=skew,
                min_domains=least,
            )
            yield (rule.kind, members, key, skew, least, domain_of.tobytes()), rule

    def _eligible(self, workload: Workload, constraint: Object, keys: Sequence[str]) -> list[bool]:
        honours_affinity = constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
        honours_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
        return [
            all(key in _labels(node) for key in keys)
            and (not honours_affinity or _likes(workload.spec, node))
            and (not honours_taints or _tolerates(workload.spec, node))
            for node in self._nodes
        ]

    def _repulsions(self, index: int) -> Iterator[tuple[object, Rule]]:
        workload = self._workloads[index]
        declared = (workload.spec.get("affinity") or {}).get("podAntiAffinity") or {}
        for term in declared.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            yield self._repulsion(index, term, None)
        for weighted in declared.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield self._repulsion(index, weighted["podAffinityTerm"], weighted["weight"] / 100)

    def _repulsion(self, index: int, term: Object, weight: float | None) -> tuple[object, Rule]:
        workload = self._workloads[index]
        matched = self._matching(term["labelSelector"], self._term_namespaces(workload, term))
        key = term["topologyKey"]
        eligible = [_likes(workload.spec, n) and _tolerates(workload.spec, n) for n in self._nodes]
        label = f"{workload.ref} apart over {key}"
        if matched == (index,):
            domain_of, domains = self._domains(key, eligible)
            if weight is None:
                # A pod that stands where no other may come still repels there.
                domain_of, domains = self._domains(key, [True] * len(self._nodes))
                rule: Rule = Cap("requiredAntiAffinity", label, matched, domain_of, domains, 1)
            else:
                rule = Even("preferredAntiAffinity", label, matched, domain_of, domains, 1, weight)
            return (rule.kind, matched, key, weight), rule
        if index in matched:
            raise ValueError(f"{label}: repels itself and others by one term: not understood here")
        domain_of, domains = self._domains(key, [True] * len(self._nodes))
        rule = Apart(
            "requiredAntiAffinity" if weight is None else "preferredAntiAffinity",
            label,
            (index,),
            matched,
            domain_of,
            domains,
            weight or 1.0,
        )
        return (rule.kind, frozenset({(index,), matched}), key, weight), rule

    def _term_namespaces(self, workload: Workload, term: Object) -> list[str]:
        named = list(term.get("namespaces") or ())
        if (selector := term.get("namespaceSelector")) is not None:
            wanted = selector.get("matchLabels", {})
            named += [name for name, has in self._namespaces.items() if _covers(wanted, has)]
            return named
        return named or [workload.namespace]

    def _matching(self, selector: Object, namespaces: Sequence[str]) -> tuple[int, ...]:
        if set(selector) - {"matchLabels"}:
            raise ValueError(f"selector {selector} is not understood here")
        wanted = selector["matchLabels"]
        return tuple(
            index
            for index, workload in enumerate(self._workloads)
            if workload.namespace in namespaces and _covers(wanted, workload.labels)
        )

    def _domains(self, key: str, eligible: Sequence[bool]) -> tuple[Ints, int]:
        values = [
            _labels(node).get(key) if good else None
            for node, good in zip(self._nodes, eligible, strict=True)
        ]
        names = sorted({value for value in values if value is not None})
        return np.array([names.index(v) if v is not None else -1 for v in values]), len(names)


# -- small things ------------------------------------------------------------------------------------


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", "default"))


def _ref(obj: Object) -> str:
    return f"{obj['kind']}/{_namespace(obj)}/{_name(obj)}"


def _replicas(obj: Object) -> int:
    return int(obj["spec"].get("replicas", 1))


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _controller(obj: Object) -> Mapping[str, str] | None:
    owners: list[Mapping[str, str]] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _covers(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())
