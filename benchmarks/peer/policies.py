"""Random policies of the peer's shape, with the plug-ins that have a strategy here, and their arguments."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.peer.clusters import NAMESPACES, POOL

Json = dict[str, Any]

STRATEGY_OF = {
    "HighNodeUtilization": "consolidation",
    "LowNodeUtilization": "low-utilisation",
    "PodLifeTime": "lifetime",
    "RemoveDuplicates": "duplicates",
    "RemovePodsHavingTooManyRestarts": "restarts",
    "RemovePodsViolatingInterPodAntiAffinity": "anti-affinity",
    "RemovePodsViolatingNodeAffinity": "node-affinity",
    "RemovePodsViolatingNodeTaints": "taints",
    "RemovePodsViolatingTopologySpreadConstraint": "topology-spread",
}
_BALANCE = frozenset(
    {
        "HighNodeUtilization",
        "LowNodeUtilization",
        "RemoveDuplicates",
        "RemovePodsViolatingTopologySpreadConstraint",
    }
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def random_policy(random: Random) -> Json:
    """Return a policy with one profile of two to four plug-ins."""
    plugins = random.sample(sorted(STRATEGY_OF), random.randint(2, 4))
    evictor = _evictor(random)
    configs = [{"name": name, "args": _args(random, name)} for name in plugins]
    configs.append({"name": "DefaultEvictor", "args": evictor})
    top: Json = {}
    if random.random() < 0.1:
        top["maxNoOfPodsToEvictPerNamespace"] = random.randint(1, 3)
    if random.random() < 0.1:
        top["maxNoOfPodsToEvictTotal"] = random.randint(1, 4)
    if random.random() < 0.1:
        top["nodeSelector"] = ",".join(f"{key}={value}" for key, value in POOL.items())
    return _policy([_profile("p", configs, plugins)], top)


def _evictor(random: Random) -> Json:
    """Return the arguments of DefaultEvictor."""
    evictor: Json = {"nodeFit": random.random() < 0.5}
    if random.random() < 0.2:
        evictor["minReplicas"] = random.randint(2, 3)
    if random.random() < 0.2:
        evictor["priorityThreshold"] = {"value": random.choice((500, 5000))}
    if random.random() < 0.15:
        evictor["labelSelector"] = {"matchLabels": {"app": "x"}}
    if random.random() < 0.1:
        evictor["minPodAge"] = "1h"
    protections: Json = {}
    if random.random() < 0.5:
        protections["defaultDisabled"] = random.sample(
            ["PodsWithLocalStorage", "SystemCriticalPods"], random.randint(1, 2)
        )
    if random.random() < 0.1:
        protections["extraEnabled"] = ["PodsWithoutPDB"]
    # The peer takes no threshold beside critical pods.
    if "SystemCriticalPods" in protections.get("defaultDisabled", ()):
        evictor.pop("priorityThreshold", None)
    return {**evictor, "podProtections": protections}


def scope_policy(policy: Json) -> Json:
    """Return one that evicts every pod that the plug-ins of ``policy`` could, whatever they look for.

    In the place of each stands PodLifeTime with no age and the same pods, without limits.
    """
    (profile,) = policy["profiles"]
    args = {config["name"]: config["args"] for config in profile["pluginConfig"]}
    evictor = {**args.pop("DefaultEvictor"), "nodeFit": False}
    profiles = []
    for name, given in args.items():
        about = {key: given[key] for key in ("namespaces", "labelSelector") if given.get(key)}
        if (evictable := given.get("evictableNamespaces")) is not None:
            about["namespaces"] = evictable
        configs = [
            {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 0, **about}},
            {"name": "DefaultEvictor", "args": evictor},
        ]
        profiles.append(_profile(name, configs, ["PodLifeTime"]))
    kept = {key: policy[key] for key in ("nodeSelector",) if key in policy}
    return _policy(profiles, kept)


def _policy(profiles: list[Json], top: Json) -> Json:
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    return {**head, "profiles": profiles, **top}


def _profile(name: str, configs: list[Json], plugins: list[str]) -> Json:
    enabled = {
        "balance": {"enabled": [plugin for plugin in plugins if plugin in _BALANCE]},
        "deschedule": {"enabled": [plugin for plugin in plugins if plugin not in _BALANCE]},
    }
    return {"name": name, "pluginConfig": configs, "plugins": enabled}


def _args(random: Random, plugin: str) -> Json:
    if plugin in ("LowNodeUtilization", "HighNodeUtilization"):
        return _utilization(random, plugin)
    args: Json = {}
    if random.random() < 0.3:
        key = random.choice(("include", "exclude"))
        args["namespaces"] = {key: random.sample(NAMESPACES, random.randint(1, 2))}
    if plugin == "RemoveDuplicates":
        if random.random() < 0.3:
            args["excludeOwnerKinds"] = [random.choice(("StatefulSet", "ReplicaSet", "Job"))]
        return args
    if random.random() < 0.2:
        args["labelSelector"] = {"matchLabels": {"app": random.choice("xy")}}
    return args | _own(random, plugin)


def _own(random: Random, plugin: str) -> Json:
    """Return the arguments that no other plug-in has."""
    if plugin == "PodLifeTime":
        given: Json = {"maxPodLifeTimeSeconds": random.choice((0, 3600, 86_400, 10**7))}
        if random.random() < 0.4:
            given["states"] = random.choice(
                (["Running"], ["CrashLoopBackOff"], ["Running", "Failed"])
            )
        return given
    if plugin == "RemovePodsHavingTooManyRestarts":
        given = {"podRestartThreshold": random.choice((1, 4, 100, 1000))}
        given["includingInitContainers"] = random.random() < 0.5
        if random.random() < 0.4:
            given["states"] = [random.choice(("Running", "CrashLoopBackOff"))]
        return given
    if plugin == "RemovePodsViolatingNodeAffinity":
        return {"nodeAffinityType": [_REQUIRED]}
    if plugin == "RemovePodsViolatingNodeTaints":
        return {"includePreferNoSchedule": random.random() < 0.3}
    if plugin == "RemovePodsViolatingTopologySpreadConstraint" and random.random() < 0.5:
        return {"constraints": ["DoNotSchedule", "ScheduleAnyway"]}
    return {}


def _utilization(random: Random, plugin: str) -> Json:
    names = random.sample(["cpu", "memory", "pods"], random.randint(1, 2))
    args: Json = {"thresholds": {name: random.randint(5, 40) for name in names}}
    if plugin == "LowNodeUtilization":
        args["targetThresholds"] = {
            name: low + random.randint(0, 30) for name, low in args["thresholds"].items()
        }
    if random.random() < 0.3:
        args["evictableNamespaces"] = {"exclude": [random.choice(NAMESPACES)]}
    if random.random() < 0.2:
        args["numberOfNodes"] = 1
    return args
