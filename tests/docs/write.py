"""Writes one part of a page: a table, or a command with what it prints."""

import os

from rebalancer.report.metrics import as_markdown
from tests.docs import tables
from tests.docs.pages import ROOT
from tests.docs.rights import needs
from tests.support.cli import call

_TABLES = {
    "eagerness": tables.eagerness,
    "exit-codes": tables.exit_codes,
    "metrics": as_markdown,
    "kubernetes": tables.kubernetes,
    "policy-keys": tables.policy_keys,
    "needs": needs,
    "strategies": tables.strategies,
    "words": tables.words,
}


def write(part: str) -> str:
    """Return the Markdown of a written part.

    ``codes``, ``strategies`` and so on; ``options NAME`` of a strategy; ``output COMMAND`` or ``output N COMMAND``,
    the first N lines of what a command of ours prints.

    Raises:
        ValueError: there is no such part, or the command failed.
    """
    kind, _, rest = part.partition(" ")
    if kind == "options":
        return tables.options(rest)
    if kind == "output":
        return _output(rest)
    if kind in tables.CODES:
        return tables.members(tables.CODES[kind])
    if kind in _TABLES:
        return _TABLES[kind]()
    raise ValueError(f"there is no part {part!r}")


def _output(rest: str) -> str:
    first, _, after = rest.partition(" ")
    most, command = (int(first), after) if first.isdecimal() else (None, rest)
    words = command.split()
    if words[0] != "rebalancer":
        raise ValueError(f"{command}: not a command of ours")
    environ = {"PATH": os.environ.get("PATH", ""), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    done = call(words[1:], cwd=ROOT, env=environ)
    if done.returncode != 0:
        raise ValueError(f"{command}: exit code {done.returncode}: {done.stderr}")
    lines = done.stdout.rstrip("\n").split("\n")
    if most is not None and len(lines) > most:
        lines = [*lines[:most], "..."]
    return "\n".join(["```", f"$ {command}", *lines, "```"])
