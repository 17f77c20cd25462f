"""The command ``rebalancer tune``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rebalancer.base.data_text import data_text
from rebalancer.base.environment import Environment, system_environment
from rebalancer.base.errors import ExitCode, PolicyError
from rebalancer.base.output import create_file, say
from rebalancer.base.terminal import print_text
from rebalancer.commands.compare import (
    BUILT_IN,
    FORMS,
    PLAYING,
    PlayOptions,
    TakesLists,
    report_failures,
    show_progress,
)
from rebalancer.commands.flags import QUIET, Whole, examples, output_flag, with_flags
from rebalancer.fleet.compare import Inputs
from rebalancer.fleet.stores import list_snapshots, place_of
from rebalancer.fleet.task import Rules
from rebalancer.policy.forms import effective
from rebalancer.policy.load import LoadedPolicy
from rebalancer.registry import Registry
from rebalancer.run.options import PolicyFlags

if TYPE_CHECKING:
    from rebalancer.fleet.tune import Search, Settings, Tuning

_UNSEEN = 0.3
"""Share of the snapshots, the last ones, that the search does not see unless others are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(PlayOptions):
    """The flags of ``tune``."""

    policy: str = BUILT_IN
    vary: tuple[str, ...] = ()
    weigh: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    trials: int = 50
    out: str | None = None


def run_tune(options: TuneOptions, environment: Environment) -> ExitCode:
    """Search, print the result, and write the recommended policy.

    Raises:
        RebalancerError: a policy, a snapshot or a flag is wrong, or a file cannot be written.
    """
    from rebalancer.fleet.tune import Bounds, Goal, Search, tune  # noqa: PLC0415
    from rebalancer.fleet.work import as_rules  # noqa: PLC0415

    registry = Registry.installed()

    def load(name: str, settings: Settings = ()) -> LoadedPolicy:
        if name == "-":
            raise PolicyError(["--policy -: is read many times; name a file"])
        texts = tuple(f"{key}={value}" for key, value in settings)
        path = None if name == BUILT_IN else name
        return PolicyFlags(policy_path=path, settings=texts).load(registry)

    def load_rules(settings: Settings, name: str) -> Rules:
        return as_rules(load(options.policy, settings), name)

    searched, unseen = _split(options)
    inputs = Inputs(
        policies=(load_rules((), options.policy),),
        snapshots=searched,
        draws=options.draws,
        seed=options.seed,
        setting=options.setting(as_rules(load(options.judge), options.judge)),
    )
    space = tuple(map(Bounds.parse, options.vary))
    search = Search(space, Goal.parse(options.weigh), inputs, unseen, options.trials)
    engine = options.engine(environment)
    with show_progress(environment, "tuning", quiet=options.quiet) as reached:
        tuning = tune(search, load_rules, engine, journal_path=options.resume, reached=reached)
    print_text(environment, _render(tuning, search, options), options.output)
    if options.out is not None:
        _write_policy(options.out, tuning, search, load, options.policy, environment)
    return report_failures(environment, len(tuning.failures), tuning.played)


def _split(options: TuneOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the snapshots of the search, and those that it does not see.

    Raises:
        PolicyError: there are too few, or one is in both.
    """
    every = list_snapshots(options.snapshots)
    if options.unseen:
        unseen = list_snapshots(options.unseen)
        searched = set(map(place_of, every))
        if both := [one for one in unseen if place_of(one) in searched]:
            raise PolicyError([f"--unseen: {min(both)} is in --snapshots, too"])
        return tuple(every), tuple(unseen)
    number = round(len(every) * _UNSEEN) or 1
    if len(every) < 2:
        raise PolicyError(
            [
                "--snapshots: tune needs two or more: the last ones are for the check of what it finds"
            ]
        )
    # Recordings beside each other are alike: a gap lies between the two.
    gap = len(every) // 10
    return tuple(every[: -number - gap]), tuple(every[-number:])


def _render(tuning: Tuning, search: Search, options: TuneOptions) -> str:
    from rebalancer.fleet import tuning_report  # noqa: PLC0415

    if options.output == "table":
        return tuning_report.as_text(tuning, search)
    if options.output == "html":
        return tuning_report.as_html(tuning, search)
    return data_text(tuning_report.as_data(tuning, search, options.judge), options.output)


def _write_policy(
    path: str, tuning: Tuning, search: Search, load: Any, name: str, environment: Environment
) -> None:
    """Write the recommended policy; nothing where there is none, and say so.

    Raises:
        PolicyError: the file cannot be written.
    """
    from rebalancer.fleet.tuning_report import policy_file  # noqa: PLC0415

    if tuning.recommended is None:
        say(environment.err, f"rebalancer: {path} is not written: no other policy is recommended")
        return
    text = policy_file(effective(load(name, tuning.recommended.settings).policy), tuning, search)
    try:
        with create_file(Path(path)) as file:
            file.write(text.encode())
    except OSError as error:
        raise PolicyError([f"{path}: cannot be written: {error.strerror or error}"]) from None


@click.command(
    "tune",
    cls=TakesLists,
    epilog=examples(
        "rebalancer tune --vary eagerness=careful,steady,eager --vary budgets.perRun=5%..30% --snapshots recorded/ --out tuned.yaml",
        "rebalancer tune --policy p.yaml --vary strategies.low-utilisation.over.cpu=40%..80% --weigh unevenness=100 --snapshots"
        " recorded/ -o html > tuned.html",
    ),
)
@click.option(
    "--policy",
    default=BUILT_IN,
    show_default=True,
    metavar="FILE|DIRECTORY|default",
    help="The policy to begin with.",
)
@click.option(
    "--vary",
    multiple=True,
    required=True,
    metavar="KEY=LOW..HIGH|KEY=A,B",
    help="A key of the policy, and the values that it may take; may be repeated.",
)
@click.option(
    "--snapshots",
    multiple=True,
    required=True,
    metavar="FILE|DIRECTORY|s3://... ...",
    help="Snapshots of the search. Without --unseen the last 30 % are for the check, and a tenth before them is left out.",
)
@click.option(
    "--unseen",
    multiple=True,
    metavar="FILE|DIRECTORY|s3://... ...",
    help="Snapshots that only the check of the best policy sees.",
)
@click.option(
    "--weigh",
    multiple=True,
    metavar="MEASURE=NUMBER",
    help="What one of a measure counts: evictions=0.5, hardLeft=10, softLeft=1, all others 0; may be repeated.",
)
@click.option(
    "--trials",
    type=Whole(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Policies to try; all, if there are no more.",
)
@with_flags(PLAYING)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the recommended policy to this file, with the reasons.",
)
@with_flags([output_flag(*FORMS, of="result"), QUIET])
def command(**flags: Any) -> int:
    """Search a better policy on snapshots, and check it on others.

    Keys of the policy take values within bounds, and each policy is played on each snapshot as compare does. What is small in the
    end is the sum of what is left and of evictions, by --weigh; more may not be left for hard rules than by the policy to begin
    with. Needs the extra tune. Ends with code 4 if a simulation failed.
    """
    return int(run_tune(TuneOptions(**flags), system_environment()))
