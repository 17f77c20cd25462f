"""Store the state of interruptions where kubelets cannot write: a kubelet may write any annotation of its node.

Stored under the uid of a Node: what announced the interruption, and the progress of its steps, for a later process.
Stored under the machine's name at its provider: data that decide over a call to a cloud (the security groups and
targets to restore). Both are in a ConfigMap that only this process may write; the record on the node is a copy for
people.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from rebalancer.base.errors import ClusterReadError
from rebalancer.kube.client import Client
from rebalancer.kube.config_map import MAX_BYTES, ConfigMapConflictError, ConfigMapStore
from rebalancer.signals.state import State

_ATTEMPTS = 5
_LASTS = 90 * 86400.0
"""Seconds after which what is kept of a machine is dropped, if others are kept: it was not given back, and has gone."""
_MOST = 300
"""Machines of which something is kept: the oldest go first."""
_MOST_BYTES = MAX_BYTES * 9 // 10
_LONGEST_TURN = 1.0
"""Seconds for which a write waits for that of another machine's run: one that gets no answer must not hold up the others."""
_KEY = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,250}")


class KeptOfMachine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data that the steps store about one machine."""

    machine: str
    at: float
    """Unix seconds of the last change."""
    steps: dict[str, str] = {}
    """Name of the step in the policy -> its text."""
    state: State | None = None
    """How far its steps have come; ``machine`` is the uid of its Node then."""


_decoder = msgspec.json.Decoder(KeptOfMachine)


class KeptMissingError(ClusterReadError):
    """The ConfigMap does not exist; a retry is useless."""


@dataclass
class KeptTexts:
    """The texts that steps store in the ConfigMap ``where`` (namespace, name); without one, in memory. Thread-safe."""

    where: tuple[str, str] | None
    unix: Callable[[], float]
    """Returns Unix seconds."""
    _own: Mapping[str, str] = field(default_factory=dict)
    """What is kept, as it was read or written last; never changed in place."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Spares the runs of this process conflicts; that nothing is lost is the object's version's matter."""

    def of(self, client: Client, machine: str, step: str) -> str:
        """Return the text that a step has stored about a machine; empty if there is none.

        Raises:
            ClusterReadError: it could not be read.
        """
        if not machine:
            return ""
        kept = _decoded(self._read(client, after_stop=True).get(_key(machine)))
        return "" if kept is None or kept.machine != machine else kept.steps.get(step, "")

    def keep(self, client: Client, machine: str, step: str, text: str) -> None:
        """Store a text for a step.

        Raises:
            ClusterReadError: it could not be written.
        """

        def kept(before: KeptOfMachine) -> KeptOfMachine:
            return msgspec.structs.replace(before, steps={**before.steps, step: text})

        self._keep(client, machine, kept, after_stop=True)

    def keep_state(self, client: Client, uid: str, state: State) -> None:
        """Store what announced the interruption of the Node ``uid``, and the progress of its steps.

        Raises:
            ClusterReadError: it could not be written.
        """

        def kept(before: KeptOfMachine) -> KeptOfMachine:
            return msgspec.structs.replace(before, state=state)

        self._keep(client, uid, kept, after_stop=False)

    def states(self, client: Client) -> Mapping[str, State]:
        """Return uid -> stored state of each Node, also those of an earlier process.

        Raises:
            ClusterReadError: it could not be read.
        """
        self._read(client, after_stop=False)
        return self.known_states()

    def known_states(self) -> Mapping[str, State]:
        """Return :meth:`states` as last read or written: only the leading process writes it."""
        every = [_decoded(text) for text in self._own.values()]
        return {one.machine: one.state for one in every if one is not None and one.state}

    def forget(self, client: Client, *machines: str) -> None:
        """Drop the data of machines or Nodes: everything was restored, or they are gone.

        Raises:
            ClusterReadError: it could not be written.
        """
        keys = {_key(machine) for machine in machines if machine}

        def without(data: Mapping[str, str]) -> dict[str, str]:
            return {key: text for key, text in data.items() if key not in keys}

        if keys:
            self._change(client, without, after_stop=True)

    def _keep(
        self,
        client: Client,
        machine: str,
        kept: Callable[[KeptOfMachine], KeptOfMachine],
        *,
        after_stop: bool,
    ) -> None:
        now = self.unix()

        def changed(data: Mapping[str, str]) -> dict[str, str]:
            before = _decoded(data.get(_key(machine)))
            if before is None or before.machine != machine:
                before = KeptOfMachine(machine, now)
            after = kept(before)
            if after == before and _key(machine) in data:
                return dict(data)
            text = msgspec.json.encode(msgspec.structs.replace(after, at=now)).decode()
            return _shortened({**data, _key(machine): text}, now)

        self._change(client, changed, after_stop=after_stop)

    def _read(self, client: Client, *, after_stop: bool) -> Mapping[str, str]:
        if self.where is not None:
            stored = self._store(client, after_stop=after_stop).read()
            if stored is None:
                raise self._missing()
            self._own = stored.data
        return self._own

    def _store(self, client: Client, *, after_stop: bool) -> ConfigMapStore:
        namespace, name = self.where or ("", "")
        return ConfigMapStore(client, namespace, name, after_stop=after_stop)

    def _change(
        self,
        client: Client,
        changed: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        after_stop: bool,
    ) -> None:
        alone = self._lock.acquire(timeout=_LONGEST_TURN)
        try:
            if self.where is None:
                self._own = changed(self._own)
                return
            store = self._store(client, after_stop=after_stop)
            for left in reversed(range(_ATTEMPTS)):
                if (stored := store.read()) is None:
                    raise self._missing()
                data = changed(stored.data)
                with suppress(*([ConfigMapConflictError] if left else [])):
                    if data != stored.data:
                        store.write(stored, data)
                    self._own = data
                    return
        finally:
            if alone:
                self._lock.release()

    def _missing(self) -> KeptMissingError:
        name = "/".join(self.where or ())
        return KeptMissingError(
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
    """Return the data without entries that are too old or too many; the newest entry always stays."""
    kept = {key: one for key, text in data.items() if (one := _decoded(text)) is not None}
    left: dict[str, str] = {}
    size = 0
    for key in sorted(kept, key=lambda key: -kept[key].at):
        size += len(key.encode()) + len(data[key].encode())
        is_old = now - kept[key].at > _LASTS
        if left and (is_old or len(left) >= _MOST or size > _MOST_BYTES):
            break
        left[key] = data[key]
    return {key: text for key, text in data.items() if key in left or key not in kept}
