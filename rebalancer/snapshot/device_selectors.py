"""Selectors of devices: a bounded subset of CEL, with the values that kube-scheduler gives an expression.

Source: ``k8s.io/dynamic-resource-allocation/cel/compile.go``, and the libraries ``quantity`` and ``semver`` of
``k8s.io/apiserver/pkg/cel/library``. CEL libraries of the package index know neither of these, nor that an unknown
domain is an empty map, and bring a compiled parser and half a dozen packages. An expression outside the subset is
named; so is one that fails for a device, for which the scheduler does not place the pod at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from rebalancer.wire.devices import Device, DeviceAttribute
from rebalancer.wire.quantity import parse_exact


class UnsupportedSelectorError(Exception):
    """An expression is not within the subset."""


class FailedSelectorError(Exception):
    """An expression has no result for a device."""


class Version(NamedTuple):
    """A semantic version without a pre-release."""

    major: int
    minor: int
    patch: int


Value = bool | int | str | Fraction | Version | Mapping[str, Any] | tuple[Any, ...]
"""Of a part of an expression: Fraction is a quantity, a mapping a map, a tuple a list."""
Evaluate = Callable[[Mapping[str, Any]], Value]

_VERSION = re.compile(r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\Z", re.ASCII)
_TOKEN = re.compile(
    r"""(?:
        (?P<number>\d{1,18}(?![\w.]))
      | (?P<text>"(?!"")[^"\\\n]*"|'(?!'')[^'\\\n]*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>&&|\|\||==|!=|<=|>=|[<>!.,()\[\]-])
    )""",
    re.VERBOSE | re.ASCII,
)
_BLANK = re.compile(r"(?:\s+|//[^\n]*)*", re.ASCII)
_MAX_DEPTH = 50
_MAX_MEMBERS = 250
MAX_TERMS = 1000
"""The most terms of an expression: names, operators, values."""
_EXPONENT = re.compile(r".*[eE]([+-]?\d+)\Z", re.ASCII)
_MAX_EXPONENT = 18
_MAX_QUANTITY = 64
_COMPARED: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
_ORDERED: Mapping[str, Callable[[int], int | bool]] = {
    "compareTo": lambda order: order,
    "isGreaterThan": lambda order: order > 0,
    "isLessThan": lambda order: order < 0,
}
_OF_TEXT: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}


class _Default(dict[str, Any]):
    """Attributes or capacities by domain; an unknown domain has none."""

    def __missing__(self, key: str) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Selector:
    """One compiled expression."""

    expression: str
    terms: int
    """The number of its terms, which is its cost."""
    _evaluate: Evaluate

    def matches(self, device: Mapping[str, Any]) -> bool:
        """Return whether a device, as :func:`describe_device` returns it, matches.

        Raises:
            FailedSelectorError: the expression has no result for it.
        """
        result = self._evaluate(device)
        if not isinstance(result, bool):
            raise FailedSelectorError("its result is neither true nor false")
        return result


def describe_device(driver: str, device: Device) -> Mapping[str, Any]:
    """Return a device as expressions see it.

    Raises:
        FailedSelectorError: a value is of a type that is not modelled.
    """
    attributes, capacity = _Default(), _Default()
    for name, attribute in (device.attributes or {}).items():
        domain, key = split_name(name, driver)
        _add(attributes, domain, key, _read_attribute(name, attribute))
    for name, amount in (device.capacity or {}).items():
        domain, key = split_name(name, driver)
        _add(capacity, domain, key, _read_quantity(str(amount.value)))
    return {
        "driver": driver,
        "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        "attributes": attributes,
        "capacity": capacity,
    }


def _add(to: dict[str, Any], domain: str, key: str, value: Value) -> None:
    of_domain = to.setdefault(domain, {})
    if key in of_domain:
        # Which of them counts is left to chance.
        raise FailedSelectorError(f"it has {key} with its driver's domain and without one")
    of_domain[key] = value


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Return the domain and the rest of an attribute's name; without a domain it is the driver's."""
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def _read_attribute(name: str, attribute: DeviceAttribute) -> Value:
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is None:
        raise FailedSelectorError(f"attribute {name} has a value of a type that is not modelled")
    return _read_version(attribute.version_value)


def _read_version(text: str) -> Version:
    match = _VERSION.match(text)
    if match is None:
        raise FailedSelectorError(f"version {text} is not modelled")
    return Version(*map(int, match.groups()))


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Selector:
    """Compile an expression.

    Raises:
        UnsupportedSelectorError: it is not within the subset.
    """
    tokens = _split(expression)
    parser = _Parser(tokens)
    evaluate = parser.read_any(0)
    if parser.next_text:
        raise UnsupportedSelectorError(f"{parser.next_text!r} is not modelled there")
    return Selector(expression, len(tokens), evaluate)


def _split(expression: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while (at := _skip_blanks(expression, at)) < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None or match.lastgroup is None:
            raise UnsupportedSelectorError(f"{expression[at : at + 12].strip()!r} is not modelled")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        if len(tokens) > MAX_TERMS:
            raise UnsupportedSelectorError(f"it has more than {MAX_TERMS} terms")
        at = match.end()
    return tokens


def _skip_blanks(expression: str, at: int) -> int:
    match = _BLANK.match(expression, at)
    return at if match is None else match.end()


class _Parser:
    """Reads an expression from the loosest operator to the tightest."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens, self._at, self._members = tokens, 0, 0

    @property
    def next_text(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if not self.next_text:
            raise UnsupportedSelectorError("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, text: str) -> bool:
        skips = self.next_text == text and self._tokens[self._at][0] != "text"
        self._at += skips
        return skips

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            raise UnsupportedSelectorError(f"{self.next_text or 'the end'!r} is not modelled there")

    def read_any(self, depth: int) -> Evaluate:
        parts = [self._read_all(depth)]
        while self._skip("||"):
            parts.append(self._read_all(depth))
        return _decide(parts, by=True)

    def _read_all(self, depth: int) -> Evaluate:
        parts = [self._read_relation(depth)]
        while self._skip("&&"):
            parts.append(self._read_relation(depth))
        return _decide(parts, by=False)

    def _read_relation(self, depth: int) -> Evaluate:
        left = self._read_unary(depth)
        if self.next_text not in ("==", "!=", "in", *_COMPARED):
            return left
        _, sign = self._take()
        right = self._read_unary(depth)
        if sign in ("==", "!="):
            return lambda device: _equal(left(device), right(device)) == (sign == "==")
        if sign == "in":
            return lambda device: _contains(right(device), left(device))
        holds = _COMPARED[sign]
        return lambda device: holds(_order(left(device), right(device)))

    def _read_unary(self, depth: int) -> Evaluate:
        if depth > _MAX_DEPTH:
            raise UnsupportedSelectorError("it is nested too deeply")
        if self._skip("!"):
            of = self._read_unary(depth + 1)
            return lambda device: not _as_bool(of(device))
        if self._skip("-"):
            kind, text = self._take()
            if kind != "number":
                raise UnsupportedSelectorError("arithmetic is not modelled")
            return _constant(-int(text))
        value = self._read_primary(depth)
        while True:
            self._members += self.next_text in (".", "[")
            if self._members > _MAX_MEMBERS:
                raise UnsupportedSelectorError(f"it has more than {_MAX_MEMBERS} members")
            if self._skip("."):
                value = self._read_member(value, depth)
            elif self._skip("["):
                value = _look_up(value, self.read_any(depth + 1))
                self._expect("]")
            else:
                return value

    def _read_member(self, of: Evaluate, depth: int) -> Evaluate:
        kind, name = self._take()
        if kind != "name":
            raise UnsupportedSelectorError(f"{name!r} is not modelled there")
        if not self._skip("("):
            return _Member(of, name)
        arguments = self._read_list(")", depth)
        if len(arguments) != 1 or name not in {*_ORDERED, *_OF_TEXT}:
            raise UnsupportedSelectorError(f"the function {name} is not modelled")
        (argument,) = arguments
        if name in _OF_TEXT:
            return lambda device: _OF_TEXT[name](_as_text(of(device)), _as_text(argument(device)))
        order = _ORDERED[name]
        return lambda device: order(_order_values(of(device), argument(device)))

    def _read_primary(self, depth: int) -> Evaluate:
        kind, text = self._take()
        if kind == "number":
            return _constant(int(text))
        if kind == "text":
            return _constant(text[1:-1])
        if kind == "name":
            return self._read_name(text, depth)
        if text == "(":
            inner = self.read_any(depth + 1)
            self._expect(")")
            return inner
        if text == "[":
            items = self._read_list("]", depth)
            return lambda device: tuple(item(device) for item in items)
        raise UnsupportedSelectorError(f"{text!r} is not modelled there")

    def _read_name(self, name: str, depth: int) -> Evaluate:
        if name in ("true", "false"):
            return _constant(name == "true")
        if name == "device" and self.next_text != "(":
            return lambda device: device
        if not self._skip("("):
            raise UnsupportedSelectorError(f"{name} is not modelled")
        arguments = self._read_list(")", depth)
        if len(arguments) != 1 or name not in ("quantity", "semver", "has"):
            raise UnsupportedSelectorError(f"the function {name} is not modelled")
        (argument,) = arguments
        if name == "has":
            return _is_there(argument)
        read = _read_quantity if name == "quantity" else _read_version
        return lambda device: read(_as_text(argument(device)))

    def _read_list(self, end: str, depth: int) -> list[Evaluate]:
        items: list[Evaluate] = []
        while not self._skip(end):
            if items:
                self._expect(",")
            items.append(self.read_any(depth + 1))
        return items


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _decide(parts: Sequence[Evaluate], *, by: bool) -> Evaluate:
    """Return the disjunction (``by`` true) or conjunction of parts; one that decides outweighs one that fails."""
    if len(parts) == 1:
        return parts[0]

    def evaluate(device: Mapping[str, Any]) -> bool:
        failure: FailedSelectorError | None = None
        for part in parts:
            try:
                if _as_bool(part(device)) is by:
                    return by
            except FailedSelectorError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not by

    return evaluate


def _look_up(of: Evaluate, key: Evaluate) -> Evaluate:
    return lambda device: _read_part(of(device), key(device))


def _read_part(values: Value, name: Value) -> Value:
    if not isinstance(values, Mapping) or not isinstance(name, str):
        raise FailedSelectorError("a value without parts is asked for one")
    try:
        part: Value = values[name]
    except KeyError:
        raise FailedSelectorError(f"it has no {name}") from None
    return part


@dataclass(frozen=True, slots=True)
class _Member:
    """A part of a value, by a name in the expression."""

    of: Evaluate
    name: str

    def __call__(self, device: Mapping[str, Any]) -> Value:
        return _read_part(self.of(device), self.name)


def _is_there(member: Evaluate) -> Evaluate:
    """Return whether a member is there; what it is a member of must be."""
    if not isinstance(member, _Member):
        raise UnsupportedSelectorError("has() asks for no member")

    def evaluate(device: Mapping[str, Any]) -> bool:
        values = member.of(device)
        # A device has the same members always; an unknown domain is an empty map.
        if values is device or isinstance(values, _Default):
            member(device)
            return True
        if not isinstance(values, Mapping):
            raise FailedSelectorError("a value without parts is asked for one")
        return member.name in values

    return evaluate


def _read_quantity(text: str) -> Fraction:
    exponent = _EXPONENT.match(text)
    if len(text) > _MAX_QUANTITY or (exponent and abs(int(exponent[1])) > _MAX_EXPONENT):
        raise FailedSelectorError(f"the quantity {text[:_MAX_QUANTITY]} is not modelled")
    try:
        value = parse_exact(text)
    except ValueError as error:
        raise FailedSelectorError(str(error)) from None
    # The scheduler rounds the one, and cuts the other.
    if (value * 10**9).denominator > 1 or abs(value) >= 2**63:
        raise FailedSelectorError(f"the quantity {text} is not modelled")
    return value


def _as_bool(value: Value) -> bool:
    if not isinstance(value, bool):
        raise FailedSelectorError("a value is neither true nor false")
    return value


def _as_text(value: Value) -> str:
    if not isinstance(value, str):
        raise FailedSelectorError("a value is no text")
    return value


def _equal(one: Value, other: Value) -> bool:
    """Return whether two values are equal; plain ones of different types are not."""
    if type(one) is type(other) and type(one) in (bool, int, str, Fraction, Version):
        return one == other
    if all(type(value) in (bool, int, str) for value in (one, other)):
        return False
    raise FailedSelectorError("values of these types cannot be compared")


def _contains(values: Value, wanted: Value) -> bool:
    if isinstance(values, tuple) and not isinstance(values, Version):
        return any(_equal(wanted, value) for value in values)
    if isinstance(values, Mapping) and isinstance(wanted, str):
        return wanted in values
    raise FailedSelectorError("it is asked whether something is in a value without parts")


def _order(one: Value, other: Value) -> int:
    """Return -1, 0 or 1 for the order of two numbers or texts."""
    if type(one) is not type(other) or type(one) not in (int, str):
        raise FailedSelectorError("values of these types have no order")
    return _order_alike(one, other)


def _order_values(one: Value, other: Value) -> int:
    """Return -1, 0 or 1 for the order of two quantities or versions."""
    if type(one) is not type(other) or not isinstance(one, Fraction | Version):
        raise FailedSelectorError("only quantities and versions are compared by a function")
    return _order_alike(one, other)


def _order_alike(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)
