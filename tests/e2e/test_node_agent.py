"""The agent of the chart's DaemonSet on a real API server, with the token of its own pod."""

import json
import os
import signal
import subprocess
import sys

import pytest

from rebalancer.signals.notice import NOTICE
from tests.chart.helm import Release
from tests.controlplane import ApiError, objects, wait_until
from tests.e2e.installed import NAMESPACE
from tests.e2e.instance_metadata import NOTHING, instance_metadata
from tests.e2e.product import PATIENCE

NODES = "/api/v1/nodes"
AGENT = "rebalancer-kube-rebalancer-node-agent"
GOES_AT = "2036-11-20T10:00:00Z"


def agents(cluster):
    """Node -> name of its agent's pod."""
    pods = cluster.api.list_all(f"/api/v1/namespaces/{NAMESPACE}/pods")
    return {
        pod["spec"].get("nodeName"): pod["metadata"]["name"]
        for pod in pods
        if pod["spec"]["serviceAccountName"] == AGENT
    }


def standing(cluster, node):
    return cluster.api.get(f"{NODES}/{node}")["metadata"]["annotations"].get(NOTICE)


def refused(client, node, patch):
    with pytest.raises(ApiError) as raised:
        client.patch(f"{NODES}/{node}", patch)
    assert raised.value.status in (403, 422), raised.value
    return str(raised.value)


def noted(text, **more):
    return {"metadata": {"annotations": {NOTICE: text, **more}}}


def test_an_agent_writes_the_notice_of_its_own_node_and_may_do_nothing_else(cluster, tmp_path):
    labels = {"kubernetes.io/os": "linux"}
    cluster.apply(
        [objects.namespace(NAMESPACE), *(objects.node(n, labels=labels) for n in ("mine", "other"))]
    )
    with instance_metadata(tmp_path) as metadata:
        values = {"suspend": True, "nodeAgent": {"enabled": True, "imds": metadata.url}}
        Release(cluster.kubeconfig, NAMESPACE).install(values)
        wait_until(lambda: {"mine", "other"} <= set(agents(cluster)), PATIENCE, "an agent each")
        pod = agents(cluster)["mine"]
        token = cluster.token_for_service_account(NAMESPACE, AGENT, bound_to=pod, kind="Pod")
        client = cluster.client(token)

        # The policy is in force a moment after it was made.
        def in_force():
            try:
                client.patch(f"{NODES}/other?dryRun=All", noted("x"))
            except ApiError as error:
                return "its own node" in str(error)
            return False

        wait_until(in_force, PATIENCE, "the policy in force")
        metadata.say("spot", "--action=terminate", f"--time={GOES_AT}")
        args = ["node-agent", "--every=1s", f"--imds={metadata.url}"]
        kubeconfig = cluster.write_kubeconfig("agent", token)
        agent = subprocess.Popen(
            [sys.executable, "-m", "rebalancer", *args, f"--kubeconfig={kubeconfig}"],
            env={**os.environ, "NODE_NAME": "mine"},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: standing(cluster, "mine"), PATIENCE, "the notice")
            assert json.loads(standing(cluster, "mine"))["deadline"] == GOES_AT
            metadata.say(*NOTHING)
            wait_until(lambda: not standing(cluster, "mine"), PATIENCE, "the notice taken away")
        finally:
            agent.send_signal(signal.SIGTERM)
            _, said = agent.communicate(timeout=PATIENCE)
        assert agent.returncode == 0, said
    for patch in (
        {"spec": {"unschedulable": True}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": ["a.test/b"]}},
        noted("x", another="y"),
        {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}},
    ):
        assert "only change the annotation" in refused(client, "mine", patch)
    assert "its own node only" in refused(client, "other", noted("x"))
    # A token of the account that no pod has says of no node that it is its own.
    loose = cluster.client(cluster.token_for_service_account(NAMESPACE, AGENT))
    assert "its own node only" in refused(loose, "mine", noted("x"))
    # Others are not concerned.
    cluster.api.patch(f"{NODES}/other", {"metadata": {"labels": {"a": "b"}}})
