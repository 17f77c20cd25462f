"""``fleet observe`` and ``fleet report`` on embedded clusters: one with the records, and members of several kinds."""

import io
import json
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import yaml

from rebalancer.base.environment import Environment, SystemClock
from rebalancer.base.errors import ClusterReadError, PolicyError
from rebalancer.commands.fleet import FleetFlags, observe_member, show_report
from rebalancer.fleet.clusters import FILE, ClusterRecord
from rebalancer.run.options import ClusterFlags
from rebalancer.testing.objects import EmbeddedCluster
from tests.unit.base.test_sending import server
from tests.unit.commands.embedded import NOW_POLICY, ClusterClock, run_options, third_zone_joined

TOKEN = "aVeryLongTokenThatIsNobodysBusiness"
UNREACHABLE = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": TOKEN}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
}


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class Fleet:
    """A cluster with the list and the records, and what a pod of an index would do."""

    def __init__(self, hub, folder, **lists):
        self.hub, self.folder = hub, folder
        self.kubeconfigs = folder / "kubeconfigs"
        self.kubeconfigs.mkdir()
        (folder / "policy.yaml").write_text(NOW_POLICY)
        self.names, self.lists = [], lists
        self.clock: Any = None

    def add(self, name, kubeconfig, **more):
        (self.kubeconfigs / name).write_text(kubeconfig)
        self.names.append({"name": name, **more})
        text = yaml.safe_dump(
            {"apiVersion": "rebalancer/v1", "kind": "Fleet", "clusters": self.names, **self.lists}
        )
        (self.folder / "fleet.yaml").write_text(text)
        self.hub.apply(config_map("fleet", **{FILE: text}), config_map("fleet-status"))

    def join(self, name, cluster, **more):
        self.clock = ClusterClock(cluster)
        self.add(name, cluster.kubeconfig.read_text(), **more)

    def run(self, index, clock=None, **options):
        out, err = io.StringIO(), io.StringIO()
        environ = {} if index is None else {"JOB_COMPLETION_INDEX": str(index)}
        environment = Environment(clock or self.clock, environ, out, err)
        flags = FleetFlags(
            clusters=str(self.folder / "fleet.yaml"),
            kubeconfigs=str(self.kubeconfigs),
            status=("default", "fleet-status"),
        )
        chosen = {
            "policy_path": str(self.folder / "policy.yaml"),
            "kubeconfig": str(self.hub.kubeconfig),
            "quiet": True,
            "output": "json",
            **options,
        }
        try:
            code = int(observe_member(flags, run_options(**chosen), environment))
        finally:
            self.said = out.getvalue() + err.getvalue()
        return code, json.loads(out.getvalue())

    def records(self):
        data = self.hub.get("ConfigMap", "fleet-status").get("data") or {}
        return {name: msgspec.json.decode(text, type=ClusterRecord) for name, text in data.items()}

    def write(self, **records):
        texts = {name: msgspec.json.encode(one).decode() for name, one in records.items()}
        self.hub.apply(config_map("fleet-status", **texts))

    def report(self, output="json", code=None):
        out = io.StringIO()
        environment = Environment(self.clock, {}, out, io.StringIO())
        access = ClusterFlags(kubeconfig=str(self.hub.kubeconfig))
        ended = show_report(access, ("default", "fleet"), output, environment)
        assert code is None or ended == code
        return out.getvalue()


@contextmanager
def fleet_of_one(folder, **more):
    with EmbeddedCluster() as hub, third_zone_joined("web") as member:
        fleet = Fleet(hub, folder)
        fleet.join("prod-eu", member, **more)
        yield fleet, member


def test_each_index_observes_a_cluster_changes_nothing_there_and_writes_its_record(tmp_path):
    with fleet_of_one(tmp_path) as (fleet, member):
        fleet.add("lost", yaml.safe_dump(UNREACHABLE))
        before = member.objects("Pod"), member.objects("Node")
        code, report = fleet.run(0)
        assert (code, [move["outcome"] for move in report["moves"]]) == (0, ["planned"])
        assert (member.objects("Pod"), member.objects("Node")) == before
        well = fleet.records()["prod-eu"]
        assert (well.planned, well.unmet, well.error) == (1, 1, "")
        with pytest.raises(ClusterReadError):
            fleet.run(1, SystemClock())
        lost = fleet.records()["lost"]
        assert (lost.exit_code, lost.nodes) == (3, 0)
        assert "127.0.0.1:1" in lost.error
        assert fleet.records()["prod-eu"] == well
        # Nothing of the token, in no form.
        every = fleet.said + lost.error + "".join(map(fleet.report, ("json", "table", "html")))
        assert TOKEN not in every
        report = json.loads(fleet.report(code=4))
        assert [one["state"] for one in report["clusters"]] == ["failed", "unmet rules"]
        # A cluster that stands still is no failure of its pod, and first of those that run.
        member.break_nodes(["n-b", "n-c"])
        member.settle()
        assert fleet.run(0)[0] == 0
        report = json.loads(fleet.report())
        assert [one["state"] for one in report["clusters"]] == ["failed", "stands still"]
        assert "2 of 3 nodes are NotReady" in report["clusters"][1]["why"]


def test_metrics_and_notices_carry_the_cluster_s_name(tmp_path):
    with fleet_of_one(tmp_path) as (fleet, _), server() as (url, asked):
        fleet.add("lost", yaml.safe_dump(UNREACHABLE))
        (tmp_path / "body.json").write_text('{"of": "$source"}')
        to = {"notify": f"{url}/n", "notify_template": str(tmp_path / "body.json")}
        assert fleet.run(0, metrics_push=f"{url}/metrics/job/x", **to)[0] == 0
        with pytest.raises(ClusterReadError):
            fleet.run(1, SystemClock(), metrics_push=url, **to)
    pushed, pushed_of_lost, notice_of_lost = asked
    assert pushed[1] == "/metrics/job/x/cluster/prod-eu"
    assert pushed_of_lost[1] == "/metrics/job/kube-rebalancer/cluster/lost"
    assert json.loads(notice_of_lost[3]) == {"of": "lost"}


def test_the_policy_of_a_cluster_is_that_of_its_labels_and_its_own(tmp_path):
    with fleet_of_one(tmp_path, policy={"mode": "observe"}) as (fleet, _):
        code, report = fleet.run(0)
        assert (code, [move["outcome"] for move in report["moves"]]) == (0, ["observed"])
        assert any('--set mode="observe"' in warning for warning in report["warnings"])


def test_an_observation_whose_record_cannot_be_written_is_no_success(tmp_path):
    with fleet_of_one(tmp_path) as (fleet, _):
        fleet.hub.delete("ConfigMap", "fleet-status", "default")
        assert fleet.run(0)[0] == 4
        assert "cluster prod-eu has not reported" in fleet.said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1]",
        '{"at": 1, "exitCode": 0, "nodes": 1%s}' % ("0" * 300),
        '{"at": -1, "exitCode": 0}',
        "{" * 5_000,
    ],
)
def test_a_record_that_is_none_counts_as_if_it_were_not_there(tmp_path, text):
    with fleet_of_one(tmp_path) as (fleet, _):
        fleet.hub.apply(config_map("fleet-status", **{"prod-eu": text}))
        (line,) = json.loads(fleet.report())["clusters"]
        assert (line["state"], line["why"]) == ("late", "its record cannot be read")
        assert fleet.run(0)[0] == 0
        assert fleet.records()["prod-eu"].pods


@pytest.mark.parametrize(
    ("index", "message"),
    [(None, "JOB_COMPLETION_INDEX is not set"), (1, "has no cluster 1: the list has changed")],
)
def test_a_pod_without_a_cluster_says_so(tmp_path, index, message):
    with fleet_of_one(tmp_path) as (fleet, _), pytest.raises(PolicyError, match=message):
        fleet.run(index)


def test_a_kubeconfig_that_is_not_there_is_named_and_reported(tmp_path):
    with fleet_of_one(tmp_path) as (fleet, _):
        (fleet.kubeconfigs / "prod-eu").unlink()
        with pytest.raises(PolicyError, match="there is no kubeconfig of cluster prod-eu"):
            fleet.run(0)
        assert fleet.records()["prod-eu"].exit_code == 2


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({}, 0),
        ({"unmet": 3}, 0),
        ({"standstill": ("2 of 3 nodes are NotReady",)}, 0),
        ({"exit_code": 3, "error": "cannot be reached"}, 4),
        ({"ago": 3600}, 4),
        (None, 4),
    ],
)
def test_a_report_on_a_cluster_that_failed_or_is_missing_is_no_success(tmp_path, record, code):
    with fleet_of_one(tmp_path) as (fleet, _):
        if record is not None:
            of = {"exit_code": 0, **record}
            ago = of.pop("ago", 60)
            fleet.write(**{"prod-eu": ClusterRecord(fleet.clock.unix() - ago, **of)})
        fleet.report(code=code)
