"""The step ``sns``: publish to a topic that a machine will be interrupted, or the outcomes of earlier steps."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rebalancer.base.plain_text import printable
from rebalancer.machines.aws.steps import AwsParams, sent_once
from rebalancer.machines.interruption.model import StepContext
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.wire.times import rfc3339

_FIFO = ".fifo"
"""What the names of FIFO topics end with, and no other's."""
_LONGEST_GROUP = 128
_LONGEST_SUBJECT = 99
"""Characters; SNS takes fewer than 100, in ASCII and without line ends."""


class SnsParams(AwsParams):
    """Options of the step sns."""

    topic: str = Field(min_length=1, description="ARN of the topic.")


class Sns:
    """Publishes to an SNS topic: as the first step the interruption, as the last step the outcome of each step."""

    Params: ClassVar[type[StepParams]] = SnsParams

    def act(self, context: StepContext, params: SnsParams) -> StepOutcome:
        """Publish the message."""
        topics = params.service("sns", context)
        return sent_once(
            context,
            f"topic {params.topic}: publish",
            lambda: topics.publish(
                TopicArn=params.topic,
                Subject=subject(context),
                Message=message(context),
                **_deduplicated(context, params.topic),
            ),
        )


def _deduplicated(context: StepContext, topic: str) -> dict[str, str]:
    """Return the group and deduplication ids for a FIFO topic; empty for other topics.

    They may have 128 letters, digits and punctuation marks (API reference of SNS, Publish).
    """
    if not topic.endswith(_FIFO):
        return {}
    machine = (context.instance or context.node)[:_LONGEST_GROUP]
    return {"MessageGroupId": machine, "MessageDeduplicationId": context.idempotency_key}


def subject(context: StepContext) -> str:
    """Return the subject line of the message."""
    text = f"{context.node or context.instance}: {context.interruption.kind}"
    return printable(text).encode("ascii", "replace").decode()[:_LONGEST_SUBJECT]


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
