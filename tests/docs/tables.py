"""Reference tables in Markdown, from the code itself."""

import ast
import enum
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rebalancer.cli import _EPILOG
from rebalancer.nodes.preflight import Verdict
from rebalancer.plan.outcome import Status
from rebalancer.plan.plan import Code
from rebalancer.policy.forms import schema
from rebalancer.policy.load import load_policy
from rebalancer.policy.model import ENVELOPE
from rebalancer.registry import Registry


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def members(of: type[enum.StrEnum]) -> str:
    """Return the values of an enumeration with their docstrings."""
    texts = _texts(of)
    return table(("code", "meaning"), [(f"`{one}`", texts[one.name]) for one in of])


def _texts(of: type[enum.StrEnum]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for member, below in itertools.pairwise(definition.body):
        match member, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = plain(text)
    return texts


def plain(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join(text.split()).replace("``", "`")


def exit_codes() -> str:
    """Return the exit codes as ``--help`` lists them."""
    rows = re.findall(r"^  (\d+) +(.+)$", _EPILOG, re.MULTILINE)
    return table(("code", "meaning"), rows)


def strategies() -> str:
    """Return the installed strategies, each with a link to its page."""
    registry, default = Registry.installed(), load_policy(None, Registry.installed()).policy
    rows = []
    for name in registry:
        text = plain((type(registry.strategy(name)).__doc__ or "").split("\n\n")[0])
        on = "yes" if name in default.strategies else "no"
        rows.append((f"[`{name}`]({name}.md)", text, on))
    return table(("strategy", "what it does", "in the built-in policy"), rows)


def policy_keys() -> str:
    """Return every key of a policy file, without the strategies' own options."""
    whole = schema(Registry.installed())
    rows = list(_rows(whole, whole, ""))
    own = next(iter(whole["properties"]["strategies"]["properties"].values()))
    shared = {key: own["properties"][key] for key in ENVELOPE if key in own["properties"]}
    rows += list(_rows(whole, {"properties": shared}, "strategies.NAME."))
    return table(("key", "default", "meaning"), rows)


def options(name: str) -> str:
    """Return the own options of a strategy."""
    whole = schema(Registry.installed())
    own = whole["properties"]["strategies"]["properties"][name]["properties"]
    rest = {
        key: entry for key, entry in own.items() if key not in {*ENVELOPE, "apiVersion", "kind"}
    }
    rows = list(_rows(whole, {"properties": rest}, ""))
    return (
        table(("option", "default", "meaning"), rows) if rows else "It has no options of its own."
    )


def _rows(whole: Mapping[str, Any], of: Mapping[str, Any], prefix: str) -> Iterator[Sequence[str]]:
    for key, entry in of["properties"].items():
        if f"{prefix}{key}" == "strategies":
            continue
        inner, many = _inner(whole, entry)
        yield f"`{prefix}{key}`", _default(entry), plain(entry.get("description", ""))
        if inner:
            yield from _rows(whole, inner, f"{prefix}{key}{'[]' if many else ''}.")


def _inner(
    whole: Mapping[str, Any], entry: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the object that a key holds, and whether it holds a list of them; None for a plain value."""
    for one in (entry, *entry.get("anyOf", ()), *entry.get("oneOf", ()), *entry.get("allOf", ())):
        target = _resolved(whole, one)
        if target.get("properties"):
            return target, False
        items = _resolved(whole, target.get("items", {}))
        if items.get("properties"):
            return items, True
    return None, False


def _resolved(whole: Mapping[str, Any], entry: Mapping[str, Any]) -> Mapping[str, Any]:
    name = entry.get("$ref", "").removeprefix("#/$defs/")
    return whole["$defs"][name] if name else entry


def _default(entry: Mapping[str, Any]) -> str:
    value = entry.get("default")
    if value is None or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


CODES = {"codes": Code, "outcomes": Status, "verdicts": Verdict}
"""Written part -> the enumeration that it lists."""
