"""The demo happens as described, in eighty columns, or fails with a reason."""

import io
import json
import re
from collections.abc import Sequence

import pytest

from rebalancer.cli import command
from rebalancer.embedded.demo import run_demo


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "report.html"


@pytest.fixture(scope="module")
def shown(report):
    """Return exit code and text of one whole demo, three times as fast as shown to people."""
    out = io.StringIO()
    code = run_demo(command, speed=3, out=out, report=report)
    return code, out.getvalue()


def test_the_demo_happens_as_described(shown):
    code, text = shown
    assert code == 0, text
    assert "The plan had named zone-c; the replacement landed in zone-c:" in text
    assert re.search(r"cart .* (2/1/0|1/2/0) +1/1/1 +1/1/1\n", text)
    assert "9 of 9 workloads are exactly as predicted." in text


def test_it_reads_well_in_eighty_columns_and_in_a_log(shown):
    _, text = shown
    assert "\x1b" not in text
    assert "\r" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_its_second_run_moves_nothing_and_says_so_last(shown):
    _, text = shown
    assert text.count("$ rebalancer run --yes\n") == 3
    last = text.split("$ rebalancer run --yes\n")[-1]
    # On a busy machine a replacement may land elsewhere, in another order than planned: it is too young to go again.
    assert re.search("Nothing (to do|can be gained yet)", last)


def test_it_names_its_report_in_html(shown, report):
    _, text = shown
    assert f"    {report}\n" in text
    html = report.read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert "Deployment/default/cart" in html


def idle(argv: Sequence[str]) -> int:
    """A command line that finds nothing, whatever it is asked."""
    if "--dry-run" in argv:
        print(json.dumps({"moves": []}))  # noqa: T201 - what a dry run does
    return 0


def test_a_run_that_does_nothing_ends_the_demo():
    out = io.StringIO()
    assert run_demo(idle, out=out) == 1
    assert "The demo failed: the plan has 0 moves, not one" in out.getvalue()


def test_a_run_that_fails_ends_the_demo_with_its_exit_code():
    out = io.StringIO()
    assert run_demo(lambda _: 3, out=out) == 3
    assert "The demo failed: the dry run failed" in out.getvalue()


def test_a_report_that_cannot_be_written_ends_the_demo_and_says_why(tmp_path):
    out = io.StringIO()
    file = tmp_path / "no" / "report.html"
    assert run_demo(command, speed=10, out=out, report=file) == 2
    assert f"The demo failed: {file} could not be written" in " ".join(out.getvalue().split())
