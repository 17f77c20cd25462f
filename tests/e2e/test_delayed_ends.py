"""The machine of an empty node is ended once volumes are detached and nobody asks for a delay, or after two minutes."""

import pytest

from rebalancer.kube.access import (
    ACT_RULES,
    ATTACHMENT_RULES,
    EVENT_RULES,
    FOLLOW_RULES,
    MARK_RULES,
    READ_RULES,
)
from tests.controlplane import wait_until
from tests.e2e.product import grant, rebalancer
from tests.e2e.test_people_on_nodes import (  # noqa: F401  # fixtures
    closed_by_scale_in,
    kubectl,
    scaled,
)

RULES = (*READ_RULES, *ACT_RULES, *FOLLOW_RULES, *EVENT_RULES, *MARK_RULES)
DELAY = "delay-deletion.cluster-autoscaler.kubernetes.io/agent"


def attachment(node):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "detaching"},
        "spec": {
            "attacher": "csi.example.com",
            "nodeName": node,
            "source": {"persistentVolumeName": "data"},
        },
    }


@pytest.mark.parametrize("may_list", [True, False])
def test_scale_in_waits_for_an_annotation_and_then_for_a_volume_that_is_detached(
    cluster,
    kubectl,  # noqa: F811
    scaled,  # noqa: F811
    tmp_path,
    may_list,
):
    run, names = scaled
    closed = closed_by_scale_in(cluster, run, names)
    kubectl("annotate", "node", closed, f"{DELAY}=ships its logs")
    cluster.apply([attachment(closed)])
    rules = (*RULES, *(ATTACHMENT_RULES if may_list else ()))
    flags = (f"--policy={tmp_path / 'policy.yaml'}", f"--kubeconfig={grant(cluster, rules)}")
    warnings = []

    def says(text):
        ran = rebalancer("run", "--yes", "--output=json", *flags)
        assert ran.code == 0, ran.err
        warnings.extend(ran.report["warnings"])
        acts = [act for act in ran.report["machines"] if act["node"] == closed]
        assert text == "is terminated" or acts[0]["code"] != "Terminated", acts
        return any(text in act["message"] for act in acts)

    wait_until(lambda: says(f"it is empty, and it is annotated {DELAY}"), 120, "the annotation")
    kubectl("annotate", "node", closed, f"{DELAY}-")
    if may_list:
        wait_until(lambda: says("volumes are detached from it: data"), 60, "the volume")
        cluster.api.delete("/apis/storage.k8s.io/v1/volumeattachments/detaching")
    wait_until(lambda: says("is terminated"), 60, "the end of its machine")
    assert any("VolumeAttachments are not waited for" in one for one in warnings) is not may_list
