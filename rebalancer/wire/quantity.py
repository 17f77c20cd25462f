"""Kubernetes quantities (``100m``, ``2Gi``, ``1e3``) as integers in base units.

The grammar is ``k8s.io/apimachinery/pkg/api/resource``: a decimal number followed by a binary suffix
(``Ki`` .. ``Ei``), a decimal one (``n u m "" k M G T P E``) or an exponent (``e3``, ``E-2``).
Fractions of the base unit round away from zero, as ``Quantity.Value`` and ``Quantity.MilliValue`` do.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_GRAMMAR = re.compile(
    r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]|))\Z", re.ASCII
)
_SUFFIX = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
_INT64_MAX = 2**63 - 1


@lru_cache(maxsize=65536)
def parse(text: str | float, *, milli: bool = False) -> int:
    """Parse a quantity; return base units, or thousandths of them with ``milli`` (cpu).

    Values beyond a signed 64-bit integer saturate, as in apimachinery.

    Raises:
        ValueError: ``text`` is not a quantity.
    """
    return _in_parts(text, 1000 if milli else 1)


def parse_nano(text: str | float) -> int:
    """Parse a quantity in billionths of the base unit, as measured cpu is given; errors as in :func:`parse`.

    Not cached: measurements rarely repeat.
    """
    return _in_parts(text, 10**9)


def _in_parts(text: str | float, parts: int) -> int:
    """Parse a quantity; return it in units of 1/``parts`` of the base unit."""
    value = parse_exact(text) * parts
    magnitude = min(_INT64_MAX, -(-abs(value.numerator) // value.denominator))
    return -magnitude if value < 0 else magnitude


def parse_exact(text: str | float) -> Fraction:
    """Parse a quantity without rounding it; errors as in :func:`parse`."""
    match = _GRAMMAR.match(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity (examples: 100m, 1.5, 2Gi)")
    sign, number, exponent, suffix = match.groups()
    if exponent is not None:
        # Beyond this an int64 has long saturated; a huge power would only burn memory.
        power = max(-64, min(64, int(exponent[1:])))
        scale = Fraction(10) ** power
    else:
        scale = _SUFFIX[suffix]
    magnitude = Fraction(number) * scale
    return -magnitude if sign == "-" else magnitude


def parse_resource(name: str, text: str | float) -> int:
    """Return the amount of resource ``name``: milli-cores for cpu, base units for all others."""
    return parse(text, milli=name == "cpu")


_BYTES = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


def is_bytes(name: str) -> bool:
    """Return whether an amount of resource ``name`` is in bytes."""
    return name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")


def format_resource(name: str, amount: float) -> str:
    """Return an amount of resource ``name`` in base units for people: ``1.5`` (cores), ``3.2Gi``, ``12``."""
    if name == "cpu":
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if is_bytes(name):
        for size, suffix in _BYTES:
            if abs(amount) >= size:
                return f"{amount / size:.4g}{suffix}"
    return str(amount)


def share_of(value: int | str, total: int, *, up: bool) -> int:
    """Return an integer unchanged, or a percentage of ``total``, rounded up or down.

    Source: ``k8s.io/apimachinery/pkg/util/intstr: GetScaledValueFromIntOrPercent``.

    Raises ValueError if a string is not a percentage.
    """
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isdecimal():
        raise ValueError(
            f'invalid value for IntOrString: invalid type: string is not a percentage: "{value}"'
        )
    scaled = int(value[:-1]) * total
    return -(-scaled // 100) if up else scaled // 100
