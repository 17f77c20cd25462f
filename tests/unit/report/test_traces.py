"""Spans in the protocol of OpenTelemetry: read back with the protocol's own messages."""

import io
import json
import subprocess
import sys
import threading
from itertools import count

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rebalancer.base import spans as spans_module
from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError, ExitCode, PolicyError
from rebalancer.base.spans import NO_SPANS, SpanRecorder, route_of
from rebalancer.commands.run import run_once
from rebalancer.report.traces import describe_process, encode, endpoint, read_headers
from tests.unit.base.test_sending import SECRET, server
from tests.unit.commands.embedded import MEMORY, NOW_POLICY, run_options, third_zone_joined
from tests.unit.commands.serving import serving


def recorder():
    """Return a recorder whose clock goes on by a second at each look, and whose identities count up."""
    ticks, numbers = count(), count(1)
    return SpanRecorder(
        now=lambda: float(next(ticks)),
        unix=lambda: 1_000.0,
        random=lambda size: next(numbers).to_bytes(size, "big"),
    )


def decode(body):
    request = ExportTraceServiceRequest.FromString(body)
    (of_process,) = request.resource_spans
    (scope,) = of_process.scope_spans
    return plain(of_process.resource.attributes), list(scope.spans)


def plain(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def break_in(made):
    with made.part("act", moves=2):
        made.request("POST", "/api/v1/namespaces/a/pods/b/eviction").end(429)
        made.request("GET", "/version").end(None, "TransportError")
        raise ValueError("it broke")


def test_parts_and_requests_are_nested_and_the_same_bytes_come_out():
    def record():
        made = recorder()
        with made.part("run") as results:
            with made.part("read"):
                asked = made.request("GET", "/api/v1/nodes")
                asked.end(200)
            with pytest.raises(ValueError, match="broke"):
                break_in(made)
            results["rebalancer.exit_code"] = 1
        return encode(made, {"service.name": "x"})

    assert record() == record()
    process, spans = decode(record())
    assert process == {"service.name": "x"}
    run, read, listed, act, evicted, failed = spans
    names = {span.span_id: span.name for span in spans}
    assert [(span.name, names.get(span.parent_span_id)) for span in spans] == [
        ("run", None),
        ("read", "run"),
        ("GET /api/v1/nodes", "read"),
        ("act", "run"),
        ("POST /api/v1/namespaces/{namespace}/pods/{name}/eviction", "act"),
        ("GET /version", "act"),
    ]
    assert {span.trace_id for span in spans} == {(1).to_bytes(16, "big")}
    assert plain(run.attributes) == {"rebalancer.exit_code": 1, "rebalancer.requests.left_out": 0}
    assert plain(act.attributes) == {"moves": 2}
    assert plain(evicted.attributes)["http.response.status_code"] == 429
    assert plain(evicted.attributes)["url.path"] == "/api/v1/namespaces/a/pods/b/eviction"
    errors = {span.name.split()[0]: span.status.message for span in spans if span.status.code == 2}
    assert errors == {"act": "it broke", "POST": "429", "GET": "TransportError"}
    assert [span.kind for span in (run, read, listed, act, evicted, failed)] == [1, 1, 3, 1, 3, 3]
    seconds = [(span.start_time_unix_nano, span.end_time_unix_nano) for span in spans]
    assert seconds[0] == (1_001_000_000_000, 1_012_000_000_000)
    assert all(seconds[0][0] <= start < end <= seconds[0][1] for start, end in seconds)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/version", "/version"),
        ("/api/v1/pods", "/api/v1/pods"),
        ("/api/v1/nodes/n-1", "/api/v1/nodes/{name}"),
        ("/api/v1/namespaces", "/api/v1/namespaces"),
        ("/api/v1/namespaces/shop", "/api/v1/namespaces/{name}"),
        ("/api/v1/namespaces/a/configmaps/m", "/api/v1/namespaces/{namespace}/configmaps/{name}"),
        ("/apis/policy/v1/poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets"),
        (
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
            "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}",
        ),
    ],
)
def test_names_of_objects_are_no_part_of_a_spans_name(path, route):
    assert route_of(path) == route


def test_a_trace_is_bounded_and_says_what_it_leaves_out(monkeypatch):
    monkeypatch.setattr(spans_module, "MAX_SPANS", 3)
    made = recorder()
    with made.part("run"):
        for _ in range(5):
            made.request("GET", "/version").end(200)
        with made.part("act"):
            pass
    _, spans = decode(encode(made, {}))
    assert [span.name for span in spans] == ["run", "GET /version", "GET /version", "act"]
    assert plain(spans[0].attributes)["rebalancer.requests.left_out"] == 3


def test_requests_of_other_threads_are_in_the_part_that_is_under_way():
    made = recorder()
    with made.part("run"), made.part("act"):
        threads = [
            threading.Thread(target=lambda: made.request("GET", "/version").end(200))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    _, spans = decode(encode(made, {}))
    act = next(span for span in spans if span.name == "act")
    assert sum(span.parent_span_id == act.span_id for span in spans) == 8


def test_a_collector_without_a_path_gets_the_protocols_own():
    assert endpoint("http://otel:4318") == "http://otel:4318/v1/traces"
    assert endpoint("http://otel:4318/") == "http://otel:4318/v1/traces"
    assert (
        endpoint("https://x.example/otlp/v1/traces?a=b") == "https://x.example/otlp/v1/traces?a=b"
    )


def test_the_environment_names_the_service_and_the_pod():
    environ = {
        "POD_NAME": "p-1",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test%201, team=a",
        "OTEL_SERVICE_NAME": "mover",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc",
    }
    described = describe_process(environ, "east")
    assert described.pop("service.version")
    assert described == {
        "service.name": "mover",
        "service.instance.id": "p-1",
        "k8s.pod.name": "p-1",
        "k8s.cluster.name": "east",
        "deployment.environment.name": "test 1",
        "team": "a",
    }
    assert read_headers(environ) == {"authorization": "Bearer abc"}
    with pytest.raises(PolicyError, match="NAME=VALUE") as error:
        read_headers({"OTEL_EXPORTER_OTLP_HEADERS": SECRET})
    assert SECRET not in str(error.value)


# -- whole runs ----------------------------------------------------------------------------------------


def run(cluster, folder, *, err=None, stop=None, environ=None, **options):
    policy = folder / "policy.yaml"
    policy.write_text(NOW_POLICY)
    chosen = {"policy_path": str(policy), "output": "json", "quiet": True, **options}
    chosen.setdefault("kubeconfig", str(cluster.kubeconfig) if cluster else None)
    environment = Environment(
        SystemClock(), environ or {}, io.StringIO(), err or io.StringIO(), stop or threading.Event()
    )
    code = run_once(run_options(**chosen), environment)
    assert environment.spans is NO_SPANS
    return code


def test_a_run_is_a_trace_with_its_waves_and_requests(tmp_path):
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization={SECRET}"}
    with server() as (url, asked), third_zone_joined("web") as cluster:
        code = run(cluster, tmp_path, traces=url, memory=MEMORY, environ=environ)
    assert code == ExitCode.DONE
    (sent,) = asked
    assert sent[:2] == ("POST", "/v1/traces")
    assert {name.lower(): value for name, value in sent[2].items()}["authorization"] == SECRET
    process, spans = decode(sent[3])
    assert process["service.name"] == "kube-rebalancer"
    by_id = {span.span_id: span for span in spans}
    (root,) = [span for span in spans if not span.parent_span_id]
    said = plain(root.attributes)
    assert (root.name, said["rebalancer.exit_code"]) == ("run", 0)
    assert said["rebalancer.moves.planned"] == said["rebalancer.moves.made"] == 1
    assert (said["rebalancer.rules.unmet.before"], said["rebalancer.rules.unmet.now"]) == (1, 0)

    def above(span):
        parent = by_id.get(span.parent_span_id)
        return [] if parent is None else [parent.name, *above(parent)]

    where: dict[str, list[list[str]]] = {}
    for span in spans:
        where.setdefault(span.name, []).append(above(span))
    eviction = "POST /api/v1/namespaces/{namespace}/pods/{name}/eviction"
    assert where[eviction] == [["wave 1", "act", "run"]]
    assert where["GET /api/v1/pods"][0] == ["read", "run"]
    assert where["plan"][0] == ["run"]
    assert all(
        root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        for span in spans
    )
    assert len({span.span_id for span in spans}) == len(spans)


def test_a_run_that_fails_is_a_trace_too_and_says_why(tmp_path):
    with third_zone_joined() as cluster:
        kubeconfig = tmp_path / "gone"
        kubeconfig.write_text(cluster.kubeconfig.read_text())
    with server() as (url, asked), pytest.raises(ClusterReadError):
        run(None, tmp_path, kubeconfig=str(kubeconfig), traces=url)
    _, spans = decode(asked[-1][3])
    assert spans[0].status.code == 2
    assert "unreachable" in spans[0].status.message
    assert any(span.kind == 3 and span.status.message == "TransportError" for span in spans)


def test_a_run_that_a_signal_ends_before_its_plan_sends_nothing(tmp_path):
    stop = threading.Event()
    stop.set()
    with (
        server() as (url, asked),
        third_zone_joined() as cluster,
        pytest.raises(Exception) as error,
    ):
        run(cluster, tmp_path, traces=url, stop=stop)
    assert "stopped" in str(error.value)
    assert asked == []


@pytest.mark.parametrize("answer", [None, 500])
def test_a_collector_that_fails_changes_no_exit_code(tmp_path, answer):
    err = io.StringIO()
    with server(answer or 200) as (url, _), third_zone_joined("web") as cluster:
        code = run(cluster, tmp_path, err=err, traces=url if answer else "http://127.0.0.1:1")
    assert code == ExitCode.DONE
    assert err.getvalue().startswith("rebalancer: --traces: http://127.0.0.1:")
    assert err.getvalue().rstrip().endswith("the run is not affected")


@pytest.mark.parametrize(
    ("options", "environ", "says"),
    [
        ({"traces": "otel:4318"}, {}, "--traces: is no address"),
        ({}, {"OTEL_EXPORTER_OTLP_HEADERS": "x"}, "NAME=VALUE"),
        ({}, {"OTEL_RESOURCE_ATTRIBUTES": "=x"}, "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(tmp_path, options, environ, says):
    chosen = {"traces": "http://127.0.0.1:1", "kubeconfig": str(tmp_path / "none"), **options}
    with pytest.raises(PolicyError, match=says):
        run(None, tmp_path, environ=environ, **chosen)


def test_without_the_extra_the_flag_names_it(tmp_path, monkeypatch):
    name = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PolicyError, match=r"pip install '\.\[otel\]' in a checkout"):
        run(None, tmp_path, traces="http://127.0.0.1:1", kubeconfig=str(tmp_path / "none"))


def test_nothing_of_it_is_imported_by_a_run_without_it(tmp_path):
    script = (
        "import json, sys\n"
        "from rebalancer.cli import command\n"
        "code = command(sys.argv[1:])\n"
        "print(json.dumps([code, [n for n in sys.modules if 'opentelemetry' in n or 'traces' in n]]))\n"
    )
    words = ["plan", "--snapshot", "docs/examples/zone-back.zip", "-o", "json", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]


def test_serve_sends_a_trace_for_each_run(tmp_path):
    with (
        server() as (url, asked),
        third_zone_joined("web") as cluster,
        serving(cluster, tmp_path, every=0.2, traces=url) as served,
    ):
        served.await_runs(3)
        assert served.end() is ExitCode.DONE
    traces = [decode(sent[3])[1] for sent in asked]
    assert len(traces) >= 3
    assert len({spans[0].trace_id for spans in traces}) == len(traces)
    made = [plain(spans[0].attributes)["rebalancer.moves.made"] for spans in traces[:3]]
    assert made == [1, 0, 0]
    # What is followed is read by no run: its requests are those of its moves.
    assert not any(span.name == "GET /api/v1/nodes" for spans in traces for span in spans)
    assert any("eviction" in span.name for span in traces[0])
