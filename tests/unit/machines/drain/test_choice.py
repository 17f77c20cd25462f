"""Which nodes are old."""

import pytest

from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.machines.drain.cordon import NodeChoice, version_of
from rebalancer.testing.snapshots import node, snapshot_of


def kubelet(name, version, **more):
    made = node(name, **more)
    made["status"]["nodeInfo"] = {"kubeletVersion": version}
    return made


CLUSTER = snapshot_of(
    [
        kubelet("n1", "v1.34.9-eks-1", labels={"pool": "a"}),
        kubelet("n2", "v1.36.0", labels={"pool": "a"}),
        kubelet("n3", "v1.35.2", labels={"pool": "b"}),
        node("n4"),
    ]
)


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (NodeChoice(("n3", "n1")), ["n1", "n3"]),
        (NodeChoice(selector="pool=a"), ["n1", "n2"]),
        (NodeChoice(kubelet_below="1.36"), ["n1", "n3"]),
        (NodeChoice(kubelet_below="v1.35.2"), ["n1"]),
        (NodeChoice(kubelet_below="1.36", selector="pool=a"), ["n1"]),
        # The testing package's nodes are a day old.
        (NodeChoice(older_than=90_000.0), []),
        (NodeChoice(older_than=86_000.0, selector="pool=b"), ["n3"]),
    ],
)
def test_nodes_are_chosen_by_all_that_is_given(choice, chosen):
    assert choice.of(CLUSTER) == chosen


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (NodeChoice(("n1", "n9")), "there is no node n9"),
        (NodeChoice(("n\n9",)), r"there is no node n\\n9"),
        (NodeChoice(selector="pool=c"), "no node is selected by -l pool=c"),
        (NodeChoice(kubelet_below="new"), "new is no version"),
    ],
)
def test_what_chooses_nothing_is_an_error(choice, says):
    with pytest.raises(PolicyError, match=says):
        choice.of(CLUSTER)


def test_a_node_whose_kubelet_says_no_version_is_named_and_can_be_left_out():
    cluster = snapshot_of([kubelet("n1", "v1.34.9", labels={"pool": "a"}), kubelet("n2", "main\n")])
    says = r"the kubelet of node n2 says version main\\n, which is none: leave the node out with -l"
    with pytest.raises(ClusterReadError, match=says):
        NodeChoice(kubelet_below="1.36").of(cluster)
    assert NodeChoice(kubelet_below="1.36", selector="pool=a").of(cluster) == ["n1"]


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.36", (1, 36, 0)), ("v1.36.3", (1, 36, 3)), ("v1.34.1-eks-113", (1, 34, 1))],
)
def test_versions_are_compared_by_their_numbers(text, version):
    assert version_of(text) == version
