"""A proxy before the API server that refuses watches and lists as a test says, and cuts watches off."""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import urllib3
import yaml

_HOP = {"connection", "transfer-encoding", "content-length", "host"}


class FaultProxy:
    """Passes all requests on; ``watches`` and ``lists`` are the statuses that refuse these, or None."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        """``kubeconfig``: with a token; one that leads through the proxy is written into ``folder``."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.target = cluster["server"]
        self.pool = urllib3.PoolManager(
            ca_certs=cluster["certificate-authority"], maxsize=64, block=False
        )
        self.watches: int | None = None
        self.lists: int | None = None
        self.refused = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self})
        )
        self._http.daemon_threads = True
        port = self._http.server_address[1]
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        self.kubeconfig = folder / "through-the-proxy"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    @contextlib.contextmanager
    def passing(self):
        """Pass requests on within the block."""
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self.cut()
            self._http.server_close()

    def cut(self) -> None:
        """Cut all watches off."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def refuse(self, method: str, path: str) -> int | None:
        """Return the status that refuses a request; None to pass it on."""
        if method != "GET" or "?" not in path or "/version" in path:
            return None
        status = self.watches if "watch=1" in path else self.lists
        self.refused += status is not None
        return status

    @contextlib.contextmanager
    def watching(self, connection: socket.socket):
        """Have :meth:`cut` cut this connection off within the block."""
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (status := self.proxy.refuse(self.command, self.path)) is not None:
            self._refuse(status)
            return
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        answer = self.proxy.pool.request(
            self.command,
            self.proxy.target + self.path,
            body=body or None,
            headers=sent,
            preload_content=False,
            decode_content=False,
            retries=False,
        )
        try:
            with self.proxy.watching(self.connection), contextlib.suppress(OSError):
                self._pass_on(answer)
        finally:
            answer.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  (names of the base class)

    def _refuse(self, status: int) -> None:
        reason = "Expired" if status == 410 else ""
        text = {"kind": "Status", "apiVersion": "v1", "code": status, "reason": reason}
        body = json.dumps({**text, "message": "refused by the proxy"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, answer: urllib3.BaseHTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in _HOP and name.lower() not in ("date", "server"):
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in answer.stream(1 << 16, decode_content=False):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""
