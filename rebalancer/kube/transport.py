"""Send one request to the API server over the library's connection pool, and classify its errors."""

from __future__ import annotations

import functools
import http.client
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.calls import Call, Calls, Watched, making
from rebalancer.kube.credentials import Credentials
from rebalancer.kube.failures import TransportError

if TYPE_CHECKING:
    from urllib3.response import BaseHTTPResponse

_PIECE = 1 << 18


@dataclass(frozen=True, slots=True)
class FollowLimits:
    """Limits of watches, and of the lists after which they begin anew; times in seconds."""

    stream: float = 300.0
    """Longest time of one stream."""
    first_wait: float = 0.25
    """Before the next stream; doubles after each failure ..."""
    longest_wait: float = 8.0
    """... up to here."""
    refusals: int = 6
    """Number of refusals in a row that may pass by themselves: a quarter of a minute with the waits between them."""
    first_relist: float = 1.0
    """Before a resource is listed again, after its watch has ended or a list has failed; doubles ..."""
    longest_relist: float = 30.0
    """... up to here."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds, numbers of attempts and of concurrent requests."""

    in_flight: int = 8
    """Requests under way at once; watches do not count."""
    connect: float = 5.0
    read: float = 30.0
    """Longest silence while an answer is awaited or read."""
    deadline: float = 120.0
    """Seconds for one call with all its attempts."""
    first_answer: float = 15.0
    """Seconds for one call with all its attempts, as long as the server has not answered any request."""
    attempts: int = 6
    first_wait: float = 0.5
    """Pause before the second attempt, in seconds; it doubles with each attempt."""
    longest_wait: float = 15.0
    """Longest pause between attempts, in seconds. A longer Retry-After is shortened to it, and only once."""
    grace: float = 1.0
    """For the answer to a write that is under way when the run must end."""
    follow: FollowLimits = FollowLimits()
    compressed: bool = False
    """Whether to request compressed answers: less than a tenth of the bytes, a third more of the API server's CPU."""

    def within(self, seconds: float) -> Limits:
        """Return these limits with ``seconds`` for each call, also for the first."""
        return replace(
            self,
            connect=min(self.connect, seconds),
            read=seconds + 1.0,  # the end of the whole call comes first, and says more
            deadline=seconds,
            first_answer=seconds,
        )


class _Received:
    __slots__ = ()
    headers: Mapping[str, str]
    """Case-insensitive."""

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").split(";", 1)[0].strip().lower()

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before another attempt; None if the server does not say."""
        try:
            return max(0.0, float(self.headers.get("Retry-After", "")))
        except ValueError:
            return None

    @property
    def date(self) -> float | None:
        """The server's time in whole Unix seconds; None if the server does not say."""
        try:
            return parsedate_to_datetime(self.headers["Date"]).timestamp()
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Response(_Received):
    """A complete response, undecoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def close(self) -> None:
        """Do nothing: the response is complete. Only a :class:`Stream` has a connection to close."""


def _nothing() -> None:
    """Do nothing."""


class Stream(_Received):
    """A response that is read while it arrives; for one thread, except :meth:`interrupt`."""

    def __init__(self, transport: Transport, raw: BaseHTTPResponse, call: Call) -> None:
        self._transport, self._raw, self._call = transport, raw, call
        self.status = int(raw.status)
        self.headers: Mapping[str, str] = raw.headers
        self.at_end: Callable[[], None] = _nothing
        """Called when the exchange is over, however it ends."""

    def read(self) -> bytes:
        """Wait for data and return the available bytes; empty at the end.

        Raises:
            TransportError: silence for too long, the time of the call is over, or the connection broke.
        """
        with self._transport.translate(self._call):
            return bytes(self._raw.read1(_PIECE))

    def read_up_to(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end. Raises as :meth:`read`.

        A list arrives in as many chunks as it has items, and each ``read`` costs about as much as decoding an item.
        """
        with self._transport.translate(self._call):
            return bytes(self._raw.read(size))

    def end(self, *, complete: bool) -> None:
        """Return the connection to the pool if the response was read completely, else close it."""
        if not complete:
            self.close()
            return
        try:
            with self._transport.translate(self._call):
                self._raw.drain_conn()
            self._raw.release_conn()
        finally:
            self._end()

    def interrupt(self) -> None:
        """End a ``read`` that waits in another thread, as if the connection had broken."""
        self._call.cut("it was not needed any more")

    def close(self) -> None:
        """End the request and close its connection."""
        try:
            self._raw.close()
        finally:
            self._end()

    def _end(self) -> None:
        self._transport.note_end(self._call)
        at_end, self.at_end = self.at_end, _nothing
        at_end()


class Transport:
    """Sends requests without retries. Thread-safe."""

    def __init__(self, credentials: Credentials, limits: Limits, user_agent: str) -> None:
        self.server = credentials.server
        self._credentials = credentials
        self._limits = limits
        self._calls = Calls()
        config = credentials.configuration
        # Imported only when there is a cluster.
        import urllib3  # noqa: PLC0415
        from kubernetes.client import ApiClient  # noqa: PLC0415

        self._headers = urllib3.HTTPHeaderDict({"User-Agent": user_agent})
        for name, value in credentials.impersonated.headers():
            self._headers.add(name, value)
        # A pool's own method, for all pools: the one for proxies would join headers of one name.
        self._send = urllib3.PoolManager.urlopen
        self._errors = urllib3.exceptions
        self._timeout = urllib3.Timeout
        if not config.verify_ssl:
            # insecure-skip-tls-verify is the user's own word; no warning per request.
            urllib3.disable_warnings(self._errors.InsecureRequestWarning)
        # One connection for each request in flight, some for watches; the library would throw others away.
        size = limits.in_flight + 8
        config.connection_pool_maxsize = size
        try:
            self._pool: Any = ApiClient(config).rest_client.pool_manager
        except (self._errors.HTTPError, ValueError):
            # The library's message may have a password of the proxy's address in it.
            raise ClusterReadError(
                f"the proxy on the way to {credentials.server} cannot be used: proxy-url in the kubeconfig and HTTPS_PROXY"
                " have to begin with http:// or https://"
            ) from None
        self._pool.pool_classes_by_scheme = _make_pools()

    def open(
        self,
        method: str,
        target: str,
        call: Call,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str],
        read_seconds: float,
    ) -> Stream:
        """Send a request for ``target`` (path and query); return the response with its body unread.

        Raises:
            TransportError: no response, or one in an encoding that was not requested.
        """
        sent = self._headers.copy()
        sent.update(headers)
        raw: BaseHTTPResponse | None = None
        self._calls.begin(call)
        try:
            authorization = self._credentials.authorization(call)
            if authorization is not None:
                sent["Authorization"] = authorization
            with self.translate(call), making(call):
                raw = self._send(
                    self._pool,
                    method,
                    self.server + target,
                    body=body,
                    headers=sent,
                    preload_content=False,
                    decode_content="Accept-Encoding" in headers,
                    retries=False,
                    redirect=False,
                    timeout=self._timeout(connect=self._limits.connect, read=read_seconds),
                )
        except BaseException:
            if raw is not None:  # headers that were cut off look like headers that ended
                raw.close()
            self.note_end(call)
            raise
        stream = Stream(self, raw, call)
        encoding = raw.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", headers.get("Accept-Encoding", "identity")):
            stream.close()
            raise TransportError(
                f"{self.server} answers in an encoding that was not asked for ({encoding[:20]!r})",
                sent=True,
                final=True,
            )
        return stream

    def exchange(
        self,
        method: str,
        target: str,
        call: Call,
        *,
        body: bytes | None,
        headers: Mapping[str, str],
        read_seconds: float,
    ) -> Response:
        """Send a request and read the whole response. Raises as :meth:`open`."""
        stream = self.open(
            method, target, call, body=body, headers=headers, read_seconds=read_seconds
        )
        pieces = []
        complete = False
        try:
            while piece := stream.read():
                pieces.append(piece)
            complete = True
        finally:
            stream.end(complete=complete)
        return Response(stream.status, stream.headers, b"".join(pieces))

    def note_end(self, call: Call) -> None:
        """Record that a call is over."""
        self._calls.end(call)

    def close(self) -> None:
        """Close all idle connections."""
        self._pool.clear()

    def translate(self, call: Call) -> _Translated:
        """Return a context in which the pool's exceptions become TransportErrors."""
        return _Translated(self.server, self._errors, call)


@functools.cache
def _make_pools() -> dict[str, type[Any]]:
    """Return urllib3's connection pools, by scheme, with connections that a call can shut down."""
    from urllib3.connectionpool import (  # noqa: PLC0415
        HTTPConnectionPool,
        HTTPSConnectionPool,
    )

    return {
        scheme: type(
            pool.__name__,
            (pool,),
            {"ConnectionCls": type(pool.ConnectionCls.__name__, (Watched, pool.ConnectionCls), {})},
        )
        for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool))
    }


class _Translated:
    def __init__(self, server: str, errors: Any, call: Call) -> None:
        self._server, self._errors, self._call = server, errors, call

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        call = self._call
        if call.cut_off is not None and (error is None or isinstance(error, Exception)):
            # What the thread has seen of it is a connection that broke, or an answer that ended early.
            raise TransportError(
                f"{self._server} was given up: {call.cut_off}", sent=call.sent, final=call.stopped
            ) from None
        if isinstance(error, (self._errors.HTTPError, OSError)):
            raise _as_transport_error(error, self._server, self._errors) from None


def _as_transport_error(error: BaseException, server: str, errors: Any) -> TransportError:
    if isinstance(error, errors.SSLError):
        return _tls_failure(server, error)
    if isinstance(error, errors.ProxyError):
        return TransportError(
            f"the proxy on the way to {server} does not answer: check proxy-url in the kubeconfig,"
            f" HTTPS_PROXY and NO_PROXY",
            sent=False,
        )
    if isinstance(error, errors.NameResolutionError):
        return TransportError(
            f"{server} is unreachable: its name cannot be resolved: check the server address in the"
            f" kubeconfig, and the network",
            sent=False,
            final=_is_unknown_name(error),
        )
    if isinstance(error, (errors.NewConnectionError, errors.ConnectTimeoutError)):
        slow = not isinstance(error, errors.NewConnectionError)
        how = "no answer to a connection attempt" if slow else _os_reason(error)
        return TransportError(
            f"{server} is unreachable: {how}: check that it runs, its address, and the network",
            sent=False,
        )
    if isinstance(error, (errors.ReadTimeoutError, TimeoutError)):
        return TransportError(f"{server} fell silent: no data within the read time-out", sent=True)
    return TransportError(f"the connection to {server} broke: {_os_reason(error)}", sent=True)


def _is_unknown_name(error: BaseException) -> bool:
    """Return whether the host name does not exist, as opposed to an unreachable name server."""
    cause = error.__cause__ or error.__context__
    return isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME


def _tls_failure(server: str, error: BaseException) -> TransportError:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "match" in text:
        return TransportError(
            f"the TLS certificate of {server} is not trusted ({_tls_reason(text)}): check"
            f" certificate-authority and tls-server-name in the kubeconfig",
            sent=False,
            final=True,
        )
    if "WRONG_VERSION_NUMBER" in text or "record layer" in text:
        return TransportError(
            f"{server} does not speak TLS: is it http:// rather?", sent=False, final=True
        )
    if "EOF" in text:
        return TransportError(
            f"{server} closed the connection during the TLS handshake: is it starting, or is only a load balancer up?",
            sent=True,
        )
    return TransportError(
        f"TLS with {server} failed ({_tls_reason(text)}): check the client certificate and key",
        sent=True,
    )


def _tls_reason(text: str) -> str:
    return text.split("] ", 1)[-1].split(" (_ssl.c", 1)[0].strip(" ()'\"")


def _os_reason(error: BaseException) -> str:
    """Return the innermost error message, such as ``Connection refused``."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, socket.gaierror | OSError) and seen.strerror:
            return str(seen.strerror)
        if isinstance(seen, http.client.IncompleteRead):
            return "the connection ended before the answer was complete"
        seen = seen.__cause__ or seen.__context__
    return str(error).rsplit(": ", 1)[-1].strip("()'\" ") or type(error).__name__
