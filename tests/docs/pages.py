"""The pages of the documentation, and the parts of them that are written by a program.

A written part stands between two comments; the first says what it is::

    <!-- written: codes -->
    ...
    <!-- end -->
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_PART = re.compile(r"(<!-- written: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
_OPEN = re.compile(r"<!-- written:")
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"##? ([a-z]+(?:-[a-z]+)*)\n")
_COMMENT = re.compile(r"\s+#\s.*$")


def pages() -> list[Path]:
    """Return README and every page below docs, sorted."""
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def rewritten(text: str, write: Callable[[str], str]) -> str:
    """Return a page with each written part written again by ``write``, given what the part is.

    Raises:
        ValueError: a part has no end.
    """
    if len(_OPEN.findall(text)) != len(_PART.findall(text)):
        raise ValueError("a written part has no end")
    return _PART.sub(lambda part: f"{part[1]}\n{write(part[2])}\n{part[3]}", text)


class StrategyPage(NamedTuple):
    """Where a strategy is described."""

    link: str
    """The page below docs/strategies, with an anchor where several share one."""
    text: str


def strategy_pages() -> dict[str, StrategyPage]:
    """Return the pages of strategies by their names: a heading of its name begins each."""
    pages_of = {}
    for page in sorted((DOCS / "strategies").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        shared = re.split(r"^(?=## )", text, flags=re.MULTILINE)
        for part in shared if _HEADING.match(text) is None else [text]:
            if heading := _HEADING.match(part):
                anchor = "" if part is text else f"#{heading[1]}"
                pages_of[heading[1]] = StrategyPage(f"{page.name}{anchor}", part)
    return pages_of


def commands(text: str) -> Iterator[str]:
    """Yield the command lines of a page's console blocks, without comments."""
    for block in _CONSOLE.findall(text):
        for line in block.splitlines():
            command = _COMMENT.sub("", line).strip()
            if command and not command.startswith("#"):
                yield command
