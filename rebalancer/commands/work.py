"""The command ``rebalancer work``, which ``compare --kubernetes`` starts in its pods."""

from __future__ import annotations

from collections.abc import Mapping

import click

from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import say
from rebalancer.commands.flags import examples
from rebalancer.fleet.indexed_job import play_part
from rebalancer.fleet.stores import store_of

_INDEX = "JOB_COMPLETION_INDEX"
"""Set by the Job controller in the pods of an Indexed Job."""


def index_of(environ: Mapping[str, str]) -> int:
    """Return the index of this pod in its Job, from 0.

    Raises:
        PolicyError: it is no pod of an Indexed Job.
    """
    index = environ.get(_INDEX, "")
    if not index.isdecimal():
        raise PolicyError([f"{_INDEX} is not set: only the pod of an Indexed Job has a part"])
    return int(index)


def run_work(where: str, environment: Environment) -> ExitCode:
    """Play the tasks of the Job index in the environment.

    Raises:
        PolicyError: there is no index, or the place of the tasks cannot be used.
    """
    index = index_of(environment.environ)
    number = play_part(store_of(where), index)
    say(environment.err, f"part {index}: {number} simulations")
    return ExitCode.DONE


@click.command(
    "work",
    epilog=examples("rebalancer work s3://snapshots/prod/.work/rebalancer-compare-0123456789ab"),
)
@click.argument("where", metavar="DIRECTORY|s3://...")
def command(where: str) -> int:
    """Play a part of a comparison, in a pod of its Job.

    compare --kubernetes starts it, with the part of the pod in JOB_COMPLETION_INDEX.
    """
    return int(run_work(where, system_environment()))
