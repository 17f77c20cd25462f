"""What a person on call asks after a pod was moved: the release is found, and the pod that is gone explained."""

import json

import pytest

from tests.unit.commands.called import called
from tests.unit.commands.embedded import Runner, third_zone_joined

LABELS = {"app.kubernetes.io/name": "kube-rebalancer"}


def config_map(name, namespace="ops", labels=LABELS):
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def lease(name):
    metadata = {"name": name, "namespace": "ops", "labels": LABELS}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


@pytest.fixture
def cluster():
    with third_zone_joined("web") as made:
        made.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ops"}},
            config_map("mover-memory"),
            config_map("mover-policy"),
            config_map("other-memory", labels={}),
            lease("mover"),
        )
        yield made


@pytest.fixture
def moved(cluster, tmp_path):
    """The name of the pod that a run has moved."""
    code, report = Runner(cluster, tmp_path)(memory="ops/mover-memory")
    assert code == 0
    (move,) = report["moves"]
    cluster.settle()
    return move["pod"]


def on(cluster, *words):
    return called(*words, f"--kubeconfig={cluster.kubeconfig}")


def test_history_finds_the_memory_of_the_release(cluster, moved):
    out = on(cluster, "history").stdout
    assert f"default/{moved}: n-" in out
    assert "-> n-c, as predicted" in out
    assert "anti-affinity: " in out


def test_several_releases_are_listed_and_one_is_to_be_named(cluster, moved):
    cluster.apply(config_map("second-memory", "default"))
    done = on(cluster, "history")
    assert done.returncode == 2
    assert "--memory default/second-memory or --memory ops/mover-memory" in done.stderr
    assert moved in on(cluster, "history", "--memory=ops/mover-memory").stdout
    text = " ".join(on(cluster, "explain", "workload", "web").stdout.split())
    assert "cool-downs are not known: there are several releases" in text


def test_a_release_that_is_not_there_is_said_with_what_was_looked_for(cluster):
    cluster.delete("ConfigMap", "mover-memory", "ops")
    done = on(cluster, "history")
    assert done.returncode == 3
    assert "app.kubernetes.io/name=kube-rebalancer" in done.stderr
    assert "--memory NAMESPACE/NAME" in done.stderr


def test_who_may_not_list_is_shown_the_flag_and_the_right(cluster):
    cluster.access.denied.add(("list", "configmaps"))
    done = on(cluster, "history")
    assert done.returncode == 3
    assert "--memory NAMESPACE/NAME" in done.stderr
    assert "configmaps" in done.stderr


def test_doctor_judges_the_lease_and_the_memory_of_the_release(cluster):
    checks = {
        one["check"]: one
        for one in json.loads(on(cluster, "doctor", "-o", "json").stdout)["checks"]
    }
    assert "ConfigMap ops/mover-memory is there" in json.dumps(checks["memory"])
    assert "Lease ops/mover is there" in json.dumps(checks["lease"])


@pytest.mark.parametrize("known", ["events and memory", "memory", "events"])
@pytest.mark.parametrize("form", ["pod default/{}", "pod {}", "{}", "pod/{}"])
def test_a_pod_that_a_run_has_moved_is_explained_though_it_is_gone(cluster, moved, known, form):
    if known == "memory":
        for event in cluster.objects("Event", "default"):
            cluster.delete("Event", event["metadata"]["name"])
    if known == "events":
        cluster.delete("ConfigMap", "mover-memory", "ops")
    done = on(cluster, "explain", *form.format(moved).split())
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith(f"default/{moved} is gone: a run of kube-rebalancer")
    assert ("landed on n-c, as predicted" in text) == (known != "events")
    assert ("its replacement web-" in text) == (known != "events")
    assert "Why: " in text
    assert "anti-affinity" in text
    assert "no rule of Deployment/default/web is unmet now" in text
    assert "annotate deployment web rebalancer/evict=false" in text


def test_the_data_of_a_pod_that_is_gone_name_what_is_known(cluster, moved):
    data = json.loads(on(cluster, "explain", "pod", moved, "-o", "json").stdout)
    assert (data["kind"], data["pod"], data["gone"]) == ("PodExplanation", f"default/{moved}", True)
    assert (data["landed"], data["predicted"], data["rulesUnmet"]) == ("n-c", True, 0)


def test_a_workload_that_is_gone_too_is_not_judged(cluster, moved):
    cluster.delete("Deployment", "web")
    cluster.settle()
    text = " ".join(on(cluster, "explain", "pod", moved).stdout.split())
    assert "Was it right: not judged, since Deployment/default/web has no pods now" in text


def event(reason, kind, name, note, component):
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason.lower()}", "namespace": "default"},
        "eventTime": "2026-11-20T00:34:11.000000Z",
        "reason": reason,
        "type": "Normal",
        "note": note,
        "reportingController": component,
        "regarding": {"kind": kind, "namespace": "default", "name": name},
    }


@pytest.mark.parametrize("form", ["pod default/{}", "{}"])
def test_of_a_pod_that_no_run_moved_it_is_said_so_and_who_ended_it(cluster, moved, form):
    replica_set = moved.rpartition("-")[0]
    gone = f"{replica_set}-bcdfg"
    cluster.apply(
        event("Killing", "Pod", gone, "Stopping container web", "kubelet"),
        event("Scheduled", "Pod", gone, "assigned", "default-scheduler"),
        event("SuccessfulDelete", "ReplicaSet", replica_set, f"Deleted pod: {gone}", "rs"),
        event("SuccessfulDelete", "ReplicaSet", "other", f"Deleted pod: {gone}0", "rs"),
    )
    done = on(cluster, "explain", *form.format(gone).split())
    assert done.returncode == 2
    assert "did you mean" not in done.stderr
    assert (
        "no run of kube-rebalancer moved a pod of this name, as far as known from Events (kept for about an hour)"
        " and the memory in ConfigMap ops/mover-memory" in done.stderr
    )
    said = [line for line in done.stderr.splitlines() if "an Event says" in line]
    assert [line.partition("says: ")[2] for line in said] == [
        "2026-11-20T00:34:11Z Killing, kubelet: Stopping container web",
        f"2026-11-20T00:34:11Z SuccessfulDelete, rs: Deleted pod: {gone}",
    ]


def test_without_events_and_memory_nothing_is_claimed(cluster):
    cluster.access.denied.update({("list", "events.events.k8s.io"), ("get", "configmaps")})
    done = on(cluster, "explain", "pod", "web-of-another-name")
    assert done.returncode in (2, 3)
    assert "moved a pod of this name" not in done.stderr


def released(cluster):
    policy = "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {duplicates: {}}\n"
    pod = {
        "metadata": {"labels": {"app": "mover"}},
        "spec": {
            "containers": [{"name": "rebalancer", "image": "r"}],
            "volumes": [{"name": "policy", "configMap": {"name": "mover-policy"}}],
        },
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "mover"}}, "template": pod}
    metadata = {"name": "mover", "namespace": "ops", "labels": LABELS}
    cluster.apply(
        {**config_map("mover-policy"), "data": {"rebalancer.yaml": policy}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
    )


@pytest.mark.parametrize("command", ["plan", "explain workload web"])
def test_that_the_release_has_another_policy_is_said_with_the_command_that_exports_it(
    cluster, command
):
    words = command.split()
    assert "policy of its own" not in on(cluster, *words).stderr
    released(cluster)
    (said,) = (one for one in on(cluster, *words).stderr.splitlines() if "policy of its" in one)
    assert said.startswith("rebalancer: Deployment ops/mover has a policy of its own")
    assert said.endswith(
        "kubectl --namespace ops get configmap mover-policy"
        " -o 'jsonpath={.data.rebalancer\\.yaml}' > policy.yaml"
    )
