"""What is kept of a machine where its node has no say: a kubelet may write any annotation of its own node.

What announced it, for a process that goes on after this one; and what its steps keep.

What decides over a call to a cloud (the security groups and the targets that are given back) stands in a ConfigMap that only
this process may write, under the machine's name at its provider.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import ConfigMapConflictError, ConfigMapStore
from rebalancer.signals.state import RecordedInterruption

_ATTEMPTS = 5
_LASTS = 90 * 86400.0
"""Seconds after which what is kept of a machine is dropped, if others are kept: it was not given back, and has gone."""
_MOST = 100
"""Machines of which something is kept: the oldest go first."""
_KEY = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,250}")


class KeptOfMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the steps keep of one machine."""

    machine: str
    at: float
    """Unix seconds of the last change."""
    steps: dict[str, str] = {}
    """Name of the step in the policy -> its text."""


_decoder = msgspec.json.Decoder(KeptOfMachine)
_CAUSES = "/causes"
"""Stands among the steps of a Node's uid; no step has such a name."""
_causes = msgspec.json.Decoder(tuple[RecordedInterruption, ...])


@dataclass
class KeptTexts:
    """The texts that steps keep, in the ConfigMap ``where`` (namespace, name); without one in this process alone. Thread-safe."""

    where: tuple[str, str] | None
    unix: Callable[[], float]
    """Returns Unix seconds."""
    _own: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, client: Client, machine: str, step: str) -> str:
        """Return what a step has kept of a machine, or nothing.

        Raises:
            ClusterReadError: it could not be read.
        """
        kept = _decoded(self._read(client).get(_key(machine))) if machine else None
        return "" if kept is None or kept.machine != machine else kept.steps.get(step, "")

    def keep(self, client: Client, machine: str, step: str, text: str) -> None:
        """Keep a text for a step.

        Raises:
            ClusterReadError: it could not be written.
        """
        now = self.unix()

        def changed(data: Mapping[str, str]) -> dict[str, str]:
            before = _decoded(data.get(_key(machine)))
            steps = {} if before is None or before.machine != machine else before.steps
            kept = KeptOfMachine(machine, now, {**steps, step: text})
            return _shortened({**data, _key(machine): msgspec.json.encode(kept).decode()}, now)

        self._change(client, changed)

    def keep_causes(self, client: Client, uid: str, causes: Sequence[RecordedInterruption]) -> None:
        """Keep what announced the machine of the Node ``uid``.

        Raises:
            ClusterReadError: it could not be written.
        """
        self.keep(client, uid, _CAUSES, msgspec.json.encode(tuple(causes)).decode())

    def causes(self, client: Client, uid: str) -> tuple[RecordedInterruption, ...]:
        """Return what announced the machine of a Node, as a process before this one has kept it.

        Raises:
            ClusterReadError: it could not be read.
        """
        try:
            return _causes.decode(self.of(client, uid, _CAUSES))
        except (ValueError, RecursionError):
            return ()

    def forget(self, client: Client, machine: str) -> None:
        """Forget what was kept of a machine: all of it was given back.

        Raises:
            ClusterReadError: it could not be written.
        """
        if machine:
            self._change(
                client,
                lambda data: {key: text for key, text in data.items() if key != _key(machine)},
            )

    def _read(self, client: Client) -> Mapping[str, str]:
        if self.where is None:
            with self._lock:
                return dict(self._own)
        stored = ConfigMapStore(client, *self.where).read()
        if stored is None:
            raise self._missing()
        return stored.data

    def _change(
        self, client: Client, changed: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> None:
        with self._lock:
            if self.where is None:
                self._own = changed(self._own)
                return
            store = ConfigMapStore(client, *self.where)
            for left in reversed(range(_ATTEMPTS)):
                if (stored := store.read()) is None:
                    raise self._missing()
                data = changed(stored.data)
                if data == stored.data:
                    return
                with suppress(*([ConfigMapConflictError] if left else [])):
                    store.write(stored, data)
                    return

    def _missing(self) -> ClusterReadError:
        name = "/".join(self.where or ())
        return ClusterReadError(
            f"there is no ConfigMap {name}: create it (the chart does), see --interruption-state"
        )


def _key(machine: str) -> str:
    return machine if _KEY.fullmatch(machine) else str(uuid.uuid5(uuid.NAMESPACE_OID, machine))


def _decoded(text: str | None) -> KeptOfMachine | None:
    try:
        return None if text is None else _decoder.decode(text)
    except (ValueError, RecursionError):
        return None


def _shortened(data: dict[str, str], now: float) -> dict[str, str]:
    kept = {key: one for key, text in data.items() if (one := _decoded(text)) is not None}
    newest = sorted(kept, key=lambda key: -kept[key].at)
    old = {key for key in newest if now - kept[key].at > _LASTS} | set(newest[_MOST:])
    return {key: text for key, text in data.items() if key not in old}
