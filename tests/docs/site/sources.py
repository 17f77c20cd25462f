"""Which files the site has: the README, the pages that it leads to, and what these show or name.

The site keeps the folders of the repository, so that links between pages mean the same on both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_START = "README.md"
_INDEX = "docs/README.md"
_LINK = re.compile(r"(?<!`)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links_of(page: Path, root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Yield the text and the file of each link of a page to a file of the repository."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for title, link in _LINK.findall(text):
        path = link.partition("#")[0]
        if not path or re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve()
        if not target.is_dir():
            yield title, target.relative_to(root)


def page_text(page: Path) -> str:
    """Return a page for the site; a link to a folder, of which a site has no page, becomes its text."""

    def one(link: re.Match[str]) -> str:
        return link[1] if (page.parent / link[2].partition("#")[0]).is_dir() else link[0]

    return _LINK.sub(one, page.read_text(encoding="utf-8"))


def site_files(root: Path = ROOT) -> list[Path]:
    """Return the files of the site, relative to ``root``: pages that are reached from the README and docs/README.md, and what they link to.

    Raises:
        FileNotFoundError: a page links to a file that is not there.
    """
    found: list[Path] = []
    left = [Path(_START), Path(_INDEX)]
    while left:
        path = left.pop()
        if path in found:
            continue
        if not (root / path).is_file():
            raise FileNotFoundError(f"a page links to {path}, which is no file")
        found.append(path)
        if path.suffix == ".md":
            left += [target for _, target in links_of(root / path, root)]
    return sorted(found)


def navigation(root: Path = ROOT) -> list[dict[str, str]]:
    """Return the menu: the README, the pages in the order of docs/README.md, then all other ones."""
    entries = {_START: "kube-rebalancer", _INDEX: "Documentation"}
    for title, target in links_of(root / _INDEX, root):
        entries.setdefault(str(target), title)
    for path in site_files(root):
        if path.suffix == ".md":
            entries.setdefault(str(path), _heading(root / path))
    return [{title.replace("`", ""): path} for path, title in entries.items()]


def _heading(page: Path) -> str:
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ")
