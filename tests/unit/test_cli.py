import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import rebalancer.commands
from rebalancer.cli import _COMMANDS, _GROUPS, _MODULES, main
from rebalancer.commands.panels import _PANELS
from tests.docs.pages import DOCS


def modules_with_a_command() -> set[str]:
    names = {module.name for module in pkgutil.iter_modules(rebalancer.commands.__path__)}
    return {
        name
        for name in names
        if hasattr(importlib.import_module(f"rebalancer.commands.{name}"), "command")
    }


def every(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, by its whole name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if (
            not isinstance(command, click.Group) or command.invoke_without_command
        ) and not command.hidden:
            yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from every(command, (*path, name))


COMMANDS = dict(every(main))


def test_every_module_with_a_command_is_in_the_table_and_no_other():
    modules = {_MODULES.get(name, name.replace("-", "_")) for name in _COMMANDS}
    assert modules == modules_with_a_command()


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_the_table_says_what_the_commands_own_help_says(name):
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").partition("\n\n")[0] == _COMMANDS[name]


def test_help_lists_each_command_whole():
    printed = CliRunner().invoke(main, ["--help-all"]).output
    for name, sentence in _COMMANDS.items():
        assert f"{name:<10}" in printed
        assert sentence in printed


def test_help_lists_commands_below_what_they_are_for():
    printed = CliRunner().invoke(main, ["--help-all"]).output
    places = [printed.index(f"\n{heading}:\n") for heading in _GROUPS]
    assert places == sorted(places)
    for (heading, commands), place in zip(_GROUPS.items(), places, strict=True):
        section = printed[place:].partition("\n\n")[0]
        assert re.findall(r"^  (\S+) ", section, re.MULTILINE) == list(commands), heading


@pytest.mark.parametrize(
    ("others", "ours"),
    [
        (["help"], ["--help"]),
        (["help", "plan"], ["plan", "--help"]),
        (["help", "policy", "check"], ["policy", "check", "--help"]),
        (["version"], ["--version"]),
        (["policy", "validate", "--help"], ["policy", "check", "--help"]),
        (["policy", "schema", "--help"], ["schema", "policy", "--help"]),
        (["report", "schema", "--help"], ["schema", "report", "--help"]),
        (["strategies", "--help"], ["policy", "strategies", "--help"]),
    ],
)
def test_what_other_programs_call_a_command_does_the_same_without_a_word(others, ours):
    theirs, now = CliRunner().invoke(main, others), CliRunner().invoke(main, ours)
    assert (theirs.exit_code, theirs.output) == (0, now.output)


FILE = "docs/examples/zone-back.zip"


@pytest.mark.parametrize(
    "words",
    [
        [FILE],
        [FILE, "--dry-run"],
        [FILE, "--dry-run=client"],
        [FILE, "-A"],
        [FILE, "--snapshot", FILE],
    ],
)
def test_a_plan_takes_its_file_and_the_flags_of_kubectl(words):
    asked = CliRunner().invoke(main, ["plan", *words, "-o", "csv"])
    assert asked.exit_code == 0, asked.output
    expected = CliRunner().invoke(main, ["plan", "--snapshot", FILE, "-o", "csv"])
    assert asked.stdout == expected.stdout


def sections(name: str, asked: str = "--help-all") -> dict[str, list[str]]:
    """Return heading -> the flags of a command's help."""
    printed = CliRunner().invoke(main, [*name.split(), asked]).output
    parts = re.split(r"^(\S[^:\n]*):$", printed, flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return {
        head: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE) for head, text in found
    }


@pytest.mark.parametrize("name", ["run", "plan"])
def test_help_begins_with_the_few_flags_that_most_calls_need(name):
    first, *panels = sections(name).items()
    assert first[0] == "Options"
    assert len(first[1]) <= 10
    assert {"--policy", "--snapshot", "--output"} <= set(first[1])
    assert [head for head, _ in panels] == [head for head in _PANELS if head in dict(panels)]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_some_of_the_options_and_that_there_are_others(name):
    few, whole = sections(name, "--help"), sections(name)
    assert few.items() <= whole.items()
    assert {"--help", "--help-all"} <= set(few["Options"])


def test_help_shows_the_commands_that_most_people_need_and_says_how_to_see_the_others():
    printed = CliRunner().invoke(main, ["--help"], prog_name="rebalancer").output
    listed = set(re.findall(r"^  ([a-z][a-z-]+) ", printed, re.MULTILINE))
    assert {"plan", "run", "drain", "policy"} <= listed < set(_COMMANDS)
    assert "All commands: rebalancer --help-all" in printed


def test_the_options_of_many_commands_are_listed_by_themselves():
    printed = CliRunner().invoke(main, ["options"]).output
    assert {"--kubeconfig", "--quiet", "--lease"} <= set(re.findall(r"--[\w-]+", printed))
    assert "--policy" not in printed.split()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_in_the_help_or_on_a_page(name):
    flags = [flag for flag in COMMANDS[name].params if isinstance(flag, click.Option)]
    listed = {flag for of in sections(name).values() for flag in of}
    shown = {flag.opts[-1] for flag in flags if not flag.hidden}
    assert shown <= listed
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    assert [flag.opts[-1] for flag in flags if flag.hidden and flag.opts[-1] not in pages] == []


def test_every_panel_names_flags_that_there_are():
    names = {flag.name for command in COMMANDS.values() for flag in command.params}
    assert {name for of in _PANELS.values() for name in of} - names == set()


def test_an_unknown_command_is_refused():
    done = CliRunner().invoke(main, ["rum"])
    assert done.exit_code == 2
    assert "No such command 'rum'; did you mean run?" in done.output


_NO_EXAMPLE = {
    "completion",
    "options",
    "demo drift",
    "policy strategies",
    "schema policy",
    "schema report",
}
"""Commands that are called in one way only."""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_the_command_takes(name):
    command = COMMANDS[name]
    lines = re.findall(r"^  .*?(rebalancer [^>|\n]+)", command.epilog or "", re.MULTILINE)
    assert bool(lines) is (name not in _NO_EXAMPLE)
    for line in lines:
        _, *words = shlex.split(line)
        assert words[: len(name.split())] == name.split()
        rest = words[len(name.split()) :]
        command.make_context(name, rest)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_has_a_text_and_names_what_it_takes(name):
    for flag in COMMANDS[name].params:
        if isinstance(flag, click.Option):
            assert flag.help, flag.name
            assert flag.help[0].isupper() or flag.help[0] == "2", flag.help
            assert flag.help.endswith((".", ")")), flag.help
            metavar = flag.make_metavar(click.Context(COMMANDS[name]))
            assert "RANGE" not in metavar, flag.name
            assert metavar not in {"TEXT", "INTEGER", "FLOAT"} or flag.name == "reason", flag.name


def test_numbers_are_written_in_the_digits_0_to_9():
    for words in (["run", "--max-requests", "\uff18"], ["simulate", "--cycles", "\u0665"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert "is no whole number" in done.output
