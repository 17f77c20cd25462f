"""The step ``lambda``: invoke a function without waiting for its result."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from pydantic import Field

from rebalancer.machines.aws.steps import AwsParams, sent_once
from rebalancer.machines.interruption.model import StepContext
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams
from rebalancer.wire.times import rfc3339


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
        return sent_once(
            context,
            f"function {params.function}: invoke",
            lambda: functions.invoke(
                FunctionName=params.function,
                InvocationType="Event",
                Payload=msgspec.json.encode(payload),
            ),
        )
