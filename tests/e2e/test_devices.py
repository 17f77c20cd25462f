"""Pods with resource claims: what is predicted of them is what the real kube-scheduler does, or it is named.

ResourceSlices are written by hand, as a driver would; ``python -m benchmarks.scheduler.devices`` is the long form.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from benchmarks.scheduler.devices import GPU, DeviceGround, Tally, options
from rebalancer.snapshot.device_selectors import (
    FailedSelectorError,
    UnsupportedSelectorError,
    compile_selector,
    describe_device,
)
from rebalancer.wire.devices import Device
from tests.controlplane import ControlPlane, wait_until
from tests.controlplane.api import ApiError


def play(version: str, seeds: range, decisions: int) -> Tally:
    tally = Tally()
    with ControlPlane(options(version)) as plane:
        ground = DeviceGround(plane)
        for seed in seeds:
            ground.play(seed, decisions, tally)
    return tally


def test_pods_with_claims_go_where_they_are_predicted(kubernetes):
    tally = play(kubernetes, range(1, 5), 8)
    assert tally.differences == []
    # What was compared was enough to mean something.
    assert tally.decisions == 32
    assert tally.placed >= 12
    assert tally.chosen >= 8


@pytest.mark.long
def test_many_pods_with_claims_go_where_they_are_predicted(kubernetes):
    tally = play(kubernetes, range(1000, 1025), 12)
    assert tally.differences == []
    assert tally.decisions == 300
    assert tally.placed + tally.refused == 300
    assert min(tally.placed, tally.refused, tally.chosen) >= 40
    assert sum(tally.unmodelled.values()) <= 150


# -- selectors ----------------------------------------------------------------------------------------

_OF = f'device.attributes["{GPU}"]'
_MEMORY = f'device.capacity["{GPU}"].memory'
_DEVICES: Mapping[str, Mapping[str, Any]] = {
    "new": {
        "attributes": {
            "model": {"string": "H100"},
            "index": {"int": 3},
            "ecc": {"bool": True},
            "driver": {"version": "1.10.0"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    },
    "old": {
        "attributes": {
            "model": {"string": "A100"},
            "index": {"int": -1},
            "ecc": {"bool": False},
            "driver": {"version": "1.9.9"},
        },
        "capacity": {"memory": {"value": "40G"}},
    },
    "bare": {"attributes": {"other.example.org/numa": {"int": 1}}},
}
_ATOMS = (
    *(f'{_OF}.model {sign} "{text}"' for sign in ("==", "!=", "<", ">=") for text in ("A100", "B")),
    *(f"{_OF}.index {sign} {number}" for sign in ("==", "<=", ">") for number in (3, 0, -1)),
    *(f'{_OF}.driver.{ask}(semver("1.9.10"))' for ask in ("isGreaterThan", "isLessThan")),
    *(f'{_MEMORY}.compareTo(quantity("{of}")) < 0' for of in ("80Gi", "40Gi", "0.1Ti")),
    *(f"{_OF}.ecc", f"!{_OF}.ecc", f'{_OF}.model in ["A100", "H200"]', f"{_OF}.index in [3, 4]"),
    *(
        f"has({_OF}.model)",
        f"!has({_OF}.colour)",
        f'"model" in {_OF}',
        f'"{GPU}" in device.attributes',
    ),
    *(f'{_OF}.model.startsWith("A1")', f'{_OF}.model.contains("10")', f'{_OF}.model.endsWith("0")'),
    *(f'device.driver == "{GPU}"', 'device.attributes["other.example.org"].numa == 1'),
    *(f'{_OF}.index == "3"', f"{_OF}.model < {_OF}.index", f'{_MEMORY} == quantity("81920Mi")'),
    *(f'{_OF}.model.matches("^H")', f"{_OF}.index + 1 == 4", f"{_OF}.model", "device.nothing == 1"),
)
"""Most of them are modelled; some fail for all devices, or are no expressions of CEL for devices."""


def draw_expression(rng: random.Random) -> str:
    """Return an expression of one to three atoms."""
    text = rng.choice(_ATOMS)
    for _ in range(rng.choice((0, 0, 1, 2))):
        text = f"({text}) {rng.choice(('&&', '||'))} {rng.choice(_ATOMS)}"
    return f"!({text})" if rng.random() < 0.2 else text


def matches(expression: str, device: Mapping[str, Any]) -> bool:
    """Return whether a device can be had by an expression: one that fails places no pod."""
    described = describe_device(GPU, msgspec.convert({"name": "x", **device}, Device))
    try:
        return compile_selector(expression).matches(described)
    except FailedSelectorError:
        return False


def is_modelled(expression: str) -> bool:
    try:
        compile_selector(expression)
    except UnsupportedSelectorError:
        return False
    return True


class Selectors:
    """Nodes, each with many devices of one kind, and pods that ask for one of a node by an expression."""

    def __init__(self, plane: ControlPlane, copies: int) -> None:
        self._api = plane.api
        for name, device in _DEVICES.items():
            amounts = {"cpu": "8", "memory": "16Gi", "pods": "500"}
            labels = {"kubernetes.io/hostname": name}
            status = {"allocatable": amounts, "capacity": amounts}
            self._make("Node", "v1", {"name": name, "labels": labels}, status=status)
            spec = {
                "driver": GPU,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d{number}", **device} for number in range(copies)],
            }
            self._make("ResourceSlice", "resource.k8s.io/v1", {"name": name}, spec=spec)
        self._make("DeviceClass", "resource.k8s.io/v1", {"name": "any"}, spec={"selectors": []})

    def ask(self, number: int, expression: str) -> bool:
        """Make a claim and a pod for each node; return False if the API server takes no such expression."""
        exactly = {"deviceClassName": "any", "selectors": [{"cel": {"expression": expression}}]}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        for on in _DEVICES:
            metadata = {"name": f"{on}-{number}", "namespace": "default"}
            try:
                self._make("ResourceClaim", "resource.k8s.io/v1", metadata, spec=spec)
            except ApiError as error:
                if error.status != 422:
                    raise
                return False
            pod = {
                "nodeSelector": {"kubernetes.io/hostname": on},
                "resourceClaims": [{"name": "x", "resourceClaimName": metadata["name"]}],
                "containers": [{"name": "main", "image": "example.com/x"}],
                "automountServiceAccountToken": False,
            }
            self._make("Pod", "v1", metadata, spec=pod)
        return True

    def find_placed(self, count: int) -> set[str]:
        """Return the pods that have a node, once all ``count`` of them are decided."""

        def decided() -> list[dict[str, Any]] | None:
            pods = self._api.list_all("/api/v1/namespaces/default/pods")
            done = [one for one in pods if one["status"].get("conditions")]
            return done if len(done) == count else None

        pods = wait_until(decided, 120.0, f"decisions on {count} pods") if count else []
        return {one["metadata"]["name"] for one in pods or () if one["spec"].get("nodeName")}

    def _make(self, kind: str, version: str, metadata: Any, **rest: Any) -> None:
        made = {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
        self._api.post(self._api.collection(made), made)


@pytest.mark.parametrize(
    ("seed", "number"), [(7, 30), pytest.param(70, 110, marks=pytest.mark.long)]
)
def test_selectors_mean_what_the_api_server_and_the_scheduler_make_of_them(
    kubernetes, seed, number
):
    rng = random.Random(seed)
    drawn = list(dict.fromkeys(draw_expression(rng) for _ in range(number)))
    with ControlPlane(options(kubernetes)) as plane:
        ground = Selectors(plane, number)
        taken = {place: text for place, text in enumerate(drawn) if ground.ask(place, text)}
        placed = ground.find_placed(len(taken) * len(_DEVICES))
    modelled = {place: text for place, text in enumerate(drawn) if is_modelled(text)}
    expected = {
        (text, on): matches(text, device)
        for text in modelled.values()
        for on, device in _DEVICES.items()
    }
    said = {
        (text, on): f"{on}-{place}" in placed for place, text in modelled.items() for on in _DEVICES
    }
    assert {one: said[one] for one in said if said[one] != expected[one]} == {}
    # What was compared was enough to mean something.
    assert len(modelled) > number / 2
    assert {True, False} == set(said.values())
