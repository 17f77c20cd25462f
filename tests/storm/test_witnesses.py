"""The witnesses: none of the product's code, and they read what the API server writes."""

import json
import subprocess
import sys

from tests.storm.records import START, History
from tests.storm.witnesses import Audit, Ran, carried_out, hour_count

JUDGES = "tests.storm.witnesses, tests.storm.invariants, tests.storm.proxy"


def test_they_share_no_code_with_the_product():
    look = f"import sys, {JUDGES}; print([m for m in sys.modules if m.startswith(('rebalancer', 'strategies'))])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def event(code, uid="u1", subresource="eviction", verb="create"):
    reference = {"resource": "pods", "name": "web-1", "subresource": subresource}
    options = {"preconditions": {"uid": uid}}
    return json.dumps(
        {
            "verb": verb,
            "user": {"username": "system:serviceaccount:storm-ops:storm-main"},
            "objectRef": reference,
            "requestObject": {"deleteOptions": options},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.500000Z",
        }
    )


def test_what_serves_writes_a_report_of_each_run_and_perhaps_half_of_the_last():
    def wrote(*moves):
        return json.dumps({"moves": [{"uid": uid} for uid in moves], "warnings": []}, indent=2)

    ran = Ran("main", "main-1", 1.0, 0.0, out="\n".join([wrote("a"), wrote("b", "c"), '{"mov']))
    assert len(ran.reports) == 2
    assert [move["uid"] for move in (ran.report or {})["moves"]] == ["a", "b", "c"]
    assert Ran("main", "main-1", 1.0, 0.0, out="no JSON").report is None


def test_evictions_that_were_carried_out_are_read_once(tmp_path):
    path = tmp_path / "audit.log"
    audit = Audit(path)
    assert audit.read() == ([], [], 0)
    path.write_text(f"{event(201)}\n{event(429, 'u2')}\n{event(200, 'u3', '', 'delete')}\n")
    (eviction,), _, others = audit.read()
    assert (eviction.user, eviction.pod, eviction.uid) == ("storm-main", "web-1", "u1")
    assert eviction.received % 1 == 0.5
    assert others == 1
    with path.open("a") as file:
        file.write(event(201, "u4"))  # not whole yet
    assert audit.read() == ([], [], 0)
    with path.open("a") as file:
        file.write("\n")
    assert [eviction.uid for eviction in audit.read().evicted] == ["u4"]


def test_a_patch_of_a_node_is_kept_apart_from_what_else_is_patched(tmp_path):
    path = tmp_path / "audit.log"
    body = {"spec": {"taints": None}}

    def patch(resource, code=200):
        return json.dumps(
            {
                "verb": "patch",
                "user": {"username": "system:serviceaccount:storm-ops:storm-main"},
                "objectRef": {"resource": resource, "name": "n0"},
                "requestObject": body,
                "responseStatus": {"code": code},
            }
        )

    path.write_text(
        "".join(f"{one}\n" for one in (patch("nodes"), patch("nodes", 409), patch("pods")))
    )
    asked = Audit(path).read()
    assert [(one.user, one.node, one.body) for one in asked.patched] == [("storm-main", "n0", body)]
    assert (asked.evicted, asked.others) == ([], 1)


def test_an_eviction_whose_client_was_gone_counts_if_its_pod_ended(tmp_path):
    path = tmp_path / "audit.log"
    codes = [(504, "gone"), (504, "alive"), (504, "asked twice"), (201, "asked twice"), (503, "no")]
    path.write_text("".join(f"{event(code, uid)}\n" for code, uid in codes))
    evictions = Audit(path).read().evicted
    history = History()
    for uid in ("gone", "asked twice", "no"):
        history.pod(START, "web", uid, ending=True)
    history.pod(START, "web", "alive")
    assert sorted(done.uid for done in carried_out(evictions, history.changes)) == [
        "asked twice",
        "gone",
    ]


def test_a_memory_is_counted_by_its_documented_form():
    assert hour_count({"memory.json": '{"evictions": [[1, 2], [2, 3]]}'}) == 5
    assert hour_count({}) == 0
    assert hour_count({"memory.json": "<html>"}) is None
