"""Credentials by a web identity, as pods of EKS have them (IRSA): a token in a file, a role, and the STS of moto."""

import os

import pytest

from rebalancer.machines.aws import services, sqs
from rebalancer.signals.model import SignalError
from tests.aws.cloud import ACCOUNT, CREDENTIALS
from tests.aws.messages import state
from tests.aws.test_sqs import Ground
from tests.aws.test_steps import pytestmark as pytestmark  # noqa: PLC0414  # moto's open files

ROLE = f"arn:aws:iam::{ACCOUNT}:role/rebalancer"


@pytest.fixture
def identity(cloud, monkeypatch, tmp_path):
    """The environment that EKS's webhook gives to a pod, and the file of its token; no other credentials."""
    monkeypatch.setattr(sqs, "MAX_RECEIVE", 1.0)
    ground = Ground(cloud)
    ground.send(state("i-1", "stopping"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    token = tmp_path / "token"
    for name, value in {
        "AWS_ROLE_ARN": ROLE,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ENDPOINT_URL_STS": cloud.url,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_CONFIG_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(name, value)
    caches = (services._session, services._make_client)
    for cache in caches:
        cache.cache_clear()
    yield ground, token
    for cache in caches:
        cache.cache_clear()


def test_a_pod_acts_with_the_credentials_that_sts_gives_for_its_token(cloud, identity):
    ground, token = identity
    token.write_text("header.payload.signature")
    (one,) = ground.receive(ground.opened())
    assert one.instance == "i-1"
    assert cloud.identities == [("AssumeRoleWithWebIdentity", ROLE, "header.payload.signature")]
    # Temporary ones, and not those of the tests.
    (key,) = {key for call, key in cloud.keys if call == "sqs:ReceiveMessage"}
    assert key.startswith("ASIA")
    assert key != CREDENTIALS["AWS_ACCESS_KEY_ID"]


def test_a_token_that_is_not_there_is_named(identity):
    ground, token = identity
    with pytest.raises(SignalError, match=str(token)):
        ground.receive(ground.opened())
