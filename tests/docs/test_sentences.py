"""The pages that people read first are in sentences that a non-native speaker reads once."""

import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import DOCS, ROOT

MAX_WORDS = 25
FIRST = [
    ROOT / "README.md",
    *(
        DOCS / f"{name}.md"
        for name in ("policy", "operating", "decisions", "descheduler", "compare", "serve", "core")
    ),
]
_FENCE = re.compile(r"^```.*?^```|<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
_CODE = re.compile(r"`[^`]*`")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)")
_END = re.compile(r"(?<=[.!?])[)\"*]*(?:\s+|$)")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page; code, titles of links and cells of tables are text, blocks of code are not."""
    plain = _CODE.sub("code", _LINK.sub(r"\1", _FENCE.sub("\n\n", text)))
    for block in _BLOCK.split(plain):
        for part in block.split("|"):
            yield from (" ".join(each.split()) for each in _END.split(part.lstrip(" \n-*#")))


def too_long(text: str) -> list[str]:
    """Return the sentences of a page with too many words."""
    return [each for each in sentences(text) if len(re.findall(r"\w\S*", each)) > MAX_WORDS]


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.name)
def test_sentences_are_short(page):
    assert too_long(page.read_text(encoding="utf-8")) == []


def test_a_long_sentence_is_seen_wherever_it_stands():
    long = " ".join(["word"] * (MAX_WORDS + 1))
    short = long.removesuffix(" word")
    for text in (f"{short}. {long}.", f"- {long}", f"| {short} | {long} |", f"{long}\n\n# {short}"):
        assert too_long(text) == [long + "." * text.endswith(".")], text
    assert too_long(f"{short}. {short}!\n\n- {short}\n- [{short}](x) \n\n```\n{long}\n```\n") == []
    assert too_long(f"`{long}` [{short}](docs/a.md)") != []
