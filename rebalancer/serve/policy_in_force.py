"""The policy of a process that serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.base.errors import PolicyError, RebalancerError
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.run.options import PolicyFlags


@dataclass(slots=True)
class PolicyInForce:
    """The policy, read again before each run; one that became wrong leaves the last right one in force.

    Raises:
        RebalancerError: it is wrong from the beginning.
    """

    flags: PolicyFlags
    registry: Registry
    loaded: LoadedPolicy = field(init=False)

    def __post_init__(self) -> None:
        if self.flags.policy_path == "-":
            raise PolicyError(["--policy -: standard input cannot be read again; name a file"])
        self.loaded = self.flags.load(self.registry)

    def refresh(self) -> str | None:
        """Read it again; return why the policy that was read before stays in force, None if it does not."""
        try:
            self.loaded = self.flags.load(self.registry)
        except RebalancerError as error:
            return f"the policy is wrong, and the one that was read before stays in force: {error}"
        return None
