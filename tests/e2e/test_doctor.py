"""`rebalancer doctor` with real RBAC: the chart's account lacks nothing, another account sees what to add."""

import json
from typing import Any

from rebalancer.kube.access import READ_RULES
from rebalancer.kube.resources import AccessRule
from rebalancer.wire.kinds import CRON_JOBS
from tests.controlplane import objects, operations
from tests.e2e.installed import NAMESPACE, Installed
from tests.e2e.product import ACCOUNT, grant, rebalancer


def examine(kubeconfig, *more):
    return rebalancer("doctor", "--kubeconfig", str(kubeconfig), "-o", "json", *more)


def checks(ran):
    return {of["check"]: of for of in json.loads(ran.out)["checks"]}


ENDED: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "mover-29384755", "namespace": "default"},
    "spec": {
        "suspend": True,
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "descheduler"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "descheduler", "image": "example.com/descheduler"}],
            },
        },
    },
}
"""Without pods, as one that has ended; the API server gives it the labels of its template."""


def test_the_account_of_a_release_lacks_nothing(cluster, tmp_path):
    cluster.apply([objects.node("n-0", zone="a"), objects.node("n-1", zone="b")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", 2, labels={"app": "web"}, cpu="100m")])
    operations.wait_pods_ready(cluster.api, 2)
    installed = Installed(cluster, tmp_path)
    name = f"{NAMESPACE}/{installed.name}"
    ran = examine(installed.kubeconfig, "--lease", name, "--memory", f"{name}-memory")
    assert ran.code == 0, ran.err
    seen = checks(ran)
    looked_at = ("rights", "lease", "memory", "nodes")
    assert {name: seen[name]["findings"] for name in looked_at if seen[name]["grade"] != "ok"} == {}


def test_an_administrator_sees_which_rights_the_account_of_a_release_lacks(cluster, tmp_path):
    cluster.apply([objects.node("n-0", zone="a"), objects.node("n-1", zone="b")])
    operations.wait_nodes_ready(cluster.api, 2)
    installed = Installed(cluster, tmp_path)
    account = f"system:serviceaccount:{NAMESPACE}:{installed.name}"
    rights = checks(examine(cluster.kubeconfig))["rights"]
    assert [one["message"] for one in rights["findings"] if one["grade"] != "note"] == [
        "all that the policy needs",
        f"the release's account {account}: all that the policy needs",
    ]
    ran = examine(cluster.kubeconfig, "--set=steer=marks", "--fail-on=problem")
    assert ran.code == 11, ran.err
    (lacking,) = (of for of in checks(ran)["rights"]["findings"] if of["grade"] == "problem")
    said = f"the release's account {account} may not mark and cordon nodes: get nodes, patch nodes"
    assert lacking["message"] == said
    assert "(rbac.marks: true)" in lacking["advice"]
    # Who may not ask about others sees that, and the account itself is judged once.
    grant(cluster, [*READ_RULES, *LOOKS])
    reader = f"--as=system:serviceaccount:default:{ACCOUNT}"
    found = [
        one["message"] for one in checks(examine(cluster.kubeconfig, reader))["rights"]["findings"]
    ]
    assert any("may not create subjectaccessreviews" in text for text in found)
    # As the account: the same answer, without its token.
    name = f"{NAMESPACE}/{installed.name}"
    flags = (f"--as={account}", "--lease", name, "--memory", f"{name}-memory")
    rights = checks(examine(cluster.kubeconfig, *flags))["rights"]
    assert rights["findings"][0]["message"] == f"all that the policy needs (as {account})"


LOOKS = [
    AccessRule("list", "", "configmaps"),
    AccessRule("get", "", "configmaps"),
    AccessRule("list", "batch", "cronjobs"),
]
"""With these a release is seen."""


def test_a_release_that_is_stopped_and_has_an_invalid_policy_is_in_the_way(cluster, tmp_path):
    cluster.apply([objects.node("n-0", zone="a"), objects.node("n-1", zone="b")])
    operations.wait_nodes_ready(cluster.api, 2)
    installed = Installed(cluster, tmp_path)
    whole = checks(examine(cluster.kubeconfig))
    (said,) = whole["release"]["findings"]
    assert said["message"].startswith(f"CronJob {NAMESPACE}/{installed.name}, schedule ")
    policy = f"{installed.name}-policy"
    assert whole["policy"]["findings"][0]["message"].startswith(f"ConfigMap {NAMESPACE}/{policy}: ")
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{installed.name}"
    cluster.api.patch(path, {"spec": {"suspend": True}})
    broken = "apiVersion: rebalancer/v1\nkind: Policy\nbudgets: {perRun: many}\n"
    map_path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{policy}"
    cluster.api.patch(map_path, {"data": {"rebalancer.yaml": broken}})
    ran = examine(cluster.kubeconfig, "--fail-on", "problem")
    assert ran.code == 11, ran.err
    found = checks(ran)["release"]["findings"]
    assert [one["grade"] for one in found] == ["ok", "warning", "problem"]
    assert "is suspended: no run starts" in found[1]["message"]
    assert found[2]["lines"][0].startswith(f"ConfigMap {NAMESPACE}/{policy}/rebalancer.yaml:3")
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{installed.name}-memory")
    without = checks(examine(cluster.kubeconfig))
    assert without["release"]["findings"][0]["message"].startswith("CronJob ")
    assert (without["memory"]["grade"], without["lease"]["grade"]) == ("problem", "ok")


def test_an_account_that_may_only_read_sees_the_rules_to_add(cluster):
    cluster.apply([objects.node("n-0", zone="a")])
    operations.wait_nodes_ready(cluster.api, 1)
    ran = examine(grant(cluster, READ_RULES), "--fail-on", "problem")
    assert ran.code == 11, ran.err
    rights = checks(ran)["rights"]
    acts = next(one for one in rights["findings"] if "evict pods" in one["message"])
    assert acts["grade"] == "problem"
    assert '- {apiGroups: [""], resources: ["pods/eviction"], verbs: ["create"]}' in acts["lines"]
    # What only makes runs dearer is no problem.
    assert {one["grade"] for one in rights["findings"]} == {"problem", "note"}


def test_an_account_without_rights_cannot_read_and_sees_why(cluster):
    ran = examine(grant(cluster, []))
    assert ran.code == 3, ran.err
    seen = checks(ran)
    assert seen["rights"]["grade"] == seen["reading"]["grade"] == "problem"


def test_a_descheduler_that_a_cron_job_started_once_is_seen_afterwards(cluster):
    cluster.apply([objects.node("n-0", zone="a"), ENDED])
    operations.wait_nodes_ready(cluster.api, 1)
    movers = checks(examine(grant(cluster, READ_RULES)))["otherMovers"]
    messages = [finding["message"] for finding in movers["findings"]]
    assert "the descheduler runs here, too (namespace default)" in messages


def test_a_cron_job_that_has_not_run_yet_is_seen_with_the_right_to_list_it(cluster):
    job = {"spec": {"template": ENDED["spec"]["template"]}}
    planned = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"schedule": "0 3 1 1 *", "jobTemplate": job},
    }
    cluster.apply([objects.node("n-0", zone="a"), planned])
    operations.wait_nodes_ready(cluster.api, 1)
    listing = AccessRule("list", CRON_JOBS.group, CRON_JOBS.plural)
    for rules, seen in ((READ_RULES, False), ([*READ_RULES, listing], True)):
        findings = checks(examine(grant(cluster, rules)))["otherMovers"]["findings"]
        messages = [finding["message"] for finding in findings]
        assert ("the descheduler runs here, too (namespace default)" in messages) is seen
        assert any("not looked at" in text and "CronJobs" in text for text in messages) is not seen
