"""Which protections hold which pods."""

import pytest

from rebalancer.policy.protect import Protect
from rebalancer.policy.select import Select
from rebalancer.snapshot.protect import Scope, names_of, not_understood, protect, text_of
from rebalancer.testing.snapshots import HOSTNAME, OLD, node, snapshot_of, workload


def reference(kind, api_version):
    return {"kind": kind, "apiVersion": api_version, "name": "w", "uid": "w", "controller": True}


def pods(kind="ReplicaSet", api_version="apps/v1", *, count=2, annotations=None, **spec):
    """Pods of one controller that was not read."""
    return [
        {
            "kind": "Pod",
            "metadata": {
                "name": f"p{index}",
                "namespace": "default",
                "uid": f"p{index}",
                "creationTimestamp": OLD,
                "annotations": annotations or {},
                "ownerReferences": [reference(kind, api_version)],
            },
            "spec": {"nodeName": "a", "containers": [{"name": "c"}], **spec},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}],
            },
        }
        for index in range(count)
    ]


def protected(objects, **rules):
    """The protections of the first pod."""
    snapshot = snapshot_of([node("a"), *objects])
    return names_of(int(protect(snapshot, Protect(**rules), Scope())[0]))


@pytest.mark.parametrize(
    ("kind", "api_version", "expected"),
    [
        ("ReplicaSet", "apps/v1", []),
        ("StatefulSet", "apps/v1", []),
        ("ReplicationController", "v1", []),
        ("Job", "batch/v1", ["job"]),
        ("DaemonSet", "apps/v1", ["daemonSet"]),
        ("Node", "v1", ["mirror"]),
        ("Workflow", "argoproj.io/v1alpha1", ["notRecreated"]),
        ("CloneSet", "apps.kruise.io/v1alpha1", ["notRecreated"]),
        # Custom controllers that bear the name of one of Kubernetes' own.
        ("StatefulSet", "apps.kruise.io/v1beta1", ["notRecreated"]),
        ("Job", "batch.volcano.sh/v1alpha1", ["notRecreated"]),
        ("ReplicationController", "", []),
    ],
)
def test_only_known_controllers_are_trusted_to_recreate_a_pod(kind, api_version, expected):
    assert protected(pods(kind, api_version)) == expected


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_pods_that_do_not_start_again_stay_even_where_their_kind_is_named(policy):
    named = {"recreatedBy": ["Workflow.argoproj.io"]}
    step = pods("Workflow", "argoproj.io/v1alpha1", restartPolicy=policy)
    assert protected(step, **named) == ["notRecreated"]
    assert protected(pods("Workflow", "argoproj.io/v1alpha1"), **named) == []


def test_a_named_kind_is_named_with_its_group():
    assert protected(
        pods("CloneSet", "apps.example.com/v1"), recreatedBy=["CloneSet.apps.kruise.io"]
    )
    assert not protected(
        pods("CloneSet", "apps.kruise.io/v1"), recreatedBy=["CloneSet.apps.kruise.io"]
    )


LWS = "leaderworkerset.sigs.k8s.io"


@pytest.mark.parametrize(
    ("members", "rules", "expected"),
    [
        (2, {}, ["gang"]),
        # A gang of one has no others to lose.
        (1, {"singleReplicas": False}, []),
        (2, {"gangs": False}, []),
        (2, {"gangs": {"except": {"labels": {f"{LWS}/name": "llm"}}}}, []),
        (2, {"gangs": {"except": {"labels": {f"{LWS}/name": "web"}}}}, ["gang"]),
    ],
)
def test_a_member_of_a_gang_does_not_move_alone(members, rules, expected):
    labels = {f"{LWS}/name": "llm", f"{LWS}/group-index": "0"}
    objects = [node("a"), *workload("llm", ["a"] * members, kind="StatefulSet", labels=labels)]
    snapshot = snapshot_of(objects)
    assert names_of(int(protect(snapshot, Protect(**rules), Scope())[0])) == expected
    if expected:
        text = text_of(snapshot, 0, "gang")
        assert text.startswith("a member of LeaderWorkerSet llm, group 0 with 1 other pod:")


def test_a_member_that_waits_or_terminates_still_counts():
    label = {"scheduling.x-k8s.io/pod-group": "pg"}
    objects = workload("w", ["a", "", "a"], labels=label)
    objects[-1]["metadata"]["deletionTimestamp"] = OLD
    snapshot = snapshot_of([node("a"), *objects])
    assert "with 2 other pods" in text_of(snapshot, 0, "gang")
    assert names_of(int(protect(snapshot, Protect(), Scope())[0])) == ["ownerUnsettled", "gang"]


@pytest.mark.parametrize(
    ("kind", "status", "reason", "expected"),
    [
        ("PodResizePending", "True", "Deferred", ["resizeDeferred"]),
        # It will never be granted here: nothing is lost by another node.
        ("PodResizePending", "True", "Infeasible", []),
        ("PodResizePending", "False", "Deferred", []),
        ("PodResizeInProgress", "True", "", []),
    ],
)
def test_a_pod_that_waits_for_a_resize_is_not_replaced_by_one_of_the_old_size(
    kind, status, reason, expected
):
    objects = workload("web", ["a", "a"])
    waits = {"type": kind, "status": status, "reason": reason}
    objects[-2]["status"]["conditions"].append(waits)
    assert protected(objects) == expected


def test_jobs_are_lifted_by_their_own_key_only():
    never = pods("Job", "batch/v1", restartPolicy="Never")
    assert protected(never, jobs=False) == []
    other = pods("Job", "batch.volcano.sh/v1alpha1", restartPolicy="Never")
    assert protected(other, jobs=False) == ["notRecreated"]


AUTOSCALER = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KARPENTER = "karpenter.sh/do-not-disrupt"
PEER = "descheduler.alpha.kubernetes.io"
ODD = ", which is not understood"


@pytest.mark.parametrize(
    ("name", "value", "protection", "odd"),
    [
        ("rebalancer/evict", "true", None, False),
        ("rebalancer/evict", "false", "optedOut", False),
        ("rebalancer/evict", "never", "optedOut", True),
        (f"{PEER}/evict", "false", "optedOut", False),
        (f"{PEER}/evict", "", "optedOut", True),
        (f"{PEER}/eviction-in-progress", "kubevirt", "evictionInProgress", False),
        (AUTOSCALER, "true", None, False),
        (AUTOSCALER, "false", "safeToEvict", False),
        (AUTOSCALER, "on-completion", "safeToEvict", False),
        (AUTOSCALER, "later", "safeToEvict", True),
        (KARPENTER, "false", None, False),
        (KARPENTER, "true", "doNotDisrupt", False),
        # The pods are a day old.
        (KARPENTER, "48h", "doNotDisrupt", False),
        (KARPENTER, "24h1s", "doNotDisrupt", False),
        (KARPENTER, "24h", None, False),
        (KARPENTER, "30m", None, False),
        (KARPENTER, "-48h", None, False),
        (KARPENTER, "2d", "doNotDisrupt", True),
        (KARPENTER, "48 hours", "doNotDisrupt", True),
    ],
)
def test_annotations_protect_and_what_is_not_understood_does_so_too(name, value, protection, odd):
    snapshot = snapshot_of([node("a"), *pods(annotations={name: value})])
    bits = int(protect(snapshot, Protect(), Scope())[0])
    assert names_of(bits) == ([] if protection is None else [protection])
    if protection is not None:
        text = text_of(snapshot, 0, protection)
        assert name in text
        assert value in text or protection == "evictionInProgress"
        assert text.endswith(ODD) == odd


def test_of_the_pods_of_one_owner_only_the_annotated_one_stays():
    objects = workload("web", ["a", "a"])
    objects[-1]["metadata"]["annotations"] = {"rebalancer/evict": "false"}
    snapshot = snapshot_of([node("a"), *objects])
    bits = protect(snapshot, Protect(), Scope()).tolist()
    assert [names_of(each) for each in bits] == [[], ["optedOut"]]
    assert len(snapshot.owners) == 1


def annotated(objects, kind, value="false"):
    for item in objects:
        if item["kind"] == kind:
            item["metadata"]["annotations"] = {"rebalancer/evict": value}
    return objects


@pytest.mark.parametrize(
    ("kind", "controller", "value", "expected"),
    [
        ("Deployment", "Deployment", "false", ["optedOut"]),
        ("Deployment", "ReplicaSet", "false", ["optedOut"]),
        ("Deployment", "Deployment", "true", []),
        ("StatefulSet", "StatefulSet", "no", ["optedOut"]),
        ("Deployment", "Namespace", "false", ["optedOut"]),
        ("Deployment", "Namespace", "true", []),
        # snapshot_of takes 2027-01-15T08:00:00Z; the pods are Ready for a day.
        ("Deployment", "Deployment", "false until 2027-01-16", ["optedOut"]),
        ("Deployment", "Deployment", "false until 2027-01-15T08:00:00Z", []),
        ("Deployment", "Namespace", "false for 25h", ["optedOut"]),
        ("Deployment", "Namespace", "false for 24h", []),
        ("StatefulSet", "StatefulSet", "false until soon", ["optedOut"]),
    ],
)
def test_owners_and_namespaces_opt_out_for_their_pods(kind, controller, value, expected):
    space = {"kind": "Namespace", "metadata": {"name": "default"}}
    objects = annotated([space, *workload("web", ["a", "a"], kind=kind)], controller, value)
    snapshot = snapshot_of([node("a"), *objects])
    assert names_of(int(protect(snapshot, Protect(), Scope())[0])) == expected
    if expected:
        assert "is annotated rebalancer/evict" in text_of(snapshot, 0, "optedOut")


def test_what_is_not_understood_is_named_with_what_carries_it():
    objects = annotated(
        [{"kind": "Namespace", "metadata": {"name": "default"}}, *workload("web", ["a", "a"])],
        "Namespace",
        "false till noon",
    )
    objects[-1]["metadata"]["annotations"] = {"rebalancer/evict": "nope"}
    assert not_understood(snapshot_of([node("a"), *objects])) == [
        'namespace default: annotated rebalancer/evict: "false till noon", which is not understood: not moved',
        'pods of Deployment/default/web: annotated rebalancer/evict: "nope", which is not understood: not moved',
    ]


@pytest.mark.parametrize(
    ("switch", "spec", "name"),
    [
        ("volumes", {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}, "volumes"),
        ("localStorage", {"volumes": [{"name": "d", "emptyDir": {}}]}, "localStorage"),
    ],
)  # fmt: skip
def test_a_protection_may_have_an_exception(switch, spec, name):
    objects = workload("web", ["a", "a"], spec=spec)
    assert protected(objects) == [name]
    assert protected(objects, **{switch: {"except": {"labels": {"app": "web"}}}}) == []
    assert protected(objects, **{switch: {"except": {"labels": {"app": "db"}}}}) == [name]
    assert protected(objects, **{switch: {"except": {"nodes": {HOSTNAME: "b"}}}}) == [name]


@pytest.mark.parametrize(
    ("volume", "rule", "held"),
    [
        ({"emptyDir": {"medium": "Memory"}}, {"inMemory": False}, False),
        ({"emptyDir": {"medium": "HugePages-2Mi"}}, {"inMemory": False}, False),
        ({"emptyDir": {}}, {"inMemory": False}, True),
        ({"emptyDir": {"medium": ""}}, {"inMemory": False}, True),
        ({"emptyDir": {"medium": "Memory"}}, {"largerThan": "1Gi"}, True),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, {"largerThan": "1Gi"}, False),
        ({"emptyDir": {"sizeLimit": "1025Mi"}}, {"largerThan": "1Gi"}, True),
        ({"emptyDir": {"sizeLimit": "0"}}, {"largerThan": "1Gi"}, True),
        ({"emptyDir": {"sizeLimit": "much"}}, {"largerThan": "1Gi"}, True),
        ({"emptyDir": {}}, {"largerThan": "1Gi"}, True),
        ({"hostPath": {"path": "/x"}}, {"largerThan": "1Gi", "inMemory": False}, True),
        ({"emptyDir": {"sizeLimit": "9Gi"}}, {"largerThan": "1Gi", "except": {"labels": {"app": "web"}}}, False),
    ],
)  # fmt: skip
def test_an_empty_dir_protects_by_its_medium_and_size(volume, rule, held):
    objects = workload("web", ["a", "a"], spec={"volumes": [{"name": "d", **volume}]})
    assert protected(objects) == ["localStorage"]
    assert protected(objects, localStorage=rule) == ["localStorage"] * held


def test_each_volume_of_a_pod_counts():
    small, large = {"emptyDir": {"sizeLimit": "1Mi"}}, {"emptyDir": {"sizeLimit": "2Mi"}}
    volumes = [{"name": "s", **small}, {"name": "l", **large}]
    objects = workload("web", ["a", "a"], spec={"volumes": volumes})
    assert protected(objects, localStorage={"largerThan": "1Mi"}) == ["localStorage"]
    assert protected(objects, localStorage={"largerThan": "2Mi"}) == []


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({}, "lifts nothing"),
        ({"inMemory": True}, "lifts nothing"),
        ({"largerThan": "big"}, "not a Kubernetes quantity"),
        ({"largerThan": "0"}, "no size above 0"),
    ],
)
def test_a_rule_for_local_storage_that_lifts_nothing_is_refused(rule, says):
    with pytest.raises(ValueError, match=says):
        Protect.model_validate({"localStorage": rule})


def claimed(storage_class):
    """A workload with a claim of a class, None for a claim that was not read."""
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "c"}}
    objects = workload("web", ["a", "a"], spec={"volumes": [volume]})
    if storage_class is None:
        return objects
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "default"}}
    return [*objects, {**claim, "spec": {"storageClassName": storage_class}}]


@pytest.mark.parametrize(
    ("storage_class", "expected"),
    [("nfs", []), ("fast", ["volumes"]), ("", ["volumes"]), (None, ["volumes"])],
)
def test_volumes_of_some_storage_classes_may_move(storage_class, expected):
    spared = {"except": {"storageClasses": {"exclude": ["fast"]}}}
    assert protected(claimed(storage_class), volumes=spared) == expected


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ({"labels": {"app": "web"}}, ["pods"]),
        ({"labels": {"app": "db"}}, []),
        # Whose priority is not known is protected, as what protects must not fail.
        ({"priority": {"below": "unheard-of"}}, ["pods"]),
        ({"storageClasses": ["fast"], "labels": {"app": "web"}}, ["pods"]),
    ],
)
def test_pods_may_be_protected_by_a_select(select, expected):
    assert protected(workload("web", ["a", "a"]), pods=[select]) == expected


def test_a_rollout_that_is_not_read_opts_out_by_its_replica_sets():
    objects = annotated(workload("web", ["a", "a"], kind="ReplicaSet"), "ReplicaSet")
    top = {"kind": "Rollout", "apiVersion": "argoproj.io/v1", "name": "web", "uid": "r"}
    objects[0]["metadata"]["ownerReferences"] = [{**top, "controller": True}]
    assert protected(objects) == ["optedOut"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"exclude": ["def*"]}, ["notSelected"]),
        ({"exclude": ["kube-*", "other"]}, []),
        ({"include": ["d?fault"]}, []),
        ({"include": ["kube-*"]}, ["notSelected"]),
        ({"include": ["*"], "exclude": ["[!k]*"]}, ["notSelected"]),
        ({"include": ["default"]}, []),
    ],
)
def test_namespaces_may_be_patterns(rules, expected):
    snapshot = snapshot_of([node("a"), *workload("web", ["a", "a"])])
    select = Select.model_validate({"namespaces": rules})
    assert names_of(int(protect(snapshot, Protect(), Scope(policy_select=select))[0])) == expected


def test_an_exception_for_system_critical_pods_may_name_patterns():
    critical = workload("dns", ["a", "a"], priority=2_000_000_000)
    lifted = {"except": {"namespaces": ["def*"]}}
    assert protected(critical) == ["systemCritical"]
    assert protected(critical, systemCritical=lifted) == []
    assert protected(critical, systemCritical={"except": {"namespaces": ["kube-*"]}}) == [
        "systemCritical"
    ]
