"""Mute and webhook: one HTTP request with a JSON body filled in with data of the interruption."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field, field_validator, model_validator

from rebalancer.base.data_text import fill, names_in
from rebalancer.base.plain_text import printable
from rebalancer.base.sending import SendingError, check_url, send
from rebalancer.machines.interruption.model import DONE, StepContext, fail_step
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.policy.values import Section
from rebalancer.signals.model import SignalError
from rebalancer.wire.times import rfc3339

IDEMPOTENCY_KEY = "Idempotency-Key"
"""Header of each request; see "The Idempotency-Key HTTP Header Field" (IETF draft), and the APIs that have it."""
PLACEHOLDERS = (
    "node",
    "instance",
    "kind",
    "source",
    "reason",
    "deadline",
    "id",
    "result",
    "summary",
)
"""The names that may follow ``$`` in a body or an address."""
_BODY: dict[str, Any] = {
    "node": "$node",
    "instance": "$instance",
    "kind": "$kind",
    "deadline": "$deadline",
    "reason": "$reason",
    "result": "$result",
    "summary": "$summary",
}


class Request(Section):
    """One HTTP request."""

    url: str = Field(
        default="", description="http or https address; $node and the like are filled in."
    )
    url_from: str = Field(
        default="",
        description="Name of the environment variable that holds the address, where that is a secret.",
    )
    method: Literal["POST", "PUT", "PATCH", "DELETE"] = Field(
        default="POST", description="Its method."
    )
    body: dict[str, Any] | list[Any] = Field(
        default=_BODY,
        description="JSON; in its texts $node, $instance, $kind, $source, $reason, $deadline, $id, $result and $summary"
        " are filled in.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Request:
        if bool(self.url) == bool(self.url_from):
            raise ValueError("write url, or urlFrom with the name of an environment variable")
        if self.url:
            try:
                check_url(self.url)
            except SendingError as error:
                raise ValueError(f"url {error}") from None
        return self

    @field_validator("url", "body")
    @classmethod
    def _check_placeholders(cls, value: Any) -> Any:
        unknown = sorted({*names_in(value)} - {*PLACEHOLDERS})
        if unknown:
            known = ", ".join(f"${one}" for one in PLACEHOLDERS)
            raise ValueError(f"${unknown[0]} is no placeholder; known: {known}")
        return value


class WebhookParams(Request, StepParams):
    """Options of the step webhook."""

    needs_node: ClassVar[bool] = False

    def part(self) -> timedelta | float | None:
        """Return five seconds, the maximum for one request."""
        return timedelta(seconds=6)


class MuteParams(WebhookParams):
    """Options of the step mute."""

    lift: Request | None = Field(
        default=None, description="The request that takes it back, should the machine stay."
    )


class Webhook:
    """Sends one HTTP request with a JSON body: placed first, at the detection; placed last, with the outcomes of steps."""

    Params = WebhookParams

    def act(self, context: StepContext, params: WebhookParams) -> StepOutcome:
        """Send the request."""
        why = _send(context, params, context.idempotency_key)
        return DONE if why is None else fail_step(why)


class Mute(Webhook):
    """Sends one HTTP request that mutes the monitoring of the machine, and another one if it stays."""

    Params = MuteParams

    def undo(self, context: StepContext, params: MuteParams) -> None:
        """Send the request that unmutes the monitoring."""
        if params.lift is None:
            return
        # Another request than that of the step: under the same key, a receiver would answer it as the first one.
        why = _send(context, params.lift, f"{context.idempotency_key}-undo")
        if why is not None:
            raise SignalError(why)


def _send(context: StepContext, request: Request, key: str) -> str | None:
    """Send a request; return why it failed, or None. ``key``: identifies repeated deliveries."""
    values = dict(_values(context))
    url = request.url or context.environ.get(request.url_from, "")
    if not url:
        return f"the environment variable {request.url_from} is not set"
    # The source of the interruption does not choose the path: what is filled in stays one piece of it.
    in_url = {name: quote(value, safe="") for name, value in values.items()}
    url = string.Template(url).safe_substitute(in_url)
    headers = {"Content-Type": "application/json", IDEMPOTENCY_KEY: key}
    try:
        send(request.method, url, fill(request.body, values), headers, context.stop)
    except SendingError as error:
        return str(error)
    return None


def _values(context: StepContext) -> Iterator[tuple[str, str]]:
    interruption, outcomes = context.interruption, context.outcomes
    deadline = "" if context.deadline is None else rfc3339(context.deadline)
    good = all(one.is_good for one in outcomes.values())
    values: Mapping[str, str] = {
        "node": context.node,
        "instance": context.instance,
        "kind": interruption.kind,
        "source": interruption.source,
        "reason": interruption.reason,
        "deadline": deadline,
        "id": interruption.id,
        "result": "begins" if not outcomes else "done" if good else "incomplete",
        "summary": "; ".join(f"{name} {one}" for name, one in outcomes.items())
        or f"{context.node or context.instance} goes{f' at {deadline}' if deadline else ' soon'}",
    }
    for name, value in values.items():
        yield name, printable(value)[:2000]
