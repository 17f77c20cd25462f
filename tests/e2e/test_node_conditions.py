"""Nodes say by their conditions what is done to them: on the real API server, under kills, beside people and others."""

import re
import time

import pytest
import yaml

from rebalancer.kube.access import CONDITION_RULES, DRAIN_RULES
from tests.controlplane import objects, operations, wait_until
from tests.e2e.product import RUN_RULES, grant, rebalancer
from tests.e2e.test_people_on_nodes import (  # noqa: F401  # fixtures
    BASE,
    DRAIN,
    EXCLUDE,
    NODE,
    announce,
    closed_by_scale_in,
    end_work,
    held,
    is_closed_by,
    kubectl,
    node,
    scaled,
    serve,
    under_way,
    withdraw,
)
from tests.support.killed_processes import Kills, describe_node_patch, seen_by

RULES = (*RUN_RULES, *DRAIN_RULES)
PLANNED, DRAINING, DRAINED, MAINTAINED = (
    "MaintenancePlanned",
    "DrainInProgress",
    "Drained",
    "MaintenanceInProgress",
)
TYPES = {PLANNED, DRAINING, DRAINED, MAINTAINED}
WEB = {"app": "web"}
REPLICAS = 3
FLAGS = ("--node-conditions", "--timeout=300s", "--output=json")


def conditions(cluster, name=NODE):
    """Return type -> condition, of those of a node's lifecycle."""
    every = cluster.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return {one["type"]: one for one in every if one["type"] in TYPES}


def said(cluster, name=NODE):
    """Return type -> (status, reason)."""
    return {key: (one["status"], one["reason"]) for key, one in conditions(cluster, name).items()}


def true(reason, *types):
    return dict.fromkeys(types, ("True", reason))


def await_said(cluster, wanted, name=NODE):
    wait_until(lambda: said(cluster, name) == wanted, 60, f"{name} says {wanted}")


@pytest.fixture
def web(cluster):
    """A service on one node, and another node."""
    cluster.apply([objects.node(NODE)])
    operations.wait_nodes_ready(cluster.api, 1)
    cluster.apply([objects.deployment("web", REPLICAS, labels=WEB)])
    cluster.apply([objects.pdb("web", WEB, maxUnavailable=1)])
    operations.wait_pods_ready(cluster.api, REPLICAS)
    cluster.apply([objects.node("n-1")])
    operations.wait_nodes_ready(cluster.api, 2)
    return cluster


def until_done(cluster, arguments):
    """Call a command until it ends, killed after each kind of its writes to a node once; return at which."""
    kills = Kills()

    def seen(request):
        patch = describe_node_patch(request)
        # Where a machine may be ending the next process waits for five minutes.
        if patch is not None and "removing" not in patch[1] and MAINTAINED not in patch[1]:
            kills.at(": ".join(patch))

    with seen_by(cluster, grant(cluster, (*RULES, *CONDITION_RULES)), seen) as path:
        done = kills.until_done([*arguments, f"--kubeconfig={path}"])
    assert done.code == 0, done.err
    return kills.points


def test_killed_after_each_write_a_drain_ends_with_a_node_that_says_it_is_drained(web):
    points = until_done(web, ["drain", NODE, *FLAGS])
    assert points == [
        f"{NODE}: unschedulable=True",
        f"{NODE}: record",
        f"{NODE}/status: DrainInProgress True",
        f"{NODE}/status: DrainInProgress delete, Drained True",
        # The record is there still: it is drained anew.
        f"{NODE}/status: DrainInProgress True, Drained delete",
    ]
    assert said(web) == true("RebalancerDrain", DRAINED)
    condition = conditions(web)[DRAINED]
    assert re.fullmatch(
        r"emptied by \S+ at \S+Z: ordered on the command line", condition["message"]
    )
    assert condition["lastTransitionTime"] <= condition["lastHeartbeatTime"]
    others = web.api.get(f"/api/v1/nodes/{NODE}")
    assert DRAIN not in others["metadata"].get("annotations", {})
    ready = [one for one in others["status"]["conditions"] if one["type"] == "Ready"]
    assert [one["status"] for one in ready] == ["True"]


@pytest.mark.long
def test_killed_after_each_write_a_replacement_removes_each_node_once(cluster):
    old = ["old-0", "old-1"]
    cluster.apply([objects.node(name, labels={"generation": "old"}) for name in old])
    operations.wait_nodes_ready(cluster.api, 2)
    cluster.apply([objects.deployment("web", REPLICAS, labels=WEB)])
    operations.wait_pods_ready(cluster.api, REPLICAS)
    cluster.apply([objects.node("new-0", labels={"generation": "new"})])
    operations.wait_nodes_ready(cluster.api, 3)
    arguments = ["replace", "--selector=generation=old", "--pause=0s", "--then=true", *FLAGS]
    points = until_done(cluster, arguments)
    for name in old:
        assert said(cluster, name) == true("RebalancerReplacement", DRAINED, MAINTAINED)
        assert f"{name}/status: MaintenancePlanned True" in points
        assert f"{name}: emptying" in points
    assert len(points) >= 10, points


def test_what_a_drain_says_ends_with_it(held):  # noqa: F811
    before = said(held)
    for flags in ([], ["--uncordon-on-failure"]):
        with under_way(held, "drain", NODE, *FLAGS, *flags):
            await_said(held, true("RebalancerDrain", DRAINING))
        assert said(held) == before == {}, flags


def test_of_two_drains_the_second_overwrites_nothing_and_the_last_one_says_that_it_is_empty(
    held,  # noqa: F811
):
    with under_way(held, "drain", NODE, *FLAGS, "--reason=first"):
        await_said(held, true("RebalancerDrain", DRAINING))
        first = conditions(held)[DRAINING]
        assert first["message"].endswith(": first")
        with under_way(held, "drain", NODE, *FLAGS, "--reason=second") as second:
            wait_until(lambda: "second" in record(held), 60, "the second drain's record")
            time.sleep(2)
            now = conditions(held)[DRAINING]
            assert {**now, "lastHeartbeatTime": ""} == {**first, "lastHeartbeatTime": ""}
            end_work(held)
            wait_until(lambda: second.poll() is not None, 60, "the second drain's end")
            assert second.returncode == 0
    await_said(held, true("RebalancerDrain", DRAINED))
    assert conditions(held)[DRAINED]["message"].endswith(": second")


def record(cluster):
    annotations = cluster.api.get(f"/api/v1/nodes/{NODE}")["metadata"].get("annotations", {})
    return annotations.get(DRAIN, "")


@pytest.mark.parametrize("status", ["True", pytest.param("False", marks=pytest.mark.long)])
def test_conditions_of_somebody_else_stay_as_they_are_and_the_report_says_so(web, status):
    theirs = {"type": DRAINING, "status": status, "reason": "KubectlDrainStarted", "message": "m"}
    at = "2026-01-01T00:00:00Z"
    theirs |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
    web.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [theirs]}}, "strategic")
    done = rebalancer("drain", NODE, *FLAGS, f"--kubeconfig={web.kubeconfig}")
    assert done.code == 0, done.err
    assert conditions(web)[DRAINING] == theirs
    assert said(web)[DRAINED] == ("True", "RebalancerDrain")
    warnings = [one for one in done.report["warnings"] if "somebody else's" in one]
    assert len(warnings) == 1, done.report["warnings"]
    assert f"DrainInProgress ({status}, KubectlDrainStarted)" in warnings[0]


def test_without_the_right_the_node_is_emptied_all_the_same_and_a_warning_names_it(web):
    done = rebalancer("drain", NODE, *FLAGS, f"--kubeconfig={grant(web, RULES)}")
    assert done.code == 0, done.err
    warnings = [one for one in done.report["warnings"] if "conditions are not set" in one]
    assert len(warnings) == 1, done.report["warnings"]
    assert '- {apiGroups: [""], resources: ["nodes/status"], verbs: ["patch"]}' in warnings[0]
    assert said(web) == {}


def test_a_run_takes_away_what_stayed_on_a_node_that_people_opened(
    web,
    kubectl,  # noqa: F811
    tmp_path,
):
    kubeconfig = f"--kubeconfig={grant(web, (*RULES, *CONDITION_RULES))}"
    assert rebalancer("drain", NODE, *FLAGS, kubeconfig).code == 0
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        yaml.safe_dump(BASE | {"nodeConditions": True, "strategies": {"leaving": {}}})
    )
    run = ("run", "--yes", f"--policy={policy}", "--output=json", kubeconfig)
    ran = rebalancer(*run)
    assert (ran.code, ran.report["moves"]) == (0, []), ran.err
    assert said(web) == true("RebalancerDrain", DRAINED)
    kubectl("uncordon", NODE)
    ran = rebalancer(*run)
    assert (ran.code, ran.report["moves"]) == (0, []), ran.err
    assert said(web) == {}


def test_replacements_say_what_is_planned_and_what_ends(held):  # noqa: F811
    end_work(held)
    flags = ("--selector=generation=old", "--pause=0s", "--then=sh -c 'sleep 10' sh", *FLAGS)
    held.apply([objects.node("n-2", labels={"generation": "old"})])
    operations.wait_nodes_ready(held.api, 3)
    ours = "RebalancerReplacement"
    names, every = (NODE, "n-2"), [true(ours, DRAINED, MAINTAINED), true(ours, PLANNED)]

    def turns():
        first, second = (said(held, name) for name in names)
        return every in ([first, second], [second, first])

    with under_way(held, "replace", *flags):
        wait_until(turns, 60, "one is empty and being removed, the other waits")
        waits = next(name for name in names if said(held, name) == every[1])
    await_said(held, {}, waits)


def test_scale_in_says_so_until_people_open_the_node(
    cluster,
    kubectl,  # noqa: F811
    scaled,  # noqa: F811
    tmp_path,
):
    run, names = scaled
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"nodeConditions": True}))
    closed = closed_by_scale_in(cluster, run, names)
    there = said(cluster, closed)
    assert there.get(PLANNED) == ("True", "RebalancerScaleIn"), there
    assert set(there) in ({PLANNED, DRAINING}, {PLANNED, DRAINED})
    kubectl("uncordon", closed)
    run()
    assert said(cluster, closed) == {}


def test_uncordon_takes_back_whatever_a_drain_has_left(web):
    kubeconfig = f"--kubeconfig={grant(web, (*RULES, *CONDITION_RULES))}"
    drained = rebalancer("drain", NODE, *FLAGS, "--exclude-from-load-balancers", kubeconfig)
    assert drained.code == 0, drained.err
    assert (node(web), set(said(web))) == ((True, {EXCLUDE, DRAIN}), {DRAINED})
    done = rebalancer("uncordon", NODE, kubeconfig)
    assert (done.code, done.out) == (0, f"node {NODE} is open\n"), done.err
    assert (node(web), said(web)) == ((False, set()), {})


def test_the_label_for_load_balancers_stays_as_long_as_the_node_is_closed(
    web,
    kubectl,  # noqa: F811
    tmp_path,
):
    kubeconfig = f"--kubeconfig={grant(web, RULES)}"
    done = rebalancer("drain", NODE, "--exclude-from-load-balancers", "--timeout=300s", kubeconfig)
    assert done.code == 0, done.err
    assert node(web) == (True, {EXCLUDE, DRAIN})
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(BASE | {"strategies": {"leaving": {}}}))
    run = ("run", "--yes", f"--policy={policy}", "--output=json", kubeconfig)
    ran = rebalancer(*run)
    assert (ran.code, ran.report["moves"]) == (0, []), ran.err
    assert node(web) == (True, {EXCLUDE, DRAIN})
    kubectl("uncordon", NODE)
    ran = rebalancer(*run)
    assert (ran.code, ran.report["moves"]) == (0, []), ran.err
    assert node(web) == (False, set())


@pytest.mark.parametrize("before", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_label_that_was_there_before_stays_when_a_drain_gives_the_node_back(
    held,  # noqa: F811
    kubectl,  # noqa: F811
    before,
):
    if before:
        kubectl("label", "node", NODE, f"{EXCLUDE}=true")
    flags = ("--exclude-from-load-balancers", "--uncordon-on-failure", "--timeout=300s")
    with under_way(held, "drain", NODE, *flags):
        wait_until(lambda: node(held) == (True, {EXCLUDE, DRAIN}), 60, "cordon, label and record")
    assert node(held) == (False, {EXCLUDE} if before else set())


@pytest.fixture
def announcing(monkeypatch):
    """Policies that are written from here on ask for conditions."""
    monkeypatch.setitem(BASE, "nodeConditions", True)


def test_an_interruption_says_what_was_announced_and_takes_it_back_when_the_machine_stays(
    announcing,
    held,  # noqa: F811
    kubectl,  # noqa: F811
    serve,  # noqa: F811
):
    announce(kubectl)
    await_said(held, true("RebalancerInterruption", PLANNED, DRAINING))
    assert "spot, announced by kubernetes, goes at" in conditions(held)[PLANNED]["message"]
    withdraw(held, kubectl)
    await_said(held, {})
