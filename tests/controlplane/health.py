"""How each component says that it is ready."""

import functools
from pathlib import Path

import urllib3

from tests.controlplane.api import ApiClient, ApiError
from tests.controlplane.commands import Layout

_SECONDS = 10.0


def is_ready(name: str, api: ApiClient, layout: Layout) -> bool:
    """Whether a component is ready for all that tests want of it."""
    port = layout.ports[name]
    ca = layout.pki.ca_cert
    match name:
        case "etcd":
            return _answers(f"http://127.0.0.1:{port}/health", ca)
        case "kube-apiserver":
            return _api_server(api)
        case "kube-controller-manager":
            # Pods are refused until the namespace has its default ServiceAccount.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            return _answers(f"https://127.0.0.1:{port}/healthz", ca) and _exists(api, account)
        case "kube-scheduler":
            return _answers(f"https://127.0.0.1:{port}/readyz", ca)
        case _:
            return _answers(f"http://127.0.0.1:{port}/healthz", ca)


def _api_server(api: ApiClient) -> bool:
    try:
        return bool(api.request("GET", "/readyz", timeout=_SECONDS) == "ok")
    except ApiError:
        return False


def _exists(api: ApiClient, path: str) -> bool:
    try:
        return api.find(path) is not None
    except ApiError:
        return False


def _answers(url: str, ca: Path) -> bool:
    try:
        return _pool(ca).request("GET", url, timeout=_SECONDS, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


@functools.lru_cache(maxsize=4)
def _pool(ca: Path) -> urllib3.PoolManager:
    return urllib3.PoolManager(ca_certs=str(ca))
