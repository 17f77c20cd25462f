"""What the API server answers: lists, pages, selectors, versions, refusals, evictions, watches."""

import threading
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.ground import (
    BUDGETS,
    LABELS,
    PODS,
    UNENDING,
    Ground,
    condition,
    names_of,
    version,
)
from tests.controlplane import ApiError, objects, operations, stages

_LISTS = {
    "/api/v1/pods": ("PodList", "v1"),
    "/api/v1/nodes": ("NodeList", "v1"),
    "/api/v1/namespaces": ("NamespaceList", "v1"),
    "/api/v1/services": ("ServiceList", "v1"),
    "/api/v1/resourcequotas": ("ResourceQuotaList", "v1"),
    "/api/v1/persistentvolumes": ("PersistentVolumeList", "v1"),
    "/api/v1/persistentvolumeclaims": ("PersistentVolumeClaimList", "v1"),
    "/api/v1/replicationcontrollers": ("ReplicationControllerList", "v1"),
    "/apis/apps/v1/deployments": ("DeploymentList", "apps/v1"),
    "/apis/apps/v1/replicasets": ("ReplicaSetList", "apps/v1"),
    "/apis/apps/v1/statefulsets": ("StatefulSetList", "apps/v1"),
    "/apis/apps/v1/daemonsets": ("DaemonSetList", "apps/v1"),
    "/apis/batch/v1/jobs": ("JobList", "batch/v1"),
    "/apis/policy/v1/poddisruptionbudgets": ("PodDisruptionBudgetList", "policy/v1"),
    "/apis/storage.k8s.io/v1/storageclasses": ("StorageClassList", "storage.k8s.io/v1"),
    "/apis/storage.k8s.io/v1/csinodes": ("CSINodeList", "storage.k8s.io/v1"),
}


def refusal(call: Any, *arguments: Any, **named: Any) -> tuple[int, dict[str, Any]]:
    """Return status and body of a request that has to be refused."""
    with pytest.raises(ApiError) as refused:
        call(*arguments, **named)
    return refused.value.status, refused.value.body


def config_map(name: str, **labels: str) -> dict[str, Any]:
    """Return a ConfigMap: what lists and watches do is the same for all kinds."""
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


MAPS = "/api/v1/namespaces/default/configmaps"


def test_every_kind_that_is_read_can_be_listed(ground):
    for path, shape in _LISTS.items():
        answer = ground.api.get(f"{path}?limit=500")
        assert (answer["kind"], answer["apiVersion"]) == shape, path
        assert isinstance(answer["items"], list), path
        assert version(answer) > 0, path


def test_items_of_a_list_have_no_kind_of_their_own(ground):
    ground.nodes("a")
    item = ground.api.get("/api/v1/nodes")["items"][0]
    assert not {"kind", "apiVersion"} & set(item)
    alone = ground.api.get("/api/v1/nodes/node-a")
    assert (alone["kind"], alone["apiVersion"]) == ("Node", "v1")


def test_pages_show_one_version_whatever_is_written_meanwhile(ground):
    names = [f"page-{index}" for index in range(5)]
    ground.apply(*(config_map(name, page="yes") for name in names))
    path = f"{MAPS}?labelSelector=page%3Dyes&limit=2"
    first = ground.api.get(path)
    ground.apply(config_map("page-2-late", page="yes"))
    ground.api.delete(f"{MAPS}/page-4")
    seen, page = names_of(first["items"]), first
    while token := page["metadata"].get("continue"):
        page = ground.api.get(f"{path}&continue={quote(token, safe='')}")
        assert version(page) == version(first)
        seen += names_of(page["items"])
    assert seen == names


def test_a_page_without_selectors_says_how_many_remain(ground):
    ground.apply(*(objects.namespace(f"many-{index}") for index in range(3)))
    everything = ground.api.get("/api/v1/namespaces")
    assert "continue" not in everything["metadata"]
    page = ground.api.get("/api/v1/namespaces?limit=2")
    assert page["metadata"]["remainingItemCount"] == len(everything["items"]) - 2
    selected = ground.api.get("/api/v1/namespaces?limit=1&fieldSelector=metadata.name!%3Ddefault")
    assert selected["metadata"]["continue"]
    assert "remainingItemCount" not in selected["metadata"]


def test_a_continue_token_that_is_none_is_a_bad_request(ground):
    status, body = refusal(ground.api.get, f"{PODS}?limit=1&continue=nonsense")
    assert (status, body["kind"], body["reason"]) == (400, "Status", "BadRequest")


SELECTED = {
    "tier=web": ["one", "two"],
    "tier!=web": ["four", "three"],
    "tier in (web,db)": ["one", "three", "two"],
    "tier notin (web,db)": ["four"],
    "special": ["two"],
    "!special,tier": ["one", "three"],
    "tier=web,special=yes": ["two"],
}


def test_label_selectors_choose(ground):
    labels = {"one": {"tier": "web"}, "two": {"tier": "web", "special": "yes"}}
    labels |= {"three": {"tier": "db"}, "four": {}}
    ground.apply(*(config_map(name, **of) for name, of in labels.items()))
    for selector, expected in SELECTED.items():
        matches = ground.api.get(f"{MAPS}?labelSelector={quote(selector)}")["items"]
        assert [name for name in names_of(matches) if name in labels] == expected, selector


def test_field_selectors_choose_pods_by_phase_node_and_name(ground):
    ground.nodes("a", "b")
    ground.apply(
        *(objects.pod(f"on-{z}", nodeSelector={objects.HOSTNAME: f"node-{z}"}) for z in "ab"),
        objects.pod("nowhere", nodeSelector={"no": "such"}),
    )
    running = "status.phase=Running"
    ground.wait(lambda: len(select(ground, running)) == 2, "two pods running")
    assert select(ground, "spec.nodeName=node-a") == ["on-a"]
    assert select(ground, "spec.nodeName=") == ["nowhere"]
    assert select(ground, "status.phase!=Running") == ["nowhere"]
    assert select(ground, f"{running},metadata.name!=on-a") == ["on-b"]
    assert select(ground, "status.phase!=Succeeded,status.phase!=Failed") == sorted(
        ("nowhere", "on-a", "on-b")
    )


def select(ground: Ground, fields: str) -> list[str]:
    """Return the names of the pods that a field selector chooses."""
    return names_of(ground.api.get(f"{PODS}?fieldSelector={quote(fields)}")["items"])


def test_an_unknown_field_selector_is_a_bad_request(ground):
    status, body = refusal(ground.api.get, f"{PODS}?fieldSelector=spec.color%3Dred")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert "field label not supported: spec.color" in body["message"]


def test_what_is_not_there_is_404(ground):
    status, body = refusal(ground.api.get, f"{PODS}/absent")
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "absent" not found',
        "reason": "NotFound",
        "details": {"name": "absent", "kind": "pods"},
        "code": 404,
    }
    assert status == 404
    _, grouped = refusal(ground.api.get, f"{BUDGETS}/absent")
    assert grouped["message"] == 'poddisruptionbudgets.policy "absent" not found'
    assert grouped["details"] == {
        "name": "absent",
        "group": "policy",
        "kind": "poddisruptionbudgets",
    }


def test_a_name_is_given_once(ground):
    ground.api.post(MAPS, config_map("one"))
    status, body = refusal(ground.api.post, MAPS, config_map("one"))
    assert (status, body["reason"]) == (409, "AlreadyExists")
    assert body["message"] == 'configmaps "one" already exists'


def test_an_object_in_no_namespace_of_ours_is_refused(ground):
    lost = config_map("lost")
    lost["metadata"]["namespace"] = "nowhere"
    status, body = refusal(ground.api.post, "/api/v1/namespaces/nowhere/configmaps", lost)
    assert (status, body["message"]) == (404, 'namespaces "nowhere" not found')


def test_without_a_token_nothing_is_answered(ground):
    status, body = refusal(ground.stranger.get, "/api/v1/pods")
    # A real server lets strangers in as system:anonymous, who may do nothing.
    assert status in {401, 403}
    assert body["kind"] == "Status"


def test_a_stale_version_is_a_conflict(ground):
    old = ground.api.post(MAPS, config_map("shared"))
    new = ground.api.put(f"{MAPS}/shared", {**old, "data": {"a": "2"}})
    assert version(new) > version(old)
    status, body = refusal(ground.api.put, f"{MAPS}/shared", {**old, "data": {"a": "3"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in body["message"]
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {}}
    assert refusal(ground.api.patch, f"{MAPS}/shared", stale)[0] == 409
    merged = ground.api.patch(f"{MAPS}/shared", {"data": {"a": None, "b": "1"}})
    assert merged["data"] == {"b": "1"}


def test_a_write_that_changes_nothing_makes_no_version(ground):
    made = ground.api.post(MAPS, config_map("same"))
    assert ground.api.put(f"{MAPS}/same", made) == made


def test_a_lease_changes_hands_by_version(ground):
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "run", "namespace": "default"},
        "spec": {"holderIdentity": "first", "leaseDurationSeconds": 15},
    }
    free = ground.api.post(path, lease)
    taken = {**free, "spec": {"holderIdentity": "second", "leaseDurationSeconds": 15}}
    assert ground.api.put(f"{path}/run", taken)["spec"]["holderIdentity"] == "second"
    late = {**free, "spec": {"holderIdentity": "third", "leaseDurationSeconds": 15}}
    assert refusal(ground.api.put, f"{path}/run", late)[0] == 409


def test_an_event_can_be_written_and_read_again(ground):
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "web-", "namespace": "default"},
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "rebalancer",
        "reportingInstance": "run",
        "action": "Evict",
        "reason": "Rebalanced",
        "type": "Normal",
        "note": "why",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web", "apiVersion": "v1"},
    }
    made = ground.api.post(path, event)
    assert made["metadata"]["name"].startswith("web-")
    assert ground.api.get(f"{path}/{made['metadata']['name']}")["note"] == "why"


def test_access_can_be_asked_for(ground):
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert ground.api.post(path, review)["status"]["allowed"] is True


# -- evictions --------------------------------------------------------------------------------------


def test_an_eviction_marks_the_pod_and_lets_it_end_in_grace(ground):
    ground.nodes("a")
    name = ground.web(1, pod_annotations=UNENDING)[0]
    before = ground.pod(name)
    answer = ground.evict(name)
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    after = ground.pod(name)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["deletionGracePeriodSeconds"] == 30
    assert after["metadata"]["deletionTimestamp"]
    assert after["spec"]["nodeName"] == "node-a"
    assert after["status"]["phase"] == "Running"
    target = condition(after, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    ground.let_end(name)


def test_a_pod_that_is_not_there_cannot_be_evicted(ground):
    status, body = refusal(ground.evict, "absent")
    assert (status, body["reason"]) == (404, "NotFound")


def test_another_uid_is_a_conflict(ground):
    ground.nodes("a")
    name = ground.web(1)[0]
    uid = ground.pod(name)["metadata"]["uid"]
    other = "00000000-0000-4000-8000-000000000000"
    status, body = refusal(ground.evict, name, preconditions={"uid": other})
    assert (status, body["reason"]) == (409, "Conflict")
    assert f"the UID in the precondition ({other}) does not match the UID in record" in str(
        body["message"]
    )
    assert "deletionTimestamp" not in ground.pod(name)["metadata"]
    assert ground.evict(name, preconditions={"uid": uid})["status"] == "Success"


def test_a_budget_of_nothing_refuses_with_its_cause(ground):
    ground.nodes("a")
    name = ground.web(3)[0]
    ground.budget(maxUnavailable=0)
    status, body = refusal(ground.evict, name)
    assert (status, body["reason"]) == (429, "TooManyRequests")
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert body["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget web needs 3 healthy pods and has 3 currently",
        }
    ]


def test_a_budget_is_spent_at_once_and_given_back_when_the_replacement_is_ready(ground):
    ground.nodes("a")
    first, second, _ = ground.web(3)
    ground.budget(maxUnavailable=1)
    # The replacement waits for as long as the test wants it to.
    operations.cordon(ground.api, ["node-a"])
    ground.wait(lambda: ground.api.get("/api/v1/nodes/node-a")["spec"].get("taints"), "the taint")
    ground.evict(first)
    assert refusal(ground.evict, second)[0] == 429
    operations.cordon(ground.api, ["node-a"], on=False)
    ground.wait(lambda: allowed(ground) == 1, "the budget given back")
    ground.evict(second)


def allowed(ground: Ground) -> int:
    """Return what the budget allows now."""
    return int(ground.api.get(f"{BUDGETS}/web")["status"]["disruptionsAllowed"])


def test_a_budget_is_spent_before_the_uid_is_looked_at(ground):
    ground.nodes("a")
    name = ground.web(3)[0]
    ground.budget(maxUnavailable=1)
    other = {"uid": "00000000-0000-4000-8000-000000000000"}
    assert refusal(ground.evict, name, preconditions=other)[0] == 409
    status = ground.api.get(f"{BUDGETS}/web")["status"]
    assert list(status["disruptedPods"]) == [name]
    assert status["disruptionsAllowed"] == 0


def test_a_dry_run_is_answered_but_changes_nothing(ground):
    ground.nodes("a")
    name = ground.web(3)[0]
    ground.budget(maxUnavailable=1)
    assert ground.evict(name, dryRun=["All"])["status"] == "Success"
    assert "deletionTimestamp" not in ground.pod(name)["metadata"]
    assert allowed(ground) == 1
    ground.budget(maxUnavailable=0)
    assert refusal(ground.evict, name, dryRun=["All"])[0] == 429


def test_two_budgets_on_one_pod_are_an_error(ground):
    ground.nodes("a")
    name = ground.web(3)[0]
    ground.budget("web", maxUnavailable=1)
    ground.budget("again", maxUnavailable=1)
    status, body = refusal(ground.evict, name)
    assert status == 500
    assert body["message"] == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
        "support."
    )


def test_a_pending_pod_needs_no_budget_and_goes_at_once(ground):
    ground.apply(objects.pod("waiting", labels=LABELS, nodeSelector={"no": "such"}))
    ground.apply(objects.pdb("web", LABELS, maxUnavailable=0))
    assert ground.evict("waiting")["status"] == "Success"
    assert ground.api.find(f"{PODS}/waiting") is None


@pytest.mark.parametrize(("policy", "expected"), [("AlwaysAllow", 201), ("IfHealthyBudget", 429)])
def test_unready_pods_follow_the_budgets_policy(ground, policy, expected):
    ground.nodes("a")
    ground.apply(objects.deployment("web", 2, pod_annotations={stages.NEVER_READY: "true"}))
    running = "status.phase=Running"
    ground.wait(lambda: len(select(ground, running)) == 2, "two pods running, not ready")
    ground.apply(objects.pdb("web", LABELS, minAvailable=1, unhealthyPodEvictionPolicy=policy))
    ground.wait(
        lambda: ground.api.get(f"{BUDGETS}/web")["status"].get("expectedPods") == 2,
        "the budget observed",
    )
    name = ground.names()[0]
    if expected == 201:
        assert ground.evict(name)["code"] == 201
    else:
        assert refusal(ground.evict, name)[0] == 429


def test_evicting_a_terminating_pod_succeeds_and_changes_nothing(ground):
    ground.nodes("a")
    name = ground.web(1, pod_annotations=UNENDING)[0]
    ground.evict(name)
    marked = ground.pod(name)["metadata"]["deletionTimestamp"]
    assert ground.evict(name)["status"] == "Success"
    assert ground.pod(name)["metadata"]["deletionTimestamp"] == marked


# -- watches ----------------------------------------------------------------------------------------


def watched(ground: Ground, path: str, act: Any, enough: int) -> list[dict[str, Any]]:
    """Return the first events of a watch while ``act`` runs beside it."""
    actor = threading.Timer(0.2, act)
    actor.start()
    events: list[dict[str, Any]] = []
    try:
        for event in ground.api.watch(path, 60):
            events.append(event)
            if len(events) == enough:
                break
    finally:
        actor.join()
    return events


def test_a_watch_reports_what_happens_in_order(ground):
    start = version(ground.api.get(MAPS))

    def act() -> None:
        made = ground.api.post(MAPS, config_map("one", tier="web"))
        ground.api.put(f"{MAPS}/one", {**made, "data": {"a": "2"}})
        ground.api.delete(f"{MAPS}/one")

    path = f"{MAPS}?resourceVersion={start}&fieldSelector=metadata.name%3Done"
    events = watched(ground, path, act, 3)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [version(event["object"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > start
    assert events[2]["object"]["kind"] == "ConfigMap"
    assert events[2]["object"]["data"] == {"a": "2"}


def test_a_watch_with_a_selector_sees_objects_come_into_it_and_leave_it(ground):
    start = version(ground.api.get(MAPS))

    def act() -> None:
        ground.api.post(MAPS, config_map("one", tier="db"))
        for tier in ("web", "db"):
            ground.api.patch(f"{MAPS}/one", {"metadata": {"labels": {"tier": tier}}})

    path = f"{MAPS}?resourceVersion={start}&labelSelector=tier%3Dweb"
    events = watched(ground, path, act, 2)
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]
    assert events[0]["object"]["metadata"]["labels"] == {"tier": "web"}


def test_a_watch_without_a_version_begins_with_what_is_there(ground):
    ground.apply(config_map("one", here="yes"), config_map("two", here="yes"))
    path = f"{MAPS}?labelSelector=here%3Dyes"
    events = watched(ground, path, lambda: None, 2)
    assert sorted(event["object"]["metadata"]["name"] for event in events) == ["one", "two"]
    assert {event["type"] for event in events} == {"ADDED"}


def test_a_streaming_list_ends_with_a_bookmark_that_says_so(ground):
    ground.apply(config_map("one", here="yes"), config_map("two", here="yes"))
    asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    path = f"{MAPS}?labelSelector=here%3Dyes&{asked}"
    events = watched(ground, path, lambda: None, 3)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    annotations = events[2]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


# -- workloads ------------------------------------------------------------------------------------------


def test_an_empty_strategy_is_the_default_one(ground):
    ground.nodes("a")
    path = "/apis/apps/v1/namespaces/default/deployments"
    pod = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }
    spec: dict[str, Any] = {
        "strategy": {},
        "selector": {"matchLabels": {"app": "x"}},
        "template": pod,
    }
    manifest = {"metadata": {"name": "x"}, "spec": spec}
    made = ground.api.post(path, manifest)
    rolling = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert made["spec"]["strategy"] == rolling
    recreate = {**manifest, "spec": {**spec, "strategy": {"type": "Recreate"}}}
    assert ground.api.put(f"{path}/x", recreate)["spec"]["strategy"] == {"type": "Recreate"}
    assert ground.api.put(f"{path}/x", manifest)["spec"]["strategy"] == rolling


def test_a_workload_is_scaled_by_its_subresource(ground):
    ground.nodes("a")
    ground.web(2)
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    scale = ground.api.get(f"{path}/scale")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 2},
        {"replicas": 2, "selector": "app=web"},
    )
    old = ground.api.get(path)["metadata"]["generation"]
    # Without a version, since a controller may have written the status meanwhile.
    of_any = {k: v for k, v in scale["metadata"].items() if k != "resourceVersion"}
    asked = {**scale, "metadata": of_any, "spec": {"replicas": 3}}
    scaled = ground.api.put(f"{path}/scale", asked)
    assert scaled["spec"] == {"replicas": 3}
    assert ground.api.get(path)["metadata"]["generation"] == old + 1
    ground.api.patch(f"{path}/scale", {"spec": {"replicas": 1}})
    assert ground.api.get(path)["spec"]["replicas"] == 1
    stale = {**scale, "spec": {"replicas": 5}}
    assert refusal(ground.api.put, f"{path}/scale", stale)[0] == 409


def test_a_watch_ends_by_itself_in_its_time(ground):
    start = version(ground.api.get(MAPS))
    path = f"{MAPS}?resourceVersion={start}&allowWatchBookmarks=true"
    began = time.monotonic()
    events = list(ground.api.watch(path, 2))
    # Left to itself a watch lasts for half an hour or more.
    assert 1.5 < time.monotonic() - began < 300
    # A bookmark may come, or none; nothing else happens here.
    assert {(event["type"], event["object"]["kind"]) for event in events} <= {
        ("BOOKMARK", "ConfigMap")
    }


def test_node_names_are_listed_with_operations_helpers(ground):
    """The helpers that other tests use on the real control plane work on both grounds."""
    ground.nodes("a", "b")
    operations.cordon(ground.api, ["node-a"])
    ground.wait(lambda: ground.api.get("/api/v1/nodes/node-a")["spec"].get("taints"), "the taint")
    ground.web(2)
    assert {p["spec"]["nodeName"] for p in operations.pods(ground.api)} == {"node-b"}
