"""Plain data as JSON or YAML, for people and programs; both escape characters that are not printable."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import yaml

from rebalancer.base.plain_text import printable_json

DATA_FORMS = ("json", "yaml")


def data_text(data: Mapping[str, Any], form: str) -> str:
    """Return ``data`` as text in ``form`` (one of ``DATA_FORMS``), with the keys in order and a final newline."""
    if form == "json":
        return printable_json(json.dumps(data, indent=2, ensure_ascii=False)) + "\n"
    return yaml_text(json.loads(json.dumps(data)))


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return ``data``, which has plain types only, as YAML."""
    # libyaml is ten times faster, which shows with thousands of skipped pods.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(data, Dumper=dumper, sort_keys=False, width=100)
    return text


def plain_number(value: float, digits: int = 9) -> int | float | None:
    """Return ``value`` rounded to ``digits`` significant digits.

    A whole number has no decimal point. NaN and infinity become None.
    """
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
