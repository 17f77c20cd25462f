"""``explain code``: every code has a meaning, and every reason says what changes it."""

import json

import click
import pytest

from rebalancer.cli import command
from rebalancer.commands.explain import _all_codes, _complete_codes
from rebalancer.commands.explain import command as command_group
from rebalancer.explain.text import list_codes
from rebalancer.plan.plan import Code
from rebalancer.snapshot.protect import NAMES


def test_every_code_has_a_meaning_and_every_reason_has_advice():
    codes = _all_codes()
    assert all(one.meaning.endswith(".") for one in codes)
    reasons = {one.code: one for one in codes if one.about == "a pod that stays"}
    assert set(reasons) == {code.value for code in Code}
    assert all(one.advice for one in reasons.values())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("lowgain", "Something improves, but less than the policy asks for"),
        ("LowGain", "LowGain (a node that may be emptied)"),
        ("localStorage", "`protect: {localStorage: false}` lets them move"),
        ("blocked", "the outcome of a move"),
    ],
)
def test_a_code_is_explained_in_any_case_and_for_all_that_it_is_said_of(code, text, capsys):
    assert command(["explain", "code", code]) == 0
    if code != code.lower():
        # No object has such a name: neither a cluster nor a file is needed.
        assert command(["explain", code]) == 0
    assert text in capsys.readouterr().out


def test_every_protection_has_a_meaning():
    known = {one.code.lower() for one in list_codes({"a reason": Code})}
    assert [name for name in NAMES if name.lower() not in known] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("LowGian", "'LowGian'; did you mean LowGain? `rebalancer explain code` lists all"),
        ("lowgian", "'lowgian'; did you mean LowGain? `rebalancer explain code` lists all"),
        ("Qux", "'Qux'; `rebalancer explain code` lists all"),
    ],
)
def test_an_unknown_code_is_an_error_that_names_what_was_meant(code, said, capsys):
    assert command(["explain", "code", code]) == 2
    assert f"there is no code {said}" in capsys.readouterr().err


def test_as_data_there_are_all_of_them(capsys):
    assert command(["explain", "code", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kind"] == "CodeExplanation"
    assert len(data["codes"]) == len(_all_codes())


def test_a_shell_completes_codes_with_their_meanings():
    context = click.Context(command_group.commands["code"])
    parameter = context.command.params[0]
    assert [item.value for item in _complete_codes(context, parameter, "unsu")] == ["Unsure"]
