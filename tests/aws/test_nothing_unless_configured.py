"""Nothing of AWS is imported unless it is used, and what is missing then is said."""

import subprocess
import sys

import pytest

from rebalancer.machines.aws import services
from rebalancer.signals.model import SignalError

LOADS_ALL = """
import sys
from rebalancer.registry import Registry
registry = Registry.installed()
for kind in (registry.signals, registry.steps):
    assert {"sqs", "deregister", "quarantine", "lambda", "sns"} & set(kind)
    for name in kind:
        kind[name].model_json_schema()
import rebalancer.commands.node_agent
import rebalancer.machines.aws.agent
bad = [name for name in sys.modules if name.partition(".")[0] in ("boto3", "botocore", "moto")]
assert not bad, bad
"""


def test_options_of_sources_and_steps_are_read_without_boto3():
    done = subprocess.run(
        [sys.executable, "-c", LOADS_ALL], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_a_library_that_is_missing_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    services._make_client.cache_clear()
    services._session.cache_clear()
    with pytest.raises(SignalError, match=r"pip install '\.\[aws\]'"):
        services.service("sqs", "eu-west-1")
