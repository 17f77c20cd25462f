"""What the steps of the pipeline on AWS have in common: their region, and the machine they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from rebalancer.machines.aws.services import asking, region_of_environment, region_of_node, service
from rebalancer.machines.interruption.model import DONE, StepContext
from rebalancer.plan.machines import StepOutcome
from rebalancer.policy.interruption import StepParams


class AwsParams(StepParams):
    """Options that all steps on AWS have."""

    region: str = Field(
        default="", description="Absent: that of the node's machine, or else of AWS_REGION."
    )
    endpoint: str = Field(default="", description="An address in the place of AWS's.")

    def service(self, name: str, context: StepContext) -> Any:
        """Return the client of a service.

        Raises:
            SignalError: there can be none.
        """
        region = (
            self.region
            or region_of_node(context.interruption.provider_id)
            or region_of_environment(context.environ)
        )
        return service(name, region, self.endpoint)


def sent_once(context: StepContext, what: str, send: Callable[[], object]) -> StepOutcome:
    """Send it, unless that was done in this pipeline run; a process that is killed right after the call sends it again.

    ``what``: what is done, for the error's text.

    Raises:
        SignalError: AWS refused it, or could not be reached.
    """
    if context.left != context.idempotency_key:
        with asking(what):
            send()
        context.keep(context.idempotency_key)
    return DONE
