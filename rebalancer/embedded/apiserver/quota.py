"""ResourceQuotas over pods: what is used, and the refusal of a pod that exceeds one.

Source: ``k8s.io/kubernetes/pkg/quota/v1/evaluator/core/pods.go`` and the ResourceQuota admission plug-in.
A terminating pod counts until it is deleted. Scopes are not evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from rebalancer.embedded.apiserver import status
from rebalancer.embedded.apiserver.deletion import FINISHED
from rebalancer.embedded.apiserver.kinds import POD, QUOTA, Json, Kind
from rebalancer.embedded.apiserver.store import Store
from rebalancer.snapshot.requests import pod_requests
from rebalancer.wire.objects import SchedulingSpec
from rebalancer.wire.quantity import parse_resource

_COUNTED = ("pods", "count/pods")


def charge(store: Store, kind: Kind, namespace: str, pod: Json) -> None:
    """Raise 403 if a new pod would exceed a quota of the namespace."""
    if kind is not POD:
        return
    for quota in store.items(QUOTA, namespace):
        hard = quota.get("spec", {}).get("hard") or {}
        requested, used = _usage(pod, hard), used_of(store, quota)
        over = sorted(
            name
            for name, amount in requested.items()
            if used[name] + amount > _parse(name, hard[name])
        )
        if over:
            name = quota["metadata"]["name"]
            raise status.forbidden(
                POD,
                pod["metadata"].get("name") or pod["metadata"].get("generateName", ""),
                f"exceeded quota: {name}, requested: {_shown(over, requested)}, used: "
                f"{_shown(over, used)}, limited: " + ",".join(f"{n}={hard[n]}" for n in over),
            )


def used_of(store: Store, quota: Json) -> dict[str, int]:
    """Return what the pods of a quota's namespace use of each of its resources, in base units."""
    hard = quota.get("spec", {}).get("hard") or {}
    used = {name: 0 for name in hard if _is_pods(name)}
    for pod in store.items(POD, quota["metadata"]["namespace"]):
        if pod.get("status", {}).get("phase") not in FINISHED:
            for name, amount in _usage(pod, hard).items():
                used[name] += amount
    return used


def shown(name: str, amount: int) -> str:
    """Return an amount as a quantity: milli-cores for cpu, plain numbers for everything else."""
    if name.rsplit(".", 1)[-1] != "cpu":
        return str(amount)
    cores = Fraction(amount, 1000)
    return str(cores) if cores.denominator == 1 else f"{amount}m"


def _usage(pod: Json, hard: Mapping[str, Any]) -> dict[str, int]:
    spec = msgspec.convert(pod["spec"], SchedulingSpec, strict=False)
    requests = pod_requests(spec)
    limits: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, text in (container.get("resources", {}).get("limits") or {}).items():
            limits[name] = limits.get(name, 0) + parse_resource(name, text)
    usage: dict[str, int] = {}
    for name in hard:
        if name in _COUNTED:
            usage[name] = 1
        elif name.startswith("limits."):
            usage[name] = limits.get(name.removeprefix("limits."), 0)
        elif _is_pods(name):
            usage[name] = requests.get(name.removeprefix("requests."), 0)
    return usage


def _is_pods(name: str) -> bool:
    bare = name.removeprefix("requests.").removeprefix("limits.")
    return name in _COUNTED or bare in ("cpu", "memory", "ephemeral-storage")


def _parse(name: str, text: str) -> int:
    return parse_resource(name.rsplit(".", 1)[-1], text)


def _shown(names: list[str], amounts: Mapping[str, int]) -> str:
    return ",".join(f"{name}={shown(name, amounts[name])}" for name in names)
