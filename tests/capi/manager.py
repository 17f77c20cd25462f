"""Cluster API's core controllers and webhooks as a process, with the CRDs of their module."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import ControlPlane, build, managers, ports

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
    server = managers.WebhookServer.on(port["webhooks"], folder / "webhooks")
    convert = {**server.client, "url": f"{server.url}/convert"}
    managers.apply_definitions(plane, [*_definitions(module, convert)])
    log = folder / "cluster-api.log"
    command = [
        str(build.binary(NAME)),
        f"--kubeconfig={plane.kubeconfig}",
        f"--webhook-port={port['webhooks']}",
        f"--webhook-cert-dir={server.keys}",
        f"--health-addr=127.0.0.1:{port['health']}",
        f"--diagnostics-address=127.0.0.1:{port['diagnostics']}",
        "--insecure-diagnostics=true",
        "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        "--v=4",
    ]
    with managers.running(NAME, command, port["health"], log):
        webhooks = list(yaml.safe_load_all((module / _WEBHOOKS).read_text()))
        plane.apply(server.configured(webhooks, "capi"))
        yield log


def _definitions(module: Path, convert: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in sorted((module / _CRDS).glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        if definition["spec"]["names"]["plural"] in _CONVERTED:
            webhook = {"clientConfig": convert, "conversionReviewVersions": ["v1"]}
            definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        yield definition
