"""The installed command as a process: its rights, its streams, its signals."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from tests.controlplane import ControlPlane, access, wait_until
from tests.storm.faults import LISTED
from tests.storm.schedule import SERVED
from tests.storm.witnesses import LEASE, MEMORY, OPS, Ran

_GROUPS = {
    "poddisruptionbudgets": "policy",
    "deployments": "apps",
    "statefulsets": "apps",
    "replicasets": "apps",
    "jobs": "batch",
    "storageclasses": "storage.k8s.io",
    "csinodes": "storage.k8s.io",
}
_LOOK = 0.2
_SEES = ["get", "list", "watch"]
_RULES: list[dict[str, list[str]]] = [
    *({"apiGroups": [_GROUPS.get(r, "")], "resources": [r], "verbs": _SEES} for r in LISTED),
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [LEASE],
        "verbs": ["get", "update"],
    },
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [MEMORY],
        "verbs": ["get", "update"],
    },
]


def grant(
    plane: ControlPlane, account: str, rules: Sequence[Mapping[str, list[str]]] = _RULES
) -> str:
    """Give a ServiceAccount these rights, as a rule those that a run needs by the documentation; return a token of it."""
    plane.apply(
        [
            access.service_account(account, namespace=OPS),
            access.cluster_role(account, [{**rule} for rule in rules]),
            access.cluster_role_binding(account, account, account, namespace=OPS),
        ]
    )
    asked = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    wait_until(lambda: access.is_allowed(plane.api, account, OPS, asked), 30, "the rights in force")
    token = plane.token_for_service_account(OPS, account, 86_400)
    client = plane.client(token)
    wait_until(lambda: access.is_known(client), 30, "the account known")
    client.close()
    return token


@dataclass(frozen=True)
class Command:
    """How the product is called."""

    policy: Path
    folder: Path
    """For what the processes write."""
    ca: Path
    source: Path | None = None
    """Where the packages are taken from, if not from where they are installed."""

    def start(
        self,
        port: int,
        token: str,
        user: str,
        identity: str,
        deadline: float,
        streams: str = "",
        *,
        serves: bool = False,
    ) -> "Process":
        """Start a run, or what ``serves``, through the proxy at this port; ``streams`` says what is wrong with its output."""
        kubeconfig = self.folder / f"{identity}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(port, self.ca, token)))
        arguments = [
            str(Path(sys.executable).with_name("rebalancer")),
            *(("serve", "--every=1h") if serves else ("run",)),
            "--yes",
            f"--kubeconfig={kubeconfig}",
            f"--policy={self.policy}",
            f"--lease={OPS}/{LEASE}",
            f"--memory={OPS}/{MEMORY}",
            f"--deadline={deadline:g}",
            "--output=json",
        ]
        environ = {**os.environ, "POD_NAME": identity}
        if self.source is not None:
            environ["PYTHONPATH"] = str(self.source)
        ends = deadline + SERVED if serves else deadline
        ran = Ran(user, identity, ends, time.time(), serves=serves)
        return Process(ran, arguments, environ, self.folder / identity, streams)


def _kubeconfig(port: int, ca: Path, token: str) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "storm",
        "clusters": [{"name": "storm", "cluster": cluster}],
        "users": [{"name": "storm", "user": {"token": token}}],
        "contexts": [{"name": "storm", "context": {"cluster": "storm", "user": "storm"}}],
    }


class Process:
    """One run of the product under way."""

    def __init__(
        self, ran: Ran, arguments: list[str], environ: Mapping[str, str], path: Path, streams: str
    ) -> None:
        self.ran = ran
        self._out, self._err = path.with_suffix(".out"), path.with_suffix(".err")
        self._reader: IO[bytes] | None = None
        self._out.touch()
        self._err.touch()
        full = Path("/dev/full")
        out: Any = (full if streams == "stdout full" else self._out).open("wb")
        err: Any = (full if streams == "stderr full" else self._err).open("wb")
        match streams:
            case "stdout closed":
                arguments = ["/bin/sh", "-c", f"exec {shlex.join(arguments)} >&-"]
            case "stderr closed":
                arguments = ["/bin/sh", "-c", f"exec {shlex.join(arguments)} 2>&-"]
            case "stderr gone":
                err = subprocess.PIPE
            case _:
                pass
        ran.reads_out = streams not in ("stdout full", "stdout closed")
        self._popen = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environ,
            cwd=path.parent,
        )
        self._reader = self._popen.stderr
        # Of its main thread: seconds on a processor, seconds in wait of one, in nanoseconds.
        self._schedule = Path(f"/proc/{self._popen.pid}/schedstat")
        self._end = threading.Thread(target=self._note_end, daemon=True)
        self._end.start()
        for stream in (out, err):
            if stream is not subprocess.PIPE:
                stream.close()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._popen.poll() is not None

    def _note_end(self) -> None:
        """Note when it ends, as it may be waited for only much later, and how long it waits for a processor."""
        while self.ran.ended == 0.0:
            with contextlib.suppress(OSError, IndexError):
                seconds = int(self._schedule.read_text().split()[1]) / 1e9
                self.ran.starved.append((time.time(), seconds))
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_LOOK)
                self.ran.ended = time.time()

    def leave(self) -> None:
        """Close the other end of its standard error."""
        if self._reader is not None:
            self._reader.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and note when."""
        if self.ended:
            return
        now = time.time()
        if number == signal.SIGTERM:
            self.ran.terms.append(now)
        if number == signal.SIGKILL:
            self.ran.killed = now
        self._popen.send_signal(number)

    def stop_for(self, seconds: float) -> None:
        """Stop it, and let it go on after so many seconds."""
        self.signal(signal.SIGSTOP)
        # Noted beforehand, so that it is not given up meanwhile.
        self.ran.continued = time.time() + seconds

        def go_on() -> None:
            self.ran.continued = time.time()
            self.signal(signal.SIGCONT)

        timer = threading.Timer(seconds, go_on)
        timer.daemon = True
        timer.start()

    def wait(self, longest: float) -> Ran:
        """Wait for its end; what does not end in time by far is killed, which is noted."""
        ran = self.ran
        while True:
            begun = max(ran.clock_started, ran.continued or 0.0)
            until = max(begun + ran.deadline + longest, (ran.continued or 0.0) + longest)
            try:
                ran.code = self._popen.wait(max(0.1, min(1.0, until - time.time())))
                break
            except subprocess.TimeoutExpired:
                if time.time() >= until:
                    self._popen.kill()
                    self._popen.wait()
                    break
        self._end.join()
        self.leave()
        ran.out = self._out.read_text(errors="replace")
        ran.err = self._err.read_text(errors="replace")
        return ran
