"""Debian's Prometheus and Pushgateway as processes of a test."""

import json
import shutil
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.controlplane.pki import Pki


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


@contextmanager
def recorded(folder: Path, series: str, keys: Pki) -> Iterator[str]:
    """Yield the address of a Prometheus that scrapes nothing, and has these series (OpenMetrics); over TLS."""
    data, text = folder / "data", folder / "series.txt"
    text.write_text(f"{series}# EOF\n")
    promtool("tsdb", "create-blocks-from", "openmetrics", text, data)
    (folder / "prometheus.json").write_text("{}")
    files = {"cert_file": str(keys.server_cert), "key_file": str(keys.server_key)}
    (folder / "web.json").write_text(json.dumps({"tls_server_config": files}))
    with _running(
        "prometheus",
        "--web.listen-address={address}",
        f"--config.file={folder / 'prometheus.json'}",
        f"--web.config.file={folder / 'web.json'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=30d",
        trusted=keys.ca_cert,
    ) as url:
        yield url


def query(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the time series of an instant query; fails if Prometheus does not accept it."""
    text = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}", timeout=30) as answer:  # noqa: S310  # ours
        series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return series


@contextmanager
def _running(name: str, *flags: str, trusted: Path | None = None) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program(name), *(flag.format(address=address) for flag in flags)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"{'http' if trusted is None else 'https'}://{address}"
        context = None if trusted is None else ssl.create_default_context(cafile=str(trusted))
        _await(f"{url}/-/ready", process, context)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _await(url: str, process: subprocess.Popen[bytes], context: ssl.SSLContext | None) -> None:
    until = time.monotonic() + 60
    while True:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=5, context=context):  # noqa: S310  # ours
                return
        except OSError:
            assert time.monotonic() < until, f"{url} gave no answer within a minute"
            time.sleep(0.1)
