"""Makes the names and values of copied objects as long and as different as they are in life.

The copies of ``benchmarks.scale.copies`` have names of equal lengths, as etcd's bytes want it. In clusters
owners, namespaces, nodes, addresses and resource versions differ in length, and only what is generated does not.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

_WORDS = [
    "api",
    "auth",
    "billing",
    "cache",
    "catalog-service",
    "checkout",
    "consumer",
    "cron-runner",
    "db-proxy",
    "edge",
    "email-sender",
    "exporter",
    "feature-flags",
    "frontend",
    "gateway",
    "ingest",
    "inventory-sync",
    "ledger",
    "notifications",
    "orders",
    "payments",
    "pricing",
    "queue-worker",
    "recommendations-model-server",
    "search",
    "session-store",
    "shipping",
    "users",
    "web",
]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_OLD = b"2026-01-01T00:00:00Z"
_NAME = re.compile(
    rb"(?P<app>ap\d{6})|(?P<namespace>ns\d{5})|(?P<node>no\d{5})|(?P<suffix>(?<=-)p\d{4})"
    rb"|(?P<mark>(?<=[-\"])[h\d]\d{8})(?=[-\"])"
)


def varied(text: bytes) -> bytes:
    """Return an object with other names and values; what named the same before does so afterwards.

    The order of the names stays as it was, so that lists stay sorted.
    """
    text = _NAME.sub(_renamed, text)
    seed = hashlib.sha256(text).digest()
    numbers = [int.from_bytes(seed[at : at + 4], "big") for at in range(0, 24, 4)]
    version = b'"resourceVersion":"%d"' % (numbers[0] % 10 ** (5 + numbers[1] % 5))
    text = re.sub(rb'"resourceVersion":"\d+"', version, text)
    if b'"podIP"' not in text:
        return text
    started = b"2026-0%d-%02dT%02d:%02d:%02dZ" % (
        1 + numbers[2] % 9,
        1 + numbers[2] // 10 % 28,
        numbers[3] % 24,
        numbers[3] // 24 % 60,
        numbers[4] % 60,
    )
    address = b"10.%d.%d.%d" % (numbers[1] % 256, numbers[4] % 256, numbers[5] % 254 + 1)
    text = text.replace(_OLD, started).replace(b"10.1.0.1", address)
    node = re.search(rb'"nodeName":"ip-(\d+)-(\d+)-(\d+)-(\d+)\.', text)
    if node is not None:
        text = text.replace(b"10.0.0.1", b".".join(node.groups()))
    container = hashlib.sha256(seed).hexdigest().encode()
    return text.replace(b"fedcba9876543210" * 4, container)


def _renamed(match: re.Match[bytes]) -> bytes:
    return _name(match.lastgroup or "", match[0])


@lru_cache(maxsize=100_000)
def _name(what: str, old: bytes) -> bytes:
    number = int(re.sub(rb"\D", b"", old))
    noise = hashlib.sha256(old).digest()
    word = _WORDS[noise[0] % len(_WORDS)]
    match what:
        case "app":
            return f"{_ordered(number, 4)}-{word}".encode()
        case "namespace":
            return f"{_ordered(number, 3)}-{word}".encode()
        case "node":
            zone = "eu-west-1.compute.internal"
            return f"ip-10-{number // 62500}-{number // 250 % 250}-{number % 250}.{zone}".encode()
        case "suffix":
            tail = "".join(_LETTERS[byte % len(_LETTERS)] for byte in noise[:4])
            return f"{_LETTERS[number % len(_LETTERS)]}{tail}".encode()
    # The hash of a pod template: eight to ten characters.
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in noise[: 8 + noise[9] % 3]).encode()


def _ordered(number: int, size: int) -> str:
    """Return letters that sort as the numbers do."""
    letters = []
    for _ in range(size):
        number, rest = divmod(number, 26)
        letters.append(chr(ord("a") + rest))
    return "".join(reversed(letters))
