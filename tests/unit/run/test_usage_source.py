"""Which source of usage a policy names, and what the command line says of one that no strategy asks."""

import pytest

from rebalancer.cli import command

POLICY = """apiVersion: rebalancer/v1
kind: Policy
usage: {{prometheus: {{url: "https://p:9091", nodes: {{cpu: up}}}}}}
strategies:
  low-utilisation: {{signal: {signal}, mode: {mode}}}
"""


@pytest.mark.parametrize(
    ("signal", "mode", "warns"),
    [("usage", "enforce", False), ("requests", "enforce", True), ("usage", "off", True)],
)
def test_prometheus_that_is_asked_for_nothing_is_named(tmp_path, capsys, signal, mode, warns):
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.format(signal=signal, mode=mode))
    assert command(["policy", "check", str(file)]) == 0
    says = "usage.prometheus has no effect: no strategy judges by usage"
    assert (says in capsys.readouterr().err) == warns


def test_a_policy_for_a_snapshot_without_usage_is_refused(tmp_path, capsys):
    assert command(["snapshot", "-o", str(tmp_path / "x.zip"), "--policy", "policy.yaml"]) == 2
    assert "give both" in capsys.readouterr().err
