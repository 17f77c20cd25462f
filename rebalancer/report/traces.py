"""A run's spans in OTLP, the protocol of OpenTelemetry, as protobuf over HTTP.

Imported only where a run is traced; it needs the extra ``otel``, which has the messages of the protocol.

Names of attributes: OpenTelemetry's semantic conventions for HTTP clients and Kubernetes; ours begin with
``rebalancer.``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from rebalancer import __version__
from rebalancer.base.errors import PolicyError, import_extra
from rebalancer.base.sending import send
from rebalancer.base.spans import SpanRecord, SpanRecorder, Value
from rebalancer.base.stop import Stop

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

    from rebalancer.report.model import RunReport

_PATH = "/v1/traces"
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
_SERVICE = "OTEL_SERVICE_NAME"


def require_otlp() -> None:
    """Check that the messages of the protocol are installed.

    Raises:
        PolicyError: they are not.
    """
    _message("collector.trace.v1.trace_service_pb2")


def endpoint(url: str) -> str:
    """Return the address for traces: that of a collector without a path gets the protocol's own."""
    parts = urlsplit(url)
    return url if parts.path.strip("/") else urlunsplit(parts._replace(path=_PATH))


def read_headers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for the collector, such as its token.

    Raises:
        PolicyError: the variable does not hold ``NAME=VALUE``, separated by commas.
    """
    return _pairs(environ, _HEADERS)


def describe_process(environ: Mapping[str, str], cluster: str) -> dict[str, str]:
    """Return the attributes of what runs: service, pod and cluster.

    ``cluster``: its name among others, empty without one. What the environment says wins.

    Raises:
        PolicyError: a variable does not hold ``NAME=VALUE``, separated by commas.
    """
    of_pod = {
        "service.instance.id": environ.get("POD_NAME", ""),
        "k8s.pod.name": environ.get("POD_NAME", ""),
        "k8s.namespace.name": environ.get("POD_NAMESPACE", ""),
        "k8s.cluster.name": cluster,
    }
    service = environ.get(_SERVICE)
    return {
        "service.name": "kube-rebalancer",
        "service.version": __version__,
        **{name: value for name, value in of_pod.items() if value},
        **_pairs(environ, _RESOURCE),
        **({"service.name": service} if service else {}),
    }


def describe_report(report: RunReport) -> dict[str, Value]:
    """Return the attributes of a run that has ended with a report."""
    plan, now = report.plan, report.now
    unmet = {"before": plan.before, "planned": plan.after, "now": now}
    return {
        "rebalancer.dry_run": report.dry_run,
        "rebalancer.mode": report.loaded.policy.mode.value,
        "rebalancer.policy.hash": report.loaded.policy_hash,
        "rebalancer.nodes": len(report.snapshot.nodes),
        "rebalancer.pods": len(report.snapshot.pods),
        "rebalancer.moves.planned": len(report.outcomes),
        "rebalancer.moves.made": sum(one.status.is_carried_out for one in report.outcomes),
        "rebalancer.standstill": bool(report.standstill),
        **{
            f"rebalancer.rules.unmet.{when}": sum(score.violated for score in scores.values())
            for when, scores in unmet.items()
            if scores is not None
        },
    }


def send_trace(
    recorder: SpanRecorder,
    url: str,
    headers: Mapping[str, str],
    process: Mapping[str, str],
    stop: Stop,
) -> None:
    """Send the spans in one request. ``process``: the attributes of what ran.

    Raises:
        SendingError: the request was not sent, was refused, or timed out.
    """
    sent = {**headers, "Content-Type": "application/x-protobuf"}
    send("POST", endpoint(url), encode(recorder, process), sent, stop)


def encode(recorder: SpanRecorder, process: Mapping[str, str]) -> bytes:
    """Return the spans as the protocol's request; those still open end now."""
    request = _message("collector.trace.v1.trace_service_pb2").ExportTraceServiceRequest()
    of_process = request.resource_spans.add()
    of_process.resource.attributes.extend(_attributes(process))
    scope = of_process.scope_spans.add()
    scope.scope.name, scope.scope.version = "rebalancer", __version__
    last = max((span.end or span.start for span in recorder.spans), default=0)
    scope.spans.extend(_encode(span, recorder, last) for span in recorder.spans)
    result: bytes = request.SerializeToString(deterministic=True)
    return result


def _encode(span: SpanRecord, recorder: SpanRecorder, last: int) -> OtlpSpan:
    trace = _message("trace.v1.trace_pb2")
    encoded: OtlpSpan = trace.Span(
        trace_id=recorder.trace,
        span_id=span.number.to_bytes(8, "big"),
        name=span.name,
        kind=trace.Span.SPAN_KIND_CLIENT if span.is_request else trace.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start,
        end_time_unix_nano=last if span.end is None else span.end,
        attributes=_attributes(span.attributes),
    )
    if span.parent is None:
        encoded.attributes.extend(_attributes({"rebalancer.requests.left_out": recorder.left_out}))
    else:
        encoded.parent_span_id = span.parent.to_bytes(8, "big")
    if span.error is not None:
        encoded.status.code = trace.Status.STATUS_CODE_ERROR
        encoded.status.message = span.error
    return encoded


def _attributes(values: Mapping[str, Value]) -> Iterator[KeyValue]:
    common = _message("common.v1.common_pb2")
    for name, value in values.items():
        # A bool is an int, too.
        kind = next(
            of
            for python, of in (
                (bool, "bool_value"),
                (int, "int_value"),
                (float, "double_value"),
                (str, "string_value"),
            )
            if isinstance(value, python)
        )
        yield common.KeyValue(key=name, value=common.AnyValue(**{kind: value}))


def _pairs(environ: Mapping[str, str], variable: str) -> dict[str, str]:
    pairs = {}
    for part in filter(str.strip, environ.get(variable, "").split(",")):
        name, equals, value = part.partition("=")
        if not (equals and name.strip()):
            # The value may be a secret.
            raise PolicyError([f"${variable}: write NAME=VALUE, several separated by commas"])
        pairs[unquote(name.strip())] = unquote(value.strip())
    return pairs


def _message(module: str) -> Any:
    return import_extra(f"opentelemetry.proto.{module}", "otel", "--traces")
