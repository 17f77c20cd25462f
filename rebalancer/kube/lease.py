"""The Lease that prevents concurrent runs: acquired, renewed and released by updates, never created."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, NotServedError, says_missing
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Response
from rebalancer.wire.kinds import LEASES
from rebalancer.wire.times import unix_seconds

_RETRY = 1.0
"""Seconds after a renewal that failed."""
_POLL_INTERVAL = 2.0
"""Seconds between two looks at a Lease whose holder seems to be dead."""
_JOIN_TIMEOUT = 5.0
"""Most seconds for giving the Lease back."""


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """Another run holds the Lease."""

    holder: str
    expires_at: float
    """Unix seconds by the server's clock: when its term ends, unless it is renewed."""
    since: float = 0.0
    """Unix seconds at which the holder took it; 0: not known."""


class Lease:
    """The Lease ``name`` in ``namespace``; ``identity`` is unique to this run.

    ``duration`` is in seconds. Times are the server's (its Date header).

    As in client-go's leader election, no clock decides that another holder is dead, since clocks may differ: a Lease that looks expired is acquired only after it was watched for its whole duration without a
    change. A living holder renews it three times in that time. Unlike client-go, a Lease that does not look expired
    ends the attempt at once, since the next run comes anyway: only the run after a killed one waits.
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

    def acquire(self, waits: Callable[[], None] | None = None) -> AcquiredLease | LeaseTaken:
        """Acquire the Lease if it is free or its holder is dead; else return its holder.

        With ``waits`` (called at each look), wait until it can be acquired or the client must stop; for long-lived
        processes. It looks every two seconds, to know for how long the Lease has not changed.

        Raises:
            ClusterReadError: the Lease does not exist, or could not be read or written.
        """
        trouble = ClusterReadError(
            f"Lease {self._namespace}/{self._name} changes faster than it can be taken"
        )
        for _ in range(3):
            free = self._free(waits)
            if isinstance(free, LeaseTaken):
                return free
            lease, now = free
            try:
                taken = self.write(
                    self.client, lease, holder=self.identity, now=now, takes_over=True
                )
            except ClusterReadError as error:
                # It may be ours anyway, and no other run could take it for two terms: read it again.
                trouble = error
                if is_final(error) or self.client.stop.wait(_RETRY) is not None:
                    break
                continue
            if taken is not None:
                return AcquiredLease(self, taken, now)
        raise trouble

    def _free(
        self, waits: Callable[[], None] | None
    ) -> tuple[Mapping[str, Any], float] | LeaseTaken:
        """Wait until the Lease is free, is ours, or has expired; return it with the server's time.

        Return its holder instead if we may not wait, if the holder still renews it, or once the run must end.
        """
        watched: _Watched | None = None
        lease, now = self.read(self.client)
        while (holder := holder_of(lease)) not in ("", self.identity):
            if waits is not None:
                waits()
                if watched is not None and watched.version != _version(lease):
                    watched = None
            elif now < (expires_at := _expiry(lease, now)):
                return LeaseTaken(holder, expires_at, _since(lease))
            if watched is None:
                watched = _Watched(_version(lease), self.client.monotonic() + _duration(lease))
            left = watched.until - self.client.monotonic()
            if watched.version != _version(lease):  # alive, and its clock is wrong
                return LeaseTaken(holder, now + _duration(lease), _since(lease))
            if left <= 0:
                break
            if self.client.stop.wait(min(_POLL_INTERVAL, left)) is not None:
                return LeaseTaken(holder, now + left, _since(lease))
            lease, now = self.read(self.client)
        return lease, now

    def read(self, client: Client, seconds: float | None = None) -> tuple[Mapping[str, Any], float]:
        """Return the Lease object, and the server's time in Unix seconds.

        Raises:
            ClusterReadError: the Lease does not exist, or could not be read.
        """
        response = client.get(self._path, seconds=seconds)
        now = self._clock() if response.date is None else response.date
        if says_missing(response.status, response.body):
            raise NotServedError(
                404,
                f"there is no Lease {self._namespace}/{self._name}: create it (the chart does), or run without --lease if nothing else rebalances"
                " this cluster",
            )
        return self._decode(response, "get"), now

    def write(
        self,
        client: Client,
        known: Mapping[str, Any],
        *,
        holder: str | None,
        now: float,
        takes_over: bool = False,
        seconds: float | None = None,
    ) -> Mapping[str, Any] | None:
        """Replace the version ``known``; return the new version, or None if it was changed in the meantime.

        Raises:
            ClusterReadError: it could not be written, or the response does not say whether it was.
        """
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
        response = client.put(self._path, body, seconds=seconds)
        return None if response.status == 409 else self._decode(response, "update")

    def _decode(self, response: Response, verb: str) -> Mapping[str, Any]:
        rule = AccessRule.of(verb, LEASES, self._namespace, self._name)
        body = self.client.expect(response, rule).body
        try:
            msgspec.json.decode(body, type=_Shape)
            return msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            raise ClusterReadError(
                f"the answer to {verb} Lease {self._namespace}/{self._name} is not a Lease"
            ) from None


class AcquiredLease:
    """The Lease that this run holds, renewed by a thread until :meth:`release`."""

    def __init__(self, lease: Lease, written: Mapping[str, Any], now: float) -> None:
        client = lease.client
        self._lease = lease
        self._object = written
        self._renewed = client.monotonic()
        self._ahead = now - self._renewed
        self._lost: str | None = None
        self._trouble = ""
        self._end = threading.Event()
        # Connections and a place among the requests of its own: what else the run asks for cannot hold it up.
        self._client = client.beside(client.stop.sooner(math.inf, self._end))
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def explain_loss(self) -> str | None:
        """Return why the Lease is lost; None while it is held.

        It is lost when another run has acquired it (possible once it has expired), and when it was not renewed for
        two thirds of its duration, by our clock and whatever the renewing thread does: a third later another run may
        start.
        """
        if self._lost is None and self._seconds_left() <= 0:
            # Kept, since a renewal that comes after all would come too late.
            self._lost = f"the Lease was lost: it could not be renewed in time{self._trouble}"
        return self._lost

    def release(self) -> str | None:
        """Release the Lease; return None, or a warning if that failed (it then expires)."""
        lost = self.explain_loss()
        self._end.set()
        self._thread.join(_JOIN_TIMEOUT)
        if lost is not None:
            return f"{lost}: nothing was done after that"
        try:
            if self._write(self._lease.client.last_words, None, _JOIN_TIMEOUT):
                return None
        except ClusterReadError as error:
            return f"the Lease could not be given back: {error}"
        return "the Lease was taken by another run before this one ended"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _now(self) -> float:
        """Return the server's time: its time at acquisition plus the elapsed time of our clock."""
        return self._client.monotonic() + self._ahead

    def _seconds_left(self) -> float:
        """Return the seconds until the Lease counts as lost."""
        return self._renewed + self._lease.duration * 2 / 3 - self._client.monotonic()

    def _keep(self) -> None:
        pause = self._lease.duration / 3
        while not self._end.wait(pause) and self.explain_loss() is None:
            try:
                self._renew()
            except ClusterReadError as error:
                self._trouble = f" ({error})"
                if is_final(error):
                    self._lost = f"the Lease was lost: {error}"
                pause = max(0.0, min(_RETRY, self._seconds_left()))
            except Exception as error:  # noqa: BLE001  (whatever it is, the Lease is not renewed any more)
                self._lost = f"the Lease was lost: {type(error).__name__} while it was renewed"
            else:
                pause = self._lease.duration / 3

    def _renew(self) -> None:
        started = self._client.monotonic()
        if not self._write(self._client, self._lease.identity, self._seconds_left()):
            self._lost = "the Lease was lost to another run"
        elif self._seconds_left() > 0:
            self._renewed = started

    def _write(self, client: Client, holder: str | None, seconds: float) -> bool:
        """Write the Lease if it is still ours; return whether it was written.

        Raises:
            ClusterReadError: it could not be read or written.
        """
        for _ in range(3):
            written = self._lease.write(
                client, self._object, holder=holder, now=self._now(), seconds=seconds
            )
            if written is not None:
                self._object = written
                return True
            # Its labels were changed, or the answer to a write of our own was lost: its holder decides.
            self._object, _ = self._lease.read(client, seconds)
            if holder_of(self._object) != self._lease.identity:
                return False
        raise ClusterReadError("it changes faster than it can be written")


class _Shape(msgspec.Struct):
    class Meta(msgspec.Struct, rename="camel"):
        resource_version: str

    class Spec(msgspec.Struct, rename="camel"):
        holder_identity: str | None = None
        renew_time: str | None = None
        lease_duration_seconds: int | None = None
        lease_transitions: int | None = None

    metadata: Meta
    spec: Spec | None = None


@dataclass(frozen=True, slots=True)
class _Watched:
    """A Lease under observation: its version, and when its holder counts as dead without a change."""

    version: str
    until: float
    """Of the client's clock."""


def is_final(error: ClusterReadError) -> bool:
    """Return whether a renewal is refused permanently: it is forbidden, or the API server answers that there is no Lease."""
    return isinstance(error, ForbiddenError | NotServedError)


def holder_of(lease: Mapping[str, Any]) -> str:
    """Return the identity of the Lease's holder; empty if it is free."""
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _version(lease: Mapping[str, Any]) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _duration(lease: Mapping[str, Any]) -> float:
    return float((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)


def _since(lease: Mapping[str, Any]) -> float:
    return unix_seconds((lease.get("spec") or {}).get("acquireTime"))


def _expiry(lease: Mapping[str, Any], now: float) -> float:
    """Return when the Lease expires according to its holder (Unix seconds).

    A renewal time further in the future than the Lease's duration comes from a broken clock and is ignored: it would
    block all runs until that time.
    """
    renewed = unix_seconds((lease.get("spec") or {}).get("renewTime"))
    lasts = _duration(lease)
    return now if renewed > now + lasts else renewed + lasts
