"""The policy section about measured usage of nodes and pods: where the measurements come from."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from rebalancer.base.durations import format_duration, parse_go_duration
from rebalancer.policy.values import Duration, PositiveDuration, Section

_RANGE = re.compile(r"\[\s*((?:\d+(?:ms|[smhdwy]))+)\s*[:\]]", re.ASCII)
_DAYS = {"d": 1, "w": 7, "y": 365}
_LONG = re.compile(r"(\d+)([dwy])", re.ASCII)


def looks_back(query: str) -> timedelta:
    """Return the longest range (``[5m]``) in a PromQL query."""
    return max(map(_span, _RANGE.findall(query)), default=timedelta(0))


def _span(text: str) -> timedelta:
    hours = _LONG.sub(lambda part: f"{int(part[1]) * _DAYS[part[2]] * 24}h", text)
    return parse_go_duration(hours)


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        # Spaces before it are ignored, and line ends in it: neither is to pass for another address.
        usable = usable and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("is no address; write https://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user or password, which policies show; write tokenFile")
    if parts.query or parts.fragment:
        raise ValueError("ends in a query or fragment; write https://HOST[:PORT][/PATH]")
    return url


Address = Annotated[str, AfterValidator(_address)]
Query = Annotated[str, Field(min_length=1, max_length=4000)]
Queries = dict[Literal["cpu", "memory"], Query]


class Prometheus(Section):
    """A server that answers PromQL queries. Each sample belongs to one node or one pod."""

    url: Address = Field(
        description="Address, to which /api/v1/query is added; a token is sent over https only."
    )
    nodes: Queries = Field(
        min_length=1,
        description="Query of what each node uses of cpu, memory or both; of the other nothing is known.",
    )
    unit: Literal["amount", "share"] = Field(
        default="amount",
        description="What nodes gives: amount (cores, bytes) or share (of the node's allocatable, 0 to 1).",
    )
    node_label: str = Field(
        default="node",
        min_length=1,
        description="Label of these samples that has the node's name.",
    )
    pods: Queries = Field(
        default_factory=dict,
        description="Query of what each pod uses, in cores and bytes, with the labels namespace and pod; absent: what it requests.",
    )
    window: Duration = Field(
        default=timedelta(minutes=5),
        description="How far the queries look back. After moves, usage moves nothing for so long.",
    )
    token_file: str | None = Field(
        default=None, min_length=1, description="File with the bearer token; read at each run."
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with the authorities to trust (PEM); absent: the system's.",
    )
    timeout: PositiveDuration = Field(
        default=timedelta(seconds=10), description="Longest wait for the answers."
    )

    @model_validator(mode="after")
    def _possible(self) -> Prometheus:
        plain = urlsplit(self.url).scheme == "http"
        if plain and self.token_file is not None:
            raise ValueError(
                "tokenFile needs an https url: over http everybody on the way reads it"
            )
        if plain and self.ca_file is not None:
            raise ValueError("caFile needs an https url")
        if self.pods and set(self.pods) != set(self.nodes):
            raise ValueError("nodes and pods must have queries of the same resources")
        for key, queries in (("nodes", self.nodes), ("pods", self.pods)):
            for resource, query in queries.items():
                if (back := looks_back(query)) > self.window:
                    longer = format_duration(back)
                    raise ValueError(
                        f"{key}.{resource} looks back {longer}, further than window; write window: {longer}"
                    )
        return self


class UsageSettings(Section):
    """The source of measured usage, for strategies that judge by it."""

    prometheus: Prometheus | None = Field(
        default=None, description="Prometheus; absent: metrics.k8s.io (metrics-server)."
    )
