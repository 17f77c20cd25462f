"""The meaning of the stable codes in reports, and what to do about them."""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rebalancer.base.plain_text import lines_of
from rebalancer.plan.plan import Code
from rebalancer.report.skips import advice_of, advice_on_protection
from rebalancer.report.summary import LEGEND
from rebalancer.snapshot.protect import ANNOTATED, TEXTS


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """One code with its meaning."""

    code: str
    about: str
    """What it is said of, as in ``a pod that stays``."""
    meaning: str
    advice: str = ""
    """What changes it; empty where nothing has to be changed."""


def member_texts(of: type[enum.StrEnum]) -> dict[str, str]:
    """Return name of an enumeration member -> its docstring, in one line.

    Python keeps no docstrings of attributes, so they are read from the source.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    texts: dict[str, str] = {}
    for member, below in itertools.pairwise(getattr(definition, "body", ())):
        match member, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = " ".join(text.split()).replace("``", "`")
    return texts


def list_codes(enumerations: Mapping[str, type[enum.StrEnum]]) -> Iterator[CodeMeaning]:
    """Yield every code of ``enumerations``, every protection and the words of a report; the keys say what the codes describe."""
    for about, of in enumerations.items():
        texts = member_texts(of)
        for one in of:
            advice = advice_of(one) if isinstance(one, Code) else ""
            yield CodeMeaning(one.value, about, texts.get(one.name, ""), advice)
    for name, text in {**TEXTS, **ANNOTATED}.items():
        advice = advice_on_protection(name)
        yield CodeMeaning(name, "a protection", f"The pod is not moved: {text}.", advice)
    for word, text in LEGEND.items():
        yield CodeMeaning(word, "a word of reports", f"{text[:1].upper()}{text[1:]}.")


def codes_text(codes: list[CodeMeaning]) -> str:
    """Return the codes as lines for people."""
    lines: list[str] = []
    for one in codes:
        lines.append(f"{one.code} ({one.about})")
        lines += lines_of(one.meaning or "see docs/policy.md", "  ")
        if one.advice:
            lines += lines_of(f"{one.advice}.", "  -> ", "     ")
    return "\n".join([*lines, ""])
