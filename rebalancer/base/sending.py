"""Send one HTTP request to a URL of the user in bounded time: metrics, notices, hooks, queries.

Requests to the API server are sent elsewhere (``kube``). The URL may contain a secret (webhooks do), so messages name its
scheme and host only.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from rebalancer import __version__
from rebalancer.base.stop import Abandonable, Stop

T = TypeVar("T")

TIMEOUT = 5.0
"""Seconds for one request, its look-up of the host's address and its answer included."""
_AT_THE_END = 1.0
"""Seconds that remain for it where the run had to end."""
_MAX_REFUSAL = 1 << 14


class SendingError(Exception):
    """The request was not sent, or was refused; the message contains no secret."""


def check_url(url: str) -> str:
    """Return ``url`` if it is valid.

    Raises:
        SendingError: the URL is not http or https.
    """
    if _parts(url) is None:
        raise SendingError("is no address; write http://HOST[:PORT][/PATH] or https://...")
    return url


def place(url: str) -> str:
    """Return the scheme and host of ``url``, the parts that are not secret."""
    parts = _parts(url)
    return "an address that is none" if parts is None else f"{parts.scheme}://{_host(parts)}"


def send(method: str, url: str, body: bytes, headers: Mapping[str, str], stop: Stop) -> None:
    """Send one request; wait :data:`TIMEOUT` at most, and one second at most after ``stop``.

    Raises:
        SendingError: the request was not sent, was refused, or timed out.
    """
    later = stop.later(_AT_THE_END)
    if (
        why := _limit_time(lambda: attempt(method, url, body, headers), later, TIMEOUT)
    ) is not None:
        raise SendingError(f"{place(url)} {why}")


def attempt(
    method: str, url: str, body: bytes, headers: Mapping[str, str], seconds: float = TIMEOUT
) -> str | None:
    """Send one request; return None, or why it failed. ``seconds``: time-out of the socket."""
    answer = _answer(method, url, body, headers, seconds=seconds, most=1)
    if isinstance(answer, str):
        return answer
    return None if answer.accepted else answer.words


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response of an HTTP server."""

    status: int
    body: bytes

    @property
    def accepted(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """The status as text."""
        return f"answered {self.status} {http.client.responses.get(self.status, '')}".rstrip()


def exchange(
    method: str,
    url: str,
    headers: Mapping[str, str],
    stop: Stop,
    *,
    seconds: float,
    most: int,
    context: ssl.SSLContext | None = None,
    proxied: bool = True,
) -> HttpAnswer:
    """Send a request without a body and return the response, with any status. Redirects are not followed.

    ``seconds``: the longest wait; ``stop`` ends it at once. ``most``: the maximum size of the response in bytes.
    ``context``: the TLS context, the system's certificate authorities if None. ``proxied``: use the proxy that the
    environment names.

    Raises:
        SendingError: no response in time, or one that is too large.
    """
    answer = _limit_time(
        lambda: _answer(
            method,
            url,
            None,
            headers,
            seconds=seconds,
            most=most + 1,
            context=context,
            proxied=proxied,
        ),
        stop,
        seconds,
    )
    if isinstance(answer, HttpAnswer) and len(answer.body) > most:
        answer = f"answered more than {most} bytes"
    if isinstance(answer, str):
        raise SendingError(f"{place(url)} {answer}")
    return answer


def _limit_time(act: Callable[[], T], stop: Stop, seconds: float) -> T | str:
    """Return the result of ``act``, or the reason as text if ``stop`` or the time limit comes first."""
    # Looking up a host's address has no timeout of its own, and a slow answer renews that of the socket.
    task = Abandonable(act, name="sending")
    stop.sooner(seconds, task.done).wait(seconds)
    return task.result() if task.done.is_set() else "gave no answer in time"


def _answer(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    seconds: float,
    most: int,
    context: ssl.SSLContext | None = None,
    proxied: bool = True,
) -> HttpAnswer | str:
    """Send a request; return the response, with at most ``most`` bytes, or the error as text."""
    try:
        request = _request(method, url, body, headers)
        with _opener(context, proxied=proxied).open(request, timeout=seconds) as answer:
            return HttpAnswer(answer.status, answer.read(most))
    except urllib.error.HTTPError as error:
        with error:
            return HttpAnswer(error.code, error.read(min(most, _MAX_REFUSAL)))
    except urllib.error.URLError as error:
        return f"could not be reached ({_words(error.reason)})"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"could not be reached ({_words(error)})"


def _words(error: object) -> str:
    # Texts of other exceptions may repeat the address.
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    text = error.strerror if isinstance(error, OSError) else None
    return text or type(error).__name__


def _opener(
    context: ssl.SSLContext | None, *, proxied: bool = True
) -> urllib.request.OpenerDirector:
    """Return an HTTP client that uses the environment's proxy and follows no redirect, which may lead anywhere."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(None if proxied else {}),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _request(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str]
) -> urllib.request.Request:
    parts = _parts(url)
    if parts is None:
        raise ValueError("no address")
    plain = urlunsplit(parts._replace(netloc=_host(parts), fragment=""))
    all_headers = {"User-Agent": f"kube-rebalancer/{__version__}", **headers}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        token = base64.b64encode(pair.encode()).decode()
        all_headers["Authorization"] = f"Basic {token}"
    return urllib.request.Request(plain, body, all_headers, method=method)  # noqa: S310  # http(s) only


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]
