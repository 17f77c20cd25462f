"""Find the descheduler's policy in a file.

The policy may be a file of its own, or part of a ConfigMap or of the values of the descheduler's chart. Manifests are often
in one file with others (a CronJob, its rights), and values in a HelmRelease of Flux or an Application of Argo CD. The chart writes
``apiVersion`` and ``kind`` above ``deschedulerPolicy`` of its values (charts/descheduler/templates/configmap.yaml), which
Helm has merged into the chart's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rebalancer import API_VERSION
from rebalancer.base.data_text import without_nulls
from rebalancer.base.errors import PolicyError
from rebalancer.base.plain_text import quote_value
from rebalancer.migrate.helm import CHART_VALUES, with_parameters
from rebalancer.migrate.plugins import STRATEGIES
from rebalancer.migrate.uses import KIND, V1ALPHA2, KeyFate, Notes
from rebalancer.migrate.v1alpha1 import V1ALPHA1, as_v1alpha2
from rebalancer.policy.document import FileProblem, KeyPath, YamlDocument, parse, parse_stream

_DATA_KEY = "policy.yaml"
_POLICY, _VERSION = "deschedulerPolicy", "deschedulerPolicyAPIVersion"
_DRY_RUN = "dry-run"
_OPTIONS = "cmdOptions"
_OBSERVES = "becomes mode: observe: it plans and moves nothing"
_TRUE = ("", "1", "t", "true", "none")
"""What Go reads as true, and a flag without a value."""
_APPLICATION = ("spec", "source", "helm")
_BESIDE = {
    "valuesFrom": "values from elsewhere",
    "valueFiles": "files of values",
    "fileParameters": "values from files",
    "postRenderers": "changes of what the chart makes",
}
"""Keys beside the values of a release -> what they add, which is not in its file."""
_IN_CLUSTER = "; the ConfigMap in the cluster has the whole policy, and its pods have the flags"
_NO_POLICY = (
    "these values have no deschedulerPolicy, so the policy is that of the chart's own release:"
    " give the ConfigMap in the cluster"
)
_REFUSALS = {
    "Application": _NO_POLICY,
    "HelmRelease": _NO_POLICY,
    "KubeDescheduler": "the operator of OpenShift makes the policy of its profiles: give the ConfigMap with"
    " policy.yaml that it writes into the same namespace",
}
"""Kind -> why such a manifest is not enough."""
_GIVE = f"give a {KIND}, the ConfigMap that holds it, or the values of the descheduler's chart"
# A literal block scalar, as in "policy.yaml: |": its text begins in the next line, and keeps its lines.
_LITERAL = re.compile(rb":\s*\|[-+1-9]*\s*(?:#.*)?\Z")


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The parts of a file that concern the descheduler."""

    document: YamlDocument
    """The policy document in the form of v1alpha2, with the line numbers of the file."""
    version: str
    """The version of the format in the file."""
    notes: Notes
    """Notes on the place of the policy; notes on its parts are added later."""
    dry_run: bool
    """Whether the descheduler is started with ``--dry-run``, by the values of its chart or by a manifest beside."""


def read_source(raw: bytes, file: str) -> PolicySource:
    """Find the descheduler's policy in ``raw``, the content of ``file``.

    Keys without a value are dropped: the descheduler treats them as absent.

    Raises:
        PolicyError: the file is not YAML, or contains no such policy, or several.
    """
    stream = parse_stream(raw, file)
    document = _whole(*(stream[0] if len(stream) == 1 else _choose(stream, file, raw)))
    outer, inner = document, _find_values(document, raw)
    if inner is not None:
        document = _in_values(inner[0])
    elif isinstance(document.data, dict) and document.data.get("kind") == "ConfigMap":
        document = _in_config_map(document, raw)
    _check_kind(document)
    document = replace(document, data=without_nulls(document.data))
    given, version = document, document.data["apiVersion"]
    document, notes = as_v1alpha2(document) if version == V1ALPHA1 else (document, Notes(document))
    started = [each.data for each, _ in stream if each is not None]
    dry_run = any(map(_starts_dry_run, started))
    if dry_run:
        notes.add((), KeyFate.DIFFERS, f"--{_DRY_RUN}: {_OBSERVES}")
    if inner is not None:
        _note_chart(given, notes)
        _note_values(inner[0], notes)
        for key, what in _BESIDE.items():
            if _at(outer, path := (*inner[1], key)):
                notes.add(
                    path,
                    KeyFate.LOST,
                    f"{what}, which may hold limits or a dry run{_IN_CLUSTER}",
                    of=outer,
                )
        dry_run = dry_run or _has_dry_run(inner[0].data.get(_OPTIONS))
    return PolicySource(document, version, notes, dry_run)


def _has_dry_run(options: Any) -> bool:
    """Return whether ``cmdOptions`` of the chart's values have the flag; one without a value is written bare."""
    if not isinstance(options, dict) or _DRY_RUN not in options:
        return False
    return str(options[_DRY_RUN]).lower() in _TRUE


def _starts_dry_run(manifest: Any) -> bool:
    """Return whether a container of a manifest starts the descheduler with the flag."""
    for container in _containers(manifest):
        words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
        if "descheduler" in f"{container.get('image', '')} {' '.join(words)}":
            flags = [word.partition("=") for word in words]
            if any(name == f"--{_DRY_RUN}" and value.lower() in _TRUE for name, _, value in flags):
                return True
    return False


def _containers(data: Any) -> Iterator[dict[str, Any]]:
    """Yield the containers of a manifest, wherever its pod template is."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "containers" and isinstance(value, list):
                yield from (one for one in value if isinstance(one, dict))
            else:
                yield from _containers(value)
    elif isinstance(data, list):
        for value in data:
            yield from _containers(value)


def _whole(document: YamlDocument | None, problems: list[FileProblem]) -> YamlDocument:
    if document is None or problems:
        raise PolicyError([str(problem) for problem in problems])
    return document


_Parsed = tuple[YamlDocument | None, list[FileProblem]]


def _choose(stream: list[_Parsed], file: str, raw: bytes) -> _Parsed:
    """Return the one document of several that contains a policy."""
    holding = [one for one in stream if one[0] is not None and _is_source(one[0], raw)]
    if len(holding) == 1:
        return holding[0]
    if not holding:
        message = f"none of its {len(stream)} documents is a policy of the descheduler; {_GIVE}"
        raise PolicyError([str(FileProblem(file, 0, (), message))])
    message = f"is one of {len(holding)} policies of the descheduler in this file; put each into a file of its own"
    raise PolicyError([str(one.problem((), message)) for one, _ in holding if one is not None])


def _is_source(document: YamlDocument, raw: bytes) -> bool:
    data = document.data
    if _find_values(document, raw) is not None:
        return True
    if not isinstance(data, dict) or data.get("kind") != "ConfigMap":
        return isinstance(data, dict) and data.get("kind") == KIND
    texts = data.get("data")
    return isinstance(texts, dict) and any(KIND in str(text) for text in texts.values())


def _find_values(document: YamlDocument, raw: bytes) -> tuple[YamlDocument, KeyPath] | None:
    """Return values with a policy, also of a chart that has the descheduler's as a subchart; and where they are."""
    for values, release in _list_values(document, raw):
        for path in ((), ("descheduler",)):
            if isinstance(_at(values, (*path, _POLICY)), dict):
                return _below(values, path), release
    return None


def _list_values(document: YamlDocument, raw: bytes) -> Iterator[tuple[YamlDocument, KeyPath]]:
    """Yield (values, the section that they stand in) of a file of values, a HelmRelease or an Application."""
    yield document, ()
    yield _below(document, ("spec", "values")), ("spec",)
    sources = _at(document, ("spec", "sources"))
    several = range(len(sources) if isinstance(sources, list) else 0)
    for path in (_APPLICATION, *(("spec", "sources", index, "helm") for index in several)):
        if isinstance(helm := _at(document, path), dict) and _POLICY in str(helm):
            values = _below(document, (*path, "valuesObject"))
            if values.data is None and isinstance(helm.get("values"), str):
                values = _parse_text(document, (*path, "values"), raw)
            yield with_parameters(values, _below(document, (*path, "parameters"))), path


def _at(document: YamlDocument, path: KeyPath) -> Any:
    data = document.data
    for key in path:
        inside = isinstance(data, list if isinstance(key, int) else dict)
        data = data[key] if inside and (isinstance(key, int) or key in data) else None
    return data


def _below(document: YamlDocument, path: KeyPath) -> YamlDocument:
    size = len(path)
    lines = {at[size:]: line for at, line in document.lines.items() if at[:size] == path}
    return replace(document, data=_at(document, path), lines=lines)


def _in_values(values: YamlDocument) -> YamlDocument:
    """Return the policy that the chart makes of its values."""
    policy = _below(values, (_POLICY,))
    # Charts for v1alpha2 write it where the values do not say; older ones had v1alpha1 fixed.
    default = V1ALPHA1 if "strategies" in policy.data else V1ALPHA2
    version = values.data.get(_VERSION) or default
    lines = dict(policy.lines)
    lines["apiVersion",] = values.lines.get((_VERSION,), lines[()])
    return replace(policy, data={**policy.data, "apiVersion": version, "kind": KIND}, lines=lines)


def _note_chart(document: YamlDocument, notes: Notes) -> None:
    """Note what the chart adds to the policy, which is not in the file."""
    whole = "the ConfigMap in the cluster has all of it"
    text = ""
    if document.data["apiVersion"] == V1ALPHA1:
        if not document.data.get("strategies", {}).keys() >= STRATEGIES.keys():
            text = "the chart's own strategies, which hold where the values do not name them"
    elif "profiles" not in document.data:
        text = "the chart's own profiles, which hold where the values have none"
    if text:
        notes.add((), KeyFate.LOST, f"{text}; {whole}")


def _note_values(values: YamlDocument, notes: Notes) -> None:
    """Note each value beside the policy: most are about the descheduler's own workload."""
    for key, value in values.data.items():
        if key in (_POLICY, _VERSION) or value in (None, "", {}, []):
            continue
        if key == _OPTIONS and isinstance(value, dict):
            for option in value:
                if option != _DRY_RUN:
                    text = "a flag of the descheduler"
                    notes.add((_OPTIONS, option), KeyFate.LOST, text, of=values)
                elif _has_dry_run(value):
                    notes.add((_OPTIONS, option), KeyFate.DIFFERS, _OBSERVES, of=values)
        elif key in CHART_VALUES:
            notes.add((key,), KeyFate.LOST, CHART_VALUES[key], of=values)
        else:
            notes.add((key,), KeyFate.IDLE, "the descheduler's chart has no such value", of=values)


def _in_config_map(outer: YamlDocument, raw: bytes) -> YamlDocument:
    data = outer.data.get("data")
    texts = {k: v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}
    key = _DATA_KEY if _DATA_KEY in texts or len(texts) != 1 else next(iter(texts))
    if key not in texts:
        message = f"this ConfigMap has no {_DATA_KEY}; give the one with the descheduler's policy"
        raise PolicyError([str(outer.problem(("data",), message))])
    return _parse_text(outer, ("data", key), raw)


def _parse_text(outer: YamlDocument, path: KeyPath, raw: bytes) -> YamlDocument:
    """Return the document in a text of another one, with the lines of the file."""
    line = outer.lines[path]
    literal = _LITERAL.search(raw.split(b"\n")[line - 1].rstrip()) is not None
    inner, problems = parse(_at(outer, path).encode(), outer.file)

    def line_of(within: int) -> int:
        return line + within if literal else line

    document = _whole(inner, [replace(problem, line=line_of(problem.line)) for problem in problems])
    return replace(document, lines={at: line_of(within) for at, within in document.lines.items()})


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
        key, message = "kind", f"{what}; {_REFUSALS.get(str(kind), _GIVE)}"
        if not data.get(_POLICY) and data.keys() <= {*CHART_VALUES, _OPTIONS, _POLICY, _VERSION}:
            key, message = "", _NO_POLICY
    elif version not in (V1ALPHA1, V1ALPHA2):
        what = "is missing" if version is None else f"{quote_value(version)} is not known"
        key, message = "apiVersion", f"{what}; write {V1ALPHA2}"
    else:
        return
    raise PolicyError([str(document.problem((key,) if key else (), message))])
