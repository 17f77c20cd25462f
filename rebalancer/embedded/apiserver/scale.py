"""The subresource ``scale``: the replicas of a workload as an object of ``autoscaling/v1``, as ``kubectl scale`` asks."""

from __future__ import annotations

from rebalancer.embedded.apiserver.kinds import Json, bad_request

SCALE = "scale"
API_VERSION, KIND = "autoscaling/v1", "Scale"


def as_scale(obj: Json) -> Json:
    """Return the replicas of a Deployment, ReplicaSet or StatefulSet as a Scale."""
    about = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec, labels = obj["spec"], (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {key: about[key] for key in kept if key in about},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def with_scale(obj: Json, scale: Json) -> Json:
    """Return a workload with the replicas of ``scale``; 400 if ``scale`` is not a valid Scale."""
    given = (scale.get("apiVersion", API_VERSION), scale.get("kind", KIND))
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if given != (API_VERSION, KIND) or type(replicas) is not int or replicas < 0:
        raise bad_request(
            f"{given[1]} in version {given[0]!r} is no Scale with a number of replicas"
        )
    about = dict(obj["metadata"])
    if version := (scale.get("metadata") or {}).get("resourceVersion"):
        about["resourceVersion"] = version
    return {**obj, "metadata": about, "spec": {**obj["spec"], "replicas": replicas}}
