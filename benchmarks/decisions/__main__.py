"""The command line: ``python -m benchmarks.decisions run``, ``table``, and more."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.decisions.scenarios import OF_ANY_SHAPE, SCENARIOS
from benchmarks.decisions.tables import as_line


def main(argv: Sequence[str] | None = None) -> int:
    """Play scenarios, or print what was played."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play scenarios on a real control plane")
    run.add_argument("--scenarios", help="names, by commas; all that can be played by default")
    run.add_argument(
        "--recorded",
        type=Path,
        metavar="FOLDER",
        help="draw nodes and workloads from the recorded clusters in this folder "
        f"(scenarios {', '.join(OF_ANY_SHAPE)})",
    )
    run.add_argument("--seeds", default="0", help="numbers, by commas")
    run.add_argument("--nodes", type=int, default=30)
    run.add_argument(
        "--contenders", default="peer,ours,lifted", help="of peer, peer-soft, ours, lifted, marks"
    )
    run.add_argument("--after", type=int, default=3, help="runs of ours after the first silent one")
    run.add_argument("--peer-runs", type=int, default=10)
    run.add_argument("--solver-seconds", type=float, default=60.0)
    run.add_argument(
        "--again",
        action="store_true",
        help="on the clusters kept in --out; contenders that are not named keep their figures",
    )
    run.add_argument("--out", type=Path, default=Path(".cache/decisions"), help="results go here")
    table = commands.add_parser("table", help="print the tables of what was played")
    table.add_argument("--out", type=Path, default=Path(".cache/decisions"))
    table.add_argument("--no-times", action="store_true", help="the machine was not ours alone")
    summary = commands.add_parser("summary", help="one table over what was played in many folders")
    summary.add_argument("sets", nargs="+", metavar="NAME=FOLDER", help="a name, and its --out")
    simulated = commands.add_parser(
        "simulated", help="rebalancer simulate beside what was played live"
    )
    simulated.add_argument("--out", type=Path, default=Path(".cache/decisions"))
    simulated.add_argument("--draws", type=int, default=10, help="drawn courses at each pace")
    repeat = commands.add_parser(
        "repeat", help="ours again and again on the clusters kept in --out"
    )
    repeat.add_argument("--out", type=Path, default=Path(".cache/decisions"))
    repeat.add_argument("--contenders", default="ours,lifted", help="of ours, lifted")
    repeat.add_argument("--times", type=int, default=2, help="convergences more of each")
    silence = commands.add_parser("silence", help="run on and on after the first silent run")
    silence.add_argument("--scenarios", default=",".join(SCENARIOS), help="names, by commas")
    silence.add_argument("--seed", type=int, default=0)
    silence.add_argument("--nodes", type=int, default=18)
    silence.add_argument("--runs", type=int, default=20, help="under each condition")
    small = commands.add_parser("small", help="search small instances for a better plan than ours")
    small.add_argument("--examples", type=int, default=200)
    small.add_argument("--seed", type=int, default=0)
    small.add_argument("--out", type=Path, default=Path(".cache/decisions/small"))
    check = commands.add_parser("check", help="the proven optimum against all placements")
    check.add_argument("--examples", type=int, default=50)
    check.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    commands_of = {
        "run": _run,
        "table": _table,
        "summary": _summary,
        "simulated": _simulated,
        "repeat": _repeat,
        "silence": _silence,
        "small": _small,
        "check": _check,
    }
    return commands_of[options.command](options)


def _run(options: argparse.Namespace) -> int:
    from benchmarks.decisions.duel import Plan, play  # noqa: PLC0415 - needs scipy
    from benchmarks.decisions.recorded import recorded  # noqa: PLC0415
    from tests.controlplane import ControlPlane  # noqa: PLC0415

    playable = SCENARIOS if options.recorded is None else OF_ANY_SHAPE
    chosen = options.scenarios.split(",") if options.scenarios else list(playable)
    if unknown := [name for name in chosen if name not in playable]:
        _say(f"cannot play {', '.join(unknown)} here: choose of {', '.join(playable)}")
        return 2
    try:
        shapes = None if options.recorded is None else recorded(options.recorded)
    except ValueError as error:
        _say(f"--recorded: {error}")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    with ControlPlane() as plane:
        for scenario in chosen:
            for seed in map(int, options.seeds.split(",")):
                plan = Plan(
                    scenario,
                    seed,
                    options.nodes,
                    tuple(options.contenders.split(",")),
                    options.after,
                    options.peer_runs,
                    options.solver_seconds,
                    recorded=shapes is not None,
                )
                name = f"{'recorded-' if shapes else ''}{scenario}-{options.nodes}-{seed}"
                path = options.out / f"{name}.json"
                again = options.again and path.exists()
                earlier = json.loads(path.read_text()) if again else None
                try:
                    played = play(
                        plane, plan, options.out / name, _say, earlier=earlier, shapes=shapes
                    )
                except (TimeoutError, RuntimeError) as error:
                    _say(f"{name} FAILED: {error}")
                    failed += 1
                    continue
                path.write_text(json.dumps(played, indent=1) + "\n")
                _say(as_line(played))
    return 1 if failed else 0


def _table(options: argparse.Namespace) -> int:
    from benchmarks.decisions.tables import markdown  # noqa: PLC0415

    _say(markdown(_results(options.out), timed=not options.no_times))
    return 0


def _summary(options: argparse.Namespace) -> int:
    from benchmarks.decisions.summary import summary  # noqa: PLC0415

    named = [one.partition("=") for one in options.sets]
    _say(summary({name: _results(Path(folder)) for name, _, folder in named}))
    return 0


def _results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _simulated(options: argparse.Namespace) -> int:
    from benchmarks.decisions.simulated import compare, markdown  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="decisions-") as scratch:
        policy = Path(scratch) / "rebalancer.yaml"
        _say(markdown(list(compare(options.out, options.draws, policy, _say))))
    return 0


def _repeat(options: argparse.Namespace) -> int:
    from benchmarks.decisions.repeats import repeat  # noqa: PLC0415
    from tests.controlplane import ControlPlane  # noqa: PLC0415

    contenders = options.contenders.split(",")
    with ControlPlane() as plane:
        for path in sorted(options.out.glob("*.json")):
            result = json.loads(path.read_text())
            kept = options.out / path.stem
            more = repeat(plane, result, kept, contenders, options.times, _say)
            path.write_text(json.dumps(more, indent=1) + "\n")
    return 0


def _silence(options: argparse.Namespace) -> int:
    from benchmarks.decisions.silence import markdown, outlast  # noqa: PLC0415
    from tests.controlplane import ControlPlane  # noqa: PLC0415

    silences, failed = [], 0
    with (
        ControlPlane() as plane,
        tempfile.TemporaryDirectory(prefix="decisions-") as scratch,
    ):
        for name in options.scenarios.split(","):
            plane.reset()
            try:
                SCENARIOS[name](plane, seed=options.seed, nodes=options.nodes)
                silences.append(
                    outlast(plane, f"{name}, {options.seed}", Path(scratch), options.runs)
                )
            except (TimeoutError, RuntimeError) as error:
                _say(f"{name} FAILED: {error}")
                failed += 1
            else:
                # As it comes: ten drifts take an hour, and what is measured by then should be seen.
                _say(markdown(silences[-1:]))
    _say(markdown(silences))
    return 1 if failed or any(one.started_again for one in silences) else 0


def _small(options: argparse.Namespace) -> int:
    from benchmarks.decisions.small import search  # noqa: PLC0415 - needs scipy

    return search(options.examples, options.seed, options.out, _say)


def _check(options: argparse.Namespace) -> int:
    from benchmarks.decisions.brute import check  # noqa: PLC0415 - needs scipy

    return check(options.examples, options.seed, _say)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
