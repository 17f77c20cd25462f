"""Shared code of the pipeline steps on AWS: their region, and the machine of the interruption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from rebalancer.machines.aws.services import asking, region_of_environment, region_of_node, service
from rebalancer.machines.interruption.model import DONE, StepContext
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams


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


def sent_once(context: StepContext, what: str, send: Callable[[], object]) -> StepOutcome:
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
