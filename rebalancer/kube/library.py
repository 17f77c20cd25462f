"""The parts of the ``kubernetes`` package that are used, imported without the rest.

``import kubernetes`` loads every typed model and API: 0.6 s and 66 MiB on a slow core, against 0.14 s and
31 MiB for configuration, authentication and transport. Its ``__init__`` files are what loads the rest, so
the parts are imported below bare package modules, which are taken away again afterwards: whoever imports
``kubernetes`` later in the same process gets the whole of it.

The parts themselves import ``requests`` and two OAuth packages, 0.1 s more, for what few clusters need: the
renewal of an OIDC token, and the exceptions of a proxy. Meanwhile modules stand in for those which import
the real ones at the first use.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rebalancer.errors import ClusterReadError

_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.config")
_PUT_OFF = {
    "oauthlib": (),
    "oauthlib.oauth2": (),
    "requests": (),
    "requests.utils": ("should_bypass_proxies",),
    "requests_oauthlib": ("OAuth2Session",),
}
"""What the parts import at their head and seldom use, with the functions that they take from it."""
_parts: dict[str, ModuleType] = {}
_lock = threading.Lock()


def part(name: str) -> Any:
    """Return a module of the package, such as ``client.rest`` or ``config.kube_config``."""
    full = f"kubernetes.{name}"
    with _lock:
        if full in _parts:
            return _parts[full]
        if "kubernetes" in sys.modules:
            return importlib.import_module(full)
        with _put_off(), _bare_packages():
            return importlib.import_module(full)


@contextmanager
def _bare_packages() -> Iterator[None]:
    sys.modules.update(_parts or _make_bare())
    try:
        if "kubernetes.client.configuration" not in sys.modules:
            _fill(sys.modules["kubernetes.client"])
        yield
    finally:
        for name in [n for n in sys.modules if n.split(".", 1)[0] == "kubernetes"]:
            _parts[name] = sys.modules.pop(name)


@contextmanager
def _put_off() -> Iterator[None]:
    """Let modules stand in for those of ``_PUT_OFF``, unless they are there already."""
    standing = {name: _StandIn(name) for name in _PUT_OFF if name not in sys.modules}
    sys.modules.update(standing)
    try:
        yield
    finally:
        for name, module in standing.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _StandIn(ModuleType):
    """A module that is imported when something of it is asked for or called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        for function in _PUT_OFF[name]:
            setattr(self, function, self._caller(function))

    def _caller(self, function: str) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), function)(*positional, **named)

        return call

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for some that a module need not have
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def _make_bare() -> dict[str, ModuleType]:
    spec = importlib.util.find_spec("kubernetes")
    if spec is None or spec.origin is None:
        raise ClusterReadError(
            "the Python package kubernetes is not installed: pip install kubernetes"
        )
    root = Path(spec.origin).parent
    bare = {}
    for name in _PACKAGES:
        module = ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        bare[name] = module
    return bare


def _fill(client: Any) -> None:
    """Give the bare ``kubernetes.client`` the two names that the configuration modules take from it."""
    client.Configuration = importlib.import_module("kubernetes.client.configuration").Configuration
    client.ApiClient = _api_client


def _api_client(**arguments: Any) -> Any:
    """Stand in for ``ApiClient``, which only the refresh of an OIDC auth-provider's token asks for."""
    return importlib.import_module("kubernetes.client").ApiClient(**arguments)
