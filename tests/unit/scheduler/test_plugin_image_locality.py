"""Numbers of kube-scheduler's own table tests (``plugins/imagelocality``)."""

from __future__ import annotations

import pytest

from tests.unit.scheduler.worlds import Json, World, node, pod

MB = 1024 * 1024


def holding(*sizes: int) -> list[Json]:
    return [{"names": [f"gcr.io/{size}:latest"], "sizeBytes": size * MB} for size in sizes]


def using(*sizes: int) -> list[Json]:
    return [{"name": f"c{size}", "image": f"gcr.io/{size}"} for size in sizes]


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        ((40, 250), [(40, 300, 2000), (250, 10)], [0, 5]),
        ((40, 300), [(40, 300, 2000), (250, 10)], [7, 0]),
        ((10, 4000), [(4000, 30), (250, 10)], [100, 0]),
        ((10, 4000), [(4000, 30), (250, 10), ()], [66, 0, 0]),
        ((300, 600, 900), [(600, 40, 900), (300, 600, 900), ()], [32, 36, 0]),
        ((30, 40), [(20, 30, 40), (4000, 30)], [1, 0]),
    ],
)
def test_nodes_that_hold_large_images_score_higher(wanted, present, expected):
    nodes = [node(f"node{i}", images=holding(*sizes)) for i, sizes in enumerate(present)]
    world = World(nodes, [pod("p", containers=using(*wanted))])
    assert world.plain("p", "ImageLocality") == expected


def test_init_containers_count():
    nodes = [node("a", images=holding(40, 300, 2000)), node("b", images=holding(20, 30, 40))]
    world = World(nodes, [pod("p", containers=using(30), initContainers=using(300))])
    assert world.plain("p", "ImageLocality") == [6, 0]


@pytest.mark.parametrize(
    ("version", "expected"), [((1, 37), [6, 0]), ((1, 36), [12, 0]), ((1, 35), [0, 0])]
)
def test_image_volumes_count_from_1_36_on_and_as_an_image_from_1_37_on(version, expected):
    nodes = [node("a", images=holding(300, 600, 900)), node("b", images=holding(4000, 30))]
    volume = {"name": "v", "image": {"reference": "gcr.io/300"}}
    world = World(nodes, [pod("p", containers=using(30), volumes=[volume])], version=version)
    assert world.plain("p", "ImageLocality") == expected


@pytest.mark.parametrize(
    ("image", "present"),
    [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("gcr.io:5000/root", "gcr.io:5000/root:latest"),
    ],
)
def test_a_missing_tag_is_latest(image, present):
    images = [{"names": [present], "sizeBytes": 1000 * MB}]
    world = World(
        [node("a", images=images)], [pod("p", containers=[{"name": "c", "image": image}])]
    )
    assert world.plain("p", "ImageLocality", among=["a"]) == [100]
