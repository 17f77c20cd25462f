"""Read measured usage from the metrics API or another source.

metrics.k8s.io is served by another server behind the API server (usually metrics-server), or not at all.
metrics-server supports no pages (``limit`` has no effect), no versions and no watches: a list is one response about
the present. It could send protobuf, too; JSON is what all servers support. Without metrics a run continues, and
reports what it does not know.

Each query is sent once, for the server's current time. Nothing is guessed: a node with two samples, or with an
invalid value, counts as not measured, and its object has the reason; a response in another form than the policy defines is
an error. Source: Prometheus' HTTP API, ``/api/v1/query``.
"""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec
from msgspec import DecodeError, Raw, Struct

from rebalancer.base.plain_text import printable
from rebalancer.base.sending import HttpAnswer, SendingError, exchange, place
from rebalancer.base.stop import Stop
from rebalancer.kube.access import USAGE_RULES
from rebalancer.kube.client import JSON, Client
from rebalancer.kube.failures import TransportError, refusal, says_not_served, status_of
from rebalancer.kube.lists import Listing
from rebalancer.kube.resources import AccessRule
from rebalancer.kube.transport import Stream
from rebalancer.policy.cluster import Prometheus
from rebalancer.snapshot.build import Fold
from rebalancer.wire.kinds import NODE_METRICS, Resource
from rebalancer.wire.lists import JsonDecoder, item_decoder
from rebalancer.wire.metrics import NOT_MEASURED, NodeMetrics, PodMetrics
from rebalancer.wire.times import rfc3339

_PIECE = 1 << 19
_MAX_REFUSAL = 1 << 14


class NotMeasuredError(Exception):
    """A list of measurements is missing or incomplete; the message has the reason."""


class UsageSource(Protocol):
    """A source of NodeMetrics and PodMetrics."""

    rules: tuple[AccessRule, ...]
    """The rights that it needs at the API server."""
    advice: str
    """The advice to the user if it provides nothing."""

    def name(self, resource: Resource) -> str:
        """Return the name of the list of the resource, as messages show it."""

    def items(
        self, listing: Listing, stopped: Callable[[], bool]
    ) -> Generator[bytes | Raw, None, None]:
        """Yield the objects of a list in JSON, until ``stopped``; ``listing`` names the list and is filled.

        Raises:
            NotMeasuredError: the list does not exist, is incomplete, or contains no node.
            ForbiddenError: RBAC denied it; names the rule.
            ClusterReadError: our credentials were rejected.
        """


@dataclass(slots=True)
class MetricsList:
    """One list of the metrics API as it was read."""

    listing: Listing
    fold: Fold
    """The measured values."""
    trouble: str | None = None
    """Why nothing is known, if so."""


def read_metrics(source: UsageSource, resource: Resource, stop: threading.Event) -> MetricsList:
    """Read NodeMetrics or PodMetrics in one attempt; if it fails, ``trouble`` has the reason.

    ``stop`` aborts reading.

    Raises:
        ForbiddenError: RBAC denied it; the error names the rule.
        ClusterReadError: our credentials were rejected.
    """
    metrics = MetricsList(Listing(resource), Fold())
    # Closed even if its end is not read: a stream holds a place among the requests in flight.
    with closing(source.items(metrics.listing, stop.is_set)) as items:
        try:
            metrics.fold.add(resource.kind, _decode(resource.kind, items))
        except NotMeasuredError as error:
            metrics.trouble = str(error)
    return metrics


def _decode(kind: str, items: Iterable[bytes | Raw]) -> Iterator[NodeMetrics | PodMetrics]:
    """Yield the decoded objects; a malformed one counts as not measured."""
    decoder = item_decoder(kind)
    for item in items:
        try:
            yield decoder.decode(item)
        except (ValueError, RecursionError):
            continue


def usage_notes(
    source: UsageSource, troubles: Iterable[tuple[Resource, str | None]]
) -> tuple[str, ...]:
    """Return notes for the report on missing lists, and what to do about them."""
    by_trouble: dict[str, list[str]] = {}
    for resource, trouble in sorted(troubles, key=lambda pair: pair[0].plural):
        if trouble is not None:
            by_trouble.setdefault(trouble, []).append(source.name(resource))
    if not by_trouble:
        return ()
    said = "; ".join(f"{' and '.join(names)}: {why}" for why, names in by_trouble.items())
    return (f"usage is not known: {said}. {source.advice}",)


class MetricsApi:
    """The metrics API as a usage source."""

    rules: tuple[AccessRule, ...] = USAGE_RULES
    advice = (
        "Install metrics-server (https://github.com/kubernetes-sigs/metrics-server); where it is installed,"
        " `kubectl describe apiservice v1beta1.metrics.k8s.io` says why it does not answer"
    )

    def __init__(self, client: Client) -> None:
        self._client = client

    def name(self, resource: Resource) -> str:
        """Return the name of the list of the resource, as messages show it."""
        return f"{resource.plural}.{resource.group}"

    def items(
        self, listing: Listing, stopped: Callable[[], bool]
    ) -> Generator[bytes | Raw, None, None]:
        """Yield the objects of a list in JSON, see :meth:`UsageSource.items`."""
        body: bytes | None = None
        try:
            stream = self._client.open_list(listing.resource.path(), accept=JSON)
            try:
                _require_list(stream, listing.resource, self._client.server)
                body = _read_body(stream, stopped)
            finally:
                stream.end(complete=body is not None)
        except (TransportError, ValueError) as error:
            raise NotMeasuredError(str(error)) from None
        if body is None:
            return
        listing.read_bytes = len(body)
        yield from _decode_list(body, listing.resource)
        listing.pages = 1


def _require_list(stream: Stream, resource: Resource, server: str) -> None:
    if stream.status == 200:
        return
    body = stream.read_up_to(_MAX_REFUSAL)
    if stream.status in (401, 403):
        rule = AccessRule.of("list", resource)
        raise refusal(stream.status, body, rule, server)
    if says_not_served(stream.status, body):
        raise NotMeasuredError("the API server does not serve them")
    raise NotMeasuredError(f"HTTP {stream.status} ({status_of(body).message or 'no text'})")


class _List(Struct):
    kind: str = ""
    items: tuple[Raw, ...] | None = None


_lists = JsonDecoder(_List)


def _read_body(stream: Stream, stopped: Callable[[], bool]) -> bytes | None:
    """Return the response body; None if ``stopped`` before its end."""
    body = BytesIO()
    while piece := stream.read_up_to(_PIECE):
        if stopped():
            return None
        body.write(piece)
    return body.getvalue()


def _decode_list(body: bytes, resource: Resource) -> Sequence[Raw]:
    try:
        read = _lists.decode(body)
    except DecodeError:
        read = _List()
    if read.kind != f"{resource.kind}List":
        raise NotMeasuredError(f"what was answered is no list of {resource.kind}, or broke off")
    if not read.items and resource == NODE_METRICS:
        raise NotMeasuredError("no node has been measured yet")
    return read.items or ()


_MAX_ANSWER = 256 << 20
"""Bytes. A sample has some 200, and there are at most as many as pods."""
_MAX_TEXT = 300
_MAX_VALUE = 2.0**53
"""Of cores or bytes: what is more would not add up in a float."""
_MAX_SHARE = 2.0
"""A node may use more than its allocatable. A share beyond this is a percentage, most likely."""

_Key = tuple[str, ...]
"""A node's name, or a pod's namespace and name."""


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]
    """Unix seconds, and a number as text."""


_Samples = Mapping[_Key, list[_Sample]]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answered(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


_answers = msgspec.json.Decoder(_Answered)
_vectors = msgspec.json.Decoder(list[_Sample])


class PrometheusSource:
    """Measurements from the queries of a policy; a ``rebalancer.kube.metrics.UsageSource``."""

    rules: tuple[AccessRule, ...] = ()
    advice = (
        "Check the policy's usage.prometheus; `promtool query instant URL QUERY` asks as a run does"
    )

    def __init__(self, settings: Prometheus, stop: Stop) -> None:
        """``stop``: the run's stop, which aborts a query at once."""
        self._settings, self._stop = settings, stop

    def name(self, resource: Resource) -> str:
        """Return the name of the list of the resource, as messages show it."""
        return f"{resource.plural} of {place(self._settings.url)}"

    def items(self, listing: Listing, stopped: Callable[[], bool]) -> Generator[bytes, None, None]:
        """Yield NodeMetrics or PodMetrics in JSON, see ``UsageSource.items``."""
        of_nodes = listing.resource == NODE_METRICS
        queries = self._settings.nodes if of_nodes else self._settings.pods
        stop = self._stop.sooner(self._settings.timeout.total_seconds(), threading.Event())
        stop.add(lambda: "the reading has ended" if stopped() else None)
        asked: dict[str, _Samples] = {
            resource: self._samples(resource, queries[resource], listing, stop)
            for resource in sorted(queries)
        }
        objects = self._nodes(asked) if of_nodes else self._pods(asked, listing)
        yield from map(msgspec.json.encode, objects)
        listing.pages = 1

    # -- asking ------------------------------------------------------------------------------------

    def _samples(self, resource: str, query: str, listing: Listing, stop: Stop) -> _Samples:
        """Return the samples of a query, grouped by node or pod.

        Raises:
            NotMeasuredError: no response, an invalid one, or one without samples.
        """
        key = f"{listing.resource.plural}.{resource}"
        try:
            answer = self._answer(query, stop)
            listing.read_bytes += len(answer.body)
            data, warnings = _content(answer)
            samples = _vectors.decode(data.result)
        except SendingError as error:
            raise NotMeasuredError(f"{key}: {error}") from None
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            said = _short(str(error))
            raise NotMeasuredError(f"{key}: {place(self._settings.url)} {said}") from None
        listing.notes += [f"usage: {key}: {_short(one)}" for one in warnings]
        if not samples:
            raise NotMeasuredError(f"{key}: the query gives no sample")
        labels: tuple[str, ...] = ("namespace", "pod")
        if listing.resource == NODE_METRICS:
            labels = (self._settings.node_label,)
        return _by_key(key, samples, labels)

    def _answer(self, query: str, stop: Stop) -> HttpAnswer:
        settings = self._settings
        return exchange(
            "GET",
            f"{settings.url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}",
            {"Accept": "application/json", **_authorization(settings.token_file)},
            stop,
            seconds=stop.seconds_left(),
            most=_MAX_ANSWER,
            context=_trusting(settings.ca_file),
        )

    # -- objects -----------------------------------------------------------------------------------

    def _nodes(self, asked: Mapping[str, _Samples]) -> Iterator[dict[str, Any]]:
        """Yield a NodeMetrics for each node in any query.

        Raises:
            NotMeasuredError: a value is not a share although the policy has ``unit: share``.
        """
        share = self._settings.unit == "share"
        for key in sorted(set().union(*asked.values())):
            of_node = {resource: samples.get(key, []) for resource, samples in asked.items()}
            why = [text for resource, few in of_node.items() if (text := _unusable(resource, few))]
            at = min(sample.value[0] for few in of_node.values() for sample in few)
            since = rfc3339(at - self._settings.window.total_seconds())
            item: dict[str, Any] = {
                "metadata": {"name": key[0]},
                "timestamp": rfc3339(at),
                "since": since,
            }
            if why:
                item["metadata"]["annotations"] = {NOT_MEASURED: ", ".join(why)}
            elif share:
                item["shares"] = {name: _share(name, key[0], few) for name, few in of_node.items()}
            else:
                item["usage"] = {name: _quantity(name, few[0]) for name, few in of_node.items()}
            yield item

    def _pods(self, asked: Mapping[str, _Samples], listing: Listing) -> Iterator[dict[str, Any]]:
        """Yield a PodMetrics for each measured pod; a note counts the others."""
        keys = sorted(set().union(*asked.values()))
        unusable = 0
        for key in keys:
            of_pod = {resource: samples.get(key, []) for resource, samples in asked.items()}
            if any(_unusable(resource, few) for resource, few in of_pod.items()):
                unusable += 1
                continue
            at = min(few[0].value[0] for few in of_pod.values())
            usage = {name: _quantity(name, few[0]) for name, few in of_pod.items()}
            metadata = {"namespace": key[0], "name": key[1]}
            containers = [{"usage": usage}]
            yield {"metadata": metadata, "timestamp": rfc3339(at), "containers": containers}
        if unusable:
            listing.notes.append(
                f"usage: {unusable} of {len(keys)} pods have no sample, several, or one that is no amount:"
                " they count as their class does"
            )


def _authorization(file: str | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        token = Path(file).read_text("ascii").strip()
    except OSError as error:
        raise NotMeasuredError(f"tokenFile {file} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise NotMeasuredError(f"tokenFile {file} holds no bearer token")
    return {"Authorization": f"Bearer {token}"}


def _trusting(file: str | None) -> ssl.SSLContext | None:
    if file is None:
        return None
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        raise NotMeasuredError(f"caFile {file} holds no certificate in PEM") from None
    except OSError as error:
        raise NotMeasuredError(f"caFile {file} cannot be read ({error.strerror})") from None


def _content(answer: HttpAnswer) -> tuple[_Data, list[str]]:
    """Return the data of a response, and its warnings.

    Raises:
        ValueError: the response is an error, or not a vector; the message names which.
    """
    try:
        content = _answers.decode(answer.body)
    except (ValueError, msgspec.DecodeError, RecursionError):
        content = _Answered("")
    if not answer.accepted:
        raise ValueError(f"{answer.words}: {content.error}" if content.error else answer.words)
    if content.status != "success" or content.data is None:
        raise ValueError(content.error or "answered, but not as Prometheus does")
    if (kind := content.data.result_type) != "vector":
        raise ValueError(f"answered with a {kind}; the query must give an instant vector")
    return content.data, content.warnings


def _by_key(key: str, samples: list[_Sample], labels: tuple[str, ...]) -> _Samples:
    by_key: dict[_Key, list[_Sample]] = {}
    for sample in samples:
        missing = [label for label in labels if not sample.metric.get(label)]
        if missing:
            given = ", ".join(sorted(sample.metric)) or "none"
            text = f"{key}: a sample has no label {missing[0]} (its labels: {_short(given)})"
            advice = "set nodeLabel, or group by it" if len(labels) == 1 else "group by it"
            raise NotMeasuredError(f"{text}: {advice}")
        by_key.setdefault(tuple(sample.metric[label] for label in labels), []).append(sample)
    return by_key


def _unusable(resource: str, samples: list[_Sample]) -> str | None:
    """Return why these samples are no measurement, or None."""
    if len(samples) != 1:
        return f"{len(samples) or 'no'} sample{'' if not samples else 's'} of {resource}"
    value = _number(samples[0])
    usable = 0 <= value <= _MAX_VALUE
    return None if usable else f"{resource} is {_short(samples[0].value[1])}"


def _number(sample: _Sample) -> float:
    try:
        return float(sample.value[1])
    except ValueError:
        return math.nan


def _share(resource: str, node: str, samples: list[_Sample]) -> float:
    value = _number(samples[0])
    if value > _MAX_SHARE:
        raise NotMeasuredError(
            f"nodes.{resource}: {value:g} of node {node} is no share from 0 to 1, as unit: share has it"
        )
    return value


def _quantity(resource: str, sample: _Sample) -> str:
    value = _number(sample)
    return f"{round(value * 1e9)}n" if resource == "cpu" else f"{round(value)}"


def _short(text: str) -> str:
    return printable(text)[:_MAX_TEXT]
