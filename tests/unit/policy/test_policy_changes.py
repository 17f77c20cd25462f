"""Policies changed by flags: --set, --strategy, --mode; and policies from places that are none."""

import io
import os

import pytest

from rebalancer.base.errors import PolicyError
from rebalancer.policy.forms import plain, policy_hash
from rebalancer.policy.load import load_policy
from rebalancer.policy.sources import PolicyChanges
from rebalancer.registry import Registry

KNOWN = Registry.installed()
FILE = """\
apiVersion: rebalancer/v1
kind: Policy
windows: [{allow: "0 22 * * *", for: 8h}]
strategies:
  duplicates:
  topology-spread: {constraints: [hard]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)
    return path


def changed(path, *settings, only=(), mode=None):
    return load_policy(path, KNOWN, PolicyChanges(settings, only, mode))


def at(loaded, *path):
    value = plain(loaded.policy)
    for part in path:
        value = value[part]
    return value


@pytest.mark.parametrize(
    ("settings", "only", "left_out"),
    [
        ([], (), ()),
        (["protect.minPodAge=0s"], (), ()),
        ([], ("duplicates",), ("topology-spread",)),
        ([], ("duplicates", "topology-spread", "taints"), ()),
        (["strategies.duplicates.mode=off"], (), ("duplicates",)),
        (["strategies.duplicates={mode: off}"], (), ("duplicates",)),
        (["strategies.duplicates.mode=observe"], (), ()),
    ],
)
def test_the_strategies_that_flags_leave_out_are_known(file, settings, only, left_out):
    assert changed(file, *settings, only=only).left_out == left_out


@pytest.mark.parametrize("built_in", [True, False])
@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("protect.minPodAge=0s", ("protect", "minPodAge"), "0s"),
        ("budgets.perRun=5", ("budgets", "perRun"), 5),
        ("eagerness=eager", ("eagerness",), "eager"),
        (
            "strategies.topology-spread.constraints=[soft]",
            ("strategies", "topology-spread", "constraints"),
            ["soft"],
        ),
        ("strategies.duplicates.mode=off", ("strategies", "duplicates", "mode"), "off"),
        ("strategies.taints={weight: 3}", ("strategies", "taints", "weight"), 3.0),
    ],
)
def test_any_key_can_be_set(file, built_in, setting, path, value):
    loaded = changed(None if built_in else file, setting)
    assert at(loaded, *path) == value
    assert loaded.policy_hash == policy_hash(loaded.policy)
    assert f"the policy was changed by --set {setting}" in loaded.warnings


def test_an_item_of_a_list_can_be_set_and_the_last_setting_holds(file):
    loaded = changed(
        file, "windows[0].for=1h", "windows[0].for=2h", "strategies.duplicates.weight=2"
    )
    assert at(loaded, "windows", 0, "for") == "2h"
    assert at(loaded, "strategies", "duplicates", "weight") == 2.0
    assert at(loaded, "strategies", "topology-spread", "constraints") == ["hard"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "protect.minPodAg=0s",
            "--set protect.minPodAg=0s: protect.minPodAg: unknown key; did you mean minPodAge?",
        ),
        (
            "protect.minPodAge=soon",
            '--set protect.minPodAge=soon: protect.minPodAge: "soon" is no duration',
        ),
        (
            "strategies.duplicate.mode=off",
            "--set strategies.duplicate.mode=off: unknown strategy duplicate; did you mean duplicates?",
        ),
        ("strategies.zzz.mode=off", "topology-spread. A name of your own needs the key strategy"),
        (
            "strategies.duplicates.wait=1",
            "--set strategies.duplicates.wait=1: strategies.duplicates.wait: unknown key; did you mean weight?",
        ),
        (
            "minPodAge=0s",
            "--set minPodAge=0s: minPodAge: unknown key; did you mean protect.minPodAge?",
        ),
        ("minpodag=0s", "unknown key; did you mean protect.minPodAge?"),
        ("protect.perRun=3", "unknown key; did you mean budgets.perRun?"),
        ("modd=off", "unknown key; did you mean mode?"),
        ("scaling.x=1", "--set scaling.x=1: scaling: unknown key"),
        ("budgets.a.b=1", "--set budgets.a.b=1: budgets.a: unknown key"),
        ("budgets.perRun", "--set budgets.perRun: write --set KEY=VALUE, such as budgets.perRun=5"),
        ("=5", "--set =5: write --set KEY=VALUE"),
        (".a=5", "--set .a=5: write --set KEY=VALUE"),
        ("mode.x=5", "lies below a value"),
        ("windows[7].for=1h", "lies below a value"),
        ("strategies=5", "name a strategy"),
        ("budgets.perRun=[", "is not YAML"),
        ("apiVersion.x=1", "lies below a value"),
    ],
)
def test_what_is_wrong_is_said_with_the_flag(file, setting, said):
    if setting == "mode.x=5":
        file.write_text(f"mode: enforce\n{FILE}")
    with pytest.raises(PolicyError) as error:
        changed(file, setting)
    assert said in str(error.value)


def test_errors_of_the_file_keep_their_lines_beside_those_of_flags(file):
    file.write_text(f"{FILE}nope: 1\n")
    with pytest.raises(PolicyError) as error:
        changed(file, "eagernes=eager")
    assert [text.split(": ")[0] for text in error.value.problems] == [
        f"{file}:7",
        "--set eagernes=eager",
    ]


@pytest.mark.parametrize("built_in", [True, False])
def test_only_these_strategies(file, built_in):
    loaded = changed(None if built_in else file, only=("duplicates", "taints"))
    assert set(loaded.policy.strategies) == {"duplicates", "taints"}


def test_an_unknown_strategy_is_an_error():
    with pytest.raises(
        PolicyError, match="--strategy duplicate: unknown strategy duplicate; did you mean"
    ):
        changed(None, only=("duplicate",))


def test_the_mode_of_the_flag_holds_and_strategies_stay_stricter(file):
    loaded = changed(file, "strategies.duplicates.mode=observe", mode="enforce")
    assert at(loaded, "mode") == "enforce"
    assert at(loaded, "strategies", "duplicates", "mode") == "observe"
    assert at(changed(None, mode="off"), "mode") == "off"


def test_without_changes_nothing_is_said(file):
    assert not [text for text in load_policy(file, KNOWN).warnings if "changed by" in text]


def test_standard_input():
    loaded = load_policy("-", KNOWN, stdin=io.BytesIO(FILE.encode()))
    assert (loaded.source, set(loaded.policy.strategies)) == (
        "standard input",
        {"duplicates", "topology-spread"},
    )


def test_a_pipe_without_a_writer_and_a_device_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(
            PolicyError, match="is no regular file; --policy - reads standard input"
        ):
            load_policy(path, KNOWN)


def test_a_policy_of_the_descheduler_names_migrate(file):
    file.write_text('apiVersion: "descheduler/v1alpha2"\nkind: "DeschedulerPolicy"\n')
    with pytest.raises(PolicyError, match=f"rebalancer policy migrate {file} turns it into one"):
        load_policy(file, KNOWN)


def test_a_directory_whose_policy_has_another_name_says_which_it_needs(file):
    with pytest.raises(PolicyError) as error:
        load_policy(file.parent, KNOWN)
    (problem,) = error.value.problems
    assert f"stands in rebalancer.yaml: rename the file to that, or give --policy {file}" in problem
