"""A control plane that can be started and disturbed, and that always ends with its context."""

import contextlib
import ipaddress
import secrets
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml

from tests.controlplane import accounts, build, commands, health, pki, ports, reset, waiting
from tests.controlplane.api import ApiClient
from tests.controlplane.options import ALL_COMPONENTS, Options
from tests.controlplane.process import Component, ProcessGroup

T = TypeVar("T")

_START_SECONDS = 60.0
_SERVERS = ("etcd", "kube-apiserver")
_PORT_NAMES = (*ALL_COMPONENTS, "etcd-peer")


class ControlPlane:
    """etcd, API server, controller manager, scheduler and KWOK on loopback, as a context manager.

    `api` speaks with it as administrator, `kubeconfig` lets any other client do so. Components can
    be stopped, started and restarted; they keep their ports and their data.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._stack = contextlib.ExitStack()
        self._layout: commands.Layout | None = None
        self._processes: ProcessGroup | None = None
        self._api: ApiClient | None = None
        self.admin_token = secrets.token_urlsafe(24)

    def __enter__(self) -> Self:
        try:
            self._prepare()
            for name in self.options.components:
                self._process(name).start()
                # The others find the API server at their start, or give up; etcd is waited for.
                if name in _SERVERS:
                    self.wait_ready(name)
            for name in self.options.components:
                self.wait_ready(name)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Address of the API server."""
        bound = self.options.bind_address
        host = "127.0.0.1" if ipaddress.ip_address(bound).is_unspecified else bound
        return f"https://{host}:{self._paths.ports['kube-apiserver']}"

    @property
    def ca_file(self) -> Path:
        """Certificate of the CA that signed the API server's."""
        return self._paths.pki.ca_cert

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._paths.kubeconfig

    @property
    def audit_log(self) -> Path:
        """The API server's audit log (there is one with an audit policy in the options)."""
        return self._paths.audit_log

    @property
    def directory(self) -> Path:
        """The folder of keys, data, logs and kubeconfigs."""
        return self._paths.folder

    @property
    def api(self) -> ApiClient:
        """The administrator's client."""
        if self._api is None:
            raise RuntimeError("the control plane is not running")
        return self._api

    def log(self, name: str) -> Path:
        """Return the path of a component's log."""
        return self._process(name).log

    def pid(self, name: str) -> int:
        """Return the process id of a running component."""
        return self._process(name).pid

    def start(self, name: str) -> None:
        """Start a component again, and wait until it is ready."""
        self._process(name).start()
        self.wait_ready(name)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Stop a component: by SIGTERM, or by SIGKILL at once."""
        self._process(name).stop(kill=kill)

    def restart(self, name: str, *, kill: bool = False) -> None:
        """Stop and start a component."""
        self.stop(name, kill=kill)
        self.start(name)

    def restart_clients(self) -> None:
        """Restart the components that wait for the API server with growing back-offs after an outage."""
        for name in self.options.components:
            if name not in _SERVERS:
                self.stop(name, kill=True)
                self.start(name)

    def abandoned(self) -> int:
        """Return how many connections the API server has open whose client is gone.

        It closes each when it has done what it had been asked for.
        """
        return ports.half_closed(self._paths.ports["kube-apiserver"])

    def wait_ready(self, name: str, timeout: float = _START_SECONDS) -> None:
        """Wait until a component says that it is ready; a component that died says why."""
        component = self._process(name)

        def ready() -> bool:
            if not component.running:
                raise RuntimeError(f"{name} ended by itself; its last words:\n{component.tail()}")
            return health.is_ready(name, self.api, self._paths)

        try:
            waiting.wait_until(ready, timeout, f"{name} ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its last words:\n{component.tail()}") from None

    def wait_until(self, predicate: Callable[[], T], timeout: float, what: str) -> T:
        """Wait for a condition; see `waiting.wait_until`."""
        return waiting.wait_until(predicate, timeout, what)

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Create objects in order, or change by server-side apply those that exist."""
        return [self.api.apply(manifest) for manifest in objects]

    def reset(self, timeout: float = 60.0) -> None:
        """Delete everything that is not the control plane's own, so that the next test begins empty."""
        reset.reset(self.api, timeout)

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """Write a kubeconfig for a token, and return its path."""
        path = self._paths.folder / f"{name}.kubeconfig"
        named = {"name": "controlplane"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "controlplane",
            "clusters": [
                {
                    **named,
                    "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                }
            ],
            "users": [{**named, "user": {"token": token}}],
            "contexts": [{**named, "context": {"cluster": "controlplane", "user": "controlplane"}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def token_for_service_account(
        self,
        namespace: str,
        name: str,
        expiration_seconds: int = 3600,
        *,
        bound_to: str | None = None,
        kind: str = "Secret",
    ) -> str:
        """Return a token of a ServiceAccount; see `accounts.token`."""
        key = self._paths.pki.service_account_key
        return accounts.token(self.api, key, namespace, name, expiration_seconds, bound_to, kind)

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, expiration_seconds: int = 3600
    ) -> Path:
        """Write a kubeconfig with a real token of a ServiceAccount; see `accounts.token`."""
        token = self.token_for_service_account(namespace, name, expiration_seconds)
        return self.write_kubeconfig(f"{namespace}-{name}-{secrets.token_hex(4)}", token)

    def client(self, token: str | None) -> ApiClient:
        """Return a raw client with another token than the administrator's, or with none."""
        return ApiClient(self.url, self.ca_file, token)

    @property
    def _paths(self) -> commands.Layout:
        if self._layout is None:
            raise RuntimeError("the control plane was not started")
        return self._layout

    def _process(self, name: str) -> Component:
        if self._processes is None:
            raise RuntimeError("the control plane is not running")
        return self._processes[name]

    def _prepare(self) -> None:
        """Make the folder, keys, ports and processes; nothing runs yet but their reaper."""
        options = self.options
        programs = {name: build.binary(name, options.version) for name in options.components}
        folder = options.directory
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="controlplane-"))
        folder.mkdir(parents=True, exist_ok=True)
        self._processes = ProcessGroup(folder if options.directory is None else None)
        self._stack.callback(self._processes.close)
        addresses = {"127.0.0.1", options.bind_address, options.advertise_address or "127.0.0.1"}
        keys = pki.create(folder / "pki", sorted(addresses))
        self._layout = commands.Layout(folder, keys, ports.free(_PORT_NAMES))
        tokens = folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        self.write_kubeconfig("admin", self.admin_token)
        self._api = self.client(self.admin_token)
        self._stack.callback(self._api.close)
        for name, program in programs.items():
            arguments = commands.arguments(name, self._layout, options)
            self._processes.add(name, [str(program), *arguments], folder / f"{name}.log")
