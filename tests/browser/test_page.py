"""The HTML report in chromium: what it shows, how it is used, and whether everybody can."""

import subprocess
import sys
from dataclasses import replace
from importlib.resources import files

import pytest

from rebalancer.base.environment import SystemClock
from rebalancer.base.errors import ExitCode
from rebalancer.plan.plan import (
    Code,
    Cost,
    Explanation,
    Landing,
    Later,
    Move,
    Outcome,
    Plan,
    Score,
    Skip,
    Status,
)
from rebalancer.policy.load import load_policy
from rebalancer.registry import Registry
from rebalancer.report.model import RunReport
from rebalancer.report.render import render
from rebalancer.serve.health import Health, answer_requests
from rebalancer.serve.page import LivePage
from rebalancer.testing.snapshots import node, snapshot_of, workload
from tests.browser.chromium import chromium
from tests.docs.pages import ROOT

pytestmark = pytest.mark.browser

ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
MOVES, NODES = 5000, 1000
TALLEST = 6000
"""Pixels that the page of the large cluster takes at most before anything is unfolded."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def report_of(size):
    """A run that moved so many pods of a tenth as many workloads, and left some where they were."""
    number = NODES if size == MOVES else 30
    nodes = [node(f"node-{i:02}", ZONES[i % 3], cpu="64", memory="256Gi") for i in range(number)]
    owners = [f"service-{i:03}" for i in range(size // 10)]
    pods = [
        workload(name, ["node-00"] * 12, namespace=f"team-{i % 7}") for i, name in enumerate(owners)
    ]
    snapshot = snapshot_of([*nodes, *(each for of in pods for each in of)])
    moves = [
        Move(
            namespace=f"team-{i // 10 % 7}",
            pod=f"{owners[i // 10]}-{i % 10}",
            uid=f"team-{i // 10 % 7}/{owners[i // 10]}-{i % 10}",
            owner=f"Deployment/team-{i // 10 % 7}/{owners[i // 10]}",
            node="node-00",
            landings=(Landing(f"node-{1 + i % 29:02}", 1.0, {}),),
            strategy="topology-spread",
            reason=f"{owners[i // 10]} over zones: eu-west-1a 12, eu-west-1b 0, eu-west-1c 0",
            gain=Cost(hard=1.0, soft=i % 3),
            cost=1.0,
            wave=1 + i // 50,
        )
        for i in range(size)
    ]
    outcomes = [
        Outcome(move, Status.EVICTED, "", move.landings[0].node, predicted=True) for move in moves
    ]
    outcomes[1] = replace(
        outcomes[1], status=Status.FAILED, message="the server gave up", landed=None
    )
    scores = Score(Cost(float(size)), size // 10, ("one rule cannot hold",))
    explanation = Explanation(
        skips=tuple(
            Skip("team-0", f"pod-{i}", "node-00", "taints", code, "why")
            for i, code in enumerate(Code)
        ),
        before={"topology-spread": scores, "taints": Score(Cost(), 0)},
        after={"topology-spread": Score(Cost(), 0), "taints": Score(Cost(), 0)},
        lower_bound=size,
        stopped="After these moves every rule holds.",
        funnel={
            "pods": 2 * size,
            "movable": 2 * size,
            "candidates": size,
            "free": size,
            "moves": size,
        },
    )
    plan = Plan(tuple(moves), Later(lambda: explanation))
    return RunReport(
        dry_run=False,
        source="https://cluster.example:6443",
        snapshot=snapshot,
        loaded=load_policy(None, Registry.installed()),
        plan=plan,
        outcomes=tuple(outcomes),
        warnings=("something to know",),
        timings={"plan": 1.0},
    )


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")

    def written(size):
        path = folder / f"{size}.html"
        if not path.exists():
            path.write_text("".join(render(report_of(size), "html")))
        return path

    return written


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The page of a cluster small enough for the picture of pods on nodes: README's."""
    path = tmp_path_factory.mktemp("small") / "report.html"
    words = [sys.executable, "-m", "rebalancer", "run", "-o", "html"]
    with path.open("wb") as to:
        file = "--snapshot=docs/examples/zone-back.zip"
        subprocess.run([*words, file], cwd=ROOT, stdout=to, check=True)
    return path


STATUS = "document.getElementById('moves-status')?.textContent"
"""Undefined while a page that replaces itself is loaded."""
PODS = "[...document.querySelectorAll('#moves-table .move .name')].map(e => e.textContent)"


def search(page, text):
    page.evaluate(
        "document.getElementById('search').value = ''; document.getElementById('search').focus()"
    )
    page.type(text)


def test_the_page_runs_under_its_own_policy_without_a_complaint(page, file_of):
    page.open(file_of(60))
    assert page.evaluate(STATUS) == "60 moves, 10 shown"
    assert len(page.evaluate(PODS)) == 10
    # What is not the page's own is refused, and the refusal can be seen.
    page.evaluate(
        "document.head.append(Object.assign(document.createElement('style'), {textContent: 'a{}'}))"
    )
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'x=1'}))"
    )
    page.wait("true")
    assert page.evaluate("typeof x") == "undefined"
    assert len(page.log) == 2
    assert all("Content Security Policy" in text for text in page.log)
    page.log.clear()


def test_search_narrows_the_moves_by_every_word(page, file_of):
    page.open(file_of(60))
    search(page, "SERVICE-003 wave")
    page.wait(f"{STATUS}?.startsWith('0 of 60')")
    search(page, "service-003 eu-west-1b")
    page.wait(f"/^[1-9]\\d? of 60 moves$/.test({STATUS})")
    assert {pod.partition("/")[2][:11] for pod in page.evaluate(PODS)} == {"service-003"}


def test_a_head_sorts_up_then_down_and_says_so(page, file_of):
    page.open(file_of(60))
    page.evaluate("document.getElementById('more').click()")
    button = "document.querySelector('#moves-table [data-column=\"2\"] button')"
    sort = "document.querySelector('#moves-table [data-column=\"2\"]').getAttribute('aria-sort')"
    page.evaluate(f"{button}.click()")
    names = [pod.partition("/")[2] for pod in page.evaluate(PODS)]
    assert (page.evaluate(sort), names) == ("ascending", sorted(names))
    page.evaluate(f"{button}.click()")
    assert page.evaluate(sort) == "descending"
    assert page.evaluate(PODS)[0].endswith("/service-005-9")


def test_thousands_of_moves_are_folded_by_workload_and_open_by_keyboard(page, file_of):
    page.open(file_of(MOVES))
    assert page.evaluate(STATUS) == "5,000 moves"
    assert page.evaluate(PODS) == []
    groups = "document.querySelectorAll('#moves-table .group button')"
    assert page.evaluate(f"{groups}.length") == 10
    assert (
        page.evaluate(f"{groups}[0].textContent")
        == "Deployment/team-0/service-00010 moves, 1 workload"
    )
    page.evaluate(f"{groups}[0].focus()")
    page.key("Enter", 13)
    page.send("Input.dispatchKeyEvent", type="char", text="\r")
    page.wait(f"{PODS}.length === 10")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


def test_without_groups_rows_come_in_pages(page, file_of):
    page.open(file_of(MOVES))
    page.evaluate(
        "(() => { const e = document.getElementById('grouping'); e.value = '';"
        " e.dispatchEvent(new Event('change')); })()"
    )
    assert page.evaluate(STATUS) == "5,000 moves, 100 shown"
    page.evaluate("document.getElementById('more').click()")
    assert len(page.evaluate(PODS)) == 200


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("size", [60, MOVES])
def test_nothing_is_wider_than_the_screen(page, file_of, width, size):
    page.open(file_of(size), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1440])
def test_a_large_cluster_is_read_without_long_scrolling(page, file_of, width):
    page.open(file_of(MOVES), width=width)
    height = "document.documentElement.scrollHeight"
    assert page.evaluate(height) <= TALLEST
    # With fonts that are a tenth larger, too: each machine has its own.
    page.evaluate("document.documentElement.style.fontSize = '17.6px'")
    page.evaluate("document.body.style.fontSize = '16.5px'")
    assert page.evaluate(height) <= TALLEST
    page.evaluate("document.documentElement.style.fontSize = document.body.style.fontSize = ''")
    # Each node is a cell, at both steps, and all can be seen.
    cells = "document.querySelectorAll('.strips > div:nth-child({}) .cells i')"
    assert [page.evaluate(f"{cells.format(n)}.length") for n in (1, 2)] == [NODES, NODES]
    assert page.evaluate(f"{cells.format(1)}[0].getBoundingClientRect().width") >= 8
    # 500 workloads with few stories are few rows, which name them when they are opened.
    named = page.evaluate(
        "[...document.querySelector('.heat').querySelectorAll('tbody summary')].map(e => e.textContent)"
    )
    assert len(named) < 10
    # One has a move that failed, and stands alone.
    assert sum(int(text.removesuffix(" workloads")) for text in named) == MOVES // 10 - 1


@pytest.mark.parametrize("many", [False, True], ids=["table", "cells"])
def test_each_strip_of_a_node_is_named_in_words(page, file_of, small, many):
    page.open(file_of(MOVES) if many else small, width=1280)
    assert page.evaluate("document.querySelectorAll('#nodes .before-bar').length") > 0
    words = page.evaluate("document.querySelector('#nodes').textContent")
    assert "The upper, grey strip is" in words if many else "the upper, grey strip is" in words
    # The bar behind is there in the table alone.
    behind = page.evaluate("document.querySelectorAll('#nodes .rail').length") > 0
    assert ("The pale bar behind is" in words) is behind is not many


def test_the_workloads_of_a_row_are_read_when_it_is_opened(page, file_of):
    page.open(file_of(MOVES), width=1440)
    page.evaluate("document.querySelectorAll('.heat .names').forEach(e => { e.open = true; })")
    cut = "[...document.querySelectorAll('.heat tbody th')].filter(e => e.scrollWidth > e.clientWidth)"
    assert page.evaluate(f"{cut}.length") == 0


@pytest.mark.parametrize("width", [390, 1440])
def test_the_first_screen_says_why_and_shows_the_picture(page, small, width):
    page.open(small, width=width)
    top = "document.querySelector('{}').getBoundingClientRect().top"
    ledes = page.evaluate("[...document.querySelectorAll('.lede')].map(e => e.textContent)")
    assert (
        ledes[0]
        == "zone-c has no pod of 6 workloads that this run moves, and zone-a and zone-b too many."
    )
    assert page.evaluate(top.format("#pods svg")) < 750
    order = [page.evaluate(top.format(f"#{one}")) for one in ("pods", "stays", "zones", "moves")]
    assert order == sorted(order)


@pytest.mark.parametrize("width", [390, 1280])
def test_every_pod_of_a_small_cluster_is_seen_on_its_node(page, small, width):
    page.open(small, width=width)
    shown = "document.querySelectorAll('#pods svg:nth-of-type({}) .pod')"
    assert [page.evaluate(f"{shown.format(n)}.length") for n in (1, 2)] == [30, 30]
    moved = "[...document.querySelectorAll('#pods svg:nth-of-type({}) .{}')].length"
    assert page.evaluate(moved.format(1, "leaves")) == page.evaluate(moved.format(2, "new")) == 7
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Large enough to be read on a phone, too.
    side = "document.querySelector('#pods .pod rect').getBoundingClientRect().width"
    assert page.evaluate(side) > 14
    assert page.log == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("many", [False, True], ids=["small", "large"])
def test_axe_has_nothing_to_say(page, file_of, small, width, dark, many):
    page.open(file_of(60) if many else small, width=width, dark=dark)
    page.evaluate((files("axe_core_python") / "axe.min.js").read_text() + "; 0")
    problems = page.evaluate(
        "axe.run().then(r => ({passed: r.passes.length, violations: r.violations.map("
        "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html).join(' '))}))"
    )
    assert problems["violations"] == []
    assert problems["passed"] > 20


@pytest.fixture
def served():
    """A process's page with one run of 60 moves, as (LivePage, address)."""
    live = LivePage()
    live.keep(report_of(60), 1_800_000_000.0)
    health = Health(SystemClock(), deadline=120, page=live)
    with answer_requests(("127.0.0.1", 0), health.paths()) as port:
        yield live, f"http://127.0.0.1:{port}/"


NOW = "document.getElementById('now')?.textContent"
STEPS = "[...document.querySelectorAll('#steps li')].map(e => e.textContent)"
NEWER = "document.getElementById('newer')"
RUNS = "document.querySelectorAll('.timeline svg').length"


def test_a_page_that_stays_shows_what_goes_on_and_the_next_report_by_itself(page, served):
    live, address = served
    page.open(address)
    assert page.evaluate(STATUS) == "60 moves, 10 shown"
    page.wait(f"{NOW} === 'No run is under way.'")
    live.begin_run()
    live.note_step("wave 1 of 2: 2 moves")
    page.wait(f"{NOW} === 'Run 2 is under way.'")
    live.note_step("landed   shop/web-1 -> node-c1, as predicted")
    page.wait(f"{STEPS}.length === 2")
    assert page.evaluate(STEPS)[1] == "landed   shop/web-1 -> node-c1, as predicted"
    live.keep(report_of(30), 1_800_000_060.0)
    live.end_run()
    page.wait(f"{RUNS} === 2 && {STATUS} === '30 moves, 10 shown'")
    assert page.evaluate("document.cookie") == ""
    assert page.log == []


def test_a_page_that_is_read_from_its_top_stays_there(page):
    live = LivePage()
    health = Health(SystemClock(), deadline=120, page=live)
    with answer_requests(("127.0.0.1", 0), health.paths()) as port:
        page.open(f"http://127.0.0.1:{port}/")
        for number in (1, 2):
            live.keep(report_of(60), 1_800_000_000.0 + number)
            page.wait(f"{RUNS} === {number} && document.readyState === 'complete'")
            assert page.evaluate("scrollY") == 0
            assert page.evaluate(f"getComputedStyle({NEWER}).display") == "none"


def test_a_page_that_somebody_works_with_is_not_taken_away(page, served):
    live, address = served
    page.open(address)
    page.evaluate("document.getElementById('search').focus()")
    page.key("a", 65)
    live.keep(report_of(30), 1_800_000_060.0)
    page.wait(f"getComputedStyle({NEWER}).display !== 'none'")
    assert page.evaluate(STATUS).startswith("60 moves")
    page.evaluate("document.getElementById('newer').click()")
    page.wait(f"document.readyState === 'complete' && {STATUS} === '30 moves, 10 shown'")
    assert page.log == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_that_stays_is_for_everybody_too(page, served, width):
    live, address = served
    for second in range(49):
        live.keep_failure(ExitCode.UNREADABLE, "no answer", float(second))
    live.begin_run()
    page.open(address, width=width)
    page.wait(f"{NOW} === 'Run 51 is under way.'")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate((files("axe_core_python") / "axe.min.js").read_text() + "; 0")
    assert page.evaluate("axe.run().then(r => r.violations.map(v => v.id))") == []


def test_a_print_has_every_move_and_no_tools(page, file_of):
    page.open(file_of(60))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.send("Emulation.setEmulatedMedia", media="print")
    assert len(page.evaluate(PODS)) == 60
    assert page.evaluate("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert page.evaluate("[...document.querySelectorAll('details')].every(e => e.open)")
    page.send("Emulation.setEmulatedMedia", media="")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(STATUS) == "60 moves, 10 shown"
    assert not page.evaluate("[...document.querySelectorAll('details')].every(e => e.open)")


def test_a_print_of_very_many_moves_has_every_workload(page, file_of):
    page.open(file_of(MOVES))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    groups = "document.querySelectorAll('#moves-table .group').length"
    assert page.evaluate(groups) == MOVES // 10
    assert page.evaluate(PODS) == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(groups) == 10
