"""What the demo draws is what stands in the cluster."""

from collections import Counter

from rebalancer.embedded.demo import (
    PlacedPod,
    draw_table,
    draw_zones,
    format_counts,
    list_placed,
    move_zones,
    predict_counts,
    zone_counts,
)
from rebalancer.embedded.manifests import deployment, pod, statefulset

ZONES = ("zone-a", "zone-b", "zone-c")


def standing(name: str, zone: str, workload: str = "web") -> PlacedPod:
    return PlacedPod(name, f"uid-{name}", workload, f"node-{zone[-1]}", zone)


def test_pods_are_known_by_their_workload_and_zone(three):
    three.apply(deployment("web-shop", 1), statefulset("db", 1), pod("alone"))
    three.settle()
    by_workload = {p.workload: p for p in list_placed(three)}
    assert set(by_workload) == {"web-shop", "db", "alone"}
    assert all(p.zone == p.node.replace("node", "zone") for p in by_workload.values())


def test_a_terminating_pod_is_no_replica(three):
    three.apply(pod("a"))
    three.settle()
    three.delete("Pod", "a")
    assert list_placed(three) == []


def test_zones_are_drawn_with_their_pods():
    pods = [standing("p1", "zone-a"), standing("p2", "zone-a"), standing("p3", "zone-b")]
    assert draw_zones(pods, ZONES[:2], frozenset({"uid-p2"})) == [
        "  zone-a   p1 (node-a)",
        "           p2 (node-a, new)",
        "  zone-b   p3 (node-b)",
        "  zone-c   (no node)",
    ]
    assert draw_zones([], ZONES, frozenset()) == [f"  {zone}   -" for zone in ZONES]


def test_predicted_counts_move_each_pod_to_its_most_probable_zone():
    pods = [standing("p1", "zone-a"), standing("p2", "zone-a"), standing("p3", "zone-b")]
    move = {
        "owner": "Deployment/default/web",
        "from": "n-a",
        "landings": [
            {"node": "n-b", "probability": 0.4},
            {"node": "n-c1", "probability": 0.3},
            {"node": "n-c2", "probability": 0.3},
        ],
    }
    zones = {"n-a": "zone-a", "n-b": "zone-b", "n-c1": "zone-c", "n-c2": "zone-c"}
    (moved,) = move_zones([move], zones)
    assert (moved["from_zone"], moved["to_zone"]) == ("zone-a", "zone-c")
    before = zone_counts(pods)
    after = predict_counts(before, [moved])
    assert format_counts(before["web"]) == "2/1/0"
    assert format_counts(after["web"]) == "1/1/1"
    assert before == {"web": Counter({"zone-a": 2, "zone-b": 1})}


def test_a_table_is_as_wide_as_its_cells():
    assert draw_table(("a", "bb"), [("long", "x"), ("s", "yy")]) == [
        "  a     bb",
        "  ----  --",
        "  long  x",
        "  s     yy",
    ]
