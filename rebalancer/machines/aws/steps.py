"""Shared code of the pipeline steps on AWS; the steps ``lambda`` (invokes a function) and ``sns`` (publishes to a topic)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from pydantic import Field

from rebalancer.base.plain_text import printable
from rebalancer.machines.aws.services import asking, region_of_environment, region_of_node, service
from rebalancer.machines.interruption.model import DONE, StepContext
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.wire.times import rfc3339


class AwsParams(StepParams):
    """Options of all steps on AWS."""

    region: str = Field(
        default="", description="Absent: that of the node's machine, or else of AWS_REGION."
    )
    endpoint: str = Field(default="", description="An address in the place of AWS's.")

    def service(self, name: str, context: StepContext) -> Any:
        """Return the client of a service.

        Raises:
            SignalError: no client can be created.
        """
        region = (
            self.region
            or region_of_node(context.interruption.provider_id)
            or region_of_environment(context.environ)
        )
        return service(name, region, self.endpoint)


def send_once(context: StepContext, what: str, send: Callable[[], object]) -> StepOutcome:
    """Run ``send`` unless this pipeline run has done so; a process killed right after the call sends again.

    ``what``: the act, for the error message.

    Raises:
        SignalError: AWS refused the request, or could not be reached.
    """
    if context.left != context.idempotency_key:
        with asking(what):
            send()
        context.keep(context.idempotency_key)
    return DONE


class LambdaParams(AwsParams):
    """Options of the step lambda."""

    function: str = Field(min_length=1, description="Name or ARN of the function.")


class Lambda:
    """Invokes a Lambda function asynchronously, with the instance, the node and the interruption."""

    Params: ClassVar[type[StepParams]] = LambdaParams

    def act(self, context: StepContext, params: LambdaParams) -> StepOutcome:
        """Invoke the function.

        The idempotency key is in the payload, because a client context does not reach functions that are invoked
        asynchronously (API reference of Lambda, Invoke).
        """
        one = context.interruption
        payload = {
            "id": one.id,
            "kind": one.kind,
            "instance-id": context.instance,
            "node": context.node,
            "deadline": None if context.deadline is None else rfc3339(context.deadline),
            "reason": one.reason,
            "idempotency-key": context.idempotency_key,
        }
        functions = params.service("lambda", context)
        return send_once(
            context,
            f"function {params.function}: invoke",
            lambda: functions.invoke(
                FunctionName=params.function,
                InvocationType="Event",
                Payload=msgspec.json.encode(payload),
            ),
        )


_FIFO = ".fifo"
"""Suffix of the names of FIFO topics, and of no others."""
_MAX_GROUP = 128
_MAX_SUBJECT = 99
"""Characters; SNS accepts fewer than 100, in ASCII and without line ends."""


class SnsParams(AwsParams):
    """Options of the step sns."""

    topic: str = Field(min_length=1, description="ARN of the topic.")


class Sns:
    """Publishes to an SNS topic: as the first step the interruption, as the last step the outcome of each step."""

    Params: ClassVar[type[StepParams]] = SnsParams

    def act(self, context: StepContext, params: SnsParams) -> StepOutcome:
        """Publish the message."""
        topics = params.service("sns", context)
        return send_once(
            context,
            f"topic {params.topic}: publish",
            lambda: topics.publish(
                TopicArn=params.topic,
                Subject=subject(context),
                Message=message(context),
                **_deduplicate(context, params.topic),
            ),
        )


def _deduplicate(context: StepContext, topic: str) -> dict[str, str]:
    """Return the group and deduplication ids for a FIFO topic; empty for other topics.

    They may have 128 letters, digits and punctuation marks (API reference of SNS, Publish).
    """
    if not topic.endswith(_FIFO):
        return {}
    machine = (context.instance or context.node)[:_MAX_GROUP]
    return {"MessageGroupId": machine, "MessageDeduplicationId": context.idempotency_key}


def subject(context: StepContext) -> str:
    """Return the subject line of the message."""
    text = f"{context.node or context.instance}: {context.interruption.kind}"
    return printable(text).encode("ascii", "replace").decode()[:_MAX_SUBJECT]


def message(context: StepContext) -> str:
    """Return the message: the interruption, then a line for each finished step."""
    one = context.interruption
    until = "not known" if context.deadline is None else rfc3339(context.deadline)
    facts = {
        "Node": context.node or "-",
        "Instance": context.instance or "-",
        "Event": f"{one.kind} ({one.reason or one.id})",
        "Deadline": until,
        "Written": rfc3339(context.unix()),
    }
    lines = [f"{name + ':':<10}{value}" for name, value in facts.items()]
    if context.outcomes:
        width = max(map(len, context.outcomes))
        lines += ["", "Steps:"]
        lines += [
            f"  {name:<{width}}  {outcome.status}{f': {outcome.why}' if outcome.why else ''}"
            for name, outcome in context.outcomes.items()
        ]
    return "\n".join(map(printable, lines)) + "\n"
