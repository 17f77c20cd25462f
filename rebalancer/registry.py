"""Find plug-ins by entry point; load only those that a policy names, because loading a plug-in runs its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from rebalancer.base.errors import PluginError
from rebalancer.cost.strategy import Strategy
from rebalancer.cost.term import complete
from rebalancer.policy.interruption import StepParams
from rebalancer.policy.values import Params, ProviderParams
from rebalancer.providers.contract import Provider
from rebalancer.signals.model import SignalSource

T = TypeVar("T")


_read_all = cache(entry_points)
"""Reads the entry points of all installed distributions, once in a process: it opens a file of each distribution."""


def _points(group: str) -> Iterable[EntryPoint]:
    return _read_all().select(group=group)


GROUP = "rebalancer.strategies"


@dataclass(frozen=True, slots=True)
class PlugInKind(Generic[T]):
    """One kind of plug-in, such as strategies."""

    group: str
    """Name of the group of its entry points."""
    noun: str
    method: str
    """The method that a plug-in must have, with its arguments: ``terms(view, params)``."""
    params: type[Params] = Params
    """The base class of the options of these plug-ins."""

    def installed(self) -> PlugIns[T]:
        """Return the installed plug-ins of this kind."""
        return PlugIns(self, _points(self.group))


STRATEGIES: PlugInKind[Strategy] = PlugInKind(GROUP, "strategy", "terms(view, params)")
SIGNALS: PlugInKind[SignalSource] = PlugInKind(
    "rebalancer.signals", "signal source", "open(params, surroundings)"
)
PROVIDERS: PlugInKind[Provider] = PlugInKind(
    "rebalancer.providers", "provider", "open(params, environ)", ProviderParams
)
STEPS: PlugInKind[Any] = PlugInKind("rebalancer.steps", "step", "act(context, params)", StepParams)


@dataclass(frozen=True, slots=True)
class Listed:
    """The metadata of an installed plug-in."""

    name: str
    distribution: str
    value: str


class PlugIns(Mapping[str, type[Params]], Generic[T]):
    """Plug-in name -> ``Params`` model, for one kind of plug-in. A plug-in is loaded when it is looked up."""

    def __init__(self, kind: PlugInKind[T], points: Iterable[EntryPoint]) -> None:
        self._kind = kind
        self._points: dict[str, EntryPoint] = {}
        for point in points:
            known = self._points.get(point.name)
            if known is not None and known.value != point.value:
                plural = (
                    f"{kind.noun.removesuffix('y')}ies"
                    if kind.noun.endswith("y")
                    else f"{kind.noun}s"
                )
                raise PluginError(
                    f"two {plural} are named {point.name!r}: {_dist(known)} ({known.value}) and "
                    f"{_dist(point)} ({point.value}); uninstall one of them"
                )
            self._points[point.name] = point
        self._loaded: dict[str, T] = {}

    def list_metadata(self) -> list[Listed]:
        """Return the metadata of all installed plug-ins; none is imported."""
        return [
            Listed(name, _dist(point), point.value) for name, point in sorted(self._points.items())
        ]

    def load(self, name: str) -> T:
        """Load the plug-in ``name``.

        Raises:
            PluginError: the plug-in cannot be imported, or is not of this kind.
        """
        if name not in self._loaded:
            self._loaded[name] = _load(self._kind, self._points[name])
        return self._loaded[name]

    def __getitem__(self, name: str) -> type[Params]:
        params: type[Params] = getattr(self.load(name), "Params")  # noqa: B009  # looked at by _load
        return params

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._points))

    def __len__(self) -> int:
        return len(self._points)


class Registry(PlugIns[Strategy]):
    """The strategies; also the signal sources, steps and machine providers, for policies that name them."""

    def __init__(self, points: Iterable[EntryPoint]) -> None:
        super().__init__(STRATEGIES, points)

    @staticmethod
    def installed() -> Registry:
        """Return the registry of the installed strategies."""
        return Registry(_points(GROUP))

    @cached_property
    def signals(self) -> PlugIns[SignalSource]:
        """The installed signal sources."""
        return SIGNALS.installed()

    @cached_property
    def providers(self) -> PlugIns[Provider]:
        """The installed machine providers."""
        return PROVIDERS.installed()

    @cached_property
    def steps(self) -> PlugIns[Any]:
        """The installed steps of the interruption pipeline."""
        return STEPS.installed()

    def strategy(self, name: str) -> Strategy:
        """Load the strategy ``name``.

        Raises:
            PluginError: the strategy cannot be imported, or is not a strategy.
        """
        return complete(self.load(name), Strategy)


def _load(kind: PlugInKind[T], point: EntryPoint) -> T:
    where = f"{kind.noun} {point.name!r} ({point.value} of {_dist(point)})"
    try:
        factory: Callable[[], T] = point.load()
        plug_in = factory()
    except Exception as error:
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    params = getattr(plug_in, "Params", None)
    if not (isinstance(params, type) and issubclass(params, kind.params)):
        raise PluginError(f"{where} has no Params model derived from {_public(kind.params)}")
    if not callable(getattr(plug_in, kind.method.partition("(")[0], None)):
        raise PluginError(f"{where} has no {kind.method}")
    return plug_in


def _public(params: type[Params]) -> str:
    return "rebalancer.api.Params" if params is Params else f"{params.__module__}.{params.__name__}"


def _dist(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"
