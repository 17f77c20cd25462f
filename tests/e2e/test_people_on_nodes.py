"""People with the real kubectl and the product on one node: the one who cordoned it last owns the cordon, and no other opens it."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import pytest
import yaml

from tests.aws.cloud import REGION
from tests.aws.fleet import ENABLED
from tests.controlplane import objects, operations, wait_until
from tests.controlplane.build import binary
from tests.controlplane.stages import COMPLETE_AFTER
from tests.e2e.instance_metadata import NOTHING, instance_metadata
from tests.e2e.machines import fleet_of
from tests.e2e.product import Product
from tests.e2e.served import PATIENT, Server, runs
from tests.e2e.test_marks import DNS, Steered, coredns, full, marks, put

DRAIN, LEAVE = "rebalancer/drain", "rebalancer/leave"
NOTICE, INTERRUPTION, SCALE_IN = (
    "rebalancer/notice",
    "rebalancer/interruption",
    "rebalancer/scale-in",
)
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
KEEP = "cluster-autoscaler.kubernetes.io/scale-down-disabled=true"
NODE = "n-0"
WEB = {"app": "web"}
BASE = {"apiVersion": "rebalancer/v1", "kind": "Policy", "protect": {"minPodAge": "0s"}}


@pytest.fixture
def kubectl(cluster):
    """Call kubectl as an administrator; what it may not refuse has to succeed."""

    def call(*args, fails=False):
        done = subprocess.run(
            [str(binary("kubectl")), f"--kubeconfig={cluster.kubeconfig}", *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stderr
        return done

    return call


@pytest.fixture
def held(cluster):
    """A node with batch work that no budget lets go and that does not end, and another node."""
    cluster.apply([objects.node(NODE, labels={"generation": "old"})])
    operations.wait_nodes_ready(cluster.api, 1)
    job = {"parallelism": 1, "completions": 1, "backoffLimit": 0}
    cluster.apply([objects.job("sums", job_spec=job, pod_annotations={COMPLETE_AFTER: "3600s"})])
    cluster.apply([objects.pdb("sums", {"job": "sums"}, minAvailable=65535)])
    operations.wait_pods_ready(cluster.api, 1)
    cluster.apply([objects.node("n-1", labels={"generation": "new"})])
    operations.wait_nodes_ready(cluster.api, 2)
    return cluster


def end_work(cluster):
    """Nothing holds the node any more."""
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Foreground"}
    cluster.api.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/sums")
    cluster.api.delete("/apis/batch/v1/namespaces/default/jobs/sums", now)


def node(cluster, name=NODE):
    """Return whether a node is cordoned, and what of ours stands on it."""
    now = cluster.api.get(f"/api/v1/nodes/{name}")
    ours = {key for key in now["metadata"].get("annotations", {}) if key.startswith("rebalancer/")}
    ours |= {key for key in now["metadata"]["labels"] if key == EXCLUDE}
    ours |= {one["key"] for one in now["spec"].get("taints", ()) if "rebalancer" in one["key"]}
    return bool(now["spec"].get("unschedulable")), ours


def is_closed_by(cluster, key, name=NODE):
    closed, ours = node(cluster, name)
    return closed and key in ours


@contextlib.contextmanager
def under_way(cluster, *args):
    """Let a command of the product work meanwhile; it ends by a signal as by Ctrl-C."""
    command = [sys.executable, "-m", "rebalancer", *args, f"--kubeconfig={cluster.kubeconfig}"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)


BEFORE = [
    ("cordon", NODE),
    pytest.param(("drain", NODE, "--timeout=2s", "--force"), marks=pytest.mark.long),
]


@pytest.mark.parametrize("theirs", BEFORE, ids=lambda args: args[0])
def test_what_people_closed_before_a_drain_stays_closed_when_the_drain_gives_up(
    held, kubectl, theirs
):
    kubectl(*theirs, fails=theirs[0] == "drain")
    with under_way(held, "drain", NODE, "--timeout=600s", "--uncordon-on-failure"):
        wait_until(lambda: is_closed_by(held, DRAIN), 60, "the drain's record")
    assert node(held) == (True, set())


DURING = {
    # kubectl drain of a node that is closed already leaves no trace: the drain opens what it has closed.
    "drain": (("drain", NODE, "--timeout=2s", "--force"), (False, set())),
    "uncordon": (("uncordon", NODE), (False, set())),
    "annotate": (("annotate", "--overwrite", "node", NODE, f"{LEAVE}=now"), (True, {LEAVE})),
}
MET = [
    pytest.param("drain", marks=pytest.mark.long),
    "uncordon",
    pytest.param("annotate", marks=pytest.mark.long),
]
"""People open a node as often as all else together: that is shown each time."""


@pytest.mark.parametrize("what", MET)
def test_what_people_do_to_a_node_that_is_drained_holds_when_the_drain_gives_up(
    held, kubectl, what
):
    theirs, left = DURING[what]
    with under_way(held, "drain", NODE, "--timeout=600s", "--uncordon-on-failure"):
        wait_until(lambda: is_closed_by(held, DRAIN), 60, "the drain's record")
        kubectl(*theirs, fails=what == "drain")
    closed, ours = node(held)
    # Where it stays closed for people, the drain still says that the cordon was its own.
    assert (closed, ours - ({DRAIN} if closed else set())) == left


def test_kubectl_drain_and_ours_empty_a_node_together_and_it_stays_closed(held, kubectl):
    with under_way(held, "drain", NODE, "--timeout=600s", "--uncordon-on-failure") as ours:
        wait_until(lambda: is_closed_by(held, DRAIN), 60, "the drain's record")
        end_work(held)
        kubectl("drain", NODE, "--timeout=300s")
        wait_until(lambda: ours.poll() is not None, 60, "the drain's end")
    assert ours.returncode == 0
    closed, _ = node(held)
    assert closed
    assert not [p for p in operations.pods(held.api) if p["spec"].get("nodeName") == NODE]


REPLACES = (
    "--selector=generation=old",
    "--pause=0s",
    "--timeout=600s",
    "--then=sh -c 'sleep 10' sh",
)
"""A machine is being removed for longer than a test takes."""


@pytest.mark.parametrize("theirs", ["cordon", pytest.param("drain", marks=pytest.mark.long)])
def test_a_node_that_people_closed_is_replaced_and_never_opened(held, kubectl, theirs):
    end_work(held)
    kubectl(theirs, NODE)
    with under_way(held, "replace", *REPLACES):
        wait_until(lambda: is_closed_by(held, DRAIN), 60, "the replacement's record")
    assert node(held)[0]


def test_a_node_that_people_open_is_not_closed_again_by_the_replacement_that_had_closed_it(
    held, kubectl
):
    end_work(held)
    with under_way(held, "replace", *REPLACES) as ours:
        wait_until(lambda: is_closed_by(held, DRAIN), 60, "the replacement's record")
        kubectl("uncordon", NODE)
        # What it does about it, it has done by then: it looks at its nodes several times a second.
        with contextlib.suppress(subprocess.TimeoutExpired):
            ours.wait(5.0)
        closed, _ = node(held)
        assert not closed
    closed, _ = node(held)
    assert not closed


@pytest.fixture
def serve(held, tmp_path):
    """Serve with the notices of nodes as its source."""
    policy = BASE | {"strategies": {"leaving": {}}, "signals": {"kubernetes": {}}}
    product = Product(held, tmp_path, yaml.safe_dump(policy))
    product.kubeconfig = held.kubeconfig
    server = Server(product, tmp_path, "serve", "--every=1h", "--output=json")
    try:
        server.await_words("nothing to do")
        yield server
    finally:
        server.end()


def announce(kubectl):
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3000))
    said = json.dumps({"id": "spot-1", "kind": "spot", "deadline": at})
    kubectl("annotate", "node", NODE, f"{NOTICE}={said}")


def withdraw(cluster, kubectl):
    kubectl("annotate", "node", NODE, f"{NOTICE}-")
    wait_until(lambda: INTERRUPTION not in node(cluster)[1], PATIENT, "it was undone")


def test_what_people_closed_before_an_interruption_stays_closed_when_the_machine_stays(
    held, kubectl, serve
):
    kubectl("cordon", NODE)
    announce(kubectl)
    wait_until(lambda: EXCLUDE in node(held)[1], PATIENT, "the step exclude")
    withdraw(held, kubectl)
    assert node(held) == (True, set())


@pytest.mark.parametrize("what", [pytest.param(None, marks=pytest.mark.long), *MET])
def test_what_people_do_to_a_node_that_is_interrupted_holds_when_the_machine_stays(
    held, kubectl, serve, what
):
    announce(kubectl)
    wait_until(lambda: EXCLUDE in node(held)[1], PATIENT, "the step exclude")
    assert node(held)[0]
    theirs, left = DURING[what] if what else ((), (False, set()))
    if theirs:
        kubectl(*theirs, fails=what == "drain")
    withdraw(held, kubectl)
    assert node(held) == left


@pytest.fixture
def scaled(cluster, tmp_path, monkeypatch):
    """Three machines, one of which is enough; return what waits for a run of `serve` and says what it did, and the machines."""
    with fleet_of(cluster, monkeypatch) as fleet:
        fleet.add("pool", 3, low=1, high=6)
        cluster.apply([objects.deployment("web", 2, labels=WEB, cpu="500m")])
        operations.wait_pods_ready(cluster.api, 2)
        aws = {"tags": [ENABLED], "region": REGION, "endpoint": fleet.cloud.url}
        times = {"unneededFor": "5s", "coolDownAfterGrowth": "0s"}
        policy = BASE | {"provider": {"aws": aws}, "strategies": {"scale-in": times}}
        path = tmp_path / "policy.yaml"
        path.write_text(yaml.safe_dump(policy))

        flags = (f"--policy={path}", f"--kubeconfig={cluster.kubeconfig}")
        with runs(*flags, stops=True) as served:

            def run():
                return {(node, code) for code, node, _ in served.acts()}

            yield run, sorted(fleet.machines("pool"))


def closed_by_scale_in(cluster, run, names):
    """Run until scale-in has closed a node; return its name."""

    def first():
        run()
        return next((name for name in names if is_closed_by(cluster, EXCLUDE, name)), None)

    return wait_until(first, 60, "scale-in closes a node")


def test_a_node_that_people_open_is_no_longer_removed_and_nothing_of_ours_is_left_on_it(
    cluster, kubectl, scaled
):
    run, names = scaled
    name = closed_by_scale_in(cluster, run, names)
    kubectl("uncordon", name)
    assert (name, "Cancelled") in run()
    closed, ours = node(cluster, name)
    assert not closed
    assert ours <= {SCALE_IN}


@pytest.mark.long
def test_what_people_closed_before_scale_in_stays_closed_when_it_gives_the_node_up(
    cluster, kubectl, scaled
):
    run, names = scaled
    used = {pod["spec"].get("nodeName") for pod in operations.pods(cluster.api)}
    name = next(one for one in names if one not in used)
    kubectl("cordon", name)
    assert closed_by_scale_in(cluster, run, [name]) == name
    kubectl("annotate", "node", name, KEEP)
    assert (name, "Cancelled") in run()
    closed, ours = node(cluster, name)
    assert closed
    assert ours <= {SCALE_IN}


@pytest.mark.long
def test_kubectl_drain_of_a_node_that_scale_in_closed_leaves_no_trace(cluster, kubectl, scaled):
    run, names = scaled
    name = closed_by_scale_in(cluster, run, names)
    kubectl("drain", name, "--force", "--timeout=60s")
    kubectl("annotate", "node", name, KEEP)
    assert (name, "Cancelled") in run()
    closed, ours = node(cluster, name)
    assert not closed
    assert ours <= {SCALE_IN}


def test_a_node_that_people_want_empty_stays_closed_until_they_do_not(cluster, kubectl, scaled):
    run, names = scaled
    name = closed_by_scale_in(cluster, run, names)
    kubectl("annotate", "node", name, f"{LEAVE}=now")
    run()
    # Its machine is not ended while they want something of it.
    assert is_closed_by(cluster, SCALE_IN, name)
    kubectl("annotate", "node", name, f"{LEAVE}-", KEEP)
    assert (name, "Cancelled") in run()
    closed, ours = node(cluster, name)
    assert not closed
    assert ours <= {SCALE_IN}


THEIRS = '{"id": "rack-7", "kind": "maintenance"}'


@pytest.fixture
def announced(held, tmp_path):
    """The agent of a node, and the instance metadata that it reads."""
    with instance_metadata(tmp_path) as metadata:
        args = ("node-agent", f"--node={NODE}", "--every=1s", f"--imds={metadata.url}")
        with under_way(held, *args):
            yield metadata


def test_what_people_do_to_a_node_that_its_agent_announces_holds_when_the_machine_stays(
    held, kubectl, announced
):
    kubectl("label", "node", NODE, "team=x")
    announced.say("spot", "--action=terminate", "--time=2036-11-20T10:00:00Z")
    wait_until(lambda: NOTICE in node(held)[1], PATIENT, "the notice")
    # The agent closes nothing by itself.
    assert node(held) == (False, {NOTICE})
    kubectl("drain", NODE, "--timeout=2s", "--force", fails=True)
    kubectl("label", "--overwrite", "node", NODE, "team=y")
    announced.say(*NOTHING)
    wait_until(lambda: NOTICE not in node(held)[1], PATIENT, "the notice taken away")
    assert node(held) == (True, set())
    assert held.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["labels"]["team"] == "y"


def test_a_notice_of_people_outlives_an_agent_with_nothing_to_announce_any_more(
    held, kubectl, announced
):
    announced.say("spot", "--action=terminate", "--time=2036-11-20T10:00:00Z")
    wait_until(lambda: NOTICE in node(held)[1], PATIENT, "the notice")
    kubectl("annotate", "--overwrite", "node", NODE, f"{NOTICE}={THEIRS}")
    announced.say(*NOTHING)
    # The agent looks each second.
    time.sleep(5.0)
    now = held.api.get(f"/api/v1/nodes/{NODE}")
    assert now["metadata"]["annotations"][NOTICE] == THEIRS


MARKED: dict[str, list[tuple[str, ...]]] = {
    "cordon": [("cordon",), ("taint", "team=x:NoSchedule"), ("label", "team=x")],
    "drain": [("drain", "--force", "--timeout=60s"), ("taint", "team=x:NoSchedule")],
    "unmark": [("taint", "rebalancer/mark-")],
}


@pytest.mark.parametrize(
    "what",
    ["cordon", *(pytest.param(what, marks=pytest.mark.long) for what in ("drain", "unmark"))],
)
def test_what_people_do_to_a_node_while_a_run_marks_it_holds_and_no_mark_is_left(
    cluster, kubectl, tmp_path, what
):
    cluster.apply([objects.node(f"a{i}", zone="a") for i in range(3)])
    cluster.apply([objects.node(f"b{i}", zone="b") for i in range(2)])
    operations.wait_nodes_ready(cluster.api, 5)
    put(cluster, coredns, ["a0", "a1"])
    cluster.apply([full(name, "6") for name in ("b0", "b1")])
    operations.wait_pods_ready(cluster.api, 4, 60)
    product = Steered(cluster, tmp_path, DNS)
    command = [sys.executable, "-m", "rebalancer", *product.arguments()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ours:
        wait_until(lambda: "a2" in marks(cluster), 120, "a mark")
        # It cannot take its mark away before people have done what they want.
        ours.send_signal(signal.SIGSTOP)
        assert "a2" in marks(cluster)
        for verb, *more in MARKED[what]:
            named = ("node", "a2") if verb in ("taint", "label") else ("a2",)
            kubectl(verb, *named, *more)
        ours.send_signal(signal.SIGCONT)
        said, _ = ours.communicate(timeout=PATIENT)
    assert ours.returncode == 0, said
    assert marks(cluster) == {}
    now = cluster.api.get("/api/v1/nodes/a2")
    theirs = {taint["key"] for taint in now["spec"].get("taints", ())}
    assert ("team" in theirs) is (what != "unmark")
    assert bool(now["spec"].get("unschedulable")) is (what != "unmark")
    assert now["metadata"]["labels"].get("team") == ("x" if what == "cordon" else None)
