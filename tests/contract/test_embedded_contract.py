"""The contract, kept by the embedded cluster."""

from tests.contract.api_rules import *  # noqa: F403 - every test of the contract
from tests.contract.controller_rules import *  # noqa: F403
from tests.contract.placement_rules import *  # noqa: F403
