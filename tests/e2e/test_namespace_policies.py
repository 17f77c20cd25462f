"""A policy in a namespace of its own team, on the real control plane and with the rights that the chart grants."""

import json

import yaml

from rebalancer.policy.namespace import CONFIG_MAP, KEY
from tests.controlplane import audit, objects, operations, wait_until
from tests.e2e.installed import Installed
from tests.e2e.product import rebalancer
from tests.e2e.rights import asked, granted, missing, unused

TEAMS = ("bank", "shop")
HEAD = "apiVersion: rebalancer/v1\nkind: Policy\n"


def write_policy(cluster, namespace, text):
    metadata = {"namespace": namespace, "name": CONFIG_MAP}
    of_team = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}
    cluster.apply([of_team])


def fill(cluster):
    """In each namespace three replicas that want a zone each, in two zones; then a third joins."""
    cluster.apply([objects.node(f"n-{zone}", zone=zone) for zone in "ab"])
    operations.wait_nodes_ready(cluster.api, 2)
    for team in TEAMS:
        cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}])
        apart = objects.prefer_apart({"app": team}, objects.ZONE)
        made = objects.deployment(team, 3, labels={"app": team}, affinity=apart)
        made["metadata"]["namespace"] = team
        cluster.apply([made])
    for team in TEAMS:
        wait_for_pods(cluster, team)
    cluster.apply([objects.node("n-c", zone="c")])
    operations.wait_nodes_ready(cluster.api, 3)


def wait_for_pods(cluster, team):
    wait_until(lambda: len(ready_on(cluster, team)) == 3, 60, f"the pods of {team}")


def ready_on(cluster, team):
    """The nodes of its Ready pods."""
    pods = operations.pods(cluster.api, team)
    return [pod["spec"]["nodeName"] for pod in pods if operations.is_ready(pod)]


def events_in(cluster, namespace):
    events = cluster.api.list_all(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [one for one in events if one["reason"] == "PolicyNotUsed"]


def test_a_team_narrows_the_policy_for_its_own_pods(cluster, tmp_path):
    fill(cluster)
    write_policy(cluster, "shop", f"{HEAD}mode: observe\nprotect: {{minPodAge: 1h}}\n")
    write_policy(cluster, "bank", f"{HEAD}mode: off\n")
    policy = {"namespacePolicies": ["shop"], "protect": {"minPodAge": "0s"}}
    installed = Installed(cluster, tmp_path, mode="enforce", policy=policy)
    rules, log = granted(installed, acting=True), audit.AuditLog(cluster.audit_log)

    # The cluster's policy names shop only: what bank writes holds nothing back.
    done = installed.run()
    assert done.code == 0, done.err
    assert [move["namespace"] for move in done.report["moves"]] == ["bank"]
    assert "n-c" not in ready_on(cluster, "shop")
    assert missing(rules, asked(log)) == []
    maps = {rule for rule in rules if rule.resource == "configmaps" and rule.verb == "list"}
    assert {rule.name for rule in maps} == {CONFIG_MAP}
    assert not set(unused(rules, asked(log, answered_well=True))) & maps

    cluster_policy = tmp_path / "cluster.yaml"
    head = {"apiVersion": "rebalancer/v1", "kind": "Policy"}
    cluster_policy.write_text(yaml.safe_dump(head | policy | {"strategies": {"duplicates": {}}}))
    shown = rebalancer(
        "policy",
        "show",
        "--namespace=shop",
        f"--policy={cluster_policy}",
        f"--kubeconfig={installed.kubeconfig}",
    )
    assert shown.code == 0, shown.err
    assert "mode: observe  # ConfigMap shop/rebalancer-policy:3" in shown.out
    assert "minPodAge: 1h  # ConfigMap shop/rebalancer-policy:4" in shown.out
    assert yaml.safe_load(shown.out)["mode"] == "observe"

    # What has an error is said there, once, and the cluster's policy holds as it is.
    write_policy(cluster, "shop", f"{HEAD}mode: observed\n")
    for _ in range(2):
        done = installed.run()
        assert done.code == 0, done.err
        said = [text for text in done.report["warnings"] if "shop/rebalancer-policy:3" in text]
        assert len(said) == 1, json.dumps(done.report["warnings"])
    assert "n-c" in ready_on(cluster, "shop")
    (event,) = events_in(cluster, "shop")
    assert event["regarding"]["name"] == CONFIG_MAP
    assert event["type"] == "Warning"
    assert "did you mean observe?" in event["note"]
    assert events_in(cluster, "bank") == []
