"""The annotations that snapshot files keep, against those that the source looks up."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import rebalancer
from rebalancer.wire.annotations import is_read

_ROOT = Path(rebalancer.__file__).parent
_LIVE = ("embedded", "kube", "machines/cluster_api")
"""What looks at objects of a server, never at those of a snapshot file."""
_RECORDS = "node_record"
"""Its keys come as arguments; all of them are our own."""


def test_each_annotation_that_is_looked_up_is_kept():
    read = {
        name
        for path in sorted(_ROOT.rglob("*.py"))
        if not any(path.is_relative_to(_ROOT / part) for part in (*_LIVE, _RECORDS))
        for name in _names_in(path)
    }
    assert len(read) > 10
    assert {name for name in read if not is_read(name)} == set()


def _names_in(path: Path) -> Iterator[str]:
    """Yield the names of the annotations that a module looks up."""
    text = path.read_text(encoding="utf-8")
    keys = list(_keys(ast.parse(text), {})) if "annotations" in text else []
    if not keys:
        return
    name = ".".join(("rebalancer", *path.relative_to(_ROOT).with_suffix("").parts))
    known = vars(importlib.import_module(name))
    for key in keys:
        of = ast.unparse(key).removesuffix(".items()")
        value = eval(of, dict(known))  # noqa: S307  (a constant of ours)
        yield from [value] if isinstance(value, str) else value


def _keys(node: ast.AST, loops: Mapping[str, ast.expr]) -> Iterator[ast.expr]:
    """Yield each key that is looked up in something called annotations; of a loop's variable, what the loop goes over."""
    of_node = [node] if isinstance(node, ast.For) else getattr(node, "generators", ())
    loops = dict(loops) | {
        name.id: loop.iter
        for loop in of_node
        for name in ast.walk(loop.target)
        if isinstance(name, ast.Name)
    }
    match node:
        case (
            ast.Call(func=ast.Attribute(value=of, attr="get"), args=[key, *_])
            | ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[of])
            | ast.Subscript(value=of, slice=key, ctx=ast.Load())
        ) if _is_annotations(of):
            yield loops.get(key.id, key) if isinstance(key, ast.Name) else key
    for child in ast.iter_child_nodes(node):
        yield from _keys(child, loops)


def _is_annotations(of: ast.expr) -> bool:
    text = ast.unparse(of)
    return (
        text.removeprefix("(")
        .removesuffix(" or {})")
        .removesuffix(" or {}")
        .endswith("annotations")
    )
