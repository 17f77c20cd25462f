"""The metrics API without a metrics-server: a stand-in with given values, or one that does not answer.

Unlike metrics-server, the stand-in stores the values it is given: it has versions, pages and watches, but no protobuf.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rebalancer.wire.times import rfc3339
from tests.controlplane.api import ApiClient, ApiError
from tests.controlplane.waiting import wait_until

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_SECONDS = 30.0

Manifest = dict[str, Any]
Amounts = Mapping[str, str]
"""cpu and memory, as quantities."""


@contextmanager
def served(api: ApiClient) -> Iterator[None]:
    """Let the API server itself serve NodeMetrics and PodMetrics, as custom resources."""
    definitions = [
        _definition("nodes", "NodeMetrics", "Cluster"),
        _definition("pods", "PodMetrics", "Namespaced"),
    ]
    _wait_absent(api)
    try:
        for definition in definitions:
            api.apply(definition)
        wait_until(lambda: _lists(api), _SECONDS, "the metrics API served")
        yield
    finally:
        for definition in definitions:
            _delete(api, f"{_DEFINITIONS}/{definition['metadata']['name']}")
        _wait_absent(api)


@contextmanager
def silent(api: ApiClient) -> Iterator[None]:
    """Let the API server hand requests for the metrics API on to a server that is not there."""
    name = f"{VERSION}.{GROUP}"
    _wait_absent(api)
    try:
        api.apply(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": name},
                "spec": {
                    "group": GROUP,
                    "version": VERSION,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {"namespace": "kube-system", "name": "metrics-server"},
                },
            }
        )
        wait_until(lambda: _status(api) == 503, _SECONDS, "the metrics API unavailable")
        yield
    finally:
        _delete(api, f"{_SERVICES}/{name}")
        _wait_absent(api)


def tell_node(api: ApiClient, name: str, used: Amounts) -> None:
    """Store a measurement of a node at the present time."""
    body = _measured("NodeMetrics", {"name": name}, usage=dict(used))
    api.post(f"{ROOT}/nodes", body)


def tell_pod(api: ApiClient, pod: Manifest, used: Sequence[Amounts]) -> None:
    """Store a measurement of a pod's containers at the present time."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    containers = [{"name": f"c{number}", "usage": dict(of)} for number, of in enumerate(used)]
    body = _measured("PodMetrics", {"namespace": namespace, "name": name}, containers=containers)
    api.post(f"{ROOT}/namespaces/{namespace}/pods", body)


def _measured(kind: str, metadata: Manifest, **what: Any) -> Manifest:
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata}
    return {**head, "timestamp": rfc3339(time.time()), "window": "15s", **what}


def _definition(plural: str, kind: str, scope: str) -> Manifest:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            # Groups under k8s.io need this approval of the Kubernetes project.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {
            "group": GROUP,
            "names": {"plural": plural, "kind": kind},
            "scope": scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }


def _delete(api: ApiClient, path: str) -> None:
    try:
        api.delete(path)
    except ApiError as error:
        if error.status != 404:
            raise


def _status(api: ApiClient) -> int:
    try:
        api.get(f"{ROOT}/nodes")
    except ApiError as error:
        return error.status
    return 200


def _lists(api: ApiClient) -> bool:
    try:
        api.get(f"{ROOT}/nodes")
        api.get(f"{ROOT}/pods")
    except ApiError as error:
        # 429: the storage is being set up.
        if error.status not in (404, 429, 503):
            raise
        return False
    return True


def _wait_absent(api: ApiClient) -> None:
    """Wait until it is removed: the server registers and removes custom resources with delay."""

    def absent() -> bool:
        return _status(api) == 404 and api.find(f"{_SERVICES}/{VERSION}.{GROUP}") is None

    wait_until(absent, _SECONDS, "the metrics API gone")
