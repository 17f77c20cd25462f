"""The cloud as the product sees it: a proxy before moto that fails as a script says, and logs each call."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.aws.cloud import called
from tests.storm.machines.scenario import LAST_LOOK, CloudFault
from tests.support.serving import serving

LATE = 5.0
"""Seconds by which a late call is forwarded late."""
_THROTTLED = (
    b"<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code>"
    b"<Message>Rate exceeded</Message></Error></ErrorResponse>"
)
_FAILED = (
    b"<ErrorResponse><Error><Type>Receiver</Type><Code>InternalFailure</Code>"
    b"<Message>made by the storm</Message></Error></ErrorResponse>"
)
_HOP = {"connection", "transfer-encoding", "content-length", "date", "server"}


@dataclass
class Call:
    """One call as the cloud's log has it."""

    at: float
    """Unix seconds at which it had wholly arrived."""
    name: str
    """``service:Action``, in IAM's words."""
    number: int
    """Among those of its name, from 1; last looks at a group are counted apart."""
    form: Mapping[str, str]
    fault: CloudFault | None
    status: int = 0
    """What the cloud answered; 0 if it was not asked."""
    by: str = ""
    """Which process made it: each has a proxy of its own."""

    @property
    def done(self) -> bool:
        """Whether the cloud carried it out."""
        return 200 <= self.status < 300


class CloudScript:
    """Says of each call, as it comes, which fault hits it. Thread-safe."""

    def __init__(self, faults: Sequence[CloudFault] = ()) -> None:
        self._faults = tuple(faults)
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def next(self, name: str) -> tuple[int, CloudFault | None]:
        """Count a call; return its number, and what hits it."""
        with self._lock:
            self._seen[name] += 1
            number = self._seen[name]
        hit = (one for one in self._faults if one.call == name and one.hits(number))
        return number, next(hit, None)


class CloudProxy:
    """Listens on loopback, and passes calls on to moto; :attr:`url` is where."""

    def __init__(
        self, upstream: str, script: CloudScript, hook: Callable[[Call], None], by: str
    ) -> None:
        self.calls: list[Call] = []
        self._by = by
        self._upstream = upstream.removeprefix("http://")
        self._script, self._hook = script, hook
        self._answers: dict[tuple[str, bytes], tuple[int, list[tuple[str, str]], bytes]] = {}
        """The first answer to each read: what a stale replica gives afterwards."""
        self.url = ""

    def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """Return the answer; None: the connection ends without one."""
        environ = {f"HTTP_{key.upper().replace('-', '_')}": value for key, value in headers.items()}
        name, form = called({**environ, "PATH_INFO": path}, body)
        if name is None:
            return self._forward(method, path, headers, body)
        is_last_look = "AutoScalingGroupNames.member.1" in form
        number, fault = self._script.next(LAST_LOOK if is_last_look else name)
        call = Call(time.time(), name, number, form, fault, by=self._by)
        self.calls.append(call)
        self._hook(call)
        return self._play(call, (method, path, headers, body))

    def _play(
        self, call: Call, request: tuple[str, str, Mapping[str, str], bytes]
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        match call.fault.name if call.fault else "":
            case "throttled":
                return 400, [("Content-Type", "text/xml")], _THROTTLED
            case "error before commit":
                return 503, [("Content-Type", "text/xml")], _FAILED
            case "late":
                time.sleep(LATE)
            case "stale" if (call.name, _without_signature(request)) in self._answers:
                return self._answers[call.name, _without_signature(request)]
            case _:
                pass
        status, given, content = self._forward(*request)
        call.status = status
        if "Describe" in call.name:
            self._answers.setdefault(
                (call.name, _without_signature(request)), (status, given, content)
            )
        if call.fault and call.fault.name == "lost reply":
            return None
        if call.fault and call.fault.name == "half a page":
            content = content[: len(content) // 2]
        return status, given, content

    def _forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self._upstream, timeout=60)
        try:
            kept = {key: value for key, value in headers.items() if key.lower() != "connection"}
            connection.request(method, path, body, kept)
            response = connection.getresponse()
            content = response.read()
            given = [(k, v) for k, v in response.getheaders() if k.lower() not in _HOP]
            return response.status, given, content
        finally:
            connection.close()


def _without_signature(request: tuple[str, str, Mapping[str, str], bytes]) -> bytes:
    method, path, _, body = request
    return f"{method} {path} ".encode() + body


@contextmanager
def before(
    upstream: str, script: CloudScript, hook: Callable[[Call], None], by: str = ""
) -> Iterator[CloudProxy]:
    """Yield a proxy before the cloud at ``upstream``, for the process ``by``."""
    proxy = CloudProxy(upstream, script, hook, by)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = proxy.handle(self.command, self.path, dict(self.headers.items()), body)
            if answer is None:
                self.close_connection = True
                return
            status, headers, content = answer
            with suppress(OSError):
                self.send_response(status)
                for key, value in headers:
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = _any  # noqa: N815  # the names that http.server asks for

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as proxy.url:
        yield proxy
