"""The machine of an empty node is ended once volumes are detached and nobody asks for a delay, or after two minutes."""

import json
import subprocess
import sys

import pytest

from rebalancer.kube.access import ATTACHMENT_RULES, DRAIN_RULES, MARK_RULES
from rebalancer.wire.marks import SCALE_IN
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import PATIENCE, RUN_RULES, grant
from tests.e2e.served import runs
from tests.e2e.test_people_on_nodes import (  # noqa: F401  # fixtures
    closed_by_scale_in,
    kubectl,
    scaled,
)
from tests.support.volumes import attachment

RULES = (*RUN_RULES, *MARK_RULES)
DELAY = "delay-deletion.cluster-autoscaler.kubernetes.io/agent"


@pytest.mark.parametrize("may_list", [True, pytest.param(False, marks=pytest.mark.long)])
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
    warnings: list[str] = []
    # The fixture's process stands still; another one goes on with what stands on the node.
    with runs(*flags) as served:

        def ends():
            reports = served()
            warnings.extend(one for report in reports for one in report["warnings"])
            return any(
                (act["node"], act["code"]) == (closed, "Terminated")
                for report in reports
                for act in report["machines"]
            )

        def is_seen_empty():
            assert not ends()
            there = cluster.api.get(f"/api/v1/nodes/{closed}")["metadata"]["annotations"]
            return bool(json.loads(there[SCALE_IN]).get("empty"))

        wait_until(is_seen_empty, 120, f"the wait for {DELAY}")
        kubectl("annotate", "node", closed, f"{DELAY}-")
        if may_list:
            for _ in range(3):
                assert not ends()
            cluster.api.delete("/apis/storage.k8s.io/v1/volumeattachments/detaching")
        wait_until(ends, 60, "the end of its machine")
    assert any("VolumeAttachments are not waited for" in one for one in warnings) is not may_list


@pytest.mark.parametrize("may_list", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_replacement_calls_what_removes_a_machine_once_the_volumes_are_detached(
    cluster, tmp_path, may_list
):
    cluster.apply([objects.node("old-0", labels={"generation": "old"})])
    operations.wait_nodes_ready(cluster.api, 1)
    cluster.apply([objects.deployment("web", 2, labels={"app": "web"})])
    operations.wait_pods_ready(cluster.api, 2)
    cluster.apply([objects.node("new-0")])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([attachment("old-0")])
    rules = (*RULES, *DRAIN_RULES, *(ATTACHMENT_RULES if may_list else ()))
    removed = tmp_path / "removed"
    flags = (
        "--selector=generation=old",
        f"--then=touch {removed}",
        f"--kubeconfig={grant(cluster, rules)}",
    )
    command = [sys.executable, "-m", "rebalancer", "replace", *flags, "--output=json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting  for old-0: volumes are detached from it: data" in line:
                assert not removed.exists()
                cluster.api.delete("/apis/storage.k8s.io/v1/volumeattachments/detaching")
                break
        report = json.loads(process.communicate(timeout=PATIENCE)[0])
    assert process.returncode == 0, report
    assert removed.exists()
    warnings = [one for one in report["warnings"] if "VolumeAttachments" in one]
    assert [one.startswith("VolumeAttachments are not waited for") for one in warnings] == (
        [] if may_list else [True]
    )
