"""Free ports that stay reserved while their owner restarts; connections that only one side has closed."""

import contextlib
import os
import random
import socket
from collections.abc import Iterable
from pathlib import Path

# Below the range from which the kernel takes the ports of outgoing connections: otherwise one of
# these might sit on the port of a server that is being restarted.
_RANGE = range(20000, 32000)
_CLOSE_WAIT = "08"


def free(names: Iterable[str]) -> dict[str, int]:
    """Return a free loopback port for each name."""
    # Several control planes may start at the same time: each searches from a place of its own.
    candidates = list(_RANGE)
    random.Random(f"{os.getpid()}-{os.urandom(4).hex()}").shuffle(candidates)
    ports: dict[str, int] = {}
    for name in names:
        while name not in ports:
            port = candidates.pop()
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                ports[name] = port
    return ports


def half_closed(port: int) -> int:
    """Return the number of connections to a server's port that only their client has closed."""
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return sum(
        int(local.rpartition(":")[2], 16) == port and state == _CLOSE_WAIT
        for _, local, _, state, *_ in lines
    )
