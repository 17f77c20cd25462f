"""Article 004, the growing half, on a real scheduler: KWOK's nodes are the machines behind moto's groups."""

import pytest
import yaml

from rebalancer.kube.access import config_map_rules
from rebalancer.kube.seldom_read import BUFFER_RULES
from rebalancer.machines.capacity.state import decode
from rebalancer.wire.kinds import CAPACITY_BUFFERS
from tests.aws.cloud import REGION
from tests.aws.fleet import ENABLED
from tests.controlplane import objects, operations, wait_until
from tests.e2e.machines import fleet_of
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.served import runs
from tests.e2e.test_custom_controllers import is_served
from tests.e2e.test_pod_groups import DEFINITIONS

STATUS = ("default", "machines")
GROWN = [("ScaledUpGroup", "", "done")]
MAP = "/api/v1/namespaces/default/configmaps/machines"


@pytest.fixture
def fleet(cluster, monkeypatch):
    with fleet_of(cluster, monkeypatch) as made:
        yield made


@pytest.fixture
def flags(cluster, fleet, tmp_path):
    """Ten replicas of half a core on three machines that hold nine of them."""
    fleet.add("pool", 3, high=6)
    names = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "machines"}}
    cluster.apply([names, objects.deployment("web", 10, cpu="500m", memory="512Mi")])
    wait_until(lambda: seen(cluster) == (9, 1), 60, "nine pods are Ready and one waits")
    policy = tmp_path / "policy.yaml"
    aws = {"tags": [ENABLED], "region": REGION, "endpoint": fleet.cloud.url}
    policy.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "rebalancer/v1",
                "kind": "Policy",
                "provider": {"aws": aws},
                "strategies": {"scale-out": {}},
            }
        )
    )
    return (f"--policy={policy}", "--output=json", f"--machine-state={'/'.join(STATUS)}")


def seen(plane):
    """How many pods are Ready, and how many the scheduler has refused."""
    pods = operations.pods(plane.api, selector="app=web")
    refused = [
        each
        for pod in pods
        for each in pod.get("status", {}).get("conditions", ())
        if "nodeName" not in pod["spec"] and each.get("reason") == "Unschedulable"
    ]
    return sum(map(operations.is_ready, pods)), len(refused)


def events(plane):
    """(kind, reason) of our Events, in order."""
    listed = plane.api.list_all("/apis/events.k8s.io/v1/namespaces/default/events")
    return sorted(
        (one["regarding"]["kind"], one["reason"])
        for one in listed
        if one.get("reportingController") == "kube-rebalancer"
    )


def test_a_group_grows_once_for_a_pod_that_waits_and_the_pod_runs(cluster, fleet, flags):
    kubeconfig = grant(cluster, (*RUN_RULES, *config_map_rules(*STATUS)))

    access = (flags[0], f"--kubeconfig={kubeconfig}")
    planned = rebalancer("run", "--dry-run", "--output=json", *access).report["machines"]
    assert [(act["code"], act["status"]) for act in planned] == [("ScaledUpGroup", "planned")]
    assert "data" not in cluster.api.get(MAP)
    with runs(*access, flags[2]) as served:
        assert served.acts() == GROWN
        assert fleet.sizes == {"pool": 4}
        assert served.acts() == []
        assert fleet.sizes == {"pool": 4}
        assert events(cluster) == [("ConfigMap", "ScaledUpGroup"), ("Pod", "TriggeredScaleUp")]
        state = decode(cluster.api.get(MAP)["data"])[0]["pool"]
        assert (state.asked, len(state.pods)) == (4, 1)

        fleet.join()
        wait_until(lambda: seen(cluster) == (10, 0), 60, "all pods are Ready")
        assert served.acts() == []
        assert decode(cluster.api.get(MAP)["data"])[0]["pool"].pods == {}


def test_without_the_right_to_the_config_map_a_run_names_it_and_asks_for_no_machine(
    cluster, fleet, flags
):
    read_only = [rule for rule in config_map_rules(*STATUS) if rule.verb == "get"]
    kubeconfig = grant(cluster, (*RUN_RULES, *read_only))
    ran = rebalancer("serve", "--yes", *flags, f"--kubeconfig={kubeconfig}")
    assert ran.code == 3
    assert "update configmaps machines in namespace default" in ran.err
    assert fleet.sizes == {"pool": 3}


def test_an_immutable_config_map_keeps_a_run_from_asking_for_machines(cluster, fleet, flags):
    names = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "machines"}}
    cluster.apply([{**names, "immutable": True}])
    kubeconfig = grant(cluster, (*RUN_RULES, *config_map_rules(*STATUS)))
    with runs(flags[0], flags[2], f"--kubeconfig={kubeconfig}") as served:
        reports = served()
    for report in reports:
        (act,) = report["machines"]
        assert (act["status"], fleet.sizes) == ("failed", {"pool": 3})
        assert "no group is resized" in act["message"]


BUFFERS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "capacitybuffers.autoscaling.x-k8s.io",
        "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/8310"
        },
    },
    "spec": {
        "group": CAPACITY_BUFFERS.group,
        "names": {"kind": "CapacityBuffer", "plural": CAPACITY_BUFFERS.plural},
        "scope": "Namespaced",
        "versions": [
            {
                "name": CAPACITY_BUFFERS.version,
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def files_say_the_same(folder, policy, kubeconfig):
    """All chunks have room, by a file of the cluster, and by one without its names."""
    file, key = folder / "cluster.zip", folder / "key"
    key.write_text("0123456789abcdef")
    for more in ((), (f"--redact-key-file={key}",)):
        took = ("snapshot", "--buffers", f"--output={file}", f"--kubeconfig={kubeconfig}")
        assert rebalancer(*took, *more).code == 0
        of_file = rebalancer("plan", f"--policy={policy}", "--output=json", f"--snapshot={file}")
        assert of_file.report["before"]["capacity-buffers"]["violated"] == 0


def test_a_group_grows_for_a_buffer_and_its_nodes_stay(cluster, fleet, tmp_path):
    """Three machines hold three of four chunks; once there is a fourth machine, none of the empty ones can go."""
    fleet.add("pool", 3, high=6)
    names = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "machines"}}
    cluster.apply([names])
    policy = tmp_path / "policy.yaml"
    aws = {"tags": [ENABLED], "region": REGION, "endpoint": fleet.cloud.url}
    policy.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "rebalancer/v1",
                "kind": "Policy",
                "provider": {"aws": aws},
                "capacity": {"buffers": True},
                "strategies": {"scale-out": {}},
            }
        )
    )
    kubeconfig = grant(cluster, (*RUN_RULES, *BUFFER_RULES, *config_map_rules(*STATUS)))
    served_by = (f"--policy={policy}", f"--kubeconfig={kubeconfig}")
    access = (*served_by, "--output=json")
    status = f"--machine-state={'/'.join(STATUS)}"

    with runs(*served_by, status) as served:
        assert served.acts() == []  # without the kind there are none
    cluster.api.post(DEFINITIONS, BUFFERS)
    path = CAPACITY_BUFFERS.path("default")
    wait_until(lambda: is_served(cluster.api, path), 30, "CapacityBuffers are served")
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1500m"}}}
    template = {"metadata": {"name": "chunk"}, "template": {"spec": {"containers": [container]}}}
    cluster.api.post("/api/v1/namespaces/default/podtemplates", template)
    buffer = {"apiVersion": CAPACITY_BUFFERS.api_version, "kind": CAPACITY_BUFFERS.kind}
    spec = {"podTemplateRef": {"name": "chunk"}, "replicas": 4}
    cluster.api.post(path, {**buffer, "metadata": {"name": "web"}, "spec": spec})

    with runs(*served_by, status) as served:
        assert served.acts() == GROWN
        fleet.join()
        assert fleet.sizes == {"pool": 4}
        assert served.acts() == []
    judged = rebalancer("capacity", *access).report
    assert [one["code"] for one in judged["pending"]] == ["Fits"] * 4
    assert {one["code"] for one in judged["nodes"]} <= {"NeededByPendingPod", "NotUnderutilized"}
    assert [one for one in events(cluster) if one[0] != "Node"] == [("ConfigMap", "ScaledUpGroup")]

    files_say_the_same(tmp_path, policy, kubeconfig)
    lacking = grant(cluster, (*RUN_RULES, *config_map_rules(*STATUS)))
    ran = rebalancer("serve", "--yes", access[0], status, f"--kubeconfig={lacking}")
    assert ran.code == 3
    assert "list capacitybuffers" in ran.err
    assert "get podtemplates" in ran.err
