"""What a person asks of the real API server after a pod was moved, with rights in the namespace of the release only."""

from pathlib import Path

import pytest
import yaml

from rebalancer.kube.access import config_map_rules
from rebalancer.kube.resources import AccessRule
from tests.controlplane import wait_until
from tests.e2e import crowd
from tests.e2e.product import ACCOUNT, Product, rebalancer

MEMORY = ("default", "mover-memory")
RBAC = "rbac.authorization.k8s.io/v1"


def memory():
    labels = {"app.kubernetes.io/name": "kube-rebalancer"}
    metadata = {"name": MEMORY[1], "namespace": MEMORY[0], "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def may_list():
    """Let the account list the ConfigMaps of the namespace of the release, and of no other."""
    metadata = {"name": "people", "namespace": MEMORY[0]}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "people"}
    return [
        {"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": ref,
            "subjects": [subject],
        },
    ]


@pytest.fixture
def person(cluster, tmp_path):
    """A kubeconfig whose context names the namespace of the release, and the pod that a run has moved."""
    crowd.gather(cluster, 1)
    cluster.apply([memory()])
    reads_events = AccessRule("list", "events.k8s.io", "events")
    product = Product(cluster, tmp_path, more_rules=(*config_map_rules(*MEMORY), reads_events))
    done = product.run(f"--memory={'/'.join(MEMORY)}")
    (move,) = done.evicted
    crowd.settle(cluster, 1)
    cluster.apply(may_list())
    config = yaml.safe_load(Path(product.kubeconfig).read_text())
    config["contexts"][0]["context"]["namespace"] = MEMORY[0]
    file = tmp_path / "person"
    file.write_text(yaml.safe_dump(config))

    def is_allowed():
        return rebalancer("history", f"--kubeconfig={file}").code == 0

    wait_until(is_allowed, 60, "the right in force")
    return f"--kubeconfig={file}", move["pod"]


def test_without_a_release_history_says_so(cluster):
    """The API server answers null for an empty list of metadata."""
    done = rebalancer("history", f"--kubeconfig={cluster.kubeconfig}")
    assert done.code == 3
    assert "no release has a memory here" in done.err


def test_history_and_explain_find_the_memory_and_know_the_pod_that_is_gone(person):
    access, pod = person
    said = rebalancer("history", access).out
    assert f"default/{pod}: crowd-" in said
    assert "-> crowd-c, as predicted" in said
    done = rebalancer("explain", "pod", pod, access)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert text.startswith(f"default/{pod} is gone: a run of kube-rebalancer")
    assert "landed on crowd-c, as predicted." in text
    assert "no rule of Deployment/default/app-00 is unmet now." in text
    doctor = rebalancer("doctor", access).out
    assert f"ConfigMap {'/'.join(MEMORY)} is there" in " ".join(doctor.split())
