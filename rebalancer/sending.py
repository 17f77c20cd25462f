"""One HTTP request to an address of the user's that is no API server, in bounded time: metrics, notices, hooks.

The address may be a secret (webhooks are), so that messages name its scheme and host only.
"""

from __future__ import annotations

import base64
import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from rebalancer import __version__
from rebalancer.stop import Stop

LONGEST = 5.0
"""Seconds for one request, its look-up of the host's address and its answer included."""
_AT_THE_END = 1.0
"""Seconds that remain for it where the run had to end."""


class SendingError(Exception):
    """It was not sent, or refused; the message holds no secret."""


def checked(url: str) -> str:
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
    """Send one request; wait at most :data:`LONGEST`, and a second once ``stop`` has come.

    Raises:
        SendingError: see there.
    """
    failed: list[str | None] = ["gave no answer in time"]
    done = threading.Event()

    def sending() -> None:
        failed[0] = attempt(method, url, body, headers)
        done.set()

    # Looking up a host's address has no timeout of its own, and a slow answer renews that of the socket.
    threading.Thread(target=sending, name="sending", daemon=True).start()
    stop.later(_AT_THE_END).sooner(LONGEST, done).wait(LONGEST)
    if (why := failed[0]) is not None:
        raise SendingError(f"{place(url)} {why}")


def attempt(
    method: str, url: str, body: bytes, headers: Mapping[str, str], seconds: float = LONGEST
) -> str | None:
    """Send one request and wait; return why it failed, or None. ``seconds``: longest wait for the socket."""
    try:
        request = _request(method, url, body, headers)
        with _opener().open(request, timeout=seconds) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        with error:
            return f"answered {error.code} {http.client.responses.get(error.code, '')}".rstrip()
    except urllib.error.URLError as error:
        return f"could not be reached ({_words(error.reason)})"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"could not be reached ({_words(error)})"
    return None


def _words(error: object) -> str:
    # Texts of other exceptions may repeat the address.
    text = error.strerror if isinstance(error, OSError) else None
    return text or type(error).__name__


def _opener() -> urllib.request.OpenerDirector:
    """Return what speaks HTTP, over the proxy of the environment, and follows no redirection: it may lead anywhere."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _request(
    method: str, url: str, body: bytes, headers: Mapping[str, str]
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
