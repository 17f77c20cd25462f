"""The managers of LeaderWorkerSet and JobSet as processes, with the CRDs and the webhooks of their modules."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import ControlPlane, build, managers, ports


@dataclass(frozen=True)
class Project:
    """One of the two, and where its module has what an installation applies."""

    name: str
    module: str
    definition: str
    webhooks: str
    config: str
    """The API version of the manager's configuration."""
    label: str
    """Its webhooks for pods are asked about pods with this label only, as the project's own patches say."""


PROJECTS = (
    Project(
        name="lws",
        module="sigs.k8s.io/lws",
        definition="config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
        webhooks="config/webhook/manifests.yaml",
        config="config.lws.x-k8s.io/v1alpha1",
        label="leaderworkerset.sigs.k8s.io/name",
    ),
    Project(
        name="jobset",
        module="sigs.k8s.io/jobset",
        definition="config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
        webhooks="config/components/webhook/manifests.yaml",
        config="config.jobset.x-k8s.io/v1alpha1",
        label="jobset.sigs.k8s.io/jobset-name",
    ),
)


@contextmanager
def running(plane: ControlPlane, folder: Path) -> Iterator[None]:
    """Install both, and run their managers until the end."""
    with ExitStack() as stack:
        for project in PROJECTS:
            stack.enter_context(_running(plane, project, folder / project.name))
        yield


@contextmanager
def _running(plane: ControlPlane, project: Project, folder: Path) -> Iterator[None]:
    module = build.module_files(project.name, project.module)
    port = ports.free(["webhooks", "health"])
    server = managers.WebhookServer.on(port["webhooks"], folder)
    definition = yaml.safe_load((module / project.definition).read_text())
    managers.apply_definitions(plane, [definition])
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(project, server, port)))
    command = [str(build.binary(project.name)), f"--config={config}"]
    env = [f"--kubeconfig={plane.kubeconfig}"]
    log = folder / "manager.log"
    with managers.running(project.name, [*command, *env], port["health"], log):
        webhooks = list(yaml.safe_load_all((module / project.webhooks).read_text()))
        for configuration in server.configured(webhooks, project.name):
            plane.apply([_for_its_pods(configuration, project.label)])
        yield


def _configuration(
    project: Project, server: managers.WebhookServer, port: dict[str, int]
) -> dict[str, Any]:
    webhook = {"port": port["webhooks"], "host": "127.0.0.1", "certDir": str(server.keys)}
    return {
        "apiVersion": project.config,
        "kind": "Configuration",
        "webhook": webhook,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{port['health']}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _for_its_pods(configuration: dict[str, Any], label: str) -> dict[str, Any]:
    for webhook in configuration["webhooks"]:
        if any("pods" in rule["resources"] for rule in webhook["rules"]):
            exists = {"key": label, "operator": "Exists"}
            webhook["objectSelector"] = {"matchExpressions": [exists]}
    return configuration
