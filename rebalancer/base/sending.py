"""One HTTP request to an address of the user's that is no API server, in bounded time: metrics, notices, hooks, queries.

The address may be a secret (webhooks are), so that messages name its scheme and host only.
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
from rebalancer.base.abandonable import Abandonable
from rebalancer.base.stop import Stop

T = TypeVar("T")

TIMEOUT = 5.0
"""Seconds for one request, its look-up of the host's address and its answer included."""
_AT_THE_END = 1.0
"""Seconds that remain for it where the run had to end."""
_MAX_REFUSAL = 1 << 14


class SendingError(Exception):
    """It was not sent, or refused; the message holds no secret."""


def check_url(url: str) -> str:
    """Return ``url``.

    Raises:
        SendingError: it is no http or https address.
    """
    if _parts(url) is None:
        raise SendingError("is no address; write http://HOST[:PORT][/PATH] or https://...")
    return url


def place(url: str) -> str:
    """Return the scheme and host of ``url``, which are no secret."""
    parts = _parts(url)
    return "an address that is none" if parts is None else f"{parts.scheme}://{_host(parts)}"


def send(method: str, url: str, body: bytes, headers: Mapping[str, str], stop: Stop) -> None:
    """Send one request; wait at most :data:`TIMEOUT`, and a second once ``stop`` has come.

    Raises:
        SendingError: see there.
    """
    later = stop.later(_AT_THE_END)
    if (
        why := _limit_time(lambda: attempt(method, url, body, headers), later, TIMEOUT)
    ) is not None:
        raise SendingError(f"{place(url)} {why}")


def attempt(
    method: str, url: str, body: bytes, headers: Mapping[str, str], seconds: float = TIMEOUT
) -> str | None:
    """Send one request and wait; return why it failed, or None. ``seconds``: longest wait for the socket."""
    answer = _answer(method, url, body, headers, seconds=seconds, most=1)
    if isinstance(answer, str):
        return answer
    return None if answer.accepted else answer.words


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What was answered."""

    status: int
    body: bytes

    @property
    def accepted(self) -> bool:
        """Whether it is of the kind 2xx."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """The status in words."""
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
    """Return what a request without a body is answered, whatever its status; redirections are not followed.

    ``seconds``: the longest wait, which ``stop`` ends at once; ``most``: bytes of the answer; ``context``: whom
    to trust, the system's authorities without it; ``proxied``: over the proxy of the environment, if it names one.

    Raises:
        SendingError: no answer in time, or a longer one.
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
    """Return what ``act`` returns, unless ``stop`` or the time comes first: then it says so."""
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
    """Return the answer with at most ``most`` bytes of it, or why there is none."""
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
    """Return what speaks HTTP, over the proxy of the environment, and follows no redirection: it may lead anywhere."""
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
