"""Names of objects in the cluster for shell completion: quickly, or none at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import RebalancerError
from rebalancer.base.stop import Stop

_SECONDS = 2.0
"""A person waits for it at a prompt."""
_MOST = 500
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def nodes(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return the names of nodes that start with ``begun``."""
    return _items(_names(context, "/api/v1/nodes"), begun)


def namespaces(
    context: click.Context, _parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Return the namespaces that start with ``begun``."""
    return _items(_names(context, "/api/v1/namespaces"), begun)


def pods(context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Return namespaces as ``NAMESPACE/``; after the slash, the pods of that namespace."""
    namespace, slash, _ = begun.partition("/")
    if not slash:
        # As directories are: no space follows, so that the name can.
        return _items([f"{name}/" for name in _names(context, "/api/v1/namespaces")], begun)
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    return _items([f"{namespace}/{name}" for name in _names(context, path)], begun)


def _items(names: list[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(begun)]


def _names(context: click.Context, path: str) -> list[str]:
    from rebalancer.kube.client import connect  # noqa: PLC0415

    clock = SystemClock()
    flags = context.params
    try:
        client = connect(
            kubeconfig=flags.get("kubeconfig"),
            context=flags.get("context_name"),
            environ=os.environ,
            stop=Stop(clock, clock.now() + _SECONDS),
        )
        answer = client.get(path, query={"limit": str(_MOST)}, accept=_NAMES_ONLY, seconds=_SECONDS)
        items = json.loads(answer.body)["items"]
        return sorted(item["metadata"]["name"] for item in items)
    except (RebalancerError, ValueError, KeyError, TypeError):
        # A prompt is no place for messages.
        return []
