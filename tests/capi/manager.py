"""Cluster API's core controllers and webhooks as a process, with the CRDs of their module."""

import base64
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from tests.capi.served import apply_definitions
from tests.controlplane import ControlPlane, build, pki, ports, wait_until
from tests.controlplane.process import ProcessGroup

NAME = "cluster-api"
_MODULE = "sigs.k8s.io/cluster-api"
_CRDS = "core/config/crd/bases"
_WEBHOOKS = "core/config/webhook/manifests.yaml"
_CONVERTED = ("clusters", "machines", "machinedeployments", "machinesets")


@contextmanager
def running(plane: ControlPlane, folder: Path) -> Iterator[Path]:
    """Install Cluster API, and run its controllers until the end; yield the path of their log."""
    module = build.module_files(NAME, _MODULE)
    port = ports.free(["webhooks", "health", "diagnostics"])
    keys = pki.create(folder / "webhooks", ["127.0.0.1"])
    client = {"caBundle": base64.b64encode(keys.ca_cert.read_bytes()).decode()}
    url = f"https://127.0.0.1:{port['webhooks']}"
    apply_definitions(plane, [*_definitions(module, {**client, "url": f"{url}/convert"})])
    log = folder / "cluster-api.log"
    processes = ProcessGroup(None)
    command = [
        str(build.binary(NAME)),
        f"--kubeconfig={plane.kubeconfig}",
        f"--webhook-port={port['webhooks']}",
        f"--webhook-cert-dir={folder / 'webhooks'}",
        f"--health-addr=127.0.0.1:{port['health']}",
        f"--diagnostics-address=127.0.0.1:{port['diagnostics']}",
        "--insecure-diagnostics=true",
        "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        "--v=4",
    ]
    component = processes.add(NAME, command, log)

    def ready() -> bool:
        if not component.running:
            raise RuntimeError(f"{NAME} ended by itself; its last words:\n{component.tail()}")
        try:
            with urlopen(f"http://127.0.0.1:{port['health']}/readyz", timeout=5) as answer:
                return int(answer.status) == 200
        except OSError:
            return False

    try:
        component.start()
        wait_until(ready, 60, f"{NAME} ready")
        plane.apply(_webhooks(module, url, client))
        yield log
    finally:
        processes.close()


def _definitions(module: Path, convert: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in sorted((module / _CRDS).glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        if definition["spec"]["names"]["plural"] in _CONVERTED:
            webhook = {"clientConfig": convert, "conversionReviewVersions": ["v1"]}
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        yield definition


def _webhooks(module: Path, url: str, client: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the configurations of the module, for a process instead of a Service."""
    for configuration in yaml.safe_load_all((module / _WEBHOOKS).read_text()):
        named = copy.deepcopy(configuration)
        named["metadata"]["name"] = f"capi-{named['metadata']['name']}"
        for webhook in named["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {**client, "url": f"{url}{path}"}
        yield named
