"""``rebalancer simulate`` as people call it."""

import gzip
import io
import json
import re

import pytest
import yaml

from rebalancer.cli import command
from rebalancer.commands.simulate import SimulateOptions, snapshots
from rebalancer.snapshot.load import load_snapshot
from rebalancer.snapshot.store import Capture, SnapshotWriter
from rebalancer.testing.snapshots import ZONE, apart, node, spread, workload
from tests.unit.snapshot.measurements import node_metrics, pod_metrics

OBJECTS = [
    *(node(f"n-{zone}", zone) for zone in "ab"),
    *workload("web", ["n-a", "n-b", "n-a"], spec=apart("web", weight=100)),
]


def archive_of(objects):
    """A snapshot of ours with these objects as JSON."""
    stream = io.BytesIO()
    kinds = sorted({one["kind"] for one in objects})
    text = json.dumps({"kind": "List", "items": objects}).encode()
    captured_at = load_snapshot("-", stdin=io.BytesIO(text)).captured_at
    with SnapshotWriter(stream) as writer:
        lists = [
            writer.write_json(kind, [json.dumps(o).encode() for o in objects if o["kind"] == kind])
            for kind in kinds
        ]
        writer.close(Capture(captured_at, (1, 36), "7", tuple(kinds)), lists)
    return stream.getvalue()


def written(file):
    """Write the article's two zones into a file, in the form that its name says."""
    if file.suffix == ".zip":
        file.write_bytes(archive_of(OBJECTS))
        return file
    data = {"kind": "List", "apiVersion": "v1", "items": OBJECTS}
    text = (yaml.safe_dump if file.suffix == ".yaml" else json.dumps)(data).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "cluster.zip")


def simulated(capsys, *args, code=0):
    assert command(["simulate", *args]) == code
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["plain.json", "packed.json.gz", "cluster.yaml", "cluster.zip"])
def test_a_zone_that_joins_is_one_eviction_in_any_form_of_file(tmp_path, capsys, name):
    args = ["--snapshot", str(written(tmp_path / name)), "--add-node", "n-c:zone=c", "-o", "json"]
    data = json.loads(simulated(capsys, *args))
    assert (data["kind"], data["evictions"], data["movedTwice"]) == ("Simulation", 1, 0)
    assert [cycle["evictions"] for cycle in data["cycles"]] == [1, 0]
    assert data["cycles"][0]["moves"][0]["landed"] == "n-c"
    assert data["silent"]


def test_without_an_edit_there_is_nothing_to_do_and_the_table_says_so(path, capsys):
    text = simulated(capsys, "--snapshot", str(path), "--cycles", "5")
    assert "0 evictions in 1 cycle;" in text
    assert "No more moves, also of a run a day later and without memory: Nothing to do" in text


ROOMY = [
    *(node(f"r{i}", zone) for i, zone in enumerate("ppqq")),
    *workload("till", ["r0", "r1", "r2"], cpu="1", spec=spread("till", ZONE)),
]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (["--lose-zone", "p"], "p is lost: 2 pods land on 2 nodes (q 2), 0 wait; then"),
        (["--remove-node", "node/r0"], "r0 is gone: 1 pod lands on 1 node (q 1), 0 wait; then"),
        (["--cordon", "r3"], "r3 is cordoned: no pod has to be recreated; then the runs make 0"),
    ],
)
def test_the_answer_to_what_if_is_first_where_pods_are_then(tmp_path, capsys, edit, says):
    file = tmp_path / "roomy.json"
    file.write_text(json.dumps({"kind": "List", "items": ROOMY}))
    text = " ".join(simulated(capsys, "--snapshot", str(file), *edit).split())
    assert says in text
    assert text.index(says) < text.index("The fullest node is then r") < text.index("CYCLE")
    data = json.loads(simulated(capsys, "--snapshot", str(file), *edit, "-o", "json"))["whatIf"]
    assert sum(data["nodes"].values()) + data["waiting"] == data["pods"]
    assert says.split(":")[0] in data["changes"][0]
    page = simulated(capsys, "--snapshot", str(file), *edit, "-o", "html")
    assert "The fullest node is then r" in page


def test_the_reason_at_the_end_is_that_of_the_run_a_day_later(tmp_path, capsys):
    """Who has just been placed is young then no more."""
    file = tmp_path / "roomy.json"
    file.write_text(json.dumps({"kind": "List", "items": ROOMY}))
    text = simulated(capsys, "--snapshot", str(file), "--lose-zone", "p", "--cycles", "2")
    assert "a day later" in text
    assert "young" not in text


def test_the_page_shows_before_what_if_and_the_end(path, capsys):
    args = ["--snapshot", str(path), "--add-node", "n-c:zone=c"]
    text = simulated(capsys, *args, "-o", "html")
    assert "<h1>What if n-c:zone=c joins?</h1>" in text
    words = re.sub(r"<[^>]*>|\s+", " ", text[text.index("<body>") :])
    words = " ".join(words.split())
    assert "Now What if At the end Nodes 2 3 3 Pods on nodes 3 3 3" in words
    # web leaves n-a once, for the only zone without a pod of it.
    assert "Workload Now What if At the end Moves" in words
    assert "web 2/1/0 2/1/0 1/1/1 1" in words
    assert "1 eviction in 2 cycles" in words
    assert "default-src 'none'" in text


def test_where_the_only_node_of_a_zone_is_cordoned_nothing_moves_for_balance(path, capsys):
    args = ["--snapshot", str(path), "--add-node", "n-c:zone=c", "--cordon", "n-b"]
    text = simulated(capsys, *args, "-o", "html")
    assert "<h1>What if n-c:zone=c joins, n-b is cordoned?</h1>" in text
    assert "zone b (of 1 node 1 cordoned, with 1 pod) is closed" in text


def test_the_page_says_who_waits_and_escapes_names(path, capsys):
    args = ["--snapshot", str(path), "--lose-zone", "a", "--cordon", "n-b", "-o", "html"]
    text = simulated(capsys, *args)
    assert "Waiting: 2 pods of " in text
    assert 'title="' not in text
    evil = simulated(capsys, "--snapshot", str(path), "--add-node", "n-c:zone=<b>", "-o", "html")
    assert "<b>" not in evil


def test_what_would_be_done_to_machines_is_said_not_to_be_simulated(tmp_path, path, capsys):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: rebalancer/v1\nkind: Policy\nprovider: {aws: {names: [pool]}}\n"
        "strategies: {anti-affinity: {}, scale-in: {mode: observe}, scale-out: {}}\n"
    )
    args = ["--snapshot", str(path), f"--policy={policy}", "-o", "json"]
    warnings = json.loads(simulated(capsys, *args))["warnings"]
    assert [one.partition(":")[0] for one in warnings[:2]] == [
        "scale-out is not simulated",
        "scale-in is not simulated",
    ]


def test_edits_go_together(path, capsys):
    args = ["--snapshot", str(path), "-o", "json", "--add-node=n-c:zone=c", "--remove-node=n-b"]
    data = json.loads(simulated(capsys, *args))
    assert data["pods"] == 3
    assert data["cycles"][-1]["pending"] == 0
    assert data["end"]["anti-affinity"]["soft"] == 0


def test_a_lost_zone_says_who_waits_and_why(tmp_path, capsys):
    file = tmp_path / "zones.json"
    nodes = [node(f"n-{zone}", zone) for zone in "abc"]
    strict = workload("db", ["n-a", "n-b", "n-c"], kind="StatefulSet", spec=apart("db"))
    free = workload("web", ["n-a", "n-b", "n-c"])
    file.write_text(json.dumps({"kind": "List", "items": [*nodes, *strict, *free]}))
    args = ["--snapshot", str(file), "--lose-zone=c", "--cordon=n-b"]
    text = " ".join(simulated(capsys, *args).split())
    assert (
        "Waiting: 1 pod of StatefulSet/default/db: 0/2 nodes are available:"
        " 1 node(s) didn't match pod anti-affinity rules, 1 node(s) were unschedulable" in text
    )
    data = json.loads(simulated(capsys, *args, "-o", "json"))
    assert [(one["owner"], one["pods"]) for one in data["waiting"]] == [
        ("StatefulSet/default/db", 1)
    ]
    assert data["cycles"][-1]["pending"] == 1
    back = json.loads(
        simulated(capsys, *args, "--add-node=n-d:zone=c", "--set=mode=observe", "-o", "json")
    )
    assert back["waiting"] == []


def test_what_stays_unmet_at_the_end_is_named_with_its_reason(path, capsys):
    args = ["--snapshot", str(path)]
    rule = "Deployment/default/web apart over topology.kubernetes.io/zone (preferred, weight 100)"
    kept = [*args, "--set=protect.minPodAge=9999h", "--add-node=n-c:zone=c"]
    text = " ".join(simulated(capsys, *kept).split())
    assert f"Unmet: anti-affinity: 1 rule, Protected: {rule}: young: " in text
    page = simulated(capsys, *kept, "-o", "html")
    assert f"Unmet: anti-affinity: 1 rule, Protected: {rule}" in page
    data = json.loads(simulated(capsys, *kept, "-o", "json"))
    (unmet,) = (one for one in data["unmet"] if one["strategy"] == "anti-affinity")
    assert (unmet["rule"], unmet["codes"]) == (rule, {"Protected": 2})
    # What a further run would fix is not what stays.
    assert json.loads(simulated(capsys, *args, "-o", "json"))["unmet"] == []


def test_what_was_measured_was_measured_before_the_edits(tmp_path):
    file = tmp_path / "measured.json"
    metrics = [node_metrics("n-a", "1"), node_metrics("n-b", "1")]
    of_pods = [pod_metrics(f"web-{number}", ("200m", "1Mi")) for number in range(3)]
    file.write_text(json.dumps({"kind": "List", "items": [*OBJECTS, *metrics, *of_pods]}))
    options = SimulateOptions.of(
        snapshot_path=str(file), add_node=("n-c:zone=c",), remove_node=("n-a",)
    )
    usage = snapshots(options, io.BytesIO())[1].usage
    assert usage is not None
    # A node that joins is empty, and will be measured as such.
    assert usage.known.tolist() == [True, True]
    # The two pods of n-a are gone with it, and not yet on n-b.
    assert usage.nodes[0].tolist() == [1000, 0]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--snapshot=/nowhere.json"], "/nowhere.json"),
        (["--snapshot=/nowhere.json", "--add-node=n9"], "/nowhere.json"),
        (["--remove-node=n9"], "no node of this name"),
        (["--lose-zone=z"], "--lose-zone z: no node is in this zone; known here: a, b"),
        (
            ["--lose-zone=b", "--cordon=n-b"],
            "--cordon n-b: the node is gone by --lose-zone b: leave one of the two out",
        ),
        (["--lose-zone=b", "--remove-node=n-b"], "--remove-node n-b: the node is gone by --lose"),
        (["--remove-node=n-b", "--cordon=n-b"], "the node is gone by --remove-node n-b"),
        (["--cordon=n9"], "--cordon n9: there is no node of this name"),
        (["--policy=/nowhere.yaml"], "/nowhere.yaml"),
        (["--cycles=0"], "cycles"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(path, capsys, args, says):
    given = args if args[0].startswith("--snapshot") else [f"--snapshot={path}", *args]
    assert command(["simulate", *given]) == 2
    assert says in capsys.readouterr().err


def test_a_negative_seed_is_refused(capsys):
    assert command(["simulate", "--snapshot", "x.zip", "--seed=-1"]) == 2
    assert "-1 is not in the range x>=0" in capsys.readouterr().err
