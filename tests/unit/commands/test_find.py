import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.explain.find import find_named, find_node, find_pod, find_workload, within
from rebalancer.testing.snapshots import node, snapshot_of, workload

SNAPSHOT = snapshot_of(
    [
        node("n-a"),
        node("n-b"),
        *workload("web", ["n-a"]),
        *workload("api", ["n-a"], namespace="shop"),
        *workload("db", ["n-a"], namespace="shop"),
        *workload("db", ["n-b"], namespace="shop", kind="StatefulSet"),
    ]
)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("web", "Deployment/default/web"),
        ("shop/api", "Deployment/shop/api"),
        ("Deployment/shop/api", "Deployment/shop/api"),
        ("deploy/shop/api", "Deployment/shop/api"),
        ("deployments/shop/db", "Deployment/shop/db"),
        ("sts/shop/db", "StatefulSet/shop/db"),
        ("api", "Deployment/shop/api"),  # the only one
        ("deploy/api", "Deployment/shop/api"),
        ("deployment.apps/web", "Deployment/default/web"),
        ("statefulsets.apps/shop/db", "StatefulSet/shop/db"),
        ("STS/db", "StatefulSet/shop/db"),
    ],
)
def test_a_workload_is_named_as_kubectl_has_it(text, ref):
    assert SNAPSHOT.owners[find_workload(SNAPSHOT, text)].ref == ref


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("shop/db", "there are several; write Deployment/shop/db or StatefulSet/shop/db"),
        ("shop/appi", "did you mean Deployment/shop/api?"),
        ("shop/dbs", "did you mean Deployment/shop/db or StatefulSet/shop/db?"),
        ("sts/shop/api", "did you mean Deployment/shop/api?"),
        ("db", "there are several; write Deployment/shop/db or StatefulSet/shop/db"),
        ("shopp/api", "did you mean Deployment/shop/api?"),
        ("shopp/app", "in namespace shopp; did you mean shop?"),
        ("a/b/c/d", "write [KIND/][NAMESPACE/]NAME"),
        ("/web", "write [KIND/][NAMESPACE/]NAME"),
    ],
)
def test_a_workload_that_is_not_there_or_not_alone_is_said_to_be_so(text, says):
    with pytest.raises(PolicyError) as caught:
        find_workload(SNAPSHOT, text)
    assert str(caught.value).startswith(f"workload {text}: ")
    assert str(caught.value).endswith(says)


def test_of_two_workloads_of_one_name_the_one_with_more_pods_is_meant():
    objects = [node("n-a"), *workload("web", ["n-a"] * 3, kind="ReplicaSet")]
    objects[2]["metadata"]["ownerReferences"][0]["uid"] = "gone"
    snapshot = snapshot_of(objects)
    assert sorted(owner.uid for owner in snapshot.owners) == ["ReplicaSet/default/web", "gone"]
    assert snapshot.owners[find_workload(snapshot, "web")].uid == "ReplicaSet/default/web"


def test_pods_and_nodes_are_located_or_a_like_one_is_named():
    assert SNAPSHOT.pod_ref(find_pod(SNAPSHOT, "shop/api-0")) == "shop/api-0"
    assert SNAPSHOT.pod_ref(find_pod(SNAPSHOT, "web-0")) == "default/web-0"
    assert SNAPSHOT.nodes.names[find_node(SNAPSHOT, "n-b")] == "n-b"
    with pytest.raises(PolicyError, match=r"no such node; did you mean n-b\?"):
        find_node(SNAPSHOT, "n-bb")
    with pytest.raises(PolicyError, match=r"or it has ended; did you mean shop/api-0\?"):
        find_pod(SNAPSHOT, "shop/apj-0")
    assert SNAPSHOT.pod_ref(find_pod(SNAPSHOT, "api-0")) == "shop/api-0"
    assert SNAPSHOT.pod_ref(find_pod(SNAPSHOT, "pod/web-0")) == "default/web-0"
    assert SNAPSHOT.nodes.names[find_node(SNAPSHOT, "node/n-b")] == "n-b"
    with pytest.raises(PolicyError, match=r"pod default/db-0: .* did you mean shop/db-0"):
        find_pod(SNAPSHOT, "db-0")


@pytest.mark.parametrize(
    ("text", "namespace", "whole"),
    [
        ("web-0", None, "web-0"),
        ("web-0", "shop", "shop/web-0"),
        ("pod/web-0", "shop", "pod/shop/web-0"),
        ("deploy/api", "shop", "deploy/shop/api"),
        ("shop/api", "shop", "shop/api"),
    ],
)
def test_the_flag_n_says_in_which_namespace_a_name_is(text, namespace, whole):
    assert within(text, namespace) == whole


@pytest.mark.parametrize("text", ["other/api", "deploy/other/api"])
def test_a_name_has_one_namespace(text):
    with pytest.raises(PolicyError, match=f"-n shop: {text} has a namespace already"):
        within(text, "shop")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("web-0", "pod"), ("n-a", "node"), ("api", "workload"), ("shop/api-0", "pod")],
)
def test_a_plain_name_says_by_itself_what_it_is_of(text, kind):
    assert find_named(SNAPSHOT, text) == kind


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("webb", "did you mean Deployment/default/web?"),
        ("n-aa", "did you mean n-a?"),
        ("zzzzzz", "there is no pod, node or workload of this name"),
    ],
)
def test_a_name_of_nothing_is_said_to_be_so(text, says):
    with pytest.raises(PolicyError) as caught:
        find_named(SNAPSHOT, text)
    assert str(caught.value).endswith(says)


def test_of_thousands_of_nodes_only_those_are_compared_that_begin_alike():
    snapshot = snapshot_of([node(f"{'ab'[i % 2]}node-{i:05}") for i in range(3000)])
    with pytest.raises(PolicyError, match=r"did you mean anode-00002\?"):
        find_node(snapshot, "anode-00002x")
    with pytest.raises(PolicyError, match=r"did you mean bnode-02999\?"):
        find_node(snapshot, "bnode-0299")
    with pytest.raises(PolicyError) as caught:
        find_node(snapshot, "zzz")
    assert str(caught.value) == "node zzz: there is no such node"
