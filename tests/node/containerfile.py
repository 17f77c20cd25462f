"""Carries out the build stage of our Containerfile, step by step, as far as that goes without a base image.

The base image gives an interpreter with pip: here, a fresh virtual environment of this interpreter does.
"""

import json
import shlex
import shutil
import subprocess
import venv
from pathlib import Path

from image.root import SOURCE

_SECONDS = 1200.0


class ContainerfileError(Exception):
    """The Containerfile has a step that is not understood here, or that could not work."""


def build(folder: Path, source: Path = SOURCE) -> Path:
    """Carry the steps of ``source`` out below ``folder``; return the directory that becomes the image's root.

    Raises:
        ContainerfileError: see there.
        subprocess.CalledProcessError: a step failed.
    """
    environment, work, root = folder / "environment", folder / "work", folder / "image"
    venv.create(environment, with_pip=True)
    work.mkdir()
    for step, text in _steps(source):
        match step:
            case "WORKDIR":
                pass
            case "COPY":
                _copy(shlex.split(text), source, work)
            case "RUN":
                _run(json.loads(text), environment, work, root)
            case _:
                raise ContainerfileError(f"no idea how to {step} {text}")
    return root


def _steps(source: Path) -> list[list[str]]:
    """Return the steps of the build stage after its FROM: each a word and the rest of its line."""
    lines = (source / "Containerfile").read_text().splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    stages = [index for index, (step, _) in enumerate(steps) if step == "FROM"]
    if len(stages) != 2 or steps[stages[1] + 1] != ["COPY", "--from=build /image /"]:
        raise ContainerfileError("a build stage, then one that takes its /image, are expected")
    return steps[stages[0] + 1 : stages[1]]


def _copy(words: list[str], context: Path, work: Path) -> None:
    """Copy what a builder would have: ``.containerignore`` keeps all back but what it names."""
    lines = (context / ".containerignore").read_text().splitlines()
    *sources, target = words
    for source in sources:
        name = source.rstrip("/")
        if f"!{name.partition('/')[0]}" not in lines:
            raise ContainerfileError(f"COPY {source}: .containerignore keeps it back")
        if (context / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(context / name, work / target, ignore=ignored, dirs_exist_ok=True)
        else:
            (work / target).mkdir(parents=True, exist_ok=True)
            shutil.copy2(context / name, work / target)


def _run(command: list[str], environment: Path, work: Path, root: Path) -> None:
    """Run a step with the environment's interpreter; it writes what it would write to /image into ``root``."""
    places = {"python": str(environment / "bin" / "python"), "/image": str(root)}
    named = [places.get(word, word) for word in command]
    subprocess.run(named, check=True, cwd=work, stdin=subprocess.DEVNULL, timeout=_SECONDS)
