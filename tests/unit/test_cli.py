import importlib
import pkgutil

import click
import pytest
from click.testing import CliRunner

import rebalancer.commands
from rebalancer.cli import _COMMANDS, main


def modules_with_a_command() -> set[str]:
    names = {module.name for module in pkgutil.iter_modules(rebalancer.commands.__path__)}
    return {
        name
        for name in names
        if hasattr(importlib.import_module(f"rebalancer.commands.{name}"), "command")
    }


def test_every_module_with_a_command_is_in_the_table_and_no_other() -> None:
    assert set(_COMMANDS) == modules_with_a_command()


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_the_table_says_what_the_commands_own_help_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").partition("\n\n")[0] == _COMMANDS[name]


def test_help_lists_each_command_whole() -> None:
    printed = CliRunner().invoke(main, ["--help"]).output
    for name, sentence in _COMMANDS.items():
        assert f"{name:<10}" in printed
        assert sentence in printed


def test_an_unknown_command_is_refused() -> None:
    done = CliRunner().invoke(main, ["rum"])
    assert done.exit_code == 2
    assert "No such command 'rum'" in done.output
