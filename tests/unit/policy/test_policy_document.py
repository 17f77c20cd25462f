import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.policy.document import format_path, parse


def read(text):
    return parse(text.encode() if isinstance(text, str) else text, "f.yaml")


def wrong(text):
    return [str(problem) for problem in read(text)[1]]


def test_lines_are_those_of_the_keys_and_items():
    document, problems = read("a: 1\nb:\n  c: 2\n  d:\n  - x\n  - y\n")
    assert problems == []
    assert document.data == {"a": 1, "b": {"c": 2, "d": ["x", "y"]}}
    lines = {path: document.lines[path] for path in [("a",), ("b", "c"), ("b", "d", 1)]}
    assert lines == {("a",): 1, ("b", "c"): 3, ("b", "d", 1): 6}


def test_a_problem_below_what_is_in_the_file_has_the_line_of_what_is():
    document, _ = read("a:\n  b: {}\n")
    assert str(document.problem(("a", "b", "c"), "is missing")) == "f.yaml:2: a.b.c: is missing"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("no", "no"),
        ("22:30", "22:30"),
        ("1_000", "1_000"),
        ("0o17", "0o17"),
        ("010", 10),
        ("2001-01-01", "2001-01-01"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("0.0003842576430698292", 0.0003842576430698292),
        (".inf", ".inf"),
        ("9" * 5000, "9" * 5000),
        ("20%", "20%"),
    ],
)
def test_plain_scalars_are_read_by_the_core_schema(text, value):
    document, problems = read(f"a: {text}\n")
    assert problems == []
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: stands here and in line 1; remove one of them"),
        (
            "a: !!python/object:os.system x",
            "f.yaml:1: a: the tag tag:yaml.org,2002:python/object:os.system is not allowed; write plain values",
        ),
        (
            "a: !!int many",
            "f.yaml:1: a: the tag tag:yaml.org,2002:int is not allowed; write plain values",
        ),
        (
            "a: !!set {x, y}",
            "f.yaml:1: a: the tag tag:yaml.org,2002:set is not allowed; write plain values",
        ),
        (
            "x: &x {p: 1}\ny: {<<: *x}",
            'f.yaml:2: y["<<"]: merge keys are not supported; write the keys out',
        ),
        ("1: x", "f.yaml:1: 1 is no text key; write it in quotes"),
        ("? [a]\n: x", "f.yaml:1: this is no text key; write it in quotes"),
        ("a: &a [*a]", "f.yaml:1: a[0]: contains itself by an alias; write it out"),
        (
            "a:\n\tb: 1",
            "f.yaml:2: is not YAML: while scanning for the next token, found character '\\t' that cannot start any token (column 1); indent with spaces, not with tabs",
        ),
        (
            "a: 1\n---\nb: 2",
            "f.yaml:2: is not YAML: expected a single document in the stream, but found another document (column 1); put each document into a file of its own",
        ),
        ("a: *nope", "f.yaml:1: is not YAML: found undefined alias 'nope' (column 4)"),
        ("", "f.yaml: is empty; it needs at least apiVersion and kind"),
        ("a: 1\nb: \x01\n", "f.yaml:2: holds a character that YAML forbids (#x0001)"),
        (b"a: 1\nb: \xff\n", "f.yaml:2: is not UTF-8 text; save it as UTF-8"),
    ],
)
def test_everything_but_plain_yaml_is_a_problem_with_its_line(text, message):
    assert wrong(text) == [message]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n  b: 1\n c: 2\n", "is line 3 indented as line 2?"),
        ("a:\n   b: 1\n\n  # of c\n  c: 2\n", "is line 5 indented as line 2?"),
        ("a: {}\n   b: 1\n", "is line 2 indented as line 1?"),
        ("a:\n  - x\n - y\n", "is line 3 indented as line 2?"),
        ("a:\r  - x\r - y\r", "is line 3 indented as line 2?"),
        ("a:\r\n  - x\r\n - y\r\n", "is line 3 indented as line 2?"),
        ("a:\u2028  - x\x85 - y\u2029", "is line 3 indented as line 2?"),
        ("a: b: c\n", ""),
        ("b: 1\na: b: c\n", ""),
    ],
)
def test_a_line_that_is_indented_otherwise_is_asked_about(text, hint):
    (problem,) = wrong(text)
    assert "is not YAML" in problem
    assert problem.endswith(f"; {hint}" if hint else ")")


def test_all_duplicate_keys_are_located_at_once():
    assert len(wrong("a: 1\na: 2\nb: {c: 1, c: 2}\n")) == 2


def test_a_file_may_begin_with_a_byte_order_mark():
    document, problems = read(b"\xef\xbb\xbfa: 1\n")
    assert (document.data, problems) == ({"a": 1}, [])


def test_aliases_may_be_used_but_not_to_unfold_without_bounds():
    fine, problems = read("x: &x {p: 1}\ny: *x\n")
    assert (fine.data["y"], problems) == ({"p": 1}, [])
    laughs = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    laughs += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    problems = wrong("\n".join(laughs))
    assert len(problems) == 1
    assert "unfolds to more than 20000 values" in problems[0]


@pytest.mark.parametrize(
    "text", ["[" * 100 + "]" * 100, "[" * 5000 + "]" * 5000, "{a: " * 60 + "1" + "}" * 60]
)
def test_depth_is_bounded(text):
    problems = wrong(text)
    assert len(problems) == 1
    assert "nested more than 40 levels deep" in problems[0]


def test_size_is_bounded():
    assert wrong("a: " + "x" * 300_000) == [
        "f.yaml: is larger than 256 KiB: is it a policy at all?"
    ]


def test_paths_are_shown_as_people_write_them():
    assert format_path(("windows", 0, "allow")) == "windows[0].allow"
    assert format_path(("labels", "k8s.io/app")) == 'labels["k8s.io/app"]'


_TEXT = st.text(max_size=8).filter(str.isprintable)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), _TEXT)
_KEYS = _TEXT.filter(lambda key: key != "<<")
_PLAIN = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _PLAIN, min_size=1, max_size=4))
def test_json_is_read_as_it_is(data):
    document, problems = read(json.dumps(data, ensure_ascii=False))
    assert problems == []
    assert document.data == data


@given(st.binary(max_size=60))
def test_any_bytes_give_a_document_or_problems_and_never_a_traceback(raw):
    document, problems = read(raw)
    assert document is not None or problems
    assert all(problem.message for problem in problems)
