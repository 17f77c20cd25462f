"""HTML pages from templates: self-contained, with a policy that allows only their own style and script.

The templates and style sheets are in the folder ``page``. Each value is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from rebalancer.base.plain_text import printable
from rebalancer.report.summary import LEGEND


def render_page(template: str, styles: Sequence[str], **values: object) -> str:
    """Return a page without a script, from a template and style sheets of the folder ``page``."""
    page = page_environment().get_template(template)
    return page.render(**inline("style", styles), **values) + "\n"


def inline(tag: str, names: Sequence[str]) -> dict[str, str]:
    """Return the text of files for a tag, and the hash by which the content security policy allows it."""
    text = "".join(map(page_text, names))
    # Ours, and hashed as it is: what is between the tags must not be changed by escaping.
    return {tag: Markup(text), f"{tag}_hash": content_hash(text)}  # noqa: S704


@cache
def page_environment() -> Environment:
    """Return the environment of all pages: it escapes each value, and what is not printable in it."""
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(page_text),
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_show,
        auto_reload=False,
    )
    made.filters["code"] = _with_code
    made.filters["glossed"] = _with_meanings
    return made


def page_text(name: str) -> str:
    """Return a file of the folder ``page``."""
    return (files("rebalancer.report") / "page" / name).read_text(encoding="utf-8")


def content_hash(text: str) -> str:
    """Return the hash by which a content security policy allows a style or a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _show(value: object) -> object:
    """Escape the unprintable characters of text; markup is not changed."""
    return printable(value) if type(value) is str else value


def _with_code(text: str) -> Markup:
    """Return a sentence as markup, with each text between backticks as ``code``."""
    parts = [escape(printable(part)) for part in text.split("`")]
    return Markup().join(
        Markup("<code>{}</code>").format(part) if index % 2 else part
        for index, part in enumerate(parts)
    )


def _with_meanings(text: str) -> Markup:
    """Return a score as markup, with the meaning of each word of the legend as its title."""
    parts = re.split(r"\b(hard|soft|imbalance)\b", printable(text))
    return Markup().join(
        Markup('<abbr title="{}">{}</abbr>').format(LEGEND[part], part) if index % 2 else part
        for index, part in enumerate(parts)
    )
