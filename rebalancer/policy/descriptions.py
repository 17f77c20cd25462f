"""The docstrings of a model's fields, for its JSON schema.

pydantic can read them itself (``use_attribute_docstrings``), but then it parses the source of every model at
each import, a tenth of a small run's time; only the schema needs them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator

from pydantic import BaseModel


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return field -> docstring, with the fields of base classes; empty if there is no source."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts.update(_of_class(base))
    return texts


def _of_class(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except (OSError, TypeError):
        return
    (statement,) = ast.parse(source).body
    if not isinstance(statement, ast.ClassDef):
        return
    body = statement.body
    for field, below in itertools.pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
