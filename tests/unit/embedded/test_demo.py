"""The demo happens as described, in eighty columns, or fails with a reason."""

import io
import json
import re
from collections.abc import Sequence

import pytest

from rebalancer.cli import command
from rebalancer.embedded.demo import run_demo


@pytest.fixture(scope="module")
def shown() -> tuple[int, str]:
    """Return exit code and text of one whole demo, three times as fast as shown to people."""
    out = io.StringIO()
    code = run_demo(command, speed=3, out=out)
    return code, out.getvalue()


def test_the_demo_happens_as_described(shown: tuple[int, str]) -> None:
    code, text = shown
    assert code == 0, text
    assert "The plan had named zone-c; the replacement landed in zone-c:" in text
    assert re.search(r"cart .* (2/1/0|1/2/0) +1/1/1 +1/1/1\n", text)
    assert "9 of 9 workloads are exactly as predicted." in text


def test_it_reads_well_in_eighty_columns_and_in_a_log(shown: tuple[int, str]) -> None:
    _, text = shown
    assert "\x1b" not in text
    assert "\r" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_its_second_run_moves_nothing_and_says_so_last(shown: tuple[int, str]) -> None:
    _, text = shown
    assert text.count("$ rebalancer run\n") == 3
    last = text.split("$ rebalancer run\n")[-1]
    assert "Nothing to do" in last


def idle(argv: Sequence[str]) -> int:
    """A command line that finds nothing, whatever it is asked."""
    if "--dry-run" in argv:
        print(json.dumps({"moves": []}))  # noqa: T201 - what a dry run does
    return 0


def test_a_run_that_does_nothing_ends_the_demo() -> None:
    out = io.StringIO()
    assert run_demo(idle, out=out) == 1
    assert "The demo failed: the plan has 0 moves, not one" in out.getvalue()


def test_a_run_that_fails_ends_the_demo_with_its_exit_code() -> None:
    out = io.StringIO()
    assert run_demo(lambda _: 3, out=out) == 3
    assert "The demo failed: the dry run failed" in out.getvalue()
