"""Fills a cluster fast: each kind of object goes through the API server once, its copies into etcd.

An object as the server stores it (defaulted, validated, with managedFields, in protobuf) is copied by
replacing names, uids and times by others of the same lengths, and the copies are put into etcd in
transactions; the API server learns of them by its watch. 150,000 pods take a minute or two.
"""

from __future__ import annotations

import base64
import random
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import urllib3

from rebalancer.wire.times import rfc3339

_DAY = 86_400
_TOKEN_VOLUME = re.compile(rb"kube-api-access-[a-z0-9]{5}")
_TRANSACTION_BYTES = 900_000
_TRANSACTION_KEYS = 120


class Etcd:
    """etcd's JSON gateway."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v3/kv/txn"
        self._pool = urllib3.PoolManager(maxsize=4)

    def put(self, entries: Iterable[tuple[str, bytes]]) -> int:
        """Store all entries, many per transaction; return how many."""
        count = 0
        batch: list[dict[str, dict[str, str]]] = []
        size = 0
        for key, value in entries:
            if batch and (
                size + len(value) > _TRANSACTION_BYTES or len(batch) >= _TRANSACTION_KEYS
            ):
                count += self._commit(batch)
                batch, size = [], 0
            batch.append({"requestPut": {"key": _text(key.encode()), "value": _text(value)}})
            size += len(value)
        return count + self._commit(batch)

    def _commit(self, batch: list[dict[str, dict[str, str]]]) -> int:
        body = msgspec.json.encode({"success": batch})
        answer = self._pool.request("POST", self._url, body=body, timeout=60.0, retries=False)
        if answer.status != 200:
            raise RuntimeError(f"etcd answered {answer.status}: {answer.data[:300]!r}")
        return len(batch)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


class Original:
    """One object as the API server stores it, to be copied."""

    def __init__(self, stored: bytes, path: str, uid: str, created: float) -> None:
        """``stored`` is protobuf or JSON; ``created`` its creation time in Unix seconds.

        Copies are a day older, so that no program holds them for too young to be moved.
        """
        self.path, self.uid = path, uid
        write = _json_time if stored.startswith(b"{") else _varint
        self._bytes = stored
        for second in range(int(created) - 2, int(created) + 3):
            self._bytes = self._bytes.replace(write(second), write(second - _DAY))

    @property
    def token_volume(self) -> str | None:
        """The name of the volume with a pod's token, which the API server makes up for each pod."""
        match = _TOKEN_VOLUME.search(self._bytes)
        return match[0].decode() if match else None

    def copy(self, changes: Mapping[str, str]) -> bytes:
        """Return the object with every key of ``changes`` replaced by its value, of the same length."""
        changed = self._bytes
        for old, new in changes.items():
            if len(old) != len(new):
                raise ValueError(f"{old} and {new} differ in length")
            changed = changed.replace(old.encode(), new.encode())
        return changed


def _json_time(seconds: int) -> bytes:
    return rfc3339(seconds).encode()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def uids(rng: random.Random) -> Iterator[str]:
    """Yield uids, the same for the same seed."""
    while True:
        yield str(uuid.UUID(int=rng.getrandbits(128), version=4))
