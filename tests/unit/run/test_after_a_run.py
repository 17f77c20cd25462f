"""What a run says of the cluster that it leaves is what anybody finds there, in every form, and each form agrees with itself."""

import io
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from rebalancer.base.environment import Environment
from rebalancer.embedded import demo
from rebalancer.planner.planning import score as score_cluster
from rebalancer.report import metrics
from rebalancer.report.changes import Changes
from rebalancer.report.metrics import of_report as metrics_of
from rebalancer.report.notices import of_report as notice_of
from rebalancer.report.render import render
from rebalancer.report.summary import Summary
from rebalancer.run.context import run_context
from rebalancer.run.one_run import run_unpublished as _run
from rebalancer.run.source import open_source
from rebalancer.testing.objects import EmbeddedCluster
from tests.support.worlds import FAST
from tests.unit.commands.embedded import ClusterClock, run_options

# A budget, by which a part is left undone; and one that lets all go, where chance decides what comes of it.
_POLICIES = {
    "a part": "budgets: {perRun: 3}",
    "blocked": "budgets: {perRun: 100}",
    "all": "budgets: {perRun: 100}",
}
_POLICY = """
apiVersion: rebalancer/v1
kind: Policy
protect: {{minPodAge: 0s}}
{more}
strategies: {{topology-spread: {{}}, anti-affinity: {{}}, duplicates: {{}}, low-utilisation: {{}}}}
"""
_CLOSED = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "cart"},
    "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": "cart"}}},
}


class Tables(HTMLParser):
    """The cells of the tables of a page, and the counts of pods on nodes that its pictures name."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.pictures, self.cards, self._open = [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        of = dict(attrs)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self._open = self.rows[-1]
        elif tag in ("dt", "dd"):
            self.cards.append("")
            self._open = self.cards
        elif tag == "svg" and ", pods on nodes: " in of.get("aria-label", ""):
            self.pictures.append(of["aria-label"])

    def handle_endtag(self, tag):
        if tag in ("td", "th", "dt", "dd"):
            self._open = None

    def handle_data(self, data):
        if self._open is not None:
            self._open[-1] += data

    def card(self, name):
        return self.cards[self.cards.index(name) + 1]


def drifted(seed):
    cluster = EmbeddedCluster(seed=seed, timings=FAST)
    with cluster:
        demo.many_workloads(cluster)
        demo.zone_lost(cluster)
        demo.zone_back(cluster)
        cluster.settle()
        yield cluster


def found(cluster, options):
    """What is unmet in the cluster by its API, read anew: the names of the rules by strategy."""
    environment = Environment(ClusterClock(cluster), {}, io.StringIO(), io.StringIO())
    run = run_context(options, environment)
    with open_source(run, options.cluster) as source:
        reading, rules = source.read(), run.rules
        return score_cluster(rules.problem(reading.snapshot), rules.settings())


@pytest.fixture(
    scope="module",
    params=[("a part", 1), ("blocked", 2), *(("all", seed) for seed in (3, 4, 5, 6))],
    ids=str,
)
def ended(request, tmp_path_factory):
    """The report of a run, and the cluster scored anew after it."""
    kind, seed = request.param
    policy = tmp_path_factory.mktemp("run") / "policy.yaml"
    policy.write_text(_POLICY.format(more=_POLICIES[kind]))
    for cluster in drifted(seed):
        if kind == "blocked":
            cluster.apply(_CLOSED)
            cluster.settle()
        flags = {"policy_path": str(policy), "kubeconfig": str(cluster.kubeconfig), "quiet": True}
        out = io.StringIO()
        environment = Environment(ClusterClock(cluster), {}, out, io.StringIO())
        report = _run(run_options(**flags, output="json"), environment, None).report
        cluster.settle()
        pods = Counter(
            pod["spec"].get("nodeName", "")
            for pod in cluster.objects("Pod", "default")
            if "deletionTimestamp" not in pod["metadata"]
        )
        yield report, found(cluster, run_options(**flags, dry_run=True)), pods, out.getvalue()


def test_every_form_says_what_is_there(ended):
    report, there, _, written = ended
    assert report.acted
    unmet = {name: score.violated for name, score in there.scores.items()}
    now = sum(unmet.values())
    # The data.
    data = json.loads(written)
    assert {name: score["violated"] for name, score in data["now"].items()} == unmet
    assert sum(rule["rules"] for rule in data["unmet"]) == now
    assert sorted(rule["rule"] for rule in data["unmet"]) == sorted(r.rule for r in there.unmet)
    assert all(rule["codes"] and rule["why"] for rule in data["unmet"])
    # Metrics and the notice.
    values = metrics_of(report, None, 0.0)[metrics.UNMET]
    assert {name: values[name, "now"] for name in unmet} == unmet
    notice = notice_of(report)
    assert notice is not None
    assert notice.values()["unmetAfter"] == str(now)
    assert f"{now:,} now" in notice.summary
    # What people read names each rule.
    for form in ("wide", "markdown", "html"):
        text = " ".join("".join(render(report, form)).split())
        for rule in there.unmet:
            assert rule.rule.replace("-", "") in text.replace("-", "").replace("\\", ""), form


def test_a_page_agrees_with_itself_and_with_the_cluster(ended):
    report, there, pods, _ = ended
    page = Tables("".join(render(report, "html")))
    now = sum(score.violated for score in there.scores.values())
    assert re.match(rf"\d+ \u2192 {now}\b|{now}$", page.card("Rules unmet"))
    # Each strategy's row: before, as planned, now.
    rules = {row[0]: row[1:4] for row in page.rows if row and row[0] in there.scores}
    for name, score in there.scores.items():
        # What holds at every step is named in one line, without a row.
        said = re.match(r"(\d+) rules? unmet", rules.get(name, ("", "", "holds"))[2])
        assert (int(said[1]) if said else 0) == score.violated
    # The picture of the end, the table of the nodes, and the pods of the API.
    picture = page.pictures[-1]
    assert picture.startswith("Now, ")
    drawn = {name: int(number) for name, number in re.findall(r"(node-\S+) (\d+)", picture)}
    assert drawn == {name: number for name, number in pods.items() if name}
    nodes = {row[0]: row[3] for row in page.rows if row and re.fullmatch(r"node-\w+", row[0])}
    held = {name: int(text.split(" \u2192 ")[-1]) for name, text in nodes.items()}
    assert {name: number for name, number in held.items() if number} == drawn
    made = sum(one.status.is_carried_out for one in report.outcomes)
    assert made == int(page.card("Evicted"))
    # The pods by zone, of all workloads with moves.
    for change in Changes(report).workloads:
        _, _, last = change.counts
        if change.by == "zone":
            assert sum(last) == sum(change.counts[0])


def test_the_sentences_claim_no_more_than_is_there(ended):
    report, there, _, _ = ended
    summary = Summary(report)
    now = sum(score.violated for score in there.scores.values())
    before = summary.unmet_before
    more = sum(
        max(0, there.scores[name].violated - score.violated)
        for name, score in report.plan.before.items()
    )
    assert f"{before - now + more:,} of {before:,} unmet rules fixed" in summary.headline
    assert (", " in summary.headline) == (more > 0)
    assert ("Every rule holds now." in summary.closing) == (now == 0)
    text = "".join(render(report, "table"))
    assert ("Unmet now: " in text) == (now > 0)
    left = [one.move.ref for one in report.outcomes if not one.status.may_have_evicted]
    assert summary.staying_pods >= len(left)


def test_a_single_run_says_that_it_hears_no_signals(tmp_path):
    policy = tmp_path / "policy.yaml"
    text = _POLICY.format(more="signals: {kubernetes: {}}")
    policy.write_text(text.replace("strategies: {", "strategies: {leaving: {}, "))
    for cluster in drifted(1):
        flags = {"policy_path": str(policy), "kubeconfig": str(cluster.kubeconfig), "quiet": True}
        environment = Environment(ClusterClock(cluster), {}, io.StringIO(), io.StringIO())
        for dry in (True, False):
            report = _run(run_options(**flags, dry_run=dry), environment, None).report
            assert report is not None
            unheard = [line for line in report.warnings if "no effect in a single run" in line]
            assert len(unheard) == (0 if dry else 1)
