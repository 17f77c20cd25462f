"""Pods and Jobs that have ended, and plans that remove them."""

from typing import Any

from rebalancer.base.environment import SystemClock, Timings
from rebalancer.planner.planning import make_plan
from rebalancer.planner.rules import RunRules
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.snapshot.protect import Scope
from rebalancer.testing.snapshots import node, snapshot_of
from tests.strategies.pod_states import ago

REGISTRY = Registry.installed()
NAME = "failed-pods"
BOTH = frozenset({"Failed", "Succeeded"})


def rules_of(options="{}", more="", **flags):
    text = (
        f"apiVersion: rebalancer/v1\nkind: Policy\n{more}\nstrategies: {{failed-pods: {options}}}\n"
    )
    return RunRules(
        load_text(text.encode(), "policy", REGISTRY), REGISTRY, flags.pop("scope", Scope()), **flags
    )


def plan(objects, options="{}", more="", **flags):
    of = rules_of(options, more, **flags)
    snapshot = snapshot_of(objects, finished=of.finished)
    return make_plan(of, snapshot, Timings(SystemClock())).plan


def nodes():
    return [node("n1"), node("n2")]


def failed(name="dead", *, owner=("ReplicaSet", "apps/v1", "web"), hours=3.0, **more):
    """A pod that has ended on n1."""
    references = []
    if owner is not None:
        kind, version, of = owner
        uid = f"{kind}/default/{of}"
        references = [
            {"kind": kind, "apiVersion": version, "name": of, "uid": uid, "controller": True}
        ]
    made: dict[str, Any] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "annotations": more.pop("annotations", {}),
            "creationTimestamp": ago(hours=hours),
            "ownerReferences": references,
        },
        "spec": {
            "nodeName": "n1",
            "priority": 0,
            "containers": [
                {"name": "main", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
            ],
            **more.pop("spec", {}),
        },
        "status": {"phase": "Failed", "reason": "Evicted", **more.pop("status", {})},
    }
    return {**made, "metadata": {**made["metadata"], **more}}


def job(name="work", *, over="Complete", owner=None):
    references = [] if owner is None else [{**owner, "uid": "u", "name": "x", "controller": True}]
    conditions = [{"type": over, "status": "True"}] if over else []
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"Job/default/{name}",
            "ownerReferences": references,
        },
        "spec": {"parallelism": 1, "template": {"spec": {"containers": []}}},
        "status": {"conditions": conditions},
    }


OF_JOB = ("Job", "batch/v1", "work")
NEVER = {"restartPolicy": "Never"}
ARGO = {"kind": "Workflow", "apiVersion": "argoproj.io/v1alpha1"}
CRON = {"kind": "CronJob", "apiVersion": "batch/v1"}
