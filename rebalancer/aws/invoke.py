"""The step ``lambda``: a function is called, and nobody waits for it."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from pydantic import Field

from rebalancer.aws.services import asking
from rebalancer.aws.steps import AwsParams
from rebalancer.interruption.model import DONE, StepContext
from rebalancer.policy.interruption import StepParams
from rebalancer.signals.model import StepOutcome
from rebalancer.wire.times import rfc3339

_SENT = "invoked"


class LambdaParams(AwsParams):
    """Options of the step lambda."""

    function: str = Field(min_length=1, description="Name or ARN of the function.")


class Lambda:
    """Invokes a function of Lambda asynchronously, with the instance, the node and what is known of its end."""

    Params: ClassVar[type[StepParams]] = LambdaParams

    def act(self, context: StepContext, params: LambdaParams) -> StepOutcome:
        """See Step. A process that is killed right after the call makes it again; the payload has the event's id."""
        if context.left == _SENT:
            return DONE
        one = context.interruption
        payload = {
            "id": one.id,
            "kind": one.kind,
            "instance-id": context.instance,
            "node": context.node,
            "deadline": None if context.deadline is None else rfc3339(context.deadline),
            "reason": one.reason,
        }
        functions = params.service("lambda", context)
        with asking(f"function {params.function}: invoke"):
            functions.invoke(
                FunctionName=params.function,
                InvocationType="Event",
                Payload=msgspec.json.encode(payload),
            )
        context.keep(_SENT)
        return DONE
