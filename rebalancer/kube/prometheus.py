"""Read usage from Prometheus in the form of the metrics API, so that runs and snapshot files agree.

Each query is sent once, for the server's current time. Nothing is guessed: a node with two samples, or with an
invalid value, counts as not measured, and its object says why; a response of another form than the policy says is an
error. Source: Prometheus' HTTP API, ``/api/v1/query``.
"""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from rebalancer.base.plain_text import printable
from rebalancer.base.sending import HttpAnswer, SendingError, exchange, place
from rebalancer.base.stop import Stop
from rebalancer.kube.metrics import NotMeasuredError
from rebalancer.kube.pages import Listing
from rebalancer.kube.resources import AccessRule
from rebalancer.policy.cluster import Prometheus
from rebalancer.wire.kinds import NODE_METRICS, Resource
from rebalancer.wire.metrics import NOT_MEASURED
from rebalancer.wire.times import rfc3339

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
        """Return this list's name for messages."""
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
            seconds=stop.left(),
            most=_MAX_ANSWER,
            context=_trusting(settings.ca_file),
        )

    # -- objects -----------------------------------------------------------------------------------

    def _nodes(self, asked: Mapping[str, _Samples]) -> Iterator[dict[str, Any]]:
        """Yield a NodeMetrics for each node in any query.

        Raises:
            NotMeasuredError: a value is not a share although the policy says ``unit: share``.
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
        ValueError: the response is an error, or not a vector; the message says which.
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
