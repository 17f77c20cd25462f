"""Room in ResourceQuotas: a replacement is created while its victim still counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rebalancer.snapshot.model import PodClass, Quota, Snapshot
from rebalancer.wire.objects import ResourceRequirements, SchedulingSpec

_SAID = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""What each container must say where a quota has it (``evaluator/core/pods.go``: ``validationSet``)."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a quota counts of one pod of a class."""

    quota: Quota
    unsaid: str | None
    """What it asks each container to say and one does not."""
    needs: Mapping[str, int]
    """Name in the quota -> amount above 0."""


class QuotaLedger:
    """The use of each quota by moves in flight. Reset with every wave."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_namespace: dict[str, list[Quota]] = {}
        for quota in snapshot.quotas:
            self._of_namespace.setdefault(quota.namespace, []).append(quota)
        self._taken: Counter[tuple[str, str, str]] = Counter()
        self._of_class: dict[int, tuple[_Claim, ...]] = {}

    def lacks(self, cls: int) -> str | None:
        """Return the quota without room for one more pod of ``cls`` now; None if all have room."""
        for claim in self._claims(cls):
            if claim.unsaid is not None:
                return claim.unsaid
            quota = claim.quota
            for name, need in claim.needs.items():
                left = quota.free[name] - self._taken[quota.namespace, quota.name, name]
                if need > left:
                    return (
                        f"ResourceQuota {quota.namespace}/{quota.name} has {left} of {name} left, "
                        f"a replacement beside the victim needs {need}"
                    )
        return None

    def take(self, cls: int) -> None:
        """Count one pod of ``cls``."""
        for claim in self._claims(cls):
            for name, need in claim.needs.items():
                self._taken[claim.quota.namespace, claim.quota.name, name] += need

    def reset(self) -> None:
        """Reset the counts: all victims are gone."""
        self._taken.clear()

    def _claims(self, cls: int) -> tuple[_Claim, ...]:
        if cls not in self._of_class:
            of_class = self._snapshot.classes[cls]
            quotas = self._of_namespace.get(of_class.namespace, ())
            self._of_class[cls] = tuple(
                self._claim(quota, cls) for quota in quotas if _applies(quota, of_class)
            )
        return self._of_class[cls]

    def _claim(self, quota: Quota, cls: int) -> _Claim:
        # Limits are not folded: where a quota caps them, requests stand in as the lower bound.
        amounts = {"pods": 1, "count/pods": 1}
        for row, name in enumerate(self._snapshot.resources):
            amount = int(self._snapshot.requests[row, cls])
            amounts[name] = amounts[f"requests.{name}"] = amounts[f"limits.{name}"] = amount
        # Of what a pod takes nothing of, more may be used than the quota allows.
        needs = {name: amounts[name] for name in quota.free if amounts.get(name)}
        return _Claim(quota, _find_unsaid(quota, self._snapshot.classes[cls].spec), needs)


def _find_unsaid(quota: Quota, spec: SchedulingSpec) -> str | None:
    """Return what the quota asks each container to say and one does not; None if all do.

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
