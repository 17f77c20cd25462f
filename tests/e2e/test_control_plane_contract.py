"""The contract, kept by a real control plane: what the embedded cluster is measured against."""

import pytest

from tests.contract.api_rules import *  # noqa: F403 - every test of the contract
from tests.contract.controller_rules import *  # noqa: F403
from tests.contract.controller_rules import Recorder, story
from tests.contract.ground import PODS, Ground
from tests.contract.placement_rules import *  # noqa: F403
from tests.controlplane import ApiError, objects


@pytest.fixture
def ground(cluster):
    """Return the session's control plane, emptied."""
    return Ground(cluster.api, cluster.client(None), str(cluster.kubeconfig))


# The embedded cluster has no quotas.


def test_a_quota_keeps_the_replacement_back_until_the_victim_is_gone(ground):
    ground.nodes("a")
    victim, _ = ground.web(2)
    ground.apply(objects.resource_quota("small", pods="2"))
    path = "/api/v1/namespaces/default/resourcequotas/small"
    ground.wait(
        lambda: ground.api.get(path).get("status", {}).get("used") == {"pods": "2"}, "quota counted"
    )
    # While pods come and go, the quota may count too few: its controller counts them in a cache of its own, which may lack a
    # pod that admission has counted, and writes that number over it. So it is asked while none does.
    ground.wait(
        lambda: "exceeded quota: small" in words_of_refusal(ground), "the quota known to admission"
    )
    assert (
        "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
        in words_of_refusal(ground)
    )
    recorder = Recorder(ground)
    ground.evict(victim)
    events = recorder.until(lambda seen: story(seen, "ADDED"), "the replacement there")
    assert [kind for kind, _ in story(events, "ADDED", "DELETED")] == ["DELETED", "ADDED"]


def words_of_refusal(ground: Ground) -> str:
    """Return the words in which admission refuses one pod more."""
    with pytest.raises(ApiError) as refused:
        ground.api.post(PODS, objects.pod("more"))
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    return str(refused.value)
