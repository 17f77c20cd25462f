"""Advice on small clusters that a person can check: what is named, what the patch is, and when there is none."""

import json
from dataclasses import replace

import msgspec
import pytest
import yaml

from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import Paint
from rebalancer.doctor.advice import Adviser, Topic
from rebalancer.doctor.patches import Advised, advice_data, format_advice, write_folder
from rebalancer.doctor.workloads import RESOURCES, decode_workloads
from rebalancer.planner.pins import find_annotated
from rebalancer.planner.scheduler_profile import scheduler_profile
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report.document import ReportDocument
from rebalancer.scheduler.model import SchedulerModel
from rebalancer.testing.snapshots import (
    HOSTNAME,
    ZONE,
    apart,
    disruption_budget,
    node,
    number_pods,
    snapshot_of,
    spread,
    with_usage,
    workload,
)
from rebalancer.wire import objects as o
from tests.support.worlds import read_rules
from tests.unit.commands.called import called

POLICY = load_policy(None, Registry.installed()).policy
NODES = [node("a0", "a"), node("a1", "a"), node("b0", "b"), node("b1", "b")]
EVEN = ["a0", "a1", "b0", "b1"]


def rules(*, hard):
    """Return a rule over zones, and a preferred one over nodes."""
    of = [*spread("web", hard=hard).values(), *spread("web", HOSTNAME).values()]
    return {"topologySpreadConstraints": [one for rules in of for one in rules]}


HARD = rules(hard=True)
SERVICE = {
    "kind": "Service",
    "apiVersion": "v1",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}},
}
GOOD = {
    "ports": [{"containerPort": 8080}],
    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
    "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
}


def budget(pods, desired):
    """Return a PodDisruptionBudget over so many pods, of which so many have to be healthy."""
    one = disruption_budget("guard", "web", allowed=pods - desired, healthy=pods)
    one["status"]["expectedPods"] = pods
    return one


BUDGET = budget(4, 3)


def web(nodes=EVEN, spec=HARD, *, container=None, strategy=None, **more):
    """Return the objects of a Deployment, with more of its one container and of its spec."""
    objects = workload("web", nodes, spec=spec, **more)
    for one in objects:
        if one["kind"] in RESOURCES:
            own = one["spec"]["template"]["spec"]
            own["containers"] = [{**own["containers"][0], **(container or {})}]
            one["spec"]["strategy"] = strategy or {}
    return objects


def advised(objects, *, usage=None, version=(1, 36), nodes=NODES):
    """Return the advice on the only workload of the objects."""
    snapshot = snapshot_of([*nodes, *objects], version=version)
    if usage is not None:
        snapshot = with_usage(snapshot, {"web": usage})
    adviser = Adviser(snapshot, SchedulerModel(snapshot, scheduler_profile(POLICY, snapshot)))
    kept = [(one["kind"], json.dumps(one).encode()) for one in objects if one["kind"] in RESOURCES]
    (mine,) = decode_workloads(kept)
    return Advised(mine, adviser.judge(mine))


def topics(of):
    return {one.topic for one in of.advice}


def pod_patch(of):
    return of.patch["spec"]["template"]["spec"]


def test_there_is_none_on_a_workload_that_has_all():
    of = advised([*web(container=GOOD), BUDGET, SERVICE])
    assert of.advice == ()
    assert of.patch is None


@pytest.mark.parametrize(
    ("objects", "topic"),
    [
        (web(EVEN, apart("web", HOSTNAME, weight=1)), Topic.SPREAD),
        (web(["a0", "a1"], rules(hard=False)), Topic.SPREAD),
        (web(EVEN, rules(hard=False)), Topic.SPREAD),
        (web(EVEN, spread("web", hard=True)), Topic.NODES),
        (web(["a0", "a0", "b0", "b0"], apart("web", ZONE)), Topic.NODES),
        (web(container={**GOOD, "readinessProbe": None}), Topic.READINESS),
        (web(container={**GOOD, "lifecycle": None}), Topic.PRE_STOP),
        (web(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}), Topic.SURGE),
        (web(strategy={"rollingUpdate": {"maxUnavailable": "100%"}}), Topic.UNAVAILABLE),
    ],
)
def test_what_is_missing_is_named_alone(objects, topic):
    served = [SERVICE] if topic in (Topic.READINESS, Topic.PRE_STOP) else []
    of = advised([*objects, BUDGET, *served])
    assert topics(of) == {topic}
    assert of.patch is not None


@pytest.mark.parametrize(
    "objects",
    [
        # A required rule, a preferred one of fewer pods than zones, an anti-affinity that is required, one pod.
        web(
            ["a0", "a0", "a1", "b0"],
            {**spread("web", hard=True), **apart("web", HOSTNAME, weight=1)},
        ),
        web(["a0", "b0"], apart("web", ZONE)),
        web(["a0"], {}),
        # Volumes tie pods to zones.
        web(
            ["a0", "a1"], {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}
        ),
        # A pod that holds a port of the node cannot surge; with Recreate none is meant to.
        web(
            strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            container={"ports": [{"containerPort": 80, "hostPort": 80}]},
        ),
        web(strategy={"type": "Recreate"}),
        # No Service sends requests to it.
        web(container={}),
    ],
)
def test_what_is_as_it_should_be_is_left_alone(objects):
    assert topics(advised([*objects, BUDGET])) == set()


ALL_AT_ONCE = {"rollingUpdate": {"maxUnavailable": 1}}
PORT = {"ports": [{"containerPort": 80, "hostPort": 80}]}


@pytest.mark.parametrize(
    ("spec", "more", "nodes"),
    [
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}, {}, NODES),
        ({}, {"container": PORT}, NODES),
        ({}, {"cpu": "3"}, NODES[:1]),
        (apart("web", HOSTNAME), {}, NODES[:1]),
        (apart("web", ZONE), {}, NODES[:2]),
    ],
)
def test_a_pod_whose_place_its_replacement_needs_may_go_first(spec, more, nodes):
    of = advised(web(["a0"], spec, strategy=ALL_AT_ONCE, **more), nodes=nodes)
    assert of.advice == ()


@pytest.mark.parametrize(("pods", "fewer"), [(1, "25%"), (3, 1), (4, "25%")])
def test_a_rollout_that_ends_all_pods_keeps_some_and_can_still_end(pods, fewer):
    strategy = {"rollingUpdate": {"maxUnavailable": "100%"}}
    spec = rules(hard=True) if pods < 2 else {**HARD, **apart("web", HOSTNAME)}
    objects = web(EVEN[:pods], spec, strategy=strategy)
    of = advised([*objects, budget(pods, pods - 1)], nodes=NODES[: max(pods, 2)])
    assert of.patch["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": fewer}}


def test_a_share_of_rollouts_that_is_none_is_an_error_with_the_name_of_the_workload():
    with pytest.raises(PolicyError, match=r"web: maxSurge '2\.5%' is no number"):
        advised(web(strategy={"rollingUpdate": {"maxSurge": "2.5%"}}))


def test_nodes_that_run_one_pod_each_leave_a_zone_no_room_for_more():
    nodes = [node("a0", "a"), node("a1", "a"), node("a2", "a"), node("b0", "b")]
    of = advised([*web(["a0", "a1", "a2", "b0"], apart("web", HOSTNAME)), BUDGET], nodes=nodes)
    (rule,) = pod_patch(of)["topologySpreadConstraints"]
    assert rule["whenUnsatisfiable"] == "ScheduleAnyway"


def test_without_a_selector_there_is_no_rule_and_no_budget_which_would_be_for_all_pods():
    objects = web(["a0", "a1", "b0"], {})
    for one in objects:
        one["spec"].pop("selector", None)
    assert advised(objects).advice == ()


def test_a_new_rule_counts_each_rollout_alone_and_passes_over_lost_zones():
    of = advised([*web(["a0", "a1", "b0"], {}), BUDGET])
    assert topics(of) == {Topic.SPREAD, Topic.NODES}
    assert pod_patch(of)["topologySpreadConstraints"][:1] == [
        {
            "topologyKey": ZONE,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {"app": "web"}},
            "matchLabelKeys": ["pod-template-hash"],
        }
    ]


def test_a_preferred_rule_is_replaced_and_others_stay_as_they_are():
    soft = rules(hard=False)["topologySpreadConstraints"]
    of = advised(
        [*web(EVEN, {"topologySpreadConstraints": [{**soft[0], "maxSkew": 2}, soft[1]]}), BUDGET]
    )
    first, zone, other = pod_patch(of)["topologySpreadConstraints"]
    assert first == {"$patch": "replace"}
    assert (zone["whenUnsatisfiable"], zone["maxSkew"]) == ("DoNotSchedule", 2)
    assert zone["labelSelector"] == {"matchLabels": {"app": "web"}}
    assert other == soft[1]


def test_a_zone_without_room_gets_a_preferred_rule_or_a_word():
    full = workload("other", ["b0", "b1"], cpu="3900m")
    none = advised([*web(["a0", "a1", "a0"], {}), BUDGET], nodes=[*NODES, *full])
    rule = pod_patch(none)["topologySpreadConstraints"][0]
    assert rule["whenUnsatisfiable"] == "ScheduleAnyway"
    preferred = advised([*web(["a0", "a1", "a0"], spread("web")), BUDGET], nodes=[*NODES, *full])
    spreads = [one for one in preferred.advice if one.topic is Topic.SPREAD]
    assert spreads[0].patch is None
    assert "b has no room" in spreads[0].left


def test_a_missing_budget_is_made_and_a_closed_one_is_opened():
    (new,) = advised(web()).new_budgets
    assert new["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"app": "web"}},
    }
    closed = budget(4, 4)
    (patch,) = advised([*web(), closed]).budget_patches
    assert patch["metadata"]["name"] == closed["metadata"]["name"]
    assert patch["spec"] == {"minAvailable": None, "maxUnavailable": 1}


def test_a_closed_budget_of_one_pod_or_of_two_workloads_is_for_a_person():
    closed = budget(1, 1)
    (one,) = advised([*web(["a0"], {}), closed]).advice
    assert (one.budget, one.patch) == (None, None)
    assert "two replicas" in one.left
    wide = budget(5, 5)
    twin = workload("twin", ["a0"], labels={"app": "web"})
    of = advised([*web(), wide], nodes=[*NODES, *twin])
    assert "a budget of its own" in of.advice[0].left


def test_a_hook_gets_time_and_an_old_server_a_word():
    short = {**HARD, "terminationGracePeriodSeconds": 2}
    of = advised([*web(spec=short, container={**GOOD, "lifecycle": None}), BUDGET, SERVICE])
    assert pod_patch(of)["terminationGracePeriodSeconds"] == 10
    hooked = web(container={**GOOD, "lifecycle": None})
    (old,) = advised([*hooked, BUDGET, SERVICE], version=(1, 29)).advice
    assert old.patch is None
    assert "has no `sleep`" in old.left


def test_requests_are_judged_where_use_was_measured():
    assert advised([*web(cpu="2", memory="1Gi"), BUDGET]).advice == ()
    of = advised([*web(cpu="2", memory="1Gi"), BUDGET], usage=(100, 900 << 20))
    assert pod_patch(of) == {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]
    }
    more = advised([*web(cpu="100m", memory="128Mi"), BUDGET], usage=(900, 100 << 20))
    assert pod_patch(more)["containers"][0]["resources"] == {"requests": {"cpu": "1800m"}}
    assert advised([*web(cpu="200m", memory="128Mi"), BUDGET], usage=(110, 128 << 20)).advice == ()


def test_requests_that_an_autoscaler_may_count_in_are_for_a_person():
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    }
    of = advised([*web(cpu="2", memory="1Gi"), BUDGET, scaler], usage=(100, 900 << 20))
    assert of.patch is None
    assert "a share of the request" in of.advice[0].left


@pytest.mark.parametrize(
    "ports",
    [
        None,
        [{"containerPort": 53, "protocol": "UDP"}],
        [{"name": "metrics", "containerPort": 9090}, {"containerPort": 8080}],
    ],
)
def test_which_port_serves_is_for_a_person_unless_there_is_one(ports):
    of = advised(
        [*web(container={**GOOD, "readinessProbe": None, "ports": ports}), BUDGET, SERVICE]
    )
    assert of.patch is None
    assert "do not name one TCP port" in of.advice[0].left


def test_who_makes_a_workload_is_named_and_text_of_others_moves_no_cursor():
    objects = web(["a0", "a1", "b0"], {})
    for one in objects:
        if one["kind"] == "Deployment":
            kafka = {"apiVersion": "x/v1", "kind": "Kafka", "name": "k", "controller": True}
            one["metadata"]["ownerReferences"] = [kafka]
    of = advised(objects)
    assert (
        advice_data([of])[0]["managedBy"] == "Kafka k makes it, and may undo a patch; set it there"
    )
    meta = o.ObjectMeta("web\x1b[31m", "default")
    nasty = Advised(msgspec.structs.replace(of.workload, metadata=meta), of.advice)
    document = ReportDocument(format_advice([nasty], 1), {})
    assert "web\\x1b[31m" in document.show("table", 80, Paint(False))


def test_of_a_workload_without_its_probes_they_are_not_judged():
    objects = [*web(container={}), BUDGET, SERVICE]
    snapshot = snapshot_of([*NODES, *objects])
    plain = next(one for one in objects if one["kind"] == "Deployment")
    (mine,) = decode_workloads([("Deployment", o.Workload())])
    assert not mine.probes_known
    (whole,) = decode_workloads([("Deployment", json.dumps(plain).encode())])
    adviser = Adviser(snapshot, SchedulerModel(snapshot, scheduler_profile(POLICY, snapshot)))
    assert {one.topic for one in adviser.judge(whole)} == {Topic.READINESS, Topic.PRE_STOP}
    # As it stands in a snapshot file.
    (cut,) = decode_workloads([("Deployment", json.dumps(plain).encode())], probes_known=False)
    assert not adviser.judge(cut)


def test_coredns_of_eks_gets_values_of_its_add_on():
    objects = web(["a0", "a1"], {})
    for one in objects:
        one["metadata"]["labels"] = {"eks.amazonaws.com/component": "coredns", "app": "web"}
    of = advised(objects)
    assert of.patch is None
    assert list(of.new_budgets) == []
    assert of.eks_values["podDisruptionBudget"] == {"enabled": True, "maxUnavailable": 1}
    assert of.eks_values["topologySpreadConstraints"][0]["topologyKey"] == ZONE
    assert "add-on undoes patches" in advice_data([of])[0]["managedBy"]


def test_a_folder_is_a_component_of_kustomize_and_never_mixed_with_other_files(tmp_path):
    of = advised(web(["a0", "a1", "b0"], {}))
    folder = tmp_path / "advice"
    assert write_folder([of], folder) == 3
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert component["resources"] == ["new-poddisruptionbudget-default.web.yaml"]
    (patch,) = component["patches"]
    assert yaml.safe_load((folder / patch["path"]).read_text()) == of.patch
    with pytest.raises(PolicyError, match="holds something already"):
        write_folder([of], folder)


def test_each_object_of_a_folder_has_a_file_of_its_own(tmp_path):
    names = [("shop", "eu-web"), ("shop-eu", "web")]
    all_of = [
        Advised(
            msgspec.structs.replace(of.workload, metadata=o.ObjectMeta(name, namespace)), of.advice
        )
        for of in [advised([*web(["a0", "a1", "b0"], {}), BUDGET])]
        for namespace, name in names
    ]
    assert write_folder(all_of, tmp_path / "advice") == 3


def test_the_command_reads_a_file_and_ends_red_where_it_is_asked():
    words = ["advise", "--snapshot", "docs/examples/zone-back.zip", "--fail-on-advice"]
    seen = called(*words)
    assert seen.returncode == 11
    text = "its rule over zones is only preferred, and does not hold (zone-a 3, zone-b 3, zone-c 0)"
    assert text in " ".join(seen.stdout.split())
    other = called(*words, "--namespace", "defualt")
    assert (other.returncode, other.stdout) == (2, "")
    assert "-n defualt: there is no such namespace; did you mean default?" in other.stderr


def test_a_namespace_without_workloads_is_no_error(tmp_path):
    empty = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "empty"}}
    seen = called("advise", "--snapshot", file_of(tmp_path, [*NODES, *web(), empty]), "-n", "empty")
    assert (seen.returncode, seen.stdout) == (0, "No advice: 0 workloads looked at.\n")


def test_a_file_without_workloads_is_no_clean_bill_of_health(tmp_path):
    pods = [one for one in web() if one["kind"] == "Pod"]
    seen = called("advise", "--snapshot", file_of(tmp_path, [*NODES, *pods]))
    assert (seen.returncode, seen.stdout) == (2, "")
    assert "has no Deployment and no StatefulSet" in seen.stderr


def file_of(folder, objects):
    """A file with these objects, as kubectl prints them."""
    path = folder / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return str(path)


@pytest.mark.parametrize(
    ("value", "topics", "said"),
    [
        (None, ["spread", "nodes", "noBudget"], ""),
        ("true", ["spread", "nodes", "noBudget"], ""),
        ("false", [], ""),
        (" False ", [], ""),
        ("without spread, nodes", ["noBudget"], ""),
        ("without spreading", ["spread", "nodes", "noBudget"], "is not understood, and declines nothing: write false, or"),
        ("no", ["spread", "nodes", "noBudget"], 'Deployment/default/web: rebalancer/advise: "no" is not understood'),
    ],
)  # fmt: skip
def test_a_workload_declines_advice_by_an_annotation(tmp_path, value, topics, said):
    objects = web(["a0", "a0"], {})
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    if value is not None:
        deployment["metadata"]["annotations"] = {"rebalancer/advise": value}
    seen = called("advise", "--snapshot", file_of(tmp_path, [*NODES, *objects]), "-o", "json")
    assert seen.returncode == 0, seen.stderr
    of = json.loads(seen.stdout)["workloads"]
    assert [each["topic"] for one in of for each in one["advice"]] == topics
    assert said in seen.stderr


def test_pods_of_several_budgets_are_named_with_them():
    other = json.loads(json.dumps(BUDGET))
    other["metadata"]["name"] = "second"
    of = advised([*web(container=GOOD), BUDGET, other])
    (advice,) = of.advice
    assert advice.topic is Topic.SEVERAL_BUDGETS
    assert (
        "PodDisruptionBudgets default/guard and default/second select the same pods" in advice.why
    )
    assert advice.left


OS = "kubernetes.io/os"


def system_nodes(**of):
    """Return a node for each name, of this operating system and in the zone of its first letter."""
    return [node(name, name[0], labels={OS: system}) for name, system in of.items()]


def test_no_rule_is_advised_over_a_zone_without_nodes_of_the_operating_system():
    nodes = system_nodes(a0="linux", a1="linux", b0="windows", b1="windows")
    of = advised([*web(["a0", "a1"], spec={"os": {"name": "linux"}}), BUDGET], nodes=nodes)
    assert Topic.SPREAD not in topics(of)


WINDOWS = {"os": {"name": "windows"}}


@pytest.mark.parametrize(
    ("nodes", "on", "spec", "advice"),
    [
        ({"a0": "linux", "a1": "linux", "b0": "windows"}, ["a0", "a1"], {}, set()),
        ({"a0": "linux", "b0": "windows", "b1": "windows"}, ["b0", "b1"], WINDOWS, set()),
        (
            {"a0": "windows", "b0": "windows", "c0": "linux"},
            ["a0", "a0"],
            {**WINDOWS, "nodeSelector": {OS: "windows"}},
            {Topic.SPREAD, Topic.NODES},
        ),
        (
            {"a0": "linux", "b0": "linux", "c0": "windows"},
            ["a0", "a0"],
            {"nodeSelector": {OS: "linux"}},
            {Topic.SPREAD, Topic.NODES},
        ),
    ],
)
def test_zones_are_counted_by_operating_system(nodes, on, spec, advice):
    of = advised([*web(on, spec=spec), BUDGET], nodes=system_nodes(**nodes))
    assert topics(of) == advice
    assert (of.patch is not None) is bool(advice)


def test_a_rule_that_would_draw_pods_to_another_operating_system_has_no_patch():
    nodes = system_nodes(a0="linux", b0="linux", c0="windows")
    of = advised([*web(["a0", "a0"], spec={}), BUDGET], nodes=nodes)
    assert {Topic.SPREAD, Topic.NODES} == topics(of)
    assert of.patch is None
    assert all("a nodeSelector kubernetes.io/os first" in one.left for one in of.advice)
    selected = web(["a0", "a0"], spec={"nodeSelector": {OS: "linux"}})
    assert advised([*selected, BUDGET], nodes=nodes).patch is not None


def test_a_key_without_a_value_counts_as_absent():
    manifest = (
        b'{"metadata": {"name": "web"}, "spec": {"template": {"metadata": null, "spec": null}}}'
    )
    (one,) = decode_workloads([("Deployment", manifest)])
    assert (one.replicas, one.pod.containers) == (1, ())


@pytest.mark.parametrize(
    ("key", "value"), [("replicas", '"two"'), ("selector", '"1Ei"'), ("selector", "1e308")]
)
def test_what_is_no_workload_is_named(key, value):
    spec = f'{{"metadata": {{"namespace": "shop", "name": "web"}}, "spec": {{"{key}": {value}}}}}'
    with pytest.raises(msgspec.DecodeError, match=rf"Deployment/shop/web: spec\.{key}: has to be"):
        decode_workloads([("Deployment", spec.encode())])


def test_patches_have_no_anchors(tmp_path):
    objects = [*web(["a0", "a0", "a1", "a1"], spec={}), SERVICE]
    write_folder([advised(objects)], tmp_path / "advice")
    texts = [path.read_text() for path in (tmp_path / "advice").iterdir()]
    assert any("topologySpreadConstraints" in text for text in texts)
    assert not any("&id" in text or "*id" in text for text in texts)


@pytest.mark.parametrize("used", [(1900, 20), (20, 1900)])
def test_requests_are_compared_with_the_use_of_all_pods(used):
    objects = number_pods(workload("web", ["a0", "b0"], kind="StatefulSet", cpu="2", spec=HARD))
    snapshot = with_usage(snapshot_of([*NODES, *objects]))
    assert snapshot.usage is not None
    classes = snapshot.usage.classes.copy()
    classes[0, snapshot.pods.cls] = used
    snapshot = replace(snapshot, usage=replace(snapshot.usage, classes=classes))
    adviser = Adviser(snapshot, SchedulerModel(snapshot, scheduler_profile(POLICY, snapshot)))
    (mine,) = decode_workloads([("StatefulSet", json.dumps(objects[0]).encode())])
    assert Topic.REQUESTS not in {one.topic for one in adviser.judge(mine)}


def volume_in(zone):
    asked = {"key": ZONE, "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": f"disk-{zone}"},
        "spec": {"nodeAffinity": {"required": terms}},
    }


def zone_rule(**more):
    """Return a required rule over zones, with more of its own, and a preferred one over nodes."""
    (over_zones, *others) = rules(hard=True)["topologySpreadConstraints"]
    return {"topologySpreadConstraints": [{**over_zones, **more}, *others]}


@pytest.mark.parametrize(
    ("rule", "empty", "domains"),
    [
        (zone_rule(), "c", 3),
        (zone_rule(), "cd", 4),
        (zone_rule(), "", None),
        (zone_rule(), "b", None),
        (zone_rule(minDomains=2), "c", None),
        # It would hold with the zone, too.
        (zone_rule(maxSkew=2), "c", None),
        (rules(hard=False), "c", None),
        # Its pods want nothing of the zone.
        ({**zone_rule(), "nodeSelector": {ZONE: "a"}}, "c", None),
    ],
)
def test_zones_without_nodes_are_to_be_counted_by_a_required_rule(rule, empty, domains):
    of = advised([*web(EVEN, rule), BUDGET, *map(volume_in, empty)])
    about = [one.why for one in of.advice if "minDomains" in one.why]
    assert len(about) == (domains is not None)
    if domains is None:
        return
    assert f"(a 2, b 2), and {', '.join(empty)} ha" in about[0]
    directive, over_zones, over_nodes = pod_patch(of)["topologySpreadConstraints"]
    assert directive == {"$patch": "replace"}
    assert over_zones == {**rule["topologySpreadConstraints"][0], "minDomains": domains}
    assert over_nodes["topologyKey"] == HOSTNAME


def test_a_zone_that_had_nodes_in_an_earlier_run_counts_as_one_that_volumes_name():
    (objects,) = [web(EVEN, zone_rule())]
    snapshot = replace(snapshot_of([*NODES, *objects]), earlier_zones=("a", "e"))
    adviser = Adviser(snapshot, SchedulerModel(snapshot, scheduler_profile(POLICY, snapshot)))
    (mine,) = decode_workloads([("Deployment", json.dumps(objects[0]).encode())])
    assert any("e has none. With minDomains 3" in one.why for one in adviser.judge(mine))


def test_pods_that_hold_their_nodes_are_spread_no_further():
    """Spread over more nodes, pods that may not be moved would hold more of them; others of the cluster are advised."""
    safe = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = [
        *NODES,
        *workload("held", ["a0", "a0", "a1", "b0"], annotations=safe),
        *workload("free", ["a0", "a0", "a1", "b0"]),
        # Advice opens this one's budget, so that it holds no node for good.
        *workload("guarded", ["a0", "a0", "a1", "b0"]),
        disruption_budget("guarded", "guarded", allowed=0, healthy=4),
    ]
    snapshot = snapshot_of(objects)
    adviser = Adviser(
        snapshot,
        SchedulerModel(snapshot, scheduler_profile(POLICY, snapshot)),
        find_annotated(read_rules("strategies: {topology-spread: {}}").problem(snapshot)),
    )
    kept = [(one["kind"], json.dumps(one).encode()) for one in objects if one["kind"] in RESOURCES]
    by_name = {
        one.metadata.name: {each.topic for each in adviser.judge(one)}
        for one in decode_workloads(kept)
    }
    assert not by_name["held"] & {Topic.SPREAD, Topic.NODES}
    assert {Topic.SPREAD, Topic.NODES} <= by_name["free"] & by_name["guarded"]
