"""The policy of a process that serves: read again before each run, the last right one in force."""

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.policy.model import Mode
from rebalancer.registry import Registry
from rebalancer.run.options import PolicyFlags
from rebalancer.serve.loop import PolicyInForce
from tests.unit.commands.embedded import NOW_POLICY

OBSERVE = f"{NOW_POLICY}\nmode: observe\n"


def test_a_wrong_policy_leaves_the_last_right_one_in_force_until_it_is_mended(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(OBSERVE)
    made = PolicyInForce(PolicyFlags(policy_path=str(path)), Registry.installed())
    for text, says, mode in (
        ("strategies: {no-such: {}}\n" + NOW_POLICY, "stays in force", Mode.OBSERVE),
        ("{", "stays in force", Mode.OBSERVE),
        (NOW_POLICY, None, Mode.ENFORCE),
        (None, "stays in force", Mode.ENFORCE),
    ):
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        flaw = made.refresh()
        assert (flaw is None) == (says is None)
        assert says is None or says in str(flaw)
        assert made.loaded.policy.mode is mode


def test_standard_input_is_refused_since_it_cannot_be_read_again():
    with pytest.raises(PolicyError, match="name a file"):
        PolicyInForce(PolicyFlags(policy_path="-"), Registry.installed())
