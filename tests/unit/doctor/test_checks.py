"""What the checks see on small clusters, and what they say of a good one."""

import itertools
from dataclasses import replace

import pytest

from rebalancer.base.plain_text import Paint
from rebalancer.doctor.cluster import Seen, Started, check_cluster
from rebalancer.doctor.report import Check, Grade, check, finding_of, format_checks
from rebalancer.policy.load import load_text
from rebalancer.registry import Registry
from rebalancer.report.document import ReportDocument
from rebalancer.run.memory.document import Document, NodeCountMemory
from rebalancer.testing.snapshots import node, snapshot_of, workload
from rebalancer.wire.objects import ObjectMeta

REGISTRY = Registry.installed()
HEAD = "apiVersion: rebalancer/v1\nkind: Policy\nprotect: {minPodAge: 0s}\n"
ZONE = "topology.kubernetes.io/zone"
NODES = [node("n0", labels={ZONE: "a"}), node("n1", labels={ZONE: "b"})]
WEB = workload("web", ["n0", "n1", "n1"])


def checks_on(objects, text="strategies: {duplicates: {}}", skew=None):
    loaded = load_text((HEAD + text).encode(), "policy", REGISTRY)
    return {of.name: of for of in check_cluster(snapshot_of(objects), loaded, REGISTRY, skew)}


def worse_than_notes(checks):
    """Return {check: (grade, message)} of what is worse than a note."""
    return {
        name: (finding.grade.value, finding.message)
        for name, of in checks.items()
        for finding in of.findings
        if finding.grade in (Grade.WARNING, Grade.PROBLEM)
    }


def with_(labels, *pods):
    """Return these objects, the pods among them with labels of a chart."""
    for pod in pods:
        if pod["kind"] == "Pod":
            pod["metadata"]["labels"] |= labels
    return [*pods]


def budget(desired):
    return {
        "kind": "PodDisruptionBudget",
        "apiVersion": "policy/v1",
        "metadata": {"name": "b", "namespace": "default", "generation": 1},
        "spec": {"minAvailable": desired, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "disruptionsAllowed": max(0, 3 - desired),
            "currentHealthy": 3,
            "desiredHealthy": desired,
            "expectedPods": 3,
            "observedGeneration": 1,
        },
    }


def quota(used):
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"pods": "3"}},
        "status": {"hard": {"pods": "3"}, "used": {"pods": str(used)}},
    }


def test_nothing_is_in_the_way_on_a_good_cluster():
    checks = checks_on([*NODES, *WEB], skew=0.2)
    assert worse_than_notes(checks) == {}
    assert all(of.grade in (Grade.OK, Grade.NOTE) for of in checks.values())
    assert all(of.findings[0].grade is Grade.OK for of in checks.values())


@pytest.mark.parametrize(
    ("more", "text", "name", "grade", "message"),
    [
        ([budget(3)], "", "podDisruptionBudgets", "warning", "can never allow an eviction"),
        ([quota(3)], "", "quotas", "warning", "no room for a replacement: 3 pods cannot move"),
        ([quota(2)], "", "quotas", None, ""),
        ([node("n2", labels={})], "", "nodes", "warning", f"1 node without the label {ZONE}: n2"),
        (
            [],
            "select: {namespaces: [none]}",
            "pods",
            "problem",
            "none of 3 pods may move",
        ),
        ([], "budgets: {perRun: 0}", "policy", "warning", "budgets.perRun is 0"),
        (
            with_(
                {"app.kubernetes.io/name": "descheduler"}, *workload("d", ["n0"], namespace="ops")
            ),
            "",
            "otherMovers",
            "warning",
            "the descheduler runs here, too (namespace ops)",
        ),
        (
            [
                pod
                for release in ("one", "two")
                for pod in with_(
                    {
                        "app.kubernetes.io/name": "kube-rebalancer",
                        "app.kubernetes.io/instance": release,
                    },
                    *workload(release, ["n0"], namespace="ops"),
                )
            ],
            "",
            "otherMovers",
            "warning",
            "pods of 2 releases of this program: ops/one, ops/two",
        ),
    ],
)
def test_what_keeps_runs_from_moving_is_named(more, text, name, grade, message):
    seen = worse_than_notes(
        checks_on([*NODES, *WEB, *more], f"{text}\nstrategies: {{duplicates: {{}}}}")
    )
    if grade is None:
        assert name not in seen
    else:
        assert seen[name][0] == grade
        assert message in seen[name][1]


def test_that_all_pods_are_young_passes_by_itself():
    head = HEAD.replace("minPodAge: 0s", "minPodAge: 100000d")
    loaded = load_text(f"{head}strategies: {{duplicates: {{}}}}".encode(), "policy", REGISTRY)
    checks = {
        of.name: of for of in check_cluster(snapshot_of([*NODES, *WEB]), loaded, REGISTRY, 0.0)
    }
    # No problem; but nothing moves meanwhile, so that the last line must not say that nothing is in the way.
    assert worse_than_notes(checks).keys() == {"pods"}
    assert checks["pods"].grade == "warning"
    said = [finding.message for finding in checks["pods"].findings]
    assert "no pod may move yet: 3 pods of 3 need only be older" in said


def test_a_clock_that_is_far_away_stands_a_run_still():
    seen = worse_than_notes(checks_on([*NODES, *WEB], skew=500.0))
    assert seen["nodes"][0] == "problem"
    assert "our clock and the API server's are 500 s apart" in seen["nodes"][1]


def test_an_empty_cluster_is_a_problem_and_no_error():
    assert worse_than_notes(checks_on([]))["nodes"] == ("problem", "there is no node")


def test_pods_of_another_scheduler_are_not_predicted():
    pods = workload("odd", ["n0", "n1"])
    for pod in pods:
        if pod["kind"] == "Pod":
            pod["spec"]["schedulerName"] = "mine"
    grade, message = worse_than_notes(checks_on([*NODES, *pods]))["scheduler"]
    assert grade == "warning"
    assert message.startswith("2 pods: landings are not predicted")


def test_notes_alone_leave_a_check_ok():
    assert check("a", (), "fine").grade is Grade.OK
    checks = checks_on([*NODES, *WEB], "mode: observe\nstrategies: {duplicates: {}}")
    assert [f.grade for f in checks["policy"].findings] == [Grade.OK, Grade.NOTE]


def test_what_a_file_does_not_hold_is_not_judged():
    """The cluster may have budgets that never allow an eviction."""
    snapshot = replace(
        snapshot_of([*NODES, *WEB]),
        missing=("PodDisruptionBudget: none in the file", "ResourceQuota: none in the file"),
    )
    loaded = load_text((HEAD + "strategies: {duplicates: {}}").encode(), "policy", REGISTRY)
    checks = {of.name: of for of in check_cluster(snapshot, loaded, REGISTRY, None)}
    for name in ("podDisruptionBudgets", "quotas"):
        assert checks[name].grade is Grade.NOT_JUDGED
        assert "the file has no " in checks[name].findings[0].message


def test_grades_are_ordered_from_good_to_bad():
    rising = [Grade.OK, Grade.NOTE, Grade.NOT_JUDGED, Grade.WARNING, Grade.PROBLEM]
    assert all(worse.is_at_least(better) for better, worse in itertools.pairwise(rising))
    assert not any(better.is_at_least(worse) for better, worse in itertools.pairwise(rising))


def test_pod_groups_that_pods_name_and_that_are_not_known_are_named():
    members = workload("train", ["n0", "n1"], spec={"schedulingGroup": {"podGroupName": "train"}})
    checks = checks_on([*NODES, *members])
    (finding,) = [one for one in checks["pods"].findings if "PodGroup" in one.message]
    assert (finding.grade, finding.message) == (
        Grade.WARNING,
        "1 PodGroup that pods name could not be read, so that the pods stay: default/train",
    )
    assert "rbac.podGroups" in finding.advice
    assert '["podgroups"], verbs: ["list"]' in finding.lines[0]
    group = {
        "kind": "PodGroup",
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    known = checks_on([*NODES, *members, group])
    assert not any("PodGroup" in one.message for one in known["pods"].findings)


NONE_SEEN = "no other program that moves pods is seen by labels, names and images of"


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (
            None,
            f"{NONE_SEEN} pods; not looked at: Jobs that have ended and CronJobs",
        ),
        (
            [],
            f"{NONE_SEEN} pods, Jobs; not looked at: CronJobs",
        ),
        (
            [ObjectMeta("descheduler-29", "ops", labels={"app.kubernetes.io/name": "descheduler"})],
            "the descheduler runs here, too (namespace ops)",
        ),
        (
            [ObjectMeta("descheduler-report-29", "ops")],
            f"{NONE_SEEN} pods, Jobs; not looked at: CronJobs",
        ),
        (
            [ObjectMeta("descheduler-29", "kube-system")],
            "the descheduler runs here, too (namespace kube-system)",
        ),
        (
            [
                ObjectMeta(
                    f"{release}-29",
                    "ops",
                    labels={
                        "app.kubernetes.io/name": "kube-rebalancer",
                        "app.kubernetes.io/instance": release,
                    },
                )
                for release in ("one", "two")
            ],
            "pods of 2 releases of this program: ops/one, ops/two",
        ),
    ],
)
def test_programs_that_a_cron_job_starts_are_seen_by_their_jobs(jobs, message):
    loaded = load_text((HEAD + "strategies: {duplicates: {}}").encode(), "policy", REGISTRY)
    checks = check_cluster(snapshot_of([*NODES, *WEB]), loaded, REGISTRY, None, Seen(jobs))
    (movers,) = (of for of in checks if of.name == "otherMovers")
    assert message in [finding.message for finding in movers.findings]


def test_pods_on_unknown_nodes_are_not_counted_as_without_a_node():
    lost = workload("lost", ["gone"] * 5)
    pods = checks_on([*NODES, *WEB, *lost, *workload("waits", [""])])["pods"]
    said = [finding.message for finding in pods.findings]
    assert "1 pod without a node" in said
    assert any(text.startswith("5 of 9 pods are on nodes") for text in said)
    (kept,) = [text for text in said if text.startswith("protections")]
    assert "unscheduled 1" in kept


DIGEST = "@sha256:" + 64 * "0"


@pytest.mark.parametrize(
    ("image", "is_peer"),
    [
        ("registry.k8s.io/descheduler/descheduler:v0.36.0", True),
        ("quay.example:5000/mirror/descheduler", True),
        (f"descheduler{DIGEST}", True),
        (f"registry.example/descheduler:v1{DIGEST}", True),
        ("registry.example/descheduler-exporter:v1", False),
        ("registry.example/descheduler/dashboard:v1", False),
    ],
)
@pytest.mark.parametrize("quiet", [True, False])
def test_the_descheduler_is_seen_by_its_image_whatever_it_is_called(image, is_peer, quiet):
    """Also where its CronJob has not fired yet."""
    tidy = workload("tidy", ["n0"], namespace="night", spec={"containers": [{"image": image}]})
    seen = Seen([], [Started("night", {"app": "tidy"}, (image,))] if quiet else [])
    loaded = load_text((HEAD + "strategies: {duplicates: {}}").encode(), "policy", REGISTRY)
    objects = [*NODES, *WEB, *([] if quiet else tidy)]
    checks = check_cluster(snapshot_of(objects), loaded, REGISTRY, None, seen)
    (movers,) = (of for of in checks if of.name == "otherMovers")
    (message,) = [finding.message for finding in movers.findings]
    if is_peer:
        assert message == "the descheduler runs here, too (namespace night)"
    else:
        assert message.endswith("images of pods, Jobs, CronJobs")


def test_a_problem_of_several_checks_is_written_out_once():
    gone = "https://c is unreachable: refused"
    where, names = "the release was not looked for", "; --lease names one"
    checks = [
        Check("rights", (finding_of(Grade.PROBLEM, gone),)),
        Check("lease", (finding_of(Grade.NOT_JUDGED, gone, before=where, after=names),)),
        Check("reading", (finding_of(Grade.PROBLEM, gone),)),
    ]
    shown = ReportDocument(format_checks(checks), {}).show("table", 100, Paint(color=False))
    assert shown.count("unreachable") == 1
    assert "the release was not looked for: as above; --lease names one" in shown
    assert "2 problems; 1 not judged." in shown


# -- what a run would see that a look at the nodes alone does not show --------------------------------


def check_with(objects, memory=None, **changed):
    snapshot = replace(snapshot_of(objects), **changed)
    loaded = load_text((HEAD + "strategies: {duplicates: {}}").encode(), "policy", REGISTRY)
    made = check_cluster(snapshot, loaded, REGISTRY, 0.0, memory=memory)
    return {of.name: [(one.grade, one.message) for one in of.findings] for of in made}


@pytest.mark.parametrize(("before", "stands_still"), [(30, True), (2, False), (None, False)])
def test_a_fall_in_the_number_of_nodes_is_judged_as_by_the_next_run(before, stands_still):
    memory = Document(nodes=None if before is None else NodeCountMemory(before))
    said = check_with([*NODES, *WEB], memory)["nodes"]
    fell = [text for grade, text in said if grade is Grade.PROBLEM]
    assert bool(fell) is stands_still
    if stands_still:
        assert fell[0].startswith("2 nodes are left of 30")


def test_nodes_that_are_not_ready_are_named_though_runs_go_on():
    many = [node(f"n{n}", labels={ZONE: "ab"[n % 2]}) for n in range(2, 12)]
    ill = node("ill", labels={ZONE: "a"}, ready=False)
    said = check_with([*NODES, *many, ill, *WEB])["nodes"]
    assert said[0][0] is Grade.OK
    (note,) = [text for grade, text in said if "NotReady" in text]
    assert note.startswith("1 node NotReady (safety.maxNotReadyNodes allows ")
    assert note.endswith(": ill")


def test_pods_that_are_younger_than_the_file_are_said():
    snapshot = snapshot_of([*NODES, *WEB])
    behind = float(snapshot.pods.created.max()) - 3 * 3600
    said = check_with([*NODES, *WEB], captured_at=behind)["nodes"]
    assert any("10,800 s after the state was read" in text for _, text in said)
    assert not any(
        "after the state was read" in text for _, text in check_with([*NODES, *WEB])["nodes"]
    )


@pytest.mark.parametrize(("pods", "warns"), [(12, True), (2, False)])
def test_pods_of_a_new_workload_that_fill_the_budget_are_named(pods, warns):
    waiting = workload("fresh", [""] * pods)
    for pod in waiting:
        if pod["kind"] == "Pod":
            pod["status"] = {"phase": "Pending"}
    snapshot = snapshot_of([*NODES, *WEB, *waiting])
    said = check_with([*NODES, *WEB, *waiting], captured_at=float(snapshot.pods.created.max()) + 60)
    held = [text for grade, text in said["pods"] if grade is Grade.WARNING and "in flight" in text]
    assert bool(held) is warns
    if warns:
        assert "12 pods that start or wait for a node count as moves in flight" in held[0]
        assert "/default/fresh (12)" in held[0]


def test_a_quota_without_room_counts_though_its_pods_are_young():
    head = HEAD.replace("minPodAge: 0s", "minPodAge: 100000d")
    loaded = load_text(f"{head}strategies: {{duplicates: {{}}}}".encode(), "policy", REGISTRY)
    made = check_cluster(snapshot_of([*NODES, *WEB, quota(3)]), loaded, REGISTRY, 0.0)
    assert worse_than_notes({of.name: of for of in made})["quotas"][0] == "warning"
