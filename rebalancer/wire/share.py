"""IntOrString: numbers that may be percentages."""

from __future__ import annotations


def share_of(value: int | str, total: int, *, up: bool) -> int:
    """Return an integer as it is, or a percentage of ``total``, rounded up or down.

    Source: ``k8s.io/apimachinery/pkg/util/intstr: GetScaledValueFromIntOrPercent``.

    Raises ValueError if a string is no percentage.
    """
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isdecimal():
        raise ValueError(
            f'invalid value for IntOrString: invalid type: string is not a percentage: "{value}"'
        )
    scaled = int(value[:-1]) * total
    return -(-scaled // 100) if up else scaled // 100
