"""The Lease that keeps two runs apart: taken, renewed and given back by updates, never created."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from rebalancer.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import TransportError
from rebalancer.kube.resources import LEASES, Rule
from rebalancer.kube.transport import Response
from rebalancer.wire.times import unix_seconds

_RETRY = 1.0
"""Seconds after a failed renewal."""


@dataclass(frozen=True, slots=True)
class HeldByAnother:
    """Another run is under way."""

    holder: str
    expires_at: float
    """Unix seconds by the server's clock: from then on the Lease is free even if its holder died."""
    seconds_left: float


@dataclass(frozen=True, slots=True)
class NoLease:
    """There is no such Lease: nothing keeps runs apart."""

    message: str


class HeldLease:
    """Our Lease, renewed by a thread until :meth:`release`. ``lost`` is set when it is ours no more.

    It is lost when another run takes it (it can, once ours has expired), or when it could not be renewed
    for two thirds of its duration: stop acting then, since a third later another may begin.
    """

    def __init__(self, lease: Lease, found: Mapping[str, Any], now: float) -> None:
        self.lost = threading.Event()
        self._lease = lease
        self._object = found
        self._renewed = lease.client.monotonic()
        self._ahead = now - self._renewed
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def release(self) -> str | None:
        """Give the Lease back; return None, or a warning if that failed (it expires by itself then)."""
        self._end.set()
        # The thread may be amid a request; it is bounded like all others.
        self._thread.join(self._lease.duration)
        if self.lost.is_set():
            return "the Lease was lost before the run ended"
        try:
            if self._lease._put(self._object, holder=None, now=self._now()) is None:  # noqa: SLF001
                return "the Lease was taken by another run before this one ended"
        except ClusterReadError as error:
            return f"the Lease could not be given back: {error}"
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _now(self) -> float:
        """The server's clock, as it was when the Lease was taken, gone on by ours."""
        return self._lease.client.monotonic() + self._ahead

    def _left(self) -> float:
        """Seconds until the Lease counts as lost."""
        return self._renewed + self._lease.duration * 2 / 3 - self._lease.client.monotonic()

    def _keep(self) -> None:
        pause = self._lease.duration / 3
        while not self._end.wait(pause):
            renewed = False
            try:
                renewed = self._renew()
            except TransportError:
                pass  # tried again soon, unless that is too late
            except ClusterReadError:
                self.lost.set()  # forbidden, or no longer there
            if self._left() <= 0:
                self.lost.set()
            if self.lost.is_set():
                return
            pause = self._lease.duration / 3 if renewed else min(_RETRY, self._left())

    def _renew(self) -> bool:
        lease = self._lease
        started = lease.client.monotonic()
        found = self._put_ours()
        if found is None:
            # The lost answer to a renewal of our own looks the same: whose is it?
            current, _ = lease._get(self._left())  # noqa: SLF001
            if current is None or _holder(current) != lease.identity:
                self.lost.set()
                return False
            self._object = current
            found = self._put_ours()
        if found is None:
            return False
        self._object, self._renewed = found, started
        return True

    def _put_ours(self) -> Mapping[str, Any] | None:
        lease = self._lease
        return lease._put(  # noqa: SLF001
            self._object, holder=lease.identity, now=self._now(), seconds=self._left()
        )


class Lease:
    """The Lease ``name`` in ``namespace``, as ``identity`` (our pod's name, say) uses it.

    ``duration`` is in seconds. Times are the server's (its Date header), so that clocks of nodes that
    differ neither free a Lease early nor block it for longer than its duration.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        identity: str,
        duration: int = 60,
        clock: Callable[[], float],
    ) -> None:
        self.client = client
        self.identity = identity
        self.duration = duration
        self._clock = clock
        self._namespace, self._name = namespace, name
        self._path = LEASES.path(namespace, name)

    def acquire(self) -> HeldLease | HeldByAnother | NoLease:
        """Take the Lease if it is free, or its holder has let it expire.

        Raises:
            ClusterReadError: it could not be read or written.
        """
        for _ in range(3):
            found, now = self._get()
            if found is None:
                return NoLease(
                    f"there is no Lease {self._namespace}/{self._name}: nothing keeps this run apart"
                    f" from another"
                )
            holder, expires_at = _holder(found), _expiry(found, now)
            if holder and holder != self.identity and now < expires_at:
                return HeldByAnother(holder, expires_at, expires_at - now)
            taken = self._put(found, holder=self.identity, now=now, takes_over=True)
            if taken is not None:
                return HeldLease(self, taken, now)
        raise ClusterReadError(
            f"Lease {self._namespace}/{self._name} changes faster than it can be taken"
        )

    def _get(self, seconds: float | None = None) -> tuple[Mapping[str, Any] | None, float]:
        """Return the object, or None if there is none, and the server's time."""
        response = self.client.get(self._path, seconds=seconds)
        now = self._clock() if response.date is None else response.date
        if response.status == 404:
            return None, now
        return self._decoded(response, "get"), now

    def _put(
        self,
        known: Mapping[str, Any],
        *,
        holder: str | None,
        now: float,
        takes_over: bool = False,
        seconds: float | None = None,
    ) -> Mapping[str, Any] | None:
        """Replace ``known``; return it as it is now, None if it was changed meanwhile."""
        spec = {**(known.get("spec") or {}), "leaseDurationSeconds": self.duration}
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec["renewTime"] = stamp
        if takes_over:
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        if holder is None:
            spec.pop("holderIdentity", None)
        else:
            spec["holderIdentity"] = holder
        body = msgspec.json.encode({**known, "spec": spec})
        response = self.client.put(self._path, body, seconds=seconds)
        return None if response.status == 409 else self._decoded(response, "update")

    def _decoded(self, response: Response, verb: str) -> Mapping[str, Any]:
        rule = Rule(verb, LEASES.group, LEASES.plural, self._namespace, self._name)
        body = self.client.expect(response, rule).body
        return msgspec.json.decode(body, type=dict[str, Any])


def _holder(found: Mapping[str, Any]) -> str:
    return str((found.get("spec") or {}).get("holderIdentity") or "")


def _expiry(found: Mapping[str, Any], now: float) -> float:
    """Return when the holder's time is over.

    A renewal further in the future than the Lease lasts is no renewal but a broken clock: it would block
    all runs until that time comes.
    """
    spec = found.get("spec") or {}
    renewed = unix_seconds(spec.get("renewTime"))
    lasts = float(spec.get("leaseDurationSeconds") or 0)
    return now if renewed > now + lasts else renewed + lasts
