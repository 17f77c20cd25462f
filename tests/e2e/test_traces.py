"""A run's trace in a real OpenTelemetry collector: it takes it, and sends on in its own JSON what it has understood."""

import json
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import yaml

from rebalancer.base.errors import ExitCode
from rebalancer.base.sending import attempt
from tests.controlplane import build
from tests.unit.base.test_sending import server
from tests.unit.commands.embedded import MEMORY, third_zone_joined
from tests.unit.report.test_traces import run

pytestmark = pytest.mark.e2e
_SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def collector(tmp_path: Path):
    """Yield the collector's address for OTLP over HTTP, and the requests in which it has sent on what it got."""
    program, port = build.binary("collector"), free_port()
    with server() as (beyond, asked):
        exporter = {"endpoint": beyond, "encoding": "json", "compression": "none"}
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {"otlp_http": exporter},
            "service": {
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlp_http"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
        }
        file = tmp_path / "collector.yaml"
        file.write_text(yaml.safe_dump(config))
        log = (tmp_path / "collector.log").open("wb")
        process = subprocess.Popen([program, f"--config=file:{file}"], stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            until = time.monotonic() + _SECONDS
            # An empty request is a valid one, and nothing is sent on of it.
            headers = {"Content-Type": "application/x-protobuf"}
            while (why := attempt("POST", f"{url}/v1/traces", b"", headers)) is not None:
                assert process.poll() is None, Path(log.name).read_text()
                assert time.monotonic() < until, f"{why}: {Path(log.name).read_text()}"
                time.sleep(0.1)
            yield url, asked
        finally:
            process.terminate()
            process.wait(_SECONDS)
            log.close()


def test_a_real_collector_understands_a_run(collector, tmp_path):
    url, asked = collector
    with third_zone_joined("web") as cluster:
        assert run(cluster, tmp_path, traces=url, memory=MEMORY) == ExitCode.DONE
    until = time.monotonic() + _SECONDS
    while not asked and time.monotonic() < until:
        threading.Event().wait(0.05)
    ((method, path, _, body),) = asked
    assert (method, path) == ("POST", "/v1/traces")
    (of_process,) = json.loads(body)["resourceSpans"]
    process = {one["key"]: one["value"] for one in of_process["resource"]["attributes"]}
    assert process["service.name"] == {"stringValue": "kube-rebalancer"}
    (scope,) = of_process["scopeSpans"]
    by_id = {span["spanId"]: span for span in scope["spans"]}
    (root,) = [span for span in scope["spans"] if not span.get("parentSpanId")]
    said = {one["key"]: one["value"] for one in root["attributes"]}
    assert said["rebalancer.moves.made"] == {"intValue": "1"}
    assert said["rebalancer.dry_run"] == {"boolValue": False}
    (eviction,) = [span for span in scope["spans"] if span["name"].endswith("/eviction")]
    wave = by_id[eviction["parentSpanId"]]
    assert (wave["name"], by_id[wave["parentSpanId"]]["name"]) == ("wave 1", "act")
    assert eviction["kind"] == 3
    assert {span["traceId"] for span in scope["spans"]} == {root["traceId"]}
    assert int(root["startTimeUnixNano"]) < int(root["endTimeUnixNano"])
