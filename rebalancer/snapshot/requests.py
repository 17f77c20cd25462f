"""The effective requests of a pod: the sums that kube-scheduler computes over its containers."""

from __future__ import annotations

from collections.abc import Mapping

from rebalancer.wire.objects import Container, SchedulingSpec
from rebalancer.wire.quantity import parse_resource

Amounts = dict[str, int]

MAX_AMOUNT = 2**52
"""More than any node has of anything (4 PiB of memory). Larger amounts count as this one.

The API admits quantities up to 2^63, and sums beyond: of a pod that no node could ever hold, but that must not
keep a run from all others. Sums over the pods of a node stay within int64, and whole numbers within float64.
"""

# k8s.io/kubernetes/pkg/scheduler/util: what a container without a request counts for when scored.
DEFAULT_SCORED: Mapping[str, int] = {"cpu": 100, "memory": 200 * 1024 * 1024}
# KEP-2837: the resources that may be set at pod level.
_POD_LEVEL = ("cpu", "memory")


def pod_requests(spec: SchedulingSpec, defaults: Mapping[str, int] | None = None) -> Amounts:
    """Return the effective request of a pod, per resource, in base units.

    Containers add up; init containers run one by one beside the sidecars started before them, so the
    larger of both phases counts (KEP-753); pod-level requests replace the sums (KEP-2837); overhead
    comes on top. ``defaults`` stand in for container requests that are missing, as in the scheduler's
    scoring (``DEFAULT_SCORED``). Source: ``k8s.io/component-helpers/resource.PodRequests``.

    Raises:
        ValueError: a quantity cannot be parsed.
    """
    total: Amounts = {}
    for container in spec.containers:
        _add(total, _container(container, defaults))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers or ():
        amounts = _container(container, defaults)
        if container.restart_policy == "Always":
            _add(total, amounts)
            _add(sidecars, amounts)
            amounts = dict(sidecars)
        else:
            _add(amounts, sidecars)
        _raise_to(peak, amounts)
    _raise_to(total, peak)
    if spec.resources is not None:
        for name, text in (spec.resources.requests or spec.resources.limits or {}).items():
            if name in _POD_LEVEL or name.startswith("hugepages-"):
                total[name] = _amount(name, text)
    _add(total, {name: _amount(name, text) for name, text in (spec.overhead or {}).items()})
    return total


def score_requests(spec: SchedulingSpec) -> Amounts:
    """Return the requests of a running pod for scoring nodes: defaults replace missing requests.

    With pod-level requests, the defaults replace only what these lack
    (``pkg/scheduler/framework.PodInfo.CalculateResource``). Raises as :func:`pod_requests`.
    """
    defaults = DEFAULT_SCORED
    if spec.resources is not None and spec.resources.requests:
        asked = pod_requests(spec)
        defaults = {name: amount for name, amount in defaults.items() if name not in asked}
    return pod_requests(spec, defaults)


def _container(container: Container, defaults: Mapping[str, int] | None) -> Amounts:
    amounts: Amounts = dict(defaults or {})
    if container.resources is not None:
        # The API server defaults requests to limits on pods, not on the templates we also read.
        for source in (container.resources.limits, container.resources.requests):
            for name, text in (source or {}).items():
                amounts[name] = _amount(name, text)
    return amounts


def _amount(name: str, text: str | float) -> int:
    # A negative amount, which only a file can have, is left to be seen: nothing is predicted of such a pod.
    return max(-MAX_AMOUNT, min(MAX_AMOUNT, parse_resource(name, text)))


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = min(MAX_AMOUNT, total.get(name, 0) + amount)


def _raise_to(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)
