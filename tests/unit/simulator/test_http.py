"""The server's face: who is let in, what goes wrong on purpose, how watches end."""

import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from rebalancer.simulator.cluster import TOKEN, EmbeddedCluster
from rebalancer.simulator.apiserver.faults import Fault
from rebalancer.simulator.manifests import pdb, pod
from tests.controlplane import ApiClient, ApiError

from .conftest import START


@pytest.fixture
def api(cluster: EmbeddedCluster) -> Any:
    client = ApiClient(cluster.url, Path("unused"), TOKEN)
    yield client
    client.close()


def refused(call: Any, *arguments: Any) -> tuple[int, Any]:
    with pytest.raises(ApiError) as error:
        call(*arguments)
    return error.value.status, error.value.body
