"""`rebalancer advise` on a real control plane: its patches are accepted, and with them nothing is left to move."""

import json
import random
import subprocess
from typing import Any

import yaml

from rebalancer.kube.access import READ_RULES
from tests.controlplane import objects, operations
from tests.controlplane.build import binary
from tests.controlplane.waiting import wait_until
from tests.e2e.product import grant, rebalancer

NODES = [f"n-{zone}{number}" for zone in "abc" for number in (0, 1, 2)]
PODS = {"web": 6, "cart": 3, "payments": 4, "ledger": 3}
SETS = "/apis/apps/v1/namespaces/default"
PATHS = [f"{SETS}/deployments/{name}" for name in ("web", "cart", "payments")]
PATHS += [f"{SETS}/statefulsets/ledger"]
CHANGES = 10


def build(plane):
    """Nine nodes in three zones, and workloads as many are: rules that are preferred or missing, a closed budget."""
    for name in NODES:
        add_node(plane, name)
    operations.wait_nodes_ready(plane.api, len(NODES))
    soft: dict[str, Any] = {
        name: {"topologySpreadConstraints": [objects.spread({"app": name}, hard=False)]}
        for name in PODS
    }
    web = objects.deployment("web", PODS["web"], cpu="500m", **soft["web"])
    web["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    web["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}
    plane.apply(
        [
            web,
            objects.deployment("cart", PODS["cart"], cpu="500m"),
            objects.deployment("payments", PODS["payments"], cpu="250m", **soft["payments"]),
            objects.statefulset("ledger", PODS["ledger"], cpu="500m", **soft["ledger"]),
            objects.service("web", {"app": "web"}),
            objects.pdb("payments", {"app": "payments"}, minAvailable=4),
        ]
    )
    settle(plane)


def add_node(plane, name):
    plane.apply([objects.node(name, zone=name[2], cpu="8", memory="32Gi")])


def settle(plane):
    """Wait until each rollout is over, and all pods are Ready."""

    def rolled_out():
        return all(map(is_rolled_out, map(plane.api.get, PATHS)))

    wait_until(rolled_out, 120, "all rollouts are over")
    operations.wait_pods_ready(plane.api, sum(PODS.values()), 60)


def is_rolled_out(workload):
    status, asked = workload["status"], workload["spec"]["replicas"]
    numbers = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")]
    return (
        status.get("observedGeneration") == workload["metadata"]["generation"]
        and numbers == [asked] * 3
    )


def changes_until_a_move(plane, seed, most=CHANGES):
    """Roll all out, and lose a node, in turn; return after how many changes a plan has moves, and these moves."""
    rng = random.Random(seed)
    for change in range(most):
        if change % 2:
            name = rng.choice(NODES)
            operations.remove_node(plane.api, name)
            settle(plane)
            add_node(plane, name)
            operations.wait_nodes_ready(plane.api, len(NODES))
        else:
            at = {"metadata": {"annotations": {"rolled-out": f"{seed}-{change}"}}}
            for path in PATHS:
                plane.api.patch(path, {"spec": {"template": at}})
            settle(plane)
        if moves := plan(plane)["moves"]:
            return change + 1, [(move["pod"], move["reason"]) for move in moves]
    return most, []


def plan(plane):
    # Young pods, and the singles that a cool-down keeps, count too: what is asked is whether there is a need.
    return rebalancer(
        "plan", "--kubeconfig", str(plane.kubeconfig), "-o", "json", "--lift-budgets",
        "--set", "protect.minPodAge=0s",
    ).report  # fmt: skip


def advise(kubeconfig, *more):
    ran = rebalancer("advise", "--kubeconfig", str(kubeconfig), "-o", "json", *more)
    assert ran.code in (0, 11), ran.err
    return ran, {
        one["name"]: {each["topic"] for each in one["advice"]}
        for one in json.loads(ran.out)["workloads"]
    }


def kubectl(plane, *words):
    done = subprocess.run(
        [str(binary("kubectl")), f"--kubeconfig={plane.kubeconfig}", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def apply_folder(plane, folder, *flags):
    """Apply a folder with kubectl, file by file; return the number of files."""
    files = sorted(folder.glob("*-*-*.yaml"))
    for file in files:
        of = yaml.safe_load(file.read_text())
        if file.name.startswith("new-"):
            kubectl(plane, "create", f"--filename={file}", *flags)
        else:
            kubectl(
                plane, "patch", of["kind"], of["metadata"]["name"],
                f"--namespace={of['metadata']['namespace']}", "--type=strategic",
                f"--patch-file={file}", *flags,
            )  # fmt: skip
    return len(files)


def assert_the_same_by_kustomize(plane, folder):
    """Kustomize makes of the folder and the workloads the rules that the server makes of the patches."""
    base, overlay = folder.parent / "base", folder.parent / "overlay"
    budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/payments"
    resources = {f"{number}.json": path for number, path in enumerate([*PATHS, budget])}
    components = {"resources": ["../base"], "components": [f"../{folder.name}"]}
    for where, of in ((base, {"resources": [*resources]}), (overlay, components)):
        where.mkdir()
        (where / "kustomization.yaml").write_text(json.dumps(of))
    for name, path in resources.items():
        (base / name).write_text(json.dumps(plane.api.get(path)))
    built = [*yaml.safe_load_all(kubectl(plane, "kustomize", str(overlay)))]
    for file in folder.glob("patch-*.yaml"):
        patch = yaml.safe_load(file.read_text())
        name = patch["metadata"]["name"]
        words = (patch["kind"], name, "--type=strategic", f"--patch-file={file}", "--output=json")
        server = json.loads(kubectl(plane, "patch", *words, "--dry-run=server"))
        (ours,) = (
            one for one in built if (one["kind"], one["metadata"]["name"]) == (patch["kind"], name)
        )
        assert rules_of(ours) == rules_of(server)


def rules_of(one):
    """Return what spreads a workload's pods, or the numbers of a budget."""
    if one["kind"] == "PodDisruptionBudget":
        return {key: one["spec"].get(key) for key in ("minAvailable", "maxUnavailable")}
    rules = one["spec"]["template"]["spec"]["topologySpreadConstraints"]
    return sorted(rules, key=lambda rule: rule["topologyKey"])


def test_with_its_patches_rollouts_and_lost_nodes_leave_nothing_to_move(cluster, tmp_path):
    build(cluster)
    folder = tmp_path / "advice"
    ran, topics = advise(grant(cluster, READ_RULES), "--out", str(folder), "--fail-on-advice")
    assert ran.code == 11
    assert {"noBudget", "readinessProbe", "preStop", "surge"} <= topics["web"]
    assert {"spread", "noBudget"} <= topics["cart"]
    assert "closedBudget" in topics["payments"]
    # The server takes each patch and each new object.
    assert apply_folder(cluster, folder, "--dry-run=server") >= 6
    assert_the_same_by_kustomize(cluster, folder)
    # The scheduler draws where pods land: some changes leave every rule as it is.
    changes, moves = changes_until_a_move(cluster, 1, 3 * CHANGES)
    assert moves, f"no move after {changes} changes without the patches"
    # By now rules that are only preferred do not hold, and are made required, too.
    later = tmp_path / "later"
    advise(cluster.kubeconfig, "--out", str(later))
    apply_folder(cluster, later)
    settle(cluster)
    assert advise(cluster.kubeconfig)[1] == {}
    assert changes_until_a_move(cluster, 2) == (CHANGES, [])
    assert advise(cluster.kubeconfig)[1] == {}
