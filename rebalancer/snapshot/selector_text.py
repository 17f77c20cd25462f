"""Label selectors as kubectl takes them on the command line: ``app=web,tier!=db,zone in (a,b),!old``."""

from __future__ import annotations

import re

from rebalancer.errors import PolicyError
from rebalancer.wire.objects import LabelSelector, LabelSelectorRequirement

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_FORMS = (
    (re.compile(rf"({_KEY})\s*(?:==|=)\s*({_VALUE})\Z"), "In"),
    (re.compile(rf"({_KEY})\s*!=\s*({_VALUE})\Z"), "NotIn"),
    (re.compile(rf"({_KEY})\s+in\s*\(([^()]*)\)\Z"), "In"),
    (re.compile(rf"({_KEY})\s+notin\s*\(([^()]*)\)\Z"), "NotIn"),
    (re.compile(rf"()!\s*({_KEY})\Z"), "DoesNotExist"),
    (re.compile(rf"({_KEY})()\Z"), "Exists"),
)


def parse_selector(text: str) -> LabelSelector:
    """Return the selector that ``text`` means (``k8s.io/apimachinery/pkg/labels.Parse``).

    Raises:
        PolicyError: it is none.
    """
    requirements = [_requirement(part.strip(), text) for part in re.split(r",(?![^()]*\))", text)]
    return LabelSelector(match_expressions=tuple(requirements))


def _requirement(part: str, text: str) -> LabelSelectorRequirement:
    for form, operator in _FORMS:
        match = form.match(part)
        if match is None:
            continue
        key, remainder = match.groups()
        if operator == "DoesNotExist":
            return LabelSelectorRequirement(key=remainder, operator=operator)
        if operator == "Exists":
            return LabelSelectorRequirement(key=key, operator=operator)
        values = tuple(value.strip() for value in remainder.split(","))
        return LabelSelectorRequirement(key=key, operator=operator, values=values)
    raise PolicyError([f"-l {text}: {part!r} is no selector; write for example app=web,tier!=db"])
