"""The Lease of a serving process: which of several replicas leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rebalancer.base.environment import Environment
from rebalancer.base.errors import ClusterReadError
from rebalancer.base.output import say
from rebalancer.base.stop import Stop
from rebalancer.kube.client import Client
from rebalancer.kube.lease import AcquiredLease, Lease, LeaseTaken, is_final
from rebalancer.run.identity import identity
from rebalancer.run.source import release
from rebalancer.serve.health import Health

LEASE_SECONDS = 15
"""Another replica takes the Lease when it was not renewed for so long. A single run's lasts longer, since no other
process waits for it."""
_TRY_AGAIN = 2.0
"""Seconds after the Lease could not be read or written."""

Lost = Callable[[], str | None]
"""Returns why this process leads no longer, None while it does."""


class Leading:
    """Waits for the Lease, and releases it."""

    def __init__(
        self,
        lease: tuple[str, str] | None,
        environment: Environment,
        stop: Stop,
        health: Health,
        follows: Callable[[], bool],
    ) -> None:
        """``lease``: (namespace, name); None: this process leads alone.

        ``follows`` returns whether the process has read the cluster before.
        """
        self._lease, self._environment, self._stop = lease, environment, stop
        self._health, self._follows = health, follows
        self._identity = identity(environment)

    @contextmanager
    def term(self, client: Client, waiting: Callable[[], None]) -> Iterator[Lost | None]:
        """Yield a function that says why the term is over; None to try the Lease again, or after a signal.

        ``waiting`` is called while another replica leads.

        Raises:
            ClusterReadError: the Lease is refused or does not exist, and this process has not led yet.
        """
        if self._lease is None:
            yield _never
            return
        acquired = self._acquire(client, *self._lease, waiting)
        if acquired is None:
            yield None
            return
        try:
            yield acquired.explain_loss
        finally:
            self._health.leads = False
            release(self._environment, acquired)

    def _acquire(
        self, client: Client, namespace: str, name: str, waiting: Callable[[], None]
    ) -> AcquiredLease | None:
        health, err, stands_by = self._health, self._environment.err, False

        def note_look() -> None:
            nonlocal stands_by
            health.beat()
            if not stands_by:
                stands_by = health.stands_by = True
                say(err, "rebalancer: another run has the Lease: standing by")
            waiting()

        lease = Lease(
            client,
            namespace,
            name,
            identity=self._identity,
            duration=LEASE_SECONDS,
            clock=self._environment.clock.unix,
        )
        # What asks for it again and again, since the server fails, does not hang either.
        health.beat()
        try:
            taken = lease.acquire(note_look)
        except ClusterReadError as error:
            if is_final(error) and not self._follows():
                raise
            say(err, f"rebalancer: {error}; it is tried again")
            self._stop.wait(_TRY_AGAIN)
            return None
        finally:
            health.stands_by = False
        health.beat()
        return None if isinstance(taken, LeaseTaken) else taken


def _never() -> None:
    """Return None: without a Lease none can be lost."""
