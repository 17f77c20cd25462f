"""Node groups of Cluster API: what is read of MachineDeployments and MachineSets, and what keeps them as they are."""

import pytest

from rebalancer.base.errors import ProviderError, ProviderRefusalError
from rebalancer.machines.cluster_api.api import NO_CREATION, OPTIONS, PAUSED, TOPOLOGY, ClusterApi
from rebalancer.machines.cluster_api.groups import (
    ClusterApiParams,
    ClusterApiProvider,
    MachineGroups,
)
from rebalancer.providers.contract import Guarded, KnownNode, Outdated
from tests.support.contracts import check_provider
from tests.unit.machines.cluster_api.world import World, template

CPU = "capacity.cluster-autoscaler.kubernetes.io/"


@pytest.fixture
def world():
    made = World()
    made.cluster()
    return made


def groups_of(world):
    return MachineGroups(ClusterApi(world, "default"), "work", {})


def read(world, nodes=()):
    return {one.name: one for one in groups_of(world).groups(nodes)}


def nodes_of(world):
    return [
        KnownNode(one["status"]["nodeRef"]["name"], one["spec"]["providerID"])
        for one in world.of("machines")
    ]


def test_deployments_and_sets_alone_are_groups_by_their_annotations(world):
    world.deployment("pool", 2, "1", "4")
    world.deployment("unsized", 1, None)
    world.machine_set("alone", 1, low="0", high="2")
    world.add("clusters", "other", {})
    found = groups_of(world)
    assert {one.name: (one.minimum, one.desired, one.maximum) for one in found.groups(())} == {
        "pool": (1, 2, 4),
        "machineset/alone": (0, 1, 2),
    }
    assert [len(one.instances) for one in check_provider(found, nodes_of(world))] == [1, 2]


def test_a_group_of_another_cluster_is_none_of_these(world):
    world.deployment("pool")
    world.change("machinedeployments", "pool", lambda one: one["spec"].update(clusterName="other"))
    assert read(world) == {}
    assert groups_of(world).group_named("pool", ()) is None


@pytest.mark.parametrize(("low", "high"), [("x", "2"), ("3", "2"), ("-1", "2"), ("1", "")])
def test_sizes_that_are_none_leave_the_group_without(world, low, high):
    world.deployment("pool", 2, low, high)
    group = read(world)["pool"]
    assert not group.is_sized
    with pytest.raises(ProviderRefusalError, match="its sizes are not known"):
        Guarded(groups_of(world), ()).increase("pool", 3)


def test_the_older_version_is_read_where_the_newer_one_is_not_served():
    world = World(version="v1beta1")
    world.cluster()
    world.deployment("pool", 2)
    world.change("machinedeployments", "pool", _as_v1beta1)
    assert read(world)["pool"].desired == 2
    world.version = "v1alpha4"
    with pytest.raises(ProviderError, match=r"serves no cluster.x-k8s.io/v1beta2 or v1beta1"):
        read(world)


def _as_v1beta1(one):
    spec = one["spec"]
    spec["strategy"] = spec.pop("rollout")["strategy"]
    spec["rollout"] = {"strategy": spec["strategy"]}  # for the world's controllers
    spec["template"]["spec"]["infrastructureRef"] = {
        "apiVersion": "infra.test/v1",
        "kind": "BoxTemplate",
        "name": "small",
        "namespace": "default",
    }


def test_a_machine_is_its_provider_id_only_if_its_node_says_the_same(world):
    world.deployment("pool", 3)
    first, second, third = world.of("machines")
    ids = [one["spec"]["providerID"] for one in (first, second, third)]
    world.change("machines", second["metadata"]["name"], lambda one: one.pop("status"))
    thief = KnownNode("thief", ids[2])
    group = read(world, [thief])["pool"]
    names = [f"machine:default/{one['metadata']['name']}" for one in (second, third)]
    assert group.instances == tuple(sorted([ids[0], *names]))


FROZEN = [
    (
        "paused",
        lambda w: w.change("clusters", "work", lambda o: o["spec"].update(paused=True)),
        "the Cluster work is paused",
    ),
    (
        "annotated",
        lambda w: w.annotate("machinedeployments", "pool", PAUSED, ""),
        "MachineDeployment pool is paused",
    ),
    (
        "its spec",
        lambda w: w.change("machinedeployments", "pool", lambda o: o["spec"].update(paused=True)),
        "MachineDeployment pool is paused",
    ),
    (
        "its set",
        lambda w: w.annotate("machinesets", "pool-1", PAUSED, ""),
        "the MachineSet pool-1 is paused",
    ),
    (
        "going",
        lambda w: w.change(
            "machinedeployments", "pool", lambda o: o["metadata"].update(deletionTimestamp="x")
        ),
        "MachineDeployment pool is being deleted",
    ),
    (
        "rolling",
        lambda w: w.change(
            "machinedeployments", "pool", lambda o: o["spec"].update(template=template("v1.37.0"))
        ),
        "a rollout is under way",
    ),
    ("no cluster", lambda w: w.objects.pop(("clusters", "work")), "there is no Cluster work"),
]


@pytest.mark.parametrize(
    ("change", "why"), [row[1:] for row in FROZEN], ids=[row[0] for row in FROZEN]
)
def test_what_cannot_be_judged_is_said_and_not_touched(world, change, why):
    world.deployment("pool", 3)
    change(world)
    found = groups_of(world)
    group = found.group_named("pool", ())
    assert group is not None
    assert why in group.suspended
    assert set(group.held) == set(group.instances)
    guarded = Guarded(found, ())
    with pytest.raises(ProviderRefusalError, match=why):
        guarded.terminate("pool", group.instances[0], lambda: True)
    with pytest.raises(ProviderRefusalError, match=why):
        guarded.increase("pool", 4)
    assert world.patches == []


def test_replicas_that_the_topology_sets_are_not_touched_and_others_are(world):
    listed = [{"name": "workers", "replicas": 3}, {"name": "free"}]
    topology = {"workers": {"machineDeployments": listed}}
    world.change("clusters", "work", lambda one: one["spec"].update(topology=topology))
    world.deployment("pool", 3, labels={TOPOLOGY: "workers"})
    world.deployment("open", 3, labels={TOPOLOGY: "free"})
    found = read(world)
    assert "spec.topology.workers.machineDeployments workers" in found["pool"].suspended
    assert not found["open"].suspended


TEMPLATES = [
    ({}, None),
    ({"cpu": "4"}, None),
    ({"cpu": "4", "memory": "16Gi"}, {"cpu": "4", "memory": "16Gi", "pods": "110"}),
    (
        {
            "cpu": "4",
            "memory": "16Gi",
            "maxPods": "30",
            "ephemeral-disk": "90Gi",
            "gpu-type": "nvidia.com/gpu",
            "gpu-count": "2",
        },
        {
            "cpu": "4",
            "memory": "16Gi",
            "pods": "30",
            "ephemeral-storage": "90Gi",
            "nvidia.com/gpu": "2",
        },
    ),
]


@pytest.mark.parametrize(("annotations", "allocatable"), TEMPLATES)
def test_a_new_node_is_what_the_annotations_say(world, annotations, allocatable):
    annotations = {CPU + key: value for key, value in annotations.items()}
    world.deployment("pool", 0, "0", annotations=annotations)
    found = groups_of(world)
    (group,) = found.groups(())
    made = found.template(group)
    assert (None if made is None else dict(made.allocatable)) == allocatable


def test_labels_and_taints_come_from_template_and_annotations(world):
    annotations = {
        f"{CPU}cpu": "4",
        f"{CPU}memory": "8Gi",
        f"{CPU}labels": "disk=fast,kubernetes.io/arch=arm64",
        f"{CPU}taints": "gpu=yes:NoSchedule,alone:NoExecute",
    }
    of = template()
    of["metadata"] = {"labels": {"node.cluster.x-k8s.io/pool": "a", "team": "b"}}
    of["spec"]["taints"] = [{"key": "gpu", "value": "no", "effect": "NoSchedule"}]
    world.deployment("pool", 0, "0", annotations=annotations, template=of)
    found = groups_of(world)
    (group,) = found.groups(())
    made = found.template(group)
    assert made is not None
    assert made.labels == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "node.cluster.x-k8s.io/pool": "a",
        "disk": "fast",
    }
    taints = [(one.key, one.value, one.effect) for one in made.taints]
    assert taints == [("gpu", "yes", "NoSchedule"), ("alone", "", "NoExecute")]
    world.annotate("machinedeployments", "pool", f"{CPU}taints", "gpu")
    with pytest.raises(ProviderError, match="is no KEY=VALUE:EFFECT"):
        found.template(found.groups(())[0])


def test_the_template_of_the_infrastructure_may_say_the_capacity(world):
    world.deployment("pool", 0, "0")
    path = "/apis/infra.test/v1/namespaces/default/boxtemplates"
    capacity = {"cpu": "2", "memory": "4Gi"}
    world.others[path] = [{"metadata": {"name": "small"}, "status": {"capacity": capacity}}]
    found = groups_of(world)
    made = found.template(found.groups(())[0])
    assert made is not None
    assert made.allocatable == {"pods": "110", **capacity}
    world.forbids.add(f"{path}/small")
    assert found.template(found.groups(())[0]) is None


def test_old_machines_are_those_of_other_sets_than_the_one_of_the_template(world):
    world.deployment("pool", 3, strategy="OnDelete")
    old = set(read(world)["pool"].instances)
    found = groups_of(world)
    assert found.find_outdated(found.groups(())[0], Outdated.TEMPLATE) == set()
    world.change(
        "machinedeployments", "pool", lambda one: one["spec"].update(template=template("v1.37.0"))
    )
    group = found.group_named("pool", ())
    assert group is not None
    with pytest.raises(ProviderError, match="no MachineSet with its template yet"):
        found.find_outdated(group, Outdated.TEMPLATE)
    world.settle()
    Guarded(found, ()).increase("pool", 4)
    world.settle()
    group = found.group_named("pool", ())
    assert group is not None
    assert len(group.instances) == 4
    assert found.find_outdated(group, Outdated.TEMPLATE) == old
    with pytest.raises(ProviderError, match="choose by template"):
        found.find_outdated(group, Outdated.IMAGE)


def test_old_machines_of_a_set_alone_are_known_by_version_and_by_what_was_cloned(world):
    world.machine_set("alone", 3)
    first, second, third = (one["metadata"]["name"] for one in world.of("machines"))

    def cloned(name):
        ref = {"apiGroup": "infra.test", "kind": "Box", "name": f"box-{name}"}
        world.change("machines", name, lambda one: one["spec"].update(infrastructureRef=ref))
        source = "tiny" if name == second else "small"
        annotations = {"cluster.x-k8s.io/cloned-from-name": source}
        return {"metadata": {"name": f"box-{name}", "annotations": annotations}}

    world.others["/apis/infra.test/v1/namespaces/default/boxes"] = list(
        map(cloned, (first, second, third))
    )
    world.change("machines", third, lambda one: one["spec"].update(version="v1.35.0"))
    found = groups_of(world)
    (group,) = found.groups(())
    outdated = found.find_outdated(group, Outdated.TEMPLATE)
    assert outdated == {f"box:///{second}", f"box:///{third}"}


def test_launches_are_the_times_at_which_machines_were_created(world):
    world.deployment("pool", 1)
    found = groups_of(world)
    (group,) = found.groups(())
    (at,) = found.find_launches(group).values()
    assert at > 1.8e9
    assert found.launch_failure(group, 0.0) is None
    assert not found.is_launching(group)


def test_a_group_whose_machines_are_not_to_be_created_does_not_grow(world):
    world.deployment("pool", 2)
    world.annotate("machinesets", "pool-1", NO_CREATION, "true")
    assert NO_CREATION in read(world)["pool"].suspended


def test_a_set_that_cannot_create_machines_says_why(world):
    world.deployment("pool", 1)
    world.change("machinedeployments", "pool", lambda one: one["spec"].update(replicas=2))
    found = groups_of(world)
    assert found.is_launching(found.groups(())[0])
    condition = {"type": "MachinesCreated", "status": "False", "message": "the template is gone"}
    status = {"deprecated": {"v1beta1": {"conditions": [condition]}}}
    world.change("machinesets", "pool-1", lambda one: one.update(status=status))
    (group,) = found.groups(())
    assert "the template is gone" in (found.launch_failure(group, 0.0) or "")
    assert not found.is_launching(group)
    assert Guarded(found, ()).decrease_to_existing("pool") == 1
    world.settle()
    assert world.ended == []


def test_the_size_is_not_decreased_below_what_is_there(world):
    world.deployment("pool", 3)
    found = groups_of(world)
    (group,) = found.groups(())
    with pytest.raises(ProviderRefusalError, match="would end a machine of its choice"):
        found.set_size(group, 2)
    assert world.patches == []


def test_a_size_that_was_never_launched_is_not_taken_back_from_old_machines(world):
    """While a rollout waits for deletions a decrease would end an old machine, whatever is missing of the new ones."""
    world.deployment("pool", 3, strategy="OnDelete")
    world.change(
        "machinedeployments", "pool", lambda one: one["spec"].update(template=template("v1.37.0"))
    )
    world.settle()
    world.change("machinesets", "pool-2", lambda one: one["spec"].update(replicas=1))
    world.change("machinedeployments", "pool", lambda one: one["spec"].update(replicas=4))
    found = groups_of(world)
    (group,) = found.groups(())
    with pytest.raises(ProviderRefusalError, match="would end a machine of its choice"):
        found.set_size(group, 3)


def test_a_note_is_an_annotation_that_survives_status_writes(world):
    world.deployment("pool", 2)
    found = groups_of(world)
    group = found.group_named("pool", ())
    world.touch("machinedeployments", "pool")
    found.write_note(group, "desired=2")
    assert read(world)["pool"].note == "desired=2"
    found.write_note(group, "")
    assert read(world)["pool"].note == ""


INCREASES = [
    ("done", "", 4),
    ("done, and the answer is lost", "after", 4),
    ("lost, then done", "before", 4),
    ("answered by a gateway, then done", "garbled", 4),
]


@pytest.mark.parametrize(
    ("fate", "size"), [row[1:] for row in INCREASES], ids=[row[0] for row in INCREASES]
)
def test_an_increase_is_made_once(world, fate, size):
    world.deployment("pool", 3)
    fates = [fate]
    world.lose = lambda *_: fates.pop() if fates else ""
    assert Guarded(groups_of(world), ()).increase("pool", 4)
    assert read(world)["pool"].desired == size


def test_a_group_that_was_changed_meanwhile_is_not_resized(world):
    world.deployment("pool", 3)
    found = groups_of(world)
    (group,) = found.groups(())
    world.change("machinedeployments", "pool", lambda one: one["spec"].update(replicas=2))
    with pytest.raises(ProviderRefusalError, match="it was changed meanwhile"):
        found.set_size(group, 4)
    assert world.objects["machinedeployments", "pool"]["spec"]["replicas"] == 2


def test_a_look_by_another_thread_does_not_make_an_old_decision_good(world):
    """The sign of life of a replacement reads the group, too."""
    world.deployment("pool", 3)
    found = groups_of(world)
    (group,) = found.groups(())
    world.change("machinedeployments", "pool", lambda one: one["spec"].update(replicas=5))
    found.group_named("pool", ())
    for change in (
        lambda: found.set_size(group, 4),
        lambda: found.terminate(group, group.instances[0]),
    ):
        with pytest.raises(ProviderRefusalError, match="it was changed meanwhile"):
            change()
    assert world.objects["machinedeployments", "pool"]["spec"]["replicas"] == 5


GARBLED = {
    "nothing": {},
    "a Status": {"kind": "Status", "metadata": {}, "status": "Success"},
    "a list of something else": {
        "kind": "PodList",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    },
    "a list of no version": {"kind": "MachineList", "metadata": {}, "items": []},
    "an object without metadata": {"kind": "Cluster"},
}


@pytest.mark.parametrize("answer", GARBLED.values(), ids=GARBLED)
def test_what_looks_like_success_is_no_group_without_machines(world, answer):
    world.deployment("pool", 3)
    found = groups_of(world)
    group = found.groups(())[0]
    world.garbled = answer
    for ask in (
        lambda: found.groups(()),
        lambda: found.group_named("pool", ()),
        lambda: found.set_size(group, 2),
    ):
        with pytest.raises(ProviderError):
            ask()
    world.garbled = None
    world.settle()
    assert (world.ended, read(world)["pool"].desired) == ([], 3)


def test_a_missing_right_is_named_with_what_to_add(world):
    world.deployment("pool", 3)
    world.lose = lambda *_: "403"
    with pytest.raises(ProviderRefusalError, match="patch machinedeployments"):
        Guarded(groups_of(world), ()).increase("pool", 4)


def test_a_file_has_no_cluster_api():
    params = ClusterApiParams(cluster="default/work")
    with pytest.raises(ProviderError, match="name a kubeconfig"):
        ClusterApiProvider().open(params, {})
    with pytest.raises(ValueError, match="cluster"):
        ClusterApiParams(cluster="work")


def test_options_of_one_group_are_its_annotations(world):
    world.deployment("pool", annotations={f"{OPTIONS}scaledownunneededtime": "1h"})
    world.deployment("other")
    assert {name: dict(one.options) for name, one in read(world).items()} == {
        "other": {},
        "pool": {"scaledownunneededtime": "1h"},
    }
