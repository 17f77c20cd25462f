"""``demo``: the story in an embedded cluster, shown with the command ``run`` itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rebalancer.commands import run
from rebalancer.commands.call import call
from rebalancer.embedded.demo import run_demo


@click.command("demo")
@click.option("--speed", type=click.FloatRange(min=0.1), default=1.0, show_default=True)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the plan of the second part to FILE, as HTML.",
)
def command(speed: float, report: Path | None) -> int:
    """Tell the story in an embedded cluster.

    Drift, plan, evictions, landings, silence.
    """
    return int(run_demo(speed=speed, run=_run, report=report))


def _run(argv: Sequence[str]) -> int:
    """Carry out ``run`` with these arguments, the name of the command first."""
    return call(run.command, argv[1:])
