"""Room in ResourceQuotas: a replacement is created while its victim still counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rebalancer.snapshot.model import PodClass, Quota, Snapshot
from rebalancer.wire.objects import ResourceRequirements, SchedulingSpec

_SAID = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""What each container must specify if a quota limits it (``evaluator/core/pods.go``: ``validationSet``)."""


class Claim(NamedTuple):
    """The amount of a quota that one more pod of a class needs."""

    quota: Quota
    name: str
    """The name of the counted resource; empty: the quota admits no such pod at all."""
    need: int
    """The amount of the quota that the pod uses."""
    unsaid: str = ""
    """The resource that the quota requires every container to specify, and that some container does not; else empty."""

    @property
    def most(self) -> int:
        """How much of it is free."""
        return self.quota.free[self.name] if self.name else 0

    def lack(self, left: int) -> str:
        """Return a sentence on that too little is left."""
        return self.unsaid or (
            f"ResourceQuota {self.quota.namespace}/{self.quota.name} has {left} of {self.name} left, "
            f"a replacement beside the victim needs {self.need}"
        )


class QuotaClaims:
    """The quotas of a snapshot, by the classes whose pods they count."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_namespace: dict[str, list[Quota]] = {}
        for quota in snapshot.quotas:
            self._of_namespace.setdefault(quota.namespace, []).append(quota)

    def lacks(self, cls: int) -> str | None:
        """Return the quota without room for one more pod of ``cls``; None if all have room."""
        lacking = (claim.lack(claim.most) for claim in self.claims(cls) if claim.need > claim.most)
        return next(lacking, None)

    def claims(self, cls: int) -> Iterator[Claim]:
        """Yield the amounts of each quota that one more pod of ``cls`` needs."""
        of_class = self._snapshot.classes[cls]
        for quota in self._of_namespace.get(of_class.namespace, ()):
            if not _applies(quota, of_class):
                continue
            if (unsaid := _find_unsaid(quota, of_class.spec)) is not None:
                yield Claim(quota, "", 1, unsaid)
            # Limits are not folded: where a quota caps them, requests stand in as the lower bound.
            amounts = {"pods": 1, "count/pods": 1}
            for row, name in enumerate(self._snapshot.resources):
                amount = int(self._snapshot.requests[row, cls])
                amounts[name] = amounts[f"requests.{name}"] = amounts[f"limits.{name}"] = amount
            # Of what a pod takes nothing of, more may be used than the quota allows.
            for name in quota.free:
                if amounts.get(name):
                    yield Claim(quota, name, amounts[name])


def _find_unsaid(quota: Quota, spec: SchedulingSpec) -> str | None:
    """Return the resource that a quota requires every container to specify and some container does not; None if there is none.

    A replacement would be refused, however much is left (``evaluator/core/pods.go``: ``Constraints``). Of pods with
    resources of their own these count instead.
    """
    if spec.resources is not None:
        return None
    for name in sorted(_SAID & quota.free.keys()):
        kind, _, resource = name.rpartition(".")
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            of = container.resources or ResourceRequirements()
            # The API server takes a limit for a request that is not there.
            says = (
                (of.limits or {})
                if kind == "limits"
                else {**(of.limits or {}), **(of.requests or {})}
            )
            if resource not in says:
                return (
                    f"ResourceQuota {quota.namespace}/{quota.name} lets in no pod whose containers do not all "
                    f"say their {name}: {container.name} does not"
                )
    return None


def _applies(quota: Quota, of_class: PodClass) -> bool:
    """Return whether the quota's scopes include the class (KEP-612; Terminating pods are Jobs')."""
    if "Terminating" in (quota.spec.scopes or ()):
        return False
    selector = quota.spec.scope_selector
    for requirement in (selector.match_expressions or ()) if selector is not None else ():
        if requirement.scope_name == "Terminating":
            return False
        if requirement.scope_name != "PriorityClass":
            continue
        named = of_class.spec.priority_class_name
        values = requirement.values or ()
        inside = {
            "In": named in values,
            "NotIn": named not in values,
            "Exists": named is not None,
            "DoesNotExist": named is None,
        }
        if not inside.get(requirement.operator, True):
            return False
    return True
