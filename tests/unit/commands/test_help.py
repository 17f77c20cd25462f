"""The whole help of every command, and the short one of some, byte for byte: help.txt beside this file has it.

``python -m tests.unit.commands.test_help`` writes the file anew, after a change that was meant.
"""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rebalancer.cli import main

SHORT = ((), ("plan",), ("drain",))
"""Commands whose help is in the file also as most people ask for it."""
FILE = Path(__file__).with_name("help.txt")


def _paths(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the names of a group and of all commands below it."""
    paths = [path]
    context = click.Context(group)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        assert one is not None
        whole = (*path, name)
        paths += _paths(one, whole) if isinstance(one, click.Group) else [whole]
    return paths


def help_of_all() -> str:
    texts = []
    asked = [(*path, "--help-all") for path in _paths(main)]
    for words in [*([*path, "--help"] for path in SHORT), *asked]:
        done = CliRunner().invoke(main, words, prog_name="rebalancer")
        assert done.exit_code == 0, done.output
        texts.append(f"$ {' '.join(('rebalancer', *words))}\n{done.output}")
    return "\n".join(texts)


def test_the_help_of_every_command_is_that_of_the_file():
    # In a process of its own: click keeps the flag --help as a command was first asked for it.
    done = subprocess.run(
        [sys.executable, "-m", __name__, "-"], capture_output=True, text=True, check=True
    )
    assert done.stdout == FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", _paths(main), ids=" ".join)
def test_examples_take_only_options_that_stand_above_them(path):
    text = CliRunner().invoke(main, [*path, "--help"], prog_name="rebalancer").output
    above, _, below = text.partition("\n  Examples:\n")
    command = f"rebalancer {' '.join(path)} "
    own = [line.rpartition(command)[2] for line in below.splitlines() if command in line]
    used = {word.partition("=")[0] for line in own for word in line.split() if word.startswith("-")}
    assert {option for option in used - {"-"} if not re.search(rf"{option}\b", above)} == set()


if __name__ == "__main__":
    if "-" in sys.argv:
        sys.stdout.write(help_of_all())
    else:
        FILE.write_text(help_of_all(), encoding="utf-8")
