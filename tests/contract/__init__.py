"""What both grounds have to agree on: the embedded cluster and a real control plane."""

import pytest

pytest.register_assert_rewrite(
    "tests.contract.api_rules", "tests.contract.controller_rules", "tests.contract.placement_rules"
)
