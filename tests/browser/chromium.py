"""Debian's chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websocket

_PATIENCE = 60.0


class Page:
    """One page, in a browser of its own; the page's content security policy holds, also in a script of a test."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._number = 0
        self.log: list[str] = []
        """What the browser has complained of: errors of scripts, violations of the policy."""
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command; return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result
            self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.log.append(details.get("exception", {}).get("description", details["text"]))
        if message.get("method") == "Log.entryAdded":
            self.log.append(message["params"]["entry"]["text"])

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is waited for."""
        answer = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def open(self, what: Path | str, *, width: int = 1280, dark: bool = False) -> None:
        """Load a file or an address, and wait until it is loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=what if isinstance(what, str) else what.as_uri())
        self.wait("document.readyState === 'complete'")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + _PATIENCE
        while not self.evaluate(condition):
            if time.monotonic() > until:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def key(self, name: str, code: int) -> None:
        """Press a key where the focus is."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.send("Input.insertText", text=text)


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """Start the browser with an empty profile in ``folder``; stop it at the end."""
    program = shutil.which("chromium")
    if program is None:
        raise RuntimeError("chromium is not installed: apt-get install chromium")
    # Root in a container has no sandbox; the pages are ours.
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    process = subprocess.Popen(
        [program, *flags, f"--user-data-dir={folder}", "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        browser = websocket.create_connection(
            _address(folder), suppress_origin=True, timeout=_PATIENCE
        )
        with contextlib.closing(browser), contextlib.closing(_of_page(browser, folder)) as page:
            yield Page(page)
    finally:
        process.terminate()
        process.wait()


def _port(folder: Path) -> list[str]:
    active = folder / "DevToolsActivePort"
    until = time.monotonic() + _PATIENCE
    while not (active.exists() and active.read_text().count("\n")):
        if time.monotonic() > until:
            raise TimeoutError("chromium did not start")
        time.sleep(0.05)
    return active.read_text().splitlines()


def _address(folder: Path) -> str:
    port, path = _port(folder)
    return f"ws://127.0.0.1:{port}{path}"


def _of_page(browser: websocket.WebSocket, folder: Path) -> websocket.WebSocket:
    """Return a connection to the page that the browser begins with."""
    until = time.monotonic() + _PATIENCE
    while True:
        browser.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        targets = json.loads(browser.recv())["result"]["targetInfos"]
        pages = [one["targetId"] for one in targets if one["type"] == "page"]
        if pages:
            break
        if time.monotonic() > until:
            raise TimeoutError("chromium has no page")
        time.sleep(0.05)
    address = f"ws://127.0.0.1:{_port(folder)[0]}/devtools/page/{pages[0]}"
    return websocket.create_connection(address, suppress_origin=True, timeout=_PATIENCE)
