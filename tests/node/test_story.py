"""The story, played by the real image, in the real pod of the real CronJob, on a real node."""

import json

import pytest

from tests.controlplane import operations, wait_until
from tests.node.ground import NAMESPACE
from tests.node.node import NAME
from tests.support import members


@pytest.fixture
def drifted(ground):
    ground.drift()
    yield ground
    ground.clear()


def test_the_cron_job_fixes_twice_in_a_row_and_then_is_silent(drifted):
    assert sorted(drifted.zones().values()) == [1, 2]
    drifted.release().install(drifted.values())

    first = wait_until(drifted.finished, 120, "the first run ended")[0]
    log = drifted.log(first)
    assert first["status"]["phase"] == "Succeeded", log
    assert first["spec"]["nodeName"] == NAME
    assert dict(drifted.zones()) == {f"simulated-{zone}": 1 for zone in "abc"}, log

    second = wait_until(lambda: drifted.finished()[1:], 120, "the second run ended")[0]
    assert second["status"]["phase"] == "Succeeded"
    assert "every rule holds" in drifted.log(second)


@pytest.fixture
def joined(drifted):
    _, kubeconfig = members.join(drifted.plane)
    release = drifted.release()
    # The second cluster has no Secret: it alone is to fail.
    clusters = [members.member(name) for name in ("prod-eu", "forgotten")]
    release.install(drifted.values(schedule="0 0 29 2 *", fleet={"clusters": clusters}))
    drifted.plane.apply([members.access_secret("prod-eu", NAMESPACE, kubeconfig)])
    yield drifted
    members.release(drifted.plane).uninstall()


def test_an_index_of_a_fleet_s_job_sees_its_own_kubeconfig_and_fails_alone(joined):
    before = joined.zones()
    joined.start_job("tick")
    wait_until(lambda: len(joined.finished()) == 2, 120, "both indices ended")
    index = "batch.kubernetes.io/job-completion-index"
    pods = {pod["metadata"]["annotations"][index]: pod for pod in joined.finished()}
    logs = {at: joined.log(pod) for at, pod in pods.items()}
    assert {at: pod["status"]["phase"] for at, pod in pods.items()} == {
        "0": "Succeeded",
        "1": "Failed",
    }, logs
    # The pods of a fleet observe: they move nothing.
    assert "1 observed only" in logs["0"]
    assert joined.zones() == before, logs["0"]
    (container,) = pods["1"]["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 2
    assert "there is no kubeconfig of cluster forgotten" in logs["1"]
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{members.NAME}-fleet-status"
    records = {name: json.loads(text) for name, text in joined.api.get(path)["data"].items()}
    assert (records["prod-eu"]["planned"], records["forgotten"]["exitCode"]) == (1, 2)
    # Of both, a pod has its own directory only.
    look = "import os; print(sorted(os.listdir('/etc/rebalancer/kubeconfigs')))"
    joined.start_job("look", command=["/usr/local/bin/python3"], args=["-I", "-c", look])
    wait_until(lambda: len(joined.finished()) == 4, 120, "both have looked")
    seen = [
        joined.log(pod).strip()
        for pod in operations.pods(joined.api, NAMESPACE, "batch.kubernetes.io/job-name=look")
    ]
    assert sorted(seen) == ["['prod-eu']", "[]"]
