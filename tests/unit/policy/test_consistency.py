"""What the strategies of a policy mean for one another, with those of this distribution."""

import pytest

from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry


@pytest.mark.parametrize(
    ("strategies", "warned"),
    [
        ("low-utilisation: {}, scale-in: {}", True),
        ("low-utilisation: {mode: off}, scale-in: {}", False),
        ("low-utilisation: {}, scale-in: {mode: off}", False),
        ("low-utilisation: {}, scale-out: {}", False),
        ("taints: {}, scale-in: {}", False),
        (
            "low-utilisation: {select: {nodes: {pool: a}}}, scale-in: {select: {nodes: {pool: b}}}",
            False,
        ),
    ],
)
def test_what_fills_the_nodes_that_scale_in_removes_is_warned_of(tmp_path, strategies, warned):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nprovider: {aws: {names: [a]}}\n"
        f"strategies: {{{strategies}}}\n"
    )
    warnings = load_policy(str(path), Registry.installed()).warnings
    assert any(": low-utilisation moves pods onto nodes" in one for one in warnings) is warned
