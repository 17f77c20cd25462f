"""A cloud for each module of tests."""

import time

import pytest

from tests.aws.cloud import CREDENTIALS, in_the_cloud


@pytest.fixture(scope="module")
def region():
    with in_the_cloud(time.monotonic) as made:
        yield made


@pytest.fixture
def cloud(region, monkeypatch):
    """The module's cloud, as it was in the beginning, and credentials that it takes."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for kept in (
        region.calls,
        region.ours,
        region.keys,
        region.identities,
        region.heartbeats,
        region.completed,
        region.invoked,
    ):
        kept.clear()
    for each in (region.waiting, region.activities, region.refuses, region.held, region.targets):
        each.clear()
    region.exhausted.clear()
    region.drains = 0.0
    return region
