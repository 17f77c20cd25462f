"""The chart on a real API server: admitted, scheduled, upgraded, uninstalled."""

import shutil

import pytest
import yaml

from tests.chart.helm import CHART, FIRST, Release, one, render
from tests.controlplane import ApiError, access, drift, objects, operations, wait_until
from tests.e2e.installed import NAMESPACE, Installed

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
INSTANCE = "app.kubernetes.io/instance=rebalancer"
EVERYTHING = {
    "networkPolicy": {"enabled": True, "apiServer": {"cidrs": ["192.0.2.0/24"]}},
    "timeZone": "Asia/Tokyo",
    "ttlSecondsAfterFinished": 60,
    "imagePullSecrets": [{"name": "secret"}],
    "nodeSelector": {"pool": "system"},
    "affinity": {"podAntiAffinity": {}},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "system-cluster-critical",
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.1"]},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.test"}],
    "extraVolumes": [{"name": "x", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}],
    "commonLabels": {"team": "blue"},
    "commonAnnotations": {"note": "common"},
    "image": {"digest": "sha256:" + "a" * 64},
    "extraStrategies": {"by-moon-phase": {"phase": "full"}},
}
ON_BY_DEFAULT = {file.stem for file in (CHART / "policy").glob("*.yaml")} - {"rebalancer"}
KINDS = (
    "/api/v1/configmaps",
    "/api/v1/serviceaccounts",
    "/api/v1/pods",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
)


SERVED = {"kind": "Deployment", "serve": {"replicas": 2, "service": {"enabled": True}}}


def objects_of_the_release(api):
    return [
        f"{path} {each['metadata']['name']}"
        for path in KINDS
        for each in api.list_all(f"{path}?labelSelector={INSTANCE}")
    ]


@pytest.mark.parametrize(
    "values",
    [{}, {"mode": "observe"}, EVERYTHING, SERVED],
    ids=["", "observe", "all", "deployment"],
)
def test_every_manifest_is_valid_to_the_last_field(cluster, values):
    cluster.apply([objects.namespace(NAMESPACE)])
    for manifest in render(values, namespace=NAMESPACE):
        collection = cluster.api.collection(manifest)
        cluster.api.post(f"{collection}?dryRun=All&fieldValidation=Strict", manifest)


def as_pod(manifests):
    template = one(manifests, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    metadata = {**template["metadata"], "name": "run", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_the_default_pod_is_admitted_where_pod_security_is_restricted(cluster):
    made = [objects.namespace(NAMESPACE, RESTRICTED)]
    manifests = render(namespace=NAMESPACE)
    cluster.apply([*made, one(manifests, "ServiceAccount")])
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    assert cluster.api.post(path, as_pod(manifests))["metadata"]["name"] == "run"
    # The check checks: what restricted forbids is refused here.
    with pytest.raises(ApiError, match="hostNetwork"):
        cluster.api.post(path, as_pod(render({"hostNetwork": True}, namespace=NAMESPACE)))


def test_the_cron_job_makes_a_pod_and_nothing_stays_after_uninstall(cluster):
    cluster.apply([objects.namespace(NAMESPACE, RESTRICTED), objects.node("one")])
    operations.wait_nodes_ready(cluster.api, 1)
    release = Release(cluster.kubeconfig, NAMESPACE)
    notes = release.install({"schedule": "* * * * *"})
    assert "evicts those pods" in notes
    assert "mode=observe" in notes

    release.test()
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"

    def of_the_schedule():
        pods = operations.pods(cluster.api, NAMESPACE)
        return [
            p
            for p in pods
            if not p["metadata"]["name"].startswith("rebalancer-kube-rebalancer-test")
        ]

    pod, *_ = wait_until(of_the_schedule, 75, "the CronJob's pod")
    assert pod["spec"]["serviceAccountName"] == "rebalancer-kube-rebalancer"
    assert pod["spec"]["containers"][0]["args"][0] == "run"
    release.uninstall()
    # Hooks are not the release's: the test's Job goes by its own time to live.
    cluster.api.delete(
        f"{jobs}/rebalancer-kube-rebalancer-test", {"propagationPolicy": "Background"}
    )
    wait_until(lambda: not objects_of_the_release(cluster.api), 30, "nothing of the release left")


def test_a_second_release_is_warned_of_the_first_and_can_share_its_state(cluster):
    cluster.apply([objects.namespace(name) for name in (NAMESPACE, "other")])
    first = Release(cluster.kubeconfig, NAMESPACE)
    second = Release(cluster.kubeconfig, "other", "again")
    state = f"{NAMESPACE}/rebalancer-kube-rebalancer"
    suspended = {"suspend": True}
    named = {"image": {"repository": "registry.example/kube-rebalancer"}}
    assert "WARNING" not in first.install({**suspended, **named})
    notes = second.install({**suspended, "networkPolicy": {"enabled": True}})
    assert f"WARNING: this cluster has other releases of kube-rebalancer: {state}." in notes
    assert f"--set sharedState={state}" in notes
    assert "any host on ports 443, 6443" in notes
    assert "WARNING: it cannot start yet: image.repository is not set" in notes
    served = {"kind": "Deployment", "existingPolicy": "ours", "sharedState": state}
    notes = second.upgrade({**suspended, **named, **served})
    assert "which plans every 2m, and at once when nodes change" in notes
    assert (
        "WARNING: it cannot start yet: there is no ConfigMap other/ours (existingPolicy)" in notes
    )
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
    cluster.apply([{**policy, "metadata": {"name": "ours", "namespace": "other"}}])
    assert "WARNING" not in second.upgrade({**suspended, **named, **served})
    assert "WARNING" not in second.upgrade({**suspended, **named, "sharedState": state})
    lease = {"group": "coordination.k8s.io", "resource": "leases", "namespace": NAMESPACE}
    answer = cluster.api.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "spec": {
                "user": "system:serviceaccount:other:again-kube-rebalancer",
                "resourceAttributes": {
                    **lease,
                    "verb": "update",
                    "name": "rebalancer-kube-rebalancer",
                },
            }
        },
    )
    assert answer["status"]["allowed"]
    # A Deployment runs as well as a CronJob.
    first.upgrade({**suspended, "kind": "Deployment"})
    alone = second.upgrade({**suspended, "kind": "Deployment"})
    assert f"WARNING: this cluster has other releases of kube-rebalancer: {state}." in alone
    for release in (second, first):
        release.uninstall()


def newer(folder):
    """The chart of the next version, with one more label on everything."""
    copy = folder / "newer"
    shutil.copytree(CHART, copy)
    described = yaml.safe_load((copy / "Chart.yaml").read_text())
    described |= {"version": "99.0.0", "appVersion": "99.0.0"}
    (copy / "Chart.yaml").write_text(yaml.safe_dump(described))
    return copy


@pytest.mark.parametrize(
    "apply", ["--server-side=true", pytest.param("--server-side=false", marks=pytest.mark.long)]
)
def test_an_upgrade_leaves_what_runs_have_written_alone(cluster, tmp_path, apply):
    release = Release(cluster.kubeconfig, NAMESPACE)
    release.install({}, apply)
    name = "rebalancer-kube-rebalancer"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}"
    memory = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}-memory"
    acquired = {"holderIdentity": "a-run", "leaseDurationSeconds": 60, "leaseTransitions": 7}
    cluster.api.put(lease, {**cluster.api.get(lease), "spec": acquired})
    cluster.api.put(memory, {**cluster.api.get(memory), "data": {"owners": "remembered"}})

    release.upgrade(
        {"mode": "observe", "commonLabels": {"team": "blue"}}, apply, chart=newer(tmp_path)
    )
    release.upgrade({}, apply, chart=newer(tmp_path / "again"))
    assert cluster.api.get(lease)["spec"] == acquired
    assert cluster.api.get(memory)["data"] == {"owners": "remembered"}
    assert cluster.api.get(memory)["metadata"]["labels"]["helm.sh/chart"].endswith("99.0.0")


@pytest.mark.parametrize(
    "reuse",
    [pytest.param(False, id=""), pytest.param(True, id="reuse-values", marks=pytest.mark.long)],
)
def test_the_first_chart_is_upgraded_to_this_one(cluster, tmp_path, reuse):
    drift.article(cluster)
    installed = Installed(cluster, tmp_path, chart=FIRST)
    first = objects_of_the_release(cluster.api)
    assert installed.cron_job["metadata"]["labels"]["helm.sh/chart"] == "kube-rebalancer-0.1.0"
    lease = installed.lease_path
    memory = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{installed.name}-memory"
    released = {"leaseDurationSeconds": 60, "leaseTransitions": 7}
    cluster.api.put(lease, {**cluster.api.get(lease), "spec": released})
    remembered = {"memory.json": '{"version":1,"owners":{},"evictions":[[1,2]]}'}
    cluster.api.put(memory, {**cluster.api.get(memory), "data": remembered})

    how = ("--reuse-values",) if reuse else ()
    installed.release.upgrade({} if reuse else installed.values, *how)
    assert cluster.api.get(lease)["spec"] == released
    assert cluster.api.get(memory)["data"] == remembered
    assert objects_of_the_release(cluster.api) == first
    # What the first chart's runs did not get yet: the memory, and the strategies that came later.
    assert f"--memory={NAMESPACE}/{installed.name}-memory" in container(installed)["args"]
    fixed = installed.run()
    assert fixed.code == 0, fixed.err
    assert len(fixed.evicted) == 1
    assert set(fixed.report["before"]) == ON_BY_DEFAULT
    assert "owners" in cluster.api.get(memory)["data"]["memory.json"]

    installed.release.upgrade({"mode": "observe"}, "--reuse-values")
    eviction = {"verb": "create", "resource": "pods", "subresource": "eviction"}
    wait_until(
        lambda: not access.is_allowed(cluster.api, installed.name, NAMESPACE, eviction),
        30,
        "no right to evict",
    )
    installed.release.uninstall()
    wait_until(lambda: not objects_of_the_release(cluster.api), 30, "nothing of the release left")


def container(installed):
    (only,) = installed.cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return only


def zones(plane):
    pods = operations.pods(plane.api, "default", "app=nginx")
    return sorted(
        pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
    )


def test_the_installed_run_fixes_the_story_and_is_silent_then(cluster, tmp_path):
    drift.article(cluster)
    installed = Installed(cluster, tmp_path)
    first = installed.run()
    assert first.code == 0, first.err
    assert [move["outcome"] for move in first.report["moves"]] == ["evicted"]
    assert zones(cluster) == ["zone-a-0", "zone-b-0", "zone-c-0"]
    operations.wait_pods_ready(cluster.api, 3, selector="app=nginx")
    for _ in range(5):
        silent = installed.run()
        assert silent.code == 0, silent.err
        assert silent.report["moves"] == []
    assert "holderIdentity" not in cluster.api.get(installed.lease_path)["spec"]


def test_an_observing_run_reports_the_move_and_makes_none(cluster, tmp_path):
    drift.article(cluster)
    before = zones(cluster)
    installed = Installed(cluster, tmp_path, mode="observe")
    assert "It evicts nothing" in installed.notes
    seen = installed.run()
    assert seen.code == 0, seen.err
    assert seen.report["dryRun"]
    assert len(seen.report["moves"]) == 1
    assert not seen.evicted
    assert zones(cluster) == before
    # Nor could it: to act is forbidden to it.
    refused = installed.run("--policy=" + str(enforcing(tmp_path)))
    assert refused.code == 3
    assert "pods/eviction" in refused.err
    assert zones(cluster) == before


def enforcing(folder):
    path = folder / "enforcing.yaml"
    path.write_text("apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {anti-affinity: {}}\n")
    return path
