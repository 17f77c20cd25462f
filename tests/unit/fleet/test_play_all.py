"""Tasks have the same results in one process and in several, and a worker that dies is a failure that is named."""

import multiprocessing
import os
import signal
import time
from collections.abc import Generator
from typing import cast

import pytest

from rebalancer.fleet.simulation import Failure, Row, Rules, Task, TaskSetting, play_all

RULES = Rules("p", "")


def tasks(number):
    return [Task(i, RULES, "x", "x", i, (0, 0, i), TaskSetting(RULES)) for i in range(number)]


def row(task):
    return Row(task.number, "p", task.snapshot, task.draw, 1, 1, True, {"evictions": task.draw}, {})


def slow(task):
    time.sleep(0.02)
    return row(task)


def deadly(task):
    """Ends its worker at task 3; all others are well."""
    if task.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return row(task)


def by_number(results):
    return sorted(results, key=lambda result: result.number)


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_the_results_are_the_same_in_any_number_of_processes(jobs):
    assert by_number(play_all(tasks(8), jobs, row)) == [row(task) for task in tasks(8)]


def test_if_a_worker_dies_each_task_has_its_row_or_is_named():
    results = by_number(play_all(tasks(8), 2, deadly))
    assert [result.number for result in results] == list(range(8))
    assert isinstance(results[3], Failure)
    assert "a worker process died" in results[3].error
    assert all(of == row(tasks(8)[of.number]) for of in results if isinstance(of, Row))


def test_an_error_of_the_caller_ends_the_workers():
    results = play_all(tasks(1000), 2, slow)
    next(results)
    with pytest.raises(KeyboardInterrupt):
        cast(Generator[object, None, None], results).throw(KeyboardInterrupt())
    assert not multiprocessing.active_children()


def test_what_cannot_be_read_is_a_failure_of_its_task():
    rules = Rules("p", "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {}\n")
    (failure,) = play_all(
        [Task(0, rules, "no.zip", "/nowhere.zip", 0, (0,), TaskSetting(rules))], 1
    )
    assert isinstance(failure, Failure)
    assert "nowhere.zip" in failure.error
