"""Every kept input, seed or former defect, is read or refused; and no seed is refused for a trifle."""

import importlib

import pytest

from tests.fuzz.__main__ import TARGETS
from tests.fuzz.target import CORPUS, Target, joined, kept, split


def target(name: str) -> Target:
    chosen = importlib.import_module(f"tests.fuzz.fuzz_{name}").TARGET
    assert isinstance(chosen, Target)
    return chosen


INPUTS = [(name, path) for name in TARGETS for path in kept(name)]


@pytest.mark.parametrize(("name", "path"), INPUTS, ids=lambda value: getattr(value, "name", value))
def test_a_kept_input_is_read_or_refused(name, path):
    target(name)(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_a_seed_that_is_read(name):
    seeds = [path for path in kept(name) if path.name.startswith("seed-")]
    assert seeds
    for path in seeds:
        target(name).read(path.read_bytes())


def test_every_folder_of_inputs_has_a_target():
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(TARGETS)


def test_parts_of_an_input_come_apart_again():
    assert split(joined(b"a", b"", b"ccc", b"d" * 300)) == [b"a", b"", b"ccc", b"d" * 300]
    assert split(b"\xff\xff") == [b"", b""]
    assert split(b"") == [b""]
