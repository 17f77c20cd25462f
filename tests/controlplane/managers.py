"""Controllers of other projects beside the control plane: their CRDs, their webhooks, and their managers as processes."""

import base64
import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.controlplane import pki
from tests.controlplane.api import ApiClient, ApiError
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.process import ProcessGroup
from tests.controlplane.waiting import wait_until

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What client-go asks ``/apis`` for."""

Kind = tuple[str, str, str]
"""API group, version, plural."""


def apply_definitions(plane: ControlPlane, definitions: Sequence[Mapping[str, Any]]) -> None:
    """Apply CRDs, and wait until discovery names their kinds.

    Discovery follows a second after the write, and longer on a busy machine. A controller that asks for its kinds before
    that ends at once ("no matches for kind"): it takes the answer for the truth.
    """
    plane.apply(definitions)
    wanted = {
        (one["spec"]["group"], version["name"], one["spec"]["names"]["plural"])
        for one in definitions
        for version in one["spec"]["versions"]
        if version["served"]
    }
    wait_until(lambda: _names_all(plane.api, wanted), 60, "the kinds of the CRDs served")


def _names_all(api: ApiClient, wanted: set[Kind]) -> bool:
    """Return whether discovery names the kinds in both of its forms: each has its own moment."""
    groups = api.request("GET", "/apis", accept=_AGGREGATED)["items"]
    aggregated = {
        (group["metadata"]["name"], version["version"], one["resource"])
        for group in groups
        for version in group["versions"]
        for one in version.get("resources") or ()
    }
    versions = {kind[:2] for kind in wanted}
    return wanted <= aggregated and wanted <= set().union(*(_listed(api, *of) for of in versions))


def _listed(api: ApiClient, group: str, version: str) -> set[Kind]:
    try:
        resources = api.get(f"/apis/{group}/{version}")["resources"]
    except ApiError:
        return set()
    return {(group, version, one["name"]) for one in resources}


@dataclass(frozen=True)
class WebhookServer:
    """Where a manager serves its webhooks: on loopback, with keys made for it."""

    keys: Path
    """The folder of its certificate and key."""
    url: str
    client: Mapping[str, str]
    """With the CA, for the clientConfig of webhooks."""

    @classmethod
    def on(cls, port: int, folder: Path) -> "WebhookServer":
        """Make keys in ``folder``, for a server on ``port``."""
        keys = pki.create(folder, ["127.0.0.1"])
        client = {"caBundle": base64.b64encode(keys.ca_cert.read_bytes()).decode()}
        return cls(folder, f"https://127.0.0.1:{port}", client)

    def configured(
        self, configurations: Sequence[Mapping[str, Any]], prefix: str
    ) -> Iterator[dict[str, Any]]:
        """Yield webhook configurations of a project, for this server instead of its Service; ``prefix``: of their names."""
        for configuration in configurations:
            named: dict[str, Any] = copy.deepcopy(dict(configuration))
            named["metadata"]["name"] = f"{prefix}-{named['metadata']['name']}"
            for webhook in named["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {**self.client, "url": f"{self.url}{path}"}
            yield named


@contextmanager
def running(name: str, command: Sequence[str], health: int, log: Path) -> Iterator[None]:
    """Run a manager until the end, from the moment when it is ready; ``health``: the port where it says so."""
    processes = ProcessGroup(None)
    component = processes.add(name, command, log)

    def ready() -> bool:
        if not component.running:
            raise RuntimeError(f"{name} ended by itself; its last words:\n{component.tail()}")
        try:
            with urlopen(f"http://127.0.0.1:{health}/readyz", timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    try:
        component.start()
        wait_until(ready, 60, f"{name} ready")
        yield
    finally:
        processes.close()
