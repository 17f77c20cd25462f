"""A KubeSchedulerConfiguration as profiles: the keys, the plug-ins that run, and what is not followed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rebalancer.policy.kube_scheduler import read_configuration
from rebalancer.scheduler.configured import not_followed, profiles_of
from rebalancer.scheduler.profile import DEFAULT_WEIGHTS, SchedulerProfile, ScoringStrategy
from rebalancer.wire import objects as o
from tests.unit.scheduler.worlds import Json, World, node, pod

API = "kubescheduler.config.k8s.io/v1"
GPU = "example.com/gpu"


def read(*profiles: Json, **top: Any) -> SchedulerProfile:
    return profiles_of(configuration(*profiles, **top))


def configuration(*profiles: Json, **top: Any) -> Any:
    file = {"apiVersion": API, "kind": "KubeSchedulerConfiguration", "profiles": list(profiles)}
    given, problems = read_configuration(yaml.safe_dump({**file, **top}).encode(), "s.yaml")
    assert given is not None, problems
    return given


def args(plugin: str, **values: Any) -> Json:
    config = {"name": plugin, "args": {"apiVersion": API, "kind": f"{plugin}Args", **values}}
    return {"pluginConfig": [config]}


def test_an_empty_configuration_is_the_default():
    assert read().at((1, 35)) == SchedulerProfile.for_version((1, 35))
    assert read({}, leaderElection={"leaderElect": False}, parallelism=4) == read()


@pytest.mark.parametrize(
    ("plugins", "first"),
    [
        ({}, "NodeUnschedulable"),
        ({"filter": {"enabled": [{"name": "NodeAffinity"}]}}, "NodeAffinity"),
        (
            {
                "multiPoint": {
                    "disabled": [{"name": "NodeUnschedulable"}],
                    "enabled": [{"name": "NodeUnschedulable"}],
                }
            },
            "NodeAffinity",
        ),
        (
            {
                "multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": "NodeAffinity"}, {"name": "NodeUnschedulable"}],
                }
            },
            "NodeAffinity",
        ),
    ],
)
def test_the_first_filter_in_the_order_of_the_configuration_is_the_reason(plugins, first):
    order = read({"plugins": plugins}).filter_order
    world = World(
        [node("a", unschedulable=True)],
        [pod("p", nodeSelector={"no": "where"})],
        profile={"filter_order": order},
    )
    assert world.filters("p") == {"a": first}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            args("NodeResourcesFit", scoringStrategy={"type": "MostAllocated", "resources": None}),
            {"scoring": ScoringStrategy("MostAllocated")},
        ),
        (
            args(
                "NodeResourcesFit", scoringStrategy={"resources": [{"name": GPU}, {"name": "cpu"}]}
            ),
            {"scoring": ScoringStrategy(resources=((GPU, 1), ("cpu", 1)))},
        ),
        (
            args(
                "NodeResourcesFit",
                scoringStrategy={
                    "type": "RequestedToCapacityRatio",
                    "resources": [{"name": "cpu", "weight": 0}],
                    "requestedToCapacityRatio": {"shape": [{"utilization": 5, "score": 9}]},
                },
            ),
            {"scoring": ScoringStrategy("RequestedToCapacityRatio", (("cpu", 1),), ((5, 9),))},
        ),
        (
            args("NodeResourcesFit", ignoredResources=[GPU], ignoredResourceGroups=["a.b"]),
            {"ignored_resources": {GPU, "a.b"}},
        ),
        (
            args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}, {"name": GPU}]),
            {"balanced": ("cpu", GPU)},
        ),
        (
            args(
                "InterPodAffinity", hardPodAffinityWeight=0, ignorePreferredTermsOfExistingPods=True
            ),
            {"hard_pod_affinity_weight": 0, "ignores_preferred_terms": True},
        ),
        (
            args(
                "PodTopologySpread",
                defaultingType="List",
                defaultConstraints=[
                    {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
                ],
            ),
            {"default_constraints": (o.TopologySpreadConstraint(2, "rack", "DoNotSchedule"),)},
        ),
        (args("PodTopologySpread", defaultingType="List"), {"default_constraints": ()}),
        (args("PodTopologySpread"), {"default_constraints": None}),
        ({"percentageOfNodesToScore": 30}, {"percentage_of_nodes_to_score": 30}),
        (args("Coscheduling", unknown=1), {"unmodelled": ()}),
    ],
)
def test_arguments_are_settings_of_the_profile(given, wanted):
    profile = read(given)
    assert {key: getattr(profile, key) for key in wanted} == wanted


def test_the_percentage_of_a_profile_comes_before_that_of_all():
    profile = read(
        {"schedulerName": "a"},
        {"schedulerName": "b", "percentageOfNodesToScore": 100},
        percentageOfNodesToScore=7,
    )
    assert profile.percentage_of_nodes_to_score == 7
    assert profile.others[0].percentage_of_nodes_to_score == 100


@pytest.mark.parametrize(
    ("plugins", "changed"),
    [
        ({}, {}),
        ({"score": {"disabled": [{"name": "ImageLocality"}]}}, {"ImageLocality": None}),
        # Named where it scores, its weight counts, whether it is disabled beside that or not.
        ({"score": {"enabled": [{"name": "NodeAffinity", "weight": 9}]}}, {"NodeAffinity": 9}),
        (
            {
                "score": {
                    "disabled": [{"name": "NodeAffinity"}],
                    "enabled": [{"name": "NodeAffinity"}],
                }
            },
            {"NodeAffinity": 1},
        ),
        ({"multiPoint": {"enabled": [{"name": "NodeAffinity"}]}}, {"NodeAffinity": 1}),
        (
            {
                "multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 5}]},
                "score": {"enabled": [{"name": "NodeAffinity", "weight": 3}]},
            },
            {"NodeAffinity": 3},
        ),
        (
            {
                "score": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": "TaintToleration", "weight": 4}],
                }
            },
            {**dict.fromkeys(DEFAULT_WEIGHTS, None), "TaintToleration": 4},
        ),
        ({"multiPoint": {"disabled": [{"name": "InterPodAffinity"}]}}, {"InterPodAffinity": None}),
        ({"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}}, {}),
    ],
)
def test_weights_are_merged_as_the_scheduler_does(plugins, changed):
    profile = read({"plugins": plugins})
    wanted = {**DEFAULT_WEIGHTS, **changed}
    assert profile.weights == {name: weight for name, weight in wanted.items() if weight}
    assert profile.unmodelled == ()


@pytest.mark.parametrize(
    ("plugins", "reason"),
    [
        ({"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}, "plug-in Coscheduling is not"),
        ({"score": {"enabled": [{"name": "Trimaran", "weight": 2}]}}, "plug-in Trimaran is not"),
        ({"permit": {"enabled": [{"name": "Gang"}]}}, "plug-in Gang is not modelled"),
        ({"filter": {"disabled": [{"name": "NodePorts"}]}}, "NodePorts is disabled at filter only"),
        ({"preScore": {"disabled": [{"name": "*"}]}}, "plug-in * is disabled at preScore only"),
        (
            {
                "multiPoint": {"disabled": [{"name": "NodeAffinity"}]},
                "score": {"enabled": [{"name": "NodeAffinity"}]},
            },
            "plug-in NodeAffinity is enabled at score only",
        ),
        (
            {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}},
            "plug-in NodeResourcesFit is disabled",
        ),
    ],
)
def test_plugins_that_are_not_modelled_are_named_and_their_pods_are_not_judged(plugins, reason):
    profile = read({"schedulerName": "odd", "plugins": plugins}, {"schedulerName": "plain"})
    assert reason in profile.unmodelled[0]
    world = World(
        [node("a"), node("b")],
        [pod("o", schedulerName="odd"), pod("p", schedulerName="plain"), pod("q")],
        profile=profile,
    )
    unmodelled = {name: world.model.find_unmodelled(world.cls(name)) for name in "opq"}
    assert reason in unmodelled["o"][0]
    assert unmodelled["p"] == ()
    # Nothing is known of a scheduler that has no profile.
    assert unmodelled["q"] == ("scheduled by default-scheduler",)
    assert next(not_followed(configuration({"plugins": plugins}))).startswith(
        "s.yaml: pods of schedulerName default-scheduler are not judged: plug-in"
    )


@pytest.mark.parametrize(
    ("extender", "whole", "managed"),
    [
        ({"urlPrefix": "http://e", "filterVerb": "f"}, True, []),
        ({"urlPrefix": "http://e", "prioritizeVerb": "p", "weight": 2}, True, []),
        ({"urlPrefix": "http://e", "bindVerb": "b"}, False, []),
        (
            {"urlPrefix": "http://e", "filterVerb": "f", "managedResources": [{"name": GPU}]},
            False,
            [GPU],
        ),
    ],
)
def test_what_extenders_decide_is_not_judged(extender, whole, managed):
    profile = read(extenders=[extender])
    assert bool(profile.unmodelled) is whole
    has = {"example.com/gpu": "4"}
    asked = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    world = World(
        [node("a", allocatable=has), node("b", allocatable=has)],
        [pod("gpu", containers=[{"name": "c", "resources": asked}]), pod("plain")],
        profile=profile,
    )
    assert bool(world.model.find_unmodelled(world.cls("gpu"))) is (whole or bool(managed))
    assert bool(world.model.find_unmodelled(world.cls("plain"))) is whole


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("profiles:\n- plugin: {}\n", "s.yaml:4: profiles[0].plugin: unknown key; did you mean"),
        (
            (
                "profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n"
                "    args: {hardPodAffinityWeight: 101}\n"
            ),
            "s.yaml:6: profiles[0].pluginConfig[0].args.hardPodAffinityWeight: 101 should be at most",
        ),
        (
            "profiles:\n- schedulerName: a\n- schedulerName: a\n",
            "s.yaml:5: profiles[1].schedulerName: a stands here twice",
        ),
        ("profiles:\n- schedulerName: a\n- {}\n", "each of several profiles needs one"),
        (
            (
                "profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n"
                "      defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable:"
                " DoNotSchedule}]\n"
            ),
            "profiles[0].pluginConfig[0].args: defaultConstraints need defaultingType: List",
        ),
        ("percentageOfNodeToScore: 5\n", "did you mean percentageOfNodesToScore?"),
    ],
)
def test_what_kube_scheduler_would_refuse_is_an_error_with_its_line(text, wrong):
    head = f"apiVersion: {API}\nkind: KubeSchedulerConfiguration\n"
    given, problems = read_configuration((head + text).encode(), "s.yaml")
    assert given is None
    assert wrong in " ".join(map(str, problems))


@pytest.mark.parametrize(
    "head", ["apiVersion: kubescheduler.config.k8s.io/v1beta3", "apiVersion: v1"]
)
def test_another_version_is_an_error(head):
    given, problems = read_configuration(
        f"{head}\nkind: KubeSchedulerConfiguration\n".encode(), "s.yaml"
    )
    assert given is None
    assert str(problems[0]).startswith("s.yaml:1: apiVersion: ")
