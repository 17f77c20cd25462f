"""What a random pod can ask of the scheduler: one function per feature, applied to a manifest."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.scheduler.resource_features import (
    container_of,
    cpu_only,
    ephemeral_storage,
    extended,
    hugepages,
    init_containers,
    overhead,
    pod_level,
    requests,
    sidecar,
)
from benchmarks.scheduler.vocabulary import (
    APPS,
    HOSTNAME,
    IMAGES,
    KEYS,
    NAMESPACES,
    ZONE,
    ZONES,
    Manifest,
)

Feature = Callable[[random.Random, Manifest], None]


def node_selector(rng: random.Random, pod: Manifest) -> None:
    pod["spec"]["nodeSelector"] = {"disk": rng.choice(("ssd", "hdd"))}


def node_affinity(rng: random.Random, pod: Manifest) -> None:
    terms = [{"matchExpressions": [_expression(rng)]} for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        terms[0]["matchExpressions"].append(_expression(rng))
    _node_affinity(pod)["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": terms
    }


def node_fields(rng: random.Random, pod: Manifest) -> None:
    names = [f"node-{rng.randrange(9):04d}" for _ in range(3)]
    if rng.random() < 0.5:
        terms = [{"matchFields": [_field("NotIn", names[0])]}]
    else:
        terms = [{"matchFields": [_field("In", name)]} for name in names]
    _node_affinity(pod)["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": terms
    }


def _field(operator: str, name: str) -> Manifest:
    return {"key": "metadata.name", "operator": operator, "values": [name]}


def preferred_node_affinity(rng: random.Random, pod: Manifest) -> None:
    _node_affinity(pod).setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).extend(
        {"weight": rng.randint(1, 100), "preference": {"matchExpressions": [_expression(rng)]}}
        for _ in range(rng.randint(1, 3))
    )


def unparsable_preference(rng: random.Random, pod: Manifest) -> None:
    """Ask for what the API server admits and the scheduler cannot parse."""
    broken = rng.choice(
        (
            {"key": "generation", "operator": "Gt", "values": ["four"]},
            {"key": "generation", "operator": "Lt", "values": ["-5"]},
            {"key": "disk", "operator": "NotIn", "values": ["not a value"]},
        )
    )
    terms = _node_affinity(pod).setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    terms.append({"weight": 1, "preference": {"matchExpressions": [broken]}})


def _node_affinity(pod: Manifest) -> Manifest:
    affinity: Manifest = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    return affinity


def _expression(rng: random.Random) -> Manifest:
    return rng.choice(
        (
            {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]},
            {"key": ZONE, "operator": "NotIn", "values": [rng.choice(ZONES)]},
            {"key": "rack", "operator": "Exists"},
            {"key": "disk", "operator": "DoesNotExist"},
            {"key": "generation", "operator": "Gt", "values": ["4"]},
            {"key": "generation", "operator": "Lt", "values": ["6"]},
            {"key": ZONE, "operator": "In", "values": list(ZONES[:2])},
        )
    )


def tolerations(rng: random.Random, pod: Manifest) -> None:
    choices = (
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
        {"key": "dedicated", "operator": "Exists"},
        {"key": "slow", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "slow", "value": "very"},
        {"key": "drain", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    )
    pod["spec"]["tolerations"] = rng.sample(choices[1:], 2) if rng.random() < 0.8 else [choices[0]]


def host_port(rng: random.Random, pod: Manifest) -> None:
    port: Manifest = {"containerPort": 80, "hostPort": rng.choice((8080, 8081))}
    if rng.random() < 0.4:
        port["hostIP"] = rng.choice(("127.0.0.1", "10.0.0.1"))
    if rng.random() < 0.3:
        port["protocol"] = "UDP"
    container_of(pod)["ports"] = [port]


def image(rng: random.Random, pod: Manifest) -> None:
    container_of(pod)["image"] = rng.choice(tuple(IMAGES))


def image_volume(rng: random.Random, pod: Manifest) -> None:
    volume = {"name": "data", "image": {"reference": rng.choice(tuple(IMAGES))}}
    pod["spec"].setdefault("volumes", []).append(volume)


def disk(rng: random.Random, pod: Manifest) -> None:
    """Mount a disk that the pod names itself."""
    number, read_only = rng.randrange(6), rng.random() < 0.4
    source: Manifest = rng.choice(
        (
            {"gcePersistentDisk": {"pdName": f"disk-{number}"}},
            {"awsElasticBlockStore": {"volumeID": f"vol-{number}"}},
            {"iscsi": {"iqn": f"iqn.2026-01.com.example:{number}", "targetPortal": "t", "lun": 0}},
            {"rbd": {"monitors": rng.sample(("m1", "m2", "m3"), 2), "image": f"image-{number}"}},
        )
    )
    for kind in source.values():
        kind["readOnly"] = read_only
    pod["spec"].setdefault("volumes", []).append({"name": "disk", **source})


def restart_together(_: random.Random, pod: Manifest) -> None:
    """Ask for what only some kubelets declare."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}
    container_of(pod).update(restartPolicy="Never", restartPolicyRules=[rule])


def hard_spread(rng: random.Random, pod: Manifest) -> None:
    _spread(rng, pod, "DoNotSchedule")


def soft_spread(rng: random.Random, pod: Manifest) -> None:
    _spread(rng, pod, "ScheduleAnyway")


def min_domains(rng: random.Random, pod: Manifest) -> None:
    constraint = _spread(rng, pod, "DoNotSchedule")
    constraint["minDomains"] = rng.randint(1, 6)


def spread_policies(rng: random.Random, pod: Manifest) -> None:
    constraint = _spread(rng, pod, rng.choice(("DoNotSchedule", "ScheduleAnyway")))
    constraint["nodeAffinityPolicy"] = rng.choice(("Honor", "Ignore"))
    constraint["nodeTaintsPolicy"] = rng.choice(("Honor", "Ignore"))


def spread_label_keys(rng: random.Random, pod: Manifest) -> None:
    constraint = _spread(rng, pod, rng.choice(("DoNotSchedule", "ScheduleAnyway")))
    constraint["labelSelector"] = _selector(pod)
    constraint["matchLabelKeys"] = ["version"]


def _spread(rng: random.Random, pod: Manifest, action: str) -> Manifest:
    constraint: Manifest = {
        "maxSkew": rng.choice((1, 1, 2, 4)),
        "topologyKey": rng.choice(KEYS),
        "whenUnsatisfiable": action,
        "labelSelector": rng.choice((_selector(pod), _selector(pod), _any_app(rng), {})),
    }
    constraints = pod["spec"].setdefault("topologySpreadConstraints", [])
    known = {(c["topologyKey"], c["whenUnsatisfiable"]) for c in constraints}
    if (constraint["topologyKey"], action) not in known:
        constraints.append(constraint)
    return constraint


def affinity(rng: random.Random, pod: Manifest) -> None:
    selector = rng.choice((_selector(pod), _any_app(rng)))
    _required(pod, "podAffinity").append(_term(rng, selector))


def anti_affinity(rng: random.Random, pod: Manifest) -> None:
    selector = rng.choice((_selector(pod), _any_app(rng)))
    _required(pod, "podAntiAffinity").append(
        _term(rng, selector, key=rng.choice((HOSTNAME, "rack")))
    )


def preferred_affinity(rng: random.Random, pod: Manifest) -> None:
    _preferred(rng, pod, "podAffinity", _term(rng, _any_app(rng)))


def preferred_anti_affinity(rng: random.Random, pod: Manifest) -> None:
    _preferred(rng, pod, "podAntiAffinity", _term(rng, _selector(pod)))


def other_namespaces(rng: random.Random, pod: Manifest) -> None:
    term = _term(rng, _any_app(rng)) | {"namespaces": rng.sample(NAMESPACES, 2)}
    _preferred(rng, pod, rng.choice(("podAffinity", "podAntiAffinity")), term)


def namespace_selector(rng: random.Random, pod: Manifest) -> None:
    selector = rng.choice(({}, {"matchLabels": {"team": "a"}}))
    term = _term(rng, _any_app(rng), key=HOSTNAME) | {"namespaceSelector": selector}
    if rng.random() < 0.5:
        _required(pod, "podAntiAffinity").append(term)
    else:
        _preferred(rng, pod, "podAntiAffinity", term)


def affinity_label_keys(rng: random.Random, pod: Manifest) -> None:
    key = rng.choice(("matchLabelKeys", "mismatchLabelKeys"))
    term = _term(rng, _selector(pod)) | {key: ["version"]}
    _preferred(rng, pod, rng.choice(("podAffinity", "podAntiAffinity")), term)


def _term(rng: random.Random, selector: Manifest, key: str | None = None) -> Manifest:
    return {"labelSelector": selector, "topologyKey": key or rng.choice(KEYS)}


def _required(pod: Manifest, kind: str) -> list[Any]:
    terms: list[Any] = (
        pod["spec"]
        .setdefault("affinity", {})
        .setdefault(kind, {})
        .setdefault("requiredDuringSchedulingIgnoredDuringExecution", [])
    )
    return terms


def _preferred(rng: random.Random, pod: Manifest, kind: str, term: Manifest) -> None:
    part = pod["spec"].setdefault("affinity", {}).setdefault(kind, {})
    terms = part.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
    terms.append({"weight": rng.randint(1, 100), "podAffinityTerm": term})


def _selector(pod: Manifest) -> Manifest:
    return {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}


def _any_app(rng: random.Random) -> Manifest:
    return rng.choice(
        (
            {"matchLabels": {"app": rng.choice(APPS)}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": list(APPS[:2])}]},
            {"matchExpressions": [{"key": "version", "operator": "NotIn", "values": ["v1"]}]},
        )
    )


def gates(_: random.Random, pod: Manifest) -> None:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]


def ephemeral_volume(_: random.Random, pod: Manifest) -> None:
    claim: Manifest = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"}
    claim["resources"] = {"requests": {"storage": "1Gi"}}
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    pod["spec"].setdefault("volumes", []).append(volume)


PLAIN: Mapping[str, Feature] = {
    feature.__name__.replace("_", "-"): feature
    for feature in (
        requests,
        cpu_only,
        ephemeral_storage,
        extended,
        hugepages,
        init_containers,
        sidecar,
        overhead,
        pod_level,
        node_selector,
        node_affinity,
        node_fields,
        preferred_node_affinity,
        unparsable_preference,
        tolerations,
        host_port,
        image,
        image_volume,
        disk,
        restart_together,
        hard_spread,
        soft_spread,
        min_domains,
        spread_policies,
        spread_label_keys,
        affinity,
        anti_affinity,
        preferred_affinity,
        preferred_anti_affinity,
        other_namespaces,
        namespace_selector,
        affinity_label_keys,
    )
}
"""Features that a manifest alone expresses."""

OWNERS = ("service", "replica-set", "stateful-set", "replication-controller")
"""Features by which the default spread gets a selector."""

STORAGE = (
    "bound-volume",
    "zone-volume",
    "local-volume",
    "late-volume",
    "free-volume",
    "exclusive-volume",
    "csi",
)
"""Features that need a claim of their own."""

RARE: Mapping[str, Feature] = {"gates": gates, "ephemeral-volume": ephemeral_volume}
"""Pods that the scheduler does not look at, and pods that the model names as unmodelled."""
