"""What a random pod can ask of a node's resources; see features.py."""

from __future__ import annotations

import random

from benchmarks.scheduler.vocabulary import OVERHEAD_CLASS, Manifest


def container_of(pod: Manifest) -> Manifest:
    container: Manifest = pod["spec"]["containers"][0]
    return container


def _request(pod: Manifest, **amounts: str) -> None:
    resources = container_of(pod).setdefault("resources", {}).setdefault("requests", {})
    resources.update({name.replace("_", "-"): amount for name, amount in amounts.items()})


def requests(rng: random.Random, pod: Manifest) -> None:
    cpu = rng.choice(("50m", "0.25", "1", "1500m", "3"))
    _request(pod, cpu=cpu, memory=rng.choice(("64Mi", "1Gi", "1500M", "4Gi")))


def cpu_only(rng: random.Random, pod: Manifest) -> None:
    _request(pod, cpu=rng.choice(("100m", "2")))


def ephemeral_storage(rng: random.Random, pod: Manifest) -> None:
    _request(pod, ephemeral_storage=rng.choice(("1Gi", "40Gi")))


def extended(rng: random.Random, pod: Manifest) -> None:
    amount = {"example.com/gpu": rng.choice(("1", "2"))}
    resources = container_of(pod).setdefault("resources", {})
    resources.setdefault("requests", {}).update(amount)
    resources.setdefault("limits", {}).update(amount)


def hugepages(_: random.Random, pod: Manifest) -> None:
    resources = container_of(pod).setdefault("resources", {})
    for kind in ("requests", "limits"):
        resources.setdefault(kind, {})["hugepages-2Mi"] = "4Mi"
    resources["requests"].setdefault("cpu", "10m")


def init_containers(rng: random.Random, pod: Manifest) -> None:
    for index in range(rng.randint(1, 2)):
        _init(pod, f"init-{index}", cpu=rng.choice(("100m", "2", "4")), memory="512Mi")


def sidecar(rng: random.Random, pod: Manifest) -> None:
    _init(pod, "sidecar", cpu=rng.choice(("100m", "1")), memory="256Mi", always=True)


def _init(pod: Manifest, name: str, *, cpu: str, memory: str, always: bool = False) -> None:
    container: Manifest = {"name": name, "image": "init:1"}
    container["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
    if always:
        container["restartPolicy"] = "Always"
    pod["spec"].setdefault("initContainers", []).append(container)


def overhead(_: random.Random, pod: Manifest) -> None:
    pod["spec"]["runtimeClassName"] = OVERHEAD_CLASS


def pod_level(rng: random.Random, pod: Manifest) -> None:
    # No less than what the containers may ask together, or the API server refuses it.
    wanted = {"cpu": rng.choice(("16", "12")), "memory": rng.choice(("12Gi", "16Gi"))}
    if rng.random() < 0.3:
        del wanted["memory"]
    pod["spec"]["resources"] = {"requests": wanted}
