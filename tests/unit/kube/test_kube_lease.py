"""Who holds the Lease, and for how long."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rebalancer.errors import ClusterReadError
from rebalancer.kube.lease import HeldByAnother, HeldLease, Lease, NoLease
from tests.unit.kube.scripted import (
    Asked,
    Say,
    ScriptedServer,
    Sleeps,
    client_of,
    status_body,
)

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases/run"
TEN = 1795168800.0
"""The scripted server's clock."""


class LeaseOnServer:
    """A Lease with the API server's compare-and-swap."""

    def __init__(self, server: ScriptedServer, **spec: Any) -> None:
        self.object: dict[str, Any] = {
            "metadata": {"name": "run", "resourceVersion": "1", "labels": {"by": "chart"}},
            "spec": spec,
        }
        self.writes: list[dict[str, Any]] = []
        server.handle("GET", PATH, lambda _: Say(self.object))
        server.handle("PUT", PATH, self.put)

    def put(self, asked: Asked) -> Say:
        if asked.body["metadata"]["resourceVersion"] != self.version:
            return Say(status_body(409, "the object has been modified"), 409)
        self.writes.append(asked.body["spec"])
        self.change(**asked.body["spec"])
        return Say(self.object)

    @property
    def version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])

    def change(self, **spec: Any) -> None:
        metadata = {**self.object["metadata"], "resourceVersion": str(int(self.version) + 1)}
        self.object = {"metadata": metadata, "spec": spec}


def lease(
    server: ScriptedServer,
    folder: Path,
    duration: int = 60,
    sleeps: Sleeps | None = None,
    **limits: Any,
) -> Lease:
    client = client_of(server.url, folder, sleeps, **limits)
    return Lease(client, "ops", "run", identity="me", duration=duration, clock=lambda: 0.0)


def test_a_free_lease_is_taken_and_given_back(server: ScriptedServer, tmp_path: Path) -> None:
    kept = LeaseOnServer(server, leaseTransitions=4)
    held = lease(server, tmp_path).acquire()
    assert isinstance(held, HeldLease)
    assert kept.writes[0] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 60,
        "acquireTime": "2026-11-20T10:00:00.000000Z",
        "renewTime": "2026-11-20T10:00:00.000000Z",
        "leaseTransitions": 5,
    }
    assert held.release() is None
    assert "holderIdentity" not in kept.object["spec"]
    assert kept.object["metadata"]["labels"] == {"by": "chart"}


@pytest.mark.parametrize(
    ("renewed", "left"),
    [("2026-11-20T09:59:30Z", 30.0), ("2026-11-20T09:59:00.500000Z", 0.5)],
)
def test_a_lease_of_another_is_respected_until_it_expires(
    server: ScriptedServer, tmp_path: Path, renewed: str, left: float
) -> None:
    kept = LeaseOnServer(server, holderIdentity="other", renewTime=renewed, leaseDurationSeconds=60)
    answer = lease(server, tmp_path).acquire()
    assert answer == HeldByAnother("other", TEN + left, left)
    assert kept.writes == []


@pytest.mark.parametrize(
    "renewed",
    ["2026-11-20T09:59:00Z", "2020-01-01T00:00:00Z", "2036-01-01T00:00:00Z", None],
)
def test_a_dead_holder_blocks_no_longer_than_its_duration(
    server: ScriptedServer, tmp_path: Path, renewed: str | None
) -> None:
    spec = {"holderIdentity": "dead", "renewTime": renewed, "leaseDurationSeconds": 60}
    kept = LeaseOnServer(server, **spec)
    with_it = lease(server, tmp_path).acquire()
    assert isinstance(with_it, HeldLease)
    with_it.release()
    assert kept.writes[0]["holderIdentity"] == "me"


def test_of_two_that_take_it_at_once_one_gets_it(server: ScriptedServer, tmp_path: Path) -> None:
    kept = LeaseOnServer(server)
    put = kept.put

    def other_first(asked: Asked) -> Say:
        if not kept.writes:
            kept.writes.append({})
            kept.change(
                holderIdentity="other", renewTime="2026-11-20T10:00:00Z", leaseDurationSeconds=60
            )
        return put(asked)

    server.handle("PUT", PATH, other_first)
    answer = lease(server, tmp_path).acquire()
    assert isinstance(answer, HeldByAnother)
    assert answer.holder == "other"


def test_without_the_object_a_run_goes_without(server: ScriptedServer, tmp_path: Path) -> None:
    answer = lease(server, tmp_path).acquire()
    assert isinstance(answer, NoLease)
    assert "there is no Lease ops/run" in answer.message


def test_a_forbidden_lease_names_the_rule(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", PATH, Say(status_body(403, "no"), 403))
    with pytest.raises(
        ClusterReadError, match=r'resources: \["leases"\], resourceNames: \["run"\]'
    ):
        lease(server, tmp_path).acquire()


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


class Slow(Sleeps):
    """A clock on which a busy machine's delays are short."""

    def monotonic(self) -> float:
        return time.monotonic() / 100


def held_lease(
    server: ScriptedServer, folder: Path, clock: Sleeps | None = None, **limits: Any
) -> HeldLease:
    """Take a Lease of two seconds: renewed every 0.67 s, lost when 1.33 s of the clock pass without that."""
    held = lease(server, folder, duration=2, sleeps=clock or Slow(), **limits).acquire()
    assert isinstance(held, HeldLease)
    return held


def test_it_is_renewed_while_it_is_held(server: ScriptedServer, tmp_path: Path) -> None:
    kept = LeaseOnServer(server)
    held = held_lease(server, tmp_path)
    assert eventually(lambda: len(kept.writes) == 3)  # taken, twice renewed
    assert not held.lost.is_set()
    assert held.release() is None
    renewals = [write["renewTime"] for write in kept.writes]
    assert renewals == sorted(set(renewals))


def test_it_is_lost_when_another_has_taken_it(server: ScriptedServer, tmp_path: Path) -> None:
    kept = LeaseOnServer(server)
    held = held_lease(server, tmp_path)
    kept.change(holderIdentity="other", leaseDurationSeconds=60)
    assert held.lost.wait(60.0)
    assert held.release() == "the Lease was lost before the run ended"
    assert kept.object["spec"]["holderIdentity"] == "other"


def test_it_is_not_lost_when_somebody_else_changed_its_labels(
    server: ScriptedServer, tmp_path: Path
) -> None:
    kept = LeaseOnServer(server)
    held = held_lease(server, tmp_path)
    kept.change(**kept.object["spec"])
    assert eventually(lambda: len(kept.writes) == 2)
    assert not held.lost.is_set()
    assert held.release() is None


def test_it_is_lost_before_it_expires_when_the_server_falls_silent(
    server: ScriptedServer, tmp_path: Path
) -> None:
    LeaseOnServer(server)
    clock = Sleeps()
    held = held_lease(server, tmp_path, clock, read=0.1)
    server.on("PUT", PATH, Say(after=600.0))

    def tried_again() -> bool:
        before = len(server.to(PATH, "PUT"))
        return eventually(lambda: len(server.to(PATH, "PUT")) > before + 1)

    clock.sleep(1.3)
    assert tried_again()
    assert not held.lost.is_set()
    clock.sleep(0.1)
    assert held.lost.wait(60.0)
    held.release()
