"""Cases of kube-scheduler's own tests (``plugins/volume*``, ``plugins/nodevolumelimits``)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from tests.unit.scheduler.worlds import HOSTNAME, ZONE, Json, World, node, pod

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
LATE: Json = {
    "metadata": {"name": "late"},
    "provisioner": "x.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
NO_PROVISIONER = {**LATE, "provisioner": "kubernetes.io/no-provisioner"}


def claim(name: str, volume: str = "", mode: str = "ReadWriteOnce", **spec: Any) -> Json:
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"volumeName": volume, "accessModes": [mode], **spec}}


def volume(
    name: str, labels: dict[str, str] | None = None, phase: str = "Bound", **spec: Any
) -> Json:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, **spec},
        "status": {"phase": phase},
    }


def within(key: str, *values: str) -> Json:
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def using(name: str, *claims: str, on: str = "", **spec: Any) -> Json:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return pod(name, on=on, volumes=volumes, **spec)


@pytest.mark.parametrize(
    ("label", "value", "nodes", "fits"),
    [
        (ZONE, "us-west1-a", [{ZONE: "us-west1-a"}, {ZONE: "us-west1-b"}, {}], "ac"),
        (ZONE, "us-west1-a__us-west1-b", [{ZONE: "us-west1-b"}, {ZONE: "us-west1-c"}], "a"),
        (BETA_ZONE, "us-west1-a", [{BETA_ZONE: "us-west1-a"}, {ZONE: "us-west1-a"}], "ab"),
        (ZONE, "us-west1-a", [{BETA_ZONE: "us-west1-a"}, {ZONE: "us-west1-a"}], "b"),
    ],
)
def test_a_volume_with_a_zone_label_stays_in_its_zone(label, value, nodes, fits):
    made = [node(name, labels=labels) for name, labels in zip("abc", nodes, strict=False)]
    world = World(
        made, [using("p", "c")], claims=[claim("c", "v")], volumes=[volume("v", {label: value})]
    )
    assert world.feasible("p") == list(fits)
    assert set(world.filters("p").values()) <= {"", "VolumeZone"}


def test_a_bound_volume_is_reached_by_its_node_affinity():
    world = World(
        [node("a"), node("b")],
        [using("p", "c")],
        claims=[claim("c", "v")],
        volumes=[volume("v", nodeAffinity=within(HOSTNAME, "b"), local={"path": "/x"})],
    )
    assert world.filters("p") == {"a": "VolumeBinding", "b": ""}


@pytest.mark.parametrize(
    ("claims", "volumes", "plugin"),
    [
        ([], [], "VolumeRestrictions"),
        ([claim("c", "gone")], [], "VolumeZone"),
        ([claim("c", "", storageClassName="soon")], [], "VolumeBinding"),
        (
            [
                {
                    **claim("c", "v"),
                    "metadata": {
                        "name": "c",
                        "namespace": "default",
                        "deletionTimestamp": "2026-01-01T00:00:00Z",
                    },
                }
            ],
            [volume("v")],
            "VolumeBinding",
        ),
    ],
)
def test_what_is_missing_refuses_the_pod_everywhere(claims, volumes, plugin):
    world = World([node("a")], [using("p", "c")], claims=claims, volumes=volumes)
    assert world.filters("p") == {"a": plugin}
    assert world.landings("p") == {}


ENDING = {
    **claim("ending", "v"),
    "metadata": {
        "name": "ending",
        "namespace": "default",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
}


@pytest.mark.parametrize("names", [("ending", "missing"), ("missing", "ending")])
@pytest.mark.parametrize(
    ("off", "plugin"),
    [
        ((), "VolumeRestrictions"),
        (("VolumeRestrictions",), "VolumeBinding"),
        (("VolumeBinding",), "VolumeRestrictions"),
        (("VolumeRestrictions", "VolumeBinding"), ""),
    ],
)
def test_the_first_enabled_filter_refuses_a_pod_whatever_its_claims_are_listed_in(
    names, off, plugin
):
    world = World(
        [node("a")],
        [using("p", *names)],
        claims=[ENDING],
        volumes=[volume("v")],
        profile={"off": frozenset(off)},
    )
    assert world.filters("p") == {"a": plugin}
    assert bool(world.model.rejection(world.cls("p"))) == bool(plugin)


def test_a_late_claim_goes_where_its_class_provisions():
    expression = {"key": ZONE, "values": ["z1"]}
    zonal = {**LATE, "allowedTopologies": [{"matchLabelExpressions": [expression]}]}
    nodes = [node("a", labels={ZONE: "z1"}), node("b", labels={ZONE: "z2"})]
    claims = [claim("c", storageClassName="late")]
    anywhere = World(nodes, [using("p", "c")], claims=claims, storage_classes=[LATE])
    assert anywhere.feasible("p") == ["a", "b"]
    somewhere = World(nodes, [using("p", "c")], claims=claims, storage_classes=[zonal])
    assert somewhere.feasible("p") == ["a"]


def test_a_late_claim_takes_a_free_volume_that_is_large_enough():
    wanted = claim("c", storageClassName="late", resources={"requests": {"storage": "1Gi"}})
    kinds: Json = {"storageClassName": "late"}
    free = [
        volume("fits", phase="Available", nodeAffinity=within(HOSTNAME, "a"), **kinds),
        volume(
            "small",
            phase="Available",
            nodeAffinity=within(HOSTNAME, "b"),
            **kinds | {"capacity": {"storage": "1Mi"}},
        ),
        volume(
            "taken",
            nodeAffinity=within(HOSTNAME, "c"),
            claimRef={"namespace": "default", "name": "other"},
            **kinds,
        ),
    ]
    world = World(
        [node("a"), node("b"), node("c")],
        [using("p", "c")],
        claims=[wanted],
        volumes=free,
        storage_classes=[NO_PROVISIONER],
    )
    assert world.feasible("p") == ["a"]
    assert world.model.find_unmodelled(world.cls("p")) == ()


@pytest.mark.parametrize(("version", "scored"), [((1, 37), True), ((1, 36), False)])
def test_the_less_of_a_free_volume_is_used_the_better_from_1_37_on(version, scored):
    kinds: Json = {"phase": "Available", "storageClassName": "late"}
    mine = {"namespace": "default", "name": "c"}
    free = [
        volume("a3", nodeAffinity=within(HOSTNAME, "a"), capacity={"storage": "3Gi"}, **kinds),
        volume("a9", nodeAffinity=within(HOSTNAME, "a"), capacity={"storage": "9Gi"}, **kinds),
        volume("b1", nodeAffinity=within(HOSTNAME, "b"), capacity={"storage": "1Gi"}, **kinds),
        volume("c2", nodeAffinity=within(HOSTNAME, "c"), capacity={"storage": "2Gi"}, **kinds),
        # What names the claim is taken before a smaller one.
        volume(
            "c8",
            nodeAffinity=within(HOSTNAME, "c"),
            capacity={"storage": "8Gi"},
            claimRef=mine,
            **kinds,
        ),
    ]
    world = World(
        [node(name) for name in "abcd"],
        [using("p", "c")],
        claims=[claim("c", storageClassName="late", resources={"requests": {"storage": "1Gi"}})],
        volumes=free,
        # On d one is provisioned, which scores nothing.
        storage_classes=[LATE],
        version=version,
    )
    assert world.feasible("p") == ["a", "b", "c", "d"]
    scores = world.evaluate("p").scores
    assert ("VolumeBinding" in scores) is scored
    if scored:
        # 100 less 1/3, 1/1 and 1/8 of it, in whole percents.
        assert scores["VolumeBinding"].tolist() == [67, 0, 88, 0]
        assert world.landings("p") == {"c": 1.0}


def test_a_read_write_once_pod_claim_is_exclusive_until_its_pod_is_gone():
    mode = "ReadWriteOncePod"
    world = World(
        [node("a"), node("b")],
        [using("old", "c", on="a", labels={"x": "y"}), using("p", "c")],
        claims=[claim("c", "v", mode)],
        volumes=[volume("v", accessModes=[mode])],
    )
    assert world.filters("p") == {"a": "VolumeRestrictions", "b": "VolumeRestrictions"}
    world.state.evict(world.row("old"))
    assert world.feasible("p") == []
    world.state.reap()
    assert world.feasible("p") == ["a", "b"]


@pytest.mark.parametrize("beside", [[], [{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]])
def test_a_claim_in_use_is_named_as_such_whether_or_not_the_pod_has_a_disk(beside):
    mode = "ReadWriteOncePod"
    wanted = using("p", "c")
    wanted["spec"]["volumes"] += beside
    world = World(
        [node("a"), node("b")],
        [using("old", "c", on="a", labels={"x": "y"}), wanted],
        claims=[claim("c", "v", mode)],
        volumes=[volume("v", accessModes=[mode])],
    )
    evaluation = world.evaluate("p")
    for row in range(2):
        [why] = evaluation.reasons(row)
        assert "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use" in why


def attached(limit: int, standing: dict[str, str], wanted: list[str]) -> World:
    """Return a cluster of a and b, with claims on nodes, and a pod that wants claims."""
    names = sorted({*standing, *wanted})
    driver = {"name": "d", "allocatable": {"count": limit}}
    pods = [using(f"old-{c}", c, on=on, labels={"c": c}) for c, on in standing.items()]
    return World(
        [node("a"), node("b")],
        [*pods, using("p", *wanted)],
        claims=[claim(c, f"v-{c}") for c in names],
        volumes=[volume(f"v-{c}", csi={"driver": "d", "volumeHandle": c}) for c in names],
        csi_nodes=[{"metadata": {"name": "a"}, "spec": {"drivers": [driver]}}],
    )


def test_a_node_attaches_no_more_volumes_than_its_driver_allows():
    full = {"one": "a", "two": "a", "three": "b"}
    world = attached(2, full, ["new"])
    assert world.filters("p") == {"a": "NodeVolumeLimits", "b": ""}
    assert attached(3, full, ["new"]).feasible("p") == ["a", "b"]
    assert attached(3, full, ["new", "newer"]).feasible("p") == ["b"]


def test_a_volume_that_is_attached_already_needs_no_room():
    assert attached(2, {"one": "a", "two": "a"}, ["two"]).feasible("p") == ["a", "b"]
    assert attached(1, {"one": "a", "two": "a"}, ["two"]).feasible("p") == ["a", "b"]


IN_TREE: list[tuple[Json, str]] = [
    ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}, "ebs.csi.aws.com"),
    ({"gcePersistentDisk": {"pdName": "disk"}}, "pd.csi.storage.gke.io"),
    ({"azureDisk": {"diskName": "d", "diskURI": "/x/d"}}, "disk.csi.azure.com"),
    ({"cinder": {"volumeID": "c"}}, "cinder.csi.openstack.org"),
    ({"portworxVolume": {"volumeID": "p"}}, "pxd.portworx.com"),
]


def limited(driver: str, limit: int) -> list[Json]:
    drivers = [{"name": driver, "allocatable": {"count": limit}}]
    return [{"metadata": {"name": "a"}, "spec": {"drivers": drivers}}]


@pytest.mark.parametrize(("source", "driver"), IN_TREE)
@pytest.mark.parametrize(("limit", "expected"), [(1, "NodeVolumeLimits"), (2, "")])
def test_a_volume_of_an_old_kind_counts_for_the_driver_that_attaches_it(
    source, driver, limit, expected
):
    world = World(
        [node("a")],
        [using("old", "old", on="a"), using("p", "new")],
        claims=[claim("old", "v-old"), claim("new", "v-new")],
        volumes=[
            volume("v-old", **source),
            volume("v-new", csi={"driver": driver, "volumeHandle": "n"}),
        ],
        csi_nodes=limited(driver, limit),
    )
    assert world.filters("p") == {"a": expected}


def test_a_volume_of_an_old_kind_and_its_translation_are_one():
    world = World(
        [node("a")],
        [using("old", "old", on="a"), using("p", "new")],
        claims=[claim("old", "v-old"), claim("new", "v-new")],
        volumes=[
            volume("v-old", **IN_TREE[0][0]),
            volume("v-new", csi={"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}),
        ],
        csi_nodes=limited("ebs.csi.aws.com", 1),
    )
    assert world.feasible("p") == ["a"]


@pytest.mark.parametrize(
    ("attached", "volumes", "expected"),
    [
        ("kubernetes.io/csi/d^left", ["left"], "NodeVolumeLimits"),
        # One that a pod on the node uses counts once.
        ("kubernetes.io/csi/d^one", ["one"], ""),
        # The scheduler asks for the PersistentVolume.
        ("kubernetes.io/csi/d^gone", [], ""),
        ("kubernetes.io/csi/other^left", ["left"], ""),
        ("kubernetes.io/nfs/left", ["left"], ""),
    ],
)
def test_what_is_attached_and_used_by_no_pod_counts(attached, volumes, expected):
    on = node("a")
    on["status"]["volumesAttached"] = [{"name": attached, "devicePath": ""}]
    names = sorted({"one", "new", *volumes})
    world = World(
        [on],
        [using("old", "one", on="a"), using("p", "new")],
        claims=[claim(name, f"v-{name}") for name in ("one", "new")],
        volumes=[volume(f"v-{name}", csi={"driver": "d", "volumeHandle": name}) for name in names],
        csi_nodes=limited("d", 2),
    )
    assert world.filters("p") == {"a": expected}


@pytest.mark.parametrize(
    ("limit", "standing", "expected"),
    [
        # It is attached, and counts as new as well: csi.go takes only volumes of pods out of the new ones.
        (2, [], "NodeVolumeLimits"),
        (3, [], ""),
        # A pod on the node uses it: nothing is new.
        (2, ["want"], ""),
        (1, ["want"], ""),
        (2, ["more"], "NodeVolumeLimits"),
    ],
)
def test_a_new_volume_that_is_attached_for_no_pod_counts_twice(limit, standing, expected):
    on = node("a")
    on["status"]["volumesAttached"] = [
        {"name": f"kubernetes.io/csi/d^{name}", "devicePath": ""} for name in ("want", "more")
    ]
    names = ("want", "more")
    world = World(
        [on],
        [*(using(f"old-{name}", name, on="a") for name in standing), using("p", "want")],
        claims=[claim(name, f"v-{name}") for name in names],
        volumes=[volume(f"v-{name}", csi={"driver": "d", "volumeHandle": name}) for name in names],
        csi_nodes=limited("d", limit),
    )
    assert world.filters("p") == {"a": expected}


@pytest.mark.parametrize(("limit", "expected"), [(2, "NodeVolumeLimits"), (3, "")])
def test_each_pod_s_generic_ephemeral_volumes_count(limit, expected):
    scratch: Json = {"volumes": [{"name": "scratch", "ephemeral": {}}]}
    old = [pod(name, on="a", labels={"app": "old"}, **scratch) for name in ("old-1", "old-2")]
    names = ["old-1-scratch", "old-2-scratch", "new"]
    world = World(
        [node("a")],
        [*old, using("p", "new")],
        claims=[claim(name, f"v-{name}") for name in names],
        volumes=[volume(f"v-{name}", csi={"driver": "d", "volumeHandle": name}) for name in names],
        csi_nodes=limited("d", limit),
    )
    assert world.filters("p") == {"a": expected}


def test_a_terminating_victim_holds_its_attachment():
    world = attached(2, {"one": "a", "two": "a"}, ["new"])
    world.state.evict(world.row("old-one"))
    assert world.feasible("p") == ["b"]
    shown = world.state.mark()
    world.state.hide_newest_victim()
    assert world.feasible("p") == ["a", "b"]
    world.state.rewind(shown)
    assert world.feasible("p") == ["b"]


def test_pods_with_a_claim_each_take_less_memory_than_two_numbers_for_each_node():
    places, count = [f"n{i}" for i in range(2000)], 24
    names = [f"c{i}" for i in range(count)]
    mounts = [[{"name": "v", "persistentVolumeClaim": {"claimName": name}}] for name in names]
    made = World(
        [node(name) for name in places],
        [pod(f"p{i}", on=places[i], volumes=of) for i, of in enumerate(mounts)],
        claims=[claim(name, f"v-{name}") for name in names],
        volumes=[volume(f"v-{name}", csi={"driver": "d", "volumeHandle": name}) for name in names],
        csi_nodes=[
            {
                "metadata": {"name": n},
                "spec": {"drivers": [{"name": "d", "allocatable": {"count": 9}}]},
            }
            for n in places
        ],
    )
    assert len(made.snapshot.classes) == count
    made.model.predict(made.state, 0)
    tracemalloc.start()
    for cls in range(1, count):
        assert len(made.model.predict(made.state, cls).nodes)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / (count - 1) < 2 * 8 * len(places)
