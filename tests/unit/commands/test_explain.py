"""``explain``, as it is called, on a snapshot file."""

import json

import pytest

from rebalancer.testing.snapshots import apart, node, workload
from tests.unit.commands.called import called


@pytest.fixture
def cluster(tmp_path):
    """A snapshot file of a small cluster with one full node: one of web's two pods has to go to n-b."""
    nodes = [node("n-a", "a"), node("n-b", "b"), node("full", "c", cpu="50m")]
    objects = [*nodes, *workload("web", ["n-a", "n-a"], spec=apart("web", weight=100))]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return f"--snapshot={path}"


@pytest.fixture
def explain(cluster):
    """Run ``explain pod`` on the cluster."""
    return lambda *args: called("explain", "pod", *args, cluster)


def test_it_names_filters_scores_and_landings(explain):
    out = explain("default/web-0").stdout
    assert "refused by NodeResourcesFit" in out
    assert "InterPodAffinity 200" in out
    assert "  100%  n-b (b)" in out


def test_a_node_alone_says_why_not(explain):
    out = explain("web-0", "--node=full").stdout
    assert "Insufficient cpu" in out
    assert "n-b" not in out


def test_json_has_the_documented_fields(explain):
    report = json.loads(explain("default/web-0", "-o", "json").stdout)
    by_name = {one["name"]: one for one in report["nodes"]}
    assert by_name["full"]["filteredBy"]["plugin"] == "NodeResourcesFit"
    assert not by_name["full"]["feasible"]
    best = by_name["n-b"]
    assert best["filteredBy"] is None
    assert best["total"] == sum(best["scores"].values())
    (landing,) = report["landings"]
    assert (landing["node"], landing["probability"]) == ("n-b", 1.0)
    assert "b" in landing["domains"].values()


def test_what_cannot_be_known_of_the_replacement_is_named(tmp_path):
    objects = [node("n-a", "a"), *workload("web", ["n-a"])]
    pod = objects[-1]
    sidecar = {"name": "proxy", "image": "proxy", "resources": {"requests": {"cpu": "10m"}}}
    pod["spec"]["containers"] = [*pod["spec"]["containers"], sidecar]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    done = called("explain", "pod", "web-0", f"--snapshot={path}")
    assert "Assumed: container proxy is injected again" in done.stdout
    (asked,) = json.loads(json.dumps(pod["spec"]["containers"][:1]))
    asked["resources"]["requests"]["ephemeral-storage"] = "1Gi"
    pod["spec"]["containers"] = [asked]
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    said = " ".join(called("explain", "pod", "web-0", f"--snapshot={path}").stdout.split())
    assert "requests ephemeral-storage for container" in said
    assert "and its template does not: a LimitRange or a webhook is taken to add that again" in said


@pytest.mark.parametrize(
    ("args", "says"), [(["default/nope"], "no such pod"), (["web-0", "--node=x"], "no such node")]
)
def test_what_is_not_there_is_said_to_be_so(explain, args, says):
    done = explain(*args)
    assert done.returncode == 2
    assert says in done.stderr


def test_the_plan_for_the_pod_is_reported_and_the_json_says_what_it_is(explain):
    assert "the plan moves it to n-b (b) in wave 1" in explain("web-0").stdout
    report = json.loads(explain("web-0", "-o", "json").stdout)
    assert (report["apiVersion"], report["kind"]) == ("rebalancer/v1", "PodExplanation")
    assert report["plan"]["verdict"] == "moves"
    assert report["plan"]["move"]["landings"] == [
        {"node": "n-b", "probability": 1, "domains": {"topology.kubernetes.io/zone": "b"}}
    ]
    assert [rule["strategy"] for rule in report["breaks"]] == ["anti-affinity", "duplicates"]


@pytest.mark.parametrize(
    ("what", "name", "kind"),
    [("node", "n-a", "NodeExplanation"), ("workload", "default/web", "WorkloadExplanation")],
)
def test_nodes_and_workloads_report_the_plan_that_a_run_makes(cluster, what, name, kind):
    report = json.loads(called("run", cluster, "-o", "json").stdout)
    done = called("explain", what, name, cluster, "-o", "json")
    assert done.returncode == 0, done.stderr
    explanation = json.loads(done.stdout)
    assert (explanation["apiVersion"], explanation["kind"]) == ("rebalancer/v1", kind)
    assert [explanation[key] for key in ("source", "capturedAt", "policyHash")] == [
        report[key] for key in ("source", "capturedAt", "policyHash")
    ]
    assert explanation["warnings"] == report["warnings"]
    moves = [pod["plan"]["move"] for pod in explanation["pods"] if pod["plan"]["move"]]
    assert moves == report["moves"]
    table = called("explain", what, name, cluster)
    assert table.returncode == 0, table.stderr
    assert "the plan moves it to n-b (b) in wave 1" in table.stdout


def test_the_policy_of_the_run_is_the_policy_of_the_explanation(cluster, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {taints: {}}\n")
    done = called("explain", "node", "n-a", cluster, f"--policy={policy}", "-o", "json")
    report = json.loads(done.stdout)
    assert {pod["plan"]["verdict"] for pod in report["pods"]} == {"fine"}
    assert report["policySource"] == str(policy)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["node", "n-c"], "node n-c: there is no such node; did you mean n-"),
        (["workload", "default/wep"], "did you mean Deployment/default/web?"),
        (["node", "n-a", "--memory=a/b"], "leave it out with a snapshot file"),
    ],
)
def test_what_cannot_be_explained_is_a_usage_error(cluster, args, says):
    done = called("explain", *args, cluster)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


_MACHINES = "docs/examples/capacity.zip"


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ("default/train-6wnbj4njvd-87jd4", "GroupGrows: a new node of batch"),
        ("default/model-np95bghg5x-bkf4n", "NoGroupFits: no group helps"),
    ],
)
def test_of_a_pod_that_waits_it_is_said_what_new_machines_would_do(pod, says):
    assert says in called("explain", "pod", pod, f"--snapshot={_MACHINES}").stdout


def test_on_a_file_no_provider_is_asked(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {taints: {}}\n"
        "provider: {aws: {names: [gone], endpoint: 'http://127.0.0.1:1'}}\n"
    )
    pod = "default/train-6wnbj4njvd-87jd4"
    done = called(
        "explain", "pod", pod, f"--snapshot={_MACHINES}", f"--policy={policy}", "-o", "json"
    )
    assert json.loads(done.stdout)["machines"]["group"] == "batch"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["pod/web-0"], "PodExplanation"),
        (["po", "web-0", "-n", "default"], "PodExplanation"),
        (["-n", "default", "pods/web-0"], "PodExplanation"),
        (["web-0"], "PodExplanation"),
        (["default/web-0"], "PodExplanation"),
        (["deployment.apps/web"], "WorkloadExplanation"),
        (["deploy", "web"], "WorkloadExplanation"),
        (["workload", "Deployment/web", "-n", "default"], "WorkloadExplanation"),
        (["web"], "WorkloadExplanation"),
        (["node/n-a"], "NodeExplanation"),
        (["no", "n-a"], "NodeExplanation"),
        (["n-a"], "NodeExplanation"),
    ],
)
def test_objects_are_named_as_kubectl_names_them(cluster, words, kind):
    done = called("explain", *words, cluster, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == kind


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["pod", "web-0"], "PodExplanation"),
        (["deploy/web"], "WorkloadExplanation"),
        (["n-a"], "NodeExplanation"),
    ],
)
@pytest.mark.parametrize(
    "before",
    [
        ["-o", "json"],
        ["--set", "protect.minPodAge=0s", "--output=json", "-q"],
        ["-ojson"],
    ],
    ids=" ".join,
)
def test_flags_are_taken_before_the_object_as_kubectl_takes_them(cluster, before, words, kind):
    file = cluster.partition("=")[2]
    done = called("explain", *before, "--snapshot", file, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == kind


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--snapshto", "pod", "web-0"], "no such option '--snapshto'"),
        (["--snapshot", "cluster.zip"], "name what to explain: pod, node, workload or code"),
        (["-n"], "name what to explain: pod, node, workload or code"),
    ],
)
def test_what_is_wrong_before_the_object_is_named(words, says):
    done = called("explain", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.parametrize("flags", [[], ["-o", "json"], ["--output=yaml"]])
def test_a_code_by_itself_needs_no_cluster(flags, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    by_name = called("explain", "NoRoom", *flags)
    assert by_name.returncode == 0
    assert by_name == called("explain", "code", "NoRoom", *flags)
    assert "did you mean NoRoom?" in called("explain", "NoRom", *flags).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["10.0.0.7"], "10.0.0.7: there is no pod, node or workload of this name"),
        (["wep"], "there is no pod, node or workload of this name; did you mean Deployment/"),
        (["pdo", "web-0"], "did you mean pod?"),
        (["deploy/shop/web", "-n", "default"], "has a namespace already"),
    ],
)
def test_a_name_of_nothing_is_a_usage_error(cluster, words, says):
    done = called("explain", *words, cluster)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
