"""A server on loopback that answers by a script: what the API server says, and how it fails."""

from __future__ import annotations

import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from rebalancer.base.environment import SystemClock
from rebalancer.base.stop import Stop
from rebalancer.kube.calls import Call
from rebalancer.kube.client import Client
from rebalancer.kube.credentials import find_credentials
from rebalancer.kube.transport import Limits

VERSION = "99"
SECRET = "secret-token-of-a-test"


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    pairs: tuple[tuple[str, str], ...] = ()
    """The headers again, those of one name, too."""


@dataclass(frozen=True)
class Say:
    """One answer. ``body`` is sent as JSON unless it is bytes."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    after: float = 0.0
    """Seconds of silence first."""
    cut: int | None = None
    """Announce the whole body, send this many bytes, and hang up."""
    hang_up: bool = False
    """Close the connection without a word."""
    lines: tuple[Any, ...] | None = None
    """Sent as a stream of JSON lines instead of the body; a number is a pause in seconds."""
    torn: bool = False
    """The stream ends without its end mark."""

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Script = Callable[[Asked], Say]


class ScriptedServer:
    """Answers each path by what was prepared for it: answers in turn, the last one for ever."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        """Speak TLS if a certificate and its key are given."""
        self.date = 1795168800.0
        """What its clock says, which stands: 2026-11-20T10:00:00Z."""
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self._scripts: dict[tuple[str, str], Script] = {}
        self._lock = threading.Lock()
        self._now = 0
        self.fallback: Script = lambda asked: Say(status_body(404, f"{asked.path} not found"), 404)
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = _Quiet(("127.0.0.1", 0), handler)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}"

    def on(self, method: str, path: str, *answers: Say) -> None:
        """Prepare answers."""
        turns = iter(answers)
        last = answers[-1]
        self._scripts[method, path] = lambda _: next(turns, last)

    def handle(self, method: str, path: str, script: Script) -> None:
        """Prepare an answer that looks at the request."""
        self._scripts[method, path] = script

    def to(self, path: str, method: str = "GET") -> list[Asked]:
        """Return the requests for a path."""
        return [a for a in self.asked if (a.path, a.method) == (path, method)]

    def answer(self, asked: Asked) -> Say:
        with self._lock:
            self.asked.append(asked)
            script = self._scripts.get((asked.method, asked.path), self.fallback)
            return script(asked)

    def entered(self, by: int) -> None:
        with self._lock:
            self._now += by
            self.most_at_once = max(self.most_at_once, self._now)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that hang up are what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: ScriptedServer

    def _serve(self) -> None:
        url = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(size) if size else b""
        asked = Asked(
            self.command,
            url.path,
            dict(parse_qsl(url.query)),
            dict(self.headers),
            json.loads(text) if text else None,
            tuple(self.headers.items()),
        )
        self.owner.entered(1)
        try:
            answer = self.owner.answer(asked)
            time.sleep(answer.after)
        finally:
            # Before the answer: a client that has it may have sent the next request already.
            self.owner.entered(-1)
        try:
            self._say(answer)
        except OSError:
            self.close_connection = True  # the client gave up, which is what some tests are about

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  (names of the base class)

    def _say(self, answer: Say) -> None:
        if answer.hang_up:
            self._drop()
            return
        self.send_response(answer.status)
        headers = {"Content-Type": "application/json", **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        if answer.lines is not None:
            self._stream(answer)
            return
        body = answer.encoded()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if answer.cut is None else body[: answer.cut])
        if answer.cut is not None:
            self._drop()

    def _stream(self, answer: Say) -> None:
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in answer.lines or ():
            if isinstance(line, (int, float)):
                self.wfile.flush()
                time.sleep(line)
                continue
            text = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
            self.wfile.flush()
        if answer.torn:
            self._drop()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(self.owner.date if timestamp is None else timestamp)

    def _drop(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Say nothing."""


class Sleeps(Stop):
    """A stop on a clock whose time passes only while it is waited for; the waits are noted."""

    def __init__(self, deadline: float = math.inf) -> None:
        self.waits: list[float] = []
        self._waiting = threading.Lock()
        self._time = 1000.0
        super().__init__(self, deadline)

    def now(self) -> float:
        return self._time

    def wait(self, seconds: float) -> str | None:
        if self.reason() is None:
            self.sleep(seconds)
        return self.reason()

    def sleep(self, seconds: float) -> None:
        with self._waiting:
            self.waits.append(seconds)
            self._time += seconds

    def sooner(self, seconds: float, signalled: threading.Event) -> Stop:
        return _Child(self, super().sooner(seconds, signalled))


class _Child(Stop):
    """A stop whose waits are those of the first."""

    def __init__(self, first: Sleeps, stop: Stop) -> None:
        super().__init__(first, stop.deadline)
        self.add(stop.reason)
        self._first = first

    def wait(self, seconds: float) -> str | None:
        if self.reason() is None:
            self._first.sleep(min(seconds, self.seconds_left()))
        return self.reason()


HANGS = """
import pathlib, time
end = time.monotonic() + 600
while not pathlib.Path(__file__).with_name("over").exists() and time.monotonic() < end:
    time.sleep(0.1)
"""
"""A credential plugin that gives no answer; it ends when there is a file ``over`` beside it."""


def kubeconfig(folder: Path, server: str, **cluster: Any) -> Path:
    """Write a kubeconfig with a token and return its path."""
    path = folder / "config"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": {"token": SECRET}}],
                "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return path


def client_of(
    server: str,
    folder: Path,
    sleeps: Stop | None = None,
    *,
    cluster: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Client:
    """Return a client that tests of silence give shorter time-outs; ``sleeps`` is what ends it and its waits."""
    file = kubeconfig(folder, server, **(cluster or {}))
    stop = sleeps or Stop(SystemClock())
    call = Call(stop, math.inf)
    credentials = find_credentials(file=file, context=None, environ={}, call=call)
    kept = Limits(**{"connect": 60.0, "read": 60.0, "deadline": 20.0, **limits})
    return Client(credentials, limits=kept, stop=stop)


# -- what the API server says ----------------------------------------------------------------------


def status_body(code: int, message: str, **details: Any) -> dict[str, Any]:
    """Return a metav1.Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": details.pop("reason", ""),
        "code": code,
        **details,
    }


def list_body(items: list[Any], version: str = VERSION, go_on: str = "") -> dict[str, Any]:
    """Return a list of the API."""
    return {"metadata": {"resourceVersion": version, "continue": go_on}, "items": items}


def pod(name: str, node: str = "n1", namespace: str = "default", **metadata: Any) -> dict[str, Any]:
    """Return a running, ready pod."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": metadata.pop("version", "1"),
            "creationTimestamp": "2026-11-20T09:00:00Z",
            "labels": {"app": "web"},
            **metadata,
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "web:1"}]},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T09:00:05Z"}
            ],
        },
    }


def node(name: str) -> dict[str, Any]:
    """Return a ready node."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-20T09:59:30Z"}
            ],
            "nodeInfo": {"kubeletVersion": "v1.35.2"},
        },
    }


def empty_cluster(server: ScriptedServer) -> None:
    """Let the server answer every list with nothing, and say its version."""

    def script(asked: Asked) -> Say:
        if asked.path == "/version":
            return Say({"major": "1", "minor": "36+", "gitVersion": "v1.36.3-test.1"})
        return Say(list_body([]))

    server.fallback = script


REPLICA_SET = {
    "metadata": {
        "name": "web-1",
        "namespace": "default",
        "uid": "rs-1",
        "ownerReferences": [
            {"kind": "Deployment", "name": "web", "uid": "d-1", "controller": True}
        ],
    },
    "spec": {"replicas": 2},
}


def owned_pod(name: str, on: str = "n1") -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
    return pod(name, on, ownerReferences=[owner])
