"""Call our command line as a process of its own, without the imports of each start.

One server for each process of tests imports the program once, and forks for each call: a call has its own folder,
environment, streams and exit code. Tests of the start itself, of signals and of terminals start the program as users do.
"""

import atexit
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_LARGEST = 150_000
"""Bytes of one request: words and environment."""


def call(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Return what ``rebalancer`` with these words does; ``env`` is its whole environment, by default ours."""
    request = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ)}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as given,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        given.write(stdin)
        given.seek(0)
        streams = [each.fileno() for each in (given, out, err)]
        server = _server()
        socket.send_fds(server, [json.dumps(request).encode()], streams)
        code = int(server.recv(16))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["rebalancer", *words], code, out.read(), err.read())


@cache
def _server() -> socket.socket:
    """Start the server, which ends with this process, and return the connection to it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.cli", str(its.fileno())],
        cwd=_ROOT,
        pass_fds=[its.fileno()],
        stdout=subprocess.DEVNULL,
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(connection: socket.socket) -> None:
    _import_program()
    while True:
        data, streams, _, _ = socket.recv_fds(connection, _LARGEST, 3)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _run(json.loads(data), streams)
        for each in streams:
            os.close(each)
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _import_program() -> None:
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"})
    for path in sorted((_ROOT / "rebalancer").rglob("*.py")):
        name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        # That one handles signals from its import on.
        if not name.endswith(("__init__", "__main__", "protobuf.make")):
            __import__(name)


def _run(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Be the program; never return."""
    code = 1
    try:
        for number, each in enumerate(streams):
            os.dup2(each, number)
            os.close(each)
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        sys.argv = ["rebalancer", *request["words"]]
        runpy.run_module("rebalancer", run_name="__main__", alter_sys=False)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
