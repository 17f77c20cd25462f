"""Reference tables in Markdown, from the code itself."""

import enum
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from rebalancer.cli import _EPILOG
from rebalancer.explain.text import member_texts
from rebalancer.machines.reasons import (
    DrainVerdict,
    FateReason,
    GroupCode,
    PodCode,
    RemovalCode,
    ScaleInCode,
    ScaleOutCode,
)
from rebalancer.plan.plan import Code, NodeCode, Status
from rebalancer.planner.settings import THRESHOLDS
from rebalancer.policy.cluster import Expander
from rebalancer.policy.forms import schema
from rebalancer.policy.load import load_policy
from rebalancer.policy.model import ENVELOPE
from rebalancer.registry import Registry
from rebalancer.report.summary import LEGEND
from rebalancer.scheduler.profile import KNOWN_VERSIONS
from tests.controlplane.build import DEFAULT_VERSION, VERSIONS
from tests.docs.pages import ROOT, strategy_pages


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
    )


def members(of: type[enum.StrEnum]) -> str:
    """Return the values of an enumeration with their docstrings."""
    texts = member_texts(of)
    return table(("code", "meaning"), [(f"`{one}`", texts[one.name]) for one in of])


def plain(text: str) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join(text.split()).replace("``", "`")


def kubernetes() -> str:
    """Return which versions of Kubernetes are predicted and tested, and how."""
    (least,) = re.findall(r'kubeVersion: ">=1\.(\d+)', (ROOT / "chart" / "Chart.yaml").read_text())
    first, last = KNOWN_VERSIONS[0][1], KNOWN_VERSIONS[-1][1]
    tested = {int(version.split(".")[1]): version for version in VERSIONS}
    rows = [(f"before 1.{least}", "-", "the chart refuses it")]
    rows.append((f"1.{least} to 1.{first - 1}", f"as 1.{first}", "no"))
    how = {
        DEFAULT_VERSION: f"everything, on {DEFAULT_VERSION}",
        VERSIONS[-1]: f"`make e2e-newest` on {VERSIONS[-1]}: what a version may change",
    }
    for _, minor in KNOWN_VERSIONS:
        version = tested.get(minor)
        what = how.get(version or "", f"no: `make e2e-newest KUBERNETES={version}`")
        rows.append((f"1.{minor}", "by its own rules", what if version else "no"))
    rows.append((f"from 1.{last + 1} on", f"as 1.{last}; the report says so", "no"))
    return table(("Kubernetes", "its scheduler is predicted", "tested in CI"), rows)


def exit_codes() -> str:
    """Return the exit codes as ``--help`` lists them."""
    rows = re.findall(r"^  (\d+) +(.+)$", _EPILOG, re.MULTILINE)
    return table(("code", "meaning"), rows)


def words() -> str:
    """Return the words that a report counts in, with their meanings."""
    return table(("word", "meaning"), tuple(LEGEND.items()))


def strategies() -> str:
    """Return the installed strategies, each with a link to its page."""
    registry, default = (Registry.installed(), load_policy(None, Registry.installed()).policy)
    rows, links = [], strategy_pages()
    for name in registry:
        text = plain((type(registry.strategy(name)).__doc__ or "").split("\n\n")[0])
        on = "yes" if name in default.strategies else "no"
        rows.append((f"[`{name}`]({links[name].link})", text, on))
    return table(("strategy", "what it does", "in the built-in policy"), rows)


def eagerness() -> str:
    """Return what each level of eagerness asks of a move."""
    heads = (
        "eagerness",
        "least gain for an ordinary pod",
        "better in",
        "worse in at most",
        "if worse in none, better in",
        "least gain of a wave",
    )
    rows = [
        (
            f"`{level}`",
            f"{of.pods:g} pods, or {of.imbalance:g} imbalance",
            *(f"{100 * share:g} %" for share in (of.better, of.worse, of.harmless, of.rest)),
        )
        for level, of in THRESHOLDS.items()
    ]
    return table(heads, rows)


def policy_keys() -> str:
    """Return every key of a policy file, without the strategies' own options."""
    known = Registry.installed()
    whole = schema(known, known.signals, known.steps)
    keys = _Keys(whole)
    named = whole["properties"]["strategies"]["additionalProperties"]["properties"]
    shared = {**_of_strategy(whole, next(iter(Registry.installed()))), **named}
    of_all = {"properties": {key: shared[key] for key in ENVELOPE if key in shared}}
    rows = [*keys.rows(whole, ""), *keys.rows(of_all, "strategies.NAME.")]
    return table(("key", "default", "meaning"), rows)


def options(name: str) -> str:
    """Return the own options of a strategy."""
    whole = _schema()
    not_own = {*ENVELOPE, "apiVersion", "kind", "strategy"}
    own = {key: entry for key, entry in _of_strategy(whole, name).items() if key not in not_own}
    rows = list(_Keys(whole).rows({"properties": own}, ""))
    return (
        table(("option", "default", "meaning"), rows) if rows else "It has no options of its own."
    )


@cache
def _schema() -> Mapping[str, Any]:
    """Return the schema of policies, of which each strategy's page has a part."""
    return schema(Registry.installed())


def _of_strategy(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    keys: Mapping[str, Any] = whole["$defs"][f"strategy.{name}"]["properties"]
    return keys


class _Keys:
    """Rows of keys, with the keys below them; the keys of one definition are listed once."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._listed: dict[str, str] = {}
        """Definition -> the key below which its keys are listed."""

    def rows(self, of: Mapping[str, Any], prefix: str) -> Iterator[Sequence[str]]:
        """Yield key, default and meaning of each key of an object."""
        for key, entry in of["properties"].items():
            if f"{prefix}{key}" == "strategies":
                continue
            path = f"{prefix}{key}"
            inner, name, many = self._inner(entry)
            text = plain(entry.get("description", ""))
            if name in self._listed:
                yield (
                    f"`{path}`",
                    _default(entry),
                    f"{text} Keys as below `{self._listed[name]}`.".strip(),
                )
                continue
            yield f"`{path}`", _default(entry), text
            if inner:
                self._listed[name] = path
                yield from self.rows(inner, f"{path}{'[]' if many else ''}.")

    def _inner(self, entry: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str, bool]:
        """Return the object that a key holds, its definition's name, and whether it is a list of them."""
        for one in (entry, *(one for kind in _CHOICES for one in entry.get(kind, ()))):
            target, name = self._resolved(one)
            if target.get("properties"):
                return target, name, False
            items, name = self._resolved(target.get("items", {}))
            if items.get("properties"):
                return items, name, True
        return None, "", False

    def _resolved(self, entry: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        name = entry.get("$ref", "").removeprefix("#/$defs/")
        return (self._whole["$defs"][name] if name else entry), name


_CHOICES = ("anyOf", "oneOf", "allOf")


def _default(entry: Mapping[str, Any]) -> str:
    value = entry.get("default")
    if value is None or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


CODES = {
    "codes": Code,
    "node-codes": NodeCode,
    "outcomes": Status,
    "verdicts": DrainVerdict,
    "fate-reasons": FateReason,
    "removal-codes": RemovalCode,
    "pending-codes": PodCode,
    "group-codes": GroupCode,
    "scale-in-codes": ScaleInCode,
    "scale-out-codes": ScaleOutCode,
    "expanders": Expander,
}
"""Written part -> the enumeration that it lists."""
