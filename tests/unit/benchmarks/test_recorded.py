"""Clusters drawn from recorded ones: the same for the same seed, as full as asked, and understood by the ruler."""

import pytest

from benchmarks.decisions.instance import counted
from benchmarks.decisions.loop import as_objects
from benchmarks.decisions.reading import placement, read
from benchmarks.decisions.recorded import INSTANCES, NODES, recorded
from rebalancer.testing.snapshots import node, spread, workload
from rebalancer.wire import quantity

HOST = "kubernetes.io/hostname"
SIZES = {"a": (16000, 65536), "b": (32000, 131072), "c": (32000, 262144)}
NAMES = [f"node-{i}" for i in range(12)]


def instance(app, cpu, memory, cap, created="", deleted="", role="HN"):
    return f"{app},{role},{cpu},{memory},{cap},{created},{deleted}"


@pytest.fixture
def folder(tmp_path):
    """Three sizes of nodes; ten small services with caps, one huge one, one that shrinks before it grows."""
    rows = [instance("huge", 24, 16.0, -1) for _ in range(3)]
    for number, cap in enumerate((-1, 1, 2, 4, -1, 1, 2, 4, -1, 2)):
        rows += [instance(f"app_{number}", 1, 4.0, cap) for _ in range(3 + 4 * number)]
    rows += [instance("busy", 2, 2.0, 2, "", 100), instance("busy", 2, 2.0, 2, 50, 60)]
    rows += [instance("busy", 2, 2.0, 2, 200, ""), instance("busy", 1, 2.0, 2, 200, "")]
    sizes = [f"{sn},{cpu},{memory}" for sn, (cpu, memory) in SIZES.items()]
    for path, head, lines in (
        (NODES, "sn,cpu_milli,memory_mib", sizes),
        (
            INSTANCES,
            "app_name,role,cpu_request,memory_request,max_instance_per_node,creation_time,deletion_time",
            rows,
        ),
    ):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text("\n".join([head, *lines]) + "\n")
    return tmp_path


def requests(manifest):
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    asked = container["resources"]["requests"]
    return quantity.parse(asked["cpu"], milli=True), quantity.parse(asked["memory"])


def test_a_service_has_its_commonest_size_and_its_most_instances_at_a_time(folder):
    (busy,) = [app for app in recorded(folder).apps if app.name == "busy-hn"]
    assert (busy.size.cpu, busy.size.memory, busy.cap) == (2000, 2048, 2)
    # Of four instances, two at 50 and two from 200 on.
    assert busy.instances == 2


def test_the_same_seed_draws_the_same_cluster_and_another_one_another(folder):
    def draw(seed):
        return recorded(folder).make(NAMES, NAMES[:8], seed=seed, load=0.5)

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("early", "load"), [(8, 0.5), (9, 0.55)])
def test_the_early_nodes_are_55_to_70_percent_full(folder, seed, early, load):
    bag, rooms = recorded(folder).make(NAMES, NAMES[:early], seed=seed, load=load)
    shares = [
        sum(m["spec"]["replicas"] * requests(m)[i] for m in bag)
        / sum(quantity.parse(getattr(rooms[n], of), milli=i == 0) for n in NAMES[:early])
        for i, of in enumerate(("cpu", "memory"))
    ]
    assert 0.55 <= max(shares) <= 0.70


@pytest.mark.parametrize("seed", range(5))
def test_what_is_more_than_half_of_the_median_node_is_left_out(folder, seed):
    bag, rooms = recorded(folder).make(NAMES, NAMES, seed=seed, load=0.5)
    assert "huge-hn" in {app.name for app in recorded(folder).apps}
    assert "huge-hn" not in {m["metadata"]["name"] for m in bag}
    assert {(int(r.cpu[:-1]), int(r.memory[:-2])) for r in rooms.values()} <= set(SIZES.values())


def test_a_cap_of_one_is_anti_affinity_and_a_larger_one_a_hard_limit_per_node(folder):
    bag, _ = recorded(folder).make(NAMES, NAMES, seed=0, load=0.5)
    caps = {app.name: app.cap for app in recorded(folder).apps}
    assert {caps[m["metadata"]["name"]] for m in bag} == {None, 1, 2, 4}
    for manifest in bag:
        cap, spec = caps[manifest["metadata"]["name"]], manifest["spec"]["template"]["spec"]
        limits = [
            (c["maxSkew"], c["whenUnsatisfiable"])
            for c in spec.get("topologySpreadConstraints", [])
            if c["topologyKey"] == HOST
        ]
        assert ("affinity" in spec) == (cap == 1)
        assert limits == ([(cap, "DoNotSchedule")] if cap and cap > 1 else [])


def test_a_folder_without_the_traces_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match=r"openb_node_list_all_node\.csv is missing"):
        recorded(tmp_path)


def test_the_ruler_counts_pods_above_a_cap_per_node_but_not_uneven_ones_below():
    capped = spread("a", HOST, hard=True, max_skew=2, minDomains=100)
    nodes = [node(name, "z") for name in ("n0", "n1", "n2")]
    for on, above in ((["n0"] * 2, 0), (["n0"] * 4, 2), (["n0"] * 3 + ["n1"] * 3, 2)):
        objects = as_objects([*nodes, *workload("a", on, spec=capped)])
        reading = read(objects)
        assert reading.violations(counted(reading, placement(objects)))["hardSpread"] == above


def test_the_ruler_lets_no_pod_onto_a_node_that_is_too_small_for_it():
    nodes = [node("large", cpu="8"), node("small", cpu="1"), node("tight", memory="1Gi")]
    objects = as_objects([*nodes, *workload("a", ["large"] * 2, cpu="2", memory="2Gi")])
    reading = read(objects)
    assert reading.allowed.tolist() == [[True, False, False]]
    # Both replicas on the only node that can hold them are no duplicates.
    assert reading.violations(counted(reading, placement(objects)))["duplicates"] == 0
