"""Values of a chart in a release: Helm's parameters, and the values of the descheduler's chart that are not its policy."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rebalancer.base.errors import PolicyError
from rebalancer.policy.document import KeyPath, YamlDocument

_SAME = [
    "activeDeadlineSeconds",
    "affinity",
    "commonLabels",
    "cronJobAnnotations",
    "cronJobLabels",
    "dnsConfig",
    "failedJobsHistoryLimit",
    "fullnameOverride",
    "imagePullSecrets",
    "jobAnnotations",
    "jobLabels",
    "kind",
    "nameOverride",
    "namespaceOverride",
    "nodeSelector",
    "podAnnotations",
    "podLabels",
    "podSecurityContext",
    "priorityClassName",
    "rbac",
    "resources",
    "schedule",
    "securityContext",
    "serviceAccount",
    "startingDeadlineSeconds",
    "successfulJobsHistoryLimit",
    "suspend",
    "timeZone",
    "tolerations",
    "ttlSecondsAfterFinished",
]
CHART_VALUES: Mapping[str, str] = {
    **dict.fromkeys(_SAME, "our chart has a value of this name and meaning"),
    "automountServiceAccountToken": "a pod of ours always has its token",
    "command": "the image of ours has its own",
    "cronJobApiVersion": "always batch/v1",
    "deploymentAnnotations": "here commonAnnotations, of all objects",
    "deschedulingInterval": "here serve.every",
    "extraServiceAccountVolumeMounts": "here extraVolumeMounts",
    "extraServiceAccountVolumes": "here extraVolumes",
    "image": "here image, with an image of ours",
    "initContainers": "none here",
    "leaderElection": "always on here",
    "livenessProbe": "a probe of its own here",
    "podDisruptionBudget": "none here",
    "podSecurityPolicy": "none here",
    "ports": "here serve.port",
    "replicas": "here serve.replicas",
    "service": "here serve.service",
    "serviceMonitor": "here serve.service, with monitor; metrics.rules has the alerts",
    "topologySpreadConstraints": "replicas of serve are spread always",
}
"""Value of the descheduler's chart, 0.20 to 0.36, that is not its policy -> what to set in ours."""

# A key with escapes, the indices after it, and what ends it.
_KEY = re.compile(r"((?:\\.|[^\\.\[=,])+)((?:\[[0-9]{1,5}\])*)(\.(?=.)|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_INTEGER = re.compile(r"(?!0)[-+]?[0-9]{1,18}\Z")
_KNOWN = {"true": True, "false": False, "null": None, "0": 0}


def with_parameters(values: YamlDocument, parameters: YamlDocument) -> YamlDocument:
    """Return values with the ``parameters`` of an Application of Argo CD over them, as Helm reads ``--set``.

    That is what Argo CD calls; those with ``forceString`` come after all others, as ``--set-string`` does
    (helm.sh/helm/v3/pkg/strvals).

    Raises:
        PolicyError: Helm would refuse a name or a value.
    """
    data, lines = copy.deepcopy(values.data or {}), dict(values.lines)
    items = parameters.data if isinstance(parameters.data, list) else []
    given = [(i, one) for i, one in enumerate(items) if isinstance(one, dict)]
    for index, one in sorted(given, key=lambda pair: pair[1].get("forceString") is True):
        name, text = str(one.get("name", "")), one.get("value", "")
        path = _parse_name(name)
        try:
            text = text if isinstance(text, str) else json.dumps(text)
            _put(data, path, _read(text, as_text=one.get("forceString") is True))
        except (ValueError, TypeError):
            message = f"Helm cannot set {name}={text}"
            problem = replace(parameters.problem((index,), message), path=())
            raise PolicyError([str(problem)]) from None
        line = parameters.problem((index,), "").line
        lines = {path[:size]: line for size in range(len(path))} | lines | {path: line}
    return replace(values, data=data, lines=lines)


def _parse_name(name: str) -> KeyPath:
    path: list[str | int] = []
    at = 0
    while at < len(name) and (match := _KEY.match(name, at)) is not None:
        path += [_ESCAPE.sub(r"\1", match[1]), *map(int, re.findall("[0-9]+", match[2]))]
        at = match.end()
    return tuple(path) if at == len(name) else ()


def _read(text: str, *, as_text: bool) -> Any:
    """Return the value of a parameter; ``{a,b}`` is a list, and other commas are part of the text.

    Raises:
        ValueError: a list does not end.
    """
    if text.startswith("{"):
        if not text.endswith("}"):
            raise ValueError(text)
        return [_read_item(one, as_text=as_text) for one in _COMMA.split(text[1:-1])]
    return _read_item(text, as_text=as_text)


def _read_item(text: str, *, as_text: bool) -> Any:
    text = _ESCAPE.sub(r"\1", text)
    if not as_text and (known := text.lower()) in _KNOWN:
        return _KNOWN[known]
    return int(text) if not as_text and _INTEGER.match(text) else text


def _put(here: Any, path: KeyPath, value: Any) -> None:
    """Set a value of nested data; lists are extended, and what an index leads into is replaced if it is no mapping.

    Raises:
        TypeError: on the way there is something else than a mapping or a list.
        ValueError: there is no path.
    """
    if not path:
        raise ValueError(path)
    for key, following in (*pairwise(path), (path[-1], None)):
        if isinstance(key, int):
            here += [None] * (key + 1 - len(here))
        if following is None:
            here[key] = value
        else:
            here = _enter(here, key, list if isinstance(following, int) else dict)


def _enter(here: Any, key: str | int, kind: type[Any]) -> Any:
    if isinstance(key, str):
        lacks = key not in here
    else:
        lacks = here[key] is None or (kind is dict and not isinstance(here[key], dict))
    if lacks:
        here[key] = kind()
    if not isinstance(here[key], kind):
        raise TypeError(key)
    return here[key]
