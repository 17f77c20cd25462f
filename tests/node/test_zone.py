"""The zone of a real kubelet is shifted and comes back: nothing moves meanwhile, and a Service keeps its endpoints."""

import pytest

from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import NO_WAIT, Product
from tests.node import images
from tests.node.ground import Ground
from tests.node.node import NAME
from tests.node.test_restart import Endpoints

SHIFTED = (NAME, "simulated-c")
APP = {"app": "web"}


@pytest.fixture
def uneven(ground):
    """Three replicas on a node each, two of them in the zone of the real node; then a third zone joins."""
    ground.keep_others_away()
    label_zone(ground, "zone-c")
    for zone in ("a", "c"):
        ground.add_node(zone)
    operations.wait_nodes_ready(ground.api, 3)
    web = objects.deployment(
        "web",
        3,
        affinity=objects.require_apart(APP),
        topologySpreadConstraints=[objects.spread(APP, hard=False)],
        image=images.PAUSE,
        tolerations=[{"key": "rebalancer.test/real", "operator": "Exists"}],
        hostNetwork=True,
    )
    budget = objects.pdb("web", APP, minAvailable=2)
    ground.plane.apply([web, budget, objects.service("web", APP)])
    operations.wait_pods_ready(ground.api, 3, 60, selector="app=web")
    ground.add_node("b")
    operations.wait_nodes_ready(ground.api, 4)
    yield ground
    operations.cordon(ground.api, SHIFTED, on=False)
    label_zone(ground, None)
    ground.api.delete("/api/v1/namespaces/default/services/web")
    ground.clear()


def label_zone(ground: Ground, zone: str | None) -> None:
    ground.api.patch(f"/api/v1/nodes/{NAME}", {"metadata": {"labels": {objects.ZONE: zone}}})


def test_its_zone_is_shifted_and_comes_back(uneven, tmp_path):
    there = {NAME, "simulated-a", "simulated-c"}
    assert set(uneven.zones("web")) == there
    product = Product(uneven.plane, tmp_path, NO_WAIT)
    with Endpoints(uneven) as asked:
        wait_until(lambda: asked.samples and asked.samples[-1] == (3, 3), 30, "the endpoints")
        asked.samples.clear()
        operations.cordon(uneven.api, SHIFTED)
        shifted = product.run()
        assert (shifted.code, shifted.report["moves"]) == (0, []), shifted.err
        assert any("zone-c" in text and "closed" in text for text in shifted.report["warnings"])
        assert set(uneven.zones("web")) == there
        assert min(asked.samples) == (3, 3)
        operations.cordon(uneven.api, SHIFTED, on=False)
        back = product.run()
        assert back.code == 0, back.err
        operations.wait_pods_ready(uneven.api, 3, 60, selector="app=web")
        assert {"simulated-a", "simulated-b"} < set(uneven.zones("web"))
        assert product.run().report["moves"] == []
    assert asked.failed is None
    assert min(asked.samples) >= (2, 2)
