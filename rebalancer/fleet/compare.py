"""Play every policy on every snapshot, several times, and compare what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import msgspec

from rebalancer import __version__
from rebalancer.base.errors import PolicyError
from rebalancer.fleet.comparison import Comparison, compare_rows
from rebalancer.fleet.engines import TaskEngine
from rebalancer.fleet.journal import TaskJournal, open_journal
from rebalancer.fleet.sources import absolute, digest
from rebalancer.fleet.task import Failure, Row, Rules, Task, TaskSetting

Reached = Callable[[int, int], None]
"""Called with the number of tasks that have ended, and of all."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is compared."""

    policies: tuple[Rules, ...]
    snapshots: tuple[str, ...]
    """Paths or URLs, each once."""
    draws: int
    seed: int
    setting: TaskSetting


def list_tasks(inputs: Inputs) -> tuple[list[Task], str]:
    """Return the tasks, and a digest of all that their results depend on.

    Snapshot by snapshot, so that a worker reads each of them only once. The landings of a draw are drawn from a seed of the
    snapshot's content: its name and place make no difference, and all policies have the same.

    Raises:
        PolicyError: two policies have one name, or a snapshot cannot be read.
    """
    names = [policy.name for policy in inputs.policies]
    if len(set(names)) < len(names):
        raise PolicyError([f"--policies: {_twice(names)} is there twice"])
    tasks: list[Task] = []
    every = hashlib.sha256(__version__.encode())
    for snapshot in inputs.snapshots:
        content = digest(snapshot)
        every.update(f"{content}\n".encode())
        source = absolute(snapshot)
        for policy in inputs.policies:
            for draw in range(inputs.draws):
                seed = (inputs.seed, int(content[:16], 16), draw)
                task = Task(len(tasks), policy, snapshot, "", draw, seed, inputs.setting)
                # The content counts, not the folder.
                every.update(msgspec.json.encode(task))
                tasks.append(msgspec.structs.replace(task, source=source))
    return tasks, every.hexdigest()


def compare(
    inputs: Inputs, engine: TaskEngine, *, journal_path: str | None, reached: Reached
) -> Comparison:
    """Play all tasks and compare the policies by their results.

    ``journal_path``: a file with the results so far, which an interrupted comparison goes on from. ``reached`` is called
    with each result. The comparison is the same whatever the engine, and wherever it was interrupted.

    Raises:
        PolicyError: see :func:`list_tasks`, and :func:`rebalancer.fleet.journal.open_journal`.
    """
    tasks, content = list_tasks(inputs)
    context = nullcontext(None) if journal_path is None else open_journal(journal_path, content)
    with context as journal:
        rows, failures = play_tasks(tasks, engine, journal, reached)
    return compare_rows([policy.name for policy in inputs.policies], list(rows.values()), failures)


def play_tasks(
    tasks: Sequence[Task], engine: TaskEngine, journal: TaskJournal | None, reached: Reached
) -> tuple[dict[int, Row], list[Failure]]:
    """Play the tasks that the journal has no row of, and keep their rows in it; return number -> row, and the failures."""
    known = {} if journal is None else journal.rows
    rows = {task.number: known[task.number] for task in tasks if task.number in known}
    failures: list[Failure] = []
    left = (task for task in tasks if task.number not in known)
    reached(len(rows), len(tasks))
    for result in engine.run(left):
        if isinstance(result, Failure):
            failures.append(result)
        else:
            if journal is not None:
                journal.add(result)
            rows[result.number] = result
        reached(len(rows) + len(failures), len(tasks))
    return rows, failures


def _twice(names: Sequence[str]) -> str:
    return next(name for index, name in enumerate(names) if name in names[:index])
