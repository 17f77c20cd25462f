"""Debian's Prometheus and Pushgateway as processes of a test."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def program(name: str) -> str:
    """Return the path of a program; a test without it fails, and is not skipped."""
    path = shutil.which(name)
    assert path is not None, f"{name} is needed: apt-get install prometheus prometheus-pushgateway"
    return path


def promtool(*arguments: str | Path) -> str:
    """Run promtool; fail with what it said if it fails."""
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def pushgateway() -> Iterator[str]:
    """Yield the address of a Pushgateway."""
    with _running("prometheus-pushgateway", "--web.listen-address={address}") as url:
        yield url


@contextmanager
def prometheus(folder: Path, scraped: str) -> Iterator[str]:
    """Yield the address of a Prometheus that scrapes a Pushgateway every second."""
    file = folder / "prometheus.json"
    target = {
        "job_name": "pushgateway",
        "honor_labels": True,
        "static_configs": [{"targets": [scraped.removeprefix("http://")]}],
    }
    settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]}
    file.write_text(json.dumps(settings))
    with _running(
        "prometheus",
        "--web.listen-address={address}",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
    ) as url:
        yield url


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the time series of an instant query; fails if Prometheus does not accept it."""
    text = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}", timeout=30) as answer:  # noqa: S310  # ours
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


@contextmanager
def _running(name: str, *flags: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program(name), *(flag.format(address=address) for flag in flags)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(f"http://{address}/-/ready", process)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while True:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310  # ours
                return
        except OSError:
            assert time.monotonic() < until, f"{url} gave no answer within a minute"
            time.sleep(0.1)
