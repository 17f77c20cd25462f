"""Groups by labels alone."""

import pytest

from rebalancer.providers.contract import KnownNode
from rebalancer.providers.labelled import LabelledGroups
from rebalancer.registry import PROVIDERS
from rebalancer.snapshot.labels import GROUP_LABELS
from tests.support.contracts import check_provider

_NODES = [
    KnownNode("a", "aws:///zone-a/i-1", {"eks.amazonaws.com/nodegroup": "web"}),
    KnownNode("b", "", {"eks.amazonaws.com/nodegroup": "web", "agentpool": "other"}),
    KnownNode("c", "aws:///zone-a/i-3", {"karpenter.sh/nodepool": "general"}),
    KnownNode("d", "", {}),
]


def test_keeps_the_contract():
    groups = check_provider(LabelledGroups(), _NODES)
    assert {group.name: group.instances for group in groups} == {
        "general": ("aws:///zone-a/i-3",),
        "web": ("aws:///zone-a/i-1", "b"),
    }
    assert not any(group.is_sized for group in groups)


@pytest.mark.parametrize("key", GROUP_LABELS)
def test_knows_the_labels_of_each_service(key):
    (group,) = LabelledGroups().groups([KnownNode("a", "", {key: "pool"})])
    assert group.name == "pool"


def test_is_found_by_its_entry_point():
    plug_in = PROVIDERS.installed().load("none")
    assert plug_in.open(plug_in.Params(), {}).groups(_NODES[:1])[0].name == "web"
