"""The health of a serving process, and the result of its last run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict
from urllib.parse import urlsplit

from rebalancer.base.errors import ExitCode, PolicyError, RebalancerError
from rebalancer.base.stop import Clock

if TYPE_CHECKING:
    from rebalancer.kube.cache import ClusterCache
    from rebalancer.plan.plan import Totals
    from rebalancer.report.metrics import Metric, Values
    from rebalancer.report.model import RunReport
    from rebalancer.run.memory.document import Document
    from rebalancer.serve.interruptions import Interruptions
    from rebalancer.serve.page import LivePage


TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
_TIMEOUT = 10.0
"""Seconds of silence allowed to a client that sends its request, or receives the answer."""
_MAX_CONNECTIONS = 16
"""Clients; of more, the one that came first is sent away, so that no crowd of slow ones keeps a probe from its answer."""


class Answer(NamedTuple):
    """The response for a path."""

    status: int
    body: bytes
    content_type: str = TEXT


Paths = Mapping[str, Callable[[], Answer]]


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; without a host, all addresses.

    Raises:
        ValueError: the text has another form.
    """
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        port = None
    if port is None or parts.username or parts.path or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address; write HOST:PORT, or :PORT for all addresses")
    return parts.hostname or "", port


_FOR_ALL_HOSTS = ("/healthz", "/readyz")
"""Paths that name nothing of the cluster."""


def is_own_host(text: str, hosts: Collection[str]) -> bool:
    """Return whether a Host header names this process: an address, a name that only a cluster knows, or one of ``hosts``.

    This prevents DNS rebinding: a foreign web page lets its own host name resolve to the address of a port-forward,
    and the browser then sends requests with that foreign name.
    """
    try:
        name = (urlsplit(f"//{text}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if name in {host.lower() for host in hosts} or "." not in name:
        # Without a dot it is localhost, an IPv6 address or a Service.
        return bool(name)
    if name.endswith((".svc", ".cluster.local", ".localhost")):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@contextmanager
def answer_requests(
    address: tuple[str, int],
    paths: Paths,
    hosts: Collection[str] = (),
) -> Iterator[int]:
    """Serve GET and HEAD for these paths, 404 for others; yield the port. Without a host, on all addresses.

    ``hosts``: names under which people reach it, see :func:`is_own_host`; others get 421, but for health.

    Raises:
        PolicyError: the address cannot be used.
    """
    host, port = address
    try:
        server = _server_of(host)(address, _handler(paths, hosts))
    except OSError as error:
        raise PolicyError([f"--listen {host}:{port}: {error.strerror or error}"]) from None
    thread = threading.Thread(target=server.serve_forever, name="endpoints", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingTCPServer):
    # Not the HTTP server of the library: that one asks DNS for its own name before it answers.
    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = _MAX_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}
        """Connections that are being answered, in the order in which they came."""
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        oldest = None
        with self._lock:
            self._open[request] = None
            if len(self._open) > _MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early, such as a probe with a time-out."""


def _server_of(host: str) -> type[_Server]:
    everywhere = not host and socket.has_dualstack_ipv6()

    class Server(_Server):
        address_family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            if everywhere:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

    return Server


def _nothing() -> Answer:
    return Answer(404, b"not found\n")


_OTHER_HOST = Answer(421, b"not answered under this name; --page-host allows it\n")


def _handler(paths: Paths, hosts: Collection[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "kube-rebalancer", ""
        timeout: ClassVar[float] = _TIMEOUT

        def do_GET(self) -> None:  # the name is the library's
            path = self.path.partition("?")[0]
            own = is_own_host(self.headers.get("Host", ""), hosts)
            known = own or path in _FOR_ALL_HOSTS
            answer = paths.get(path, _nothing)() if known else _OTHER_HOST
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815  # the name is the library's

        def log_message(self, *_: object) -> None:
            """Log no requests: probes come every few seconds."""

    return Handler


class _State(TypedDict):
    stands_by: bool
    troubles: tuple[str, ...]


MAX_SILENCE = 300.0
"""Seconds without news from the API server after which the cache is too old: bookmarks arrive once a minute."""
_SPARE = 120.0
"""Seconds beyond its deadline after which a run hangs."""


@dataclass(slots=True)
class Health:
    """The state of a serving process, for its probes, metrics and pages.

    The main thread writes it and never reads it; threads that answer requests read it.
    """

    clock: Clock
    deadline: float
    """The longest time of one run, in seconds."""
    keeps_report: bool = False
    page: LivePage | None = None
    """The content of the page of the last runs; None: there is no such page."""
    seen: float = field(init=False)
    """Time of the clock at which the main thread was seen at work last."""
    leads: bool = False
    """Whether it has the Lease, or needs none, and has read the cluster."""
    stands_by: bool = False
    """Whether it waits for the Lease of another, which it has read."""
    lease_flaw: str = ""
    """Why the Lease could not be had at the last attempt; empty if it could, or another has it."""
    policy_flaw: str = ""
    """Why the policy's files are not in force, but an earlier version; empty if they are."""
    cache: ClusterCache | None = None
    runs: int = 0
    """The number of runs that have ended."""
    failed: ExitCode | None = None
    """Exit code of the last run, if it has no report."""
    interruptions: Interruptions | None = None
    _values: Mapping[Metric, Values] = field(default_factory=dict)
    _counted: Totals | None = None
    """What all runs have done; replaced as a whole, while other threads read it."""
    _report: bytes | None = None

    def __post_init__(self) -> None:
        self.beat()

    def beat(self) -> None:
        """Record that the main thread is alive."""
        self.seen = self.clock.now()

    # -- what happens ------------------------------------------------------------------------------

    def note_report(self, report: RunReport, memory: Document | None, now: float) -> None:
        """Record a run that ended with a report at ``now`` (Unix seconds). ``memory``: the document before it."""
        from rebalancer.report.metrics import of_report  # noqa: PLC0415
        from rebalancer.run.memory.remember import summarize_memory  # noqa: PLC0415

        seen = None if memory is None else summarize_memory(memory, now)
        self._values, self.failed = of_report(report, seen, now), None
        from rebalancer.plan.plan import with_moves, with_run  # noqa: PLC0415

        moved = with_moves(self._totals(), report.tried)
        self._counted = with_run(moved, report.exit_code)
        if self.keeps_report:
            from rebalancer.report.as_json import as_json  # noqa: PLC0415

            self._report = "".join(as_json(report)).encode()
        if self.page is not None:
            self.page.keep(report, now, memory)

    def note_failure(self, error: RebalancerError, now: float) -> None:
        """Record a run that ``error`` has ended without a report at ``now`` (Unix seconds)."""
        from rebalancer.report.metrics import of_end  # noqa: PLC0415

        code = error.exit_code
        self._values, self.failed = of_end(int(code), now), code
        from rebalancer.plan.plan import with_run  # noqa: PLC0415

        self._counted = with_run(self._totals(), int(code))
        if self.page is not None:
            self.page.keep_failure(code, str(error), now)

    def end_term(self) -> None:
        """Record that this process no longer leads: another one reports the cluster's counts now, or none does.

        The end of its last run is kept: if no process leads, it shows since when.
        """
        from rebalancer.report.metrics import LAST_RUN  # noqa: PLC0415
        from rebalancer.serve.page import Outlook  # noqa: PLC0415

        self.leads = False
        # The next leader reads the files; here nothing would say that they are mended.
        self.policy_flaw = ""
        self._values = {of: values for of, values in self._values.items() if of is LAST_RUN}
        if self.page is not None:
            self.page.outlook = Outlook()

    def _totals(self) -> Totals:
        from rebalancer.plan.plan import Totals  # noqa: PLC0415

        return self._counted or Totals()

    # -- what is answered --------------------------------------------------------------------------

    def paths(self) -> Paths:
        """Return path -> function that answers it."""
        paths = {"/healthz": self._health, "/readyz": self._readiness, "/metrics": self._metrics}
        if self.keeps_report:
            paths["/report"] = self._last_report
        if (page := self.page) is not None:
            paths["/"] = lambda: Answer(200, page.last_page(**self._state()), HTML)
            paths["/state"] = lambda: Answer(200, page.state(**self._state()), JSON)
        return paths

    def problem(self) -> str | None:
        """Return why the process should be restarted; None if it is healthy."""
        still = self.clock.now() - self.seen
        if still > self.deadline + _SPARE:
            return f"nothing was done for {still:.0f} s"
        silent = self._silence()
        if silent > MAX_SILENCE:
            return f"the API server has not reported changes for {silent:.0f} s"
        return None if self.interruptions is None else self.interruptions.problem()

    def _silence(self) -> float:
        cache = self.cache
        return 0.0 if cache is None else cache.silent_for()

    def _state(self) -> _State:
        flaws = (self.lease_flaw, self.policy_flaw, self._unheard())
        return {"stands_by": self.stands_by, "troubles": tuple(filter(None, flaws))}

    def _unheard(self) -> str:
        """Return which changes of the cluster are not received; empty if all are."""
        return "" if self.cache is None else self.cache.describe_troubles()

    def _with_troubles(self, text: str) -> bytes:
        """Return ``text`` with what is not received now: the process tries again, and a restart would not help."""
        troubles = self._unheard()
        return f"{text}, but {troubles}\n".encode() if troubles else f"{text}\n".encode()

    def _health(self) -> Answer:
        problem = self.problem()
        if problem is None:
            return Answer(200, self._with_troubles("ok"))
        return Answer(503, f"{problem}\n".encode())

    def _readiness(self) -> Answer:
        if self.leads:
            return Answer(200, self._with_troubles("leads"))
        if self.stands_by:
            return Answer(200, b"stands by\n")
        why = f": {self.lease_flaw}" if self.lease_flaw else ""
        return Answer(503, f"has neither read the cluster nor the Lease{why}\n".encode())

    def _metrics(self) -> Answer:
        from prometheus_client import generate_latest  # noqa: PLC0415
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4  # noqa: PLC0415

        from rebalancer.report.metrics import (  # noqa: PLC0415
            of_serving,
            of_signals,
            of_totals,
            registry,
        )

        refused = 0 if self.cache is None else len(self.cache.troubles())
        values = {
            **self._values,
            **of_serving(
                leads=self.leads,
                silence=self._silence(),
                refused=refused,
                policy_invalid=bool(self.policy_flaw),
            ),
            **of_totals(self._totals()),
        }
        counts = None if self.interruptions is None else self.interruptions.counts()
        if counts is not None:
            values |= of_signals(counts)
        return Answer(200, generate_latest(registry(values)), CONTENT_TYPE_PLAIN_0_0_4)

    def _last_report(self) -> Answer:
        if self._report is None:
            return Answer(404, b"no run has ended yet\n")
        return Answer(200, self._report, JSON)
