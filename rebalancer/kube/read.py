"""Read the whole cluster from the API server into a Snapshot, and the scheduler's configuration that a policy names."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.kube.access import missing_lists
from rebalancer.kube.client import Client
from rebalancer.kube.failures import ForbiddenError, says_missing
from rebalancer.kube.lists import (
    PAGE,
    STREAMS_SINCE,
    Listing,
    ListOptions,
    list_whole,
    read_late,
    read_objects,
    read_pods,
    restarting,
    scale_out_selector,
)
from rebalancer.kube.metrics import MetricsList, UsageSource, read_metrics, usage_notes
from rebalancer.kube.resources import AccessRule
from rebalancer.policy.cluster import ConfigMapKey
from rebalancer.policy.kube_scheduler import KubeSchedulerConfiguration, read_configuration
from rebalancer.snapshot.autoscalers import SCALE_OUT_REASONS, fold_scale_outs
from rebalancer.snapshot.build import Fold
from rebalancer.snapshot.model import Snapshot
from rebalancer.wire.kinds import (
    AFTER_PODS,
    CONFIG_MAPS,
    EVENTS,
    METRICS,
    PODS,
)
from rebalancer.wire.objects import ObjectMeta, PodEvent
from rebalancer.wire.pods import PodRecord


@dataclass(frozen=True, slots=True)
class Readings:
    """Facts for the report on the API server, and on how its lists were read."""

    server: str
    server_version: str
    """The server's version in its own form: ``v1.36.3``."""
    clock_skew: float | None
    """Seconds by which the server's clock is ahead of ours, to within a second; None if it has none."""
    read_bytes: int
    seconds: float
    notes: tuple[str, ...]
    """Notes for the report: lists that are not of one moment, or had to be read in pages."""


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """A snapshot with its readings."""

    snapshot: Snapshot
    readings: Readings
    kept: Kept | None = None
    """The data needed to follow the cluster from here on, if requested."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A cluster that was read and can be kept current by watches (``rebalancer.kube.cache``)."""

    fold: Fold
    how: ListOptions
    listings: tuple[Listing, ...]
    """The lists that were read, pods first."""
    snapshot: Snapshot
    at: float
    """The client's monotonic time when the snapshot was captured."""


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The version that the API server reports."""

    numbers: tuple[int, int]
    text: str
    date: float | None = None
    """Time of the answer, in Unix seconds by the server's clock; None if the server does not send it."""


def read_cluster(
    client: Client,
    *,
    clock: Callable[[], float],
    page_size: int | None = None,
    threads: int = 4,
    keep: bool = False,
    usage: UsageSource | None = None,
    finished: frozenset[str] = frozenset(),
    autoscalers: bool = False,
    progress: Callable[[], object] = lambda: None,
    jobs: list[ObjectMeta] | None = None,
) -> ClusterReading:
    """Read everything that a plan needs.

    Pods are folded as they arrive, while ``threads`` threads read the other lists; ReplicaSets and Jobs come last,
    since most of them own no pod. Without ``page_size``, a server of 1.33 or later sends each list as one response,
    and others send pages of ``PAGE``; all servers do so after a long response was interrupted. ``clock`` is our own,
    Unix seconds: ``captured_at`` is the server's time (its Date header at the first page of pods) unless it sends
    none. With ``keep``, the data are kept, so that changes can be followed. Measured usage is read from ``usage``;
    if it is unavailable, a note is added, and usage is unknown. Of finished pods only those in the phases
    ``finished`` are read, and HorizontalPodAutoscalers only with ``autoscalers``. ``progress`` is called while pods
    arrive. ``jobs`` gets the metadata of all Jobs, of which the snapshot keeps those with pods.

    Raises:
        ForbiddenError: some lists are forbidden; the message names all of them.
        ClusterReadError: unreachable, unauthorised, or a list is incomplete: there is no snapshot then.
    """
    started = client.monotonic()
    ahead = clock() - started
    version = read_version(client)
    how = ListOptions(
        PAGE if page_size is None else page_size,
        page_size is None and version.numbers >= STREAMS_SINCE,
        finished,
        autoscalers=autoscalers,
    )
    try:
        fold, listings, missing, metrics = _read_lists(client, how, threads, usage, progress, jobs)
    except ForbiddenError as error:
        every = missing_lists(
            client,
            (PODS, *how.independent, *AFTER_PODS),
            threads=threads,
            also=usage.rules if usage else (),
        )
        raise ForbiddenError({*error.missing, *every}, account=error.account) from None
    pods = listings[0]
    received = pods.local_date + ahead
    finish = fold.settle().snapshot if keep else fold.finish
    snapshot = finish(
        captured_at=received if pods.server_date is None else pods.server_date,
        version=version.numbers,
        missing=missing,
        resource_version=pods.items_version,
    )
    fold.forget_metrics()
    readings = _readings(
        client, version, listings, metrics, usage, started=started, received=received
    )
    kept = Kept(fold, how, tuple(listings), snapshot, pods.local_date) if keep else None
    return ClusterReading(snapshot, readings, kept)


def _readings(
    client: Client,
    version: ServerVersion,
    listings: Sequence[Listing],
    metrics: Sequence[MetricsList],
    usage: UsageSource | None,
    *,
    started: float,
    received: float,
) -> Readings:
    """Return what reading showed. ``started``: the client's time; ``received``: our clock at the first page of pods."""
    read = [*listings, *(each.listing for each in metrics)]
    troubles = [(each.listing.resource, each.trouble) for each in metrics]
    server_date = listings[0].server_date
    return Readings(
        server=client.server,
        server_version=version.text,
        # The Date header is cut to the second: half a second is its mean error.
        clock_skew=None if server_date is None else server_date + 0.5 - received,
        read_bytes=sum(listing.read_bytes for listing in read),
        seconds=client.monotonic() - started,
        notes=(
            *(note for listing in read for note in listing.notes),
            *(() if usage is None else usage_notes(usage, troubles)),
        ),
    )


def read_version(client: Client) -> ServerVersion:
    """Return the API server's version.

    Raises:
        ClusterReadError: it could not be read, or the server is not an API server.
    """
    response = client.expect(client.get("/version"), AccessRule("get", "", "/version"))
    try:
        info = msgspec.json.decode(response.body, type=dict[str, str])
        # Managed clusters write the minor version as "36+".
        numbers = tuple(int(re.match(r"\d+", info[key])[0]) for key in ("major", "minor"))  # type: ignore[index]
        return ServerVersion((numbers[0], numbers[1]), info.get("gitVersion", ""), response.date)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ClusterReadError(
            f"{client.server} is not a Kubernetes API server: its /version is not one"
        ) from None


def _read_lists(
    client: Client,
    how: ListOptions,
    threads: int,
    usage: UsageSource | None,
    progress: Callable[[], object],
    jobs: list[ObjectMeta] | None,
) -> tuple[Fold, list[Listing], tuple[str, ...], list[MetricsList]]:
    """Return the fold of everything, the listings (pods first), resources that are not served, and metrics lists.

    The metrics of ``usage`` are in the fold if all of their lists could be read.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(threads, "lists") as pool:
        futures = [
            pool.submit(read_objects, client, resource, how, stop) for resource in how.independent
        ]
        of_usage = [
            pool.submit(read_metrics, usage, resource, stop)
            for resource in METRICS
            if usage is not None
        ]
        others: list[Future[Any]] = [*futures, *of_usage]
        try:
            fold, pods = read_pods(
                client, how, lambda records: _watching(records, others, progress)
            )
            late = [read_late(client, resource, how, fold, jobs) for resource in AFTER_PODS]
            early = [future.result() for future in futures]
            metrics = [future.result() for future in of_usage]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    for listing, objects in early:
        fold.add(listing.resource.kind, objects)
    if all(each.trouble is None for each in metrics):
        for each in metrics:
            fold.take_metrics(each.fold)
    listings = [pods, *(listing for listing, _ in early), *late]
    missing = tuple(
        f"{listing.resource.plural}: the API server does not serve them"
        for listing in listings
        if not listing.pages
    )
    return fold, listings, missing, metrics


def _watching(
    records: Iterable[PodRecord], others: list[Future[Any]], progress: Callable[[], object]
) -> Iterator[PodRecord]:
    """Yield the records, but abort the long list of pods as soon as another list has failed."""
    for number, record in enumerate(records):
        if number % PAGE == 0:
            progress()
            _raise_failure(others)
        yield record


def _raise_failure(futures: list[Future[Any]]) -> None:
    for future in futures:
        if future.done():
            future.result()


_MAX_NAMESPACES = 4
"""Of more namespaces the Events are listed all at once."""


def read_scale_outs(client: Client, snapshot: Snapshot) -> Mapping[str, str]:
    """Return uid -> reason for the unschedulable pods for which an Event announces a new machine.

    Without pending pods no request is sent. Anyone who may create Events can write such a reason.

    Raises:
        ForbiddenError: RBAC denied it; names the rule.
        ClusterReadError: a list could not be read.
    """
    waiting = snapshot.unschedulable_pods()
    pods, classes = snapshot.pods, snapshot.classes
    namespaces = sorted({classes[cls].namespace for cls in pods.cls[waiting].tolist()})
    if len(namespaces) > _MAX_NAMESPACES:
        namespaces = [""]
    events = (
        event
        for namespace in namespaces
        for reason in SCALE_OUT_REASONS
        for event in restarting(partial(_list_events, client, namespace, reason))
    )
    uids = {pods.uid[pod] for pod in waiting.tolist()}
    reasons = fold_scale_outs(events)
    return {uid: reasons[uid] for uid in sorted(uids & reasons.keys())}


def _list_events(client: Client, namespace: str, reason: str, may_restart: bool) -> list[PodEvent]:
    selector = scale_out_selector(reason)
    return list_whole(
        client, EVENTS, selector=selector, namespace=namespace, may_restart=may_restart
    )


def scheduler_rules(of: ConfigMapKey) -> tuple[AccessRule, ...]:
    """Return the right needed to read it: get on this one ConfigMap."""
    return (AccessRule.of("get", CONFIG_MAPS, *of.place),)


def read_scheduler_config(client: Client, of: ConfigMapKey) -> KubeSchedulerConfiguration:
    """Return the configuration in the ConfigMap that a policy names.

    Raises:
        ClusterReadError: the ConfigMap could not be read, or does not exist.
        PolicyError: the configuration is invalid; each problem has its line in the text below the key.
    """
    name = f"ConfigMap {of.config_map}"
    response = client.get(CONFIG_MAPS.path(*of.place))
    if says_missing(response.status, response.body):
        raise ClusterReadError(f"{name} is not there; check scheduler.fromConfig.configMap")
    try:
        data = msgspec.json.decode(client.expect(response, *scheduler_rules(of)).body, type=_Shape)
    except (ValueError, RecursionError):
        raise ClusterReadError(f"what was answered for {name} is no ConfigMap") from None
    text = (data.data or {}).get(of.key)
    if text is None:
        keys = ", ".join(sorted(data.data or {})) or "nothing"
        raise ClusterReadError(
            f"{name} has no key {of.key}; check scheduler.fromConfig.key (it holds {keys})"
        )
    configuration, problems = read_configuration(text.encode(), f"{name}, {of.key}")
    if configuration is None:
        raise PolicyError([str(problem) for problem in problems])
    return configuration


class _Shape(msgspec.Struct):
    data: dict[str, str] | None = None
