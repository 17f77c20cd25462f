"""Selectors of devices in CEL: what is in the subset has CEL's values, and all else is refused."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.snapshot.device_selectors import (
    FailedSelectorError,
    UnsupportedSelectorError,
    compile_selector,
    describe_device,
)
from rebalancer.wire.devices import Device

DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "A100"},
        "index": {"int": 3},
        "ecc": {"bool": True},
        "driver": {"version": "1.10.0"},
        "other.example.org/numa": {"int": 1},
    },
    "capacity": {"memory": {"value": "40Gi"}, "slices": {"value": 7}},
}
OF = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'


def ask(expression: str, device: object = DEVICE) -> bool:
    described = describe_device("gpu.example.com", msgspec.convert(device, Device))
    return compile_selector(expression).matches(described)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        ("device.driver != 'gpu.example.com'", False),
        (f'{OF}.model == "A100" && {OF}.index == 3', True),
        (f'{OF}["model"] in ["H100", "A100"]', True),
        (f"{OF}.index in [1, 2]", False),
        (f"{OF}.ecc", True),
        (f"!{OF}.ecc || {OF}.index >= 3", True),
        (f'{OF}.model < "B"', True),
        (f"{OF}.index > -1", True),
        (f'{OF}.index == "3"', False),
        ('device.attributes["other.example.org"].numa == 1', True),
        ('"numa" in device.attributes["other.example.org"]', True),
        ('"numa" in device.attributes["nobody.example.org"]', False),
        (f"has({OF}.model) && !has({OF}.colour)", True),
        ("has(device.driver) && has(device.attributes.nobody)", True),
        (f'{MEMORY}.compareTo(quantity("9E")) < 0', True),
        (f'{MEMORY}.compareTo(quantity("40Gi")) == 0', True),
        (f'{MEMORY}.isGreaterThan(quantity("42949672959"))', True),
        (f'{MEMORY} == quantity("40960Mi")', True),
        ('device.capacity["gpu.example.com"].slices.isLessThan(quantity("7"))', False),
        (f'{OF}.driver.isGreaterThan(semver("1.9.9"))', True),
        (f'{OF}.model.startsWith("A1") && {OF}.model.contains("10")', True),
        # What decides outweighs what fails.
        (f"{OF}.colour == 1 || {OF}.ecc", True),
        (f"{OF}.colour == 1 && !{OF}.ecc", False),
        ("device.allowMultipleAllocations", False),
        (f"(({OF}.index)) == 3 // the third", True),
    ],
)
def test_an_expression_has_the_value_that_cel_gives_it(expression, expected):
    assert ask(expression) is expected


@pytest.mark.parametrize(
    "expression",
    [
        f"{OF}.colour == 1",
        f"{OF}.colour == 1 && {OF}.ecc",
        f"{OF}.index",
        f"{OF}.index < {OF}.model",
        f"{OF}.index.startsWith('a')",
        f"{OF}.model && true",
        f'{OF}.driver == "1.10.0"',
        f'{MEMORY}.compareTo(quantity("forty")) == 0',
        f'{OF}.model.compareTo("A") == 0',
        f"{OF}.model.size",
        f"has({OF}.nothing.more)",
        f"has({OF}.model.more)",
        "has(device.nothing)",
        f'{MEMORY}.compareTo(quantity("\u0663")) > 0',
        f'{MEMORY}.compareTo(quantity("1e19")) < 0',
        f'{MEMORY}.compareTo(quantity("1e-19")) > 0',
        f'{MEMORY}.compareTo(quantity("0.5n")) > 0',
        f'{MEMORY}.compareTo(quantity("10E")) < 0',
        f'{MEMORY}.compareTo(quantity("1e{"9" * 5000}")) < 0',
    ],
)
def test_an_expression_that_fails_in_cel_fails(expression):
    with pytest.raises(FailedSelectorError):
        ask(expression)


@pytest.mark.parametrize(
    "device",
    [
        {"attributes": {"models": {"strings": ["A100"]}}},
        {"attributes": {"driver": {"version": "1.0.0-rc.1"}}},
        {"capacity": {"memory": {"value": "forty"}}},
        {"attributes": {"index": {"int": 1}, "gpu.example.com/index": {"int": 2}}},
    ],
)
def test_a_device_with_a_value_that_is_not_modelled_fails(device):
    with pytest.raises(FailedSelectorError):
        ask("true", device)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "true &&",
        "1 + 1 == 2",
        "true ? true : false",
        f'{OF}.model.matches("A.*")',
        'cel.bind(of, device.attributes["x"], of.y)',
        "device.attributes.exists(d, d == 'x')",
        f"{OF}.?model.orValue('')",
        "1.5 < 2.0",
        "'\\n' == ''",
        '"""a""" == "a"',
        "1" * 5000,
        "(" * 5000,
        "!" * 5000 + "true",
        "[true",
        f'has({OF}["model"])',
        "has(true)",
        f"{OF}{'.a' * 1500} == 1",
        f"{OF}{'[device.driver]' * 251} == 1",
        "true" + " && true" * 600,
    ],
)
def test_what_is_not_in_the_subset_is_refused(expression):
    with pytest.raises(UnsupportedSelectorError):
        compile_selector(expression)


_PARTS = st.sampled_from(
    [
        *("device", ".", "driver", "attributes", "capacity", "[", "]", "(", ")", ",", "!", "-"),
        *("&&", "||", "==", "!=", "<", ">=", "in", "has", "quantity", "semver", "compareTo"),
        *('"gpu.example.com"', "model", "memory", "index", "true", "7", " "),
    ]
)


@given(st.lists(_PARTS, max_size=25).map("".join))
def test_any_text_has_a_value_or_is_refused(expression):
    with suppress(UnsupportedSelectorError, FailedSelectorError):
        assert ask(expression) in (True, False)
