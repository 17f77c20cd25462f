"""What CONTRIBUTING says of the tree is true."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_contributing_names_every_package_and_no_other():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `rebalancer/(\w+)` \|", text, re.MULTILINE))
    folders = {path.parent.name for path in (ROOT / "rebalancer").glob("*/__init__.py")}
    assert named - {"api", "cli"} == folders - {"testing"}


def test_each_folder_of_unit_tests_is_that_of_a_package():
    tested = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    packages = {path.parent.name for path in (ROOT / "rebalancer").glob("*/__init__.py")}
    assert tested - packages == {"benchmarks", "controlplane"}


def decides(module: Path) -> bool:
    """Whether a module has a function with more than a docstring: protocols and plain data need no test."""
    functions = (node for node in ast.walk(parsed(module)) if isinstance(node, ast.FunctionDef))
    return any(ast.get_docstring(of) is None or len(of.body) > 1 for of in functions)


def test_each_package_that_decides_has_tests_of_its_own():
    modules = (path for path in (ROOT / "rebalancer").glob("*/*.py") if decides(path))
    deciding = {path.parent.name for path in modules}
    tested = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")}
    # What helps to test is tried by tests of all other packages; `plan` is data with properties.
    assert deciding - tested <= {"plan", "testing"}


def test_no_public_class_name_exists_twice():
    files: dict[str, list[str]] = {}
    for root in ("rebalancer", "strategies"):
        for path in (ROOT / root).rglob("*.py"):
            for node in parsed(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    files.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


OWED = {"planner", "cost"}
"""Packages that still have functions named by a past participle."""

NO_ACTION = {
    *(
        "changed",
        "evicted",
        "landed",
        "reached",
        "done",
    ),  # methods of an observer: what has just happened
    *("packed", "violated", "ended"),  # of the base classes of terms and strategies, in `cost`
    *("changed_since", "resettled", "unmoved", "filled", "placed"),  # owed: the planner calls them
    "installed",  # a constructor: the registry of what is installed
}
IRREGULAR = re.compile(
    "born|bound|broken|brought|built|caught|chosen|done|drawn|fed|found|given|gone|held|hidden|kept"
    "|known|laid|led|left|lost|made|meant|met|paid|said|seen|sent|shown|sold|spent|taken|taught"
    "|thought|thrown|told|torn|understood|won|written"
)
JOINED = {
    "after",
    "again",
    "as",
    "at",
    "before",
    "by",
    "for",
    "from",
    "in",
    "of",
    "on",
    "once",
    "out",
    "since",
    "to",
    "with",
}
"""Words after which a participle is still no adjective of a noun, as in `changed_since`."""
NO_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "succeed"}


def is_participle(name: str) -> bool:
    """Whether a function is named by what looks like a past participle; `known_nodes` is named by a noun."""
    word, *rest = name.strip("_").split("_")
    participle = IRREGULAR.fullmatch(word) or (word.endswith("ed") and word not in NO_PARTICIPLES)
    return bool(participle) and (not rest or rest[0] in JOINED)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for root in ("rebalancer", "strategies"):
        for path in (ROOT / root).rglob("*.py"):
            if path.relative_to(ROOT).parts[1] not in OWED and path.name != "make_room.py":
                yield path.relative_to(ROOT), parsed(path)


def test_no_function_is_named_by_a_past_participle():
    named = {
        f"{path}: {node.name}"
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and is_participle(node.name)
        if not any("property" in ast.unparse(of) for of in node.decorator_list)
        if node.name not in NO_ACTION
    }
    assert named == set()


def test_limits_are_named_by_what_they_limit():
    vague = re.compile(
        r"^(_LOOK|_PATIENCE|_GOODBYE|_?(?:MOST|LONGEST|LARGEST)(?:_\w+)?) = ", re.MULTILINE
    )
    named = {
        f"{path}: {name}"
        for path, _ in modules()
        for name in vague.findall((ROOT / path).read_text(encoding="utf-8"))
    }
    assert not named, "MAX_..., POLL_INTERVAL, TIMEOUT, JOIN_TIMEOUT"


def is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def texts_alone(module: ast.Module) -> Iterator[int]:
    """Yield the lines of texts that are no docstrings, and that follow no assignment which they describe."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(module):
        for _, body in ast.iter_fields(node):
            before = None if isinstance(node, documented) else node
            for statement in body if isinstance(body, list) else ():
                described = before is None or isinstance(before, ast.Assign | ast.AnnAssign)
                if is_text(statement) and not described:
                    yield statement.lineno
                before = statement


def test_each_text_between_statements_describes_the_assignment_before_it():
    alone = [
        f"{path.relative_to(ROOT)}:{line}"
        for root in ("rebalancer", "strategies")
        for path in (ROOT / root).rglob("*.py")
        for line in texts_alone(parsed(path))
    ]
    assert alone == []


def test_no_constant_of_a_module_is_defined_twice():
    twice = {
        f"{path}: {name}"
        for path, module in modules()
        for name, number in Counter(
            target.id
            for node in module.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for part in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for target in ast.walk(part)
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
        ).items()
        if number > 1
    }
    assert twice == set()
