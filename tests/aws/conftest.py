"""A cloud for each module of tests."""

import os
import time
from functools import cache
from pathlib import Path

import botocore.loaders
import pytest

# Before moto is imported: for each region and reset it would make 1,300 images, of which tests use one.
os.environ["MOTO_AMIS_PATH"] = str(Path(__file__).parent / "amis.json")
# It asks for the regions of three services, and each session for its services: botocore's files are read once for all.
botocore.loaders.create_loader = cache(botocore.loaders.create_loader)

from tests.aws.cloud import CREDENTIALS, in_the_cloud  # noqa: E402


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
