"""An instance metadata service (IMDSv2) for tests, written from the user guide of EC2; no code of AWS is in it.

What it keeps of the guide: a token by PUT with a lifetime of 1 to 21600 s (400 beyond), which the answer repeats; 401
for a GET without a valid token, also of version 1; 404 where nothing stands; 403 for a PUT with X-Forwarded-For.
AWS's own amazon-ec2-metadata-mock (tests/e2e/instance_metadata.py) says which forms are right; it cannot lapse tokens by a
clock, break single paths, or count what it is asked for.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.serving import serving

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"
INSTANCE = "i-0123456789abcdef0"
IDENTITY = {"meta-data/instance-id": INSTANCE}


@dataclass
class Metadata:
    """What an instance can read of itself, each piece from its time on. Thread-safe."""

    now: Callable[[], float]
    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path below ``/latest/`` of every request."""
    tokens: dict[str, float] = field(default_factory=dict)
    """Token -> the time at which it ends."""
    status: int | None = None
    """Answered to everything, where it is set."""
    broken: dict[str, int] = field(default_factory=dict)
    """Path -> status answered there."""
    _said: dict[str, list[tuple[float, str | None]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _number: Iterator[int] = field(default_factory=itertools.count)

    def say(self, path: str, text: str | None, at: float = 0.0) -> None:
        """Let ``text`` stand under ``path`` from the time ``at`` on; None: nothing stands there then."""
        with self._lock:
            self._said.setdefault(path, []).append((at, text))

    def forget_tokens(self) -> None:
        """As after a stop and a start of the instance."""
        with self._lock:
            self.tokens.clear()

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
        """Return status, body and the lifetime that a new token's answer repeats."""
        with self._lock:
            self.asked.append((method, path))
            if self.status is not None:
                return self.status, "", ""
            if method == "PUT":
                return self._token(path, headers)
            if self.tokens.get(headers.get(TOKEN.lower(), ""), 0.0) <= self.now():
                return 401, "", ""
            if path in self.broken:
                return self.broken[path], "", ""
            standing = [text for at, text in self._said.get(path, ()) if at <= self.now()]
            if not standing or standing[-1] is None:
                return 404, "", ""
            return 200, standing[-1], ""

    def _token(self, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
        if path != "api/token":
            return 404, "", ""
        if "x-forwarded-for" in headers:
            return 403, "", ""
        lasts = headers.get(TTL.lower(), "")
        if not lasts.isdigit() or not 1 <= int(lasts) <= 21600:
            return 400, "", ""
        token = f"token-{next(self._number)}=="
        self.tokens[token] = self.now() + int(lasts)
        return 200, token, lasts


@contextmanager
def metadata_service(now: Callable[[], float]) -> Iterator[Metadata]:
    """Yield the metadata of an instance, which answers at its ``url``; ``now``: its clock, in seconds."""
    metadata = Metadata(now)
    for path, text in IDENTITY.items():
        metadata.say(path, text)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            path = self.path.removeprefix("/latest/")
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body, lasts = metadata.answer(self.command, path, headers)
            self.send_response(status)
            if lasts:
                self.send_header(TTL, lasts)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_PUT = _answer  # noqa: N815  # the names are the library's

        def log_message(self, *_):
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as metadata.url:
        yield metadata
