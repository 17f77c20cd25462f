"""Read the descheduler's policy from a file: the policy itself, or a ConfigMap that contains it."""

from __future__ import annotations

import re
from dataclasses import replace

from rebalancer import API_VERSION
from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import quote_value
from rebalancer.policy.document import FileProblem, YamlDocument, parse, without_nulls

V1ALPHA1, V1ALPHA2 = "descheduler/v1alpha1", "descheduler/v1alpha2"
KIND = "DeschedulerPolicy"
_DATA_KEY = "policy.yaml"
# A literal block scalar, as in "policy.yaml: |": its text begins in the next line, and keeps its lines.
_LITERAL = re.compile(rb":\s*\|[-+1-9]*\s*(?:#.*)?\Z")


def peer_document(raw: bytes, file: str) -> YamlDocument:
    """Return the document that holds the descheduler's policy, with the line numbers of ``file``.

    Keys without a value are dropped: the descheduler treats them as absent.

    Raises:
        PolicyError: the file is not YAML, or contains no such policy.
    """
    document = _whole(*parse(raw, file))
    if isinstance(document.data, dict) and document.data.get("kind") == "ConfigMap":
        document = _in_config_map(document, raw)
    _check_kind(document)
    return replace(document, data=without_nulls(document.data))


def _whole(document: YamlDocument | None, problems: list[FileProblem]) -> YamlDocument:
    if document is None or problems:
        raise PolicyError([str(problem) for problem in problems])
    return document


def _in_config_map(outer: YamlDocument, raw: bytes) -> YamlDocument:
    data = outer.data.get("data")
    texts = {k: v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}
    key = _DATA_KEY if _DATA_KEY in texts or len(texts) != 1 else next(iter(texts))
    if key not in texts:
        message = f"this ConfigMap has no {_DATA_KEY}; give the one with the descheduler's policy"
        raise PolicyError([str(outer.problem(("data",), message))])
    line = outer.lines["data", key]
    literal = _LITERAL.search(raw.split(b"\n")[line - 1].rstrip()) is not None
    inner, problems = parse(texts[key].encode(), outer.file)

    def line_of(within: int) -> int:
        return line + within if literal else line

    document = _whole(inner, [replace(problem, line=line_of(problem.line)) for problem in problems])
    return replace(
        document, lines={path: line_of(within) for path, within in document.lines.items()}
    )


def _check_kind(document: YamlDocument) -> None:
    data = document.data
    if not isinstance(data, dict):
        message = f"{quote_value(data)} should be a mapping of keys to values"
        raise PolicyError([str(document.problem((), message))])
    kind, version = data.get("kind"), data.get("apiVersion")
    if version == API_VERSION:
        key, message = "apiVersion", "this is a policy of the rebalancer already"
    elif kind != KIND:
        what = (
            "is missing" if kind is None else f"{quote_value(kind)} is no policy of the descheduler"
        )
        key, message = "kind", f"{what}; give a {KIND}, or the ConfigMap that holds it"
    elif version not in (V1ALPHA1, V1ALPHA2):
        what = "is missing" if version is None else f"{quote_value(version)} is not known"
        key, message = "apiVersion", f"{what}; known here: {V1ALPHA1}, {V1ALPHA2}"
    else:
        return
    raise PolicyError([str(document.problem((key,), message))])
