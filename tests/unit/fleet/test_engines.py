"""Engines yield the same results, whatever happens to their workers."""

import multiprocessing
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path
from random import Random
from typing import cast

import pytest

from rebalancer.fleet.engines import MAX_DEATHS, InProcess, Processes
from rebalancer.fleet.task import Failure, Row, Rules, Task, TaskSetting

RULES = Rules("p", "")


def tasks(number, snapshot="x"):
    return [
        Task(i, RULES, snapshot, snapshot, i, (0, 0, i), TaskSetting(RULES)) for i in range(number)
    ]


def row(task):
    return Row(task.number, "p", task.snapshot, task.draw, 1, 1, True, {"evictions": task.draw}, {})


def slow(task):
    time.sleep(0.02)
    return row(task)


def deadly(task):
    """Ends its worker at task 3, always; all others are well."""
    if task.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return row(task)


def once_deadly(task):
    """Ends its worker at the first try of each of tasks 2 and 5; ``snapshot`` is a folder for notes."""
    note = Path(task.snapshot) / str(task.number)
    if task.number in (2, 5) and not note.exists():
        note.touch()
        os._exit(1)
    return row(task)


def by_number(results):
    return sorted(results, key=lambda result: result.number)


def test_a_task_that_always_kills_its_worker_is_named_and_fails_alone():
    results = by_number(Processes(2, deadly).run(tasks(8)))
    assert [type(of) for of in results] == [Row] * 3 + [Failure] + [Row] * 4
    assert results[3].error.startswith(f"its worker died {MAX_DEATHS} times")


def test_a_task_whose_worker_died_once_is_tried_again(tmp_path):
    given = tasks(8, str(tmp_path))
    assert by_number(Processes(2, once_deadly).run(given)) == [row(task) for task in given]


def test_workers_killed_at_random_change_nothing():
    random = Random(5)
    results = []
    for result in Processes(2, slow).run(tasks(24)):
        results.append(result)
        if random.random() < 0.1 and (workers := multiprocessing.active_children()):
            random.choice(workers).kill()
    assert by_number(results) == [row(task) for task in tasks(24)]


def test_no_more_tasks_are_taken_than_are_under_way():
    taken = 0

    def given():
        nonlocal taken
        for task in tasks(50):
            taken += 1
            yield task

    results = Processes(2, slow).run(given())
    for number, _ in enumerate(results, 1):
        assert taken - number <= 4
    assert taken == 50


def test_an_error_of_the_caller_ends_the_workers():
    results = Processes(2, slow).run(tasks(1000))
    next(results)
    with pytest.raises(KeyboardInterrupt):
        cast(Generator[object, None, None], results).throw(KeyboardInterrupt())
    assert not multiprocessing.active_children()


def test_what_cannot_be_read_is_a_failure_of_its_task():
    rules = Rules("p", "apiVersion: rebalancer/v1\nkind: Policy\nstrategies: {}\n")
    (failure,) = InProcess().run(
        [Task(0, rules, "no.zip", "/nowhere.zip", 0, (0,), TaskSetting(rules))]
    )
    assert isinstance(failure, Failure)
    assert "nowhere.zip" in failure.error
