"""Finds strategies by entry point, and loads only those that a policy names: loading a plug-in runs its code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from rebalancer.base.errors import PluginError
from rebalancer.cost.term import Strategy
from rebalancer.policy.params import Params

GROUP = "rebalancer.strategies"


@dataclass(frozen=True, slots=True)
class Listed:
    """The metadata of an installed strategy."""

    name: str
    distribution: str
    value: str


class Registry(Mapping[str, type[Params]]):
    """Strategy name -> its Params model; a plug-in is loaded when it is looked up."""

    def __init__(self, points: Iterable[EntryPoint]) -> None:
        self._points: dict[str, EntryPoint] = {}
        for point in points:
            known = self._points.get(point.name)
            if known is not None and known.value != point.value:
                raise PluginError(
                    f"two strategies are named {point.name!r}: {_dist(known)} ({known.value}) and "
                    f"{_dist(point)} ({point.value}); uninstall one of them"
                )
            self._points[point.name] = point
        self._loaded: dict[str, Strategy] = {}

    @staticmethod
    def installed() -> Registry:
        """Return the registry of the strategies that are installed in this environment."""
        return Registry(entry_points(group=GROUP))

    def listed(self) -> list[Listed]:
        """Return all installed strategies without importing one."""
        return [
            Listed(name, _dist(point), point.value) for name, point in sorted(self._points.items())
        ]

    def strategy(self, name: str) -> Strategy:
        """Load the strategy of this name.

        Raises:
            PluginError: it cannot be imported, or is no strategy.
        """
        if name not in self._loaded:
            self._loaded[name] = _load(self._points[name])
        return self._loaded[name]

    def __getitem__(self, name: str) -> type[Params]:
        return self.strategy(name).Params

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._points))

    def __len__(self) -> int:
        return len(self._points)


def _load(point: EntryPoint) -> Strategy:
    where = f"strategy {point.name!r} ({point.value} of {_dist(point)})"
    try:
        factory: Callable[[], Strategy] = point.load()
        strategy = factory()
    except Exception as error:
        raise PluginError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    params = getattr(strategy, "Params", None)
    if not (isinstance(params, type) and issubclass(params, Params)):
        raise PluginError(f"{where} has no Params model derived from rebalancer.api.Params")
    if not callable(getattr(strategy, "terms", None)):
        raise PluginError(f"{where} has no terms(view, params)")
    return strategy


def _dist(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"
