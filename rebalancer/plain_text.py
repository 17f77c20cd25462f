"""Text that people read on a terminal or in a page, made of texts of any origin."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` with all that is not printable escaped, as Python writes it.

    For names, messages and annotations from a cluster or a file: control characters, line ends, direction
    marks (bidi) and lone surrogates would change what a terminal or a page shows of the text around them.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
