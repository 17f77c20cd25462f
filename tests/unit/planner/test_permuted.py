"""Which pod of an owner has which volume, what objects are called, and their order in a file change no plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.planner.settings import Settings
from rebalancer.policy.model import Budgets
from rebalancer.policy.protect import Protect
from rebalancer.registry import Registry
from rebalancer.testing.snapshots import HOSTNAME, ZONE, apart, node, number_pods, spread, workload
from strategies.lifetime import LifetimeParams
from strategies.placement import PlacementParams
from strategies.slots import SlotsParams
from strategies.taints import TaintsParams
from tests.unit.planner.conftest import plan_of

NAMES = [listed.name for listed in Registry.installed().list_metadata()]
PARAMS = {
    "placement": PlacementParams.model_validate({"prefer": {"tier": "good"}}),
    "slots": SlotsParams.model_validate({"free": {"cpu": "3"}}),
    "lifetime": LifetimeParams.model_validate({"maxPodLifeTime": "1h"}),
    "taints": TaintsParams.model_validate({"preferNoSchedule": True}),
}
ALL_MOVE = Protect.model_validate({"volumes": False, "singleReplicas": False, "minPodAge": "0s"})
ANYWHERE = {"tolerations": [{"operator": "Exists"}]}
ZONES = ("east", "north", "west")
TAINTS = {
    "going": {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},
    "kept": {"key": "dedicated", "value": "batch", "effect": "NoSchedule"},
    "soft": {"key": "old", "effect": "PreferNoSchedule"},
}


def volume(name: str, zone: str) -> list[dict[str, Any]]:
    """A bound claim, and its volume in a zone."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return [
        {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"volumeName": f"pv-{name}"},
            "status": {"phase": "Bound"},
        },
        {
            "kind": "PersistentVolume",
            "apiVersion": "v1",
            "metadata": {"name": f"pv-{name}"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
            "status": {"phase": "Bound"},
        },
    ]


@dataclass
class Cluster:
    """Nodes of three zones, and a StatefulSet with a volume in a zone for each of its pods."""

    nodes: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Name -> zone, key of a taint or empty, tier."""
    pods: list[tuple[str, str]] = field(default_factory=list)
    """Zone of the volume, and node."""
    spec: dict[str, Any] = field(default_factory=dict)
    others: list[dict[str, Any]] = field(default_factory=list)

    def objects(self, order: list[int]) -> list[dict[str, Any]]:
        """The objects, with the pods in this order of ordinals."""
        pods = [self.pods[at] for at in order]
        made = [
            node(name, zone, labels={"tier": tier}, taints=[TAINTS[taint]] if taint else [])
            for name, (zone, taint, tier) in self.nodes.items()
        ]
        stateful = number_pods(
            workload("db", [on for _, on in pods], kind="StatefulSet", cpu="500m", spec=self.spec)
        )
        for item in stateful[1:]:
            claim = {"claimName": f"data-{item['metadata']['name']}"}
            item["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
        claims = [
            each for at, (zone, _) in enumerate(pods) for each in volume(f"data-db-{at}", zone)
        ]
        return [*made, *stateful, *claims, *self.others]

    def kinds(self, order: list[int]) -> dict[str, Hashable]:
        """Pod -> zone of its volume and node, with the pods in this order of ordinals."""
        kinds: dict[str, Hashable] = {f"db-{at}": self.pods[of] for at, of in enumerate(order)}
        return {**kinds, "near-0": "near", "near-1": "near"}


def outcome(
    objects: list[dict[str, Any]], strategy: str, kind_of: Mapping[str, Hashable], per_run: int = 10
) -> tuple[object, ...]:
    """What a plan of one strategy does, with the kind of each pod in the place of its name."""
    limits = Settings(budgets=Budgets.model_validate({"perRun": per_run}))
    plan = plan_of(
        objects, strategies=[strategy], params=PARAMS, protections=ALL_MOVE, settings=limits
    )
    moves = Counter(kind_of[move.pod] for move in plan.moves)
    scores = [
        (name, score.cost, score.violated, Counter(score.unsatisfiable))
        for when in (plan.before, plan.after)
        for name, score in when.items()
    ]
    skips = Counter((kind_of[skip.pod], skip.code) for skip in plan.skips)
    return moves, scores, skips, Counter(rule.workload for rule in plan.unmet), plan.lower_bound


RULES: Mapping[str, dict[str, Any]] = {
    "none": {},
    "apart": apart("db", HOSTNAME),
    "apart by preference": apart("db", HOSTNAME, weight=100),
    "spread": spread("db", hard=True),
    "spread by preference": spread("db", HOSTNAME),
    "on good nodes": {"nodeSelector": {"tier": "good"}},
    "on good nodes by preference": {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "preference": {
                            "matchExpressions": [
                                {"key": "tier", "operator": "In", "values": ["good"]}
                            ]
                        },
                    }
                ]
            }
        }
    },
    "near": {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "near"}}}
                ]
            }
        }
    },
}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters with two nodes in each zone, where each pod stands in the zone of its volume."""
    at_node = st.tuples(st.sampled_from(["", "", *TAINTS]), st.sampled_from(["good", "bad"]))
    nodes = {f"{zone}{at}": (zone, *draw(at_node)) for zone in ZONES for at in range(2)}
    zones = draw(st.lists(st.sampled_from(ZONES), min_size=2, max_size=4))
    pods = [(zone, f"{zone}{draw(st.integers(0, 1))}") for zone in zones]
    near = workload("near", ["east0", "north1"], spec=ANYWHERE)
    return Cluster(nodes, pods, draw(st.sampled_from(list(RULES.values()))), near)


@pytest.mark.parametrize("strategy", NAMES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cluster=clusters(), data=st.data())
def test_which_pod_has_which_volume_changes_nothing(strategy, cluster, data):
    first = list(range(len(cluster.pods)))
    order = data.draw(st.permutations(first))
    most = data.draw(st.sampled_from([1, 2, 10]))
    plans = [
        outcome(cluster.objects(of), strategy, cluster.kinds(of), most) for of in (first, order)
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("strategy", NAMES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cluster=clusters(), data=st.data())
def test_the_order_of_objects_changes_nothing(strategy, cluster, data):
    first = list(range(len(cluster.pods)))
    objects = cluster.objects(first)
    shuffled = data.draw(st.permutations(objects))
    kinds = {pod: pod for pod in cluster.kinds(first)}
    assert outcome(objects, strategy, kinds) == outcome(shuffled, strategy, kinds)


@pytest.mark.parametrize("most", [2, 10])
@pytest.mark.parametrize("rule", ["none", "near", "spread by preference"])
@pytest.mark.parametrize(
    "on", [("north0", "east0"), ("west0", "west1"), ("east0", "west0", "north0")]
)
def test_which_of_equal_pods_goes_first_depends_on_no_ordinal(rule, on, most):
    going = {name for name in on if name.endswith("0")}
    nodes = {
        f"{zone}{at}": (zone, "going" if f"{zone}{at}" in going else "", "good")
        for zone in ZONES
        for at in range(2)
    }
    near = workload("near", ["east0", "north1"], spec=ANYWHERE)
    cluster = Cluster(nodes, [(name[:-1], name) for name in on], RULES[rule], near)
    plans = [
        outcome(cluster.objects(list(of)), "lifetime", cluster.kinds(list(of)), most)
        for of in permutations(range(len(on)))
    ]
    assert all(plan == plans[0] for plan in plans)


FULLER = workload("fuller", ["north0"], cpu="2", spec={"nodeSelector": {"tier": "bad"}})
"""Keeps the scheduler from the node, and placement does not judge it."""
DRIFTED = [("east", "east0"), ("north", "north0"), ("west", "west0")]


def nodes_with(taint: str, tier: str) -> dict[str, tuple[str, str, str]]:
    """The only node of a zone, and one of two of another zone, with this taint and tier; two others without."""
    changed = {name: (name[:-1], taint, tier) for name in ("east0", "north0")}
    return {**changed, "north1": ("north", "", "good"), "west0": ("west", "", "good")}


@pytest.mark.parametrize(
    ("strategy", "cluster"),
    [
        ("taints", Cluster(nodes_with("kept", "good"), DRIFTED)),
        ("taints", Cluster(nodes_with("soft", "good"), DRIFTED)),
        ("leaving", Cluster(nodes_with("going", "good"), DRIFTED)),
        ("node-affinity", Cluster(nodes_with("", "bad"), DRIFTED, RULES["on good nodes"])),
        (
            "node-affinity",
            Cluster(nodes_with("", "bad"), DRIFTED, RULES["on good nodes by preference"]),
        ),
        ("placement", Cluster(nodes_with("", "bad"), DRIFTED, others=FULLER)),
        ("duplicates", Cluster(nodes_with("", "good"), [*DRIFTED, ("north", "north0")])),
    ],
    ids=lambda of: of if isinstance(of, str) else "",
)
def test_each_pod_is_judged_by_the_nodes_of_its_own_volume(strategy, cluster):
    for order in permutations(range(len(cluster.pods))):
        plan = plan_of(
            cluster.objects(list(order)), strategies=[strategy], params=PARAMS, protections=ALL_MOVE
        )
        kinds = cluster.kinds(list(order))
        assert [kinds[move.pod] for move in plan.moves] == [("north", "north0")], order
        assert plan.after[strategy].violated == 0
        of_one = [
            "no better node takes 1 of its pods" in x for x in plan.after[strategy].unsatisfiable
        ]
        assert all(of_one), "what cannot hold is about the pod of the other zone alone"
