"""What cannot be judged is called so, by name, and never fine."""

import json
from types import SimpleNamespace

import pytest

from rebalancer.cli import command
from rebalancer.testing.snapshots import node, spread, workload

NODES = [node(f"n-{zone}", zone) for zone in "abc"]
FINE = workload("web", ["n-a", "n-b", "n-c"], spec=spread("web", hard=True))


@pytest.fixture
def run(capsys):
    def ended(*args):
        code = command(args)
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return ended


@pytest.fixture
def file_of(tmp_path):
    def written(objects):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
        return f"--snapshot={path}"

    return written


@pytest.fixture
def report_on(run):
    def made(snapshot, *args):
        done = run("run", snapshot, "-o", "json", *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return made


@pytest.mark.parametrize(
    ("objects", "says"),
    [([], "has no nodes and no pods"), (FINE, "has no nodes"), (NODES, "has no pods")],
    ids=["empty", "pods only", "nodes only"],
)
@pytest.mark.parametrize("command", [("run",), ("simulate",), ("explain", "node", "n-a")])
def test_a_file_without_nodes_or_pods_is_refused(run, file_of, objects, says, command):
    done = run(*command, file_of(objects))
    assert done.returncode == 2
    assert says in done.stderr
    assert "kubectl get" in done.stderr


def test_pods_on_nodes_that_are_not_in_the_file_are_not_judged(report_on, file_of):
    report = report_on(file_of([*NODES, *workload("web", ["x", "x", "y"])]))
    what = "3 of 3 pods are on nodes that do not exist"
    assert report["stopped"] == f"Nothing could be judged: {what}."
    assert {tuple(score["notJudged"]) for score in report["after"].values()} == {(what,)}
    assert f"{what} (they count nowhere, and stay)" in report["warnings"]


def test_some_pods_on_unknown_nodes_are_warned_of_and_the_rest_is_judged(report_on, file_of):
    report = report_on(file_of([*NODES, *FINE, *workload("lost", ["x"])]))
    lost = "1 of 4 pods are on nodes that do not exist"
    assert report["stopped"] == (
        f"Nothing to do: no rule that was judged is unmet, but {lost}, and count nowhere."
    )
    assert "1 of 4 pods are on nodes" in " ".join(report["warnings"])


@pytest.mark.parametrize("cpu", ["NaN", "many", "1"])
def test_usage_that_cannot_be_read_is_not_judged(report_on, file_of, tmp_path, cpu):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\n"
        "strategies: {duplicates: {}, low-utilisation: {signal: usage, runs: 1}}\n"
    )
    metrics = [
        {
            "kind": "NodeMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": each["metadata"]["name"]},
            "timestamp": "2027-01-15T08:00:00Z",
            "window": "15s",
            "usage": {"cpu": cpu, "memory": "1Gi"},
        }
        for each in NODES
    ]
    report = report_on(file_of([*NODES, *FINE, *metrics]), f"--policy={policy}")
    if cpu == "1":
        assert report["stopped"] == "Nothing to do: every rule holds."
        return
    assert report["stopped"] == (
        "Every rule that could be judged holds. Not judged: low-utilisation"
        " (the usage of no node is known)."
    )
    assert report["after"]["duplicates"]["notJudged"] == []


def test_a_pod_that_stands_twice_in_a_file_is_refused_by_name(run, file_of):
    pods = [one for one in FINE if one["kind"] == "Pod"]
    done = run("run", file_of([*NODES, *FINE, *pods[:2]]))
    assert done.returncode == 2
    assert "Pod default/web-0 and 1 more: stands in the file more than once" in done.stderr


def test_a_spread_that_cannot_hold_does_not_hold(report_on, file_of):
    spec = spread("web", "example.com/rack", hard=True)
    report = report_on(file_of([*NODES, *workload("web", ["n-a", "n-b", "n-c"], spec=spec)]))
    (text,) = report["after"]["topology-spread"]["unsatisfiable"]
    assert text.endswith("no node that its pods may use has this label")
    assert "every rule that can hold holds" in report["stopped"]


def test_with_fewer_zones_than_min_domains_one_pod_in_each_is_no_skew(report_on, file_of):
    """The scheduler takes the global minimum as 0 then: 1 in a zone is a skew of 1."""
    spec = spread("web", hard=True, minDomains=5)
    report = report_on(file_of([*NODES, *workload("web", ["n-a", "n-b", "n-c"], spec=spec)]))
    assert report["stopped"] == "Nothing to do: every rule holds."


def test_a_scheduler_outside_the_known_versions_is_warned_of(report_on, file_of):
    old = [
        {**each, "status": {**each["status"], "nodeInfo": {"kubeletVersion": "v1.29.4"}}}
        for each in NODES
    ]
    warnings = " ".join(report_on(file_of([*old, *FINE]))["warnings"])
    assert "Kubernetes 1.29 is outside the scheduler versions" in warnings
    assert "predicted as 1.34" in warnings


def test_domains_that_hold_pods_are_not_said_to_take_none(report_on, file_of):
    nodes = [node("n-a", "a"), node("n-b", "b", unschedulable=True)]
    web = workload("web", [*["n-a"] * 4, *["n-b"] * 2], spec=spread("web", hard=True))
    report = report_on(file_of([*nodes, *web]))
    (text,) = report["after"]["topology-spread"]["unsatisfiable"]
    assert text.endswith("a 4, b 2, maxSkew 1: no node of b takes another of its pods")


@pytest.mark.parametrize("flag", ["--lease=a/b", "--memory=a/b", "--kubeconfig=x", "--context=x"])
def test_flags_of_a_cluster_are_refused_with_a_file(run, file_of, flag):
    done = run("run", file_of([*NODES, *FINE]), flag)
    assert done.returncode == 2
    assert f"{flag.partition('=')[0]} is of the cluster" in done.stderr


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_namespace_that_a_file_has_not_is_refused(run, report_on, file_of, command):
    """A file will not have it later, which a cluster may: there it is the first warning."""
    done = run(command, file_of([*NODES, *FINE]), "-n", "defualt")
    assert done.returncode == 2
    assert "-n defualt: there is no such namespace; did you mean default?" in done.stderr
    assert "-n default" not in " ".join(
        report_on(file_of([*NODES, *FINE]), "-n", "default")["warnings"]
    )


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--add-node", "x1:memmory=32Gi"], "there is no key memmory; is memory meant?"),
        (["--add-node", "x1:Zone=a"], "is zone meant?"),
        (
            ["--add-node", "x1:my key=1"],
            "my key=1 is none of zone, like, cpu, memory, pods, and no label",
        ),
    ],
)
def test_edits_that_mean_nothing_are_refused(run, file_of, flags, says):
    done = run("simulate", file_of([*NODES, *FINE]), *flags)
    assert done.returncode == 2
    assert says in done.stderr


def test_labels_of_a_new_node_are_still_labels(run, file_of):
    done = run("simulate", file_of([*NODES, *FINE]), "--add-node=x1:disk=ssd,example.com/memmory=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("default", "says"),
    [
        ("{labels: {app: web}, topologyKey: no key!}", '"no key!" is no label key'),
        ('{labels: {"k8s app": x}, topologyKey: zone}', '"k8s app" is no label key'),
        ("{labels: {app: a b}, topologyKey: zone}", '"a b" is no label value'),
    ],
)
def test_default_constraints_that_no_object_can_match_are_refused(run, tmp_path, default, says):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\n"
        f"strategies: {{topology-spread: {{defaults: [{default}]}}}}\n"
    )
    done = run("policy", "check", f"--policy={policy}")
    assert done.returncode == 2
    assert says in done.stderr
    assert f"{policy}:3" in done.stderr


def test_pods_that_are_only_young_are_said_to_move_later(report_on, run, file_of):
    young = workload("web", ["n-a"] * 3, spec=spread("web", hard=True))
    for each in young:
        if each["kind"] == "Pod":
            each["status"]["conditions"][0]["lastTransitionTime"] = "2027-01-15T07:59:00Z"
    snapshot = file_of([*NODES, *young])
    assert report_on(snapshot)["stopped"].startswith("Nothing can be gained yet: ")
    assert "3 pods are younger than protect.minPodAge 5m" in run("run", snapshot).stdout
