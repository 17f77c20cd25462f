"""Ten ways in which a cluster drifts: each seeded, each made by the real scheduler and controllers.

Every scenario leaves all pods Ready and the cluster standing still. Workloads are shaped like those of
`tests.controlplane.workloads`: 2 to 20 replicas, about 500 pods on 30 nodes. Those in `OF_ANY_SHAPE` play
on other shapes of nodes and workloads, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.decisions import volumes
from benchmarks.decisions.shapes import MadeUp, Manifest, Rooms, Shapes, mixed, sized, within
from tests.controlplane import ControlPlane, objects, operations, workloads
from tests.controlplane.waiting import wait_until

ZONES = ("zone-a", "zone-b", "zone-c")
_SECONDS = 240.0
_TEAM = "team"
_MADE_UP = MadeUp()


def zone_back(
    plane: ControlPlane, *, seed: int, nodes: int, shapes: Shapes = _MADE_UP
) -> list[Manifest]:
    """Everything was created while one zone of three was away (three quarters full); now it is back."""
    every = names(nodes)
    early = [name for name in every if zone(name) != ZONES[2]]
    bag, rooms = shapes.make(every, early, seed=seed, load=0.5)
    add_nodes(plane, early, rooms)
    plane.apply(bag)
    ready(plane, workloads.replicas(bag))
    add_nodes(plane, [name for name in every if name not in early], rooms)
    return bag


def new_nodes(plane: ControlPlane, *, seed: int, nodes: int, shapes: Shapes = _MADE_UP) -> None:
    """Two thirds of the nodes carry everything, three quarters full; the others have just joined."""
    every = names(nodes)
    early = every[: nodes * 2 // 3]
    bag, rooms = shapes.make(every, early, seed=seed, load=0.5)
    add_nodes(plane, early, rooms)
    plane.apply(bag)
    ready(plane, workloads.replicas(bag))
    add_nodes(plane, every[len(early) :], rooms)


def drained_return(
    plane: ControlPlane, *, seed: int, nodes: int, shapes: Shapes = _MADE_UP
) -> None:
    """A fifth of the nodes was drained for maintenance, and is schedulable again."""
    every = names(nodes)
    drained = random.Random(seed).sample(every, max(1, nodes // 5))
    stay = [name for name in every if name not in drained]
    bag, rooms = shapes.make(every, stay, seed=seed, load=0.55)
    add_nodes(plane, every, rooms)
    plane.apply(bag)
    ready(plane, workloads.replicas(bag))
    operations.drain(plane.api, drained, _SECONDS)
    ready(plane, workloads.replicas(bag))
    operations.cordon(plane.api, drained, on=False)
    operations.wait_nodes_ready(plane.api, nodes)


def scale_down(plane: ControlPlane, *, seed: int, nodes: int, shapes: Shapes = _MADE_UP) -> None:
    """Night: every workload has shrunk to a part of its replicas, as its ReplicaSet saw fit."""
    rng = random.Random(seed)
    every = names(nodes)
    bag, rooms = shapes.make(every, every, seed=seed, load=0.3)
    add_nodes(plane, every, rooms)
    grown = [within(m, nodes, rng.randint(2, 3)) for m in bag]
    plane.apply(grown)
    ready(plane, workloads.replicas(grown))
    for manifest in bag:
        path = f"/apis/apps/v1/namespaces/default/deployments/{manifest['metadata']['name']}"
        plane.api.patch(path, {"spec": {"replicas": manifest["spec"]["replicas"]}})
    ready(plane, workloads.replicas(bag))


def labels_change(plane: ControlPlane, *, seed: int, nodes: int) -> None:
    """A third of the workloads needs nodes of one pool; nodes change pool, others get a taint."""
    rng = random.Random(seed)
    every = names(nodes)
    pool = {name: "gold" if (i // 3) % 2 == 0 else "silver" for i, name in enumerate(every)}
    bag = mixed(nodes * 2, seed, hosts=nodes)
    for index, manifest in enumerate(bag):
        if index % 3 == 0:
            spec = manifest["spec"]["template"]["spec"]
            affinity = spec.setdefault("affinity", {})
            affinity.update(objects.require_node("pool", "gold"))
            # Twice as many gold nodes as replicas that must stand apart, so that all can be placed.
            most = max(2, nodes // 4)
            manifest["spec"]["replicas"] = min(manifest["spec"]["replicas"], most)
    pools = {name: {"pool": pool[name]} for name in every}
    add_nodes(plane, every, dict.fromkeys(every, sized(bag, nodes, 0.45)), labels=pools)
    plane.apply(bag)
    ready(plane, workloads.replicas(bag))
    changed = rng.sample([n for n in every if pool[n] == "gold"], max(1, nodes // 10))
    for name in changed:
        plane.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"pool": "silver"}}})
    tainted = rng.sample([n for n in every if pool[n] == "silver"], max(1, nodes // 10))
    taint = [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    for name in tainted:
        plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taint}})
    ready(plane, workloads.replicas(bag))


def nearly_full(plane: ControlPlane, *, seed: int, nodes: int) -> None:
    """The nodes are 85 % full by cpu; a fifteenth of them was drained, what fitted stayed, and is back."""
    bag = mixed(nodes * 2, seed, hosts=nodes - max(1, nodes // 15))
    room = sized(bag, nodes, 0.85, memory_load=0.6)
    add_nodes(plane, names(nodes), dict.fromkeys(names(nodes), room))
    plane.apply(bag)
    ready(plane, workloads.replicas(bag))
    drained = random.Random(seed).sample(names(nodes), max(1, nodes // 15))
    # Some pods may find no room now and wait for the nodes to come back.
    operations.drain(plane.api, drained, _SECONDS)
    operations.cordon(plane.api, drained, on=False)
    ready(plane, workloads.replicas(bag))


def conflicts(plane: ControlPlane, *, seed: int, nodes: int) -> None:
    """A zone comes back, and some workloads ask for what cannot be had together."""
    rng = random.Random(seed)
    every = names(nodes)
    early = [name for name in every if zone(name) != ZONES[2]]
    racks = {name: {"rack": f"rack-{i % 4}"} for i, name in enumerate(every)}
    bag = [*mixed(nodes, seed, hosts=len(early)), *_conflicting(rng, max(6, nodes // 3))]
    rooms = dict.fromkeys(every, sized(bag, nodes, 0.45))
    add_nodes(plane, early, rooms, labels=racks)
    plane.apply(bag)
    ready(plane, workloads.replicas(bag))
    add_nodes(plane, [name for name in every if name not in early], rooms, labels=racks)


def _conflicting(rng: random.Random, count: int) -> list[Manifest]:
    """Even over three zones but allowed in two; even over zones and over racks that cross them; four domains of three."""
    made = []
    for index in range(count):
        name = f"odd-{index:03d}"
        labels = {"app": name}
        replicas = rng.randint(3, 6)
        kind = index % 3
        if kind == 0:
            spec: dict[str, Any] = {
                "affinity": objects.require_node(objects.ZONE, *ZONES[:2]),
                "topologySpreadConstraints": [objects.spread(labels, nodeAffinityPolicy="Ignore")],
            }
        elif kind == 1:
            spec = {
                "affinity": objects.prefer_apart(labels, "rack"),
                "topologySpreadConstraints": [objects.spread(labels, hard=False)],
            }
        else:
            # With two zones of four the floor counts as 0: at most three in each.
            spec = {"topologySpreadConstraints": [objects.spread(labels, max_skew=3, minDomains=4)]}
        made.append(objects.deployment(name, replicas, labels=labels, cpu="100m", **spec))
    return made


def budgets(plane: ControlPlane, *, seed: int, nodes: int, shapes: Shapes = _MADE_UP) -> None:
    """A zone comes back; a third of the workloads has a budget: of nothing, of one, of a half."""
    bag = zone_back(plane, seed=seed, nodes=nodes, shapes=shapes)
    rng = random.Random(seed)
    chosen = rng.sample(bag, len(bag) // 3)
    allowed: Sequence[Mapping[str, Any]] = (
        {"maxUnavailable": 0},
        {"maxUnavailable": 1},
        {"minAvailable": "50%"},
    )
    made = [
        objects.pdb(m["metadata"]["name"], {"app": m["metadata"]["name"]}, **allowed[i % 3])
        for i, m in enumerate(chosen)
    ]
    plane.apply(made)
    _wait_budgets(plane, len(made))


def _wait_budgets(plane: ControlPlane, count: int) -> None:
    def counted() -> bool:
        budgets = plane.api.list_all("/apis/policy/v1/poddisruptionbudgets")
        seen = [b for b in budgets if b.get("status", {}).get("observedGeneration") == 1]
        return len(seen) == count and all(b["status"]["currentHealthy"] > 0 for b in seen)

    wait_until(counted, 60, f"{count} PodDisruptionBudgets counted")


def mutual(plane: ControlPlane, *, seed: int, nodes: int) -> None:
    """Pairs of workloads that repel each other's namespace met before the namespaces were labelled."""
    rng = random.Random(seed)
    made = mixed(nodes, seed, hosts=nodes)
    for index in range(max(2, nodes // 3)):
        name, hard = f"pair-{index:03d}", index % 2 == 0
        for own, other in (("red", "blue"), ("blue", "red")):
            made.append(
                objects.deployment(
                    name,
                    rng.randint(2, max(3, nodes // 4)),
                    namespace=own,
                    labels={"app": name},
                    affinity=_apart_from(name, other, hard=hard),
                )
            )
    add_nodes(plane, names(nodes), dict.fromkeys(names(nodes), sized(made, nodes, 0.45)))
    plane.apply([objects.namespace("red"), objects.namespace("blue")])
    plane.apply(made)
    ready(plane, workloads.replicas(made))
    for name in ("red", "blue"):
        plane.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {_TEAM: name}}})


def _apart_from(app: str, team: str, *, hard: bool) -> dict[str, Any]:
    term = {
        "labelSelector": {"matchLabels": {"app": app}},
        "namespaceSelector": {"matchLabels": {_TEAM: team}},
        "topologyKey": objects.HOSTNAME,
    }
    if hard:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wish = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def zonal_volumes(plane: ControlPlane, *, seed: int, nodes: int) -> None:
    """A zone comes back; StatefulSets hold volumes in the other two and cannot follow."""
    rng = random.Random(seed)
    every = names(nodes)
    early = [name for name in every if zone(name) != ZONES[2]]
    bag = mixed(nodes, seed, hosts=len(early))
    rooms = dict.fromkeys(every, sized(bag, nodes, 0.4))
    add_nodes(plane, early, rooms)
    sets = [f"db-{index:02d}" for index in range(max(2, nodes // 5))]
    replicas = {name: rng.randint(3, 5) for name in sets}
    plane.apply([volumes.storage_class()])
    plane.apply(volumes.volumes(sum(replicas.values()), ZONES[:2]))
    plane.apply(
        volumes.stateful_set(
            name,
            count,
            topologySpreadConstraints=[objects.spread({"app": name}, hard=index % 2 == 0)],
        )
        for index, (name, count) in enumerate(replicas.items())
    )
    plane.apply(bag)
    ready(plane, workloads.replicas(bag) + sum(replicas.values()))
    add_nodes(plane, [name for name in every if name not in early], rooms)


Scenario = Callable[..., object]
SCENARIOS: Mapping[str, Scenario] = {
    "zone-back": zone_back,
    "new-nodes": new_nodes,
    "drained-return": drained_return,
    "scale-down": scale_down,
    "labels-change": labels_change,
    "nearly-full": nearly_full,
    "conflicts": conflicts,
    "budgets": budgets,
    "mutual": mutual,
    "zonal-volumes": zonal_volumes,
}
"""By name; each takes a control plane without nodes, a seed and the number of nodes."""
OF_ANY_SHAPE = ("zone-back", "new-nodes", "drained-return", "scale-down", "budgets")
"""Those that take ``shapes``, too; the others need workloads of their own making."""


# -- small things --------------------------------------------------------------------------------------


def names(nodes: int) -> list[str]:
    """Return names of nodes in three zones in turn."""
    return [f"node-{i:03d}-{ZONES[i % len(ZONES)]}" for i in range(nodes)]


def zone(name: str) -> str:
    """Return the zone that a node's name says."""
    return name.split("-", 2)[2]


def add_nodes(
    plane: ControlPlane,
    added: Sequence[str],
    rooms: Rooms,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Add nodes and wait until they are Ready, with those that were there."""
    there = len(plane.api.list_all("/api/v1/nodes"))
    plane.apply(
        objects.node(
            name,
            zone=zone(name),
            labels=(labels or {}).get(name),
            cpu=rooms[name].cpu,
            memory=rooms[name].memory,
        )
        for name in added
    )
    operations.wait_nodes_ready(plane.api, there + len(added), 60.0)


def ready(plane: ControlPlane, pods: int) -> None:
    """Wait until there are so many pods, all Ready."""
    operations.wait_pods_ready(plane.api, pods, _SECONDS)
