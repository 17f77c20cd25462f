"""Call our command line as a process of its own, without the imports of each start.

One server for each process of tests imports the program once, and forks for each call: a call has its own folder,
environment, streams, terminal and exit code. Tests of the start itself and of signals start the program as users do.
"""

import atexit
import fcntl
import gc
import json
import os
import runpy
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_LARGEST = 150_000
"""Bytes of one request: words and environment."""
_IMPORTED_LATE = (
    "click.shell_completion",
    "croniter",
    "difflib",
    "html",
    "kubernetes.client",
    "kubernetes.config.exec_provider",
    "kubernetes.config.incluster_config",
    "prometheus_client.exposition",
    "ssl",
)
"""What the program imports where it needs it, and not at its start."""
_AT_START: dict[str, dict[str, Any]] = {
    "stdin": {},
    "stdout": {"mode": "w"},
    "stderr": {"mode": "w", "errors": "backslashreplace", "buffering": 1},
}
"""How the interpreter opens its streams."""


def call(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Return what ``rebalancer`` with these words does; ``env`` is its whole environment, by default ours."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as given,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        given.write(stdin)
        given.seek(0)
        wait = begin(words, [each.fileno() for each in (given, out, err)], cwd=cwd, env=env)
        code = wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["rebalancer", *words], code, out.read(), err.read())


def begin(
    words: Sequence[str],
    streams: Sequence[int],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Callable[[], int]:
    """Begin a call with these descriptors as its streams; return what waits for its exit code.

    A fourth descriptor is its controlling terminal; without one it has none.
    """
    request = {
        "words": list(words),
        "cwd": str(cwd or Path.cwd()),
        "env": dict(env or os.environ),
        "open": list(range(len(streams))),
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(_server() / "socket"))
    socket.send_fds(connection, [json.dumps(request).encode()], list(streams))

    def wait() -> int:
        with connection:
            return int(connection.recv(16))

    return wait


def program() -> Path:
    """Return a program for shells, which makes a call with its own streams, open and closed; its name is ``rebalancer``."""
    return _server() / "rebalancer"


_PROGRAM = f"""\
#!{sys.executable} -SI
import json, os, socket, sys
open_ = [each for each in range(3) if os.path.exists(f"/proc/self/fd/{{each}}")]
while os.open(os.devnull, os.O_RDWR) < 3:
    pass
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(os.path.join(os.path.dirname(os.path.realpath(__file__)), "socket"))
request = {{"words": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ), "open": open_}}
socket.send_fds(connection, [json.dumps(request).encode()], open_)
sys.exit(int(connection.recv(16)))
"""


@cache
def _server() -> Path:
    """Start the server, which ends with this process, and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="rebalancer-"))
    (folder / "rebalancer").write_text(_PROGRAM, encoding="utf-8")
    (folder / "rebalancer").chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.cli", str(listener.fileno())],
            cwd=_ROOT,
            pass_fds=[listener.fileno()],
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    return folder


def _serve(listener: socket.socket) -> None:
    """Call the program for each request, in a process of its own, and answer with its exit code; end with our input."""
    _import_program()
    gc.freeze()
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in ready:
            return
        connection, _ = listener.accept()
        with connection:
            data, streams, _, _ = socket.recv_fds(connection, _LARGEST, 4)
            if os.fork() == 0:
                listener.close()
                _call(json.loads(data), streams, connection)
            for each in streams:
                os.close(each)


def _call(request: Mapping[str, Any], streams: Sequence[int], connection: socket.socket) -> None:
    """Wait for a process that is the program, and answer; never return."""
    pid = os.fork()
    if pid == 0:
        connection.close()
        _run(request, dict(zip(request["open"], streams, strict=True)))
    for each in streams:
        os.close(each)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _import_program() -> None:
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"})
    for path in sorted((_ROOT / "rebalancer").rglob("*.py")):
        name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
        # That one handles signals from its import on.
        if not name.endswith(("__init__", "__main__", "protobuf.make")):
            __import__(name)
    for name in _IMPORTED_LATE:
        __import__(name)


def _take(streams: Mapping[int, int]) -> None:
    """Take these as our streams, and what is missing as closed when we were started."""
    if 3 in streams:  # a session has a terminal, or none
        os.setsid()
        fcntl.ioctl(streams[3], termios.TIOCSCTTY, 0)
    for number, (name, how) in enumerate(_AT_START.items()):
        if number in streams:
            os.dup2(streams[number], number)
            setattr(sys, name, os.fdopen(number, encoding="utf-8", **how))
        else:
            os.close(number)
            setattr(sys, name, None)
    for each in streams.values():
        os.close(each)


def _run(request: Mapping[str, Any], streams: Mapping[int, int]) -> None:
    """Be the program; never return."""
    code = 1
    try:
        _take(streams)
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
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
